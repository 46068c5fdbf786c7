"""Rule S7, with `--infer_concat_scales`: a missing output takes the largest known input scale, missing inputs take the
output's scale; scales that exist stay (what the DLA makes of unequal ones: fact sheet 5.9, `--unify_scales`)."""

from __future__ import annotations

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context

OPS = ("Concat",)


def _wanted(context: Context) -> bool:
    options = context.options
    return options.infer_concat_scales or "Concat" in options.addtl_ops_to_infer_adjacent_scales


def forward(node: Node, context: Context) -> bool:
    if not _wanted(context) or not context.lacks(node.outputs[0]):
        return False
    known = [(context.scale(name) or 0.0, name) for name in node.inputs if context.scale(name) is not None]
    if not known:
        return False
    value, source = max(known, key=lambda pair: pair[0])
    return context.give(node.outputs[0], value, "S7", node, source)


def backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    if not _wanted(context) or value is None:
        return False
    changed = False
    for name in node.inputs:
        changed |= context.give(name, value, "S7", node, node.outputs[0])
    return changed
