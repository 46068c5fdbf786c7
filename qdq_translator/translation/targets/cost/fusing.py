"""The layers that TensorRT makes of nodes, on the DLA and on the GPU, and the work of each.

A convolution and the nodes after it (BatchNormalization, a constant, the Add of a residual, an activation, SiLU) are
one layer; an Add after an activation cannot be fused. This holds for any precision, because TensorRT fuses before it
chooses precisions (fact 5.5): the first node sets the rate at which the layer computes, the last one its output type.
On the DLA Concat is not a layer, because its inputs are written into its output, and every output of a Split is one. On
the GPU a chain of pointwise operators is one kernel, Concat copies, and views cost nothing. All of this is inferred,
because TensorRT is closed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable, Optional, Sequence

from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import (
    ACTIVATIONS,
    DENSE,
    ELEMENTWISE,
    SIGMOIDS,
    VIEWS,
    WEIGHTED,
    groups,
    summed_size,
)
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.model import Surface, Work
from qdq_translator.translation.targets.dla.limits import DLA_FP16, FOLDED, GPU
from qdq_translator.translation.targets.precision import float_activations

_SUMS, _PRODUCTS = ("Add", "Sub"), ("Mul", "Div")
IN_PLACE = where(cost="moves")
_POINTWISE = frozenset(
    (
        *(
            *ELEMENTWISE,
            *ACTIVATIONS,
            "Abs",
            "Elu",
            "Erf",
            "Exp",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "Log",
            "Neg",
            "Pow",
        ),
        *("Reciprocal", "Softplus", "Sqrt", "Where", "ReduceMean", "ReduceSum", "BatchNormalization", "Cast"),
    )
)
"""Operators that the GPU computes in one kernel with those before them: pointwise ones, and the means of a
normalization [inferred]."""


@dataclasses.dataclass
class FusedLayer:
    """Nodes that run as one layer. nodes: positions in graph order; the first gives the layer its name. verdict: of the
    first node. works: work of the layer, [] for none; None if a shape is unknown. expects: operators that can still be
    fused: 'any', 'mul' (the Mul of a SiLU), 'point' (pointwise, on the GPU) or '' (none). summed: a residual Add is
    fused. silu: a SiLU is. number: position among the layers."""

    nodes: list[int]
    verdict: str
    works: Optional[list[Work]]
    expects: str = ""
    summed: bool = False
    silu: bool = False
    number: int = 0


def fused_layers(graph: Graph, types: TensorTypes, verdicts: Sequence[str], gpu: bool = False) -> list[FusedLayer]:
    """The layers of the DLA in graph order. verdicts: one for each node. gpu: also the kernels of nodes on the GPU."""
    fusing = _Fusing(graph, types)
    for index, (node, verdict) in enumerate(zip(graph.nodes, verdicts)):
        if verdict not in (FOLDED, GPU) or (gpu and verdict == GPU):
            fusing.add(index, node, verdict)
    return fusing.layers


class _Fusing:
    def __init__(self, graph: Graph, types: TensorTypes) -> None:
        self.graph, self.types = graph, types
        self.layers: list[FusedLayer] = []
        self.made_by: dict[str, FusedLayer] = {}

    def add(self, index: int, node: Node, verdict: str) -> None:
        layer = self._joined(node, verdict == GPU)
        if layer is None:
            layer = self._alone(index, node, verdict)
            self.layers.append(layer)
        elif layer.expects == "point":
            self._extend(layer, node)
            layer.nodes.append(index)
        else:
            layer.nodes.append(index)
            if layer.works and not node.is_op(*SIGMOIDS):  # the last fused node sets the output type
                layer.works = [dataclasses.replace(layer.works[0], writes_fp16=verdict == DLA_FP16), *layer.works[1:]]
        self.made_by.update((name, layer) for name in node.outputs if name)

    def _alone(self, index: int, node: Node, verdict: str) -> FusedLayer:
        """A separate layer."""
        if verdict != GPU:
            works, expects = work_of(node, self.graph, self.types), "any" if node.is_op(*WEIGHTED) else ""
        else:
            works = gpu_work_of(node, self.graph, self.types)
            expects = "any" if node.is_op(*WEIGHTED) else "point" if node.op_type in _POINTWISE else ""
        return FusedLayer([index], verdict, works, expects, number=len(self.layers))

    def _extend(self, layer: FusedLayer, node: Node) -> None:
        """Another pointwise operator in a kernel: it reads its other inputs, and its output replaces the kernel's."""
        inputs = float_activations(node.reads(), self.graph, self.types)
        reads = _surfaces([name for name in inputs if self.made_by.get(name) is not layer], self.types)
        writes = _surfaces(float_activations(node.outputs, self.graph, self.types), self.types)
        if reads is None or writes is None:
            layer.works = None
        elif layer.works:
            layer.works = [
                dataclasses.replace(layer.works[0], reads=(*layer.works[0].reads, *reads), writes=tuple(writes))
            ]

    def _joined(self, node: Node, gpu: bool) -> Optional[FusedLayer]:
        """The layer that `node` is fused into, updated; None if it is a separate layer."""
        inputs = float_activations(node.reads(), self.graph, self.types)
        makers = [self.made_by[name] for name in inputs if name in self.made_by]
        if any((maker.verdict == GPU) != gpu for maker in makers):  # of the other device
            return None
        found = self._fused(node, inputs)
        if found is None and gpu and makers and node.op_type in _POINTWISE:
            # the latest of its inputs: a kernel that needs the result of a later one would be a circle
            last = max(makers, key=lambda maker: maker.number)
            found = last if last.expects == "point" else None
        return found

    def _fused(self, node: Node, inputs: Sequence[str]) -> Optional[FusedLayer]:
        """The layer with weights that `node` is fused into, updated; None if there is none."""
        layer = self.made_by.get(inputs[0]) if inputs else None
        if len(inputs) == 1 and layer is not None and layer.expects == "any":
            return self._behind(node, inputs[0], layer)
        if len(inputs) != 2:
            return None
        if node.is_op("Mul") and layer is not None and layer.expects == "mul" and layer is self.made_by.get(inputs[1]):
            layer.expects, layer.silu = "", True
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


def gpu_work_of(node: Node, graph: Graph, types: TensorTypes) -> Optional[list[Work]]:
    """Like `work_of`, on the GPU: views and integers cost nothing, Concat copies."""
    if node.is_op(*VIEWS, "Identity", "Dropout") or not float_activations(node.outputs, graph, types):
        return []
    if not node.is_op("Concat"):
        works = work_of(node, graph, types)
        constant = any(map(graph.is_constant, node.inputs[:2]))
        if not works or not node.is_op(*DENSE) or constant:
            return works
        other = surface(types.static_shape(node.inputs[1]))  # a product of two activations
        return None if other is None else [dataclasses.replace(works[0], reads=(*works[0].reads, other), weights=0)]
    surfaces = _surfaces(float_activations([*node.reads(), *node.outputs], graph, types), types)
    return None if surfaces is None else [Work(tuple(surfaces[:-1]), tuple(surfaces[-1:]))]


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
