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
"""What NVIDIA's translator passes scales through."""
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
    given = [context.give(output, value, "S3", node, node.inputs[0]) for output in data_outputs(node)]
    return any(given)


def backward(node: Node, context: Context) -> bool:
    if not context.lacks(node.inputs[0]) or not applies(node, context):
        return False
    tensor = node.inputs[0]
    if not node.is_op(*PARTS):
        return context.give(tensor, context.scale(node.outputs[0]), "S3", node, node.outputs[0])
    best, source = 0.0, ""
    for reader in context.graph.consumers(tensor):
        if reader.inputs[0] != tensor or reader.inputs.count(tensor) > 1 or not applies(reader, context):
            return False
        for output in data_outputs(reader):
            if not context.graph.is_used(output):
                continue
            value = context.scale(output)
            if value is None:
                return False
            if value > best:
                best, source = value, output
    return best > 0 and context.give(tensor, best, "S3", node, source)
