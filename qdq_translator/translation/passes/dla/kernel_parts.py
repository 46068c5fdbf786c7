"""Rule D27: a Conv whose kernel is too long, or whose data do not fit the convolution buffer, becomes smaller Convs.

1. rows and columns of the kernel that read only padding are removed: a dilation of 36 on 33 x 33 leaves the center, a
   1x1 kernel
2. kernel k above 32 along H or W, or data that do not fit (limits C11 and C12; along H) -> kernel a with b times the
   output channels, a * b >= k, and a grouped Conv with kernel b and dilation a that sums them: channel o * b + i has
   the taps from i * a on
3. data that do not fit, and padding of the kernel's size (3x3 with padding and dilation 12) -> as in case 2 along both
   axes, so that a 1x1 kernel remains

The kernel of a sum gets zeros and a smaller dilation if its padding is not smaller otherwise (limit C4). Weights keep
their quantized values; each part has its scale, which is not coarser. The weights of sums are 127, exact in INT8. The
parts of sums get a scale from data only (`--calibrate`): a part of a sum can be larger than the sum, so that the layers
run in FP16 without one. With a scale, each part is rounded once more (3 to 6 dB of 40). How groups share the buffer is
not known (`targets/dla/limits.py`), so the limit is not checked for the sums.
Not: sizes that are not known, in case 1; weights that are not constant; kernels above 32 along H and W at once; more
than 8192 parts; padding of a sum above 31; a sum that would need a dilation above 32; data of one row that do not fit.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import LARGEST_KERNEL, LARGEST_PADDING, MOST_CHANNELS, Rewriter, Row
from qdq_translator.translation.passes.editor import stay_if
from qdq_translator.translation.targets.dla.checks import BUFFER_BANKS, banks

RULE = "D27"
OPERATORS, CURED = ("Conv",), ("C2", "C3", "C4", "C7", "C11", "C12")
_BUFFER = {"C11", "C12"}


def rewrite(rewriter: Rewriter, node: Node) -> None:
    _trim(rewriter, node, *rewriter.kernel(node)[1:])
    weight, window, pads = rewriter.kernel(node)
    counts = _counts(rewriter, node, window, pads)
    steps = {axis: _step(window, pads, axis, parts) for axis, parts in counts.items()}
    too_many = 0 in steps.values() or weight.dims[0] * math.prod(counts.values()) > MOST_CHANNELS
    stay_if(too_many, "its dilation, padding or channels are too many for parts of its kernel")
    for axis, parts in counts.items():
        node = _divide(rewriter, node, axis, parts, steps[axis])


def _trim(rewriter: Rewriter, node: Node, window: operators.Window, pads: list[int]) -> None:
    """Case 1, if the node has such rows or columns: it gets a smaller kernel."""
    before, after = rewriter.image(node.inputs[0]), rewriter.image(node.outputs[0])
    if before is None or after is None:
        return
    kept, begins, ends = [], [], []  # type: list[slice], list[int], list[int]
    for size, count, k, s, d, pad in zip(before[2:], after[2:], window.kernel, window.strides, window.dilations, pads):
        used = [i for i in range(k) if any(0 <= o * s + i * d - pad < size for o in range(count))] or [0]
        # a begin is never negative: zeros in front that exceed the padding stay in the kernel
        first, last = min(used[0], pad // d), used[-1]
        kept.append(slice(first, last + 1))
        begins.append(pad - first * d)
        ends.append((count - 1) * s + (last - first) * d + 1 - size - begins[-1])
    kernel = [cut.stop - cut.start for cut in kept]
    if kernel == window.kernel or any(end <= -s for end, s in zip(ends, window.strides)):
        return
    cut = (slice(None), slice(None), *kept)
    rewriter.graph.set_input(node, 1, rewriter.weight(node, 1, "", lambda w: w[cut]))
    node.unset("auto_pad")
    node.set("kernel_shape", kernel)
    node.set("dilations", [1 if k == 1 else d for k, d in zip(kernel, window.dilations)])
    node.set("pads", [*begins, *(max(0, end) for end in ends)])
    rewriter.note(RULE, [node], [node])


def _counts(rewriter: Rewriter, node: Node, window: operators.Window, pads: list[int]) -> dict[int, int]:
    """Axis -> parts along it, {} for none."""
    kernel, limits = window.kernel, rewriter.rejected_by(node)
    long = [axis for axis in (0, 1) if kernel[axis] > LARGEST_KERNEL]
    stay_if(len(long) > 1, "its kernel is above 32 along H and W")
    if not limits & _BUFFER:
        return {axis: -(-kernel[axis] // LARGEST_KERNEL) for axis in long}
    why = "one row of its input does not fit the buffer, or its sizes are not known"
    _, channels, _, width = rewriter.sized(node.inputs[0], why)

    def fits(rows: int, columns: int) -> bool:
        return sum(banks(channels, width, [rows, columns], window.dilations[0], 1)) <= BUFFER_BANKS

    if any(pad >= k for pad, k in zip(pads, kernel * 2)):  # case 3
        stay_if(kernel == [1, 1] or not fits(1, 1), why)
        return {axis: k for axis, k in enumerate(kernel) if k > 1}
    parts = [b for b in range(2, kernel[0] + 1) if fits(-(-kernel[0] // b), kernel[1])]
    stay_if(not parts, why)
    return {0: min(parts, key=lambda b: -(-kernel[0] // b) * b)}


def _rest(window: operators.Window, pads: list[int], axis: int, parts: int) -> tuple[int, int, list[int], list[int]]:
    """(taps of a part, zeros behind the last one, padding of the parts, padding of their sum)."""
    taps, d = -(-window.kernel[axis] // parts), window.dilations[axis]
    zeros = parts * taps - window.kernel[axis]
    both = [pads[axis], pads[axis + 2] + zeros * d]
    inside = [min(pad, (taps - 1) * d) for pad in both]
    return taps, zeros, inside, [pad - own for pad, own in zip(both, inside)]


def _step(window: operators.Window, pads: list[int], axis: int, parts: int) -> int:
    """The dilation of the sum along the axis; 0 if the limits allow none."""
    taps, _, _, rest = _rest(window, pads, axis, parts)
    apart = taps * window.dilations[axis]
    steps = [e for e in range(min(apart, LARGEST_KERNEL), 0, -1) if apart % e == 0]
    own = (e for e in steps if max(rest) < (parts - 1) * (apart // e) + 1 <= LARGEST_KERNEL)
    # rule D13 handles padding that is not below the kernel for any step
    return next(own, apart if apart <= LARGEST_KERNEL else 0) if max(rest) <= LARGEST_PADDING else 0


def _divide(rewriter: Rewriter, node: Node, axis: int, parts: int, step: int) -> Node:
    """Cases 2 and 3 along one axis; returns the Conv of the parts."""
    weight, window, pads = rewriter.kernel(node)
    channels, group = weight.dims[0], operators.groups(node)
    taps, zeros, inside, rest = _rest(window, pads, axis, parts)
    apart = taps * window.dilations[axis] // step
    length = (parts - 1) * apart + 1

    def divided(w: np.ndarray) -> np.ndarray:
        grown = np.pad(w, [(0, zeros if dim == 2 + axis else 0) for dim in range(4)])
        made = np.moveaxis(grown.reshape(*w.shape[: 2 + axis], parts, taps, *w.shape[3 + axis :]), 2 + axis, 1)
        return made.reshape(-1, *made.shape[2:])

    def add(what: str, weight: str, bias: list[str], groups: int, *sizes: tuple[int, int]) -> None:
        """Add a Conv of a part. sizes: kernel, strides, dilations and padding, each (along `axis`, along the second
        axis)."""
        kernel, strides, dilations, begin, end = ([*size] if axis == 0 else [*size[::-1]] for size in sizes)
        window = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": [*begin, *end]}
        row.add("Conv", what, weight, *bias, group=groups, **window)

    rewriter.afford(node.name, channels, parts, length)
    sums: np.ndarray = np.zeros((channels, parts, length), rewriter.dtype(node.inputs[0]))
    sums[:, range(parts), range(0, length, apart)] = 1
    sums = sums[..., None] if axis == 0 else sums[..., None, :]
    row, own = Row(rewriter, node), window.dilations[axis] if taps > 1 else 1
    k, s, d, begin, end = (v[1 - axis] for v in (window.kernel, window.strides, window.dilations, pads[:2], pads[2:]))
    taken = rewriter.weight(node, 1, "", divided)
    add("taps", taken, [], group, (taps, k), (1, s), (own, d), (inside[0], begin), (inside[1], end))
    ones, strides = rewriter.constant(f"{node.name}.sums", sums), (window.strides[axis], 1)
    add("sum", ones, node.inputs[2:], channels, (length, 1), strides, (step, 1), (rest[0], 0), (rest[1], 0))
    row.put(RULE)
    return row.nodes[0]
