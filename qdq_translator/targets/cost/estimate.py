"""The estimated time of a plan on a DLA, layer by layer, and what stands between its precisions and devices."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

from qdq_translator.ir.graph import Graph
from qdq_translator.ir.types import TensorTypes
from qdq_translator.targets.cost.layers import FusedLayer, fused_layers
from qdq_translator.targets.cost.model import ESTIMATE, CostModel
from qdq_translator.targets.dla.limits import DLA_FP16


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """One node. milliseconds, bytes: as planned; None where unknown, or no published figure. int8_milliseconds,
    fp16_milliseconds: of the same layer in either precision. bound: 'compute', 'memory', 'overhead', or '' where it takes
    no time of its own. fused_into: the node whose layer it is part of, '' for its own."""

    milliseconds: Optional[float]
    bytes: Optional[int]
    bound: str
    int8_milliseconds: Optional[float] = None
    fp16_milliseconds: Optional[float] = None
    fused_into: str = ""

    def as_dict(self, total: Optional[float]) -> dict[str, Any]:
        share = self.milliseconds / total if self.milliseconds is not None and total else None
        return {**vars(self), "share": share}


@dataclasses.dataclass(frozen=True)
class CostPlan:
    """layers: one for each node, None for those that are not on the DLA. milliseconds: of all layers on the DLA, one
    core; None where one is unknown. unknown: layers whose shapes are. note: what the figure stands for, or why there is none.
    """

    layers: list[Optional[LayerCost]]
    milliseconds: Optional[float]
    unknown: int
    note: str
    model: Optional[CostModel]

    def of(self, indices: Sequence[int]) -> Optional[float]:
        """Milliseconds of these nodes; None as soon as one is unknown."""
        costs = [cost for cost in (self.layers[i] for i in indices) if cost is not None]
        if any(cost.milliseconds is None for cost in costs):
            return None
        return sum(cost.milliseconds or 0.0 for cost in costs)

    @property
    def fp16_milliseconds(self) -> Optional[float]:
        """All layers on the DLA in FP16."""
        if self.milliseconds is None:
            return None
        return sum(cost.fp16_milliseconds or 0.0 for cost in self.layers if cost is not None)

    def as_dict(self) -> dict[str, Any]:
        model = self.model
        return {
            "milliseconds": self.milliseconds,
            "fp16_milliseconds": self.fp16_milliseconds,
            "what": ESTIMATE,
            "note": self.note,
            "unknown_layers": self.unknown,
            "model": None
            if model is None
            else {
                "name": model.name,
                "source": model.source,
                "clock_ghz": model.clock_ghz,
                **dataclasses.asdict(model.parameters),
            },
        }


def estimate_costs(
    graph: Graph, types: TensorTypes, verdicts: Sequence[str], model: Optional[CostModel], note: str
) -> CostPlan:
    """Linear in the nodes. verdicts: one for each node. model: None gives bytes only. note: as `choose_model` says it."""
    names = [node.name for node in graph.nodes]
    rows: list[Optional[LayerCost]] = [None] * len(names)
    total: Optional[float] = 0.0 if model is not None else None
    unknown = 0
    for layer in fused_layers(graph, types, verdicts):
        cost = _cost(layer, model)
        rows[layer.nodes[0]] = cost
        for index in layer.nodes[1:]:
            zero = None if cost.milliseconds is None else 0.0
            rows[index] = LayerCost(zero, 0, "", zero, zero, names[layer.nodes[0]])
        unknown += layer.works is None
        if total is not None:
            total = None if cost.milliseconds is None else total + cost.milliseconds
    return CostPlan(rows, total, unknown, note, model)


def _cost(layer: FusedLayer, model: Optional[CostModel]) -> LayerCost:
    fp16 = layer.verdict == DLA_FP16
    if layer.works is None:
        return LayerCost(None, None, "")
    size = sum(work.bytes(fp16) for work in layer.works)
    if model is None:
        return LayerCost(None, size, "")
    either = [[model.estimate(work, high) for work in layer.works] for high in (False, True)]
    times = [sum(e.milliseconds for e in estimates) for estimates in either]
    bound = max(either[fp16], key=lambda e: e.milliseconds).bound if layer.works else ""
    return LayerCost(times[fp16], size, bound, times[False], times[True])
