"""What a Resize does along H and W, as a matrix [outputs, inputs] for each axis (rule D23)."""

from __future__ import annotations

from typing import Callable, Dict, Optional, Tuple, Union

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

Matrix = Tuple[np.ndarray, Optional[np.ndarray]]
"""[outputs, inputs], and a bias for each output."""
Matrices = Dict[int, Matrix]
"""Axis -> its matrix."""
_NEAREST: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


def matrices(rewriter: Rewriter, node: Node) -> Union[Matrices, str]:
    """Matrices, or why there are none."""
    before, after, opset = rewriter.image(node.inputs[0]), rewriter.image(node.outputs[0]), rewriter.graph.opset()
    assert before is not None and after is not None
    if opset < 11 or operators.crops(node):
        return "it crops, or the opset is below 11"
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch" or node.get("axes") is not None:
        return "it keeps the aspect ratio, or names axes"
    if node.get("antialias", 0):
        return "it is smoothed (antialias)"
    scales = rewriter.graph.array(node.input(2))
    if scales is None or scales.shape != (4,):
        scales = np.array([1, 1, *(made / size for size, made in zip(before[2:], after[2:]))])
    if before[1] != after[1] or any(scales[:2] != 1):
        return "it resizes other axes than H and W"
    mode, (where, rounding) = operators.mode(node), operators.resize_coordinates(node, opset)
    found: Matrices = {}
    for axis, size, made in ((2, before[2], after[2]), (3, before[3], after[3])):
        at = places(size, made, float(scales[axis]), where)
        if at is None or (mode != "nearest" and where == "tf_half_pixel_for_nn"):
            return f"its coordinates are {where}"
        if mode == "nearest":
            found[axis] = taken(np.clip(_NEAREST[rounding](at), 0, size - 1).astype(np.int64), size), None
        elif mode == "linear":
            found[axis] = linear(at, size), None
        else:
            found[axis] = _cubic(at, size, node.get("cubic_coeff_a", -0.75), node.get("exclude_outside", 0)), None
    return found


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


def taken(indices: np.ndarray, size: int) -> np.ndarray:
    """Each output is the input of that index, or 0 if it is negative."""
    return (indices[:, None] == np.arange(size)).astype(np.float32)


def linear(at: np.ndarray, size: int) -> np.ndarray:
    """Shares of the inputs on either side of each place."""
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
