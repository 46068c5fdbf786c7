"""A plan on a DLA: the plan by scales and the verdicts of the DLA become one record for each layer, and a few numbers
for all (shares of layers, MACs and time, transitions between devices and precisions)."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from qdq_translator.core.formats.report_rows import Share, Shares, Transition, Transitions, Verdict
from qdq_translator.core.hypotheses import BETWEEN, GPU_INT8, RANGES, SIGMOID
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.operators import SIGMOIDS, WEIGHTED, Unions
from qdq_translator.ir.types import TensorTypes
from qdq_translator.targets.cost.estimate import CostPlan, surface
from qdq_translator.targets.dla.checks import equal_ranges
from qdq_translator.targets.dla.limits import BY_ID, DLA_FP16, DLA_INT8, FOLDED, GPU, NO_SCALE
from qdq_translator.targets.dla.verdicts import DlaPlan
from qdq_translator.targets.precision import (
    FP16,
    INT8,
    NO_PRECISION,
    NOWHERE,
    ON_DLA,
    ON_GPU,
    LayerPlan,
    add_macs,
    share,
    total,
)


def settle(graph: Graph, plan: Sequence[LayerPlan], verdicts: Sequence[Verdict]) -> list[LayerPlan]:
    """The plan by scales (`make_plan`) with the DLA's verdicts, one for each node.

    A limit that keeps a layer above INT8 gives its precision and its reason. A layer on the GPU of a DLA network is
    not avoidable, unless a scale would change that.
    """
    rows = [_settled(row, verdict) for row, verdict in zip(plan, verdicts)]
    between = _between(graph, rows)
    return [
        dataclasses.replace(row, hypotheses=(*row.hypotheses, BETWEEN)) if row.name in between else row for row in rows
    ]


def _settled(row: LayerPlan, verdict: Verdict) -> LayerPlan:
    decided = [f for f in verdict.findings if f.effect == verdict.verdict and f.limit != NO_SCALE.id]
    limits = "; ".join(f.text if f.found == row.op else f"{f.text} ({f.found})" for f in decided)
    has_scales = row.precision == INT8
    if verdict.verdict == GPU:
        reason = f"not on the DLA: {limits}"
        if verdict.wants_scale:
            reason += f", where INT8 would fit: the missing scale of '{row.missing[0]}' is what sends it to the GPU"
        return dataclasses.replace(
            row,
            device=ON_GPU,
            precision=NO_PRECISION if row.precision == NO_PRECISION else FP16,
            reason=reason,
            by_design=row.precision == FP16 and not verdict.wants_scale,
            hypotheses=(GPU_INT8,) if has_scales else (),
        )
    if verdict.verdict == DLA_FP16:
        reason = f"FP16 on the DLA: {limits}" if decided and has_scales else row.reason
        scaled = not set(row.missing).issuperset((*row.inputs, *row.outputs))
        rests_on = (SIGMOID,) if scaled and row.op in SIGMOIDS else ()
        if has_scales and all(BY_ID[finding.limit].check is equal_ranges for finding in decided):
            rests_on = (RANGES,)
        return dataclasses.replace(row, device=ON_DLA, precision=FP16, reason=reason, hypotheses=rests_on)
    if verdict.verdict == DLA_INT8:
        return dataclasses.replace(row, device=ON_DLA, precision=INT8)
    assert verdict.verdict == FOLDED, verdict.verdict
    return dataclasses.replace(row, device=NOWHERE, precision=NO_PRECISION)


def _between(graph: Graph, rows: Sequence[LayerPlan]) -> set[str]:
    """Layers of the DLA in INT8 that, with those in INT8 that they touch, have no weights and only FP16 layers of the
    DLA around them: TensorRT may find it faster to leave them in FP16 than to convert twice."""
    runs = {row.name: (row.device, row.precision) for row in rows}
    groups: Unions[str] = Unions()
    edges: dict[str, set[tuple[str, str]]] = {}
    weighted: set[str] = set()
    inside = (ON_DLA, INT8)
    for row in rows:
        if runs[row.name] != inside:
            continue
        groups.root(row.name)
        if row.op in WEIGHTED:
            weighted.add(row.name)
        around = edges.setdefault(row.name, set())
        for name in row.inputs:
            producer = graph.producer.get(name)
            if producer is None:
                around.add(inside)  # codes that the application gives
            elif runs[producer.name] == inside:
                groups.join(row.name, producer.name)
            elif runs[producer.name][1] != NO_PRECISION:
                around.add(runs[producer.name])
        for name in row.outputs:
            if name in graph.outputs:
                around.add(inside)
            readers = {runs[reader.name] for reader in graph.consumers(name)}
            around |= {run for run in readers if run != inside and run[1] != NO_PRECISION}
    members: dict[str, list[str]] = {}
    for name in edges:
        members.setdefault(groups.root(name), []).append(name)
    return {
        name
        for names in members.values()
        if weighted.isdisjoint(names) and set().union(*(edges[n] for n in names)) == {(ON_DLA, FP16)}
        for name in names
    }


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
