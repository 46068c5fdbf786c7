"""Constant tensors and their values: constant expressions, evaluated once and only on request."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Callable, Hashable, List, Optional

import numpy as np
import onnx
from onnx import TensorProto, defs, numpy_helper, shape_inference

from qdq_translator.core.budget import Budget
from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node, finish_order
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import DENSE, VIEWS
from qdq_translator.translation.ir.shape_arithmetic import MOVES

LAYOUT_OPS = (*VIEWS, "Transpose", "Identity", *where(data="convert"))
"""Operators that move or retype a constant's elements without changing their meaning (rule Q5)."""
FOLDABLE = frozenset(where(traits="folds"))
"""Operators that make constants out of constants: those that NumPy computes without a loop over elements."""
_CALL, _REFERENCE_CALL = 2**8, 2**17
"""Fixed cost of a node in NumPy and in ONNX's reference implementation (bytes, see budget.py)."""
_SHAPE = 128
"""Elements of the largest value that ONNX's shape inference is given: shapes, axes and pads."""
_KEPT = 4096
"""Elements of the largest value that is kept for later calls."""
_TEXTS = "OSU"
"""NumPy's kinds of text arrays, which never become constants."""
QUANTIZER_DOMAINS = ("", "com.microsoft")


def is_quantize(node: Node) -> bool:
    return node.op_type == "QuantizeLinear" and node.domain in QUANTIZER_DOMAINS


def is_dequantize(node: Node) -> bool:
    return node.op_type == "DequantizeLinear" and node.domain in QUANTIZER_DOMAINS


def is_quantizer(node: Node) -> bool:
    return node.op_type in operators.QUANTIZERS and node.domain in QUANTIZER_DOMAINS


Special = Callable[[Node, np.ndarray, List[Optional[np.ndarray]]], Optional[np.ndarray]]
"""Node, its first input, the others -> its output."""


class Constants:
    """The constant part of a graph. `is_constant` is settled once; values are computed on demand and kept while small.

    Their total cost is limited (budget.py). missing_zero_point: the type that a quantizer without zero point means.
    """

    def __init__(self, graph: Graph, missing_zero_point: str = "uint8") -> None:
        self.graph, self.missing_zero_point = graph, missing_zero_point
        self._constant = set(graph.initializers)
        self.varying: list[Node] = []
        """The nodes that compute from the network's inputs, in the order of the graph as it was."""
        self.quantizers: list[Node] = []
        """Every Q and DQ, in that order."""
        self.dequantized: set[str] = set()
        """Constant tensors whose expression runs through a DequantizeLinear."""
        self._small: dict[str, np.ndarray] = {}
        self.parameters: dict[Hashable, Any] = {}
        """Results of `quantizers.parameters`, shared by the Q and the DQ of a pair."""
        stored: list[Any] = [*graph.initializers.values()]
        for node in graph.nodes:
            inputs = node.inputs
            if is_quantizer(node):
                self.quantizers.append(node)
            varies = (
                inputs and inputs[0] and inputs[0] not in self._constant
            )  # most: no need to look at the other inputs
            if varies or not self._makes_constants(node):
                self.varying.append(node)
            else:
                self._constant.update(node.outputs)
                if "value" in node.attributes:
                    stored.append(node.attributes["value"])
                if is_dequantize(node) or not self.dequantized.isdisjoint(node.reads()):
                    self.dequantized.update(node.outputs)
        self.budget = Budget(stored)

    def _makes_constants(self, node: Node) -> bool:
        reads = node.reads()
        if node.captured or not node.outputs or not (reads or node.is_op("Constant")):
            return False
        if not ((node.op_type in FOLDABLE and node.is_standard) or is_quantize(node) or is_dequantize(node)):
            return False
        return self._constant.issuperset(reads)

    def is_constant(self, name: str) -> bool:
        return name in self._constant

    def value(self, name: str, special: Optional[Special] = None) -> Optional[np.ndarray]:
        """The tensor's values; None if it is not constant or cannot be evaluated.

        `special` may handle nodes on the way: it gets a node and its input values, and returns the node's output or
        None for "evaluate it as usual". Quantizers are evaluated only this way. Each tensor on the way is evaluated
        once and freed after its last reader. Raises ModelError if that would cost too much.
        """
        if name not in self._constant:
            return None
        stored = self._stored(name)
        if stored is not None:
            return stored
        values: dict[str, np.ndarray] = {}
        order = finish_order([name], self._reads)
        readers = Counter([name, *(read for tensor in order for read in self._reads(tensor))])
        for tensor in order:
            reads, array = self._reads(tensor), self._stored(tensor)
            if array is None:
                array = self._evaluate(tensor, values, special)
                if array is None:
                    return None
                if special is None and array.size <= _KEPT:
                    self._small[tensor] = array
            values[tensor] = array
            for read in reads:
                readers[read] -= 1
                if not readers[read]:
                    del values[read]
        return values[name]

    def _stored(self, name: str) -> Optional[np.ndarray]:
        """The values if stored or already evaluated."""
        if name in self._small:
            return self._small[name]
        stored = self.graph.array(name)
        if stored is not None and stored.size <= _KEPT:
            self._small[name] = stored
        return stored

    def _reads(self, name: str) -> list[str]:
        """The tensors needed to evaluate this one, each once."""
        node = self.graph.producer.get(name)
        if node is None or name in self._small or node.is_op("Constant"):
            return []
        return list(dict.fromkeys(filter(None, node.inputs)))

    def _evaluate(self, name: str, values: dict[str, np.ndarray], special: Optional[Special]) -> Optional[np.ndarray]:
        node = self.graph.producer[name]
        inputs: list[Optional[np.ndarray]] = [values[i] if i else None for i in node.inputs]
        who = f"{node.op_type} {node.label}"
        self.budget.spend(_CALL + sum(v.nbytes for v in inputs if v is not None), who)
        data = inputs[0] if inputs else None
        result = None if special is None or data is None else special(node, data, inputs[1:])
        if result is not None:
            self.budget.spend(result.nbytes, who)
        elif not (is_quantize(node) or is_dequantize(node)):
            result = evaluate(node, inputs, node.outputs.index(name), self.graph.opset(), self.budget)
        return result

    def type_name(self, name: str) -> Optional[str]:
        """The element type of a constant, as NumPy calls it ('int8', 'uint4', 'float8_e4m3fn'); None if not constant.

        Read from the file: older versions of ONNX unpack int4 and float8 into arrays of other types.
        """
        while name in self._constant:
            tensor, node = self.graph.initializers.get(name), self.graph.producer.get(name)
            if tensor is not None:
                return element_name(tensor.data_type)
            if node is not None and node.is_op("Constant") and "value" in node.attributes:
                return element_name(node.attributes["value"].t.data_type)
            if node is not None and node.is_op("Cast"):
                return element_name(operators.cast_type(node))
            if node is None or not node.is_op(*LAYOUT_OPS) or node.is_op("CastLike"):
                value = self.value(name)
                return None if value is None else value.dtype.name
            name = node.inputs[0]
        return None


def element_name(data_type: int) -> str:
    """NumPy's name of an ONNX element type; 'type N' if unknown."""
    return _ELEMENT_NAMES.get(data_type, f"type {data_type}")


_ELEMENT_NAMES: dict[int, str] = {
    **{number: name.lower().replace("float8e", "float8_e") for name, number in TensorProto.DataType.items()},
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
}


def evaluate(
    node: Node, inputs: list[Optional[np.ndarray]], output: int, opset: int, budget: Budget
) -> Optional[np.ndarray]:
    """Evaluate a node on constant inputs. The usual operators in NumPy, others with ONNX's reference implementation.

    Returns None if that has none. Raises ModelError if the result would be too large.
    """
    who = f"{node.op_type} {node.label}"
    try:
        shape, itemsize = _made(node, inputs, output, opset)
        budget.allow(shape, itemsize, max((v.nbytes for v in inputs if v is not None), default=0), who)
        first, weight = (*inputs, None, None)[:2]
        if node.is_op(*DENSE) and first is not None and first.ndim:
            budget.spend(math.prod(shape) * operators.summed_size(node, first.shape), who)
        if node.is_op("Conv") and weight is not None and weight.size:
            budget.spend(math.prod(shape) * weight[0].size, who)
        result = _in_numpy(node, inputs)
        if result is None:
            budget.spend(_REFERENCE_CALL, who)
            result = _reference(node, inputs, output, opset)
        return None if result.dtype.kind in _TEXTS else result
    except ModelError:
        raise
    except Exception:  # shapes, permutations and types that do not fit raise different errors in each implementation
        return None


def _made(node: Node, inputs: list[Optional[np.ndarray]], output: int, opset: int) -> tuple[list[int], int]:
    """Shape and bytes per element of the node's output. Raises an exception if ONNX cannot infer them."""
    proto, types, data = node.to_proto(), {}, {}
    for index, array in enumerate(inputs):
        if array is not None:
            name = proto.input[index] = f"in{index}"
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            types[name] = onnx.helper.make_tensor_type_proto(kind, array.shape)
            if array.size <= _SHAPE:
                data[name] = numpy_helper.from_array(array, name)
    schema = defs.get_schema(node.op_type, opset, "")
    found = shape_inference.infer_node_outputs(schema, proto, types, data)[node.outputs[output]].tensor_type
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in found.shape.dim):
        raise ValueError
    itemsize = onnx.helper.tensor_dtype_to_np_dtype(found.elem_type).itemsize
    return [dim.dim_value for dim in found.shape.dim], itemsize


def _in_numpy(node: Node, inputs: list[Optional[np.ndarray]]) -> Optional[np.ndarray]:
    """None for operators that have no rule here."""
    rule, given = _IN_NUMPY.get(node.op_type), [value for value in inputs if value is not None]
    result = rule(node, given) if rule is not None and node.is_standard and given else None
    return None if result is None else np.asarray(result)  # NumPy gives a scalar for an array without axes


def _scattered(node: Node, given: list[np.ndarray]) -> np.ndarray:
    if operators.reduction(node) != "none":
        raise ValueError("the reference implementation adds up element by element")
    data, indices, updates = given
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _of_floats(operation: np.ufunc) -> Callable[[Node, list[np.ndarray]], Optional[np.ndarray]]:
    """NumPy divides integers into floats, ONNX does not."""
    return lambda node, given: operation(*given) if given[0].dtype.kind == "f" else None


_IN_NUMPY: dict[str, Callable[[Node, list[np.ndarray]], Optional[np.ndarray]]] = {
    **MOVES,
    "Cast": lambda node, given: given[0].astype(onnx.helper.tensor_dtype_to_np_dtype(operators.cast_type(node))),
    "CastLike": lambda node, given: given[0].astype(given[1].dtype),
    "ScatterND": _scattered,
    "Mul": _of_floats(np.multiply),
    "Div": _of_floats(np.divide),
}


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
