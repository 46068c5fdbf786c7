"""Rule D15: MaxPool with a window above 8 becomes several in series, with windows of at most 8.

1. `MaxPool` with window k: windows k1, k2, ... with `k = 1 + (k1 - 1) + (k2 - 1) + ...`, as few as possible and of
   sizes as equal as possible. The last one has the strides. The padding is divided among them, at most `ki - 1` per
   side each.
2. Windows without padding that do not overlap (strides = window), and `GlobalMaxPool`: windows whose product is the
   window, if its prime factors are at most 8; the strides of each are its window.
3. Several `MaxPool` of one tensor (spatial pyramid pooling: 5, 9, 13): a larger window with stride 1 continues from the
   output of the next smaller one, so that each step is computed once.

4. `ReduceMax` over H, W or both -> the same with windows of their size, with a Reshape behind them if keepdims is 0;
   over the channels (CBAM) with keepdims 1 -> between Transposes that make them the rows.
5. `ReduceMin` -> ReduceMax of the negative values, between two Scales by -1 (-128 becomes -127).

The maximum of maxima is the maximum, and a padded position never has a value that its neighbour inside lacks: bit for
bit the same, for quantized values too. The tensors between get the scale of the input if the result has one (the DLA
requires one scale for input and output of a pooling, NvInfer.h).

Not: an output of indices; dilation; ceil_mode where sizes are not whole multiples; unknown sizes; case 3 where the
smaller one's output has a scale of its own; cases 4 and 5 over the batch, over channels and space at once, or over
channels that go.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, Optional, Tuple

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import NO_SIZES, Rewriter, Row
from qdq_translator.translation.passes.dla.spatial_mean import WINDOW, factors, reduced
from qdq_translator.translation.passes.editor import stay_if

RULE = "D15"
Two = Tuple[int, int]


class _Pool(NamedTuple):
    """Window, strides and padding (begin, end) of the two axes."""

    kernel: Two
    strides: Two
    begins: Two
    ends: Two

    def beyond(self, other: _Pool) -> Optional[_Pool]:
        """The remaining window after `other`, both with stride 1; None if `other` is not a part of it."""
        kernel = (self.kernel[0] - other.kernel[0] + 1, self.kernel[1] - other.kernel[1] + 1)
        begins = (self.begins[0] - other.begins[0], self.begins[1] - other.begins[1])
        ends = (self.ends[0] - other.ends[0], self.ends[1] - other.ends[1])
        fits = all(0 <= pad < k for pad, k in zip(begins + ends, kernel * 2))
        if not fits or max(kernel) == 1 or self.strides != (1, 1) or other.strides != (1, 1):
            return None
        return _Pool(kernel, (1, 1), begins, ends)


def apply(rewriter: Rewriter) -> None:
    made: dict[str, list[tuple[_Pool, str]]] = {}
    for node in rewriter.nodes("MaxPool", "GlobalMaxPool"):
        rewriter.attempt(_rewrite, node, made.setdefault(node.inputs[0], []))
    rewriter.each("ReduceMax", "ReduceMin", rewrite=_reduction)


def _read(rewriter: Rewriter, node: Node) -> _Pool:
    image, _ = rewriter.sized(node.inputs[0]), rewriter.sized(node.outputs[0])
    if node.is_op("GlobalMaxPool"):
        return _whole(image[2:])
    why = "it has an output of indices, is dilated, or its padding is not known"
    window, pads = rewriter.window(node, why)
    stay_if(len(node.outputs) > 1 or window.dilated, why)
    (one, two), strides = window.kernel, window.strides
    padded = [size + begin + end - k for size, begin, end, k in zip(image[2:], pads, pads[2:], window.kernel)]
    stay_if(window.rounds_up and any(rest % stride for rest, stride in zip(padded, strides)), "it rounds sizes up")
    return _Pool((one, two), (strides[0], strides[1]), (pads[0], pads[1]), (pads[2], pads[3]))


def _rewrite(rewriter: Rewriter, node: Node, made: list[tuple[_Pool, str]]) -> None:
    """Cases 1 to 3. made: pools of the same tensor and their outputs, to which this one is added."""
    source, row, rest = node.inputs[0], Row(rewriter, node), _read(rewriter, node)
    made.append((rest, node.outputs[0]))
    if not rewriter.rejected_by(node) & {"P2", "P3", "O5"}:
        return
    # the largest smaller one leaves the fewest steps; if its output had another scale, values would be rounded there
    for smaller, tensor in sorted(made[:-1], key=lambda row: row[0].kernel, reverse=True):
        left = rest.beyond(smaller)
        if left is not None and rewriter.scales.value(tensor) in (None, rewriter.scales.value(source)):
            row.current, rest = tensor, left
            break
    _add_pools(row, rest)
    row.put(RULE)
    row.derive(row.nodes[:-1], source, note="scale of the pooling's input")


def _add_pools(row: Row, pool: _Pool) -> None:
    for number, step in enumerate(_steps(pool)):
        pads = [*step.begins, *step.ends]
        row.add("MaxPool", f"max{number}", kernel_shape=list(step.kernel), strides=list(step.strides), pads=pads)


def _whole(window: Two) -> _Pool:
    """Pool over all positions; strides only if useful: the DLA has none above 16."""
    return _Pool(window, window if None not in map(factors, window) else (1, 1), (0, 0), (0, 0))


def _reduction(rewriter: Rewriter, node: Node) -> None:
    """Cases 4 and 5."""
    image, shape = rewriter.sized(node.inputs[0], NO_SIZES), rewriter.types.shape(node.outputs[0]) or ()
    axes, kept = reduced(rewriter, node), operators.keeps_dimensions(node)
    over_channels = axes == {1} and kept
    other = not axes or not (over_channels or axes <= {2, 3})
    stay_if(other, "it reduces other axes than H and W, or than the channels alone with keepdims")
    row, order = Row(rewriter, node), [0, 2, 1, 3]
    if node.is_op("ReduceMin"):
        row.scale("negative", image[1], -1.0)
    if over_channels:
        row.add("Transpose", "rows", perm=order)
        _add_pools(row, _whole((image[1], 1)))
        row.add("Transpose", "channels", perm=order)
    else:
        _add_pools(row, _whole((image[2] if 2 in axes else 1, image[3] if 3 in axes else 1)))
    if node.is_op("ReduceMin"):
        row.scale("positive", 1 if over_channels else image[1], -1.0)
    if not kept:
        row.reshape("flat", [0, *(size for size in shape[1:] if isinstance(size, int))])
    row.put(RULE)
    row.derive(row.nodes[:-1], node.inputs[0], note="scale of the reduction's input")


def _steps(pool: _Pool) -> list[_Pool]:
    """The equivalent pools in series: cases 2 and 1."""
    apart = pool.strides == pool.kernel and not any(pool.begins + pool.ends)
    rows, columns = (factors(size) if apart else None for size in pool.kernel)
    if rows is not None and columns is not None:
        windows = itertools.zip_longest(rows or (1,), columns or (1,), fillvalue=1)
        return [_Pool(window, window, (0, 0), (0, 0)) for window in windows]
    count = max(-(-(k - 1) // (WINDOW - 1)) for k in pool.kernel) or 1
    axes = [_axis(*sizes, count) for sizes in zip(pool.kernel, pool.begins, pool.ends)]
    steps = [_Pool((k, w), (1, 1), (top, left), (end, right)) for (k, top, end), (w, left, right) in zip(*axes)]
    return [*steps[:-1], steps[-1]._replace(strides=pool.strides)]


def _axis(kernel: int, begin: int, end: int, count: int) -> list[tuple[int, int, int]]:
    """(window, begin, end) of each of `count` steps along one axis."""
    steps = []
    for number in range(count):
        grown = (kernel - 1 + number) // count  # the shares of kernel - 1, which sum to it
        one, two = min(begin, grown), min(end, grown)
        begin, end = begin - one, end - two
        steps.append((grown + 1, one, two))
    return steps
