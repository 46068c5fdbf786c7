"""Rule D19: Pow and Reciprocal become products and quotients, Where and step functions products with masks.

1. `Pow(x, 2)` -> x * x; `Pow(x, 3)` -> (x * x) * x; `Pow(x, 4)` -> the square of x * x
2. `Pow(x, -1)`, `Reciprocal(x)` -> 1 / x, where the DLA has Div (TensorRT 8.6.12 on)
3. `Where(c, x, v)`, `Where(c, v, x)` with constants c and v -> x * m + w: m is 1 where x is taken and 0 elsewhere, w is v there
4. `Where(c, x, y)` with a constant c -> x * m + y * (1 - m)
5. `Sqrt(x)` -> Pow(x, 0.5) with `--assume pow`, which limit O3 is about
6. `Where(x > y, a, b)`, with any comparison or its `Not` -> a * m + b * (1 - m) with m = Cast(x > y), where the DLA compares (TensorRT
   8.6.12 on); a part that is 0 is omitted, and a number times m is a Scale of m
7. `ThresholdedRelu`, `Sign` and `Shrink` -> sums of such products

x * x has the square of x's range if x has a scale of the model's own. In cases 3 and 4 each product has the scale of what it
masks, if the result has one, and m is a constant like the others. An infinite or undefined x where the other one is taken would
make NaN of it, which cannot happen to INT8 values. In cases 6 and 7 m and 1 - m have the scale 1/127, exact.

Not: other exponents (the DLA has no root); case 5 without that word, or below TensorRT 10.3; an exponent that is not one constant number; case 2 where the DLA has no Div; more
than four dimensions; a condition that is computed other than by a comparison; a constant v that is not finite; cases 6 and 7 of tensors that are not
four-dimensional or have no scale of the model's own, of which the DLA compares none (limit E3); branches that are broadcast.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter, Row

RULE = "D19"
_OPPOSITE = {"Greater": "", "Less": "", "Equal": "", "GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
"""Comparison -> the one that the DLA has for its opposite; '' for those that it has."""
_Part = Tuple[str, str, bool, Optional[str], float]
"""A comparison of x, its second operand, and what is added where it is true, or false: a tensor or a number."""


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Pow", "Reciprocal", "Sqrt", "Where", "ThresholdedRelu", "Sign", "Shrink"):
        target = node.outputs[0]
        if rewriter.dtype(target) is None or not rewriter.rejected(node):
            continue
        rank = rewriter.types.rank(target)
        if rank is None or rank > 4:
            rewriter.leave(node, "it has more than four dimensions")
        elif node.is_op("Where"):
            _where(rewriter, node)
        elif node.is_op("Sqrt"):
            _root(rewriter, node, rank)
        elif node.is_op("ThresholdedRelu", "Sign", "Shrink"):
            _steps(rewriter, node)
        else:
            _power(rewriter, node)


def _root(rewriter: Rewriter, node: Node, rank: int) -> None:
    """Case 5."""
    half = rewriter.constant(f"{node.name}.half", np.full((1,) * rank, 0.5, rewriter.dtype(node.inputs[0])))
    made = Node("Pow", [node.inputs[0], half], node.outputs, node.name)
    if rewriter.rejected(made):
        rewriter.leave(node, "the DLA has no root (limit O3; --assume pow)")
    else:
        rewriter.replace(RULE, node, [made])


def _power(rewriter: Rewriter, node: Node) -> None:
    """Cases 1 and 2."""
    source, target = node.inputs[0], node.outputs[0]
    given = rewriter.graph.array(node.inputs[1]) if node.is_op("Pow") else np.array(-1)
    exponent = float(given.reshape(-1)[0]) if given is not None and given.size == 1 else None
    same_shape = rewriter.types.shape(source) == rewriter.types.shape(target)
    if exponent is None or not same_shape or rewriter.graph.is_constant(source):
        rewriter.leave(node, "its exponent is not one constant number")
        return
    row, own = Row(rewriter, node), rewriter.scales.value(source)
    if exponent == -1:
        if rewriter.may_divide(node):
            one = rewriter.constant(
                f"{node.name}.one", np.ones((1,) * (rewriter.rank(source) or 0), rewriter.dtype(source))
            )
            rewriter.replace(RULE, node, [Node("Div", [one, source], [target], node.name)])
        return
    if exponent not in (2, 3, 4):
        rewriter.leave(node, f"the DLA has no power of {exponent:g}")
        return
    square = row.add("Mul", "square", source)
    if exponent > 2:
        row.add("Mul", "product", source if exponent == 3 else square)
    row.put(RULE)
    if exponent > 2 and own is not None:
        note = "the square of the input's range"
        rewriter.derive(RULE, square, source, row.nodes[0], 0.0, 127 * own * own, needs=[target], note=note)


def _where(rewriter: Rewriter, node: Node) -> None:
    """Cases 3 and 4."""
    graph, target, dtype = rewriter.graph, node.outputs[0], rewriter.dtype(node.outputs[0])
    condition, shape = graph.array(node.inputs[0]), rewriter.types.shape(target)
    if condition is None or condition.dtype != np.bool_:
        _compared(rewriter, node)
        return
    branches = [rewriter.graph.array(name) for name in node.inputs[1:]]
    own = [None if branch is not None else rewriter.types.shape(n) for n, branch in zip(node.inputs[1:], branches)]
    if any(values is None and size != shape for values, size in zip(branches, own)):
        rewriter.leave(node, "one of its branches is broadcast")
        return
    if any(values is not None and not np.isfinite(values).all() for values in branches):
        rewriter.leave(node, "its constant is not finite")
        return
    constants = [values.shape for values in branches if values is not None]
    rewriter.afford(node.name, *np.broadcast_shapes(condition.shape, *constants))
    row, rank = Row(rewriter, node), len(shape or ())
    summands = []
    for name, values, taken, what in zip(node.inputs[1:], branches, (condition, ~condition), ("taken", "else")):
        constant = np.where(taken, 1 if values is None else values, 0).astype(dtype)
        summands.append(rewriter.constant(f"{node.name}.{what}", _ranked(constant, rank)))
        if values is None:
            row.current = name
            summands[-1] = row.add("Mul", what, summands[-1])
    row.current = summands[0]
    row.add("Add", "sum", summands[1])
    row.put(RULE)
    for layer in row.nodes[:-1]:
        rewriter.derive(RULE, layer.outputs[0], layer.inputs[0], layer, needs=[target], note="scale of what it masks")


def _compared(rewriter: Rewriter, node: Node) -> None:
    """Case 6."""
    graph, shape = rewriter.graph, rewriter.types.shape(node.outputs[0])
    maker = graph.producer.get(node.inputs[0])
    inverse = maker is not None and maker.is_op("Not")
    if maker is not None and inverse:
        maker = graph.producer.get(maker.inputs[0])
    if maker is None or maker.op_type not in _OPPOSITE:
        rewriter.leave(node, "its condition is computed")
        return
    op = _OPPOSITE[maker.op_type] or maker.op_type
    inverse ^= op != maker.op_type
    x, y = maker.inputs
    if graph.is_constant(x):
        x, y, op = y, x, {"Greater": "Less", "Less": "Greater"}.get(op, op)
    parts: List[_Part] = []
    for name, number in zip(node.inputs[1:], (0, 1)):
        values, taken = graph.array(name), (number == 0) != inverse
        if values is not None and values.size == 1 and np.isfinite(values).all():
            parts.append((op, y, taken, None, float(values.reshape(()))))
        elif values is None and rewriter.types.shape(name) == shape:
            parts.append((op, y, taken, name, 0.0))
        else:
            rewriter.leave(node, "one of its branches is broadcast, or no finite number")
            return
    _masked(rewriter, node, x, parts)


def _steps(rewriter: Rewriter, node: Node) -> None:
    """Case 7."""
    x, dtype, rank = node.inputs[0], rewriter.dtype(node.inputs[0]), rewriter.rank(node.inputs[0]) or 0
    limit, bias = {"ThresholdedRelu": (float(node.get("alpha", 1.0)), 0.0), "Sign": (0.0, 0.0)}.get(
        node.op_type, (float(node.get("lambd", 0.5)), float(node.get("bias", 0.0)))
    )
    high, low = (
        rewriter.constant(f"{node.name}.{what}", np.full((1,) * rank, value, dtype))
        for what, value in (("above", limit), ("below", -limit))
    )
    kept: List[_Part] = [("Greater", high, True, x, 0.0), ("Less", low, True, x, 0.0)]
    shift = -1.0 if node.is_op("Sign") else bias
    shifts: List[_Part] = [("Greater", high, True, None, -shift), ("Less", low, True, None, shift)]
    _masked(rewriter, node, x, {"ThresholdedRelu": kept[:1], "Sign": shifts}.get(node.op_type, kept + shifts))


def _masked(rewriter: Rewriter, node: Node, x: str, parts: List[_Part]) -> None:
    target, channels, shapes = node.outputs[0], rewriter.channels(x), rewriter.types.shape
    asked = [rewriter.rejected_by(Node(part[0], [x, part[1]], [target])) - {"E4"} for part in parts]
    fits = all(rewriter.graph.is_constant(y) or shapes(y) == shapes(x) for _, y, *_ in parts)
    parts = [part for part in parts if part[3] is not None or part[4]]
    if channels is None or any(asked) or not fits or shapes(x) != shapes(target) or not parts:
        rewriter.leave(node, "the DLA compares tensors of one shape in INT8 only, from TensorRT 8.6.12 on")
        return
    row = Row(rewriter, node)
    masks: Dict[Tuple[str, str], str] = {}
    ranges: Dict[str, float] = {}
    summands: List[str] = []
    for number, (op, y, taken, tensor, value) in enumerate(parts):
        if (op, y) not in masks:
            row.current = x
            values = rewriter.graph.array(y)
            row.add(
                op, f"compared{number}", y if values is None else rewriter.constant(f"{y}_full", _ranked(values, 4))
            )
            masks[op, y] = row.add("Cast", f"mask{number}", to=int(rewriter.types.elem_type(x) or 1))
            ranges[row.current] = 1
        row.current, size = masks[op, y], value if tensor is None else 1.0
        if not taken or size != 1:
            row.scale(f"gate{number}", channels, size if taken else -size, 0.0 if taken else size)
            ranges[row.current] = abs(size)
        if tensor is not None:
            gate, row.current = row.current, tensor
            row.add("Mul", f"part{number}", gate)
        summands.append(row.current)
    while len(summands) > 1:
        row.current, other = summands[:2]
        summands = [*summands[2:], row.add("Add", "sum", other)]
    row.put(RULE)
    for layer in row.nodes[:-1]:
        name = layer.outputs[0]
        if name in ranges:
            rewriter.derive(RULE, name, x, layer, 0.0, ranges[name] / 127, needs=[target], note="its bound")
        elif layer.is_op("Mul", "Add"):
            rewriter.derive(RULE, name, layer.inputs[0], layer, needs=[target], note="scale of what it masks")


def _ranked(values: np.ndarray, rank: int) -> np.ndarray:
    return values.reshape((1,) * (rank - values.ndim) + values.shape)
