"""Rule D19: Pow and Reciprocal become products and quotients, Where and step functions products with masks.

1. `Pow(x, 2)` -> x * x; `Pow(x, 3)` -> (x * x) * x; `Pow(x, 4)` -> the square of x * x
2. `Pow(x, -1)`, `Reciprocal(x)` -> 1 / x, where the DLA has Div (TensorRT 8.6.12 on)
3. `Where(c, x, v)`, `Where(c, v, x)` with constants c and v -> x * m + w: m is 1 where x is taken and 0 elsewhere, w is
   v there
4. `Where(c, x, y)` with a constant c -> x * m + y * (1 - m)
5. `Sqrt(x)` -> Pow(x, 0.5) with `--assume pow`, which limit O3 is about
6. `Where(x > y, a, b)`, with any comparison or its `Not` -> a * m + b * (1 - m) with m = Cast(x > y), where the DLA
   compares (TensorRT 8.6.12 on); a part that is 0 is omitted, and a number times m is a Scale of m
7. `ThresholdedRelu`, `Sign` and `Shrink` -> sums of such products

x * x has the square of x's range if x has a scale of the model's own. In cases 3 and 4 each product has the scale of
what it masks, if the result has one, and m is a constant like the others. An infinite or undefined x where the other
one is taken would make NaN of it, which cannot happen to INT8 values. In cases 6 and 7 m and 1 - m have the scale
1/127, exact.

Not: other exponents (the DLA has no root); case 5 without that word, or below TensorRT 10.3; an exponent that is not
one constant number; case 2 where the DLA has no Div; more than four dimensions; a condition that is computed other than
by a comparison; a constant v that is not finite; cases 6 and 7 of tensors that are not four-dimensional or have no
scale of the model's own, of which the DLA compares none (limit E3); branches that are broadcast.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla import masks
from qdq_translator.passes.dla.rewriter import NO_ROOT, Rewriter, Row, Stays

RULE = "D19"
OPERATORS = ("Pow", "Reciprocal", "Sqrt", "Where", "ThresholdedRelu", "Sign", "Shrink")


def rewrite(rewriter: Rewriter, node: Node) -> None:
    rank = rewriter.types.rank(node.outputs[0])
    if rank is None or rank > 4:
        raise Stays("it has more than four dimensions")
    if node.is_op("Where"):
        _where(rewriter, node)
    elif node.is_op("Sqrt"):
        _root(rewriter, node, rank)
    elif node.is_op("ThresholdedRelu", "Sign", "Shrink"):
        masks.steps(rewriter, RULE, node)
    else:
        _power(rewriter, node)


def _root(rewriter: Rewriter, node: Node, rank: int) -> None:
    """Case 5."""
    if not rewriter.has_power():
        raise Stays(NO_ROOT)
    half = rewriter.constant(f"{node.name}.half", np.full((1,) * rank, 0.5, rewriter.dtype(node.inputs[0])))
    rewriter.replace(RULE, node, [Node("Pow", [node.inputs[0], half], node.outputs, node.name)])


def _power(rewriter: Rewriter, node: Node) -> None:
    """Cases 1 and 2."""
    source, target = node.inputs[0], node.outputs[0]
    exponent = rewriter.graph.scalar(node.inputs[1]) if node.is_op("Pow") else -1.0
    same_shape = rewriter.types.shape(source) == rewriter.types.shape(target)
    if exponent is None or not same_shape or rewriter.graph.is_constant(source):
        raise Stays("its exponent is not one constant number")
    row, own = Row(rewriter, node), rewriter.scales.value(source)
    if exponent == -1:
        rewriter.need_quotient()
        one = rewriter.constant(
            f"{node.name}.one", np.ones((1,) * (rewriter.rank(source) or 0), rewriter.dtype(source))
        )
        rewriter.replace(RULE, node, [Node("Div", [one, source], [target], node.name)])
        return
    if exponent not in (2, 3, 4):
        raise Stays(f"the DLA has no power of {exponent:g}")
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
        masks.compared(rewriter, RULE, node)
        return
    branches = [rewriter.graph.array(name) for name in node.inputs[1:]]
    own = [None if branch is not None else rewriter.types.shape(n) for n, branch in zip(node.inputs[1:], branches)]
    if any(values is None and size != shape for values, size in zip(branches, own)):
        raise Stays("one of its branches is broadcast")
    if any(values is not None and not np.isfinite(values).all() for values in branches):
        raise Stays("its constant is not finite")
    constants = [values.shape for values in branches if values is not None]
    rewriter.afford(node.name, *np.broadcast_shapes(condition.shape, *constants))
    row, rank = Row(rewriter, node), len(shape or ())
    summands = []
    for name, values, taken, what in zip(node.inputs[1:], branches, (condition, ~condition), ("taken", "else")):
        constant = np.where(taken, 1 if values is None else values, 0).astype(dtype)
        summands.append(rewriter.constant(f"{node.name}.{what}", masks.ranked(constant, rank)))
        if values is None:
            row.current = name
            summands[-1] = row.add("Mul", what, summands[-1])
    row.current = summands[0]
    row.add("Add", "sum", summands[1])
    row.put(RULE)
    for layer in row.nodes[:-1]:
        rewriter.derive(RULE, layer.outputs[0], layer.inputs[0], layer, needs=[target], note="scale of what it masks")
