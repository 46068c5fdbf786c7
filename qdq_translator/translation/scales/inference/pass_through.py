"""Rule S3: operators that pass their values on, so that input and output share one scale.

Forward, every value of the output is a value of the input (or its mean, with rule S6). Backward: `readers`.
"""

from __future__ import annotations

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import (
    RESIZES,
    data_outputs,
    in_training,
    mode,
    pad_value,
    takes_nearest,
)
from qdq_translator.translation.scales.inference.context import Context

DEFAULT_OPS = where(scale="nvidia")
"""Operators that NVIDIA's translator passes scales through."""
OPS = where(scale="nvidia whole part nearest")
_ALWAYS = frozenset(OPS) - {"Dropout", "Pad", *RESIZES}


def applies(node: Node, context: Context) -> bool:
    if node.op_type in _ALWAYS and node.is_standard:
        return True
    if node.is_op(*RESIZES):
        return takes_nearest(node)
    if node.is_op("Dropout"):
        return not in_training(node, context.graph.array)
    if node.is_op("Pad"):
        return _pads_within(node, context)
    return node.op_type in context.policy.passed


def _pads_within(node: Node, context: Context) -> bool:
    """False for a constant Pad with a value outside the range of the scale: no pass-through."""
    if mode(node) != "constant":
        return True
    value = pad_value(node, context.graph.array)
    if value is None:
        return False
    known = context.scale(node.inputs[0]) or context.scale(node.outputs[0])
    return value == 0 or (known is not None and -128 * known <= value <= 127 * known)


def forward(node: Node, context: Context) -> bool:
    value = context.scale(node.inputs[0])
    if value is None or not applies(node, context):
        return False
    return context.give_all(data_outputs(node), value, "S3", node, node.inputs[0])
