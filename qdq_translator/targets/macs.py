"""Multiply-accumulates and weights of a layer, from shapes."""

from __future__ import annotations

import math
from typing import Optional

from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import WEIGHTED, summed_size
from qdq_translator.ir.types import TensorTypes


def layer_macs(node: Node, types: TensorTypes) -> Optional[int]:
    """MACs of Conv, ConvTranspose, Gemm and MatMul; 0 for other operators; None where a needed size is unknown.

    A first dimension that is dynamic counts as 1, so that shares are known for any batch size.
    """
    if node.op_type not in WEIGHTED or node.domain:
        return 0
    a, b = _sizes(node.inputs[0], types), _sizes(node.input(1), types)
    out = _sizes(node.outputs[0], types)
    if a is None or b is None or out is None:
        return None
    if node.op_type == "Conv":
        return math.prod(out) * math.prod(b[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(a) * math.prod(b[1:])
    return math.prod(out) * summed_size(node, a)


def _sizes(name: str, types: TensorTypes) -> Optional[tuple[int, ...]]:
    known = types.static_shape(name)
    if known is not None:
        return known
    shape = types.shape(name)
    if shape is None:
        return None
    sizes = [1 if i == 0 and len(shape) > 1 and not isinstance(d, int) else d for i, d in enumerate(shape)]
    return tuple(int(d) for d in sizes) if all(isinstance(d, int) for d in sizes) else None  # type: ignore[arg-type]


def layer_weights(node: Node, graph: Graph) -> int:
    """Number of weights (bias left out) that the layer holds."""
    if node.op_type not in WEIGHTED or node.domain:
        return 0
    constants = [graph.initializers.get(name) for name in node.inputs[:2]]
    return sum([math.prod(tensor.dims) for tensor in constants if tensor is not None])
