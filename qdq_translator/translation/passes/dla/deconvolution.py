"""Rule D21: a ConvTranspose with padding, groups or dilation becomes one without, and a Slice.

1. padding p -> none, then the Slice of H and W that begins at p; output_padding that reaches beyond the kernel -> zeros
   behind it
2. group g -> one group, whose weight is 0 where input and output channel belong to different groups
3. dilation d -> a kernel with d - 1 zeros between its rows and columns

Each output channel keeps its weights, and zeros stay 0. The input of the Slice has the scale of its output. A Slice
runs in FP16 on the DLA (limit S1). In case 2 the layer has g times as many multiplications, which the report counts.

Not: weights that are not constant; parameters that do not fit them, or are negative; sizes that are not
known; auto_pad and output_shape; other than two spatial dimensions; a kernel that comes
out above 32 (a square one above 22).
"""

from __future__ import annotations

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import LARGEST_BLOCK, LARGEST_KERNEL, Rewriter, Row
from qdq_translator.translation.passes.editor import Stays, stay_if

RULE = "D21"
OPERATORS, CURED = ("ConvTranspose",), ("T5", "T6", "T7", "T9")


def _window(rewriter: Rewriter, node: Node) -> operators.Window:
    """The window. Raises Stays unless it has two spatial dimensions and parameters that fit a constant weight."""
    weight = rewriter.graph.initializers.get(node.input(1))
    if weight is None or len(weight.dims) != 4:
        raise Stays("its weight is not constant, or it does not have two spatial dimensions")
    window = operators.window(node, weight.dims)
    if window is None or window.automatic not in ("", "VALID") or operators.states_output_shape(node):
        raise Stays("its padding is not stated as such")
    fits = window.kernel == list(weight.dims[2:]) and weight.dims[0] % operators.groups(node) == 0
    negative = min(*window.pads, *(d - 1 for d in window.dilations)) < 0
    stay_if(negative or not fits, "its parameters do not fit its weight, or are negative")
    return window


def rewrite(rewriter: Rewriter, node: Node) -> None:
    window = _window(rewriter, node)
    weight, group = rewriter.graph.initializers[node.inputs[1]], operators.groups(node)
    before, after = rewriter.sized(node.inputs[0]), rewriter.sized(node.outputs[0])
    begins = window.pads[:2] if not window.automatic else [0, 0]
    ends = [begin + size for begin, size in zip(begins, after[2:])]
    reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations)]
    made = [s * (size - 1) + k for s, size, k in zip(window.strides, before[2:], reach)]
    kernel = [k + max(0, end - size) for k, end, size in zip(reach, ends, made)]
    too_large = max(kernel) > LARGEST_KERNEL or (kernel[0] == kernel[1] > LARGEST_BLOCK["ConvTranspose"])
    stay_if(too_large, f"its kernel comes out at {kernel[0]}x{kernel[1]}")
    inputs, outputs = int(weight.dims[0]), int(weight.dims[1])
    rewriter.afford(node.name, inputs, outputs * group, *kernel)

    def spread(values: np.ndarray) -> np.ndarray:
        wide: np.ndarray = np.zeros((inputs, group, outputs, *kernel), values.dtype)
        rows, columns = (slice(0, k, d) for k, d in zip(reach, window.dilations))
        wide[np.arange(inputs), np.arange(inputs) // (inputs // group), :, rows, columns] = values
        return wide.reshape(inputs, group * outputs, *kernel)

    changed = rewriter.weight(node, 1, "", spread)
    cut = [s * (size - 1) + k for s, size, k in zip(window.strides, before[2:], kernel)] != list(after[2:])
    row = Row(rewriter, node)
    row.add("ConvTranspose", "uncut", changed, *node.inputs[2:], kernel_shape=kernel, strides=window.strides)
    if cut:
        row.append("cut", lambda target, _: rewriter.slice(row.current, target, begins, ends, [2, 3], node.name))
    row.put(RULE)
    row.derive(row.nodes[:-1], node.outputs[0], note="scale of what is cut out of it")
