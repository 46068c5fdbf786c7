"""A plan on a DLA: one record for each layer from the plan by scales and the verdicts of the DLA, and the totals
(shares of layers, MACs and time, transitions between devices and precisions)."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Optional, Sequence

from qdq_translator.core.formats.report_rows import Finding, Share, Shares, Transition, Transitions, Verdict
from qdq_translator.core.hypotheses import BETWEEN, GPU_INT8, RANGES, SIGMOID
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.operators import SIGMOIDS, WEIGHTED, Unions
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.estimate import CostPlan
from qdq_translator.translation.targets.cost.fusing import surface
from qdq_translator.translation.targets.dla.checks import equal_ranges
from qdq_translator.translation.targets.dla.limits import BY_ID, DLA_FP16, DLA_INT8, FOLDED, GPU, NO_SCALE
from qdq_translator.translation.targets.precision import (
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


def settle(graph: Graph, plan: Sequence[LayerPlan], verdicts: Sequence[Verdict], costs: CostPlan) -> list[LayerPlan]:
    """The plan by scales (`make_plan`) with the DLA's verdicts and the estimate, one for each node. A limit that keeps
    a layer above INT8 sets its precision and its reason. A layer of a DLA network that runs on the GPU is not
    avoidable, unless a scale would move it to the DLA."""
    rows = [
        dataclasses.replace(row, cost=costs.layer_row(index), **_settled(row, verdict))
        for index, (row, verdict) in enumerate(zip(plan, verdicts))
    ]
    between = _between(graph, rows)
    return [
        dataclasses.replace(row, hypotheses=(*row.hypotheses, BETWEEN)) if row.name in between else row for row in rows
    ]


def _settled(row: LayerPlan, verdict: Verdict) -> dict[str, Any]:
    """The fields of the layer's row that its verdict changes."""
    if verdict.verdict == DLA_INT8:
        return {"device": ON_DLA, "precision": INT8}
    if verdict.verdict == FOLDED:
        return {"device": NOWHERE, "precision": NO_PRECISION}
    decided = [f for f in verdict.findings if f.effect == verdict.verdict and f.limit != NO_SCALE.id]
    limits = "; ".join(f.text if f.found == row.op else f"{f.text} ({f.found})" for f in decided)
    if verdict.verdict == DLA_FP16:
        because = {"reason": f"FP16 on the DLA: {limits}"} if decided and row.precision == INT8 else {}
        return {"device": ON_DLA, "precision": FP16, "hypotheses": _hypotheses(row, decided), **because}
    reason = f"not on the DLA: {limits}"
    if verdict.wants_scale:
        reason += f", where INT8 would fit: the missing scale of '{row.missing[0]}' is what sends it to the GPU"
    return {
        "device": ON_GPU,
        "precision": NO_PRECISION if row.precision == NO_PRECISION else FP16,
        "reason": reason,
        "by_design": row.precision == FP16 and not verdict.wants_scale,
        "hypotheses": (GPU_INT8,) if row.precision == INT8 else (),
    }


def _hypotheses(row: LayerPlan, decided: Sequence[Finding]) -> tuple[str, ...]:
    """Hypotheses behind the rounding of a layer in FP16 on the DLA. decided: the limits that keep it in FP16."""
    if row.precision == INT8 and all(BY_ID[finding.limit].check is equal_ranges for finding in decided):
        return (RANGES,)
    some_scale = not set(row.missing).issuperset((*row.inputs, *row.outputs))
    return (SIGMOID,) if some_scale and row.op in SIGMOIDS else ()


def _between(graph: Graph, rows: Sequence[LayerPlan]) -> set[str]:
    """INT8 layers of the DLA in connected groups without weights that only FP16 layers of the DLA surround: TensorRT
    may find it faster to run them in FP16 than to convert twice."""
    inside = (ON_DLA, INT8)
    runs = {row.name: (row.device, row.precision) for row in rows}
    groups: Unions[str] = Unions()
    around: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        if runs[row.name] != inside:
            continue
        groups.root(row.name)
        for name in _touched(graph, row):
            run = runs.get(name, inside)  # graph inputs and outputs count as INT8
            if name in runs and run == inside:
                groups.join(row.name, name)
            elif run[1] != NO_PRECISION:
                around.setdefault(row.name, set()).add(run)
    found: set[str] = set()
    op = {row.name: row.op for row in rows}
    for names in groups.sets():
        outside = set().union(*(around.get(name, ()) for name in names))
        if outside == {(ON_DLA, FP16)} and not any(op[name] in WEIGHTED for name in names):
            found.update(names)
    return found


def _touched(graph: Graph, row: LayerPlan) -> Iterator[str]:
    """The layers that make and read the tensors of a layer; '' for graph inputs and outputs."""
    for name in row.inputs:
        producer = graph.producer.get(name)
        yield "" if producer is None else producer.name
    for name in row.outputs:
        if name in graph.outputs:
            yield ""
        yield from (reader.name for reader in graph.consumers(name))


def headline(graph: Graph, types: TensorTypes, plan: Sequence[LayerPlan]) -> tuple[Shares, Transitions]:
    """Layers, MACs and time of each verdict, and the transitions between them, in linear time."""
    shares = []
    for place in (DLA_INT8, DLA_FP16, GPU):
        rows = [row for row in plan if _place(row) == place]
        time = total(row.cost.milliseconds for row in rows if row.cost is not None)
        shares.append(Share(len(rows), add_macs(rows), None if place == GPU else time))
    macs = total(part.macs for part in shares)
    parts = (dataclasses.replace(part, macs_share=share(part.macs, macs)) for part in shares)
    return Shares(*parts), Transitions(*_transitions(graph, types, plan))


def _place(row: LayerPlan) -> str:
    """Like `Verdict.verdict`, but 'none' for a folded layer."""
    return GPU if row.device == ON_GPU else row.runs


def _transitions(graph: Graph, types: TensorTypes, plan: Sequence[LayerPlan]) -> tuple[Transition, Transition]:
    """(between precisions, between devices). Nodes that are fused into one DLA layer count as that layer."""
    own = {row.name: _place(row) for row in plan}
    places = {row.name: own[(row.cost and row.cost.fused_into) or row.name] for row in plan}
    precision: dict[str, Optional[int]] = {}
    device: dict[str, Optional[int]] = {}
    for row in plan:
        here = places[row.name]
        for tensor in row.inputs if here != NOWHERE else ():
            producer = graph.producer.get(tensor)
            there = places[producer.name] if producer is not None else NOWHERE
            if there in (here, NOWHERE):
                continue
            shape = surface(types.static_shape(tensor))
            size = None if shape is None else shape.size(1 if there == DLA_INT8 else 2)
            (device if GPU in (here, there) else precision)[tensor] = size
    return _sum(precision), _sum(device)


def _sum(sizes: dict[str, Optional[int]]) -> Transition:
    return Transition(len(sizes), total(sizes.values()))
