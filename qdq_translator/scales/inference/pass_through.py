"""Rule S3: operators that pass their values on, so that input and output share one scale.

Forward, every value of the output is a value of the input (or its mean, with rule S6). Backward, an operator that
passes on only a part (Slice, Split, Gather) does not cover the rest: its input gets a scale only if every reader of the
input has one, and then the largest.
"""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import PARTS, RESIZES, data_outputs, in_training, mode, pad_value, takes_nearest
from qdq_translator.scales.inference.context import Context

DEFAULT_OPS = ("MaxPool", "Flatten", "Relu", "Pad", "Transpose", "Reshape", "Squeeze")
"""Operators that NVIDIA's translator passes scales through."""
WHOLE_OPS = ("Unsqueeze", "Identity", "Dropout", "Expand", "DepthToSpace", "SpaceToDepth", "Tile", "Cast")
OPS = (*DEFAULT_OPS, *WHOLE_OPS, *PARTS, *RESIZES)
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


def backward(node: Node, context: Context) -> bool:
    if not context.lacks(node.inputs[0]) or not applies(node, context):
        return False
    tensor = node.inputs[0]
    if not node.is_op(*PARTS):
        return context.give(tensor, context.scale(node.outputs[0]), "S3", node, node.outputs[0])
    readers = context.graph.consumers(tensor)
    # any other reader, also one with the tensor as parameter, sees values that no output bounds
    if not all(one.inputs[0] == tensor and one.inputs.count(tensor) == 1 and applies(one, context) for one in readers):
        return False
    outputs = [name for one in readers for name in data_outputs(one) if context.graph.is_used(name)]
    values = [context.scale(name) for name in outputs]
    if not outputs or None in values:
        return False
    largest = max(filter(None, values))
    return context.give(tensor, largest, "S3", node, outputs[values.index(largest)])
