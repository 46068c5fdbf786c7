"""Rule D19: Pow and Reciprocal become products and quotients, Where and step functions products with masks.

1. `Pow(x, 2)` -> x * x; `Pow(x, 3)` -> (x * x) * x; `Pow(x, 4)` -> the square of x * x
2. `Pow(x, -1)`, `Reciprocal(x)` -> 1 / x, if the DLA has Div (TensorRT 8.6.12 on)
3. `Where(c, x, v)`, `Where(c, v, x)` with constants c and v -> x * m + w: m is 1 where x is selected, elsewhere m is 0
   and w is v
4. `Where(c, x, y)` with a constant c -> x * m + y * (1 - m)
5. `Sqrt(x)` -> Pow(x, 0.5) with `--assume pow` (limit O3)
6. `Where(x > y, a, b)`, with any comparison or its `Not` -> a * m + b * (1 - m) with m = Cast(x > y), if the DLA has
   comparisons (TensorRT 8.6.12 on); a part that is 0 is omitted, and a number times m is a Scale of m
7. `ThresholdedRelu`, `Sign` and `Shrink` -> sums of such products

x * x has the square of x's range if x has a scale of the model's own. In cases 3 and 4 each product has the scale of
the tensor that it masks, if the result has one; m is an ordinary constant. An infinite or undefined x would give NaN
where the other input is selected, which INT8 values cannot. In cases 6 and 7 m and 1 - m have the scale 1/127, exact.

Not: other exponents (the DLA has no root); case 5 without that word, or below TensorRT 10.3; an exponent that is not
one constant number; case 2 where the DLA has no Div; more than four dimensions; a condition that is computed other than
by a comparison; a constant v that is not finite; cases 6 and 7 of tensors that are not four-dimensional or have no
scale of the model's own, of which the DLA compares none (limit E3); branches that are broadcast.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, NamedTuple, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import NO_ROOT, Rewriter, Row
from qdq_translator.translation.passes.editor import Stays, known, stay_if

RULE = "D19"


def rewrite(rewriter: Rewriter, node: Node) -> None:
    rank = rewriter.types.rank(node.outputs[0])
    stay_if(rank is None or rank > 4, "it has more than four dimensions")
    _CASES[node.op_type](rewriter, node)


def _with_number(rewriter: Rewriter, node: Node, op: str, what: str, number: float) -> Node:
    """The operator applied to the node's input and a number, as a constant of the same rank."""
    source = node.inputs[0]
    values = np.full((1,) * (rewriter.rank(source) or 0), number, rewriter.dtype(source))
    operands = [source, rewriter.constant(f"{node.name}.{what}", values)]
    return Node(op, operands[::-1] if op == "Div" else operands, node.outputs, node.name)


def _root(rewriter: Rewriter, node: Node) -> None:
    """Case 5."""
    stay_if(not rewriter.has_power(), NO_ROOT)
    rewriter.replace(RULE, node, [_with_number(rewriter, node, "Pow", "half", 0.5)])


def _power(rewriter: Rewriter, node: Node) -> None:
    """Cases 1 and 2."""
    source, target = node.inputs[0], node.outputs[0]
    exponent = rewriter.graph.scalar(node.inputs[1]) if node.is_op("Pow") else -1.0
    same_shape = rewriter.types.shape(source) == rewriter.types.shape(target)
    if exponent is None or not same_shape or rewriter.graph.is_constant(source):
        raise Stays("its exponent is not one constant number")
    if exponent == -1:
        rewriter.need_quotient()
        rewriter.replace(RULE, node, [_with_number(rewriter, node, "Div", "one", 1.0)])
        return
    stay_if(exponent not in (2, 3, 4), f"the DLA has no power of {exponent:g}")
    row, own = Row(rewriter, node), rewriter.scales.value(source)
    square = row.add("Mul", "square", source)
    if exponent > 2:
        row.add("Mul", "product", source if exponent == 3 else square)
    row.put(RULE)
    if exponent > 2 and own is not None:
        note = "the square of the input's range"
        rewriter.derive(RULE, square, source, row.nodes[0], 0.0, 127 * own * own, needs=[target], note=note)


def _where(rewriter: Rewriter, node: Node) -> None:
    """Cases 3 and 4."""
    graph, target = rewriter.graph, node.outputs[0]
    condition = graph.array(node.inputs[0])
    if condition is None or condition.dtype != np.bool_:
        _compared(rewriter, node)
        return
    shape, dtype = rewriter.types.shape(target) or (), rewriter.dtype(target)
    branches = {name: graph.array(name) for name in node.inputs[1:]}
    for name, values in branches.items():
        stay_if(values is None and rewriter.types.shape(name) != shape, "one of its branches is broadcast")
        stay_if(values is not None and not np.isfinite(values).all(), "its constant is not finite")
    constants = [values.shape for values in branches.values() if values is not None]
    rewriter.afford(node.name, *np.broadcast_shapes(condition.shape, *constants))
    row, summands = Row(rewriter, node), []
    for name, taken, what in zip(node.inputs[1:], (condition, ~condition), ("taken", "else")):
        values = branches[name]
        mask = np.where(taken, 1 if values is None else values, 0).astype(dtype)
        constant = rewriter.constant(f"{node.name}.{what}", _ranked(mask, len(shape)))
        summands.append(constant if values is not None else row.at(name).add("Mul", what, constant))
    row.at(summands[0]).add("Add", "sum", summands[1])
    row.put(RULE)
    for layer in row.nodes[:-1]:
        row.derive([layer], layer.inputs[0], note="scale of what it masks")


# ---------------- masks that comparisons compute

_OPPOSITE = {"Greater": "", "Less": "", "Equal": "", "GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
"""Comparison -> the DLA's comparison for its negation; '' if the DLA has the comparison itself."""


class _Part(NamedTuple):
    """A term (tensor or number) that is added where `x op y` holds, or, if not `taken`, where it does not."""

    op: str
    y: str
    taken: bool
    tensor: str
    number: float


def _compared(rewriter: Rewriter, node: Node) -> None:
    """Case 6: a computed condition."""
    graph, shape, why = rewriter.graph, rewriter.types.shape(node.outputs[0]), "its condition is computed"
    maker = known(graph.producer.get(node.inputs[0]), why)
    inverse = maker.is_op("Not")
    if inverse:
        maker = known(graph.producer.get(maker.inputs[0]), why)
    stay_if(maker.op_type not in _OPPOSITE, why)
    op = _OPPOSITE[maker.op_type] or maker.op_type
    inverse ^= op != maker.op_type
    x, y = maker.inputs
    if graph.is_constant(x):
        x, y, op = y, x, {"Greater": "Less", "Less": "Greater"}.get(op, op)
    parts = []
    for name, taken in zip(node.inputs[1:], (not inverse, inverse)):
        number = graph.scalar(name)
        given = math.isfinite(number) if number is not None else rewriter.types.shape(name) == shape
        stay_if(not given, "one of its branches is broadcast, or no finite number")
        parts.append(_Part(op, y, taken, name if number is None else "", number or 0.0))
    _masked(rewriter, node, x, parts)


def _steps(rewriter: Rewriter, node: Node) -> None:
    """Case 7."""
    x, dtype, rank = node.inputs[0], rewriter.dtype(node.inputs[0]), rewriter.rank(node.inputs[0]) or 0
    limit, bias = float(node.get("lambd", 0.5)), float(node.get("bias", 0.0))
    if not node.is_op("Shrink"):
        limit, bias = float(node.get("alpha", 1.0)) if node.is_op("ThresholdedRelu") else 0.0, 0.0
    edge = np.full((1,) * rank, limit)
    high, low = rewriter.constants(node.name, dtype, above=edge, below=-edge)
    shift = -1.0 if node.is_op("Sign") else bias
    kept = [_Part("Greater", high, True, x, 0.0), _Part("Less", low, True, x, 0.0)]
    shifts = [_Part("Greater", high, True, "", -shift), _Part("Less", low, True, "", shift)]
    _masked(rewriter, node, x, {"ThresholdedRelu": kept[:1], "Sign": shifts}.get(node.op_type, kept + shifts))


def _masked(rewriter: Rewriter, node: Node, x: str, parts: Sequence[_Part]) -> None:
    channels = _compares(rewriter, node, x, parts)
    row = Row(rewriter, node)
    masks: Dict[Tuple[str, str], str] = {}
    ranges: Dict[str, float] = {}
    summands = []
    for number, part in enumerate(part for part in parts if part.tensor or part.number):
        key = part.op, part.y
        if key not in masks:
            masks[key] = _mask(row, x, part, number)
            ranges[masks[key]] = 1
        row.current, size = masks[key], 1.0 if part.tensor else part.number
        factors = (size, 0.0) if part.taken else (-size, size)
        if factors != (1, 0):
            row.scale(f"gate{number}", channels, *factors)
            ranges[row.current] = abs(size)
        if part.tensor:
            gate = row.current
            row.at(part.tensor).add("Mul", f"part{number}", gate)
        summands.append(row.current)
    while len(summands) > 1:
        summands = [*summands[2:], row.at(summands[0]).add("Add", "sum", summands[1])]
    row.put(RULE)
    for layer in row.nodes[:-1]:
        if layer.outputs[0] in ranges:
            row.derive([layer], x, 0.0, ranges[layer.outputs[0]] / 127, note="its bound")
        elif layer.is_op("Mul", "Add"):
            row.derive([layer], layer.inputs[0], note="scale of what it masks")


def _compares(rewriter: Rewriter, node: Node, x: str, parts: Sequence[_Part]) -> int:
    """The channels of x. Raises Stays if the DLA has no such comparison."""
    shape, why = rewriter.types.shape, "the DLA compares tensors of one shape in INT8 only, from TensorRT 8.6.12 on"
    for part in parts:
        # limit E4 requires a Cast behind the comparison, which is added
        asked = rewriter.rejected_by(Node(part.op, [x, part.y], node.outputs)) - {"E4"}
        stay_if(asked or not (rewriter.graph.is_constant(part.y) or shape(part.y) == shape(x)), why)
    added = any(part.tensor or part.number for part in parts)
    stay_if(shape(x) != shape(node.outputs[0]) or not added, why)
    return known(rewriter.channels(x), why)


def _mask(row: Row, x: str, part: _Part, number: int) -> str:
    """1 where the comparison holds, else 0."""
    values, rewriter = row.rewriter.graph.array(part.y), row.rewriter
    y = part.y if values is None else rewriter.constant(f"{part.y}_full", _ranked(values, 4))
    row.at(x).add(part.op, f"compared{number}", y)
    return row.add("Cast", f"mask{number}", to=int(rewriter.types.elem_type(x) or 1))


def _ranked(values: np.ndarray, rank: int) -> np.ndarray:
    """The values with axes of size 1 in front, up to the rank."""
    return values.reshape((1,) * (rank - values.ndim) + values.shape)


_CASES: Dict[str, Callable[[Rewriter, Node], None]] = {
    **dict.fromkeys(("Pow", "Reciprocal"), _power),
    "Sqrt": _root,
    "Where": _where,
    **dict.fromkeys(("ThresholdedRelu", "Sign", "Shrink"), _steps),
}
OPERATORS = tuple(_CASES)
