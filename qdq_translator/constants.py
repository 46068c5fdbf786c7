"""Which tensors are constant, and what they are: constant expressions, evaluated once and only when asked for."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np
import onnx
from onnx import TensorProto

from qdq_translator.graph import Graph, Node

LAYOUT_OPS = ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast", "CastLike")
"""Operators that move or retype a constant's elements without changing what they stand for (rule Q5)."""
_NOT_FOLDED = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
    "If",
    "Loop",
    "Scan",
)
QUANTIZER_DOMAINS = ("", "com.microsoft")


def is_quantize(node: Node) -> bool:
    return node.op_type == "QuantizeLinear" and node.domain in QUANTIZER_DOMAINS


def is_dequantize(node: Node) -> bool:
    return node.op_type == "DequantizeLinear" and node.domain in QUANTIZER_DOMAINS


Special = Callable[[Node, list[Optional[np.ndarray]]], Optional[np.ndarray]]


class Constants:
    """The constant part of a graph. `is_constant` is settled once; values are computed on demand and kept while small."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constant = set(graph.initializers)
        self.dequantized: set[str] = set()
        """Constant tensors whose expression runs through a DequantizeLinear."""
        self._small: dict[str, np.ndarray] = {}
        for node in graph.nodes:
            reads = node.reads()
            if node.op_type in _NOT_FOLDED or node.captured or not (reads or node.is_op("Constant")):
                continue
            if not (node.is_standard or is_quantize(node) or is_dequantize(node)):
                continue
            if any(name not in self._constant for name in reads):
                continue
            self._constant.update(node.outputs)
            if is_dequantize(node) or any(name in self.dequantized for name in reads):
                self.dequantized.update(node.outputs)

    def is_constant(self, name: str) -> bool:
        return name in self._constant

    def value(self, name: str, special: Optional[Special] = None) -> Optional[np.ndarray]:
        """The tensor's values; None where it is not constant or cannot be evaluated.

        `special` may take over nodes on the way: it gets a node and its input values, and returns the node's output
        or None for "evaluate it as usual". Quantizers are evaluated only this way.
        """
        if name not in self._constant:
            return None
        if name in self._small:
            return self._small[name]
        stored = self._graph.array(name)
        if stored is not None:
            return stored
        node = self._graph.producer[name]
        inputs = [self.value(i, special) if i else None for i in node.inputs]
        if any(i and v is None for i, v in zip(node.inputs, inputs)):
            return None
        result = special(node, inputs) if special is not None else None
        if result is None and not (is_quantize(node) or is_dequantize(node)):
            result = evaluate(node, inputs, node.outputs.index(name), self._graph.opset())
        if special is None and result is not None and result.size <= 4096:
            self._small[name] = result
        return result

    def type_name(self, name: str) -> Optional[str]:
        """The element type of a constant, as NumPy calls it ('int8', 'uint4', 'float8_e4m3fn'); None for what is none.

        Read off the file: older versions of ONNX unpack int4 and float8 into arrays of other types.
        """
        if name not in self._constant:
            return None
        tensor, node = self._graph.initializers.get(name), self._graph.producer.get(name)
        if tensor is not None:
            return element_name(tensor.data_type)
        if node is not None and node.is_op("Constant") and "value" in node.attributes:
            return element_name(node.attributes["value"].t.data_type)
        if node is not None and node.is_op("Cast"):
            return element_name(node.get("to"))
        if node is not None and node.is_op(*LAYOUT_OPS) and not node.is_op("CastLike"):
            return self.type_name(node.inputs[0])
        value = self.value(name)
        return None if value is None else value.dtype.name


def element_name(data_type: int) -> str:
    """NumPy's name of an ONNX element type."""
    name = TensorProto.DataType.Name(data_type).lower()
    return {"float": "float32", "double": "float64"}.get(name, name.replace("float8e", "float8_e"))


def evaluate(node: Node, inputs: list[Optional[np.ndarray]], output: int, opset: int) -> Optional[np.ndarray]:
    """One node on constant inputs. The usual operators in NumPy, others with ONNX's reference implementation.

    Returns None where that has none either.
    """
    try:
        result = _in_numpy(node, inputs)
        return result if result is not None else _reference(node, inputs, output, opset)
    except Exception:  # shapes, permutations and types that do not fit: either implementation raises what it likes
        return None


def _in_numpy(node: Node, inputs: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
    op, data = node.op_type, inputs[0] if inputs else None
    if data is not None and node.is_standard:
        if op == "Identity":
            return data
        if op == "Transpose":
            return np.transpose(data, node.get("perm"))
        if op == "Cast":
            return data.astype(onnx.helper.tensor_dtype_to_np_dtype(node.get("to")))
        if op == "CastLike" and inputs[1] is not None:
            return data.astype(inputs[1].dtype)
        if op == "Reshape" and len(inputs) > 1 and inputs[1] is not None:
            shape = [int(d) for d in inputs[1]]
            if not node.get("allowzero", 0):
                shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
            return data.reshape(shape)
        if op in ("Mul", "Div") and len(inputs) > 1 and inputs[1] is not None and data.dtype.kind == "f":
            return data * inputs[1] if op == "Mul" else data / inputs[1]
    return None


def _reference(node: Node, inputs: list[Optional[np.ndarray]], output: int, opset: int) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    names = [f"in{i}" if v is not None else "" for i, v in enumerate(inputs)]
    proto = node.to_proto()
    del proto.input[:]
    proto.input.extend(names)
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs)
        if v is not None
    ]
    wanted = onnx.ValueInfoProto(name=proto.output[output])
    graph = onnx.helper.make_graph([proto], "constant", infos, [wanted])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    result: Any = ReferenceEvaluator(model).run(None, {n: v for n, v in zip(names, inputs) if v is not None})
    return np.asarray(result[0])
