"""Estimated time of a plan on a DLA, layer by layer, with changes of precision and device."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from qdq_translator.core.formats.report_rows import Cost
from qdq_translator.core.formats.report_rows import LayerCost as LayerCost
from qdq_translator.core.words import percent
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.operators import DENSE, POOLING, WEIGHTED
from qdq_translator.ir.types import TensorTypes
from qdq_translator.targets.cost.layers import IN_PLACE, FusedLayer, fused_layers, work_of
from qdq_translator.targets.cost.model import ESTIMATE, CostModel
from qdq_translator.targets.dla.limits import DLA_FP16, DLA_INT8, GPU

FURTHER_REGION = 0.58
"""Milliseconds of a further region of the DLA: what lies between two of them, the GPU's layers there included. From the published
rates of one network with 2 and with 5 regions (NVIDIA-AI-IOT/jetson_dla_tutorial; AGX Orin, INT8, batch 32 of 3x32x32)."""
END_ON_GPU = FURTHER_REGION / 2
"""Of the GPU's layers before the first region, or behind the last one: one change of devices where there are two [inferred]."""
GPU_MACS = 10e12
"""INT8 multiply-accumulates per second of the GPU for a network with a batch of 1: 6.4e12 of ResNet-50 (0.64 ms), 17e12 of RetinaNet
(11.67 ms; NVIDIA's MLPerf results, Jetson AGX Orin), a quarter of the dense peak (85 TOPs, MAXN). Within a factor of 1.7; FP16, 50W and
30W are slower."""

_PUBLISHED = ("Conv", *DENSE, *POOLING, "GlobalAveragePool", "Add", "Slice", "Split", *IN_PLACE)
"""First operators of layers that the networks with published times have (benchmarks/data/dla_networks.json)."""


@dataclasses.dataclass(frozen=True)
class CostPlan:
    """layers: one for each node, None for those that are not on the DLA. milliseconds: of all layers on the DLA, one
    core; None where one is unknown. unknown: layers whose shapes are. note: what the figure stands for, or why there is none.
    between: milliseconds of changes between DLA and GPU, by `FURTHER_REGION` and `END_ON_GPU`, which include the GPU's layers, and of the
    multiply-accumulates there (`GPU_MACS`). extrapolated: milliseconds of layers that the published networks do not have.
    """

    layers: list[Optional[LayerCost]]
    milliseconds: Optional[float]
    unknown: int
    note: str
    model: Optional[CostModel]
    between: float = 0.0
    extrapolated: float = 0.0

    @property
    def total(self) -> Optional[float]:
        """Milliseconds of the network: DLA layers, and everything between and around its regions."""
        return None if self.milliseconds is None else self.milliseconds + self.between

    @property
    def least(self) -> float:
        """The same of the layers whose time is known."""
        return sum(cost.milliseconds or 0.0 for cost in self.layers if cost is not None) + self.between

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

    def row(self) -> Cost:
        """The estimate as the report has it."""
        model, known = self.model, self.milliseconds is not None
        share = percent(self.extrapolated, self.milliseconds) if self.extrapolated else ""
        return Cost(
            self.milliseconds,
            self.fp16_milliseconds,
            self.between if known else None,
            self.total,
            self.extrapolated if known else None,
            f"{ESTIMATE}; operators without published times: {share} of the DLA's time" if share else ESTIMATE,
            self.note,
            self.unknown,
            None
            if model is None
            else {
                "name": model.name,
                "source": model.source,
                "clock_ghz": model.clock_ghz,
                **dataclasses.asdict(model.parameters),
            },
        )

    def layer_row(self, index: int) -> Optional[LayerCost]:
        """The estimate of a node with its share of all milliseconds."""
        cost, total = self.layers[index], self.milliseconds
        if cost is None or cost.milliseconds is None or not total:
            return cost
        return dataclasses.replace(cost, share=cost.milliseconds / total)


def estimate_costs(
    graph: Graph, types: TensorTypes, verdicts: Sequence[str], model: Optional[CostModel], note: str, regions: int = 1
) -> CostPlan:
    """Linear in the nodes. verdicts: one for each node. model: None gives bytes only. note: as from `choose_model`.
    regions: subgraphs of the DLA."""
    nodes = list(graph.nodes)
    rows: list[Optional[LayerCost]] = [None] * len(nodes)
    total: Optional[float] = 0.0 if model is not None else None
    unknown, extrapolated = 0, 0.0
    for layer in fused_layers(graph, types, verdicts):
        cost = _cost(layer, model)
        rows[layer.nodes[0]] = cost
        for index in layer.nodes[1:]:
            zero = None if cost.milliseconds is None else 0.0
            rows[index] = LayerCost(zero, 0, "", zero, zero, nodes[layer.nodes[0]].name)
        unknown += layer.works is None
        if not nodes[layer.nodes[0]].is_op(*_PUBLISHED):
            extrapolated += cost.milliseconds or 0.0
        if total is not None:
            total = None if cost.milliseconds is None else total + cost.milliseconds
    between = FURTHER_REGION * max(0, regions - 1) + END_ON_GPU * _ends(graph, verdicts)
    gpu = (
        work_of(node, graph, types) for node, where in zip(nodes, verdicts) if where == GPU and node.is_op(*WEIGHTED)
    )
    between += sum(work.macs for works in gpu for work in works or ()) / GPU_MACS * 1e3
    return CostPlan(rows, total, unknown, note, model, between, extrapolated)


def _ends(graph: Graph, verdicts: Sequence[str]) -> int:
    """How many ends of the network (0 to 2) are on the GPU: layers that the DLA's come behind, or that come behind those, only."""
    on = dict(zip(map(id, graph.nodes), verdicts))
    dla = {key for key, verdict in on.items() if verdict in (DLA_INT8, DLA_FP16)}
    behind: set[int] = set()
    before: set[int] = set()
    for node in graph.nodes:
        makers = (graph.producer.get(name) for name in node.reads())
        if any(maker is not None and (id(maker) in dla or id(maker) in behind) for maker in makers):
            behind.add(id(node))
    for node in graph.nodes_reversed:
        if any(id(reader) in dla or id(reader) in before for name in node.outputs for reader in graph.consumers(name)):
            before.add(id(node))
    gpu = {key for key, verdict in on.items() if verdict == GPU}
    return bool(gpu & before - behind) + bool(gpu & behind - before)


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
