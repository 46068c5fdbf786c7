"""Rule D9: Neg, Div by a constant, Mean of several inputs, and nodes that only change the scale become a Scale.

1. `Neg(x)`    -> x * -1
2. `Div(x, c)` -> x * (1 / c), c one number or one a channel; where the DLA has no Div (TensorRT below 8.6.12)

3. A node that changes nothing but stands between two different scales of the model's own (a Concat of one tensor in
   DenseNet): the requantization is its work -> x * 1
4. `Mean(a, b, ...)` -> `Sum(a, b, ...)`, then a Scale by 1 / n; the sum gets n times the output's scale. (Rule F8 makes two-input
   layers of a Sum of more.)

A Scale is a BatchNormalization with mean 0 and variance 1. Without a scale of its own, the output of case 1, and of
case 2 with one number, gets the input's times the factor, which is exact.

Not: tensors that are not four-dimensional; an unknown number of channels; c with a 0; c of another shape; c / x;
Mean of one input (rule D2).
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter
from qdq_translator.passes.no_ops import NO_OPS, changes_nothing, kept_input

RULE = "D9"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Mean"):
        if len(node.inputs) > 1 and rewriter.is_float(node.outputs[0]):
            _mean(rewriter, node)
    for node in rewriter.nodes("Neg", "Div", *NO_OPS):
        nothing = changes_nothing(rewriter.network, node) and len(node.outputs) == 1
        if not nothing and not node.is_op("Neg", "Div"):
            continue
        source, target = node.inputs[0], node.outputs[0]
        if rewriter.dtype(target) is None or not rewriter.rejected(node):
            continue
        channels, dtype = rewriter.channels(source), rewriter.dtype(source)
        if channels is None or rewriter.types.shape(source) != rewriter.types.shape(target):
            rewriter.leave(node, "its input does not have four dimensions with a known number of channels")
            continue
        if nothing:
            source = node.inputs[kept_input(rewriter.graph, node)]
            factor: Optional[np.ndarray] = np.array(1.0)
        else:
            factor = np.array(-1.0) if node.is_op("Neg") else _reciprocal(rewriter, node, channels)
        if factor is None:
            rewriter.leave(node, "it does not divide by one constant, or one a channel")
            continue
        layer = rewriter.scale_layer(source, target, channels, factor, 0.0, node.name, dtype)
        rewriter.replace(RULE, node, [layer])
        if factor.size == 1 and not nothing:
            by = abs(float(factor))
            rewriter.derive(RULE, target, source, layer, factor=by, note=f"{by:.4g} times the input's")


def _mean(rewriter: Rewriter, node: Node) -> None:
    """Case 4."""
    count, target = len(node.inputs), node.outputs[0]
    channels, dtype = rewriter.channels(target), rewriter.dtype(target)
    if channels is None or dtype is None:
        rewriter.leave(node, "its output does not have four dimensions with a known number of channels")
        return
    summed = rewriter.tensor(f"{target}_sum")
    total = Node("Sum", node.inputs, [summed], rewriter.node(f"{node.name}_sum"))
    scale = rewriter.scale_layer(summed, target, channels, 1 / count, 0.0, node.name, dtype)
    rewriter.replace(RULE, node, [total, scale])
    rewriter.derive(RULE, summed, target, total, factor=float(count), note=f"{count} times the output's scale")


def _reciprocal(rewriter: Rewriter, node: Node, channels: int) -> Optional[np.ndarray]:
    values = rewriter.graph.array(node.inputs[1]) if not rewriter.graph.is_constant(node.inputs[0]) else None
    if values is None or not np.all(values):
        return None
    if values.size == 1:
        return 1.0 / values.reshape(()).astype(np.float64)
    if values.shape in ((channels, 1, 1), (1, channels, 1, 1)):
        return 1.0 / values.reshape(-1).astype(np.float64)
    return None
