"""Rule S8 for products of x and its own gate, with `--infer_mul_scales`. SiLU `x * sigmoid(x)`, Swish `x * sigmoid(b *
x)`, HardSwish (the operator, or `x * HardSigmoid(x)`) and GELU (the operator, or `x * (1 + erf(x / c))`, half of which
is GELU; also in the forms of rules D9 and D22). The ranges of input and output determine each other.

Backward, `amax_x` is the positive solution of `x * gate(x) = amax_y`: above it y would exceed its own range. Inputs
below `-amax_x` saturate and give the result at `-amax_x` instead of nearly 0, as noted in the origin. Forward, `amax_y`
is the value of y at `amax_x`. The rule does not apply if anything but the gate and the product reads x, or to the gate
of another tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np

from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import coefficients, is_exact_gelu, scale_layer
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.scales.inference.context import Context

OPS = ("Mul", "HardSwish", "Gelu")
NOTE = "exact; inputs below "
ERF_LINEAR = 2 / math.sqrt(math.pi)
ERF_CUBIC = ERF_LINEAR * 2 * 0.044715
"""`Erf(x)` is nearly `Tanh(ERF_LINEAR * x + ERF_CUBIC * x**3)` (rule D22)."""


@dataclass(frozen=True)
class Gate:
    """A gate that rises from 0 to `top`, so that the product at x is larger than at any smaller magnitude, of either
    sign."""

    value: Callable[[float], float]
    top: float = 1.0

    def of(self, factor: float) -> Gate:
        """The gate of `factor * x`, for a positive factor."""
        return Gate(lambda x: self.value(factor * x), self.top)

    def product(self, x: float) -> float:
        return x * self.value(x)

    def inverse(self, y: float) -> float:
        """The positive x with `product(x) = y` for y > 0, to the last bits of a double, by bisection."""
        low, high = y / self.top, y / self.value(0.0)  # the gate is between its value at 0 and its top
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
    """Gate computed by a node; None for other operators, and for a gate that does not rise or is 0 at x = 0."""
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
    """(x, the nodes that compute its gate, the gate) if `node` computes `x * gate(x)`, else None."""
    if not node.is_op("Mul"):
        gate = gate_of(node)
        return None if gate is None else (node.inputs[0], [], gate)
    for x, tensor in (node.inputs, node.inputs[::-1]):
        found = _gate(x, tensor, context)
        if found is not None:
            return x, *found
    return None


def _gate(x: str, tensor: str, context: Context) -> Optional[tuple[list[Node], Gate]]:
    """The nodes between x and its gate `tensor`: optionally a product with a positive constant, then those of the
    gate."""
    graph = context.graph
    maker = graph.producer.get(tensor)
    if maker is None:
        return None
    nodes, gate = [maker], gate_of(maker) if not maker.is_op(*OPS) else None
    if maker.is_op("Add"):
        one, other = (graph.scalar(name) for name in maker.inputs)
        erf = _error_function(maker.inputs[0 if one is None else 1], graph)
        if 1.0 in (one, other) and erf:
            nodes, gate = [*erf, maker], ONE_AND_ERF
    if gate is None or nodes[0].inputs[0] == x:
        return None if gate is None else (nodes, gate)
    before = graph.producer.get(nodes[0].inputs[0])
    factor = _factor(before, x, graph) if before is not None else None
    return None if before is None or factor is None or not factor > 0 else ([before, *nodes], gate.of(factor))


def _factor(node: Node, x: str, graph: Graph) -> Optional[float]:
    """The factor of a `node` that only multiplies x by a constant: a Mul, a Div, or the Scale into which rule D9
    rewrites them; else None."""
    if x not in node.inputs:
        return None
    if node.is_op("BatchNormalization"):
        scale = scale_layer(node, graph.array)
        return None if scale is None or np.ptp(scale[0]) or np.any(scale[1]) else float(scale[0][0])
    value = graph.scalar(node.inputs[1 - node.inputs.index(x)]) if node.is_op("Mul", "Div") else None
    if value is None or (node.is_op("Div") and node.inputs[0] != x):
        return None
    return 1 / value if node.is_op("Div") and value else value


def _error_function(tensor: str, graph: Graph) -> list[Node]:
    """Nodes that compute `tensor` as the error function of the first node's input; [] for other functions."""
    maker = graph.producer.get(tensor)
    if maker is not None and maker.is_op("Erf"):
        return [maker]
    found: list[Node] = []
    for op in ("Tanh", "Mul", "BatchNormalization", "Mul"):  # Tanh(x * (a * x * x + b)), rule D22, from last to first
        maker = graph.producer.get(tensor)
        if maker is None or not maker.is_op(op):
            return []
        found.insert(0, maker)
        tensor = maker.inputs[0]
    square, factor, product, _ = found
    scale = scale_layer(factor, graph.array)
    of_one = {*square.inputs, product.inputs[1]} == {square.inputs[0]}
    if scale is None or not of_one or not np.allclose(scale[0], ERF_CUBIC) or not np.allclose(scale[1], ERF_LINEAR):
        return []
    return found


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
    graph, inside = context.graph, {id(one) for one in (*makers, node)}
    between = [one.outputs[0] for one in makers]
    readers = [reader for name in (x, *between) for reader in graph.consumers(name)]
    if any(name in graph.outputs for name in between) or any(id(reader) not in inside for reader in readers):
        return False  # they also read the clipped values, and nothing bounds the resulting error
    amax = gate.inverse(value * INT8_MAX)
    note = f"{NOTE}{-amax:.4g} saturate and come out as {gate.product(-amax) + 0.0:.3g}"
    return context.give(x, amax / INT8_MAX, "S8", node, node.outputs[0], note)
