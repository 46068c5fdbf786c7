"""Convert operators on quantized values to float operators between DequantizeLinear and QuantizeLinear. They are ONNX's
QLinearConv, QLinearMatMul, ConvInteger and MatMulInteger, and ONNX Runtime's operators of com.microsoft. Scales and
zero points are kept. Biases get `x_scale * w_scale`, by definition.

An integer product without its own scales is converted if a QuantizeLinear makes its input and a constant product (after
a Cast) makes its output real; dynamic quantization computes that factor from the input and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np

from qdq_translator.translation.ir.constants import Constants, is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import FLOAT_TYPES
from qdq_translator.translation.quantizers.dialects.pairs import channels, linear
from qdq_translator.translation.quantizers.parameters import Rejected

_Triple = Tuple[int, int, int]
_ABSENT = 99
"""A position that no operator has: the input there is ''."""


@dataclass(frozen=True)
class _Form:
    """An operator on quantized values. op: the float operator. data: positions of (tensor, scale, zero point) of each
    quantized input. result: positions of scale and zero point of the output, if it is not real. bias: position of the
    bias (int32; real if the output always is). plain: positions of inputs that are passed on first. drop: attributes
    that the float operator lacks."""

    op: str
    data: tuple[_Triple, ...]
    result: tuple[int, int] = (_ABSENT, _ABSENT)
    bias: int = _ABSENT
    plain: tuple[int, ...] = ()
    drop: tuple[str, ...] = ()

    def places(self, node: Node) -> tuple[_Triple, ...]:
        """`data`; of a Concat, which has any number of inputs, all behind scale and zero point of the output."""
        return self.data or tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))


_TWO: tuple[_Triple, ...] = ((0, 1, 2), (3, 4, 5))
_ONE: tuple[_Triple, ...] = ((0, 1, 2),)
_FORMS: dict[tuple[str, str], _Form] = {
    ("", "QLinearConv"): _Form("Conv", _TWO, (6, 7), bias=8),
    ("com.microsoft", "QLinearConv"): _Form("Conv", _TWO, (6, 7), bias=8, drop=("channels_last",)),
    ("", "QLinearMatMul"): _Form("MatMul", _TWO, (6, 7)),
    ("com.microsoft", "QLinearAdd"): _Form("Add", _TWO, (6, 7)),
    ("com.microsoft", "QLinearMul"): _Form("Mul", _TWO, (6, 7)),
    ("com.microsoft", "QGemm"): _Form("Gemm", _TWO, (7, 8), bias=6),
    ("com.microsoft", "QLinearSigmoid"): _Form("Sigmoid", _ONE, (3, 4)),
    ("com.microsoft", "QLinearLeakyRelu"): _Form("LeakyRelu", _ONE, (3, 4)),
    ("com.microsoft", "QLinearSoftmax"): _Form("Softmax", _ONE, (3, 4), drop=("opset",)),
    ("com.microsoft", "QLinearAveragePool"): _Form("AveragePool", _ONE, (3, 4), drop=("channels_last",)),
    ("com.microsoft", "QLinearGlobalAveragePool"): _Form("GlobalAveragePool", _ONE, (3, 4), drop=("channels_last",)),
    ("com.microsoft", "QLinearReduceMean"): _Form("ReduceMean", _ONE, (3, 4)),
    ("com.microsoft", "QLinearWhere"): _Form("Where", ((1, 2, 3), (4, 5, 6)), (7, 8), plain=(0,)),
    ("com.microsoft", "QLinearConcat"): _Form("Concat", (), (0, 1)),
    ("com.microsoft", "MatMulIntegerToFloat"): _Form("MatMul", ((0, 2, 4), (1, 3, 5)), bias=6),
}
_INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
OPERATORS = frozenset((*(op for _, op in _FORMS), *_INTEGER))
_SUFFIXES = ("_quantized", "_QuantizeLinear_Output")
"""Suffixes that ONNX Runtime adds to the names of float tensors."""


class Converter:
    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph, self.constants = graph, constants
        self.real: dict[tuple[str, str, str, Optional[int]], str] = {}
        """(tensor, scale, zero point, axis) of each tensor already dequantized -> the float tensor."""

    def convert(self, node: Node) -> bool:
        form = _FORMS.get((node.domain, node.op_type))
        if form is None and not node.is_op(*_INTEGER):
            return False
        what = self._integer(node, _INTEGER[node.op_type]) if form is None else self._refusal(node)
        if what:
            raise Rejected(f"{node.op_type} {node.label} {what}.", "Export in QDQ format (int8), statically quantized.")
        if form is not None:
            self._convert(node, form)
        return True

    def _refusal(self, node: Node) -> str:
        if node.get("channels_last", 0):
            return "has its channels last, which no operator of ONNX has"
        if node.op_type == "QLinearSoftmax" and (node.get("opset", 13) < 13) != (self.graph.opset() < 13):
            return f"is a Softmax of opset {node.get('opset', 13)} in a model of opset {self.graph.opset()}"
        return ""

    def _convert(self, node: Node, form: _Form) -> None:
        made, bias, scale, zero = node.outputs[0], *map(node.input, (form.bias, *form.result))
        inputs = self._inputs(node, form)
        attributes = {key: value for key, value in node.attributes.items() if key not in form.drop}
        if form.op == "ReduceMean" and "axes" in attributes and self.graph.opset() >= 18:
            del attributes["axes"]
            inputs.append(self.graph.constant(f"{made}_axes", np.array(node.get("axes"), np.int64)))
        added = bias if form.op == "MatMul" else ""
        real = self._real_name(made) if scale or added else made
        if scale and not zero:  # the zero point has the type of the input
            kind = self.constants.type_name(node.input(form.places(node)[0][2])) or "uint8"
            zero = self.graph.constant(f"{made}_zero_point", np.zeros((), kind))
        before = node.prev
        self.graph.remove(node)
        last = self.graph.insert_after(Node(form.op, inputs, [real], node.name, attributes=attributes), before)
        if added:
            self.graph.insert_after(Node("Add", [real, added], [made], self.graph.node_name(f"{made}_Add")), last)
        elif scale:
            self.graph.insert_after(linear(self.graph, "QuantizeLinear", [real, scale, zero], made, made), last)

    def _inputs(self, node: Node, form: _Form) -> list[str]:
        """Inputs of the float operator; the bias of a MatMul is added behind it."""
        data = form.places(node)
        inputs = [node.input(place) for place in form.plain]
        for places in data:
            tensor, scale, zero = map(node.input, places)
            axis = _weight_axis(node, form.op) if places is data[-1] else None
            inputs.append(self._dequantized(node, tensor, scale, zero, axis))
        bias = node.input(form.bias)
        if bias and form.op != "MatMul":
            inputs.append(self._bias(node, bias, node.input(data[0][1]), node.input(data[1][1])))
        return inputs

    def _dequantized(self, node: Node, tensor: str, scale: str, zero: str, axis: Optional[int] = None) -> str:
        """Real values of a quantized tensor, dequantized once for all operators that read it."""
        factors = self.constants.value(scale)
        axis = axis if factors is not None and factors.size > 1 else None
        key = (tensor, scale, zero, axis)
        if key not in self.real:
            name = self.graph.unique_name(f"{tensor}_dequantized")
            new = linear(self.graph, "DequantizeLinear", [tensor, scale, zero], name, tensor, axis)
            self.graph.insert_after(new, node.prev)
            self.real[key] = name
        return self.real[key]

    def _bias(self, node: Node, bias: str, first: str, second: str) -> str:
        scales = [self.constants.value(name) for name in (first, second)]
        if scales[0] is None or scales[1] is None:
            return bias  # the DequantizeLinear of the computed scale is refused by name
        product = np.asarray(scales[0].reshape(()) if scales[0].size == 1 else scales[0]) * scales[1]
        product = (product * np.float32(node.get("alpha", 1.0))).astype(np.float32)
        scale = self.graph.constant(f"{bias}_scale", product)
        name, axis = self.graph.unique_name(f"{bias}_dequantized"), 0 if product.size > 1 else None
        self.graph.insert_after(linear(self.graph, "DequantizeLinear", [bias, scale], name, bias, axis), node.prev)
        return name

    def _integer(self, node: Node, op: str) -> str:
        """Convert ConvInteger or MatMulInteger, the Cast and the product behind it; '' if converted."""
        graph, maker = self.graph, self.graph.producer.get(node.inputs[0])
        step = self.constants.value(maker.inputs[1]) if maker is not None and is_quantize(maker) else None
        cast = graph.only_consumer(node.outputs[0])
        product = _real_product(graph, cast)
        if maker is None or step is None or step.size != 1 or cast is None or product is None:
            return "computes on quantized values without constant scales before and behind it (dynamic quantization)"
        factors = [self.constants.value(name) for name in product.inputs if name != cast.outputs[0]]
        shape = channels(factors[0]) if len(factors) == 1 and factors[0] is not None else None
        if shape is None:
            return "is multiplied by scales that are not constant (dynamic quantization)"
        steps = (shape[0].astype(np.float64) / float(step.reshape(()))).astype(np.float32)
        scale = graph.constant(f"{node.inputs[1]}_scale", steps)
        weight = self._dequantized(node, node.inputs[1], scale, node.input(3))
        if steps.size > 1:
            graph.producer[weight].set("axis", _weight_axis(node, op))
        data = self._dequantized(node, node.inputs[0], maker.inputs[1], node.input(2))
        graph.remove(node)
        graph.remove(cast)
        before, made = product.prev, product.outputs[0]
        graph.remove(product)
        graph.insert_after(Node(op, [data, weight], [made], node.name, attributes=node.attributes), before)
        return ""

    def _real_name(self, quantized: str) -> str:
        """The float tensor's name without the exporter's suffix, if that is free."""
        for suffix in _SUFFIXES:
            if quantized.endswith(suffix) and len(quantized) > len(suffix):
                return self.graph.unique_name(quantized[: -len(suffix)])
        return self.graph.unique_name(f"{quantized}_float")


def _real_product(graph: Graph, cast: Optional[Node]) -> Optional[Node]:
    """The Mul behind a Cast to a float type."""
    if cast is None or not cast.is_op("Cast") or cast.get("to", 0) not in FLOAT_TYPES:
        return None
    product = graph.only_consumer(cast.outputs[0])
    return product if product is not None and product.is_op("Mul") else None


def _weight_axis(node: Node, op: str) -> Optional[int]:
    """The axis of the output channels of the second input."""
    if op == "Conv":
        return 0
    if op == "Gemm":
        return 0 if node.get("transB", 0) else 1
    return -1 if op == "MatMul" else None
