"""Estimated time of a plan on a DLA, layer by layer, with changes of precision and device.

TensorRT makes layers of the network: a convolution and the nodes after it (BatchNormalization, a constant, the Add of a
residual, an activation, SiLU) are one layer; an Add after an activation cannot be fused. This holds for any precision,
because TensorRT fuses before it chooses precisions (fact 5.5): the first node sets the rate at which the layer
computes, the last one its output type. Concat is not a layer, because its inputs are written into its output, and every
output of a Split is one. All of this is inferred, because the DLA's compiler is closed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable, Optional, Sequence

from qdq_translator.core.formats.report_rows import Cost, LayerCost
from qdq_translator.core.words import percent
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import ACTIVATIONS, DENSE, POOLING, SIGMOIDS, WEIGHTED, groups, summed_size
from qdq_translator.ir.types import TensorTypes
from qdq_translator.targets.cost.model import ESTIMATE, CostModel, Surface, Work
from qdq_translator.targets.dla.limits import DLA_FP16, DLA_INT8, GPU
from qdq_translator.targets.precision import float_activations, total

_SUMS, _PRODUCTS = ("Add", "Sub"), ("Mul", "Div")
IN_PLACE = ("Concat", "Identity", "Dropout")


@dataclasses.dataclass
class FusedLayer:
    """nodes: positions in graph order; the first gives the layer its name. verdict: of the first node. works: work of
    the layer, [] for none; None if a shape is unknown. expects: operators that can still be fused: 'any', 'mul' (the
    Mul of a SiLU) or '' (none). summed: a residual Add is fused."""

    nodes: list[int]
    verdict: str
    works: Optional[list[Work]]
    expects: str = ""
    summed: bool = False


def fused_layers(graph: Graph, types: TensorTypes, verdicts: Sequence[str]) -> list[FusedLayer]:
    """The layers of the DLA in graph order. verdicts: one for each node; nodes on the GPU make no layers here."""
    fusing = _Fusing(graph, types)
    for index, (node, verdict) in enumerate(zip(graph.nodes, verdicts)):
        if verdict in (DLA_INT8, DLA_FP16):
            fusing.add(index, node, verdict)
    return fusing.layers


class _Fusing:
    def __init__(self, graph: Graph, types: TensorTypes) -> None:
        self.graph, self.types = graph, types
        self.layers: list[FusedLayer] = []
        self.made_by: dict[str, FusedLayer] = {}

    def add(self, index: int, node: Node, verdict: str) -> None:
        layer = self._joined(node)
        if layer is None:
            works = work_of(node, self.graph, self.types)
            layer = FusedLayer([index], verdict, works, "any" if node.is_op(*WEIGHTED) else "")
            self.layers.append(layer)
        else:
            layer.nodes.append(index)
            if layer.works and not node.is_op(*SIGMOIDS):  # the last fused node sets the output type
                layer.works = [dataclasses.replace(layer.works[0], writes_fp16=verdict == DLA_FP16), *layer.works[1:]]
        self.made_by.update((name, layer) for name in node.outputs if name)

    def _joined(self, node: Node) -> Optional[FusedLayer]:
        """The layer that `node` is fused into, updated; None if it is a separate layer."""
        inputs = float_activations(node.reads(), self.graph, self.types)
        layer = self.made_by.get(inputs[0]) if inputs else None
        if len(inputs) == 1 and layer is not None and layer.expects == "any":
            return self._behind(node, inputs[0], layer)
        if len(inputs) != 2:
            return None
        if node.is_op("Mul") and layer is not None and layer.expects == "mul" and layer is self.made_by.get(inputs[1]):
            layer.expects = ""
            return layer
        return self._residual(inputs) if node.is_op(*_SUMS) else None

    def _behind(self, node: Node, name: str, layer: FusedLayer) -> Optional[FusedLayer]:
        """The layer, if `node` is the only reader of its output or the Sigmoid of a SiLU and fuses into it, else
        None."""
        silu = node.is_op("Sigmoid") and self._silu(node)
        if not silu and self.graph.only_consumer(name) is None:  # another reader needs the tensor in memory
            return None
        if node.is_op(*ACTIVATIONS):
            layer.expects = "mul" if silu else ""
        return layer if node.is_op("BatchNormalization", *_SUMS, *_PRODUCTS, *ACTIVATIONS) else None

    def _residual(self, inputs: Sequence[str]) -> Optional[FusedLayer]:
        """Fuse the sum into the later convolution that makes an input; the other input is an additional read."""
        fitting: list[tuple[int, str, FusedLayer]] = []
        for name in inputs:
            layer = self.made_by.get(name)
            if layer is not None and layer.expects == "any" and not layer.summed and self.graph.only_consumer(name):
                fitting.append((layer.nodes[-1], name, layer))
        if not fitting:
            return None
        _, name, layer = max(fitting, key=lambda found: found[:2])
        other = surface(self.types.static_shape(inputs[1] if inputs[0] == name else inputs[0]))
        if other is None:
            layer.works = None
        elif layer.works:
            layer.works = [dataclasses.replace(layer.works[0], reads=(*layer.works[0].reads, other))]
        layer.summed = True
        return layer

    def _silu(self, sigmoid: Node) -> bool:
        """x * sigmoid(x), with no other reader of x or sigmoid(x)."""
        source, gate = sigmoid.inputs[0], sigmoid.outputs[0]
        product = self.graph.only_consumer(gate)
        return (
            product is not None
            and product.is_op("Mul")
            and set(product.inputs) == {source, gate}
            and source not in self.graph.outputs
            and self.graph.consumer_count(source) == 2
        )


# ---------------- the work of one node


def surface(shape: Optional[Sequence[int]]) -> Optional[Surface]:
    """Surface of a shape; channels are the second dimension, or the only one of a vector. None if a size is unknown."""
    if shape is None:
        return None
    if len(shape) < 2:
        return Surface(math.prod(shape), 1)
    return Surface(shape[1], math.prod(shape) // max(1, shape[1]))


def work_of(node: Node, graph: Graph, types: TensorTypes) -> Optional[list[Work]]:
    """Work of the node as a separate layer: [] for none, several for a Split; None if a shape is unknown."""
    if node.is_op(*IN_PLACE):
        return []
    if node.is_op(*WEIGHTED):
        work = _product(node, types)
        return None if work is None else [work]
    reads = _surfaces(float_activations(node.reads(), graph, types), types)
    writes = _surfaces(float_activations(node.outputs, graph, types), types)
    if reads is None or writes is None:
        return None
    if node.is_op("Slice", "Split"):
        return [Work((part,), (part,)) for part in writes]
    return [Work(tuple(reads), tuple(writes))]


def _surfaces(names: Iterable[str], types: TensorTypes) -> Optional[list[Surface]]:
    found = [surface(types.static_shape(name)) for name in names]
    known = [surface for surface in found if surface is not None]
    return known if len(known) == len(found) else None


def _product(node: Node, types: TensorTypes) -> Optional[Work]:
    """Conv, ConvTranspose, and Gemm or MatMul as a 1x1 convolution."""
    data, weight = types.static_shape(node.inputs[0]), types.static_shape(node.input(1))
    out = types.static_shape(node.outputs[0])
    if not data or not weight or not out:
        return None
    if node.is_op(*DENSE):
        into = summed_size(node, data)
        rows = math.prod(out[:-1])
        read, write = Surface(into, rows), Surface(out[-1], rows)
        return Work((read,), (write,), rows, (into, out[-1]), 1, math.prod(weight))
    if min(len(data), len(out)) < 3 or not (data[1] and out[1]):
        return None
    read, write = Surface(data[1], math.prod(data) // data[1]), Surface(out[1], math.prod(out) // out[1])
    positions = read.positions if node.is_op("ConvTranspose") else write.positions
    products = positions * math.prod(weight[2:])
    return Work((read,), (write,), products, (data[1], out[1]), max(1, groups(node)), math.prod(weight))


# ---------------- the time of all layers

FURTHER_REGION = 0.58
"""Milliseconds that each further region of the DLA adds: the transition between two regions with its GPU layers. From
the published rates of one network with 2 and with 5 regions (NVIDIA-AI-IOT/jetson_dla_tutorial; AGX Orin, INT8, batch
32 of 3x32x32)."""
END_ON_GPU = FURTHER_REGION / 2
"""Milliseconds of the GPU's layers before the first region, or behind the last one: one change of devices instead of
two [inferred]."""
GPU_MACS = 10e12
"""INT8 multiply-accumulates per second of the GPU for a network with a batch of 1: 6.4e12 of ResNet-50 (0.64 ms), 17e12
of RetinaNet (11.67 ms; NVIDIA's MLPerf results, Jetson AGX Orin), a quarter of the dense peak (85 TOPs, MAXN). Within a
factor of 1.7; FP16, 50W and 30W are slower."""

_PUBLISHED = ("Conv", *DENSE, *POOLING, "GlobalAveragePool", "Add", "Slice", "Split", *IN_PLACE)
"""First operators of layers that the networks with published times have (benchmarks/data/dla_networks.json)."""


@dataclasses.dataclass(frozen=True)
class CostPlan:
    """layers: one for each node, None for nodes that are not on the DLA. milliseconds: of all layers on the DLA, one
    core; None if one is unknown. unknown: number of layers with unknown shapes. note: description of the model, or why
    there is none. between: milliseconds of changes between DLA and GPU (`FURTHER_REGION` and `END_ON_GPU`, which
    include the GPU's layers) and of the GPU's multiply-accumulates (`GPU_MACS`). extrapolated: milliseconds of layers
    that the published networks do not have."""

    layers: list[Optional[LayerCost]]
    milliseconds: Optional[float]
    unknown: int
    note: str
    model: Optional[CostModel]
    between: float = 0.0
    extrapolated: float = 0.0

    @property
    def total(self) -> Optional[float]:
        """Milliseconds of the network: DLA layers, and the GPU's part between and around the DLA regions."""
        return None if self.milliseconds is None else self.milliseconds + self.between

    @property
    def least(self) -> float:
        """Like `total`, of the layers whose time is known: a lower bound."""
        return sum(cost.milliseconds or 0.0 for cost in self.layers if cost is not None) + self.between

    @property
    def fp16_milliseconds(self) -> Optional[float]:
        """Milliseconds of all layers on the DLA if they ran in FP16; None if one is unknown."""
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
        """The estimate of a node with its share of `milliseconds`."""
        cost, total = self.layers[index], self.milliseconds
        if cost is None or cost.milliseconds is None or not total:
            return cost
        return dataclasses.replace(cost, share=cost.milliseconds / total)


def estimate_costs(
    graph: Graph, types: TensorTypes, verdicts: Sequence[str], model: Optional[CostModel], note: str, regions: int = 1
) -> CostPlan:
    """Estimate every layer, in linear time. verdicts: one for each node. model: None gives bytes only. note: as from
    `choose_model`. regions: number of subgraphs of the DLA."""
    nodes = list(graph.nodes)
    rows: list[Optional[LayerCost]] = [None] * len(nodes)
    milliseconds: Optional[float] = 0.0 if model is not None else None
    unknown, extrapolated = 0, 0.0
    for layer in fused_layers(graph, types, verdicts):
        first, cost = nodes[layer.nodes[0]], _cost(layer, model)
        part = None if cost.milliseconds is None else 0.0
        for index in layer.nodes:
            rows[index] = LayerCost(part, 0, "", part, part, first.name)
        rows[layer.nodes[0]] = cost
        unknown += layer.works is None
        extrapolated += 0.0 if first.is_op(*_PUBLISHED) else cost.milliseconds or 0.0
        milliseconds = total((milliseconds, cost.milliseconds))
    between = FURTHER_REGION * max(0, regions - 1) + END_ON_GPU * _ends(graph, verdicts)
    gpu = [node for node, where in zip(nodes, verdicts) if where == GPU and node.is_op(*WEIGHTED)]
    between += sum(work.macs for node in gpu for work in work_of(node, graph, types) or ()) / GPU_MACS * 1e3
    return CostPlan(rows, milliseconds, unknown, note, model, between, extrapolated)


def _ends(graph: Graph, verdicts: Sequence[str]) -> int:
    """How many ends of the network (0 to 2) are on the GPU: GPU layers that only precede DLA layers, and those that
    only follow them."""
    on = dict(zip(map(id, graph.nodes), verdicts))
    dla = {key for key, verdict in on.items() if verdict in (DLA_INT8, DLA_FP16)}
    gpu = {key for key, verdict in on.items() if verdict == GPU}
    behind, before = set(dla), set(dla)
    for node in graph.nodes:
        if not behind.isdisjoint(id(graph.producer.get(name)) for name in node.reads()):
            behind.add(id(node))
    for node in graph.nodes_reversed:
        if not before.isdisjoint(id(reader) for name in node.outputs for reader in graph.consumers(name)):
            before.add(id(node))
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
