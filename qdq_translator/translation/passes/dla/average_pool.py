"""Rule D14 (Xavier): AveragePool that leaves its padding out of the average becomes one that counts it, and a product.

1. `AveragePool(count_include_pad=0, pads)` -> `AveragePool(count_include_pad=1, pads)`, times a constant of the
   output's shape [1, C, H', W']: window size / number of values in the window that are not padding.

The tensor between has the scale of the pooling's input (the DLA requires one scale for both, NvInfer.h) if the result
has one.
Not: ceil_mode; dilation; unknown sizes; targets that support the layer as it is (Orin).
"""

from __future__ import annotations

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import Rewriter, Row
from qdq_translator.translation.passes.editor import stay_if

RULE = "D14"
OPERATORS, CURED = ("AveragePool",), ("P6",)


def rewrite(rewriter: Rewriter, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    image, out = rewriter.sized(source), rewriter.sized(target)
    window, pads = rewriter.window(node)
    stay_if(window.rounds_up or window.dilated, "it rounds sizes up, or is dilated")
    rewriter.afford(node.name, *out[1:])
    ratios = []
    for kernel, stride, pad, size, count in zip(window.kernel, window.strides, pads, image[2:], out[2:]):
        starts = np.arange(count) * stride - pad
        ratios.append(kernel / (np.minimum(starts + kernel, size) - np.maximum(starts, 0)))
    factor = np.broadcast_to(np.outer(*ratios), (1, *out[1:])).astype(rewriter.dtype(source))
    row = Row(rewriter, node)
    row.add("AveragePool", "with_padding")
    row.nodes[0].attributes = {k: v for k, v in node.attributes.items() if k != "auto_pad"}
    row.nodes[0].set("pads", pads)
    row.nodes[0].set("count_include_pad", 1)
    row.add("Mul", "product", rewriter.constant(f"{node.name}.factor", factor))
    row.put(RULE)
    row.derive(row.nodes[:1], source, note="scale of the pooling's input")
