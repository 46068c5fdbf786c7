"""Rule D7: HardSigmoid and HardSwish become Scale, clipped Relu and product.

1. `HardSigmoid(x) = Clip(alpha * x + beta, 0, 1)`
2. `HardSwish(x)   = x * Clip(r / 6 * (x + 3), 0, r) / r`, where r is the range of x (its scale times 127; at least 1 and at
   most 127, as the DLA requires of a clipped Relu), or 6 where x has no scale of the model's own. Both factors of the product
   then have the same range, as the DLA requires (NvInfer.h), and neither loses resolution for it.

A Scale is a BatchNormalization with mean 0 and variance 1; the clipped Relu is a Clip from 0.

Scales of the new tensors, given only where the original's output has one: before HardSigmoid's Clip the output's (int8
saturation and the clamp cut the same values); HardSwish's Scale and Clip r/127, for the same reason; its product r times the
output's.
Not: tensors that are not four-dimensional; an unknown number of channels.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.graph import Node
from qdq_translator.operators import coefficients
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D7"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("HardSigmoid", "HardSwish"):
        if not rewriter.rejected(node):
            continue
        channels = rewriter.channels(node.inputs[0])
        if channels is None:
            rewriter.leave(node, "its input does not have four dimensions with a known number of channels")
        elif node.is_op("HardSigmoid"):
            _hard_sigmoid(rewriter, node, channels)
        else:
            _hard_swish(rewriter, node, channels)


def _clip(rewriter: Rewriter, source: str, target: str, high: float, name: str, dtype: type) -> Node:
    if rewriter.graph.opset() < 11:
        return Node("Clip", [source], [target], name, min=0.0, max=high)
    low = rewriter.constant(f"{name}.min", np.array(0, dtype))
    return Node("Clip", [source, low, rewriter.constant(f"{name}.max", np.array(high, dtype))], [target], name)


def _hard_sigmoid(rewriter: Rewriter, node: Node, channels: int) -> None:
    source, target = node.inputs[0], node.outputs[0]
    dtype = rewriter.dtype(source)
    assert dtype is not None
    scaled = rewriter.tensor(f"{target}_scaled")
    alpha, beta = coefficients(node)
    layer = rewriter.scale_layer(source, scaled, channels, alpha, beta, rewriter.node(f"{node.name}_scale"), dtype)
    rewriter.replace(RULE, node, [layer, _clip(rewriter, scaled, target, 1.0, node.name, dtype)])
    rewriter.derive(RULE, scaled, target, layer, note="scale of the clipped values")


def _hard_swish(rewriter: Rewriter, node: Node, channels: int) -> None:
    source, target = node.inputs[0], node.outputs[0]
    dtype = rewriter.dtype(source)
    assert dtype is not None
    shifted, gate, product = (rewriter.tensor(f"{target}_{part}") for part in ("shifted", "gate", "product"))
    own = rewriter.scales.value(source)
    bound = 6.0 if own is None else min(max(127 * own, 1.0), 127.0)
    names = [rewriter.node(f"{node.name}_{part}") for part in ("shift", "clip", "product")]
    nodes = [
        rewriter.scale_layer(source, shifted, channels, bound / 6, bound / 2, names[0], dtype),
        _clip(rewriter, shifted, gate, bound, names[1], dtype),
        Node("Mul", [source, gate], [product], names[2]),
        rewriter.scale_layer(product, target, channels, 1 / bound, 0.0, node.name, dtype),
    ]
    rewriter.replace(RULE, node, nodes)
    for name, layer in ((shifted, nodes[0]), (gate, nodes[1])):
        rewriter.derive(RULE, name, source, layer, 0.0, bound / 127, needs=[target], note="range of the clamp")
    rewriter.derive(RULE, product, target, nodes[2], factor=bound, note=f"{bound:.4g} times the output's range")
