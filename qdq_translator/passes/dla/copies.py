"""Rule D20: Concat over rows or columns becomes Concat of channels.

1. `Concat` over H or W -> over the channels, between Transposes that put them in each other's place

Input and output have one scale, as they had, and so has what is between.

Not: tensors that are not four-dimensional; the batch axis; a Concat of constants.
"""

from __future__ import annotations

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter, Row

RULE = "D20"


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Concat", rewrite=_concat, cured=("K1",))


def _concat(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    graph, target = rewriter.graph, node.outputs[0]
    axis, rank = operators.axis(node, graph.opset()), rewriter.types.rank(target)
    if rank != 4 or axis in (0, -4) or any(graph.is_constant(name) for name in node.inputs):
        return "it does not join rows or columns of activations with four dimensions"
    order = [0, 2, 1, 3] if axis in (2, -2) else [0, 3, 2, 1]
    row = Row(rewriter, node)
    parts = []
    for number, name in enumerate(node.inputs):
        row.current = name
        parts.append(row.add("Transpose", f"part{number}", perm=order))
    row.current = parts[0]
    row.add("Concat", "channels", *parts[1:], axis=1)
    row.add("Transpose", "back", perm=order)
    row.put(RULE)
    for layer in (*row.nodes[:-2], row.nodes[-1]):
        rewriter.same_scale(RULE, layer.inputs[0], layer.outputs[0], layer)
    return ""
