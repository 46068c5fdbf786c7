"""A DLA plan's verdict in a few numbers: shares of layers, MACs and time, and transitions between them."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from qdq_translator.core.formats.report_rows import Share, Shares, Transition, Transitions
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.types import TensorTypes
from qdq_translator.planning.root_causes.cures import add_macs
from qdq_translator.targets.cost.estimate import CostPlan
from qdq_translator.targets.cost.layers import surface
from qdq_translator.targets.dla.limits import DLA_FP16, DLA_INT8, FOLDED, GPU
from qdq_translator.targets.dla.verdicts import DlaPlan
from qdq_translator.targets.macs import share, total
from qdq_translator.targets.precision import LayerPlan


def headline(
    graph: Graph, types: TensorTypes, plan: Sequence[LayerPlan], dla: DlaPlan, costs: CostPlan
) -> tuple[Shares, Transitions]:
    """Layers, MACs and time of each verdict, and the transitions between them. Linear in the nodes."""
    shares = []
    for verdict in (DLA_INT8, DLA_FP16, GPU):
        chosen = [i for i, layer in enumerate(dla.layers) if layer.verdict == verdict]
        shares.append(
            Share(len(chosen), add_macs(plan[i] for i in chosen), None if verdict == GPU else costs.of(chosen))
        )
    macs, time = total(part.macs for part in shares), total(part.milliseconds for part in shares[:2])
    parts = (
        dataclasses.replace(part, macs_share=share(part.macs, macs), milliseconds_share=share(part.milliseconds, time))
        for part in shares
    )
    return Shares(*parts), Transitions(*_transitions(graph, types, plan, dla, costs))


def _transitions(
    graph: Graph, types: TensorTypes, plan: Sequence[LayerPlan], dla: DlaPlan, costs: CostPlan
) -> tuple[Transition, Transition]:
    """(between precisions, between devices). Nodes that are fused into one layer of the DLA run as that layer does."""
    verdicts = {layer.name: layer.verdict for layer in dla.layers}
    runs: dict[str, str] = {}
    for layer, cost in zip(dla.layers, costs.layers):
        runs[layer.name] = verdicts[cost.fused_into] if cost is not None and cost.fused_into else layer.verdict
    precision: dict[str, Optional[int]] = {}
    device: dict[str, Optional[int]] = {}
    for row in plan:
        here = runs[row.name]
        for tensor in row.inputs if here != FOLDED else ():
            producer = graph.producer.get(tensor)
            there = runs[producer.name] if producer is not None else FOLDED
            if there in (here, FOLDED):
                continue
            shape = surface(types.static_shape(tensor))
            size = None if shape is None else shape.size(1 if there == DLA_INT8 else 2)
            (device if GPU in (here, there) else precision)[tensor] = size
    return _sum(precision), _sum(device)


def _sum(sizes: dict[str, Optional[int]]) -> Transition:
    return Transition(len(sizes), total(sizes.values()))
