"""Rule D4: means over H and W become AveragePool with windows of 8 at most.

1. `GlobalAveragePool`                             -> AveragePool with the window H x W
2. `ReduceMean` over H, W or both of a 4-D tensor  -> AveragePool, with a Reshape behind it where keepdims is 0
3. `AveragePool` with a window above 8, without padding and overlap: likewise

Where H or W is above 8, several in a row: windows whose product is H (W), as few as possible. The mean of means of equal
size is the mean. The tensors between get the scale of the input if the result has one (the DLA requires one scale for
input and output of a pooling, NvInfer.h); the pool before a Reshape that of the result.

4. Where H or W is 11, 13, ... 31 times what such windows can do, the last step of a mean over all of it is a depthwise
   Conv with a kernel of that size and all weights 1 / (height * width) of its window: their codes are 127, so that they are
   exact.

5. `AveragePool` with a window of 9 to 32 that overlaps the next one, does not divide H or W, or is padded with zeros that
   count -> a depthwise Conv with that window and all weights 1 / (height * width), exact likewise.
6. `ReduceMean` and `ReduceSum` over the channels, with keepdims 1 -> a 1x1 Conv to one channel with all weights 1 / C, or 1
7. `ReduceSum` over H, W or both -> the mean as above, then a Scale by the number of values

Not: where H or W is unknown; another prime factor above 8; reductions over other axes; ceil_mode where windows do not divide H or W;
padded windows whose padding does not count; dilated windows; windows above 32, or strides above 8, in case 5.
"""

from __future__ import annotations

import functools
from typing import Any, Optional, Sequence

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import LARGEST_BLOCK, LARGEST_KERNEL, MOST_CHANNELS, Rewriter

RULE = "D4"
WINDOW = 8


@functools.lru_cache(maxsize=None)
def factors(size: int, most: int = WINDOW) -> Optional[tuple[int, ...]]:
    """The fewest numbers of at most `most` whose product is `size`, largest first; None where a prime factor is above it.

    >>> factors(40), factors(7), factors(26), factors(65, 32)
    ((8, 5), (7,), None, (13, 5))
    """
    if size <= most:
        return (size,) if size > 1 else ()
    best: Optional[tuple[int, ...]] = None
    for part in range(most, 1, -1):
        if size % part == 0:
            rest = factors(size // part, most)
            if rest is not None and (best is None or len(rest) + 1 < len(best)):
                best = tuple(sorted((part, *rest), reverse=True))
    return best


def _parts(size: int, whole: bool) -> Optional[tuple[tuple[int, ...], int]]:
    """(windows of at most 8, a prime above it or 1), whose product is `size`. A prime only where the window is the whole
    image: there the Conv makes one place and needs no stride above 8, which the DLA does not have."""
    for prime in (11, 13, 17, 19, 23, 29, 31) if whole else ():
        rest = factors(size // prime) if size % prime == 0 else None
        if rest is not None:
            return rest, prime
    found = factors(size)
    return None if found is None else (found, 1)


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("GlobalAveragePool", "ReduceMean", "ReduceSum", "AveragePool"):
        limits = rewriter.rejected_by(node)
        if "P2" in limits if node.is_op("AveragePool") else limits:
            _rewrite(rewriter, node)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    source = node.inputs[0]
    image, dtype = rewriter.image(source), rewriter.dtype(source)
    if image is None or dtype is None:
        rewriter.leave(node, "its input does not have four dimensions with known channels, H and W")
        return
    height, width = image[2:]
    if node.is_op("ReduceMean", "ReduceSum") and reduced(rewriter, node) == {1} and operators.keeps_dimensions(node):
        _over_channels(rewriter, node, image[1], dtype)
        return
    window = _window(rewriter, node, height, width)
    if window is None:
        return
    parts = [_parts(size, size == whole) for size, whole in zip(window, (height, width))]
    if parts[0] is None or parts[1] is None:
        rewriter.leave(node, f"{window[0]}x{window[1]} has a prime factor above {WINDOW} that no Conv can take")
        return
    (rows, high), (columns, wide) = parts[0], parts[1]
    length = max(len(rows), len(columns))
    windows = list(zip(rows + (1,) * (length - len(rows)), columns + (1,) * (length - len(columns))))
    if max(high, wide) > 1 or not windows:
        windows.append((high, wide))
    _in_a_row(rewriter, node, windows, image[1], dtype, window[0] * window[1])


def _in_a_row(
    rewriter: Rewriter, node: Node, windows: Sequence[tuple[int, int]], channels: int, dtype: type, values: int
) -> None:
    """The poolings, a Scale where the sum of so many `values` is wanted, a Reshape where dimensions go."""
    source, target = node.inputs[0], node.outputs[0]
    shape = rewriter.types.shape(target)
    flat = bool(node.is_op("ReduceMean", "ReduceSum") and not operators.keeps_dimensions(node))
    sizes = [0, *(d for d in (shape or ())[1:] if isinstance(d, int))]
    if flat and (shape is None or len(sizes) != len(shape)):
        rewriter.leave(node, "the shape of its output is not known")
        return
    count = len(windows) + node.is_op("ReduceSum") + flat
    nodes: list[Node] = []
    current = source
    for number in range(count):
        last = number == count - 1
        output = target if last else rewriter.tensor(f"{target}_mean{number}")
        name = node.name if last else rewriter.node(f"{node.name}_mean{number}")
        if number < len(windows):
            nodes.append(_pooling(rewriter, current, output, name, windows[number], channels, dtype))
        elif flat and last:
            nodes.append(rewriter.reshape(current, output, sizes, name))
        else:
            nodes.append(rewriter.scale_layer(current, output, channels, float(values), 0.0, name, dtype))
        current = output
    rewriter.replace(RULE, node, nodes)
    for number, layer in enumerate(nodes[:-1]):
        if flat and number == count - 2:
            rewriter.derive(RULE, layer.outputs[0], target, layer, note="the same values as its Reshape's output")
        else:
            rewriter.derive(RULE, layer.outputs[0], source, layer, needs=[target], note="scale of the pooling's input")


def _pooling(
    rewriter: Rewriter,
    source: str,
    target: str,
    name: str,
    window: tuple[int, int],
    channels: int,
    dtype: type,
    **more: Any,
) -> Node:
    """AveragePool, or a depthwise Conv where the window is too large; more: attributes of a Conv."""
    rows, columns = window
    if max(window) <= WINDOW:
        return Node("AveragePool", [source], [target], name, kernel_shape=[rows, columns], strides=[rows, columns])
    rewriter.afford(name, channels, rows, columns)
    weight = rewriter.constant(f"{name}.weight", np.full((channels, 1, rows, columns), 1 / (rows * columns), dtype))
    return Node("Conv", [source, weight], [target], name, kernel_shape=[rows, columns], group=channels, **more)


def _over_channels(rewriter: Rewriter, node: Node, channels: int, dtype: type) -> None:
    """Case 6."""
    if channels > MOST_CHANNELS:
        rewriter.leave(node, f"it reduces more than {MOST_CHANNELS} channels")
        return
    values: np.ndarray = np.full((1, channels, 1, 1), 1 / channels if node.is_op("ReduceMean") else 1.0, dtype)
    weight = rewriter.constant(f"{node.name}.weight", values)
    rewriter.replace(RULE, node, [Node("Conv", [node.inputs[0], weight], node.outputs, node.name, kernel_shape=[1, 1])])


def reduced(rewriter: Rewriter, node: Node) -> set[int]:
    """The axes of a reduction of four dimensions; empty where they are not known."""
    return set(operators.non_negative(operators.axes(node, rewriter.graph.array), 4) or ())


def _window(rewriter: Rewriter, node: Node, height: int, width: int) -> Optional[tuple[int, int]]:
    if node.is_op("GlobalAveragePool"):
        return height, width
    if node.is_op("ReduceMean", "ReduceSum"):
        found = reduced(rewriter, node)
        if not found or not found <= {2, 3}:
            rewriter.leave(node, "it does not reduce H and W only")
            return None
        return height if 2 in found else 1, width if 3 in found else 1
    window = operators.window(node)
    if window is None:
        rewriter.leave(node, "its kernel is not known")
        return None
    kernel = (window.kernel[0], window.kernel[1])
    fits = height % kernel[0] == 0 and width % kernel[1] == 0
    alone = (height, width) == kernel
    if window.dilated:
        rewriter.leave(node, "its windows are dilated")
    elif not fits or any(rewriter.pads(node) or [1]) or not (alone or window.strides == window.kernel):
        _overlapping(rewriter, node, window)
    else:
        return kernel
    return None


def _overlapping(rewriter: Rewriter, node: Node, window: operators.Window) -> None:
    """Case 5."""
    source, pads = node.inputs[0], rewriter.pads(node)
    channels, dtype = rewriter.channels(source), rewriter.dtype(source)
    if pads is None or channels is None or dtype is None:
        rewriter.leave(node, "its sizes are not known")
    elif any(pads) and not operators.counts_padding(node):
        rewriter.leave(node, "its padding does not count in its averages")
    elif window.rounds_up or max(window.kernel) > LARGEST_KERNEL or max(window.strides) > LARGEST_BLOCK["Conv"]:
        rewriter.leave(node, "it rounds sizes up, or has windows or strides that no Conv of the DLA has")
    else:
        kernel = (window.kernel[0], window.kernel[1])
        more = {"pads": pads, "strides": window.strides}
        new = _pooling(rewriter, source, node.outputs[0], node.name, kernel, channels, dtype, **more)
        rewriter.replace(RULE, node, [new])
