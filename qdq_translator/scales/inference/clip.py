"""Rule S3 for Clip: forward, the output gets the input's range after the clamp; backward, the input takes the output's
scale, because int8 saturation and the clamp cut the same values."""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import clip_bounds
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference.context import Context

OPS = ("Clip",)


def bounds(node: Node, context: Context) -> Optional[tuple[float, float]]:
    """Constant bounds, infinite where there is none; None where they are not constant."""
    low, high = clip_bounds(node, context.graph.array)
    return None if low is None or high is None else (low, high)


def forward(node: Node, context: Context) -> bool:
    value = context.scale(node.inputs[0])
    if value is None:
        return False
    limits = bounds(node, context)
    if limits is None:
        return False
    ends = (-value * INT8_MAX, value * INT8_MAX)
    clamped = max(abs(min(max(end, limits[0]), limits[1])) for end in ends)
    if clamped != ends[1]:
        value = clamped / INT8_MAX
    return context.give(node.outputs[0], value, "S3", node, node.inputs[0])


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    return value is not None and context.give(node.inputs[0], value, "S3", node, node.outputs[0])
