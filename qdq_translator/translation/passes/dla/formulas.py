"""Formulas: the layers that replace a node, as text which is code, documentation and source of the proof.

    def HardSwish(x, r):
        shifted: r = r / 6 * x + r / 2
        gate: r = clip(shifted, 0, r)
        product: r * Y = x * gate
        y = product / r

A line is one layer and its output: `a * tensor + b` of numbers is a Scale, which is left out if it changes nothing. The
annotation is the largest value of the output, from which its INT8 scale follows: numbers, X and Y (the ranges of x and
of the result), `half` (a scale of which 0.5 is a multiple) or `none` (the tensor gets no scale).
"""

from __future__ import annotations

import ast
import dataclasses
from types import CodeType
from typing import Any, Optional

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import NO_SQUARES, Rewriter, Row
from qdq_translator.translation.scales.table import Origin


@dataclasses.dataclass(frozen=True)
class Range:
    """`max(factor * range of source + plus, least)`."""

    source: str
    factor: float = 1.0
    plus: float = 0.0
    least: float = 0.0

    def __mul__(self, f: float) -> Range:
        return Range(self.source, self.factor * f, self.plus * f, self.least * f)

    def __add__(self, more: float) -> Range:
        return dataclasses.replace(self, plus=self.plus + more)

    __rmul__ = __mul__


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A tensor times `factor` plus `shift`, or (op) a layer of several inputs that is not made yet."""

    names: tuple[str, ...]
    factor: Any = 1.0
    shift: Any = 0.0
    op: str = ""
    attributes: tuple[tuple[str, float], ...] = ()

    def _with(self, other: Any, op: str, factor: Any, shift: Any) -> _Tensor:
        if isinstance(other, _Tensor):
            return _Tensor((*self.names, *other.names), op=op)
        return dataclasses.replace(self, factor=self.factor * factor, shift=self.shift * factor + shift)

    def __mul__(self, o: Any) -> _Tensor:
        return self._with(o, "Mul", o, 0.0)

    def __add__(self, o: Any) -> _Tensor:
        return self._with(o, "Add", 1.0, o)

    def __sub__(self, o: Any) -> _Tensor:
        return self._with(o, "Sub", 1.0, 0.0 if isinstance(o, _Tensor) else -o)

    def __truediv__(self, o: Any) -> _Tensor:
        return self._with(o, "Div", 1.0 if isinstance(o, _Tensor) else 1 / o, 0.0)

    def __rsub__(self, o: Any) -> _Tensor:
        return -1.0 * self + o

    def __neg__(self) -> _Tensor:
        return -1.0 * self

    __rmul__, __radd__ = __mul__, __add__


def _call(op: str) -> Any:
    return lambda *given: _Tensor(tuple(one.names[0] for one in given), op=op)


def _clip(x: _Tensor, low: float, high: float) -> _Tensor:
    return _Tensor(
        x.names, op="Relu" if high == float("inf") else "Clip", attributes=(("min", float(low)), ("max", float(high)))
    )


_WORDS = {"clip": _clip, "half": "half", "none": "none", "__builtins__": {}}
_WORDS.update((op.lower(), _call(op)) for op in ("Abs", "Max", "Relu", "Sigmoid", "Tanh"))


class Formula:
    def __init__(self, tree: ast.FunctionDef) -> None:
        def code(part: ast.expr) -> CodeType:
            return compile(ast.Expression(part), tree.name, "eval")

        self.parameters = [argument.arg for argument in tree.args.args]
        self.lines: list[tuple[str, CodeType, Optional[CodeType]]] = []
        for line in tree.body:
            if isinstance(line, ast.AnnAssign):
                self.lines.append((line.target.id, code(line.value), code(line.annotation)))  # type: ignore
            else:
                self.lines.append((line.targets[0].id, code(line.value), None))  # type: ignore

    def write(self, rule: str, rewriter: Rewriter, node: Node, *numbers: Any, gone: tuple[Node, ...] = ()) -> Row:
        """Replaces the node and returns its layers. numbers: the parameters that are no inputs. gone: nodes that go
        with it."""
        tensors = [_Tensor((name,)) for name in node.inputs[: len(self.parameters) - len(numbers)]]
        known: dict[str, Any] = {**_WORDS, **dict(zip(self.parameters, (*tensors, *numbers)))}
        row = Row(rewriter, node)
        ranges: dict[int, Optional[CodeType]] = {}
        for name, value, largest in self.lines:
            made, at = eval(value, known), len(row.nodes)
            known[name] = _Tensor((_add(row, name, made),))
            ranges.update((id(layer), largest) for layer in row.nodes[at:])
        row.put(rule, *gone)
        known.update(X=Range(node.inputs[0]), Y=Range(node.outputs[0]), Z=Range(node.inputs[-1]))
        for layer in row.nodes[:-1]:
            largest = ranges[id(layer)]
            _give(row, layer, None if largest is None else eval(largest, known))
        return row


def _add(row: Row, what: str, made: _Tensor) -> str:
    row.at(made.names[0])
    if made.op == "Clip":
        return _clipped(row, what, dict(made.attributes))
    if made.op:
        return row.add(made.op, what, *made.names[1:])
    if made.factor == 1 and not made.shift:
        return row.current
    return row.scale(what, row.rewriter.width(row.node.outputs[0]), made.factor, made.shift)


def _clipped(row: Row, what: str, bounds: dict[str, float]) -> str:
    rewriter = row.rewriter
    if rewriter.graph.opset() < 11:
        return row.add("Clip", what, **bounds)
    dtype = rewriter.dtype(row.node.inputs[0])
    return row.add("Clip", what, *rewriter.constants(f"{row.node.name}_{what}", dtype, **bounds))


def _give(row: Row, layer: Node, largest: Any) -> None:
    source = row.node.outputs[0]
    if largest == "none":
        row.rewriter.network.withhold(layer.outputs[0], why=NO_SQUARES)
    elif largest == "half":
        note, rewriter = "0.5 is 63 steps", row.rewriter
        if rewriter.settings.calibration is not None and source not in rewriter.graph.outputs:
            rewriter.scales.infer(layer.outputs[0], 1 / 126, Origin(row.rule, layer.name, "", note))
        row.derive([layer], source, 0.0, 1 / 126, note=note)
    elif isinstance(largest, Range):
        row.derive([layer], largest.source, largest.factor, largest.plus / 127, largest.least / 127, note="its range")
    elif largest is not None:
        row.derive([layer], source, 0.0, largest / 127, note="its bound")


def read(text: str) -> dict[str, Formula]:
    return {tree.name: Formula(tree) for tree in ast.parse(text).body if isinstance(tree, ast.FunctionDef)}
