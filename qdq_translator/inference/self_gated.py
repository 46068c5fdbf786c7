"""Rule S8 for what multiplies x by its own gate, with `--infer_mul_scales`: SiLU `x * sigmoid(x)`, Swish `x * sigmoid(b * x)`,
HardSwish (the operator, or `x * HardSigmoid(x)`) and GELU (the operator, or `x * (1 + erf(x / c))`, which half makes GELU of). The
ranges of input and output determine each other.

Backward, `amax_x` is the positive solution of `x * gate(x) = amax_y`: above it y would exceed its own range. Inputs below
`-amax_x` saturate and come out as they do at `-amax_x` instead of nearly 0, which the note of the origin says. Forward,
`amax_y` is what y reaches at `amax_x`. Nothing where something other than the gate and the product reads x, and nothing for
the gate of another tensor.
"""

from __future__ import annotations

import math
from typing import Callable, Optional

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.operators import coefficients, is_exact_gelu
from qdq_translator.qparams import INT8_MAX
from qdq_translator.records import record

OPS = ("Mul", "HardSwish", "Gelu")
NOTE = "exact; inputs below "


@record(frozen=True)
class Gate:
    """A gate that rises from 0 to `top`, so that the product at x is larger than at any smaller magnitude, of either sign."""

    value: Callable[[float], float]
    top: float = 1.0

    def of(self, factor: float) -> Gate:
        """The gate of `factor * x`, for a positive factor."""
        return Gate(lambda x: self.value(factor * x), self.top)

    def product(self, x: float) -> float:
        return x * self.value(x)

    def inverse(self, y: float) -> float:
        """The positive x with `product(x) = y` for y > 0, to the last bits of a double, by bisection."""
        low, high = y / self.top, y / self.value(0.0)  # the gate is at most its top, and at least what it is at 0
        for _ in range(64):
            middle = (low + high) / 2
            low, high = (middle, high) if self.product(middle) < y else (low, middle)
        return high


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


SIGMOID = Gate(_sigmoid)
ONE_AND_ERF = Gate(lambda x: 1 + math.erf(x), 2.0)
GELU = Gate(lambda x: (1 + math.erf(x / math.sqrt(2))) / 2)


def hard_sigmoid(alpha: float, beta: float) -> Gate:
    """`clip(alpha * x + beta, 0, 1)` for alpha > 0 and 0 < beta <= 1."""
    return Gate(lambda x: min(max(alpha * x + beta, 0.0), 1.0))


def gate_of(node: Node) -> Optional[Gate]:
    """The gate that a node computes; None for other operators, and where it does not rise or is shut at 0."""
    if node.is_op("Sigmoid"):
        return SIGMOID
    if node.is_op("HardSwish"):
        return hard_sigmoid(1 / 6, 0.5)
    if is_exact_gelu(node):
        return GELU
    if node.is_op("HardSigmoid"):
        alpha, beta = coefficients(node)
        return hard_sigmoid(alpha, beta) if alpha > 0 and 0 < beta <= 1 else None
    return None


def parts(node: Node, context: Context) -> Optional[tuple[str, list[Node], Gate]]:
    """(x, the nodes that compute its gate, that gate) where `node` multiplies x by it."""
    if not node.is_op("Mul"):
        gate = gate_of(node)
        return None if gate is None else (node.inputs[0], [], gate)
    for x, tensor in (node.inputs, node.inputs[::-1]):
        found = _gate(x, tensor, context)
        if found is not None:
            return x, *found
    return None


def _gate(x: str, tensor: str, context: Context) -> Optional[tuple[list[Node], Gate]]:
    """The nodes between x and its gate `tensor`: perhaps a product with a positive constant, then the gate's own."""
    graph = context.graph
    maker = graph.producer.get(tensor)
    if maker is None:
        return None
    nodes, gate = [maker], gate_of(maker) if not maker.is_op(*OPS) else None
    if maker.is_op("Add"):
        one, other = (graph.scalar(name) for name in maker.inputs)
        erf = graph.producer.get(maker.inputs[0 if one is None else 1])
        if 1.0 in (one, other) and erf is not None and erf.is_op("Erf"):
            nodes, gate = [erf, maker], ONE_AND_ERF
    if gate is None or nodes[0].inputs[0] == x:
        return None if gate is None else (nodes, gate)
    before = graph.producer.get(nodes[0].inputs[0])
    if before is None or not before.is_op("Mul", "Div") or x not in before.inputs:
        return None
    factor = graph.scalar(before.inputs[1 - before.inputs.index(x)])
    if factor is None or not factor > 0 or (before.is_op("Div") and before.inputs[0] != x):
        return None
    return [before, *nodes], gate.of(1 / factor if before.is_op("Div") else factor)


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
    x, makers, gate = found
    way = [*makers, node]
    others = [reader for reader in context.graph.consumers(x) if reader is not node and reader is not way[0]]
    if others or any(context.graph.only_consumer(one.outputs[0]) is not two for one, two in zip(way, way[1:])):
        return False  # they see the clipped values too, and nothing bounds what they make of them
    amax = gate.inverse(value * INT8_MAX)
    note = f"{NOTE}{-amax:.4g} saturate and come out as {gate.product(-amax) + 0.0:.3g}"
    return context.give(x, amax / INT8_MAX, "S8", node, node.outputs[0], note)
