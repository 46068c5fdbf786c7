"""Rule S8 for what multiplies x by its own gate, with `--infer_mul_scales`: SiLU `x * sigmoid(x)` and HardSwish (the operator, or
`x * HardSigmoid(x)`). The ranges of input and output determine each other.

Backward, `amax_x` is the positive solution of `x * gate(x) = amax_y`: above it y would exceed its own range. Inputs below
`-amax_x` saturate and come out as they do at `-amax_x` instead of nearly 0, which the note of the origin says. Forward,
`amax_y` is what y reaches at `amax_x`. Nothing where something other than the gate and the product reads x, and nothing for
the gate of another tensor.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Optional

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.operators import coefficients
from qdq_translator.qparams import INT8_MAX

OPS = ("Mul", "HardSwish")
NOTE = "exact; inputs below "


@dataclasses.dataclass(frozen=True)
class Gate:
    """A gate that rises from 0 to 1, so that the product at x is larger than at any smaller magnitude, of either sign."""

    value: Callable[[float], float]

    def product(self, x: float) -> float:
        return x * self.value(x)

    def inverse(self, y: float) -> float:
        """The positive x with `product(x) = y` for y > 0, to the last bits of a double, by bisection."""
        low, high = y, y / self.value(0.0)  # the gate is at most 1, and at least what it is at 0
        for _ in range(64):
            middle = (low + high) / 2
            low, high = (middle, high) if self.product(middle) < y else (low, middle)
        return high


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


SIGMOID = Gate(_sigmoid)


def hard_sigmoid(alpha: float, beta: float) -> Gate:
    """`clip(alpha * x + beta, 0, 1)` for alpha > 0 and 0 < beta <= 1."""
    return Gate(lambda x: min(max(alpha * x + beta, 0.0), 1.0))


def gate_of(node: Node) -> Optional[Gate]:
    """The gate that a node computes; None for other operators, and where it does not rise or is shut at 0."""
    if node.is_op("Sigmoid"):
        return SIGMOID
    if node.is_op("HardSwish"):
        return hard_sigmoid(1 / 6, 0.5)
    if node.is_op("HardSigmoid"):
        alpha, beta = coefficients(node)
        return hard_sigmoid(alpha, beta) if alpha > 0 and 0 < beta <= 1 else None
    return None


def parts(node: Node, context: Context) -> Optional[tuple[str, Node, Gate]]:
    """(x, the node that computes its gate, that gate) where `node` multiplies x by it."""
    makers = [(node.inputs[0], node)]
    if node.is_op("Mul"):
        pairs = (node.inputs, node.inputs[::-1])
        makers = [(x, context.graph.producer[gate]) for x, gate in pairs if gate in context.graph.producer]
    for x, maker in makers:
        gate = gate_of(maker)
        if gate is not None and maker.inputs[0] == x:
            return x, maker, gate
    return None


def forward(node: Node, context: Context) -> bool:
    found = parts(node, context) if context.lacks(node.outputs[0]) else None
    value = None if found is None else context.scale(found[0])
    if found is None or value is None:
        return False
    x, _, gate = found
    return context.give(node.outputs[0], gate.product(value * INT8_MAX) / INT8_MAX, "S8", node, x, "exact")


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    found = parts(node, context) if value is not None else None
    if found is None or value is None or not context.lacks(found[0]):
        return False
    x, maker, gate = found
    others = [reader for reader in context.graph.consumers(x) if reader is not node and reader is not maker]
    if others or (maker is not node and context.graph.only_consumer(maker.outputs[0]) is not node):
        return False  # they see the clipped values too, and nothing bounds what they make of them
    amax = gate.inverse(value * INT8_MAX)
    note = f"{NOTE}{-amax:.4g} saturate and come out as {gate.product(-amax) + 0.0:.3g}"
    return context.give(x, amax / INT8_MAX, "S8", node, node.outputs[0], note)
