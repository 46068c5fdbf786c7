"""Estimated time of a plan: the layers on the DLA one by one, those on the GPU, and the transitions between them.

`fusing` makes the layers. A transition has two prices (hypothesis `transitions`), so a plan has a low and a high end.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Optional, Sequence

from qdq_translator.core.formats.report_rows import Cost, LayerCost, Verdict
from qdq_translator.core.words import counted, percent
from qdq_translator.translation.ir.fixed import selecting_input
from qdq_translator.translation.ir.graph import Graph, every_body
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import WEIGHTED
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.fusing import FusedLayer, fused_layers, surface
from qdq_translator.translation.targets.cost.gpu import HIGH, START, GpuModel
from qdq_translator.translation.targets.cost.model import ESTIMATE, CostModel, Surface
from qdq_translator.translation.targets.dla.limits import DLA_FP16, GPU
from qdq_translator.translation.targets.precision import total

_PUBLISHED = where(cost="published moves")
"""First operators of layers that the networks with published times have (benchmarks/data/dla_networks.json)."""


@dataclasses.dataclass(frozen=True)
class CostPlan:
    """The estimate of a network on the DLA. layers: one for each node, None for nodes that are not on the DLA.
    milliseconds: of all layers on the DLA, one core; None if one is unknown. unknown: number of layers with unknown
    shapes. note: description of the model, or why there is none. gpu: milliseconds of the layers on the GPU; `whole` if
    all are there. transitions: milliseconds between DLA and GPU at the low and at the high end. extrapolated:
    milliseconds of layers that the published networks do not have. whole: the network before rewrites on the GPU alone,
    in INT8 and in FP16; None if it is not known."""

    layers: list[Optional[LayerCost]]
    milliseconds: Optional[float]
    unknown: int
    note: str
    model: Optional[CostModel]
    gpu: float = 0.0
    transitions: tuple[float, float] = (0.0, 0.0)
    extrapolated: float = 0.0
    whole: Optional[tuple[float, float]] = None

    @property
    def ends(self) -> Optional[tuple[float, float]]:
        """Milliseconds of the network, one inference after the other, at both ends; None if a layer is unknown."""
        return None if self.milliseconds is None else self._with(self.milliseconds)

    @property
    def least(self) -> tuple[float, float]:
        """Like `ends`, of the layers whose time is known: a lower bound."""
        return self._with(sum(cost.milliseconds or 0.0 for cost in self.layers if cost is not None))

    def _with(self, dla: float) -> tuple[float, float]:
        low, high = self.transitions
        return dla + self.gpu + low, dla + self.gpu + high

    @property
    def fp16_milliseconds(self) -> Optional[float]:
        """Milliseconds of all layers on the DLA if they ran in FP16; None if one is unknown."""
        if self.milliseconds is None:
            return None
        return sum(cost.fp16_milliseconds or 0.0 for cost in self.layers if cost is not None)

    def row(self) -> Cost:
        """The estimate as the report has it."""
        model, known = self.model, self.milliseconds is not None
        low, high = self.ends or (None, None)
        int8, fp16 = self.whole or (None, None)
        share = percent(self.extrapolated, self.milliseconds) if self.extrapolated else ""
        return Cost(
            milliseconds=self.milliseconds,
            fp16_milliseconds=self.fp16_milliseconds,
            gpu_milliseconds=self.gpu if known else None,
            transition_milliseconds=self.transitions[0] if known else None,
            transition_high_milliseconds=self.transitions[1] if known else None,
            total_milliseconds=low,
            total_high_milliseconds=high,
            all_gpu_milliseconds=int8,
            all_gpu_fp16_milliseconds=fp16,
            extrapolated_milliseconds=self.extrapolated if known else None,
            what=f"{ESTIMATE}; operators without published times: {share} of the DLA's time" if share else ESTIMATE,
            note=self.note,
            unknown_layers=self.unknown,
            model=None
            if model is None
            else {
                "name": model.name,
                "source": model.source,
                "clock_ghz": model.clock_ghz,
                **dataclasses.asdict(model.parameters),
            },
        )

    def layer_row(self, index: int) -> Optional[LayerCost]:
        """The estimate of a node with its share of `milliseconds`."""
        cost, total = self.layers[index], self.milliseconds
        if cost is None or cost.milliseconds is None or not total:
            return cost
        return dataclasses.replace(cost, share=cost.milliseconds / total)


def estimate_costs(
    graph: Graph,
    types: TensorTypes,
    placed: Sequence[Verdict],
    models: tuple[Optional[CostModel], GpuModel],
    note: str,
    whole: Optional[tuple[float, float]],
) -> CostPlan:
    """Estimate every layer, in linear time. placed: one for each node. models: of DLA (None gives bytes only) and
    GPU. note: as from `choose_model`. whole: see `CostPlan`."""
    nodes, (model, gpu_model) = list(graph.nodes), models
    rows: list[Optional[LayerCost]] = [None] * len(nodes)
    milliseconds: Optional[float] = 0.0 if model is not None else None
    unknown, extrapolated, gpu = 0, 0.0, 0.0
    layers = fused_layers(graph, types, [row.verdict for row in placed], gpu=True)
    for layer in layers:
        if layer.verdict == GPU:
            gpu += gpu_model.kernel(layer, fp16=True)
            continue
        first, cost = nodes[layer.nodes[0]], dla_cost(layer, model)
        part = None if cost.milliseconds is None else 0.0
        for index in layer.nodes:
            rows[index] = LayerCost(part, 0, "", part, part, first.name)
        rows[layer.nodes[0]] = cost
        unknown += layer.works is None
        extrapolated += 0.0 if first.is_op(*_PUBLISHED) else cost.milliseconds or 0.0
        milliseconds = total((milliseconds, cost.milliseconds))
    if whole is not None and all(layer.verdict == GPU for layer in layers):
        gpu = whole[0]
    hidden = why_hidden(graph)
    unknown, milliseconds = unknown + bool(hidden), None if hidden else milliseconds
    note = hidden or why_unknown(graph, types, unknown, note)
    subgraphs = [placed[layer.nodes[0]].subgraph for layer in layers]
    moves = _transitions(exchanges(graph, types, layers), subgraphs, gpu_model)
    return CostPlan(rows, milliseconds, unknown, note, model, gpu, moves, extrapolated, whole)


def why_hidden(graph: Graph) -> str:
    """That layers with weights inside a body are not planned, in words, and how to plan the branch of an If; '' if
    there are none."""
    for node in graph.nodes:
        layers = sum(inner.op_type in WEIGHTED for body in every_body([node.to_proto()]) for inner in body.node)
        chosen = selecting_input(graph, node) if layers and node.is_op("If") else ""
        remedy = f"; if input '{chosen}' is always the same, fix it: --shapes {chosen}=VALUE" if chosen else ""
        if layers:
            return f"{counted(layers, 'layer')} with weights inside {node.op_type} {node.label} are not planned{remedy}"
    return ""


def why_unknown(graph: Graph, types: TensorTypes, layers: int, note: str) -> str:
    """Why the work of so many layers is not known, in words: an open input, or the first layer behind which a shape is
    lost. The note if there are none."""
    if not layers:
        return note
    opened = [name for name in graph.inputs if types.static_shape(name) is None]
    if opened:
        return f"the shape of '{opened[0]}' is dynamic (--shapes {opened[0]}:DIMS)"
    for node in graph.nodes:
        if any(name and types.static_shape(name) is None for name in node.outputs):
            return f"the shapes behind {node.op_type} {node.label} are not known"
    return "a layer's work is not known"


def _transitions(between: Sequence[Exchange], subgraphs: Sequence[int], model: GpuModel) -> tuple[float, float]:
    """Milliseconds at the low and at the high end."""
    low, ends = crossed(between, subgraphs, [model.transition(one.surface) for one in between])
    return low, low + (HIGH - START) * ends


def crossed(between: Sequence[Exchange], subgraphs: Sequence[int], prices: Sequence[float]) -> tuple[float, int]:
    """The prices of the tensors that layers on the other device read, and how often a region begins or ends next to
    them. subgraphs: layer -> its region on the DLA (-1: on the GPU). prices: one for each tensor."""
    paid, ends = 0.0, set()  # type: float, set[tuple[int, bool]]
    for one, price in zip(between, prices):
        maker = subgraphs[one.maker]
        over = [subgraphs[reader] for reader in one.readers if (subgraphs[reader] < 0) != (maker < 0)]
        paid += price if over else 0
        ends.update((reader, True) if maker < 0 else (maker, False) for reader in over)
    return paid, len(ends)


class Exchange(NamedTuple):
    """A tensor that other layers read. maker, readers: numbers of the layers. surface: None if a size is unknown."""

    tensor: str
    maker: int
    readers: list[int]
    surface: Optional[Surface]


def exchanges(graph: Graph, types: TensorTypes, layers: Sequence[FusedLayer]) -> list[Exchange]:
    """Every tensor between two layers, in graph order."""
    nodes = list(graph.nodes)
    number = {id(nodes[index]): own for own, layer in enumerate(layers) for index in layer.nodes}
    found = []
    for own, layer in enumerate(layers):
        for name in (name for index in layer.nodes for name in nodes[index].outputs if name):
            readers = dict.fromkeys(number.get(id(reader), own) for reader in graph.consumers(name))
            readers.pop(own, None)
            if readers:
                found.append(Exchange(name, own, list(readers), surface(types.static_shape(name))))
    return found


class Original(NamedTuple):
    """A network before rewrites, on the GPU. kernels: node -> milliseconds in FP16 of the kernel that it begins. whole:
    milliseconds of the network in INT8 and in FP16; None if a shape is unknown."""

    kernels: dict[str, float]
    whole: Optional[tuple[float, float]]


def original_on_gpu(graph: Graph, types: TensorTypes, model: GpuModel) -> Original:
    """The price of every node and of the network on the GPU alone."""
    nodes, layers = list(graph.nodes), fused_layers(graph, types, [GPU] * len(graph), gpu=True)
    kernels = {nodes[layer.nodes[0]].name: model.kernel(layer, True) for layer in layers}
    known = all(layer.works is not None for layer in layers)
    return Original(kernels, (model.network(layers, False), model.network(layers, True)) if known else None)


def dla_cost(layer: FusedLayer, model: Optional[CostModel]) -> LayerCost:
    """The estimate of a layer on the DLA."""
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
