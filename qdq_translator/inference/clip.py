"""Rule S3 for Clip: forward, the output gets the narrower of the input's range and the bounds; backward, the input
takes the output's scale, because int8 saturation and the clamp cut the same values."""

from __future__ import annotations

from typing import Optional

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.qparams import INT8_MAX

OPS = ("Clip",)


def bounds(node: Node, context: Context) -> tuple[Optional[float], Optional[float]]:
    """Constant bounds; None where there is none or it is not constant."""
    found = []
    for index, key in ((1, "min"), (2, "max")):
        found.append(context.graph.scalar(node.input(index)) if node.input(index) else node.get(key))
    return found[0], found[1]


def forward(node: Node, context: Context) -> bool:
    value = context.scale(node.inputs[0])
    if value is None:
        return False
    low, high = bounds(node, context)
    if low is not None and high is not None and max(abs(low), abs(high)) > 0:
        value = min(value, max(abs(low), abs(high)) / INT8_MAX)
    return context.give(node.outputs[0], value, "S3", node, node.inputs[0])


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    return value is not None and context.give(node.inputs[0], value, "S3", node, node.outputs[0])
