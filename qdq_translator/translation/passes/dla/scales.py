"""Rule D9: Neg, Div by a constant, Mean of several inputs, and nodes that only change the scale become a Scale.

1. `Neg(x)`    -> x * -1
2. `Div(x, c)` -> x * (1 / c), c one number or one per channel; if the DLA has no Div (TensorRT below 8.6.12)

3. A node that only requantizes: it is between two different scales of the model's own (a Concat of one tensor in
   DenseNet) -> x * 1
4. `Mean(a, b, ...)` -> `Sum(a, b, ...)`, then a Scale by 1 / n; the sum gets n times the output's scale. (Rule F8 makes
   two-input layers of a Sum of more.)
5. With `--unify_scales requantize`, inputs x of layers with a shared range -> x * 1 in that range, if other layers read
   x in its own; kept if held-out samples gain 0.3 dB

A Scale is a BatchNormalization with mean 0 and variance 1. If the output of case 1, or of case 2 with one number, has
no scale, it gets the input's times the factor, which is exact.

Not: tensors that are not four-dimensional; an unknown number of channels; c with a 0; c of another shape; c / x;
Mean of one input (rule D2).
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.cleanup import remove_unused_initializers
from qdq_translator.translation.passes.dla.rewriter import NO_IMAGE, Rewriter, Row
from qdq_translator.translation.passes.editor import known, stay_if
from qdq_translator.translation.passes.no_ops import NO_OPS, changes_nothing, kept_input

RULE = "D9"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Mean"):
        if len(node.inputs) > 1 and rewriter.is_float(node.outputs[0]):
            rewriter.attempt(_mean, node)
    for node in rewriter.nodes("Neg", "Div", *NO_OPS):
        nothing = changes_nothing(rewriter.network, node) and len(node.outputs) == 1
        if not nothing and not node.is_op("Neg", "Div"):
            continue
        if rewriter.dtype(node.outputs[0]) is not None and rewriter.rejected(node):
            rewriter.attempt(_scale, node, nothing)


def _scale(rewriter: Rewriter, node: Node, nothing: bool) -> None:
    """Cases 1 to 3."""
    source, target = node.inputs[0], node.outputs[0]
    channels, dtype = rewriter.width(source), rewriter.dtype(source)
    stay_if(rewriter.types.shape(source) != rewriter.types.shape(target), NO_IMAGE)
    if nothing:
        source, factor = node.inputs[kept_input(rewriter.graph, node)], np.array(1.0)
    else:
        factor = np.array(-1.0) if node.is_op("Neg") else _reciprocal(rewriter, node, channels)
    layer = rewriter.scale_layer(source, target, channels, factor, 0.0, node.name, dtype)
    rewriter.replace(RULE, node, [layer])
    if factor.size == 1 and not nothing:
        by = abs(float(factor))
        rewriter.derive(RULE, target, source, layer, factor=by, note=f"{by:.4g} times the input's")


def apart(rewriter: Rewriter, readers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Case 5: add Scales to four-dimensional tensors and return them. readers: tensor -> nodes that read its Scale."""
    layers = []
    for source, nodes in readers.items():
        channels, name = rewriter.channels(source), rewriter.node(f"{nodes[0].name}_requantize")
        if channels is not None:
            target = rewriter.tensor(f"{source}_requantized")
            layer = rewriter.scale_layer(source, target, channels, 1.0, 0.0, name, rewriter.dtype(source))
            rewriter.graph.insert_behind(source, [layer])
            for node in nodes:
                rewriter.graph.replace_use(node, source, target)
            rewriter.note(RULE, nodes, [layer, *nodes], new=[target])
            layers.append(layer)
    rewriter.network.changed()
    return layers


def joined(rewriter: Rewriter, layers: Sequence[Node]) -> None:
    """Removes Scales of case 5."""
    for layer in layers:
        rewriter.graph.replace_uses(layer.outputs[0], layer.inputs[0])
        rewriter.graph.remove(layer)
    remove_unused_initializers(rewriter.graph)
    rewriter.network.changed()


def _mean(rewriter: Rewriter, node: Node) -> None:
    """Case 4."""
    count, target = len(node.inputs), node.outputs[0]
    row, channels = Row(rewriter, node), rewriter.width(target)
    row.add("Sum", "sum", *node.inputs[1:])
    row.scale("mean", channels, 1 / count)
    row.put(RULE)
    summed = row.nodes[0]
    rewriter.derive(
        RULE, summed.outputs[0], target, summed, factor=float(count), note=f"{count} times the output's scale"
    )


def _reciprocal(rewriter: Rewriter, node: Node, channels: int) -> np.ndarray:
    why = "it does not divide by one constant, or one a channel"
    stay_if(rewriter.graph.is_constant(node.inputs[0]), why)
    values = known(rewriter.graph.array(node.inputs[1]), why)
    single = values.size == 1
    stay_if(not np.all(values) or not (single or values.shape in ((channels, 1, 1), (1, channels, 1, 1))), why)
    return np.asarray(1.0 / values.reshape(() if single else -1).astype(np.float64))
