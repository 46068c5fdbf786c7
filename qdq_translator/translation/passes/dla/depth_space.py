"""Rule D11: DepthToSpace and SpaceToDepth become a deconvolution and a convolution that copy.

1. `DepthToSpace(b)` -> ConvTranspose, kernel and stride b x b: W[k, c, i, j] = 1 where input channel k holds position
   (i, j) of output channel c (mode DCR: k = (i * b + j) * C' + c; CRD: k = c * b * b + i * b + j)
2. `SpaceToDepth(b)` -> Conv, kernel and stride b x b: W[k, c, i, j] = 1 where k = (i * b + j) * C + c

A weight of 1 is quantized as 127: exact in INT8. Input and output keep their common scale (rule S3). The layer
multiplies with C * C' * b * b weights, which the report counts.
Not: block sizes of 1; block sizes above the DLA's limits (stride 8 for the Conv, 22 for the ConvTranspose); unknown
channels; more than 8192 channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import LARGEST_BLOCK, MOST_CHANNELS, Rewriter, Row
from qdq_translator.translation.passes.editor import stay_if

RULE = "D11"
OPERATORS = ("DepthToSpace", "SpaceToDepth")


def rewrite(rewriter: Rewriter, node: Node) -> None:
    source, block = node.inputs[0], operators.block_size(node)
    channels = rewriter.width(source)
    op, blocks = ("ConvTranspose", 1) if node.is_op("DepthToSpace") else ("Conv", block * block)
    beyond = channels * blocks > MOST_CHANNELS or not 1 < block <= LARGEST_BLOCK[op]
    stay_if(beyond, f"block size {block} or its channels are beyond the DLA's limits")
    rewriter.afford(node.name, channels, channels, blocks * blocks)
    fewer = channels if op == "Conv" else channels // (block * block)
    weight = copies(fewer, (block, block), op == "Conv" or operators.mode(node) == "DCR", rewriter.dtype(source))
    row, name = Row(rewriter, node), rewriter.constant(f"{node.name}.weight", weight)
    row.add(op, "copies", name, kernel_shape=[block] * 2, strides=[block] * 2)
    row.put(RULE)
    rewriter.same_scale(RULE, node.outputs[0], source, row.nodes[0])


def copies(channels: int, block: tuple[int, int], blocks_first: bool, dtype: Any) -> np.ndarray:
    """Weights (channels * H * W, channels, H, W) that copy blocks of H x W to the channels: a single 1 per output
    channel. blocks_first: the position in the block varies slower than the channel."""
    rows: np.ndarray = np.eye(channels * block[0] * block[1], dtype=dtype)
    if blocks_first:
        return np.ascontiguousarray(rows.reshape(-1, *block, channels).transpose(0, 3, 1, 2))
    return rows.reshape(-1, channels, *block)
