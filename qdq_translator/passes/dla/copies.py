"""Rule D20: Expand, Tile and Concat over rows or columns become Resize, Conv that copies, Concat of channels.

1. `Expand` and `Tile` of H and W, where they are 1 -> nearest Resize by integer factors, several in a row above 32
2. `Expand` of one channel, `Tile` of the channels -> a 1x1 Conv whose weight is 1 where an output channel copies an input channel

3. `Concat` over H or W -> over the channels, between Transposes that put them in each other's place

Cases 1 and 2 one after the other, where both grow. A weight of 1 is quantized as 127: exact in INT8. Input and output have one scale, as they
had (rule S3), and so has what is between.

Not: tensors that are not four-dimensional; sizes that are not known; the batch axis; Tile of an H or W above 1; cases 1 and 2 with opset
below 11 (which has no such Resize); more than 8192 channels; sizes with a prime factor above 32; a Concat of constants.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.resize import LARGEST, repeat
from qdq_translator.passes.dla.rewriter import MOST_CHANNELS, Rewriter, Row
from qdq_translator.passes.dla.spatial_mean import factors

RULE = "D20"


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Expand", "Tile", rewrite=_rewrite)
    rewriter.each("Concat", rewrite=_concat, cured=("K1",))


def _concat(rewriter: Rewriter, node: Node) -> str:
    """Case 3. '', or why it stays."""
    graph, target = rewriter.graph, node.outputs[0]
    axis, rank = operators.axis(node, graph.opset()), rewriter.types.rank(target)
    if rank != 4 or axis in (0, -4) or any(graph.is_constant(name) for name in node.inputs):
        return "it does not join rows or columns of activations with four dimensions"
    order = [0, 2, 1, 3] if axis in (2, -2) else [0, 3, 2, 1]
    row = Row(rewriter, node)
    parts = []
    for number, name in enumerate(node.inputs):
        row.current = name
        parts.append(row.add("Transpose", f"part{number}", perm=order))
    row.current = parts[0]
    row.add("Concat", "channels", *parts[1:], axis=1)
    row.add("Transpose", "back", perm=order)
    row.put(RULE)
    for layer in (*row.nodes[:-2], row.nodes[-1]):
        rewriter.same_scale(RULE, layer.inputs[0], layer.outputs[0], layer)
    return ""


def _rewrite(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    source, dtype = node.inputs[0], rewriter.dtype(node.inputs[0])
    if rewriter.dtype(node.outputs[0]) is None:
        return ""
    before, after = rewriter.image(source), rewriter.image(node.outputs[0])
    if before is None or after is None or dtype is None or rewriter.graph.is_constant(source):
        return "its input and output do not have four dimensions of known sizes"
    times = rewriter.graph.array(node.inputs[1]) if node.is_op("Tile") else None
    if before[0] != after[0] and (times is None or times[0] != 1):
        return "it repeats the batch"
    if rewriter.graph.opset() < 11 or max(before[1], after[1]) > MOST_CHANNELS:
        return f"opset below 11, or more than {MOST_CHANNELS} channels"
    if any(size not in (1, made) for size, made in zip(before[2:], after[2:])):
        return "it repeats rows or columns as a whole, which no Resize does"
    rows, columns = (factors(made // size, LARGEST) for size, made in zip(before[2:], after[2:]))
    if rows is None or columns is None:
        return f"it repeats values by a prime number above {LARGEST}"
    row = Row(rewriter, node)
    if before[1] != after[1]:
        rewriter.afford(node.name, after[1], before[1])
        weight: np.ndarray = np.zeros((after[1], before[1], 1, 1), dtype)
        weight[np.arange(after[1]), np.arange(after[1]) % before[1]] = 1
        row.add("Conv", "channels", rewriter.constant(f"{node.name}.weight", weight), kernel_shape=[1, 1])
    if rows or columns:
        repeat(row, "nearest", rows, columns)
    if not row.nodes:
        return "it changes nothing, and rule F7 leaves it"
    row.put(RULE)
    for layer in row.nodes:
        rewriter.same_scale(RULE, layer.inputs[0], layer.outputs[0], layer)
    return ""
