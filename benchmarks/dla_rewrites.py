"""What `--dla_rewrites` does for networks: the rule list and the table of `docs/dla_rules.md` and `docs/tables/dla_networks.md`.

    python -m benchmarks.dla_rewrites ZOO [--write]
    python -m benchmarks.dla_rewrites --full FOLDER [--write]

ZOO is a folder with Q/DQ models, FOLDER what `benchmarks.full_networks` wrote. Every figure is
the rule table's prediction, but for differences and codes: of one random input, in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Optional

import numpy as np
import onnx

from benchmarks.full_networks import NETWORKS
from qdq_translator import TranslateOptions
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.report_rows import Verdict
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import input_specs
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.parts import Planned, tail, tail_begins
from qdq_translator.translation.passes.dla import NO_REWRITE, RULES
from qdq_translator.translation.passes.no_ops import NO_OPS
from qdq_translator.translation.planning.layers import headline
from qdq_translator.translation.targets.dla.limits import GPU, LIMITS
from qdq_translator.translation.targets.precision import total
from qdq_translator.translation.translator import Translation, translate

DOCS = Path(__file__).resolve().parents[1] / "docs"
RULES_PAGE, PAGE = DOCS / "dla_rules.md", DOCS / "tables" / "dla_networks.md"
OPTIONS = TranslateOptions(
    target="orin-dla",
    platform="jetpack-6.2",
    infer_concat_scales=True,
    infer_mul_scales=True,
    infer_bounds=True,
    infer_add_scales=True,
    add_unary_ew_scales_for_dla=True,
    unify_scales="max",
)
HEAD = (
    "| network | GPU layers | DLA subgraphs | DLA/GPU transitions | estimated ms on the DLA | estimated ms in all | largest "
    "difference in float | equal codes | equal to the Q/DQ model's | first unequal tensor, by codes at most | GPU layers left, "
    "and why |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n"
)


def rules() -> str:
    """The rules, one section each, from the docstrings of their modules."""
    parts = []
    for module in RULES:
        title, _, body = (module.__doc__ or "").strip().partition("\n")
        number, _, sentence = title.removeprefix("Rule ").partition(": ")
        if body.startswith("\n"):
            head, rest = sentence, body
        else:  # the first sentence runs over more lines
            more, _, rest = body.partition("\n\n")
            head, rest = f"{sentence} {more}", f"\n{rest}"
        parts.append(f"### {number}: {' '.join(head.split()).rstrip('.')}\n{rest.rstrip()}\n")
    return "\n".join(parts)


def operators() -> str:
    """Operators that the DLA does not have, or not in every TensorRT: the rules that name them in a case, or why none does."""
    cases = {module.RULE: (module.__doc__ or "").partition("\nNot: ")[0] for module in RULES}
    named = {
        rule: {word for code in re.findall(r"`([^`]*)`", text) for word in re.findall(r"[A-Z]\w+", code)}
        for rule, text in cases.items()
    }
    rows = ["| operator | rules that replace it, or why none does |", "| --- | --- |"]
    for op in sorted({op for limit in LIMITS if limit.id.startswith("O") for op in limit.ops}):
        found = [rule for rule, names in named.items() if op in names and rule != "D1"] or ["D2"] * (op in NO_OPS)
        why = (
            [NO_REWRITE[op]]
            if op in NO_REWRITE
            else []
            if found
            else [next(limit.stays for limit in LIMITS if limit.id == "O5")]
        )
        rows.append(f"| {op} | {'; '.join([', '.join(found)] * bool(found) + why)} |")
    return "\n".join(rows) + "\n"


def both(path: Path) -> tuple[Translation, Translation]:
    """Without and with the rewrites and --dla_output 4d; sizes that are not fixed are 1. Raises UserError."""
    values = onnx.load(str(path), load_external_data=False).graph.input
    sizes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in values}
    shapes = [f"{name}:{'x'.join(str(d or 1) for d in dims)}" for name, dims in sizes.items() if not all(dims)]
    options = dataclasses.replace(OPTIONS, shapes=shapes)
    rewrites = dataclasses.replace(options, dla_rewrites=True, dla_output="4d")
    return translate(path, options), translate(path, rewrites)


def row(name: str, path: Path, before: Translation, after: Translation) -> str:
    cells = []
    for done in (before, after):
        assert done.dla is not None and done.costs is not None
        crossing = headline(done.graph, done.types, done.plan)[1]
        cells.append((str(done.dla.subgraphs), str(crossing.dla_gpu.tensors)))
    assert before.dla is not None and after.dla is not None
    left = left_for_gpu(after)
    gpu = f"{len(before.dla.fallbacks)} → {len(left)}"
    pairs = [f"{a} → {b}" for a, b in zip(*cells)]
    codes = codes_of(path, before, after)
    first = "" if codes.first is None else f"`{codes.first}` by {codes.most}"
    return (
        f"| {name} | {gpu} | {' | '.join(pairs)} | {_times(before, after)} | {_totals(before, after)} | {difference(before, after):.1e} | "
        f"{codes.equal:.2f}% in {codes.tensors} tensors | {codes.before:.1f}% → {codes.after:.1f}% | {first} | "
        f"{_left(left, len(after.dla.fallbacks) - len(left))} |\n"
    )


def left_for_gpu(done: Translation) -> list[Verdict]:
    """Without a tail that --cut_tail cuts off."""
    assert done.dla is not None
    behind = tail(done.graph, Planned(done.graph), done.rows) if tail_begins(done.graph, done.rows) else []
    return [verdict for verdict in done.dla.fallbacks if verdict.name not in set(behind)]


def _times(before: Translation, after: Translation) -> str:
    """Of the DLA's layers; of those after, the part of layers that were not on the DLA before."""
    assert before.dla is not None and before.costs is not None and after.dla is not None and after.costs is not None
    was, now = before.costs.milliseconds, after.costs.milliseconds
    there = {layer.name for layer in before.dla.layers if layer.subgraph >= 0}
    fresh = {layer.name for layer in after.dla.layers if layer.subgraph >= 0} - there
    new = total(row.cost.milliseconds for row in after.plan if row.cost is not None and row.name in fresh)
    if was is None or now is None or new is None:
        return "?"
    return f"{was:.2f} → {now:.2f}" + (f" ({new:.2f} new)" if new >= 0.005 else "")


def _totals(before: Translation, after: Translation) -> str:
    """Of the network with its tail: DLA layers, MACs of GPU layers, transitions."""
    costs = [done.report["cost"]["total_high_milliseconds"] for done in (before, after)]
    return " → ".join("?" if cost is None else f"{cost:.2f}" for cost in costs)


def _left(layers: list[Verdict], tail_layers: int) -> str:
    """'2 MatMul (M1), a tail of 24'."""
    kinds = Counter((v.op, ", ".join(f.limit for f in v.findings if f.effect == GPU)) for v in layers)
    told = [f"{count} {op} ({limits})" for (op, limits), count in kinds.most_common()]
    return ", ".join([*told, *([f"a tail of {tail_layers}, cut off"] if tail_layers else [])])


def limits_in(translations: list[Translation]) -> str:
    """The limits that keep layers on the GPU, each with its words."""
    found = {
        finding.limit: finding
        for done in translations
        for layer in left_for_gpu(done)
        for finding in layer.findings
        if finding.effect == GPU
    }
    return "".join(f"- {name}: {limit.text} ({limit.status})\n" for name, limit in sorted(found.items()))


def feed_of(done: Translation) -> dict[str, np.ndarray]:
    """Noise like that of the calibration, but not the same: wider values would saturate, before and after differently."""
    generator = np.random.default_rng(1)
    specs = input_specs(done.model, {})
    return {spec.name: generator.standard_normal([d or 1 for d in spec.shape]).astype(np.float32) for spec in specs}


def difference(before: Translation, after: Translation) -> float:
    """Of all outputs, as a share of the largest value."""
    feed = feed_of(before)
    runs = [Session(done.model, "stripped").run(feed) for done in (before, after)]
    worst = 0.0
    for name, want in runs[0].items():
        got = runs[1][name].reshape(want.shape)
        share = float(np.abs(want - got).max() / max(float(np.abs(want).max()), 1e-12))
        worst = max(worst, share if math.isfinite(share) else math.inf)
    return worst


@dataclasses.dataclass
class Codes:
    """Of the tensors of the Q/DQ model that the simulated engine holds as codes of one scale before and after: how many there
    are, the shares that are equal before and after, in the Q/DQ model and before, in it and after; the first tensor that is
    not equal (None where all are) and by how many codes at most."""

    tensors: int
    equal: float
    before: float
    after: float
    first: Optional[str]
    most: int


def codes_of(path: Path, before: Translation, after: Translation) -> Codes:
    feed = feed_of(before)
    engines = []
    for done in (before, after):
        precisions = dict.fromkeys(done.fp16_nodes, "fp16")
        engines.append(simulate(ImplicitNetwork(done.model, dict(done.cache.scales), precisions, frozenset())))
    source = onnx.load(str(path))
    made = {name for node in source.graph.node for name in node.output}
    held = [engine.placement.held for engine in engines]
    names = [name for node in after.model.graph.node for name in node.output if name in made]
    names = [n for n in names if n in held[0] and held[0][n] == held[1].get(n) and n not in after.rewrites.tensors]
    runs = [Session(e.model, "engine", [e.read[n] for n in names]).run(feed) for e in engines] if names else []
    wanted = Session(source, "Q/DQ", names).run(feed) if names else {}
    equal, total, first, most = np.zeros(3, np.int64), 0, None, 0
    for name in names:
        values = [run[engine.read[name]] for run, engine in zip(runs, engines)]
        values = [v.reshape(wanted[name].shape) for v in values]
        was, now, want = (np.clip(np.rint(v / held[0][name]), -128, 127) for v in (*values, wanted[name]))
        equal += [int((one == other).sum()) for one, other in ((was, now), (want, was), (want, now))]
        total += was.size
        if first is None and (was != now).any():
            first, most = name, int(np.abs(was - now).max())
    shares = [100 * float(count) / max(total, 1) for count in equal]
    return Codes(len(names), shares[0], shares[1], shares[2], first, most)


def full_table(folder: Path) -> str:
    """Networks of full size, as far as the folder holds them."""
    rows, done = HEAD, []
    for stem, network in NETWORKS.items():
        path = folder / f"{stem}__ort.onnx"
        if path.exists():
            before, after = both(path)
            rows += row(network.title, path, before, after)
            done.append(after)
            print(rows.splitlines()[-1], flush=True)
    return f"{rows}\n{limits_in(done)}"


def zoo_table(folder: Path) -> str:
    """The networks of a folder; those that have nothing to rewrite in one sentence."""
    rows, done, alike = HEAD, [], []
    for path in [EXAMPLE_MODEL, *sorted(folder.glob("*.onnx"))]:
        try:
            before, after = both(path)
        except UserError:
            continue  # what cannot be translated
        done.append(after)
        if not after.rewrites.applied and before.dla is not None and not before.dla.fallbacks:
            alike.append(f"`{path.stem}`")
            continue
        rows += row(path.stem, path, before, after)
        print(rows.splitlines()[-1], flush=True)
    same = f"Nothing to rewrite, and no layer for the GPU: {', '.join(alike)}.\n\n" if alike else ""
    return f"{rows}\n{same}{limits_in(done)}"


def page(text: str, part: str, content: str) -> str:
    """The page with what stands between `<!-- part -->` and `<!-- end of part -->` replaced."""
    pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end of {part} -->)", re.S)
    return pattern.sub(lambda m: m[1] + content + m[2], text)


def rows_lost(part: str, content: str) -> list[str]:
    """Networks of a table on the page that the new table does not have."""
    if part not in ("full", "table"):
        return []
    found = re.search(rf"<!-- {part} -->\n(.*?)<!-- end of {part} -->", PAGE.read_text(encoding="utf-8"), re.S)
    before, now = (re.findall(r"^\| ([^|-][^|]*) \|", text, re.M) for text in (found[1] if found else "", content))
    return [name for name in before if name not in now and f"`{name}`" not in content]


def main() -> int:
    parser = argparse.ArgumentParser(description="What --dla_rewrites does for networks.")
    parser.add_argument("zoo", type=Path, nargs="?")
    parser.add_argument("--full", type=Path, help="networks of full size, instead of ZOO")
    parser.add_argument(
        "--write", action="store_true", help="write rules and table into docs/dla_rules.md and docs/tables/"
    )
    arguments = parser.parse_args()
    if arguments.full is not None:
        parts = {"full": full_table(arguments.full)}
    elif arguments.zoo is not None:
        parts = {"rules": rules(), "operators": operators(), "table": zoo_table(arguments.zoo)}
    else:
        parser.error("a folder is missing: ZOO or --full FOLDER")
    if arguments.write:
        lost = [name for part, content in parts.items() for name in rows_lost(part, content)]
        if lost:
            parser.error(
                f"{len(lost)} rows of the page are not in that folder ({', '.join(lost[:3])}, ...): nothing is written"
            )
        for part, content in parts.items():
            path = RULES_PAGE if part in ("rules", "operators") else PAGE
            path.write_text(page(path.read_text(encoding="utf-8"), part, content), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
