"""Multiply-accumulates and weights of a layer, from shapes."""

from __future__ import annotations

import math
from typing import Iterable, Optional, TypeVar

from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import WEIGHTED, summed_size
from qdq_translator.ir.types import TensorTypes

RECURRENT = ("LSTM", "GRU", "RNN")


Number = TypeVar("Number", int, float)


def total(parts: Iterable[Optional[Number]]) -> Optional[Number]:
    """The sum; None if a part is unknown."""
    every = list(parts)
    known = [part for part in every if part is not None]
    return sum(known) if len(known) == len(every) else None


def share(part: Optional[float], whole: Optional[float]) -> Optional[float]:
    """part / whole; None if either is unknown or the whole is nothing."""
    return part / whole if part is not None and whole else None


def layer_macs(node: Node, types: TensorTypes) -> Optional[int]:
    """MACs of Conv, ConvTranspose, Gemm, MatMul, Einsum, LSTM, GRU and RNN; 0 for other operators; None if a needed size is
    unknown.

    A first dimension that is dynamic counts as 1, so that shares are known for any batch size.
    """
    if node.is_op(*RECURRENT):
        return _recurrent(node, types)
    if node.is_op("Einsum"):
        return _einsum(node, types)
    if not node.is_op(*WEIGHTED):
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


def _recurrent(node: Node, types: TensorTypes) -> Optional[int]:
    """Every step of every sample multiplies by all of W (directions, gates * hidden, inputs) and R."""
    shape, weights = types.shape(node.inputs[0]), [_sizes(name, types) for name in node.inputs[1:3]]
    if shape is None or len(shape) != 3 or None in weights:
        return None
    batch, steps = (shape[0], shape[1]) if node.get("layout", 0) else (shape[1], shape[0])
    if not isinstance(steps, int):
        return None
    return (batch if isinstance(batch, int) else 1) * steps * sum(math.prod(sizes or ()) for sizes in weights)


def _einsum(node: Node, types: TensorTypes) -> Optional[int]:
    """The product of the sizes of all letters, for each operand after the first."""
    terms = str(node.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    size: dict[str, int] = {}
    for name, term in zip(node.inputs, terms):
        shape = _sizes(name, types)
        if shape is None:
            return None
        more = len(shape) - len(term.replace("...", ""))
        term = term.replace("...", "9876543210"[10 - more :] if more > 0 else "")  # axes that have no letter
        size.update({letter: max(count, size.get(letter, 1)) for letter, count in zip(term, shape)})
    return math.prod(size.values()) * (len(terms) - 1)


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
    if not node.is_op(*WEIGHTED, *RECURRENT):
        return 0
    first = 1 if node.is_op(*RECURRENT) else 0
    constants = [graph.initializers.get(name) for name in node.inputs[first : first + 2]]
    return sum([math.prod(tensor.dims) for tensor in constants if tensor is not None])
