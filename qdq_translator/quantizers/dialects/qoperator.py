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

from qdq_translator.ir.constants import Constants, is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.types import FLOAT_TYPES
from qdq_translator.quantizers.dialects.pairs import Outcome, channels, linear
from qdq_translator.quantizers.parameters import Rejected

_Triple = Tuple[int, int, int]


@dataclass(frozen=True)
class _Form:
    """op: the float operator. data: positions of (tensor, scale, zero point) of each quantized input. result: positions
    of scale and zero point of the output; -1: it is real. bias: position of the bias (int32; real if the output always
    is). plain: positions of inputs that are passed on first. drop: attributes that the float operator lacks."""

    op: str
    data: tuple[_Triple, ...]
    result: tuple[int, int] = (-1, -1)
    bias: int = -1
    plain: tuple[int, ...] = ()
    drop: tuple[str, ...] = ()


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
"""What ONNX Runtime adds to the names of float tensors."""


class Converter:
    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph, self.constants = graph, constants
        self.real: dict[tuple[str, str, str, Optional[int]], str] = {}
        """Tensor, scale, zero point and axis of what is dequantized already -> the float tensor."""

    def convert(self, node: Node) -> Outcome:
        form = _FORMS.get((node.domain, node.op_type))
        if form is None and not node.is_op(*_INTEGER):
            return False
        what = self._integer(node, _INTEGER[node.op_type]) if form is None else self._refusal(node)
        if what:
            return Rejected(
                f"{node.op_type} {node.label} {what}.", "Export in QDQ format (int8), statically quantized."
            )
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
        data = form.data if form.op != "Concat" else tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))
        inputs = [node.input(place) for place in form.plain]
        for places in data:
            axis = _weight_axis(node, form.op) if places is data[-1] else None
            tensor, step, point = map(node.input, places)
            inputs.append(self._dequantized(node, tensor, step, point, axis))
        bias = node.input(form.bias) if form.bias >= 0 else ""
        is_sum = bool(bias) and form.op == "MatMul"
        if bias and not is_sum:
            inputs.append(self._bias(node, bias, node.input(data[0][1]), node.input(data[1][1])))
        attributes = {key: value for key, value in node.attributes.items() if key not in form.drop}
        if form.op == "ReduceMean" and "axes" in attributes and self.graph.opset() >= 18:
            axes = np.array(node.get("axes"), np.int64)
            inputs.append(self.graph.constant(f"{node.outputs[0]}_axes", axes))
            del attributes["axes"]
        made = node.outputs[0]
        scale, zero = node.input(form.result[0]) if form.result[0] >= 0 else "", node.input(form.result[1])
        real = self._real_name(made) if scale or is_sum else made
        if scale and not zero:  # of the type of what is read
            kind = self.constants.type_name(node.input(data[0][2])) or "uint8"
            zero = self.graph.constant(f"{made}_zero_point", np.zeros((), kind))
        before = node.prev
        self.graph.remove(node)
        last = self.graph.insert_after(Node(form.op, inputs, [real], node.name, attributes=attributes), before)
        if is_sum:
            self.graph.insert_after(Node("Add", [real, bias], [made], self.graph.node_name(f"{made}_Add")), last)
        elif scale:
            self.graph.insert_after(linear(self.graph, "QuantizeLinear", [real, scale, zero], made, made), last)

    def _dequantized(self, node: Node, tensor: str, scale: str, zero: str, axis: Optional[int]) -> str:
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
        """Convert ConvInteger or MatMulInteger; '' if converted."""
        maker = self.graph.producer.get(node.inputs[0])
        step = self.constants.value(maker.inputs[1]) if maker is not None and is_quantize(maker) else None
        cast = self.graph.only_consumer(node.outputs[0])
        product = None
        if cast is not None and cast.is_op("Cast") and cast.get("to", 0) in FLOAT_TYPES:
            product = self.graph.only_consumer(cast.outputs[0])
        if step is None or step.size != 1 or maker is None or product is None or not product.is_op("Mul"):
            return "computes on quantized values without constant scales before and behind it (dynamic quantization)"
        assert cast is not None
        others = [name for name in product.inputs if name != cast.outputs[0]]
        factor = self.constants.value(others[0]) if len(others) == 1 else None
        shape = channels(factor) if factor is not None else None
        if shape is None:
            return "is multiplied by scales that are not constant (dynamic quantization)"
        steps = (shape[0].astype(np.float64) / float(step.reshape(()))).astype(np.float32)
        scale = self.graph.constant(f"{node.inputs[1]}_scale", steps)
        axis = _weight_axis(node, op)
        weight = self._dequantized(node, node.inputs[1], scale, node.input(3), None)
        if steps.size > 1:
            self.graph.producer[weight].set("axis", axis)
        data = self._dequantized(node, node.inputs[0], maker.inputs[1], node.input(2), None)
        self.graph.remove(node)
        self.graph.remove(cast)
        before, made = product.prev, product.outputs[0]
        self.graph.remove(product)
        self.graph.insert_after(Node(op, [data, weight], [made], node.name, attributes=node.attributes), before)
        return ""

    def _real_name(self, quantized: str) -> str:
        """The float tensor's name without the exporter's suffix, if that is free."""
        for suffix in _SUFFIXES:
            if quantized.endswith(suffix) and len(quantized) > len(suffix):
                return self.graph.unique_name(quantized[: -len(suffix)])
        return self.graph.unique_name(f"{quantized}_float")


def _weight_axis(node: Node, op: str) -> Optional[int]:
    """The axis of the output channels of the second input."""
    if op == "Conv":
        return 0
    if op == "Gemm":
        return 0 if node.get("transB", 0) else 1
    return -1 if op == "MatMul" else None
