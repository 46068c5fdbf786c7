"""The cost model against every published time of Orin's DLA that we know: the fit, leave-one-network-out, docs/tables/cost.md.

    python -m benchmarks.cost [--fit] [--per_sample] [--write] [--zoo FOLDER...]

Prints the table of docs/tables/cost.md (`--write` puts it there); `--fit` fits the parameters of `qdq_translator/translation/targets/cost/orin.json`
again and prints them, `--per_sample` with the fixed part of a layer once for each sample of a batch. The points are other people's measurements (`data/dla_points.json`, each with its source), the layers
of their networks are written down in `data/dla_networks.json`. Takes about ten seconds. `--zoo`: also the verdict for every
model of the folders, as it is and with `--preset dla --unify_scales max`, below the first table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qdq_translator import TranslateOptions, translate
from qdq_translator.board.engine.board import fit
from qdq_translator.core.errors import UserError
from qdq_translator.translation.targets.cost.model import CostModel, Parameters, Surface, Work, published

DATA = Path(__file__).with_name("data")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "cost.md"
BEGIN, END = "<!-- benchmarks/cost.py -->\n", "<!-- end -->\n"
ZOO_BEGIN = "<!-- benchmarks/cost.py --zoo -->\n"
FITTED = {"int8": ("int8_rate", "bytes_per_second", "seconds_per_layer"), "fp16": ("fp16_rate",)}
"""What is fitted, INT8 first: FP16 takes bandwidth and fixed part from it."""
GOALS = {"int8": 0.25, "fp16": 0.35}


def work_of(row: dict[str, Any], batch: int) -> Work:
    """One row of `dla_networks.json`: Conv, Pool, Add (of two activations) or Slice."""
    channels, height, width = row["c"], row["h"], row["w"]
    surface = Surface(channels, batch * height * width)
    if row["op"] in ("Add", "Slice"):
        return Work((surface,) * (2 if row["op"] == "Add" else 1), (surface,))
    (kh, kw), stride = row["kernel"], row["stride"]
    if row.get("valid"):
        positions = ((height - kh) // stride + 1) * ((width - kw) // stride + 1)
    else:
        positions = -(-height // stride) * -(-width // stride)
    positions *= batch
    if row["op"] == "Pool":
        return Work((surface,), (Surface(channels, positions),))
    out = Surface(row["o"], positions)
    return Work(
        (surface, out) if row["added"] else (surface,),
        (out,),
        positions * kh * kw,
        (channels, row["o"]),
        row["groups"],
        row["o"] * channels // row["groups"] * kh * kw,
    )


@dataclasses.dataclass(frozen=True)
class Point:
    """One published time. fp16: numbers of the layers of a network in INT8 that run in FP16."""

    network: str
    batch: int
    precision: str
    clock: float
    mode: str
    milliseconds: float
    source: str
    fitted: bool
    works: tuple[tuple[Work, bool], ...]
    per_sample: bool = False

    def predicted(self, parameters: Parameters) -> float:
        model = CostModel("", parameters, self.clock)
        more = (self.batch - 1) * 1e3 * parameters.seconds_per_layer if self.per_sample else 0.0
        return sum(model.estimate(work, fp16).milliseconds + more for work, fp16 in self.works)


def points(per_sample: bool = False) -> list[Point]:
    """Every published time, in the order of the file. per_sample: the fixed part counts for each sample of a batch."""
    networks = json.loads((DATA / "dla_networks.json").read_text(encoding="utf-8"))
    found = []
    for row in json.loads((DATA / "dla_points.json").read_text(encoding="utf-8")):
        high = set(row.get("fp16_layers", ()))
        works = tuple(
            (work_of(layer, row["batch"]), row["precision"] == "fp16" or number in high)
            for number, layer in enumerate(networks[row["network"]])
        )
        found.append(
            Point(
                row["network"],
                row["batch"],
                row["precision"],
                row["dla_clock_ghz"],
                row.get("power_mode", ""),
                row["ms_per_batch_one_core"],
                row["source"],
                row.get("power_mode") != "15W" and row["precision"] in FITTED,
                works,
                per_sample,
            )
        )
    return found


def fitted_to(chosen: Sequence[Point], start: Parameters) -> Parameters:
    """`start` with the parameters of FITTED fitted to `chosen`, INT8 first. Every network has the same weight."""
    for precision, names in FITTED.items():
        rows = [point for point in chosen if point.precision == precision]
        if rows:
            weights = [1 / sum(other.network == point.network for other in rows) for point in rows]
            times = [point.milliseconds for point in rows]

            def predict(parameters: Parameters, rows: Sequence[Point] = rows) -> list[float]:
                return [point.predicted(parameters) for point in rows]

            start = fit(predict, times, weights, start, names)
    return start


def left_out(every: Sequence[Point], start: Parameters) -> dict[str, Parameters]:
    """Network -> the parameters fitted without any of its points, in INT8 or FP16."""
    rows = [point for point in every if point.fitted]
    names = dict.fromkeys(point.network for point in rows)
    return {name: fitted_to([p for p in rows if p.network != name], start) for name in names}


def rms(ratios: Sequence[float]) -> float:
    """Root mean square of the logarithms."""
    return math.sqrt(sum(math.log(r) ** 2 for r in ratios) / len(ratios))


def table(every: Sequence[Point], parameters: Parameters, without: dict[str, Parameters]) -> str:
    """The generated part of docs/tables/cost.md."""
    lines = [
        "| network | batch | | published by | ms | model | ratio | left out |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    ratios: dict[str, list[float]] = {"int8": [], "fp16": []}
    outside: dict[str, list[float]] = {"int8": [], "fp16": []}
    for point in every:
        ratio = point.predicted(parameters) / point.milliseconds
        cells = ""
        if point.fitted:
            other = point.predicted(without[point.network]) / point.milliseconds
            ratios[point.precision].append(ratio)
            outside[point.precision].append(other)
            cells = f"{other:.2f}"
        where = point.mode or "DRIVE"
        kind = {"int8": "INT8", "fp16": "FP16"}.get(point.precision, point.precision)
        lines.append(
            f"| {point.network} | {point.batch} | {kind}, {where} | {point.source} | {point.milliseconds:.2f} | "
            f"{point.predicted(parameters):.2f} | {ratio:.2f} | {cells or 'not fitted'} |"
        )
    lines.append("")
    for precision, label in (("int8", "INT8"), ("fp16", "FP16")):
        lines.append(
            f"{label}: {len(ratios[precision])} points, {100 * rms(ratios[precision]):.1f}% rms in the logarithm "
            f"(left out {100 * rms(outside[precision]):.1f}%), ratios {min(ratios[precision]):.2f} to "
            f"{max(ratios[precision]):.2f} (left out {min(outside[precision]):.2f} to {max(outside[precision]):.2f})."
            + ("" if precision == "fp16" else "\\")
        )
    return "\n".join(lines) + "\n"


ZOO_HEAD = (
    "| model | MACs in INT8 | layers: INT8 | FP16 | GPU | subgraphs | estimated ms |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def zoo_table(models: Sequence[Path]) -> str:
    """The DLA's verdict for each model, as it is and with the preset and shared ranges: `before -> after` in each cell."""
    rows = []
    for path in models:
        before, after = (
            _verdict(path, options)
            for options in (
                TranslateOptions(target="orin-dla"),
                TranslateOptions(preset="dla", unify_scales="max"),
            )
        )
        cells = [a if a == b else f"{a} &rarr; {b}" for a, b in zip(before, after)]
        rows.append(f"| {path.stem} | {' | '.join(cells)} |\n" if cells else f"| {path.stem} | refused | | | | | |\n")
    return ZOO_HEAD + "".join(rows)


def _verdict(path: Path, options: TranslateOptions) -> list[str]:
    """What stands in the cells of one model; [] where it is refused."""
    try:
        report = translate(path, options).report
    except UserError:
        return []
    shares, cost = report["dla"]["shares"], report["cost"]
    macs, time = shares["dla-int8"]["macs_share"], cost["milliseconds"]
    return [
        "-" if macs is None else f"{100 * macs:.1f}%",
        *(str(shares[verdict]["layers"]) for verdict in ("dla-int8", "dla-fp16", "gpu")),
        str(report["dla"]["subgraphs"]),
        "-" if time is None else f"{time:.3f}",
    ]


def with_table(page: str, text: str, begins: str = BEGIN) -> str:
    """`page` with a generated part replaced. Raises ValueError where the marks are missing."""
    before, begin, rest = page.partition(begins)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has not one generated table")
    return before + begins + text + END + after


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The cost model against published times.")
    parser.add_argument("--fit", action="store_true", help="fit the parameters again and print them")
    parser.add_argument("--per_sample", action="store_true", help="the fixed part once per sample, with --fit")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables/cost.md")
    parser.add_argument("--zoo", type=Path, nargs="+", help="folders of Q/DQ models: the DLA's verdict for each")
    options = parser.parse_args(argv)
    every = points(options.per_sample)
    parameters = Parameters(**published()["parameters"])
    if options.fit:
        parameters = fitted_to([point for point in every if point.fitted], parameters)
        print(json.dumps(dataclasses.asdict(parameters), indent=2), end="\n\n")
    text = table(every, parameters, left_out(every, parameters))
    print(text, end="")
    page = with_table(PAGE.read_text(encoding="utf-8"), text)
    if options.zoo:
        verdicts = zoo_table([path for folder in options.zoo for path in sorted(folder.glob("*.onnx"))])
        print("\n" + verdicts, end="")
        page = with_table(page, verdicts, ZOO_BEGIN)
    if options.write and not options.per_sample:
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
