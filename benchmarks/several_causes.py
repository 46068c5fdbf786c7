"""Several scales that are too small at once: does `verify --sensitivity` name them, and do its layers bring the output back?

    python -m benchmarks.several_causes

Sixteen cases: the four trained networks of this repository, each with 2, 3, 4 and 5 scales FACTOR times too small, drawn with a fixed
seed from the tensors that the simulated engine rounds (no graph output) and whose bad scale alone costs COSTS_DB. A case counts as
recovered if the output, with the named layers above INT8, is at most WITHIN_DB worse than before the scales were spoilt.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Iterator

import numpy as np

from benchmarks.verdict import Case, cases
from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.layer_precisions import parse_layer_precisions
from qdq_translator.core.formats.verify_rows import Sensitivity
from qdq_translator.lab.simulate.account import Judge
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, copy_model
from qdq_translator.lab.simulate.inputs import Samples, input_specs, load_samples
from qdq_translator.lab.simulate.sensitivity import measure_sensitivity
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes

FACTOR, COSTS_DB, WITHIN_DB, SAMPLES, TIME_LIMIT = 8.0, 1.0, 1.5, 16, 300.0
COUNTS = (2, 3, 4, 5)
OPTIONS = SimulationOptions()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """planted: tensors. SQNR in dB of the worst output as calibrated, with the bad scales, and with the named layers above INT8."""

    planted: list[str]
    right: float
    bad: float
    repaired: float
    found: Sensitivity

    @property
    def is_recovered(self) -> bool:
        return self.repaired >= self.right - WITHIN_DB

    @property
    def named(self) -> int:
        """Planted tensors among the named."""
        named = {tensor for row in self.found.chosen for tensor in row.tensors}
        return len(named.intersection(self.planted))


def outcomes(case: Case, counts: tuple[int, ...] = COUNTS) -> Iterator[Outcome]:
    network = ImplicitNetwork.of(translate(case.model, TranslateOptions(**case.options)))
    samples: Samples = load_samples(case.inputs, input_specs(network.model, {}), SAMPLES)
    graph = Graph.from_model(copy_model(network.model))
    judge = Judge(network, OPTIONS, samples, None, TensorTypes(graph))
    base = judge.simulated({})
    right = judge.of(base).sqnr_db

    def spoilt(names: list[str]) -> ImplicitNetwork:
        return dataclasses.replace(network, scales={**network.scales, **{n: network.scales[n] / FACTOR for n in names}})

    def db(one: ImplicitNetwork, argument: str = "") -> float:
        judge.network = one
        return judge.of(judge.simulated(parse_layer_precisions(argument) if argument else {})).sqnr_db

    places = [name for name in base.placement.held if name not in graph.outputs]
    for count in counts:
        planted: list[str] = []
        for name in np.random.default_rng(count).permutation(places).tolist():
            if len(planted) < count and db(spoilt([name])) <= right - COSTS_DB:
                planted.append(name)
        bad = spoilt(planted)
        found, _ = measure_sensitivity(Judge(bad, OPTIONS, samples), TIME_LIMIT)
        yield Outcome(planted, right, db(bad), db(bad, found.layer_argument), found)


def main() -> None:
    recovered = total = 0
    print("| network | planted | SQNR right | bad | repaired | named | layers above INT8 | recovered |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder)):
            for row in outcomes(case):
                total, recovered = total + 1, recovered + row.is_recovered
                print(
                    f"| {case.name} | {len(row.planted)} | {row.right:.1f} | {row.bad:.1f} | {row.repaired:.1f} | {row.named} | "
                    f"{len(row.found.layers)} | {'yes' if row.is_recovered else 'no'} |",
                    flush=True,
                )
    print(f"\n{recovered} of {total} recovered")


if __name__ == "__main__":
    main()
