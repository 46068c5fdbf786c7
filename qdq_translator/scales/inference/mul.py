"""Rule S8, with `--infer_mul_scales`: Mul and Div by a constant (exact), and forward the product of two ranges (an upper bound).

`amax_out / amax_b` is only a lower bound of a missing input, so that a scale made from it can only clip: NVIDIA's formulas cost
a trained network with gates 3 points of Top-1 (`e2e_workflow/inference_flags`). `--inference reference` alone gives it.
SiLU, whose input is exactly known from its output, has a module of its own.
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference.context import LOWER_BOUND, Context

OPS = ("Mul",)
BY_CONSTANT_OPS = ("Mul", "Div")


def _constant(node: Node, context: Context) -> Optional[tuple[str, str]]:
    """(activation, constant) of a Mul of the two, or of a Div of the first by the second."""
    if node.is_op("Div"):
        name, other = node.inputs
        return (name, other) if context.graph.is_constant(other) and not context.graph.is_constant(name) else None
    for name, other in (node.inputs, node.inputs[::-1]):
        if context.graph.is_constant(other) and not context.graph.is_constant(name):
            return name, other
    return None


def _factor(node: Node, constant: str, context: Context) -> Optional[float]:
    """What the one magnitude of all its values multiplies by, so that output and input determine each other's range; None
    where there are several, and for 0, which says nothing of the input."""
    magnitudes = context.magnitudes(constant)
    if magnitudes is None or magnitudes[0] != magnitudes[1]:
        return None
    return 1 / magnitudes[1] if node.is_op("Div") else magnitudes[1]


def constant_forward(node: Node, context: Context) -> bool:
    parts = _constant(node, context) if context.lacks(node.outputs[0]) else None
    value = None if parts is None else context.scale(parts[0])
    factor = None if parts is None or value is None else _factor(node, parts[1], context)
    if parts is None or value is None or factor is None:
        return False
    return context.give(node.outputs[0], value * factor, "S8", node, parts[0], "exact")


def constant_backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    parts = None if value is None else _constant(node, context)
    factor = _factor(node, parts[1], context) if parts is not None and context.lacks(parts[0]) else None
    if parts is None or value is None or factor is None:
        return False
    return context.give(parts[0], value / factor, "S8", node, node.outputs[0], "exact")


def product_forward(node: Node, context: Context) -> bool:
    if not context.lacks(node.outputs[0]):
        return False
    a, b = (context.amax(name) for name in node.inputs)
    if a is None or b is None:
        return False
    return context.give(node.outputs[0], a * b / INT8_MAX, "S8", node, ", ".join(node.inputs))


def reference_backward(node: Node, context: Context) -> bool:
    """NVIDIA's formula: two of the three ranges give the third."""
    out = context.amax(node.outputs[0])
    changed = False
    for name, other in (node.inputs, node.inputs[::-1]):
        known = context.amax(other)
        if out is not None and known is not None and context.lacks(name):
            changed |= context.give(
                name, out / known / INT8_MAX, "S8", node, f"{node.outputs[0]}, {other}", LOWER_BOUND
            )
    return changed
