"""Rule D7: HardSigmoid, HardSwish, Clip, Min, Mish, Softsign, Elu, Celu, Selu and Gelu become Scale, Relu, Sigmoid,
Tanh, Abs, Max, product, quotient.

1. `HardSigmoid(x) = Clip(alpha * x + beta, 0, 1)`
2. `HardSwish(x)   = x * Clip(r / 6 * (x + 3), 0, r) / r`, where r is the range of x (its scale times 127; 1 to 127, as
   the DLA requires of a clipped Relu), or 6 if x has no scale of the model's own. Both factors of the product
   then have the same range, as the DLA requires (NvInfer.h), and neither loses resolution for it.

3. `Clip(x, a, b) = Clip(x, 0, b) - Clip(-x, 0, -a)` if a < 0 < b, and `a + Clip(x - a, 0, b - a)` or `b - Clip(b - x,
   0, b - a)` if both have the same sign: no intermediate value is larger, so that no step becomes coarser, in INT8 or
   in FP16. A clipped Relu has a bound in [1, 127]: others are placed between two Scales by a power of two. Without a
   bound it is a Relu
4. `Mish(x) = x * n / (2 - n)`, where n = s * (2 - s) and s = Sigmoid(x), which is x * Tanh(Softplus(x)); if the DLA has
   Div (TensorRT 8.6.12 on); and `Tanh(Softplus(x)) = n / (2 - n)`, as exporters write it
5. `Softsign(x) = x / (1 + Abs(x))`, likewise
6. `Elu(x) = Relu(x) + alpha * ((1 - t) / t - 1)`, where t = Sigmoid(Relu(-x)) is 0.5 to 1, so that (1 - t) / t is
   exp(x) below 0; `Selu` is the same with two constant factors, `Celu` with x / alpha in the Sigmoid; likewise
7. `Gelu(x) = x * (0.5 + 0.5 * Tanh(x * (a + b * x * x)))` with approximate = tanh: a = sqrt(2 / pi), b = 0.044715 * a

8. `Min(x, c) = Clip(x, max = c)`, and `Min(x, y) = -Max(-x, -y)`, where -128 becomes -127

A Scale is a BatchNormalization with mean 0 and variance 1; the clipped Relu is a Clip from 0.

Scales of the new tensors, given only if the original's output has one: before HardSigmoid's Clip the output's (INT8
saturation and the Clip limit the same values); HardSwish's Scale and Clip r/127, for the same reason; its product r
times the output's. A Clip's new tensors have the scale of x if a < 0 < b; else the range is the largest distance from
the bound. Bounded tensors of Mish have their bound as range (rule B1): 1 for s and n, 2 for 2 - s and 2 - n, 1 for the
quotient. Likewise 1 for the quotient, the Tanh and the gate of cases 6 and 7, and alpha for the product with alpha;
Relu has the range of x. In case 6 t and 1 - t have the scale 1/126, even if others are calibrated: at x = 0 both are
0.5, which is 63 steps of 1/126 and not a whole number of steps of 1/127.
Not: tensors that are not four-dimensional; an unknown number of channels; bounds that are not constant numbers; cases 4
to 6 where the DLA has no Div; a Softplus that others than one Tanh read; Min of more than two inputs or shapes; case 6
with factors that are not positive; case 7 without approximate (the error function).
"""

from __future__ import annotations

import math
from typing import Callable, Optional

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import coefficients
from qdq_translator.passes.dla.rewriter import NO_SQUARES, Rewriter, Row
from qdq_translator.passes.editor import Stays, stay_if
from qdq_translator.scales.table import Origin

RULE = "D7"


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Softplus", rewrite=_softplus)
    rewriter.each(*_CASES, rewrite=_rewrite)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    _CASES[node.op_type](rewriter, node, rewriter.width(node.outputs[0]))


def _clip(row: Row, what: str, high: float) -> str:
    rewriter, dtype = row.rewriter, row.rewriter.dtype(row.node.inputs[0])
    if rewriter.graph.opset() < 11:
        return row.add("Clip", what, min=0.0, max=high)
    return row.add("Clip", what, *rewriter.constants(f"{row.node.name}_{what}", dtype, min=0.0, max=high))


def _hard_sigmoid(rewriter: Rewriter, node: Node, channels: int) -> None:
    row = Row(rewriter, node)
    row.scale("scaled", channels, *coefficients(node))
    _clip(row, "clipped", 1.0)
    row.put(RULE)
    row.derive(row.nodes[:1], node.outputs[0], note="scale of the clipped values")


def _hard_swish(rewriter: Rewriter, node: Node, channels: int) -> None:
    row, source, target = Row(rewriter, node), node.inputs[0], node.outputs[0]
    own = rewriter.scales.value(source)
    bound = 6.0 if own is None else min(max(127 * own, 1.0), 127.0)
    row.scale("shifted", channels, bound / 6, bound / 2)
    gate = _clip(row, "gate", bound)
    row.at(source).add("Mul", "product", gate)
    row.scale("output", channels, 1 / bound)
    row.put(RULE)
    row.derive(row.nodes[:2], source, 0.0, bound / 127, note="range of the clamp")
    row.derive(row.nodes[2:3], target, bound, note=f"{bound:.4g} times the output's range")


def _min(rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 8."""
    graph, target = rewriter.graph, node.outputs[0]
    names = sorted(node.inputs, key=graph.is_constant)
    bound = graph.scalar(names[-1])
    if len(names) == 2 and bound is not None:
        graph.set_inputs(node, names)
        _bounded(rewriter, node, channels, -math.inf, bound)
        return
    one_shape = len({rewriter.types.shape(name) for name in (*names, target)}) == 1
    stay_if(len(names) != 2 or not one_shape, "it does not compare two tensors of one shape, or one with a number")
    row = Row(rewriter, node)
    first = row.scale("first", channels, -1.0)
    second = row.at(names[1]).scale("second", channels, -1.0)
    row.at(first).add("Max", "larger", second)
    row.scale("smaller", channels, -1.0)
    row.put(RULE)
    for layer, source in zip(row.nodes, (*names, target)):
        row.derive([layer], source, note="the same magnitudes")


def _bounded(rewriter: Rewriter, node: Node, channels: int, low: Optional[float], high: Optional[float]) -> None:
    """Case 3."""
    if low is None or high is None or not low < high or (math.isinf(low) and math.isinf(high)):
        raise Stays("its bounds are not constant numbers, the lower one below the upper one")
    if low >= 0 or high <= 0:
        _from_bound(rewriter, node, channels, low, high)
        return
    below, row = Row(rewriter, node), Row(rewriter, node)
    factors = _rectify(below, "below", channels, -1.0, -low) + _rectify(row, "above", channels, 1.0, high)
    row.nodes[:0] = below.nodes
    row.add("Sub", "difference", below.current)
    row.put(RULE)
    for layer, factor in zip(row.nodes, factors):
        row.derive([layer], node.inputs[0], factor, note="the range of the input")


def _from_bound(rewriter: Rewriter, node: Node, channels: int, low: float, high: float) -> None:
    """Case 3 with bounds of one sign."""
    row, source, target = Row(rewriter, node), node.inputs[0], node.outputs[0]
    sign, end, width = (1.0, low, high - low) if low >= 0 else (-1.0, high, high - low)
    factors = _rectify(row, "from_bound", channels, sign, width, -sign * end)
    if sign < 0 or end:
        row.scale("back", channels, sign, end)
    row.put(RULE)
    own = [scale for scale in (rewriter.scales.value(name) for name in (source, target)) if scale is not None]
    reach = min((127 * scale for scale in own), default=math.inf) - abs(end)
    held = min(width, reach) if reach > 0 else width
    for layer, factor in zip(row.nodes[:-1], factors):
        at_most = (1.0, -abs(end) / 127, abs(end) / 127**2) if math.isinf(held) else (0.0, factor * held / 127)
        row.derive([layer], target, *at_most, note="the distance from the bound")


def _power(bound: float) -> float:
    """The power of two that brings the bound of a clipped Relu into [1, 127]."""
    if math.isinf(bound) or 1 <= bound <= 127:
        return 1.0
    return float(2.0 ** -math.floor(math.log2(bound)) if bound < 1 else 2.0 ** -math.ceil(math.log2(bound / 127)))


def _rectify(row: Row, what: str, channels: int, sign: float, bound: float, shift: float = 0.0) -> list[float]:
    """Add layers for `Clip(sign * x + shift, 0, bound)`; returns the factor of each layer's values."""
    factor = _power(bound)
    known = len(row.nodes)
    if sign * factor != 1 or shift:
        row.scale(f"{what}_scaled", channels, sign * factor, shift * factor)
    if math.isinf(bound):
        row.add("Relu", f"{what}_clipped")
    else:
        _clip(row, f"{what}_clipped", factor * bound)
    factors = [factor] * (len(row.nodes) - known)
    if factor != 1:
        row.scale(what, channels, 1 / factor)
        factors.append(1.0)
    return factors


def _mish(rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 4."""
    rewriter.need_quotient()
    row = Row(rewriter, node)
    gate = _mish_gate(row, channels)
    row.at(node.inputs[0]).add("Mul", "gated", gate)
    _put_gate(row)


def _softplus(rewriter: Rewriter, node: Node) -> None:
    """Case 4 as exporters write it; a Softplus alone is left."""
    graph, softened = rewriter.graph, node.outputs[0]
    tanh, channels = graph.only_consumer(softened), rewriter.channels(softened)
    if tanh is None or not tanh.is_op("Tanh") or channels is None or not rewriter.allows(tanh):
        return
    rewriter.need_quotient()
    graph.remove(node)
    graph.set_input(tanh, 0, node.inputs[0])
    rewriter.scales.drop(softened)
    row = Row(rewriter, tanh)
    _mish_gate(row, channels)
    _put_gate(row, node)


def _mish_gate(row: Row, channels: int) -> str:
    s = row.add("Sigmoid", "sigmoid")
    rest = row.scale("rest", channels, -1.0, 2.0)
    product = row.at(s).add("Mul", "product", rest)
    divisor = row.scale("divisor", channels, -1.0, 2.0)
    return row.at(product).add("Div", "gate", divisor)


def _put_gate(row: Row, *more: Node) -> None:
    row.put(RULE, *more)
    for layer, bound in zip(row.nodes[:-1], (1, 2, 1, 2, 1)):
        row.bound(layer, bound)


def _softsign(rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 5."""
    rewriter.need_quotient()
    row, source = Row(rewriter, node), node.inputs[0]
    row.add("Abs", "size")
    divisor = row.scale("divisor", channels, 1.0, 1.0)
    row.at(source).add("Div", "quotient", divisor)
    row.put(RULE)
    row.derive(row.nodes[:1], source, note="the same magnitudes")
    row.derive(row.nodes[1:2], source, 1.0, 1 / 127, note="one more than the input's range")


def _elu(rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 6."""
    rewriter.need_quotient()
    gain, alpha = operators.exponential_linear(node)
    stay_if(not (0 < alpha < math.inf and 0 < gain < math.inf), "its factors are not positive")
    within = 1 / alpha if node.is_op("Celu") else 1.0
    alpha *= gain
    high = Row(rewriter, node)
    high.add("Relu", "positive")
    if gain != 1:
        high.scale("gained", channels, gain)
    row = Row(rewriter, node)
    row.scale("turned", channels, -within)
    row.add("Relu", "below")
    divisor = row.add("Sigmoid", "divisor")
    row.scale("rest", channels, -1.0, 1.0)
    row.add("Div", "exponential", divisor)
    row.scale("negative", channels, alpha, -alpha)
    row.add("Add", "sum", high.current)
    row.nodes[-1:-1] = high.nodes
    row.put(RULE)
    row.derive(row.nodes[:2], node.inputs[0], within, note="the range of the input")
    for layer in row.nodes[2:4]:
        _half(row, layer)
    for layer, bound in zip(row.nodes[4:6], (1.0, alpha)):
        row.bound(layer, bound)
    for layer, factor in zip(high.nodes, (1.0, gain)):
        row.derive([layer], node.inputs[0], factor, note="the range of the input")


def _half(row: Row, layer: Node) -> None:
    """Give it the scale 1/126, of which 0.5 is a multiple; at once if all tensors get scales from data."""
    rewriter, target, note = row.rewriter, row.node.outputs[0], "0.5 is 63 steps"
    if rewriter.settings.calibration is not None and target not in rewriter.graph.outputs:
        rewriter.scales.infer(layer.outputs[0], 1 / 126, Origin(RULE, layer.name, "", note))
    row.derive([layer], target, 0.0, 1 / 126, note=note)


def _gelu(rewriter: Rewriter, node: Node, channels: int) -> None:
    if not operators.is_exact_gelu(node):  # else rule D22, if requested
        gelu(RULE, rewriter, node, channels)


def gelu(rule: str, rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 7."""
    row, root = Row(rewriter, node), math.sqrt(2 / math.pi)
    tanh_of_cubic(row, channels, root, 0.044715 * root)
    row.scale("gate", channels, 0.5, 0.5)
    row.add("Mul", "product", node.inputs[0])
    row.put(rule)
    for layer in row.nodes[3:5]:
        row.bound(layer, 1.0)


def tanh_of_cubic(row: Row, channels: int, linear: float, cubic: float) -> None:
    """Tanh of `x * (linear + cubic * x * x)`. INT8 would lose small squares: Tanh's inputs get no scale."""
    source = row.current
    inner = (
        row.add("Mul", "square", source),
        row.scale("slope", channels, cubic, linear),
        row.add("Mul", "inner", source),
    )
    row.add("Tanh", "tanh")
    row.rewriter.network.withhold(*inner, why=NO_SQUARES)


_CASES: dict[str, Callable[[Rewriter, Node, int], None]] = {
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Clip": lambda rewriter, node, channels: _bounded(
        rewriter, node, channels, *operators.clip_bounds(node, rewriter.graph.array)
    ),
    "Min": _min,
    "Mish": _mish,
    "Softsign": _softsign,
    "Elu": _elu,
    "Celu": _elu,
    "Selu": _elu,
    "Gelu": _gelu,
}
