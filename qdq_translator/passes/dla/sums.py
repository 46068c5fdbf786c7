"""Rule D8: Mean of several inputs becomes a Sum and a Scale.

1. `Mean(a, b, ...)` -> `Sum(a, b, ...)`, then a Scale by 1/n

The sum gets n times the output's scale. (Rule F8 makes two-input layers of a Sum of more.)
Not: Mean of one input (rule D2); tensors that are not four-dimensional; an unknown number of channels.
"""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D8"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Mean"):
        count, target = len(node.inputs), node.outputs[0]
        if count < 2 or not rewriter.types.is_float(target):
            continue
        channels, dtype = rewriter.channels(target), rewriter.dtype(target)
        if channels is None or dtype is None:
            rewriter.leave(node, "its output does not have four dimensions with a known number of channels")
            continue
        summed = rewriter.tensor(f"{target}_sum")
        total = Node("Sum", node.inputs, [summed], rewriter.node(f"{node.name}_sum"))
        scale = rewriter.scale_layer(summed, target, channels, 1 / count, 0.0, node.name, dtype)
        rewriter.replace(RULE, node, [total, scale])
        rewriter.derive(RULE, summed, target, total, factor=float(count), note=f"{count} times the output's scale")
