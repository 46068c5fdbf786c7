"""The model of Orin's GPU against published times of whole networks: the fit, and each network left out.

    python -m benchmarks.gpu_cost [--fit] [--write]

Prints the table of docs/tables/cost.md (`--write` puts it there); `--fit` fits the parameters again and writes
`qdq_translator/translation/targets/cost/orin_gpu.json`. The points (`data/gpu_points.json`) are other people's measurements;
their networks are those of `benchmarks.families`. Takes about a minute.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from typing import Any, Sequence

import numpy as np

from benchmarks.cost import DATA, PAGE, rms
from benchmarks.families import resnet, yolo
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.fusing import FusedLayer, fused_layers
from qdq_translator.translation.targets.cost.gpu import GPU_FILE, GpuModel, Rates
from qdq_translator.translation.targets.dla.limits import GPU

BEGIN, END = "<!-- benchmarks/gpu_cost.py -->\n", "<!-- end of gpu -->\n"
FITTED = ("macs_per_second", "bytes_per_second", "seconds_per_kernel", "seconds_per_inference")
START = Rates(15e12, 120e9, 5e-6, 2e-4, True)


@functools.lru_cache(maxsize=None)
def layers_of(network: str, side: int) -> list[FusedLayer]:
    made = resnet() if network == "resnet50" else yolo(11 if network.startswith("yolo11") else 8, network[-1], side)
    graph = Graph.from_model(made)
    return fused_layers(graph, TensorTypes(graph), [GPU] * len(graph), gpu=True)


@dataclasses.dataclass(frozen=True)
class Point:
    module: str
    network: str
    side: int
    precision: str
    ms: float
    source: str

    def predicted(self, rates: Rates) -> float:
        return GpuModel("", rates, rates).network(layers_of(self.network, self.side), self.precision == "fp16")


def fit(points: Sequence[Point], silu: bool) -> Rates:
    """Least squares of log(model / published), every network with the same weight; Levenberg-Marquardt on the logarithms of
    the parameters."""
    weight = np.sqrt([1 / sum(other.network == one.network for other in points) for one in points])
    target = np.log([one.ms for one in points])
    start = dataclasses.replace(START, silu=silu)

    def at(x: np.ndarray) -> Rates:
        return dataclasses.replace(start, **{n: getattr(start, n) * float(np.exp(v)) for n, v in zip(FITTED, x)})

    def residuals(x: np.ndarray) -> np.ndarray:
        rates = at(x)
        return np.append(weight * (np.log([one.predicted(rates) for one in points]) - target), 1e-2 * x)

    x, damping = np.zeros(len(FITTED)), 1e-2
    best = residuals(x)
    for _ in range(30):
        slope = np.stack([(residuals(x + 1e-3 * e) - best) / 1e-3 for e in np.eye(len(x))], 1)
        normal = slope.T @ slope
        step = np.clip(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope.T @ best), -1, 1)
        trial = residuals(x + step)
        better = trial @ trial < best @ best
        x, best, damping = (x + step, trial, damping / 3) if better else (x, best, damping * 4)
        if np.abs(step).max() < 1e-4:
            break
    return at(x)


def row(points: Sequence[Point]) -> dict[str, Any]:
    """Parameters and errors of one module and precision. SiLU is a kernel of its own in FP16 only, which fits best."""
    silu = points[0].precision == "fp16"
    rates = fit(points, silu)
    outside = []
    for name in dict.fromkeys(one.network for one in points):
        other = fit([one for one in points if one.network != name], silu)
        outside += [one.predicted(other) / one.ms for one in points if one.network == name]
    inside = [one.predicted(rates) / one.ms for one in points]
    found = {key: float(f"{value:.4g}") for key, value in dataclasses.asdict(rates).items() if key != "silu"}
    errors = {"rms": round(rms(inside), 3), "left_out_rms": round(rms(outside), 3)}
    limits = [round(min(outside), 2), round(max(outside), 2)]
    return {**found, "silu": silu, "points": len(points), **errors, "left_out": limits}


def table(data: dict[str, Any]) -> str:
    lines = [
        "| module | | TMAC/s | GB/s | start us | constant ms | points | rms | network left out |",
        "| --- | --- |" + " ---: |" * 7,
    ]
    for module in data["modules"].values():
        for precision in ("fp16", "int8"):
            one = module.get(precision)
            if not one or "points" not in one:
                continue
            low, high = one["left_out"]
            numbers = (one["macs_per_second"] / 1e12, one["bytes_per_second"] / 1e9, one["seconds_per_kernel"] * 1e6)
            cells = [f"{value:.3g}" for value in (*numbers, one["seconds_per_inference"] * 1e3)]
            errors = [f"{one['rms']:.1%}", f"{one['left_out_rms']:.1%}, {low:.2f} to {high:.2f}"]
            lines.append(f"| {' | '.join([module['name'], precision.upper(), *cells, str(one['points']), *errors])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    data = json.loads(GPU_FILE.read_text(encoding="utf-8"))
    if options.fit:
        points = [Point(**one) for one in json.loads((DATA / "gpu_points.json").read_text(encoding="utf-8"))]
        for key, module in data["modules"].items():
            for precision in ("fp16", "int8"):
                chosen = [one for one in points if one.module == key and one.precision == precision]
                if chosen:
                    module[precision] = row(chosen)
        GPU_FILE.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    print(table(data))
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(data) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
