"""What the readers of a tensor can tell apart: the ground of every rule that gives a scale backward (S3, S7, S8, S11).

A reader that saturates (Relu, Clip, data movement whose output has a range, ...) loses nothing by an input that
saturates where its output does anyway. So a tensor gets a scale backward in two cases only:

1. the reader passes all values on, and its output's scale describes all of them (`covers`)
2. no reader loses anything: the largest scale that one of them needs (`reach`)

Any other reader would see values that were cut for a Relu's sake, as the other branch of a residual unit does.
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import is_non_negative
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import PARTS, RESIZES, data_outputs
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.scales.inference import pass_through
from qdq_translator.translation.scales.inference.context import LOWER_BOUND, Context

_SUMS = ("Add", "Sub", "Sum")
_MAY_CUT = ("Relu", "MaxPool", "Clip", "Split", *PARTS, *RESIZES)


def backward(node: Node, context: Context) -> bool:
    """Rule S3: through Relu, Clip and operators that pass their values on."""
    return context.lacks(node.inputs[0]) and hand_back("S3", node, node.inputs[0], context)


def hand_back(rule: str, node: Node, tensor: str, context: Context, note: str = "") -> bool:
    """Gives `tensor`, an input of `node`, the scale that follows from the outputs; True if it did. With `--inference
    reference` also where another reader loses by it, as NVIDIA's translator does; such a range is a lower bound."""
    own = _reach(node, tensor, context) if context.lacks(tensor) else None
    if not own:
        return False
    if not _is_whole(node, tensor, context) or not all(covers(name, context) for name in _used(node, context)):
        largest = _largest(tensor, context)
        if largest is None:  # another reader loses by it
            lower = context.policy.mode == "reference" and not node.is_op(*PARTS)
            return lower and context.give(tensor, own, rule, node, _source(node, own, context), LOWER_BOUND)
        if largest[0] > own:
            rule, own, node, note = "S3", *largest, ""
    return context.give(tensor, own, rule, node, _source(node, own, context), note)


def _largest(tensor: str, context: Context) -> Optional[tuple[float, Node]]:
    """The largest scale that a reader needs, and that reader; None if the need of one is not known."""
    found = [(reach(reader, tensor, context), reader) for reader in context.graph.consumers(tensor)]
    known = [(value, reader) for value, reader in found if value is not None]
    return max(known, key=lambda row: row[0]) if len(known) == len(found) else None


def reach(reader: Node, tensor: str, context: Context) -> Optional[float]:
    """The scale on whose range the reader loses nothing, 0.0 if it reads no values; None if none is known."""
    if reader.is_op("Shape", "Size"):
        return 0.0
    own = _reach(reader, tensor, context)
    if reader.is_op("Clip") and reader.inputs[0] == tensor:
        limits = clip_limits(reader, context)
        bound = max(map(abs, limits)) / INT8_MAX if limits is not None else float("inf")
        own = bound if own is None or bound < own else own
    return None if own == float("inf") else own


def _reach(reader: Node, tensor: str, context: Context) -> Optional[float]:
    """`reach` from the scales of the outputs alone."""
    if tensor in reader.captured or (reader.inputs.count(tensor) != 1 and not reader.is_op("Concat")):
        return None
    factor = 1.0
    if reader.is_op("Mul", "Div"):
        found = by_constant(reader, context)
        if found is None or found[0] != tensor:
            return None
        factor = found[1]
    elif not reader.is_op("Concat"):
        passes = reader.is_op("Clip") or pass_through.applies(reader, context)
        if not passes or reader.inputs[0] != tensor:
            return None
    values = [context.scale(name) for name in _used(reader, context)]
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else max(known, default=0.0) / factor


def _used(node: Node, context: Context) -> list[str]:
    return [name for name in data_outputs(node) if context.graph.is_used(name)]


def _source(node: Node, value: float, context: Context) -> str:
    """The output that determines `value`: the one with the largest scale."""
    return max(_used(node, context) or node.outputs[:1], key=lambda name: context.scale(name) or 0.0)


def covers(tensor: str, context: Context) -> bool:
    """False if the scale describes only what the tensor's readers tell apart, not all of its values."""
    graph = context.graph
    while tensor in context.scales:
        origin = context.scales[tensor].origin
        source = origin.source if origin.source in graph.producer else origin.source.partition(", ")[0]
        reader = graph.producer.get(source)
        if reader is None or reader.name != origin.node or tensor not in reader.inputs:
            return True
        if not _is_whole(reader, tensor, context):
            return False
        tensor = source
    return True


def _is_whole(reader: Node, tensor: str, context: Context) -> bool:
    """Whether the output has all values of the tensor, up to a constant factor or a known addend."""
    if reader.is_op("Concat", *_SUMS):
        return True
    if reader.is_op("Mul", "Div"):
        return (by_constant(reader, context) or ("",))[0] == tensor
    if not reader.is_op(*_MAY_CUT):
        return pass_through.applies(reader, context)
    if reader.is_op("Split"):
        return all(map(context.graph.is_used, reader.outputs))
    if reader.is_op(*RESIZES):
        before, after = (context.types.shape(name) or () for name in (tensor, reader.outputs[0]))
        return not any(isinstance(a, int) and isinstance(b, int) and a < b for a, b in zip(after, before))
    keeps = reader.is_op("Relu") or (reader.is_op("MaxPool") and _without_gaps(reader))
    return keeps and is_non_negative(context.graph, tensor)


def _without_gaps(pool: Node) -> bool:
    """Whether every value is in a window."""
    window = operators.window(pool)
    return window is not None and not window.dilated and all(k >= s for k, s in zip(window.kernel, window.strides))


def clip_limits(node: Node, context: Context) -> Optional[tuple[float, float]]:
    """Constant bounds of a Clip, infinite if absent; None if they are not constant."""
    low, high = operators.clip_bounds(node, context.graph.array)
    return None if low is None or high is None else (low, high)


def by_constant(node: Node, context: Context) -> Optional[tuple[str, float]]:
    """(activation, factor) of a Mul or Div of an activation by a constant whose values all have one magnitude, so that
    input and output determine each other's range; None otherwise, and for a constant of 0."""
    for name, other in (node.inputs, node.inputs[::-1])[: 1 if node.is_op("Div") else 2]:
        least, most = (None if context.graph.is_constant(name) else context.magnitudes(other)) or (0.0, 1.0)
        if least == most:
            return name, 1 / most if node.is_op("Div") else most
    return None
