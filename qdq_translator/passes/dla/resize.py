"""Rule D12: Resize becomes Resize by integer scale factors in a mode that the DLA has, or where that is linear poolings or Convs.

1. `Resize(sizes)`, or with factors that are no constant, where both shapes are known and H and W grow by whole numbers ->
   the same with constant scales [1, 1, h, w]. ONNX computes with output size / input size, so nothing changes.
2. Coordinates by which an output takes the same inputs (nearest: pixel i takes i // factor; linear: half_pixel under another name)
   -> asymmetric with floor, or half_pixel.
3. linear, half_pixel, by 5 to 8 along H or W -> nearest by the same factors; AveragePool with the factor as window, stride 1,
   which leaves its padding of half a window out of the average; where the factor is even, AveragePool with window 2.
4. linear along axes of one value (what DeepLab pools over the whole image) -> nearest, as there is one value to take.
5. nearest by more than 32 -> several in a row, by at most 32 each.
6. linear by other factors, or with other coordinates (align_corners, asymmetric; sizes that are no multiples) -> along H, and then
   along W, a 1x1 Conv whose weights are the shares that an output takes of each input, between Transposes that make the axis
   the channels.

The interpolation's triangle is two boxes in a row: the first one is the pixel that was repeated, the second one the pooling; an
even factor has its samples between those of the pooling, so that two neighbours are averaged. At the border a window holds
the same pixel only, which is what linear interpolation takes there. The names stay; the tensors between have the scale of the
input if the result has one (the DLA requires one for both ends of a pooling, NvInfer.h; nothing interpolated exceeds it), in
front of a last Transpose that of the result. In case 6 the layer multiplies with the shares as INT8 weights, which rounds each by
0.4% of the largest one of its output at most, and the report counts the multiplications.

Not: nearest by factors that are not whole; nearest by more than 32 with a prime factor above it; sizes that are not known; tf_crop_and_resize;
keep_aspect_ratio_policy other than stretch; named axes; opset below 11 (which has no sizes); antialias; other axes than H and W;
case 6 along more than 8192 rows or columns. Other interpolations and coordinate modes stay what they are (limit R3).
"""

from __future__ import annotations

import itertools
from typing import Optional, Sequence, Tuple

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import MOST_CHANNELS, Rewriter, Row
from qdq_translator.passes.dla.spatial_mean import WINDOW
from qdq_translator.passes.dla.spatial_mean import factors as in_a_row

RULE = "D12"
_LINEAR, LARGEST = 4, 32
"""The largest factors that the DLA has (limit R2)."""
_OURS = {"nearest": ("asymmetric", "floor"), "linear": ("half_pixel", "round_prefer_floor")}


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Resize"):
        if rewriter.graph.opset() >= 11 and rewriter.rejected_by(node) & {"R1", "R2", "R3"}:
            why = _rewrite(rewriter, node)
            if why:
                rewriter.leave(node, why)


def _rewrite(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    source, target = node.inputs[0], node.outputs[0]
    before, after = rewriter.image(source), rewriter.image(target)
    if before is None or after is None:
        return "its sizes are not known"
    if operators.crops(node):
        return "it crops"
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch" or node.get("axes") is not None:
        return "it keeps the aspect ratio, or names axes"
    if node.get("antialias", 0):
        return "it is smoothed (antialias)"
    scales = rewriter.graph.array(node.input(2))
    ratios = [made / size for size, made in zip(before[2:], after[2:])]
    if scales is not None and scales.shape == (4,):
        ratios = [float(ratio) for ratio in scales[2:]]
    if before[:2] != after[:2] or (scales is not None and scales.shape == (4,) and any(scales[:2] != 1)):
        return "it resizes other axes than H and W"
    mode, coordinates = operators.mode(node), operators.resize_coordinates(node, rewriter.graph.opset())
    factors = (after[2] // before[2], after[3] // before[3])
    whole = ratios == [float(factor) for factor in factors]
    if whole and mode in _OURS and all(same_inputs(mode, coordinates, size, f) for size, f in zip(before[2:], factors)):
        coordinates = _OURS[mode]
    if whole and mode == "linear" and all(1 in pair for pair in zip(before[2:], factors)):
        mode, coordinates = "nearest", _OURS["nearest"]
    if not whole or coordinates != _OURS.get(mode):
        return _as_shares(rewriter, node, mode, coordinates[0], ratios)
    if mode == "linear" and max(factors) > WINDOW:
        return _as_shares(rewriter, node, mode, coordinates[0], ratios)
    row = Row(rewriter, node)
    if mode == "linear" and max(factors) > _LINEAR:
        _poolings(row, factors)
    else:
        rows, columns = (in_a_row(factor, LARGEST) for factor in factors)
        if rows is None or columns is None:
            return f"it repeats values by a prime number above {LARGEST}"
        repeat(row, mode, rows, columns)
    row.put(RULE)
    for layer in row.nodes[:-1]:
        rewriter.derive(RULE, layer.outputs[0], source, layer, needs=[target], note="scale of the Resize's input")
    return ""


def repeat(row: Row, mode: str, rows: Tuple[int, ...], columns: Tuple[int, ...]) -> None:
    """Resizes in a row by these factors of H and W, in a mode as the DLA has it."""
    for number, factors in enumerate(itertools.zip_longest(rows or (1,), columns or (1,), fillvalue=1)):
        name = f"{row.node.name}.{mode}{number}"
        scales = row.rewriter.constant(f"{name}.scales", np.array([1, 1, *factors], np.float32))
        # below opset 13 the region of interest was not optional yet
        region = (
            "" if row.rewriter.graph.opset() >= 13 else row.rewriter.constant(f"{name}.roi", np.zeros(0, np.float32))
        )
        where, rounding = _OURS[mode]
        attributes = {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": rounding}
        row.add("Resize", f"{mode}{number}", region, scales, **attributes)


def _as_shares(rewriter: Rewriter, node: Node, mode: str, where: str, ratios: Sequence[float]) -> str:
    """Case 6; '', or why it stays."""
    source, target = node.inputs[0], node.outputs[0]
    before, after, dtype = rewriter.image(source), rewriter.image(target), rewriter.dtype(source)
    assert before is not None and after is not None and dtype is not None
    if mode != "linear" or _places(1, 1, 1.0, where) is None or where == "tf_half_pixel_for_nn":
        return f"the DLA has no {mode} interpolation by {ratios[0]:g} and {ratios[1]:g} with these coordinates"
    if max(*before[2:], *after[2:]) > MOST_CHANNELS:
        return f"it interpolates along more than {MOST_CHANNELS} rows or columns"
    row = Row(rewriter, node)
    layout = [0, 1, 2, 3]  # the axis of the image at each place
    for axis, size, made, ratio in zip((2, 3), before[2:], after[2:], ratios):
        rewriter.afford(node.name, made, size)
        matrix = _shares(size, made, ratio, where)
        if made == size and np.array_equal(matrix, np.eye(size)):
            continue
        order = [0, 1, 2, 3]
        place = layout.index(axis)
        order[1], order[place] = place, 1
        layout = [layout[index] for index in order]
        what = "rows" if axis == 2 else "columns"
        row.add("Transpose", f"by_{what}", perm=order)
        weight = rewriter.constant(f"{node.name}.{what}", matrix[:, :, None, None].astype(dtype))
        row.add("Conv", what, weight, kernel_shape=[1, 1])
    row.add("Transpose", "back", perm=[layout.index(axis) for axis in range(4)])
    row.put(RULE)
    for layer in row.nodes[:-2]:
        rewriter.derive(RULE, layer.outputs[0], source, layer, needs=[target], note="scale of the Resize's input")
    last = row.nodes[-2]
    rewriter.derive(RULE, last.outputs[0], target, last, note="the same values in another order")
    return ""


def _places(size: int, made: int, ratio: float, where: str) -> Optional[np.ndarray]:
    """Where the outputs along an axis lie among its inputs, counted in float32 as ONNX Runtime does; None where that is not
    known."""
    index = np.arange(made, dtype=np.float32)
    half_pixel = (index + np.float32(0.5)) / np.float32(ratio) - np.float32(0.5)
    return {
        "asymmetric": index / np.float32(ratio),
        "half_pixel": half_pixel,
        "pytorch_half_pixel": half_pixel if made > 1 else index * 0,
        "align_corners": index * np.float32(size - 1) / np.float32(max(made - 1, 1)),
        "tf_half_pixel_for_nn": (index + np.float32(0.5)) / np.float32(ratio),
    }.get(where)


def _shares(size: int, made: int, ratio: float, where: str) -> np.ndarray:
    """What each output (row) takes of each input, by linear interpolation."""
    places = _places(size, made, ratio, where)
    assert places is not None
    places = np.clip(places, 0, size - 1)
    low = np.floor(places).astype(np.int64)
    found: np.ndarray = np.zeros((made, size), np.float32)
    found[np.arange(made), low] = 1 - (places - low)
    found[np.arange(made), np.minimum(low + 1, size - 1)] += places - low
    return found


def same_inputs(mode: str, coordinates: Tuple[str, str], size: int, factor: int) -> bool:
    """Along an axis of `size`, the same inputs count for each output as in the mode that the DLA has."""
    where, rounding = coordinates
    if mode == "linear":
        return where == "half_pixel" or (where == "pytorch_half_pixel" and size * factor > 1)
    at = _places(size, size * factor, factor, where)
    if at is None or where == "align_corners":
        return False
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }.get(rounding)
    return rounded is not None and np.array_equal(np.clip(rounded, 0, size - 1), np.arange(size * factor) // factor)


def _poolings(row: Row, factors: Tuple[int, int]) -> None:
    """Case 3."""
    repeat(row, "nearest", factors[:1], factors[1:])
    row.add("AveragePool", "mean", kernel_shape=list(factors), pads=[factor // 2 for factor in factors] * 2)
    even = [1 if factor % 2 else 2 for factor in factors]
    if max(even) > 1:
        row.add("AveragePool", "between", kernel_shape=even, pads=[0] * 4)
