"""Rule Q9 for symmetric quantizers: which of them the planned engine does not saturate as the model does.

A tensor that is INT8 in the plan saturates at 127 steps of its scale for all its readers. One that no INT8 layer reads
stays float, so do graph outputs, and a range that was widened saturates later: there the saturation of the model's
quantizer must be a node of the written network.

A file does not tell a range that was trained (PACT, LSQ), whose bounds act, from one that is the largest value seen.
With data, only those that act on them get a node. Without data all do on a GPU, where a Clip is a part of the kernel
before it. On a DLA, where a Clip from a negative bound is several layers, those do that a clipped Relu expresses, and
the others are named with the option that settles them.
"""

from __future__ import annotations

import dataclasses
from typing import Collection, Iterator, Mapping, Optional

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import others
from qdq_translator.translation.ir.bounds import value_range
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import CLAMPS, LEAST_BOUND, MOST_BOUND
from qdq_translator.translation.planning.decision import Decision
from qdq_translator.translation.planning.placement import COMMUTING, by_device, place
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.precision import FP16

_EQUAL = 1e-3
"""Ranges that differ by less are one range."""


@dataclasses.dataclass(frozen=True)
class Unsaturated:
    """A tensor that saturates in the model at 127 steps of `scale`, and the first quantizer that does it."""

    tensor: str
    scale: float
    quantizer: str


def unsaturated(network: Network, decision: Decision) -> Iterator[Unsaturated]:
    """The symmetric quantizers whose saturation the engine does not have, if values can reach it."""
    graph, plan = network.graph, decision.plan
    scales = {name: scale.value for name, scale in decision.context.scales.items()}
    listed = {row.name: FP16 for row in plan if row.listed}
    placement = place(graph, network.types, scales, listed, planned=by_device(plan))
    # a tensor inside a fusion stays as it is: a Clip there would break the fusion
    held = {name: scales[name] for name in (*placement.held, *placement.fused)}
    for name, seen in network.scales.observed.items():
        for scale in seen.values() if name in graph.producer or name in graph.inputs else ():
            origin = scale.origin
            stated = origin.rule == "Q1" and origin.grid is None
            if stated and _can_act(graph, name, scale.amax) and not _saturates(graph, held, name, scale.value):
                yield Unsaturated(name, scale.value, origin.node)


def _can_act(graph: Graph, name: str, amax: float) -> bool:
    """Whether values that the operators before a tensor make can exceed its range."""
    low, high = value_range(graph, name)
    return high > amax * (1 + _EQUAL) or low < -amax * 128 / 127 * (1 + _EQUAL)


def _saturates(graph: Graph, held: Mapping[str, float], name: str, scale: float) -> bool:
    """Whether the engine holds a tensor, or all that data movement makes of it, in INT8 with that scale."""
    if name in graph.outputs:
        return False
    if name in held:
        return held[name] <= scale * (1 + _EQUAL)
    readers = graph.consumers(name)
    return bool(readers) and all(_passes_saturated(graph, held, node, name, scale) for node in readers)


def _passes_saturated(graph: Graph, held: Mapping[str, float], node: Node, name: str, scale: float) -> bool:
    """Whether a reader cuts the values of a tensor at 127 steps itself, or moves them to where that happens."""
    if node.is_op(*CLAMPS) and not _can_act(graph, node.outputs[0], 127 * scale):
        return True
    moves = node.is_op(*COMMUTING) and node.inputs[0] == name
    return moves and all(_saturates(graph, held, output, scale) for output in node.outputs)


def free_on_dla(low: Optional[float], high: Optional[float]) -> bool:
    """Whether a clipped Relu of the DLA is a clamp to `high` of values from `low` on."""
    return high is None or (low is not None and low >= 0 and LEAST_BOUND <= high <= MOST_BOUND)


def report_idle(idle: Collection[tuple[str, int]], diagnostics: Diagnostics) -> None:
    """Names the quantizers whose bounds no data reach."""
    if idle:
        names = list(dict.fromkeys(name for name, _ in sorted(idle)))
        diagnostics.info(
            "Q9",
            f"Bounds of the quantizer '{names[0]}'{others(names, ' (and of {} more)')} go: no data reach them, "
            "and a Clip is several layers of the DLA.",
            hint="Calibrate on data that reach what the network may meet; without data every bound stays.",
            data={"idle": sorted(map(list, idle))},
        )


def report_open(rows: list[Unsaturated], diagnostics: Diagnostics) -> None:
    """Names the tensors whose saturation is lost if values exceed it."""
    if rows:
        first = rows[0]
        diagnostics.info(
            "Q9",
            f"The model saturates tensor '{first.tensor}' at {127 * first.scale:.6g}{others(rows, ' (and {} more)')}; "
            "the plan keeps it in float, which does not saturate.",
            tensor=first.tensor,
            hint="If the range was trained (PACT, LSQ), give data with --calibrate: where they reach it, a Clip stays.",
            data={"ranges": {row.tensor: 127 * row.scale for row in rows}},
        )
