"""Layers that TensorRT makes of a network on the DLA, and the work of each.

A convolution and the nodes after it (BatchNormalization, a constant, the Add of a residual, an activation, SiLU) are
one layer; an Add after an activation cannot be fused. This holds for any precision, because TensorRT fuses before it
chooses precisions (fact 5.5): the first node sets the rate at which the layer computes, the last one its output type.
Concat is not a layer, because its inputs are written into its output, and every output of a Split is one. All that is
inferred: the DLA's compiler is closed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable, Optional, Sequence

from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import ACTIVATIONS, DENSE, SIGMOIDS, WEIGHTED, groups, summed_size
from qdq_translator.ir.types import TensorTypes
from qdq_translator.targets.cost.model import Surface, Work
from qdq_translator.targets.dla.limits import DLA_FP16, DLA_INT8
from qdq_translator.targets.precision import float_activations

_SUMS, _PRODUCTS = ("Add", "Sub"), ("Mul", "Div")
IN_PLACE = ("Concat", "Identity", "Dropout")


@dataclasses.dataclass
class FusedLayer:
    """nodes: positions in graph order; the first gives the layer its name. verdict: of the first.

    works: its work, [] for none; None if a shape is unknown. expects: what may still join it: 'any', 'mul' (the one
    that makes a SiLU) or ''. summed: a residual has joined.
    """

    nodes: list[int]
    verdict: str
    works: Optional[list[Work]]
    expects: str = ""
    summed: bool = False


def fused_layers(graph: Graph, types: TensorTypes, verdicts: Sequence[str]) -> list[FusedLayer]:
    """The layers of the DLA in graph order. verdicts: one for each node; only those of the DLA make layers."""
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
            if layer.works and not node.is_op(*SIGMOIDS):  # the last node says what is handed on
                layer.works = [dataclasses.replace(layer.works[0], writes_fp16=verdict == DLA_FP16), *layer.works[1:]]
        self.made_by.update((name, layer) for name in node.outputs if name)

    def _joined(self, node: Node) -> Optional[FusedLayer]:
        """The layer that `node` is fused into, updated; None if it is a separate layer."""
        inputs = float_activations(node.reads(), self.graph, self.types)
        if len(inputs) == 1:
            layer = self.made_by.get(inputs[0])
            if layer is None or layer.expects != "any":
                return None
            silu = node.is_op("Sigmoid") and self._silu(node)
            if not silu and not self._only_reader(inputs[0]):
                return None
            if node.is_op(*ACTIVATIONS):
                layer.expects = "mul" if silu else ""
            elif not node.is_op("BatchNormalization", *_SUMS, *_PRODUCTS):
                return None
            return layer
        if len(inputs) == 2 and node.is_op("Mul"):
            layer = self.made_by.get(inputs[0])
            if layer is not None and layer.expects == "mul" and layer is self.made_by.get(inputs[1]):
                layer.expects = ""
                return layer
        if len(inputs) == 2 and node.is_op(*_SUMS):
            return self._residual(inputs)
        return None

    def _residual(self, inputs: Sequence[str]) -> Optional[FusedLayer]:
        """Fuse the sum into the later convolution that makes an input; the other input is an additional read."""
        fitting = [
            (self.made_by[name].nodes[-1], name)
            for name in inputs
            if name in self.made_by
            and self.made_by[name].expects == "any"
            and not self.made_by[name].summed
            and self._only_reader(name)
        ]
        if not fitting:
            return None
        name = max(fitting)[1]
        layer = self.made_by[name]
        other = surface(self.types.static_shape(inputs[1] if inputs[0] == name else inputs[0]))
        if layer.works and other is not None:
            layer.works = [dataclasses.replace(layer.works[0], reads=(*layer.works[0].reads, other))]
        elif other is None:
            layer.works = None
        layer.summed = True
        return layer

    def _only_reader(self, tensor: str) -> bool:
        return tensor not in self.graph.outputs and self.graph.consumer_count(tensor) == 1

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


# ---------------------------------------------------------------- the work of one node


def surface(shape: Optional[Sequence[int]]) -> Optional[Surface]:
    """Surface; channels are the second dimension (the only one of a vector). None if a size is unknown."""
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
