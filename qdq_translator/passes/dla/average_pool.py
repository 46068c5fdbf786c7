"""Rule D14 (Xavier): AveragePool that leaves its padding out of the average becomes one that counts it, and a product.

1. `AveragePool(count_include_pad=0, pads)` -> `AveragePool(count_include_pad=1, pads)`, times a constant of the output's
   shape [1, C, H', W']: window size / number of values in the window that are no padding.

The tensor between has the scale of the pooling's input (the DLA requires one for both, NvInfer.h) if the result has one.
Not: ceil_mode; dilation; unknown sizes; targets that support the layer as it is (Orin).
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D14"


def apply(rewriter: Rewriter) -> None:
    rewriter.each("AveragePool", rewrite=_rewrite, cured=("P6",))


def _rewrite(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    source, target = node.inputs[0], node.outputs[0]
    image, out = rewriter.image(source), rewriter.image(target)
    pads, dtype = rewriter.pads(node), rewriter.dtype(source)
    window = operators.window(node)
    if image is None or out is None or pads is None or dtype is None or window is None:
        return "its sizes are not known"
    if window.rounds_up or window.dilated:
        return "it rounds sizes up, or is dilated"
    rewriter.afford(node.name, *out[1:])
    kernel, strides = window.kernel, window.strides
    ratios = []
    for axis in range(2):
        starts = np.arange(out[2:][axis]) * strides[axis] - pads[axis]
        inside = np.minimum(starts + kernel[axis], image[2:][axis]) - np.maximum(starts, 0)
        ratios.append(kernel[axis] / inside)
    factor = np.broadcast_to(ratios[0][:, None] * ratios[1][None, :], (1, *out[1:])).astype(dtype)
    summed = rewriter.tensor(f"{target}_with_padding")
    pool = Node("AveragePool", [source], [summed], rewriter.node(f"{node.name}_with_padding"))
    pool.attributes = {k: v for k, v in node.attributes.items() if k != "auto_pad"}
    pool.set("pads", pads)
    pool.set("count_include_pad", 1)
    product = Node("Mul", [summed, rewriter.constant(f"{node.name}.factor", factor)], [target], node.name)
    rewriter.replace(RULE, node, [pool, product])
    rewriter.derive(RULE, summed, source, pool, needs=[target], note="scale of the pooling's input")
    return ""
