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
saturation and the Clip limit the same values), and so the input of a Clip that nothing else reads; HardSwish's Scale
and Clip r/127, for the same reason; its product r times the output's. A Clip's new tensors have the scale of x if
a < 0 < b; else the range is the largest distance from the bound. Bounded tensors of Mish have their bound as range
(rule B1): 1 for s and n, 2 for 2 - s and 2 - n, 1 for the quotient. Likewise 1 for the quotient, the Tanh and the gate
of cases 6 and 7, and alpha for the product with alpha; Relu has the range of x. In case 6 t and 1 - t have the scale
1/126, even if others are calibrated: at x = 0 both are 0.5, which is 63 steps of 1/126 and not a whole number of steps
of 1/127.
Not: tensors that are not four-dimensional; an unknown number of channels; bounds that are not constant numbers; cases 4
to 6 where the DLA has no Div; a Softplus that others than one Tanh read; Min of more than two inputs or shapes; case 6
with factors that are not positive; case 7 without approximate (the error function).
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import formulas
from qdq_translator.translation.passes.dla.formulas import Range
from qdq_translator.translation.passes.dla.rewriter import Rewriter, Row
from qdq_translator.translation.passes.editor import Stays, stay_if

RULE = "D7"
FORMULAS = formulas.read("""
def HardSigmoid(x, alpha, beta):
    scaled: Y = alpha * x + beta
    clipped = clip(scaled, 0, 1)

def HardSwish(x, r):
    shifted: 0 * X + r = r / 6 * x + r / 2
    gate: 0 * X + r = clip(shifted, 0, r)
    product: r * Y = x * gate
    output = product / r

def ClipAcrossZero(x, low, high, f, g):
    below_scaled: f * X = -f * x
    below_clipped: f * X = clip(below_scaled, 0, -f * low)
    below: X = below_clipped / f
    above_scaled: g * X = g * x
    above_clipped: g * X = clip(above_scaled, 0, g * high)
    above: X = above_clipped / g
    difference = above - below

def ClipFromBound(x, sign, end, width, f, reach):
    from_bound_scaled: f * reach = sign * f * x - sign * f * end
    from_bound_clipped: f * reach = clip(from_bound_scaled, 0, f * width)
    from_bound: reach = from_bound_clipped / f
    back = sign * from_bound + end

def Min(x, other):
    first: X = -x
    second: Z = -other
    larger: Y = max(first, second)
    smaller = -larger

def Mish(x):
    sigmoid: 1 = sigmoid(x)
    rest: 2 = 2 - sigmoid
    product: 1 = sigmoid * rest
    divisor: 2 = 2 - product
    gate: 1 = product / divisor
    gated = x * gate

def TanhOfSoftplus(x):
    sigmoid: 1 = sigmoid(x)
    rest: 2 = 2 - sigmoid
    product: 1 = sigmoid * rest
    divisor: 2 = 2 - product
    gate = product / divisor

def Softsign(x):
    size: X = abs(x)
    divisor: X + 1 = size + 1
    quotient = x / divisor

def Elu(x, gain, alpha, within):
    turned: within * X = -within * x
    below: within * X = relu(turned)
    divisor: half = sigmoid(below)
    rest: half = 1 - divisor
    exponential: 1 = rest / divisor
    negative: alpha = alpha * exponential - alpha
    positive: X = relu(x)
    gained: gain * X = gain * positive
    sum = negative + gained

def Gelu(x, linear, cubic):
    square: none = x * x
    slope: none = cubic * square + linear
    inner: none = slope * x
    tanh: 1 = tanh(inner)
    gate: 1 = 0.5 * tanh + 0.5
    product = x * gate

def Erf(x, linear, cubic):
    square: none = x * x
    slope: none = cubic * square + linear
    inner: none = slope * x
    tanh = tanh(inner)
""")
INFINITE = math.inf


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Softplus", rewrite=_softplus)
    rewriter.each(*_NUMBERS, "Clip", "Min", rewrite=_rewrite)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    rewriter.width(node.outputs[0])
    if node.is_op("Clip"):
        _bounded(rewriter, node, *operators.clip_bounds(node, rewriter.graph.array))
    elif node.is_op("Min"):
        _min(rewriter, node)
    elif not operators.is_exact_gelu(node):  # else rule D22, if requested
        name, numbers = _NUMBERS[node.op_type]
        FORMULAS[name].write(RULE, rewriter, node, *numbers(rewriter, node))


def _swish_bound(rewriter: Rewriter, node: Node) -> tuple[float]:
    own = rewriter.scales.value(node.inputs[0])
    return (6.0 if own is None else min(max(127 * own, 1.0), 127.0),)


def _quotient(rewriter: Rewriter, _: Node) -> tuple[float, ...]:
    rewriter.need_quotient()
    return ()


def _exponential(rewriter: Rewriter, node: Node) -> tuple[float, ...]:
    rewriter.need_quotient()
    gain, alpha = operators.exponential_linear(node)
    stay_if(not (0 < alpha < INFINITE and 0 < gain < INFINITE), "its factors are not positive")
    return gain, alpha * gain, 1 / alpha if node.is_op("Celu") else 1.0


def cubic(rewriter: Rewriter, node: Node) -> tuple[float, float]:
    return math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)


_NUMBERS: dict[str, tuple[str, Callable[[Rewriter, Node], tuple[Any, ...]]]] = {
    "HardSigmoid": ("HardSigmoid", lambda _, node: operators.coefficients(node)),
    "HardSwish": ("HardSwish", _swish_bound),
    "Mish": ("Mish", _quotient),
    "Softsign": ("Softsign", _quotient),
    **dict.fromkeys(("Elu", "Celu", "Selu"), ("Elu", _exponential)),
    "Gelu": ("Gelu", cubic),
}


def _softplus(rewriter: Rewriter, node: Node) -> None:
    """Case 4 as exporters write it; a Softplus alone is left."""
    graph, softened = rewriter.graph, node.outputs[0]
    tanh = graph.only_consumer(softened)
    if tanh is None or not tanh.is_op("Tanh") or not rewriter.channels(softened) or not rewriter.allows(tanh):
        return
    rewriter.need_quotient()
    graph.remove(node)
    graph.set_input(tanh, 0, node.inputs[0])
    rewriter.scales.drop(softened)
    FORMULAS["TanhOfSoftplus"].write(RULE, rewriter, tanh, gone=(node,))


def _min(rewriter: Rewriter, node: Node) -> None:
    """Case 8."""
    graph = rewriter.graph
    names = sorted(node.inputs, key=graph.is_constant)
    bound = graph.scalar(names[-1])
    if len(names) == 2 and bound is not None:
        graph.set_inputs(node, names)
        _bounded(rewriter, node, -INFINITE, bound)
        return
    one_shape = len({rewriter.types.shape(name) for name in (*names, node.outputs[0])}) == 1
    stay_if(len(names) != 2 or not one_shape, "it does not compare two tensors of one shape, or one with a number")
    FORMULAS["Min"].write(RULE, rewriter, node)


def _bounded(rewriter: Rewriter, node: Node, low: Optional[float], high: Optional[float]) -> None:
    """Case 3."""
    if low is None or high is None or not low < high or (math.isinf(low) and math.isinf(high)):
        raise Stays("its bounds are not constant numbers, the lower one below the upper one")
    alone = rewriter.graph.only_consumer(node.inputs[0]) is node
    row = _across_zero(rewriter, node, low, high) if low < 0 < high else _from_bound(rewriter, node, low, high)
    if alone:
        note = "INT8 saturation cuts the same values"
        rewriter.derive(RULE, node.inputs[0], node.outputs[0], row.nodes[0], note=note)


def _across_zero(rewriter: Rewriter, node: Node, low: float, high: float) -> Row:
    """Case 3 with bounds on both sides of 0; returns the layers."""
    return FORMULAS["ClipAcrossZero"].write(RULE, rewriter, node, low, high, _power(-low), _power(high))


def _from_bound(rewriter: Rewriter, node: Node, low: float, high: float) -> Row:
    """Case 3 with bounds of one sign; returns the layers."""
    (sign, end), width = (1.0, low) if low >= 0 else (-1.0, high), high - low
    own = [scale for name in (node.inputs[0], node.outputs[0]) if (scale := rewriter.scales.value(name)) is not None]
    reach = min((127 * scale for scale in own), default=INFINITE) - abs(end)
    held: Any = min(width, reach) if reach > 0 else width
    if math.isinf(held):
        held = Range(node.outputs[0], 1.0, -abs(end), abs(end) / 127)
    return FORMULAS["ClipFromBound"].write(RULE, rewriter, node, sign, end, width, _power(width), held)


def _power(bound: float) -> float:
    """The power of two that brings the bound of a clipped Relu into [1, 127]."""
    if math.isinf(bound) or operators.LEAST_BOUND <= bound <= operators.MOST_BOUND:
        return 1.0
    return float(2.0 ** -math.floor(math.log2(bound)) if bound < 1 else 2.0 ** -math.ceil(math.log2(bound / 127)))
