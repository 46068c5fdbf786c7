"""Rule D10: a Pad that cannot be folded (rule F2) becomes a Conv that copies.

1. `Pad(0)` of H and W -> a depthwise Conv whose kernel has a single 1. With t rows above and b below: kernel t + b + 1,
   padding t + b on both sides, the 1 at row b. Output row i is input row i - t, 0 where there is none; left and right
   likewise.
2. `Pad(0)` of channels -> a 1x1 Conv whose weight is the identity matrix with rows of zeros for the new channels.
3. `Pad` of H, W and channels -> both, one after the other.

A weight of 1 is quantized as 127: exact in INT8. Input and output have one scale, as they had (rule S3), and so has the tensor
between the two Convs. The Conv multiplies (C * (t + b + 1) * (l + r + 1) * H * W), which the report counts as MACs.
Not: a value other than 0; modes other than constant; negative padding; the batch axis; more than 31 in one direction
together; unknown channels; tensors that are not four-dimensional.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import NO_IMAGE, Rewriter

RULE = "D10"


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Pad", rewrite=_rewrite)


def _rewrite(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    channels, dtype = rewriter.channels(node.inputs[0]), rewriter.dtype(node.inputs[0])
    pads = operators.pads(node, rewriter.graph.array)
    if channels is None or dtype is None:
        return NO_IMAGE
    if pads is None or len(pads) != 8 or operators.pad_value(node, rewriter.graph.array) != 0:
        return "it does not pad with constant zeros"
    if min(pads) < 0 or pads[0] or pads[4]:
        return "it cuts off, or pads the batch axis"
    if max(pads[2] + pads[6], pads[3] + pads[7]) > 31:
        return "more than 31 rows or columns together"
    nodes = copying_convs(rewriter, node, pads, channels, dtype)
    if not nodes:
        return "it pads by nothing, and rule F7 leaves it"
    rewriter.replace(RULE, node, nodes)
    for layer in nodes:
        rewriter.same_scale(RULE, layer.inputs[0], layer.outputs[0], layer)
    return ""


def copying_convs(rewriter: Rewriter, node: Node, pads: list[int], channels: int, dtype: type) -> list[Node]:
    """Convs equivalent to the 4-D Pad `node`, from its input to its output; pads: as in its own parameter."""
    top, left, bottom, right = pads[2], pads[3], pads[6], pads[7]
    before, behind = pads[1], pads[5]
    current, nodes = node.inputs[0], []  # type: str, list[Node]
    if top or left or bottom or right:
        last = not (before or behind)
        height, width = top + bottom, left + right
        rewriter.afford(node.name, channels, height + 1, width + 1)
        weight: np.ndarray = np.zeros((channels, 1, height + 1, width + 1), dtype)
        weight[:, :, bottom, right] = 1
        output = node.outputs[0] if last else rewriter.tensor(f"{node.outputs[0]}_spatial")
        name = node.name if last else rewriter.node(f"{node.name}_spatial")
        inputs = [current, rewriter.constant(f"{name}.weight", weight)]
        nodes.append(
            Node(
                "Conv",
                inputs,
                [output],
                name,
                kernel_shape=[height + 1, width + 1],
                pads=[height, width] * 2,
                group=channels,
            )
        )
        current = output
    if before or behind:
        rewriter.afford(node.name, before + channels + behind, channels)
        weight = np.zeros((before + channels + behind, channels, 1, 1), dtype)
        weight[before : before + channels, :, 0, 0] = np.eye(channels, dtype=dtype)
        inputs = [current, rewriter.constant(f"{node.name}.weight", weight)]
        nodes.append(Node("Conv", inputs, [node.outputs[0]], node.name, kernel_shape=[1, 1]))
    return nodes
