"""Rule D13: a Conv whose padding differs on two sides, or reaches its kernel's size, gets a larger kernel.

With a zeros in front of the kernel and b behind it, and padding increased by as much on each side, every output stays
the same: a kernel of K + a + b, padding `begin + a` and `end + b`. The smallest a and b with equal padding below the
kernel size:

1. padding differs    -> zeros on the side with less padding
2. padding >= kernel  -> zeros on both sides
3. padding differs, but the larger side's extra rows are never reached (stride), so that the padding of the begin on
   both sides gives the same output size: only the padding is changed. This needs a known H and W.
4. no such kernel (dilation: padding 4 of a 3x3 kernel with dilation 4) -> the Conv keeps the padding that the limit
   allows, and a depthwise Conv that copies, in front of it, adds the rest

With dilation d, each zero moves the padding by d. The zeros are new weights of value 0 (quantized 0); channels keep
their largest weight and therefore their scale. The larger kernel costs MACs, which the report counts. New tensors exist
only in case 4: the padded one has the scale of the Conv's input, which it copies. No public source states whether limit
C4 means the dilated kernel (fact 6.3d); literally it does not.
Not: more than 31 rows or columns in case 4; auto_pad with unknown sizes; weights that are not constant; an input whose
channels are not known in case 4.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.axis_forms import build, shift, windowed
from qdq_translator.translation.passes.dla.rewriter import LARGEST_KERNEL, LARGEST_PADDING, Rewriter
from qdq_translator.translation.passes.editor import known, stay_if

RULE = "D13"
OPERATORS, CURED = ("Conv",), ("C4", "C5")
Two = Tuple[int, int]


def zeros(kernel: int, begin: int, end: int, dilation: int) -> Optional[Two]:
    """(zeros in front, zeros behind) for one axis, so that padding is below the kernel's size (limit C4), for any
    dilation; None if that needs a kernel above 32."""
    difference = end - begin
    if difference % dilation:
        return None
    step = difference // dilation
    front, behind = max(step, 0), max(-step, 0)
    while kernel + front + behind <= LARGEST_KERNEL:
        padding = begin + front * dilation
        if padding <= LARGEST_PADDING and padding < kernel + front + behind:
            return front, behind
        front, behind = front + 1, behind + 1
    return None


def rewrite(rewriter: Rewriter, node: Node) -> None:
    graph = rewriter.graph
    weight, window, pads = rewriter.kernel(node)
    sizes = (rewriter.image(node.inputs[0]) or (None,) * 4)[2:]
    ways = [_axis(window, axis, pads[axis], pads[axis + 2], size) for axis, size in enumerate(sizes)]
    added, padding, rest = zip(*ways)
    copies = _copies(rewriter, node, rest) if any(map(any, rest)) else []
    kernel = [k + sum(grown) for k, grown in zip(window.kernel, added)]
    if kernel != window.kernel:
        rewriter.afford(node.name, *weight.dims[:2], *kernel)
        grow = ((0, 0), (0, 0), *added)
        graph.set_input(node, 1, rewriter.weight(node, 1, "", lambda w: np.pad(w, grow)))
    node.unset("auto_pad")
    node.set("kernel_shape", kernel)
    node.set("pads", padding * 2)
    rewriter.note(RULE, [node], [*copies, node], {}, [copy.outputs[0] for copy in copies])


def _axis(window: operators.Window, axis: int, begin: int, end: int, size: Optional[int]) -> tuple[Two, int, Two]:
    """Along one axis: zeros in front of the kernel and behind it, the Conv's padding, and the rest of it (case 4)."""
    k, stride, d = window.kernel[axis], window.strides[axis], window.dilations[axis]
    reach = (k - 1) * d + 1
    # whether a window reads the rows that the larger padding adds; assumed for unknown sizes
    reached = size is None or (size + begin + end - reach) // stride != (size + 2 * begin - reach) // stride
    if begin < k and not reached:  # case 3
        return (0, 0), begin, (0, 0)
    grown = zeros(k, begin, end, d)
    if grown is not None:
        return grown, begin + grown[0] * d, (0, 0)
    own = min(begin, end, k - 1, LARGEST_PADDING)
    return (0, 0), own, (begin - own, end - own)


def _copies(rewriter: Rewriter, node: Node, rest: Sequence[Two]) -> list[Node]:
    """Case 4: the layer in front of the Conv that adds this padding of H and W."""
    why = "its padding does not fit into its kernel, nor into one that copies"
    channels = known(rewriter.channels(node.inputs[0]), why)
    stay_if(max(map(sum, rest)) > LARGEST_PADDING, why)
    padded = rewriter.tensor(f"{node.inputs[0]}_padded")
    pad = Node("Pad", node.inputs[:1], [padded], rewriter.node(f"{node.name}_pad"))
    windows = [shift(*around) for around in rest]
    copies = build(rewriter, pad, [windowed("copy", "weight", windows, [channels, 0, 0])])
    for copy in copies:
        rewriter.graph.insert_after(copy, node.prev)
    rewriter.derive(RULE, padded, node.inputs[0], copies[0], note="scale of what is padded")
    rewriter.graph.set_input(node, 0, padded)
    return copies
