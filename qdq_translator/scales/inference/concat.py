"""Rule S7, with `--infer_concat_scales`: a missing output takes the largest input scale, missing inputs take the output's
scale; scales that exist stay (what the DLA makes of unequal ones: fact 5.9, `--unify_scales`).

Where some inputs have none, the largest *known* scale is only a lower bound of the output's (`partly_forward`): it is given
last, after every other rule had its turn at those inputs.
"""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference.context import LOWER_BOUND, Context

OPS = ("Concat",)


def forward(node: Node, context: Context) -> bool:
    if not context.lacks(node.outputs[0]):
        return False
    ranges = [context.amax(name) for name in node.inputs]
    known = [amax for amax in ranges if amax is not None]
    if len(known) < len(ranges):
        return False
    largest = max(known)
    return context.give(node.outputs[0], largest / INT8_MAX, "S7", node, node.inputs[ranges.index(largest)])


def partly_forward(node: Node, context: Context) -> bool:
    if not context.lacks(node.outputs[0]):
        return False
    known = [(context.scale(name) or 0.0, name) for name in node.inputs if context.scale(name) is not None]
    if not known:
        return False
    value, source = max(known, key=lambda pair: pair[0])
    return context.give(
        node.outputs[0], value, "S7", node, source, LOWER_BOUND if len(known) < len(node.inputs) else ""
    )


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    if value is None:
        return False
    changed = False
    for name in node.inputs:
        changed |= context.give(name, value, "S7", node, node.outputs[0])
    return changed
