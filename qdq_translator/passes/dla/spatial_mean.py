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

Not: where H or W is unknown; another prime factor above 8; ReduceMean over other axes; a window that does not divide H or W
(with ceil_mode too); windows that overlap; padded windows; dilated windows.
"""

from __future__ import annotations

import functools
from typing import Optional

import numpy as np

from qdq_translator import operators
from qdq_translator.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D4"
WINDOW = 8


@functools.lru_cache(maxsize=None)
def factors(size: int) -> Optional[tuple[int, ...]]:
    """The fewest windows of at most 8 whose product is `size`, largest first; None where a prime factor is above 8.

    >>> factors(40), factors(7), factors(26)
    ((8, 5), (7,), None)
    """
    if size <= WINDOW:
        return (size,) if size > 1 else ()
    best: Optional[tuple[int, ...]] = None
    for window in range(WINDOW, 1, -1):
        if size % window == 0:
            rest = factors(size // window)
            if rest is not None and (best is None or len(rest) + 1 < len(best)):
                best = tuple(sorted((window, *rest), reverse=True))
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
    for node in rewriter.nodes("GlobalAveragePool", "ReduceMean", "AveragePool"):
        limits = rewriter.rejected_by(node)
        if "P2" in limits if node.is_op("AveragePool") else limits:
            _rewrite(rewriter, node)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    image = rewriter.image(source)
    if image is None:
        rewriter.leave(node, "its input does not have four dimensions with known channels, H and W")
        return
    height, width = image[2:]
    window = _window(rewriter, node, height, width)
    if window is None:
        return
    parts = [_parts(size, size == whole) for size, whole in zip(window, (height, width))]
    dtype = rewriter.dtype(source)
    if parts[0] is None or parts[1] is None or dtype is None:
        rewriter.leave(node, f"{window[0]}x{window[1]} has a prime factor above {WINDOW} that no Conv can take")
        return
    (rows, high), (columns, wide) = parts[0], parts[1]
    length = max(len(rows), len(columns))
    windows = list(zip(rows + (1,) * (length - len(rows)), columns + (1,) * (length - len(columns))))
    if max(high, wide) > 1 or not windows:
        windows.append((high, wide))
    count = len(windows)
    shape = rewriter.types.shape(target)
    flat = bool(node.is_op("ReduceMean") and not node.get("keepdims", 1))
    nodes: list[Node] = []
    current = source
    for number, (r, c) in enumerate(windows):
        last = number == count - 1
        output = target if last and not flat else rewriter.tensor(f"{target}_mean{number}")
        name = node.name if last and not flat else rewriter.node(f"{node.name}_mean{number}")
        if max(r, c) <= WINDOW:
            nodes.append(Node("AveragePool", [current], [output], name, kernel_shape=[r, c], strides=[r, c]))
        else:
            channels = image[1]
            rewriter.afford(node.name, channels, r, c)
            weight = rewriter.constant(f"{name}.weight", np.full((channels, 1, r, c), 1 / (r * c), dtype))
            nodes.append(Node("Conv", [current, weight], [output], name, kernel_shape=[r, c], group=channels))
        current = output
    if flat:
        sizes = [0, *(d for d in (shape or ())[1:] if isinstance(d, int))]
        if shape is None or len(sizes) != len(shape):
            rewriter.leave(node, "the shape of its output is not known")
            return
        nodes.append(rewriter.reshape(current, target, sizes, node.name))
    rewriter.replace(RULE, node, nodes)
    for pool in nodes[: count - (not flat)]:
        name = pool.outputs[0]
        if flat and pool is nodes[count - 1]:
            rewriter.derive(RULE, name, target, pool, note="the same values as its Reshape's output")
        else:
            rewriter.derive(RULE, name, source, pool, needs=[target], note="scale of the pooling's input")


def _window(rewriter: Rewriter, node: Node, height: int, width: int) -> Optional[tuple[int, int]]:
    if node.is_op("GlobalAveragePool"):
        return height, width
    if node.is_op("ReduceMean"):
        found = set(operators.non_negative(operators.axes(node, rewriter.graph.array), 4) or ())
        if not found or not found <= {2, 3}:
            rewriter.leave(node, "it does not reduce H and W only")
            return None
        return height if 2 in found else 1, width if 3 in found else 1
    window = operators.window(node)
    if window is None:
        rewriter.leave(node, "its kernel is not known")
        return None
    kernel = window.kernel
    fits = height % kernel[0] == 0 and width % kernel[1] == 0
    alone = (height, width) == tuple(kernel)
    if max(kernel) <= WINDOW or any(window.pads) or not fits or not (alone or window.strides == kernel):
        rewriter.leave(node, "its windows overlap, are padded or do not divide H and W")
        return None
    if window.automatic not in ("", "VALID") or window.dilated:
        rewriter.leave(node, "its windows are padded or dilated")
        return None
    return kernel[0], kernel[1]
