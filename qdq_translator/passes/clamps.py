"""Clamps of quantizers that the network needs: added as nodes unless they would clip nothing."""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.quantizers.steps import Bounds


def make_clamp(graph: Graph, source: str, output: str, clamp: Bounds, name: str, real: np.dtype) -> Node:
    """Relu for [0, inf), else Clip with initializers of type `real` as bounds."""
    if clamp == (0.0, None):
        return Node("Relu", [source], [output], name)
    bounds = [
        "" if bound is None else graph.add_initializer(graph.unique_name(f"{output}_{which}"), np.asarray(bound, real))
        for which, bound in zip(("min", "max"), clamp)
    ]
    if not bounds[1]:
        bounds.pop()
    return Node("Clip", [source, *bounds], [output], name)


_NON_NEGATIVE = (
    *("Relu", "Sigmoid", "Softmax", "Abs", "Exp", "Sqrt", "HardSigmoid", "Softplus"),
    *("ReduceSumSquare", "ReduceL2"),
)
_KEEPS_SIGN = (
    *(*operators.REARRANGES, *operators.PARTS, *operators.POOLING, *operators.SPATIAL_MEANS),
    *("GlobalMaxPool", "ReduceMax", "ReduceSum", "Dropout", "Expand", "Tile", "Cast"),
)

_KEEPS_SIGN_OF_ALL = ("Add", "Mul", "Concat", "Max", "Sum")


def is_non_negative(graph: Graph, name: str) -> bool:
    """True if no input of the network can make the tensor negative. Searches back through a bounded number of nodes."""
    stack, seen = [name], set()
    while stack:
        tensor = stack.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if len(seen) > 64:
            return False
        node = graph.producer.get(tensor)
        if node is None or not node.is_standard or node.is_op("Constant"):
            values = graph.array(tensor)
            if values is None or values.dtype.kind not in "fiu" or (values.size and values.min() < 0):
                return False
            continue
        if node.op_type in _NON_NEGATIVE:
            continue
        if node.op_type == "Clip":
            low, high = operators.clip_bounds(node, graph.array)
            if high is None or high < 0:
                return False
            if low is None or low < 0:
                stack.append(node.inputs[0])
        elif node.op_type == "Pad":
            value = operators.pad_value(node, graph.array)
            if operators.mode(node) == "constant" and (value is None or value < 0):
                return False
            stack.append(node.inputs[0])
        elif (
            node.op_type == "Resize" and operators.mode(node) in ("nearest", "linear")
        ) or node.op_type in _KEEPS_SIGN:
            stack.append(node.inputs[0])
        elif node.op_type in _KEEPS_SIGN_OF_ALL:
            stack.extend(node.inputs)
        else:
            return False
    return True
