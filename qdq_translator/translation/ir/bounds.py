"""Values that a tensor can have for every input of the network, as far as its operators tell."""

from __future__ import annotations

import math
from typing import Callable, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where

Range = Tuple[float, float]
"""Smallest and largest value; infinite if unknown."""
_ALL, _POSITIVE = (-math.inf, math.inf), (0.0, math.inf)
_PLUS, _ONE = where(sign="plus"), where(scale="one")
_FIXED: dict[str, Range] = {
    **dict.fromkeys(_PLUS, _POSITIVE),
    **{op: (0.0 if op in _PLUS else -1.0, 1.0) for op in _ONE},
    **dict.fromkeys(("Sin", "Cos", "Softsign"), (-1.0, 1.0)),
}
_OF_FIRST = where(data="view permute same drop part repeat pick mean convert")
_KEEPS_SIGN = where(sign="keeps")
_SEARCHED = 64
"""Tensors looked at for one answer."""


def value_range(graph: Graph, name: str) -> Range:
    """The values of a tensor are in this range for every input. Looks back through a limited number of nodes."""
    return _Search(graph).of(name)


def is_non_negative(graph: Graph, name: str) -> bool:
    """True if no input of the network can make the tensor negative."""
    return value_range(graph, name)[0] >= 0


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[str, Range] = {}

    def of(self, name: str) -> Range:
        if name not in self.known:
            if len(self.known) >= _SEARCHED:
                return _ALL
            self.known[name] = _ALL  # counts as looked at before its inputs are
            self.known[name] = self._found(name)
        return self.known[name]

    def _found(self, name: str) -> Range:
        node = self.graph.producer.get(name)
        if node is None or not node.is_standard or node.is_op("Constant"):
            return self._of_constant(name)
        if node.op_type not in _SPECIAL and node.op_type in _FIXED:
            return _FIXED[node.op_type]
        if node.op_type in _SPECIAL:
            return _SPECIAL[node.op_type](node, [self.of(read) for read in node.inputs if read], self.graph)
        if node.op_type in _OF_FIRST:
            return self.of(node.inputs[0])
        plus = node.op_type in _KEEPS_SIGN and self.of(node.inputs[0])[0] >= 0
        return _POSITIVE if plus else _ALL

    def _of_constant(self, name: str) -> Range:
        values = self.graph.array(name)
        if values is None or not values.size or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            return _ALL
        return float(values.min()), float(values.max())


Special = Callable[[Node, Sequence[Range], Graph], Range]


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _clip(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    low, high = operators.clip_bounds(node, graph.array)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return min(max(given[0][0], low), high), min(max(given[0][1], low), high)


def _pool(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    return _hull([given[0], (0.0, 0.0)]) if operators.counts_padding(node) else given[0]


def _pad(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    if operators.mode(node) != "constant":
        return given[0]
    value = operators.pad_value(node, graph.array)
    return _ALL if value is None else _hull([given[0], (value, value)])


def _resize(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    # a cubic one overshoots, and one that crops adds a value of its own
    return given[0] if operators.mode(node) in ("nearest", "linear") and not operators.crops(node) else _ALL


def _sum_of(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    return sum(low for low, _ in given), sum(high for _, high in given)


def _product(node: Node, given: Sequence[Range], graph: Graph) -> Range:
    low, high = given[0]
    for other in given[1:]:
        ends = [a * b if a and b else 0.0 for a in (low, high) for b in other]
        low, high = min(ends), max(ends)
    return low, high


_SPECIAL: dict[str, Special] = {
    "Relu": lambda node, given, graph: (max(given[0][0], 0.0), max(given[0][1], 0.0)),
    "Clip": _clip,
    "Abs": lambda node, given, graph: (max(given[0][0], -given[0][1], 0.0), max(-given[0][0], given[0][1])),
    "Neg": lambda node, given, graph: (-given[0][1], -given[0][0]),
    "AveragePool": _pool,
    "Pad": _pad,
    **dict.fromkeys(operators.RESIZES, _resize),
    **dict.fromkeys(("Add", "Sum"), _sum_of),
    "Sub": lambda node, given, graph: (given[0][0] - given[1][1], given[0][1] - given[1][0]),
    "Mul": _product,
    "Concat": lambda node, given, graph: _hull(given),
    "Where": lambda node, given, graph: _hull(given[1:]),
    "Max": lambda node, given, graph: (max(low for low, _ in given), max(high for _, high in given)),
    "Min": lambda node, given, graph: (min(low for low, _ in given), min(high for _, high in given)),
}
