"""Rule S8 for SiLU, `y = x * sigmoid(x)`, with `--infer_mul_scales`: the ranges of x and y determine each other.

Backward, `amax_x` is the positive solution of `x * sigmoid(x) = amax_y`: above it y would exceed its own range. Inputs below
`-amax_x` saturate and come out as `silu(-amax_x)` instead of nearly 0, which the note of the origin says. Forward,
`amax_y = silu(amax_x)`, at least the depth of the minimum where x reaches it. Nothing where something other than the
Sigmoid and the Mul reads x, and nothing for a gate (`x * sigmoid(g)`).
"""

from __future__ import annotations

import math
from typing import Optional

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.qparams import INT8_MAX

OPS = ("Mul",)
NOTE = "exact; inputs below "
_MINIMUM = 1.2784645427610738
"""`silu(-_MINIMUM) = 1 - _MINIMUM` is the least value of SiLU."""


def silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x >= 0 else x * math.exp(x) / (1 + math.exp(x))


def inverse(y: float) -> float:
    """The positive x with `silu(x) = y` for y > 0, to the last bits of a double, by bisection."""
    low, high = y, min(2 * y, y + _MINIMUM - 1)  # x / 2 <= silu(x), and x - silu(x) is at most _MINIMUM - 1
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if silu(middle) < y else (low, middle)
    return high


def _parts(node: Node, context: Context) -> Optional[tuple[str, Node]]:
    """(x, the Sigmoid of x) where `node` multiplies the two."""
    for name, gate in (node.inputs, node.inputs[::-1]):
        sigmoid = context.graph.producer.get(gate)
        if sigmoid is not None and sigmoid.is_op("Sigmoid") and sigmoid.inputs[0] == name:
            return name, sigmoid
    return None


def forward(node: Node, context: Context) -> bool:
    parts = _parts(node, context) if context.lacks(node.outputs[0]) else None
    value = None if parts is None else context.scale(parts[0])
    if parts is None or value is None:
        return False
    amax = value * INT8_MAX
    deepest = _MINIMUM - 1 if amax > _MINIMUM else -silu(-amax)
    return context.give(node.outputs[0], max(silu(amax), deepest) / INT8_MAX, "S8", node, parts[0], "exact")


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    parts = _parts(node, context) if value is not None else None
    if parts is None or value is None or not context.lacks(parts[0]):
        return False
    x, sigmoid = parts
    others = [reader for reader in context.graph.consumers(x) if reader is not node and reader is not sigmoid]
    if others or context.graph.only_consumer(sigmoid.outputs[0]) is not node:
        return False  # they see the clipped values too, and nothing bounds what they make of them
    amax = inverse(value * INT8_MAX)
    note = f"{NOTE}{-amax:.4g} saturate and come out as {silu(-amax):.3g}"
    return context.give(x, amax / INT8_MAX, "S8", node, node.outputs[0], note)
