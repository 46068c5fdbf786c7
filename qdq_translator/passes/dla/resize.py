"""Rule D12: Resize becomes Resize by integer scale factors in a mode that the DLA has, or where that is linear poolings.

1. `Resize(sizes)`, or with factors that are no constant, where both shapes are known and H and W grow by whole numbers ->
   the same with constant scales [1, 1, h, w]. ONNX computes with output size / input size, so nothing changes.
2. Coordinates by which an output takes the same inputs (nearest: pixel i takes i // factor; linear: half_pixel under another name)
   -> asymmetric with floor, or half_pixel.
3. linear, half_pixel, by 5 to 8 along H or W -> nearest by the same factors; AveragePool with the factor as window, stride 1,
   which leaves its padding of half a window out of the average; where the factor is even, AveragePool with window 2.
4. linear along axes of one value (what DeepLab pools over the whole image) -> nearest, as there is one value to take.
5. nearest by more than 32 -> several in a row, by at most 32 each.

The interpolation's triangle is two boxes in a row: the first one is the pixel that was repeated, the second one the pooling; an
even factor has its samples between those of the pooling, so that two neighbours are averaged. At the border a window holds
the same pixel only, which is what linear interpolation takes there. The names stay; the tensors between have the scale of the
input if the result has one (the DLA requires one for both ends of a pooling, NvInfer.h; nothing interpolated exceeds it). What is
left becomes Convs by rule D23.

Not: factors that are not whole; other coordinates and interpolations; linear by more than 8; nearest by more than 32 with a prime
factor above it; sizes that are not known; tf_crop_and_resize; keep_aspect_ratio_policy other than stretch; named axes; opset below
11 (which has no sizes); antialias; other axes than H and W.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Optional, Tuple, Union

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter, Row
from qdq_translator.passes.dla.spatial_mean import WINDOW
from qdq_translator.passes.dla.spatial_mean import factors as in_a_row
from qdq_translator.passes.editor import Image

RULE = "D12"
_LINEAR, LARGEST = 4, 32
"""The largest factors that the DLA has (limit R2)."""
_OURS = {"nearest": ("asymmetric", "floor"), "linear": ("half_pixel", "round_prefer_floor")}


def apply(rewriter: Rewriter) -> None:
    if rewriter.graph.opset() >= 11:
        rewriter.each("Resize", rewrite=_rewrite, cured=("R1", "R2", "R3"))


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Of a Resize of H and W. ratios: output size / input size, or the scale factors of the model."""

    before: Image
    after: Image
    mode: str
    coordinates: Tuple[str, str]
    ratios: list[float]


def parameters(rewriter: Rewriter, node: Node) -> Union[Parameters, str]:
    """Parameters, or why no rule applies."""
    before, after = rewriter.image(node.inputs[0]), rewriter.image(node.outputs[0])
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
    return Parameters(before, after, mode, coordinates, ratios)


def _rewrite(rewriter: Rewriter, node: Node) -> str:
    """'', or why it stays."""
    source, target, found = node.inputs[0], node.outputs[0], parameters(rewriter, node)
    if isinstance(found, str):
        return found
    before, after, mode, coordinates = found.before, found.after, found.mode, found.coordinates
    factors = (after[2] // before[2], after[3] // before[3])
    whole = found.ratios == [float(factor) for factor in factors]
    if whole and mode in _OURS and all(same_inputs(mode, coordinates, size, f) for size, f in zip(before[2:], factors)):
        coordinates = _OURS[mode]
    if whole and mode == "linear" and all(1 in pair for pair in zip(before[2:], factors)):
        mode, coordinates = "nearest", _OURS["nearest"]
    if not whole or coordinates != _OURS.get(mode) or (mode == "linear" and max(factors) > WINDOW):
        return (
            f"the DLA has no {mode} interpolation by {found.ratios[0]:g} and {found.ratios[1]:g} with these coordinates"
        )
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


def places(size: int, made: int, ratio: float, where: str) -> Optional[np.ndarray]:
    """Positions of an axis's outputs among its inputs, in float32 as in ONNX Runtime; None if unknown."""
    index = np.arange(made, dtype=np.float32)
    half_pixel = (index + np.float32(0.5)) / np.float32(ratio) - np.float32(0.5)
    return {
        "asymmetric": index / np.float32(ratio),
        "half_pixel": half_pixel,
        "pytorch_half_pixel": half_pixel if made > 1 else index * 0,
        "align_corners": index * np.float32(size - 1) / np.float32(max(made - 1, 1)),
        "tf_half_pixel_for_nn": (index + np.float32(0.5)) / np.float32(ratio),
    }.get(where)


def same_inputs(mode: str, coordinates: Tuple[str, str], size: int, factor: int) -> bool:
    """Along an axis of `size`, the same inputs count for each output as in the mode that the DLA has."""
    where, rounding = coordinates
    if mode == "linear":
        return where == "half_pixel" or (where == "pytorch_half_pixel" and size * factor > 1)
    at = places(size, size * factor, factor, where)
    if at is None or where == "align_corners":
        return False
    rounded = nearest(at, rounding)
    return rounded is not None and np.array_equal(np.clip(rounded, 0, size - 1), np.arange(size * factor) // factor)


def nearest(at: np.ndarray, rounding: str) -> Optional[np.ndarray]:
    """The inputs next to these places."""
    return {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }.get(rounding)


def _poolings(row: Row, factors: Tuple[int, int]) -> None:
    """Case 3."""
    repeat(row, "nearest", factors[:1], factors[1:])
    row.add("AveragePool", "mean", kernel_shape=list(factors), pads=[factor // 2 for factor in factors] * 2)
    even = [1 if factor % 2 else 2 for factor in factors]
    if max(even) > 1:
        row.add("AveragePool", "between", kernel_shape=even, pads=[0] * 4)
