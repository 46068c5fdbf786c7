"""Rule D24: a Conv with a stride above 8 or a kernel above 32 works on blocks of its input.

1. stride above 8 (the patches of ViT, a `Conv` of audio samples) -> a Conv that copies blocks of b x b to the channels,
   as for SpaceToDepth (rule D11), and a Conv with 1 / b of the stride and of the kernel
2. the same in a network of one dimension, [N, C, L, 1] (rule D26), also for an L above 8192 -> a Reshape to [N, C, L /
   b, b], and a Conv whose kernel is b wide

b is the smallest divisor of the stride that the limits allow. The kernel gets zeros in front, so that its padding is a
multiple of b, and behind. Weights keep their quantized values; a copied value is a weight of 127, exact in INT8. The
blocks have the scale of the input.
Not: dilation, or sizes that are not known; groups in case 1; a stride without such a divisor, which has to divide L in
case 2; weights that are not constant.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import depth_space
from qdq_translator.translation.passes.dla.rewriter import LARGEST_BLOCK, LARGEST_KERNEL, MOST_CHANNELS, Rewriter, Row
from qdq_translator.translation.passes.editor import Image, Stays, stay_if

RULE = "D24"
OPERATORS, CURED = ("Conv",), ("C2", "C6", "G2")
_STRIDE = LARGEST_BLOCK["Conv"]
_LONGEST = 8192
"""Largest size of an axis (limit G2)."""


def rewrite(rewriter: Rewriter, node: Node) -> None:
    _, window, pads = rewriter.kernel(node)
    try:
        image = rewriter.sized(node.inputs[0])
        series = (image[3], window.kernel[1], window.strides[1], pads[1], pads[3]) == (1, 1, 1, 0, 0)
        blocks = _sizes(node, window, pads, image, series)
    except Stays:
        if max(window.strides) > _STRIDE or "G2" in rewriter.rejected_by(node):
            raise
        return  # rule D27 divides a long kernel
    _blocks(rewriter, node, window, pads, blocks, series)


def _sizes(node: Node, window: operators.Window, pads: list[int], image: Image, series: bool) -> list[int]:
    """Sizes of the blocks: those of case 2 for a series, else of case 1."""
    stay_if(any(min(sizes) > 1 for sizes in zip(window.dilations, window.kernel)), "it is dilated")
    blocks = []
    for size, k, s, pad in zip(image[2:], window.kernel, window.strides, pads):
        # the Reshape of a series cannot add zeros, and its blocks become the kernel's width
        divisors = range(1, min(LARGEST_KERNEL if series else _STRIDE, s) + 1)
        fits = [b for b in divisors if s % b == 0 and s // b <= _STRIDE and size / b <= _LONGEST]
        fits = [b for b in fits if -(-(k + -pad % b) // b) <= LARGEST_KERNEL and not (series and size % b)]
        stay_if(not fits, f"no divisor of stride {s} makes blocks that the DLA's limits allow")
        blocks.append(fits[0])
    beyond = not series and (operators.groups(node) != 1 or image[1] * math.prod(blocks) > MOST_CHANNELS)
    stay_if(beyond, f"it has groups, or its blocks have more than {MOST_CHANNELS} values")
    return blocks


def _blocks(
    rewriter: Rewriter, node: Node, window: operators.Window, pads: list[int], blocks: list[int], series: bool
) -> None:
    before, after = rewriter.sized(node.inputs[0]), rewriter.sized(node.outputs[0])
    front = [-pad % b for pad, b in zip(pads, blocks)]
    kernel = taps = [-(-(k + z) // b) for k, z, b in zip(window.kernel, front, blocks)]
    begin = [(pad + z) // b for pad, z, b in zip(pads, front, blocks)]
    rows = [-(-size // b) for size, b in zip(before[2:], blocks)]
    strides = [s // b for s, b in zip(window.strides, blocks)]
    end = [(n - 1) * s + k - size - b for n, s, k, size, b in zip(after[2:], strides, kernel, rows, begin)]
    stay_if(any(more <= -s for more, s in zip(end, strides)), "its windows end before the last block")
    channels, (bh, bw), dtype = before[1], blocks, rewriter.dtype(node.inputs[0])
    grow = [(0, 0), (0, 0), *((z, n * b - k - z) for z, n, b, k in zip(front, kernel, blocks, window.kernel))]

    def folded(w: np.ndarray) -> np.ndarray:
        cut = np.pad(w, grow).reshape(*w.shape[:2], taps[0], bh, taps[1], bw)
        if series:
            return cut.reshape(*w.shape[:2], taps[0], bh)
        return cut.transpose(0, 3, 5, 1, 2, 4).reshape(w.shape[0], -1, *taps)

    rewriter.afford(node.name, *rewriter.graph.initializers[node.inputs[1]].dims[:2], *(sum(g) for g in grow[2:]))
    row, inputs = Row(rewriter, node), [rewriter.weight(node, 1, "", folded), *node.inputs[2:]]
    if series:
        row.reshape("blocks", [0, channels, rows[0], bh])
        kernel, strides, begin, end = [kernel[0], bh], [strides[0], 1], [begin[0], 0], [end[0], 0]
    else:
        rewriter.afford(node.name, channels * bh * bw, channels, bh * bw)
        padding = [0, 0, *(n * b - size for n, b, size in zip(rows, blocks, before[2:]))]
        copies = rewriter.constant(f"{node.name}.blocks", depth_space.copies(channels, (bh, bw), True, dtype))
        row.add("Conv", "blocks", copies, kernel_shape=blocks, strides=blocks, pads=padding)
    made = row.current
    attributes = {"kernel_shape": kernel, "strides": strides, "group": operators.groups(node)}
    row.add("Conv", "output", *inputs, pads=[*begin, *(max(0, more) for more in end)], **attributes)
    row.put(RULE)
    rewriter.same_scale(RULE, made, node.inputs[0], row.nodes[0])
