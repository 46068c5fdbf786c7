"""Rule D4: means and sums over H and W become Convs of equal weights, whose outputs have separate scales, or
AveragePool.

1. `GlobalAveragePool` and `ReduceMean` over H, W or both of a 4-D tensor -> a depthwise Conv with a window of that size
   and all weights 1 / (H W): their INT8 values are 127, exact. A Reshape follows it if keepdims is 0
2. The same -> AveragePool, which reads no weights, if the window is at most 8 x 8 and the common range that the DLA
   requires for a pooling (NvInfer.h) costs nothing: input and output have one scale of the model's own, or the output
   may have none
3. H or W above 32: windows of at most 8 come first, AveragePools if they divide the size, else depthwise Convs with
   padding, whose zeros count; the weights of the last Conv compensate for it. Their outputs have the scale of the input
   if the result has one
4. `ReduceSum` over H, W or both -> the same with weights that do not divide
5. `AveragePool` with a window above 8 -> a depthwise Conv with that window, strides and padding, if its zeros count; a
   window that neither overlaps the next one nor is padded -> as in case 3
6. `AveragePool` that the DLA has, between two different scales of the model's own, if that Conv in INT8 is estimated
   faster than the pooling in FP16 (limit P5), or if `--unify_scales max` would raise the smaller range -> the Conv
7. `ReduceMean` and `ReduceSum` over the channels, with keepdims 1 -> a 1x1 Conv to one channel with all weights 1 / C,
   or 1

Not: an unknown H or W; reductions over other axes; padded windows whose padding does not count; dilated windows;
ceil_mode if windows do not divide H or W; in case 5 windows above 32, or strides above 8, that are padded, overlap or
have a prime factor above 8; more than 8192 channels.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import (
    LARGEST_BLOCK,
    LARGEST_KERNEL,
    MOST_CHANNELS,
    NO_SIZES,
    Rewriter,
    Row,
)
from qdq_translator.translation.passes.editor import Image, known, stay_if
from qdq_translator.translation.targets.cost.model import Surface, Work

RULE = "D4"
WINDOW = 8
_Step = Tuple[int, int]
"""Window, which is also the stride, and padding on each side, along one axis."""


@functools.lru_cache(maxsize=None)
def factors(size: int, most: int = WINDOW) -> Optional[tuple[int, ...]]:
    """The fewest numbers of at most `most` whose product is `size`, largest first; None if a prime factor is larger.

    >>> factors(40), factors(7), factors(26), factors(65, 32) ((8, 5), (7,), None, (13, 5))
    """
    if size <= most:
        return (size,) if size > 1 else ()
    rests = ((part, factors(size // part, most)) for part in range(most, 1, -1) if size % part == 0)
    found: list[tuple[int, ...]] = [(part, *rest) for part, rest in rests if rest is not None]
    fewest = min(found, key=len, default=None)
    return fewest and tuple(sorted(fewest, reverse=True))


def steps(size: int) -> tuple[_Step, ...]:
    """Steps of a mean along a whole axis. The last window is as large as a Conv allows, so that as many values as
    possible are summed before they are rounded.

    >>> steps(32), steps(112), steps(41)
    (((32, 0),), ((4, 0), (28, 0)), ((2, 1), (21, 0)))
    """
    if size <= LARGEST_KERNEL:
        return ((size, 0),)
    few = [k for k in range(2, WINDOW + 1) if -(-size // k) <= LARGEST_KERNEL] or [WINDOW]
    exact = [k for k in few if size % k == 0]
    if exact:
        return ((exact[0], 0), *steps(size // exact[0]))
    fitting = ((k, p) for k in few for p in range(1, k) if (size + 2 * p) // k * k >= size + p)
    window, pad = next(fitting)
    return ((window, pad), *steps((size + 2 * pad) // window))


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("GlobalAveragePool", "ReduceMean", "ReduceSum", "AveragePool"):
        limits = rewriter.rejected_by(node)
        own = not limits and node.is_op("AveragePool")
        if _loses(rewriter, node) if own else limits and (not node.is_op("AveragePool") or "P2" in limits):
            rewriter.attempt(_rewrite, node)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    image = rewriter.sized(node.inputs[0], NO_SIZES)
    stay_if(image[1] > MOST_CHANNELS, f"it has more than {MOST_CHANNELS} channels")
    axes = {2, 3} if node.is_op("GlobalAveragePool") else reduced(rewriter, node)
    if node.is_op("AveragePool"):
        _window(rewriter, node, image)
    elif axes == {1} and operators.keeps_dimensions(node):
        _over_channels(rewriter, node, image[1])
    else:
        stay_if(not axes or not axes <= {2, 3}, "it does not reduce H and W only")
        sizes = [image[axis] if axis in axes else 1 for axis in (2, 3)]
        _in_a_row(rewriter, node, [steps(size) for size in sizes], image[1], math.prod(sizes))


def _window(rewriter: Rewriter, node: Node, image: Image) -> None:
    """Cases 5 and 6."""
    window, pads = rewriter.window(node)
    kernel, strides, padded = window.kernel, window.strides, any(pads)
    apart = kernel == strides and not padded
    stay_if(window.dilated, "its windows are dilated")
    stay_if(padded and not operators.counts_padding(node), "its padding does not count in its averages")
    rest = any(size % k for size, k in zip(image[2:], kernel))
    stay_if(window.rounds_up and (rest or not apart), "it rounds sizes up")
    if not padded and tuple(kernel) == image[2:]:
        _in_a_row(rewriter, node, [steps(size) for size in kernel], image[1], math.prod(kernel))
    elif max(kernel) <= LARGEST_KERNEL and max(strides) <= LARGEST_BLOCK["Conv"]:
        row = Row(rewriter, node)
        _conv(row, "mean", kernel, 1 / math.prod(kernel), image[1], pads=pads, strides=strides)
        row.put(RULE)
    else:
        why = "it has windows or strides that no Conv of the DLA has"
        stay_if(not apart, why)
        windows = [[(k, 0) for k in known(factors(size), why) or (1,)] for size in kernel]
        _in_a_row(rewriter, node, windows, image[1], math.prod(kernel))


def _in_a_row(rewriter: Rewriter, node: Node, axes: Sequence[Sequence[_Step]], channels: int, values: int) -> None:
    """Cases 1 to 4: build a mean, or a sum, of `values` elements."""
    source, target = node.inputs[0], node.outputs[0]
    flat = node.is_op("ReduceMean", "ReduceSum") and not operators.keeps_dimensions(node)
    shape = rewriter.types.shape(target) or ()
    sizes = [0, *(size for size in shape[1:] if isinstance(size, int))]
    stay_if(flat and len(sizes) != len(shape), "the shape of its output is not known")
    row = Row(rewriter, node)
    _averages(row, axes, channels, values)
    if flat:
        row.reshape("flat", sizes)
    row.put(RULE)
    if "infer_average_pool_scales" in rewriter.settings.policy.on and not node.is_op("ReduceSum"):  # rule S6
        averages, needs = row.nodes, []
    else:
        averages, needs = row.nodes[: -2 if flat else -1], [target]
    for layer in averages:
        rewriter.derive(RULE, layer.outputs[0], source, layer, needs=needs, note="the range of what is averaged")
    if flat:
        layer = row.nodes[-2]
        rewriter.derive(RULE, layer.outputs[0], target, layer, note="the same values as its Reshape's output")


def _averages(row: Row, axes: Sequence[Sequence[_Step]], channels: int, values: int) -> None:
    """The layers of a mean, or a sum; shorter axes are reduced in the last steps."""
    total, length, count = row.node.is_op("ReduceSum"), max(map(len, axes)), 1
    for number, pair in enumerate(zip(*([(1, 0)] * (length - len(one)) + list(one) for one in axes))):
        (kernel, pads), last = map(list, zip(*pair)), number == length - 1
        area = math.prod(kernel)
        # a pooling divides by its window only, and its input and output have one range (case 2)
        exact = not any(pads) and not (last and (total or count * area != values or not _has_one_range(row)))
        if exact and max(kernel) <= WINDOW:
            row.add("AveragePool", f"mean{number}", kernel_shape=kernel, strides=kernel)
        else:
            weight = 1 / area if not last else count if total else count / values
            more = {"strides": kernel} if max(kernel) <= WINDOW else {}
            _conv(row, f"mean{number}", kernel, weight, channels, pads=pads * 2, **more)
        count *= area


def _has_one_range(row: Row) -> bool:
    """Case 2: the one range that the DLA requires of a pooling costs nothing."""
    source, target = row.node.inputs[0], row.node.outputs[0]
    own = row.rewriter.scales.value(target)
    return target in row.rewriter.graph.outputs if own is None else own == row.rewriter.scales.value(source)


def _conv(row: Row, what: str, kernel: Sequence[int], weight: float, channels: int, **more: Any) -> None:
    """A depthwise Conv with equal weights."""
    rewriter, node = row.rewriter, row.node
    rewriter.afford(node.name, channels, *kernel)
    values: np.ndarray = np.full((channels, 1, *kernel), weight, rewriter.dtype(node.inputs[0]))
    name = rewriter.constant(f"{node.name}.{what}.weight", values)
    row.add("Conv", what, name, kernel_shape=list(kernel), group=channels, **more)


def _loses(rewriter: Rewriter, node: Node) -> bool:
    """Case 6: True if one range costs the pooling more than a Conv costs."""
    own = [rewriter.scales.value(name) for name in (node.inputs[0], node.outputs[0])]
    before, after = rewriter.image(node.inputs[0]), rewriter.image(node.outputs[0])
    window, model = operators.window(node), rewriter.settings.cost[0]
    if None in own or own[0] == own[1] or before is None or after is None or window is None:
        return False
    if model is None or rewriter.settings.policy.unifies:
        return True
    batch = before[0] if isinstance(before[0], int) else 1
    ends = [Surface(shape[1], batch * shape[2] * shape[3]) for shape in (before, after)]
    products, channels = ends[1].positions * math.prod(window.kernel), before[1]
    conv = Work((ends[0],), (ends[1],), products, (channels, channels), channels, channels * math.prod(window.kernel))
    pool = Work((ends[0],), (ends[1],))
    return model.estimate(conv, fp16=False).milliseconds < model.estimate(pool, fp16=True).milliseconds


def _over_channels(rewriter: Rewriter, node: Node, channels: int) -> None:
    """Case 7."""
    share = 1 / channels if node.is_op("ReduceMean") else 1.0
    weight = rewriter.matrix(f"{node.name}.weight", np.full((1, channels), share), node)
    rewriter.replace(RULE, node, [Node("Conv", [node.inputs[0], weight], node.outputs, node.name, kernel_shape=[1, 1])])


def reduced(rewriter: Rewriter, node: Node) -> set[int]:
    """The axes of a four-dimensional reduction; empty if unknown."""
    return set(operators.non_negative(operators.axes(node, rewriter.graph.array), 4) or ())
