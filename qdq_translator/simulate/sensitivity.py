"""Which layers cost accuracy: the output SQNR that comes back when a layer is kept above INT8 (`--layerPrecisions`).

The reference is the float model where one is given, else the stripped model run in float (its weights are the trained
ones). First every INT8 layer that computes (no Relu, no data movement) alone; then greedily down that ranking, each layer kept if it still helps. What a time limit
cuts off is reported.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Optional

import numpy as np
import onnx

from qdq_translator.emit.layer_precisions import format_layer_precisions, fp16_layers, is_expressible
from qdq_translator.graph import Graph
from qdq_translator.inference import pass_through
from qdq_translator.progress import Progress
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, copy_model, simulate
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, finite_or_none
from qdq_translator.simulate.run import Session
from qdq_translator.types import TensorTypes

KEPT_IF_DB = 0.1
MOST_KEPT = 10


@dataclasses.dataclass
class Sensitivity:
    """Output SQNR in dB (the worst output). ranking: (layer, SQNR with it alone kept above INT8), best first. chosen: (layer,
    SQNR with it and all before it kept). left: layers that the time limit cut off."""

    baseline_db: float
    ranking: list[tuple[str, float]]
    chosen: list[tuple[str, float]]
    left: int
    seconds: float

    @property
    def layer_argument(self) -> str:
        """What to add to --layerPrecisions, '' for nothing."""
        return format_layer_precisions(fp16_layers(n for n, _ in self.chosen))

    def as_dict(self) -> dict[str, Any]:
        return {
            "baseline_db": finite_or_none(self.baseline_db),
            "ranking": [
                {"layer": n, "sqnr_db": finite_or_none(d), "gain_db": finite_or_none(d - self.baseline_db)}
                for n, d in self.ranking
            ],
            "chosen": [{"layer": n, "sqnr_db": finite_or_none(d)} for n, d in self.chosen],
            "layer_argument_addition": self.layer_argument,
            "layers_left_out": self.left,
            "seconds": self.seconds,
        }


def measure_sensitivity(
    network: ImplicitNetwork,
    options: SimulationOptions,
    samples: Samples,
    float_model: Optional[onnx.ModelProto],
    time_limit: float,
    progress: Progress = lambda what, done, total: None,
) -> Sensitivity:
    """`time_limit` in seconds; the layer being measured is finished."""
    start = time.monotonic()
    types = TensorTypes(Graph.from_model(copy_model(network.model)))
    reference = Session(float_model if float_model is not None else network.model, "float")
    expected: list[list[np.ndarray]] = []
    for feed in samples:
        values = reference.run(feed)
        expected.append([values[n] for n in reference.outputs])

    def quality(layers: list[str]) -> float:
        simulated = simulate(network, options, {**network.precisions, **fp16_layers(layers)}, types)
        session = Session(simulated.model, "simulated")
        rows = [Comparison() for _ in session.outputs]
        for index, feed in enumerate(samples):
            values = session.run(feed)
            for row, name, wanted in zip(rows, session.outputs, expected[index]):
                row.add(wanted, values[name])
        return min(row.sqnr_db for row in rows)

    base = simulate(network, options, None, types)
    baseline = quality([])
    nodes = Graph.from_model(copy_model(network.model)).nodes
    candidates = [
        n.name
        for n in nodes
        if n.name not in base.placement.higher
        and is_expressible(n.name)
        and not n.is_op(*pass_through.DEFAULT_OPS, *pass_through.WHOLE_OPS, *pass_through.PART_OPS, "Clip")
        and any(name in base.placement.held for name in n.inputs)
    ]
    ranking: list[tuple[str, float]] = []
    total = len(candidates) + min(MOST_KEPT, len(candidates))
    for number, name in enumerate(candidates):
        if time.monotonic() - start > time_limit:
            break
        progress("keeping one layer above INT8", number, total)
        ranking.append((name, quality([name])))
    left = len(candidates) - len(ranking)
    ranking.sort(key=lambda pair: -pair[1])
    chosen: list[tuple[str, float]] = []
    best = baseline
    for number, (name, alone) in enumerate(ranking[:MOST_KEPT]):
        if alone < baseline + KEPT_IF_DB or time.monotonic() - start > time_limit:
            break
        progress("keeping the best together", len(candidates) + number, total)
        together = alone if not chosen else quality([n for n, _ in chosen] + [name])
        if together >= best + KEPT_IF_DB:
            chosen.append((name, together))
            best = together
    progress("keeping the best together", total, total)
    return Sensitivity(baseline, ranking, chosen, left, time.monotonic() - start)
