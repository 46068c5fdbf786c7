"""Common part of rules D13, D17 and D23: layers that multiply along rows, columns or channels with a matrix."""

from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.rewriter import LARGEST_BLOCK, LARGEST_KERNEL, Rewriter, Row
from qdq_translator.translation.passes.dla.spatial_mean import WINDOW, factors
from qdq_translator.translation.passes.editor import Image, stay_if
from qdq_translator.translation.targets.cost.model import Surface, Work

Matrix = Tuple[np.ndarray, Optional[np.ndarray]]
"""Weights [outputs, inputs], and a bias for each output or None."""
Matrices = Dict[int, Matrix]
"""Axis -> its matrix."""
_LARGEST = {"nearest": 32, "linear": 4}
"""Largest factors of a Resize on the DLA (limit R2)."""
_MODES = {"nearest": ("asymmetric", "floor"), "linear": ("half_pixel", "round_prefer_floor")}


class Step(NamedTuple):
    """One layer of several in series. constants: by the suffixes of their names; None for an input that is omitted.
    sizes: C, H, W of its output, or these in another order."""

    op: str
    what: str
    constants: Mapping[str, Optional[np.ndarray]]
    attributes: Dict[str, Any]
    sizes: Sequence[int]

    def work(self, before: Sequence[int], batch: int) -> Work:
        read, write = (Surface(sizes[0], batch * math.prod(sizes[1:])) for sizes in (before, self.sizes))
        weight = next(iter(self.constants.values()), None)
        if self.op != "Conv" or weight is None:
            return Work((read,), (write,))
        products, group = write.positions * math.prod(weight.shape[2:]), int(self.attributes.get("group", 1))
        return Work((read,), (write,), products, (read.channels, write.channels), group, weight.size)


class Window(NamedTuple):
    """A kernel along one axis. padding: on each side."""

    kernel: np.ndarray
    padding: int = 0
    stride: int = 1


def layers(rewriter: Rewriter, node: Node, image: Image, matrices: Matrices) -> list[Node]:
    """Layers from the input of `node`, whose shape is `image`, to its output; the last one has the node's name. [] if
    the matrices change nothing.

    The form along H and W is a Resize that the DLA supports, or else the faster by estimate of depthwise Convs and of
    1x1 Convs between Transposes.
    """
    steps: list[Step] = []
    sizes: Sequence[int] = image[1:]
    changing = {
        axis: own
        for axis, own in matrices.items()
        if own[1] is not None or not np.array_equal(own[0], np.eye(len(own[0])))
    }
    if 1 in changing:
        steps.append(_product("channels", "weight", *changing.pop(1), sizes))
        sizes = steps[0].sizes
    if changing:
        resizes = _resizes(rewriter, changing, sizes)
        model, batch = rewriter.settings.cost[0], image[0] if isinstance(image[0], int) else 1

        def milliseconds(plan: Sequence[Step]) -> float:
            before = [sizes, *(step.sizes for step in plan)]
            works = [step.work(read, batch) for step, read in zip(plan, before)]
            return 0.0 if model is None else sum(model.estimate(work, fp16=False).milliseconds for work in works)

        steps += resizes or min([*_windows(changing, sizes), _turned(changing, sizes)], key=milliseconds)
    return build(rewriter, node, steps)


def build(rewriter: Rewriter, node: Node, steps: Sequence[Step]) -> list[Node]:
    row, dtype = Row(rewriter, node), rewriter.dtype(node.inputs[0])
    for step in steps:
        inputs = []
        for key, values in step.constants.items():
            if values is not None and step.op == "Conv":
                rewriter.afford(node.name, *values.shape)
                values = np.ascontiguousarray(values, dtype)
            inputs.append("" if values is None else rewriter.constant(f"{node.name}.{key}", values))
        row.add(step.op, step.what, *inputs, **step.attributes)
    return row.close()


def selection(start: np.ndarray, moved: np.ndarray) -> Optional[Matrices]:
    """Matrices of 0 and 1 that convert `start` to `moved`, images of the numbers 0, 1, 2, ...; None if this does more
    than select channels, rows and columns."""
    edges = moved[0][:, 0, 0], moved[0][0, :, 0], moved[0][0, 0]
    c, h, w = (np.unravel_index(edge, start.shape[1:])[axis] for axis, edge in enumerate(edges))
    channels = slice(-1, None), slice(None)  # the last one decides most cases
    if not all(np.array_equal(start[:, c[part, None, None], h[:, None], w], moved[:, part]) for part in channels):
        return None
    return {axis: (taken(index, start.shape[axis]), None) for axis, index in enumerate((c, h, w), 1)}


# ---------------- forms


def _resizes(rewriter: Rewriter, matrices: Matrices, sizes: Sequence[int]) -> list[Step]:
    """[] if no Resize that the DLA supports does the same."""
    if rewriter.graph.opset() < 11 or any(bias is not None for _, bias in matrices.values()):
        return []
    grown = [matrices[axis][0] if axis in matrices else np.ones((1, 1)) for axis in (2, 3)]
    by = [len(matrix) // matrix.shape[1] for matrix in grown]
    mode = next((mode for mode in _MODES if all(map(_is_resize, (mode, mode), grown, by))), None)
    if mode is None:
        return []
    if mode == "linear" and max(by) > _LARGEST[mode]:
        return _poolings(rewriter, by, sizes) if max(by) <= WINDOW else []
    return _resizes_in_a_row(rewriter, mode, by, sizes)


def _resizes_in_a_row(rewriter: Rewriter, mode: str, by: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """[] if a prime factor is larger than those of the DLA."""
    rows, columns = (factors(factor, _LARGEST[mode]) for factor in by)
    if rows is None or columns is None:
        return []
    steps: list[Step] = []
    for number, pair in enumerate(itertools.zip_longest(rows or (1,), columns or (1,), fillvalue=1)):
        steps.append(_resize(rewriter, f"{mode}{number}", mode, pair, steps[-1].sizes if steps else sizes))
    return steps


def _is_resize(mode: str, matrix: np.ndarray, factor: int) -> bool:
    """True if the matrix is the Resize of an axis by this whole number."""
    made, size = matrix.shape
    if size * factor != made:
        return False
    if mode == "nearest":
        expected = taken(np.arange(made) // factor, size)
    else:
        expected = _linear(_places(size, made, factor, "half_pixel"), size)
    return np.allclose(matrix, expected, atol=1e-6)


def _resize(rewriter: Rewriter, what: str, mode: str, by: Sequence[int], sizes: Sequence[int]) -> Step:
    # below opset 13 the region of interest is not optional
    region = None if rewriter.graph.opset() >= 13 else np.zeros(0, np.float32)
    constants = {f"{what}.roi": region, f"{what}.scales": np.array([1, 1, *by], np.float32)}
    where, rounding = _MODES[mode]
    attributes = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": rounding}
    return Step("Resize", what, constants, attributes, [sizes[0], *(size * f for size, f in zip(sizes[1:], by))])


def _poolings(rewriter: Rewriter, by: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Linear interpolation is two box filters in series: the repeated pixel, and a mean, which leaves its padding out.
    For an even factor the samples are between two values of the mean."""
    steps = [_resize(rewriter, "nearest0", "nearest", by, sizes)]
    even = [1 if factor % 2 else 2 for factor in by]
    more = [size + (factor + 1) % 2 for size, factor in zip(steps[0].sizes[1:], by)]
    pads = [factor // 2 for factor in by] * 2
    steps.append(Step("AveragePool", "mean", {}, {"kernel_shape": list(by), "pads": pads}, [sizes[0], *more]))
    if max(even) > 1:
        steps.append(Step("AveragePool", "between", {}, {"kernel_shape": even, "pads": [0] * 4}, steps[0].sizes))
    return steps


def window(matrix: np.ndarray) -> Optional[Window]:
    """The Conv that multiplies with the matrix, with padding within limits C2 to C6."""
    (made, size), (rows, columns) = matrix.shape, np.nonzero(matrix)
    for stride in range(1, LARGEST_BLOCK["Conv"] + 1) if len(rows) else ():
        at = columns - rows * stride
        low, taps = int(at.min()), int(at.max() - at.min()) + 1
        if taps > LARGEST_KERNEL:
            continue
        kernel = np.zeros(taps)
        kernel[at - low] = matrix[rows, columns]
        output, tap = np.indices((made, taps))
        place = output * stride + tap + low
        inside = (place >= 0) & (place < size)
        if not np.array_equal(matrix[output[inside], place[inside]], kernel[tap[inside]]):
            continue
        for length in range(taps, LARGEST_KERNEL + 1):
            for pad in range(max(0, -low), min(length, length - taps - low + 1)):
                if (size + 2 * pad - length) // stride + 1 == made:
                    return Window(np.pad(kernel, (low + pad, length - taps - low - pad)), pad, stride)
    return None


def shift(before: int, behind: int) -> Window:
    """A depthwise Conv that pads with zeros before and behind the values."""
    return Window(np.eye(1, before + behind + 1, behind)[0], before + behind)


def windowed(what: str, key: str, windows: Sequence[Window], sizes: Sequence[int]) -> Step:
    """A depthwise Conv; windows: along H and W."""
    kernel, channels = np.outer(*(own.kernel for own in windows)), sizes[0]
    pads, strides = [own.padding for own in windows] * 2, [own.stride for own in windows]
    attributes: Dict[str, Any] = {"kernel_shape": list(kernel.shape), "pads": pads, "group": channels}
    attributes.update({"strides": strides} if max(strides) > 1 else {})
    after = [(size + 2 * own.padding - len(own.kernel)) // own.stride + 1 for size, own in zip(sizes[1:], windows)]
    weight = np.broadcast_to(kernel, (channels, 1, *kernel.shape))
    return Step("Conv", what, {key: weight}, attributes, [channels, *after])


def _windows(matrices: Matrices, sizes: Sequence[int]) -> list[list[Step]]:
    """One depthwise Conv and, for two axes, also one for each."""
    one = Window(np.ones(1))
    known: dict[int, Window] = {}
    for axis, (matrix, bias) in matrices.items():
        own = None if bias is not None else window(matrix)
        if own is None:
            return []
        known[axis] = own
    plans = [[windowed("spatial", "weight", [known.get(2, one), known.get(3, one)], sizes)]]
    if len(known) == 2:
        rows = windowed("rows", "rows", [known[2], one], sizes)
        plans.append([rows, windowed("columns", "columns", [one, known[3]], rows.sizes)])
    return plans


def _turned(matrices: Matrices, sizes: Sequence[int]) -> list[Step]:
    """A 1x1 Conv for each axis, which Transposes make the channels."""
    steps: list[Step] = []
    layout, image = [0, 1, 2, 3], [0, *sizes]  # the axis at each position, and its size
    for axis, (matrix, bias) in matrices.items():
        order, place = [0, 1, 2, 3], layout.index(axis)
        order[1], order[place] = place, 1
        layout, image = [layout[index] for index in order], [image[index] for index in order]
        what = "rows" if axis == 2 else "columns"
        steps.append(Step("Transpose", f"by_{what}", {}, {"perm": order}, image[1:]))
        steps.append(_product(what, what, matrix, bias, image[1:]))
        image[1] = len(matrix)
    back = [layout.index(axis) for axis in range(4)]
    return [*steps, Step("Transpose", "back", {}, {"perm": back}, [image[index] for index in back[1:]])]


def _product(what: str, key: str, matrix: np.ndarray, bias: Optional[np.ndarray], sizes: Sequence[int]) -> Step:
    """A 1x1 Conv."""
    constants = {key: matrix[:, :, None, None], **({} if bias is None else {f"{key}_bias": bias})}
    return Step("Conv", what, constants, {"kernel_shape": [1, 1]}, [len(matrix), *sizes[1:]])


# ---------------- Resize, as a matrix for each axis


_NEAREST: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


def resized(rewriter: Rewriter, node: Node) -> Matrices:
    """The matrices of a Resize. Raises Stays if there are none."""
    before, after, opset = rewriter.sized(node.inputs[0]), rewriter.sized(node.outputs[0]), rewriter.graph.opset()
    stay_if(opset < 11 or operators.crops(node), "it crops, or the opset is below 11")
    stretches = node.get("keep_aspect_ratio_policy", "stretch") == "stretch" and node.get("axes") is None
    stay_if(not stretches, "it keeps the aspect ratio, or names axes")
    stay_if(node.get("antialias", 0), "it is smoothed (antialias)")
    scales = rewriter.graph.array(node.input(2))
    if scales is None or scales.shape != (4,):
        scales = np.array([1, 1, *(made / size for size, made in zip(before[2:], after[2:]))])
    stay_if(before[1] != after[1] or any(scales[:2] != 1), "it resizes other axes than H and W")
    mode, (where, rounding) = operators.mode(node), operators.resize_coordinates(node, opset)
    stay_if(mode != "nearest" and where == "tf_half_pixel_for_nn", f"its coordinates are {where}")
    found: Matrices = {}
    for axis, size, made in ((2, before[2], after[2]), (3, before[3], after[3])):
        at = _places(size, made, float(scales[axis]), where)
        if mode == "nearest":
            found[axis] = taken(np.clip(_NEAREST[rounding](at), 0, size - 1).astype(np.int64), size), None
        elif mode == "linear":
            found[axis] = _linear(at, size), None
        else:
            found[axis] = _cubic(at, size, node.get("cubic_coeff_a", -0.75), node.get("exclude_outside", 0)), None
    return found


def _places(size: int, made: int, ratio: float, where: str) -> np.ndarray:
    """Positions of an axis's outputs among its inputs, in float32 as in ONNX Runtime. Raises Stays if unknown."""
    index = np.arange(made, dtype=np.float32)
    half_pixel = (index + np.float32(0.5)) / np.float32(ratio) - np.float32(0.5)
    found = {
        "asymmetric": index / np.float32(ratio),
        "half_pixel": half_pixel,
        "pytorch_half_pixel": half_pixel if made > 1 else index * 0,
        "align_corners": index * np.float32(size - 1) / np.float32(max(made - 1, 1)),
        "tf_half_pixel_for_nn": (index + np.float32(0.5)) / np.float32(ratio),
    }
    stay_if(where not in found, f"its coordinates are {where}")
    return index if ratio == 1 else found[where]  # ONNX Runtime moves nothing along an axis that keeps its size


def taken(indices: np.ndarray, size: int) -> np.ndarray:
    """The matrix that selects the input of each index, or 0 if the index is negative."""
    return (indices[:, None] == np.arange(size)).astype(np.float32)


def _linear(at: np.ndarray, size: int) -> np.ndarray:
    """Weights of the two inputs around each position."""
    at = np.clip(at, 0, size - 1).astype(np.float64)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(size)))


def _cubic(at: np.ndarray, size: int, a: float, exclude: int) -> np.ndarray:
    """Keys' cubic convolution (ONNX Resize: cubic_coeff_a, exclude_outside)."""
    at = at.astype(np.float64)
    low = np.floor(at).astype(np.int64)
    found: np.ndarray = np.zeros((len(at), size))
    for tap in (-1, 0, 1, 2):
        d = np.abs(at - low - tap)
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        share = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
        if exclude:
            share = share * ((low + tap >= 0) & (low + tap < size))
        np.add.at(found, (np.arange(len(at)), np.clip(low + tap, 0, size - 1)), share)
    return np.asarray(found / found.sum(1, keepdims=True))
