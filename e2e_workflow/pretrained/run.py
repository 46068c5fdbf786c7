"""The table of trained networks: metric in float, of quantized networks as their
tools run them, and of the translator's networks.

python -m e2e_workflow.pretrained.run [--only NAME ...] [--paths PATH ...]
                                      [--smoke] [--write]

Continues where it stopped. The results of each network and path are kept in the
cache folder: those of other tools while model and data are the same, ours while
the package is the same, too.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import pickle
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, Mapping

import numpy as np
import onnx

from benchmarks.measure import machine

from . import check, environment, fronts, infer, packages, program, quantize, registry
from .task import Size, Task, mean

TABLE = Path(__file__).resolve().parents[2] / "docs" / "tables" / "pretrained.md"
SMOKE = Size(8, 24)
WIDEN = ("--asymmetric", "widen")


@dataclass
class Result:
    """One path of one network. quantized: score of the network as its tool runs it, and ours: 'GPU', 'GPU check', 'DLA', ...

    A score is (mean, half of the 95% interval). failed: what did not go through, and why.
    """

    quantized: tuple[float, float] | None = None
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A network on disk with its data and answers."""

    network: registry.Network
    folder: Path
    model: Path
    calibration: Path
    task: Task
    truth: list[Any]
    outputs: dict[str, tuple[int, ...]]
    reference: tuple[float, float]
    key: str

    def score(self, outputs: Mapping[str, np.ndarray], index: int) -> float:
        """Of the outputs for one sample, in whatever shape a network for the DLA has them."""
        return self.task.score([outputs[n].reshape(shape) for n, shape in self.outputs.items()], self.truth[index])

    def judge(self) -> Callable[[Mapping[str, np.ndarray], int], float] | None:
        """The score of the outputs for one calibration sample; None where the answers to these are not known."""
        if self.task.truth is not None:
            return None
        answers = infer.answers(self.model, self.task.calibration)

        def score(outputs: Mapping[str, np.ndarray], index: int) -> float:
            return self.task.score([outputs[n].reshape(s) for n, s in self.outputs.items()], answers[index])

        return score

    def figure(self, model: Path | onnx.ModelProto) -> tuple[float, float]:
        """Score of a network with the same inputs and outputs, as ONNX Runtime computes it."""
        found = infer.answers(model, self.task.evaluation)
        return mean([self.score(dict(zip(self.outputs, outputs)), index) for index, outputs in enumerate(found)])


def kept_task(network: registry.Network, size: Size, model: onnx.ModelProto, store: Path) -> Task:
    """The task with its samples, which are made again when the code that makes them changed."""
    parts = ("task", "text", "sound", "images", "infer", "packages", "registry")
    key = code_of(*(f"e2e_workflow/pretrained/{part}.py" for part in parts)) + str(size)
    if store.is_file():
        known, calibration, evaluation, truth = pickle.loads(store.read_bytes())
        if known == key:
            made = network.make_task(Size(1, 1), model)  # for its score
            return replace(made, calibration=calibration, evaluation=evaluation, truth=truth)
    made = network.make_task(size, model)
    store.write_bytes(pickle.dumps((key, made.calibration, made.evaluation, made.truth)))
    return made


def prepare(network: registry.Network, size: Size, folder: Path) -> Prepared:
    """The network as it ships, its data, and its score. Raises Unavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    path, data = folder / f"{network.name}.onnx", folder / "calibration.npz"
    loaded = network.model()
    onnx.save(loaded, str(path))
    task = kept_task(network, size, loaded, folder / "task.pickle")
    np.savez(data, **task.calibration)
    answers = infer.answers(path, task.evaluation)
    truth = list(answers if task.truth is None else task.truth)
    outputs = {value.name: found.shape for value, found in zip(loaded.graph.output, answers[0])}
    score = mean([task.score(found, answer) for found, answer in zip(answers, truth)])
    key = hashlib.sha256(path.read_bytes())
    for feeds in (task.calibration, task.evaluation):
        for name, values in sorted(feeds.items()):
            key.update(name.encode() + values.tobytes())
    return Prepared(network, folder, path, data, task, truth, outputs, score, f"{key.hexdigest()[:16]} {score}")


# ---------------- paths


@dataclass(frozen=True)
class Route:
    """A way to a quantized network. tool: writes it from the float one (model, calibration, file); None: the model itself.

    with_data: our command gets the calibration samples. native: for networks that ship quantized, and for no others.
    """

    title: str
    tool: Callable[[Path, Mapping[str, np.ndarray], Path], None] | None = None
    with_data: bool = False
    options: tuple[str, ...] = ()
    native: bool = False


EXPLICIT, RECOVERED = "explicit", "deploy"
ROUTES = {
    "float": Route("float + data", with_data=True),
    RECOVERED: Route("float, `deploy`", with_data=True),
    "onnxruntime": Route("ONNX Runtime, symmetric", quantize.onnxruntime_symmetric),
    "onnxruntime_default": Route("ONNX Runtime, default", quantize.onnxruntime_default, options=WIDEN),
    "modelopt": Route("ModelOpt", quantize.modelopt),
    "native": Route("as shipped", options=WIDEN, native=True),
    EXPLICIT: Route("explicit", with_data=True),
}


def quantized(ready: Prepared, route: Route) -> Path:
    """The model that our command gets: written by a tool, or as it is."""
    if route.tool is None:
        return ready.model
    return ready.folder / f"{ready.network.name}_{route.tool.__name__}.onnx"


def by_tool(ready: Prepared, route: Route) -> Result:
    """The tool's network, and its score in ONNX Runtime."""
    result = Result()
    with _noted(result, route.title):
        if route.tool is not None:
            route.tool(ready.model, ready.task.calibration, quantized(ready, route))
            result.quantized = ready.figure(quantized(ready, route))
    return result


def explicit(ready: Prepared) -> Result:
    """`explicit` of the network with data: run by ONNX Runtime as TensorRT 11 would read it."""
    result = Result()
    with _noted(result, EXPLICIT):
        data, options = (None, WIDEN) if ready.network.native else (ready.calibration, ())
        model, seconds, megabytes = program.explicit(ready.model, ready.folder / EXPLICIT, data, *options)
        result.quantized = ready.figure(model)
        result.facts.update(seconds=seconds, megabytes=megabytes)
    return result


def ours(ready: Prepared, name: str, route: Route) -> Result:
    """The translation for both targets: the simulated engine, the independent check, the plan."""
    result, model = Result(), quantized(ready, route)
    calibration = ready.calibration if route.with_data else None
    for target in program.TARGETS:
        with _noted(result, target):
            folder = ready.folder / f"{name}_{target}"
            if name == RECOVERED:
                made = program.deploy(model, target, folder, ready.task.calibration, ready.judge())
            else:
                made = program.translate(model, target, folder, calibration, *route.options)
            result.facts.setdefault("seconds", made.seconds)
            result.facts.setdefault("megabytes", made.megabytes)
            result.facts.update(_facts(made.report(), target))
            if name == RECOVERED:
                result.facts[f"{target} front"], result.facts[f"{target} passes"] = fronts.searched(made.folder)
            with _noted(result, f"{target} check"):
                faked = check.fake_quantized(made.network, made.scales_file, made.above)
                result.figures[f"{target} check"] = ready.figure(faked)
            scores, verdict = program.simulated(model, made, ready.task.evaluation, ready.score)
            result.figures[target] = mean(scores)
            result.facts[f"{target} verdict"] = verdict
            _explain(ready, made, result, target)
    return result


def _explain(ready: Prepared, made: program.Made, result: Result, target: str) -> None:
    """Where the check differs by more than the error bar: the figure without the roundings that an engine may omit."""
    mine, checked = result.figures[target], result.figures.get(f"{target} check")
    if checked is not None and abs(mine[0] - checked[0]) > max(mine[1], checked[1]):
        omitted = check.omitted(made.network, made.scales_file, made.above)
        faked = check.fake_quantized(made.network, made.scales_file, made.above, omitted)
        result.facts[f"{target} unrounded"] = ready.figure(faked)


def _facts(report: dict[str, Any], target: str) -> dict[str, Any]:
    """Share of the multiplications in INT8, layers on the GPU (of a DLA), estimated milliseconds."""
    macs, cost = report["coverage"]["macs"], report.get("cost") or {}
    found: dict[str, Any] = {f"{target} INT8": 100.0 * macs["int8"] / macs["total"] if macs["total"] else None}
    if cost.get("milliseconds") is not None:
        found[f"{target} ms"] = cost.get("total_milliseconds", cost["milliseconds"])
    if target == "DLA":
        reasons: dict[str, int] = {}
        for layer in report["plan"]:
            if layer["device"] == "gpu" and layer["precision"] != "none":
                reasons[layer["op"]] = reasons.get(layer["op"], 0) + 1
        found["GPU layers"] = reasons
    return found


@contextlib.contextmanager
def _noted(result: Result, what: str) -> Iterator[None]:
    """What fails is written down with its reason; the other paths go on."""
    try:
        yield
    except (program.Failed, packages.Unavailable) as error:
        result.failed[what] = str(error)
    except Exception as error:  # of a tool: the table says so, the log shows where
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        result.failed[what] = f"{type(error).__name__}: {lines[0]}"


# ---------------- results, kept in the cache


def commit() -> str:
    """The last commit that changed the package, with + if files of it are changed since; empty without Git."""
    root, said = Path(__file__).resolve().parents[2], []
    for words in (["log", "-1", "--format=%h"], ["status", "--porcelain"]):
        done = subprocess.run(["git", *words, "--", "qdq_translator"], cwd=root, capture_output=True, text=True)
        said.append(done.stdout.strip())
    return said[0] + "+" * bool(said[1])


def code_of(*patterns: str) -> str:
    """Digest of the files of this repository that match."""
    root = Path(__file__).resolve().parents[2]
    found = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()[:16]


def store_of(network: registry.Network, size: Size) -> Path:
    """The file of its results."""
    return packages.cache() / ("smoke" if size == SMOKE else "table") / network.name / "results.json"


def known(network: registry.Network, size: Size) -> dict[str, Any]:
    """The stored results, of whatever version. Raises Unavailable if there are none."""
    store = store_of(network, size)
    if not store.is_file():
        raise packages.Unavailable("not measured yet")
    return json.loads(store.read_text())


def measure(network: registry.Network, size: Size, paths: Collection[str] = ()) -> dict[str, Any]:
    """The results of a network, as stored: what its tools or our program did not change stays. Raises Unavailable."""
    store = store_of(network, size)
    folder = store.parent
    row = code_of("e2e_workflow/pretrained/*.py")
    program_code = code_of(
        "qdq_translator/**/*.py", "e2e_workflow/pretrained/check.py", "e2e_workflow/pretrained/program.py"
    )
    kept = json.loads(store.read_text()) if store.is_file() else {}
    wanted = [n for n, r in ROUTES.items() if (n == EXPLICIT or r.native == network.native) and n in (paths or ROUTES)]
    done = {name for name in kept.get("ours", ()) if not kept["tools"].get(name, {}).get("failed")}
    if kept.get("row") == row and kept.get("program") == program_code and set(wanted) <= done:
        return kept
    ready = prepare(network, size, folder)
    if kept.get("data") != ready.key or "tools" not in kept:
        kept = {"data": ready.key, "float": ready.reference, "tools": {}, "ours": {}}
    if kept.get("program") != program_code:
        kept.update(program=program_code, ours={})
    kept.update(row=row)
    for name in wanted:
        _measure(ready, name, ROUTES[name], kept)
        store.write_text(json.dumps(kept, indent=1, default=float))
    return kept


def _measure(ready: Prepared, name: str, route: Route, kept: dict[str, Any]) -> None:
    start = time.perf_counter()
    if route.tool is not None and (name not in kept["tools"] or kept["tools"][name]["failed"]):
        kept["tools"][name] = asdict(by_tool(ready, route))
        kept["ours"].pop(name, None)
    if name not in kept["ours"]:
        failed = kept["tools"].get(name, {}).get("failed")
        kept["ours"][name] = asdict(
            Result() if failed else explicit(ready) if name == EXPLICIT else ours(ready, name, route)
        )
        kept["ours"][name]["facts"]["commit"] = commit()
    print(f"{ready.network.name}, {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def results_of(kept: dict[str, Any]) -> dict[str, Result]:
    """Route -> what the tool and our program gave."""
    found = {}
    for name in ROUTES:
        tool, mine = (Result(**kept[part][name]) if name in kept[part] else None for part in ("tools", "ours"))
        if tool or mine:
            parts = [part for part in (tool, mine) if part]
            found[name] = Result(
                next((part.quantized for part in parts if part.quantized), None),
                parts[-1].figures,
                parts[-1].facts,
                {what: why for part in parts for what, why in part.failed.items()},
            )
    return found


# ---------------- the table

HEADER = [
    "network",
    "path",
    "float",
    "quantized",
    "GPU",
    "check",
    "DLA",
    "check",
    "INT8 GPU",
    "INT8 DLA",
    "layers left to the GPU",
    "ms, DLA",
    "s",
    "MB",
    "commit",
]
NUMBERS = (("DLA ms", "{:.3g}"), ("seconds", "{:.1f}"), ("megabytes", "{:.0f}"))
EARLIER = "earlier"
"""Commit of rows that were written before the table had this column."""


def rows_of(network: registry.Network, kept: dict[str, Any]) -> list[list[str]]:
    """A row a path."""
    rows = []
    for name, result in results_of(kept).items():
        shown = (None, kept["float"]) if network.native else (kept["float"], None)
        facts = result.facts
        cells = [network.name, ROUTES[name].title, _figure(shown[0]), _figure(result.quantized or shown[1])]
        for target in program.TARGETS:
            cells += [_figure(result.figures.get(target)), _figure(result.figures.get(f"{target} check"))]
        cells += [_number(facts.get(f"{target} INT8"), "{:.0f}%") for target in program.TARGETS]
        left = facts.get("GPU layers")
        kinds = ", ".join(f"{op} {count}" for op, count in sorted((left or {}).items(), key=lambda item: -item[1])[:3])
        cells.append("" if left is None else f"{sum(left.values())}" + (f": {kinds}" if left else ""))
        cells += [_number(facts.get(key), form) for key, form in NUMBERS]
        rows.append([*cells, facts.get("commit", "")])
    return rows


def _figure(value: Any) -> str:
    return "" if value is None else f"{value[0]:.1f} ± {value[1]:.1f}"


def _number(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def failures_of(network: registry.Network, kept: dict[str, Any]) -> list[str]:
    """One line for each thing that did not go through."""
    return [
        f"- {network.name}, {ROUTES[name].title}, {what}: {why}"
        for name, result in results_of(kept).items()
        for what, why in result.failed.items()
    ]


def differences_of(network: registry.Network, kept: dict[str, Any]) -> list[str]:
    """One line for each figure that differs from its check by more than the error bar."""
    lines = []
    for name, result in results_of(kept).items():
        for target in program.TARGETS:
            other = result.facts.get(f"{target} unrounded")
            if other is not None:
                mine, checked = result.figures[target], result.figures[f"{target} check"]
                holds = abs(mine[0] - other[0]) <= max(mine[1], other[1])
                lines.append(
                    f"- {network.name}, {ROUTES[name].title}, {target}: {_figure(mine)}, check {_figure(checked)}; without the roundings inside "
                    f"fusions and before data movement to layers above INT8 {_figure(other)}"
                    + ("." if holds else f": another cause; `verify` says {result.facts[f'{target} verdict']}.")
                )
    return lines


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table: the first two columns are text."""
    rule = ["---", "---", *["---:"] * (len(HEADER) - 2)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [HEADER, rule, *rows])


def registry_table() -> str:
    """Where each network comes from."""
    header = ["network", "package", "licence", "becomes ONNX", "preprocessing", "data", "metric, %"]
    rows = [
        [
            n.name,
            str(packages.PACKAGES[n.package]),
            packages.PACKAGES[n.package].licence,
            n.how,
            n.preprocessing,
            n.data,
            n.metric,
        ]
        for n in registry.NETWORKS
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def main(words: list[str] | None = None) -> int:
    """The command line. The exit status is 1 if a network that was asked for is skipped or a path fails in a smoke run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(registry.BY_NAME), help="these networks")
    parser.add_argument(
        "--paths", nargs="+", metavar="PATH", choices=list(ROUTES), help=f"of {', '.join(ROUTES)} (default: all)"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="the small networks, every second path by turns, a few samples"
    )
    parser.add_argument("--known", action="store_true", help="measures nothing: shows what the cache folder has")
    parser.add_argument("--write", action="store_true", help=f"writes {TABLE.name}")
    asked = parser.parse_args(words)
    networks = [registry.BY_NAME[name] for name in asked.only] if asked.only else list(registry.NETWORKS)
    if asked.smoke and not asked.only:
        networks = [network for network in networks if network.smoke]
    paths = asked.paths or [name for name in ROUTES if name != "modelopt" or not asked.smoke or environment.ready(name)]
    if asked.smoke and "modelopt" not in paths:
        print("ModelOpt is SKIPPED: a smoke run does not install it", file=sys.stderr, flush=True)
    rows, failures, differences, deployed = [], [], [], {}
    for number, network in enumerate(networks):
        some = paths[number % 2 :: 2] if asked.smoke and not asked.paths else paths
        try:
            size = SMOKE if asked.smoke else network.samples
            kept = known(network, size) if asked.known else measure(network, size, some)
        except packages.Unavailable as error:
            failures.append(f"- {network.name} is SKIPPED: {error}")
            print(failures[-1], file=sys.stderr, flush=True)
            continue
        rows += rows_of(network, kept)
        failures += failures_of(network, kept)
        differences += differences_of(network, kept)
        if RECOVERED in kept["ours"]:
            deployed[network.name] = kept["ours"][RECOVERED]["facts"]
        print("\n".join(" | ".join(row) for row in rows_of(network, kept)), flush=True)
    print("\n".join([*failures, *differences]))
    if asked.write:
        write(rows, failures, differences, deployed)
    return int(bool(failures) and (asked.smoke or bool(asked.only)))


def earlier(text: str, rows: list[list[str]]) -> tuple[list[list[str]], list[str]]:
    """Rows of a written table that `rows` do not replace, and their lines about the check."""
    new, titles = {(row[0], row[1]) for row in rows}, {route.title for route in ROUTES.values()}
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    old = [row for row in found if row[0] in registry.BY_NAME and row[1] in titles and (row[0], row[1]) not in new]
    starts = tuple(f"- {row[0]}, {row[1]}, {target}: " for row in old for target in program.TARGETS)
    lines = [line for line in text.splitlines() if starts and line.startswith(starts)]
    return [row + [EARLIER] * (len(HEADER) - len(row)) for row in old], lines


def write(
    rows: list[list[str]], failures: list[str], differences: list[str], deployed: Mapping[str, Mapping[str, Any]]
) -> None:
    """docs/tables/pretrained.md and its picture; what was not measured keeps its row. deployed: network -> facts."""
    before = TABLE.read_text(encoding="utf-8") if TABLE.is_file() else ""
    old, lines = earlier(before, rows)
    kept = {title: front for title, front in fronts.read(before).items() if title.split(",")[0] not in deployed}
    hard = {**kept, **fronts.hard(deployed)}
    fronts.PICTURE.write_text(fronts.picture(hard), encoding="utf-8")
    names, titles = list(registry.BY_NAME), [route.title for route in ROUTES.values()]
    rows = sorted([*rows, *old], key=lambda row: (names.index(row[0]), titles.index(row[1])))
    failures = [line for line in failures if not any(line.startswith(f"- {row[0]} is SKIPPED") for row in old)]
    left, different = ("\n".join(lines) or "Nothing." for lines in (failures, [*differences, *lines]))
    TABLE.write_text(
        "# Trained networks of public packages\n\n"
        "Written by `python -m e2e_workflow.pretrained.run --write`; [the workflow](../../e2e_workflow/pretrained/README.md) says what "
        f"each column is. {machine()}. The last column is the commit of the package that a row was measured with; *{EARLIER}*: "
        "by an unknown one, and by a check that rounded tensors before layers above INT8, too.\n\n"
        f"{markdown(rows)}\n\n## Where the check differs by more than the error bar\n\n{different}\n\n"
        f"## Where INT8 alone loses more than a point\n\n![Points lost against the share of MACs above INT8](../../assets/{fronts.PICTURE.name})\n\n"
        "The fronts of the searches of `deploy`, by the samples that decided: points lost (downwards; dashed: the point that "
        "may be lost) against the share of MACs above INT8 (to the right). Passes of "
        "the network over these samples, at most 40, and as many again where all samples had to decide.\n\n"
        f"{fronts.table(hard)}\n\n## Where they come from\n\n{registry_table()}\n\n## What does not go through\n\n{left}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
