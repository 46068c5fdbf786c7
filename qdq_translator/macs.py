"""Multiply-accumulates and weights of a layer, from shapes."""

from __future__ import annotations

import math
from typing import Optional

from qdq_translator.graph import Graph, Node
from qdq_translator.types import TensorTypes

COUNTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def layer_macs(node: Node, types: TensorTypes) -> Optional[int]:
    """MACs of Conv, ConvTranspose, Gemm and MatMul; 0 for other operators; None where a needed shape is unknown."""
    if not node.is_op(*COUNTED):
        return 0
    a, b = types.static_shape(node.inputs[0]), types.static_shape(node.input(1))
    out = types.static_shape(node.outputs[0])
    if a is None or b is None or out is None:
        return None
    if node.op_type == "Conv":
        return math.prod(out) * math.prod(b[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(a) * math.prod(b[1:])
    if node.op_type == "Gemm":
        return math.prod(out) * (a[0] if node.get("transA", 0) else a[-1])
    return math.prod(out) * a[-1]


def layer_weights(node: Node, graph: Graph) -> int:
    """Number of weights (bias left out) that the layer holds."""
    if not node.is_op(*COUNTED):
        return 0
    return sum(math.prod(graph.initializers[n].dims) for n in node.inputs[:2] if n in graph.initializers)
