"""Common base of the rewrites for the DLA: the graph, the rule table, and the record of all changes."""

from __future__ import annotations

import math
from typing import Any, Callable, Container, Iterable, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.core.budget import Budget
from qdq_translator.core.formats.report_rows import Finding
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.ir.weights import Initializer
from qdq_translator.translation.passes import editor
from qdq_translator.translation.passes.editor import Stays, known, stay_if
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.scales.table import Origin
from qdq_translator.translation.targets.dla.checks import Layer, Unknown, explicit_pads, has_power
from qdq_translator.translation.targets.dla.limits import limits_by_op
from qdq_translator.translation.targets.dla.verdicts import gpu_findings
from qdq_translator.translation.targets.settings import ANY_RULE, Settings

MOST_CHANNELS = 8192
"""Channels of a Conv (limits C8 and T8)."""
LARGEST_KERNEL = 32
"""Kernel of a Conv or ConvTranspose (limits C2 and T2)."""
LARGEST_PADDING = 31
"""Padding of a Conv (limit C3)."""
LARGEST_BLOCK = {"Conv": 8, "ConvTranspose": 22}
"""Kernel whose size is also its stride (limits C6 and T3)."""
_DIV_SINCE = (8, 6, 12)
NO_KERNEL = "its weight is not constant, it is not two-dimensional, or its padding is not known"
NO_ROOT = "the DLA has no root (limit O3; --assume pow)"
NO_SQUARES = "a square in INT8 would lose small values"
NO_SIZE = "its sizes are not known"
NO_SIZES = "its input does not have four dimensions with known channels, H and W"
NO_IMAGE = "its input does not have four dimensions with a known number of channels"


class Rewriter(editor.Editor):
    """One rewriting of one graph. Rules query `rejected`, edit with `replace`, raise `Stays` if they do not apply."""

    def __init__(self, network: Network, settings: Settings, generation: str) -> None:
        """A rewriter of `network`. generation: that of the DLA whose limits apply, 'orin' or 'xavier'."""
        super().__init__(network, settings)
        self.budget = Budget(network.graph.initializers.values(), "Translate without --dla_rewrites.")
        self._limits = limits_by_op(generation)
        self._refuted: Mapping[str, str] = {}
        self._context: Optional[Context] = None
        self._numbers = np.arange(0)
        refuted = {name: why for nodes in settings.refuted.values() for name, why in nodes.items() if why}
        for node in network.graph.nodes if refuted else ():
            if node.name in refuted:
                self.leave(node, refuted[node.name])

    def begin(self, rule: str) -> None:
        """Call before applying a rule."""
        refuted = self.settings.refuted
        self._refuted = {**refuted.get(ANY_RULE, {}), **refuted.get(rule, {})}

    # ---------------------------------------------------------------- questions

    def nodes(self, *op_types: str) -> list[Node]:
        return [node for node in super().nodes(*op_types) if self.allows(node)]

    def allows(self, node: Node) -> bool:
        """False for a node to which the current rule may not be applied."""
        return node.name not in self._refuted

    def rejected(self, node: Node) -> list[Finding]:
        """Limits of the rule table that assign the node to the GPU."""
        return gpu_findings(self._layer(node), self._limits)

    def rejected_by(self, node: Node) -> set[str]:
        return {finding.limit for finding in self.rejected(node)}

    def pads(self, node: Node) -> Optional[list[int]]:
        """ONNX pads of a Conv or pooling (begins, then ends), auto_pad computed; None if a size is unknown."""
        try:
            return explicit_pads(self._layer(node))
        except Unknown:
            return None

    def activation(self, tensor: str) -> tuple[Dim, ...]:
        """Shape of a float tensor that is not a constant; () for anything else, or if unknown."""
        floats = self.dtype(tensor) is not None and not self.graph.is_constant(tensor)
        return (self.types.shape(tensor) or ()) if floats else ()

    def sized(self, tensor: str, why: str = NO_SIZE) -> editor.Image:
        """(N, C, H, W) as of `image`. Raises Stays."""
        return known(self.image(tensor), why)

    def width(self, tensor: str) -> int:
        """C as of `channels`. Raises Stays."""
        return known(self.channels(tensor), NO_IMAGE)

    def window(self, node: Node, why: str = NO_SIZE) -> tuple[operators.Window, list[int]]:
        """Window and ONNX pads of a Conv or pooling. Raises Stays if one of them is not known."""
        weight = self.graph.initializers.get(node.input(1))
        return known(operators.window(node, None if weight is None else weight.dims), why), known(self.pads(node), why)

    def kernel(self, node: Node) -> tuple[Initializer, operators.Window, list[int]]:
        """Constant weight, window and ONNX pads of a two-dimensional Conv. Raises Stays if one of them is not known."""
        weight = self.graph.initializers.get(node.input(1))
        window, pads = self.window(node, NO_KERNEL)
        if weight is None or len(weight.dims) != 4 or len(pads) != 4:
            raise Stays(NO_KERNEL)
        return weight, window, pads

    def scales_differ(self, *tensors: str) -> bool:
        """True if two of the tensors have different scales of the model."""
        return len({self.scales.value(name) for name in tensors} - {None}) > 1

    def numbers(self, sizes: Sequence[int]) -> np.ndarray:
        """0, 1, 2, ... in this shape; not to be written to."""
        count = math.prod(sizes)
        if self._numbers.size < count:
            self._numbers = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
        return self._numbers[:count].reshape(sizes)

    def is_closed(self, tensors: Sequence[str], inside: Container[int]) -> bool:
        """True if none of the tensors is a graph output, and only nodes with these ids read them."""
        return self.graph.is_read_within(tensors, inside) and not any(name in self.graph.outputs for name in tensors)

    def _layer(self, node: Node) -> Layer:
        if self._context is None or self._context.types is not self.types:
            self._context = Context(self.graph, self.types, self.scales, self.settings.policy)
        hardware = self.settings.hardware
        return Layer(node, self._context, hardware.tensorrt, assumed=hardware.assumed)

    def need_quotient(self) -> None:
        """Raises Stays if the DLA has no Div (limit O5)."""
        since = "it needs a quotient, which the DLA supports from TensorRT 8.6.12"
        stay_if(self.settings.hardware.tensorrt < _DIV_SINCE, since)

    def has_power(self) -> bool:
        """Whether Pow with a constant exponent is assumed to run on the DLA (limit O3)."""
        return has_power(self.settings.hardware.tensorrt, self.settings.hardware.assumed)

    def each(self, *op_types: str, rewrite: Callable[..., None], cured: Sequence[str] = ()) -> None:
        """`attempt` for each float node of these operators that a limit (of `cured`, if given) assigns to the GPU."""
        limits = self._limits
        if cured:
            limits = {op: [one for one in limits.get(op, ()) if one.id in cured] for op in (*op_types, "*")}
        for node in self.nodes(*op_types):
            other = self.types.elem_type(node.outputs[0]) and self.dtype(node.outputs[0]) is None
            if not other and gpu_findings(self._layer(node), limits):
                self.attempt(rewrite, node)

    def attempt(self, rewrite: Callable[..., None], node: Node, *more: Any) -> bool:
        """False if `rewrite`, called with the node and `more`, raises `Stays`, whose reason is noted."""
        try:
            rewrite(self, node, *more)
        except Stays as why:
            self.leave(node, str(why))
            return False
        return True

    def insert(self, nodes: Iterable[Node], anchor: Optional[Node]) -> None:
        """Insert `nodes`, in this order, after the anchor, or at the start without one."""
        for node in nodes:
            anchor = self.graph.insert_after(node, anchor)

    def leave(self, node: Node, why: str) -> None:
        """Notes why a rejected node was not rewritten."""
        self.network.leave(node, why)

    # ---------------------------------------------------------------- making

    def afford(self, name: str, *shape: int) -> None:
        """Call before creating a tensor of this shape for node `name`. Raises ModelError if it is too large."""
        self.budget.allow([max(1, size) for size in shape], 4, 0, f"A rewrite of '{name}'")

    def scale_layer(
        self, source: str, target: str, channels: int, factor: Any, shift: Any, name: str, dtype: Any
    ) -> Node:
        """`target = source * factor + shift` as the Scale layer that the DLA has: a BatchNormalization with mean 0,
        variance 1 and epsilon 0. factor, shift: a number or one for each channel."""
        self.afford(name, 4, channels)
        factors, shifts = np.broadcast_to(factor, channels), np.full(channels, shift)
        mean, variance = np.zeros(channels), np.ones(channels)
        inputs = self.constants(name, dtype, scale=factors, shift=shifts, mean=mean, variance=variance)
        return Node("BatchNormalization", [source, *inputs], [target], name, epsilon=0.0)

    def constants(self, name: str, dtype: Any, **values: Any) -> list[str]:
        """Add an initializer `NAME.KEY` for each value."""
        names = []
        for key, array in values.items():
            names.append(self.constant(f"{name}.{key}", np.array(array, dtype, order="C")))
        return names

    def matrix(self, name: str, values: np.ndarray, node: Node) -> str:
        """Weight of a 1x1 Conv in `node`'s type. values: [outputs, inputs]."""
        self.afford(node.name, *values.shape)
        return self.constant(name, values[:, :, np.newaxis, np.newaxis].astype(self.dtype(node.inputs[0])))

    def become(self, node: Node, op_type: str, **attributes: Any) -> None:
        """Turn the node into another operator with the same inputs and outputs."""
        self.graph.set_operator(node, op_type)
        node.attributes = {}
        for key, value in attributes.items():
            node.set(key, value)

    def inherit(self, rule: str, tensor: str, source: str, node: Node, note: str) -> None:
        """`tensor` gets the scale that the model states for `source`."""
        value = self.scales.value(source)
        if value is not None and tensor not in self.graph.outputs:
            self.scales.infer(tensor, value, Origin(rule, node.name, "", note))


class Row(editor.Row):
    """A row with the layers that only the DLA needs."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        super().__init__(rewriter, node)
        self.rewriter = rewriter

    def scale(self, what: str, channels: int, factor: Any, shift: Any = 0.0) -> str:
        """Append a Scale."""
        dtype, make = self.rewriter.dtype(self.node.outputs[0]), self.rewriter.scale_layer
        return self.append(what, lambda target, name: make(self.current, target, channels, factor, shift, name, dtype))

    def power(self, exponent: float) -> str:
        """Append a power; the current tensor has four dimensions."""
        values = np.full((1, 1, 1, 1), exponent, self.rewriter.dtype(self.node.inputs[0]))
        return self.add("Pow", "power", self.rewriter.constant(f"{self.node.name}.exponent", values))
