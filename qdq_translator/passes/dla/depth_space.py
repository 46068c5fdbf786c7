"""Rule D11: DepthToSpace and SpaceToDepth become a deconvolution and a convolution that copy.

1. `DepthToSpace(b)` -> ConvTranspose, kernel and stride b x b: W[k, c, i, j] = 1 where input channel k holds position (i, j)
   of output channel c (mode DCR: k = (i * b + j) * C' + c; CRD: k = c * b * b + i * b + j)
2. `SpaceToDepth(b)` -> Conv, kernel and stride b x b: W[k, c, i, j] = 1 where k = (i * b + j) * C + c

A weight of 1 is a code of 127: exact in INT8. Input and output have one scale, as they had (rule S3). The layer multiplies
with C * C' * b * b weights, which the report counts.
Not: block sizes of 1; block sizes above what the DLA takes (stride 8 for the Conv, 22 for the ConvTranspose); unknown
channels; more than 8192 channels.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import LARGEST_BLOCK, MOST_CHANNELS, Rewriter

RULE = "D11"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("DepthToSpace", "SpaceToDepth"):
        if not rewriter.rejected(node):
            continue
        source, target = node.inputs[0], node.outputs[0]
        channels, dtype = rewriter.channels(source), rewriter.dtype(source)
        block = operators.block_size(node)
        if channels is None or dtype is None:
            rewriter.leave(node, "its number of channels is not known")
            continue
        op = "ConvTranspose" if node.is_op("DepthToSpace") else "Conv"
        many = channels * (block * block if op == "Conv" else 1) > MOST_CHANNELS
        if many or not 1 < block <= LARGEST_BLOCK[op]:
            rewriter.leave(node, f"block size {block} or its channels are beyond the DLA's limits")
            continue
        spread = block * block if node.is_op("SpaceToDepth") else 1
        rewriter.afford(node.name, channels, channels, spread * spread)
        if op == "ConvTranspose":
            weight = _to_space(channels, block, operators.mode(node), dtype)
        else:
            weight = _to_depth(channels, block, dtype)
        inputs = [source, rewriter.constant(f"{node.name}.weight", weight)]
        layer = Node(op, inputs, [target], node.name, kernel_shape=[block] * 2, strides=[block] * 2)
        rewriter.replace(RULE, node, [layer])
        rewriter.same_scale(RULE, target, source, layer)


def _to_space(channels: int, block: int, mode: str, dtype: type) -> np.ndarray:
    """(C, C', b, b): input channels, output channels, rows, columns."""
    count = channels // (block * block)
    weight: np.ndarray = np.zeros((channels, count, block, block), dtype)
    for i in range(block):
        for j in range(block):
            for c in range(count):
                k = (i * block + j) * count + c if mode == "DCR" else (c * block + i) * block + j
                weight[k, c, i, j] = 1
    return weight


def _to_depth(channels: int, block: int, dtype: type) -> np.ndarray:
    """(C * b * b, C, b, b): output channels, input channels, rows, columns."""
    weight: np.ndarray = np.zeros((channels * block * block, channels, block, block), dtype)
    for i in range(block):
        for j in range(block):
            first = (i * block + j) * channels
            weight[first : first + channels, :, i, j] = np.eye(channels, dtype=dtype)
    return weight
