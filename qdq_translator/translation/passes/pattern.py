"""Patterns: what a rule looks for, as text.

    find = Pattern("d / Sqrt(ReduceMean(d * d | Pow(d, 2), ...) + eps)", numbers="eps")

`+ - * /` are Add, Sub, Mul and Div, a call is an operator, `|` separates alternatives, a number is a constant of this
value. A name binds a tensor, the same one everywhere (one of `numbers`: a constant number); `name == part` also
names the tensor that a part makes. Both orders of Add and Mul match. `...` means further inputs.
"""

from __future__ import annotations

import ast
from typing import Any, Iterator, NamedTuple, Optional

from qdq_translator.translation.ir.graph import Graph, Node

_OPS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div"}


class Match(NamedTuple):
    """tensors and numbers by name; nodes: those between the output and the tensors, the last one first."""

    tensors: dict[str, Any]
    nodes: tuple[Node, ...]

    def node(self, op: str) -> Node:
        return next(node for node in self.nodes if node.is_op(op))


class Pattern:
    def __init__(self, text: str, numbers: str = "", **parts: str) -> None:
        """Parse the pattern `text`. parts: name in it -> the text that it means."""
        self._parts = {name: ast.parse(part, mode="eval").body for name, part in parts.items()}
        self._tree, self._numbers = ast.parse(text, mode="eval").body, numbers.split()

    def match(self, graph: Graph, tensor: str) -> Optional[Match]:
        return next(self._match(graph, tensor, self._tree, Match({}, ())), None)

    def _match(self, graph: Graph, tensor: str, wanted: ast.expr, so_far: Match) -> Iterator[Match]:
        if isinstance(wanted, ast.BinOp) and isinstance(wanted.op, ast.BitOr):
            yield from self._match(graph, tensor, wanted.left, so_far)
            yield from self._match(graph, tensor, wanted.right, so_far)
        elif isinstance(wanted, ast.Compare):
            for found in self._match(graph, tensor, wanted.comparators[0], so_far):
                yield from self._match(graph, tensor, wanted.left, found)
        elif isinstance(wanted, ast.Name) and wanted.id in self._parts:
            yield from self._match(graph, tensor, self._parts[wanted.id], so_far)
        elif isinstance(wanted, ast.Name):
            value: Any = graph.scalar(tensor) if wanted.id in self._numbers else tensor
            if value is not None and so_far.tensors.get(wanted.id, value) == value:
                yield so_far._replace(tensors={**so_far.tensors, wanted.id: value})
        elif isinstance(wanted, (ast.Constant, ast.UnaryOp)):
            if graph.scalar(tensor) == ast.literal_eval(wanted):
                yield so_far
        else:
            yield from self._match_node(graph, graph.producer.get(tensor), wanted, so_far)

    def _match_node(self, graph: Graph, node: Optional[Node], wanted: ast.expr, so_far: Match) -> Iterator[Match]:
        if isinstance(wanted, ast.BinOp):
            op, inputs = _OPS[type(wanted.op)], [wanted.left, wanted.right]
        else:
            assert isinstance(wanted, ast.Call) and isinstance(wanted.func, ast.Name)
            op, inputs = wanted.func.id, wanted.args
        more = isinstance(inputs[-1], ast.Constant) and inputs[-1].value is ...
        inputs, given = inputs[: len(inputs) - more], [] if node is None else node.inputs
        if node is None or not node.is_op(op) or len(given[: len(inputs)] if more else given) != len(inputs):
            return
        so_far = so_far._replace(nodes=(*so_far.nodes, node))
        for order in (inputs, inputs[::-1])[: 1 + (op in ("Add", "Mul"))]:
            yield from self._match_all(graph, list(zip(node.inputs, order)), so_far)

    def _match_all(self, graph: Graph, pairs: list[tuple[str, ast.expr]], so_far: Match) -> Iterator[Match]:
        if not pairs:
            yield so_far
            return
        for found in self._match(graph, *pairs[0], so_far):
            yield from self._match_all(graph, pairs[1:], found)
