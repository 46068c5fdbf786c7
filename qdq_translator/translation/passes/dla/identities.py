"""Rule D2: nodes without effect are removed, because TensorRT's identity layer does not run on the DLA.

1. As rule F7 on every target, for nodes that have no effect now that rule D1 has made shapes and indices constant.

Not: between two tensors with different scales of their own; a graph output made from a graph input; a graph output made
from a constant; a graph output made from a tensor that others read; a Dropout in training mode; a Dropout whose mask is
in use. Rule F7 leaves these too, and rule D9 makes a Scale of them if possible.
"""

from __future__ import annotations

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.no_ops import NO_OPS, changes_nothing, take_out

RULE = "D2"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes(*NO_OPS):
        if changes_nothing(rewriter.network, node):
            rewriter.attempt(_take_out, node)


def _take_out(rewriter: Rewriter, node: Node) -> None:
    rewriter.note(RULE, [node], [], take_out(rewriter.network, node))
