"""Rule D23: an operator that is linear along H, W or the channels becomes a 1x1 Conv with a constant matrix for each axis.

1. `Resize` of H and W that rule D12 leaves: nearest, linear and cubic by any factors, with any coordinates
2. `Pad` of H and W that rule D10 leaves: reflect, edge, wrap, a constant other than 0, more rows than a depthwise Conv pads, and
   negative padding, which cuts off
3. `Tile` of H or W, and `CumSum` along H, W or the channels

Along H and W the Conv stands between Transposes that make the axis the channels; one Transpose leads back behind the last of them.
Row i of the matrix holds what output i takes of each input; a constant that is padded is the bias. Weights of 0 and 1 are quantized
values of 0 and 127, exact; shares of an interpolation are rounded by 0.4% of the largest one of their output at most. Tensors between
have the scale of the input if none of their values can be larger than those of the input, else that of the output. The layer
multiplies with every weight, which the report counts; where that takes longer than a transition rule R1 leaves it out.

Not: tensors that are not four-dimensional; sizes that are not known; more than 8192 along an axis; the batch axis; `Resize` with
tf_crop_and_resize, antialias, named axes or an aspect ratio to keep, and below opset 11; padding of channels; parameters that are
computed.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Tuple, Union

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.resize import nearest, parameters, places
from qdq_translator.passes.dla.rewriter import MOST_CHANNELS, Rewriter, Row

RULE = "D23"
_Matrix = Tuple[np.ndarray, Optional[np.ndarray]]
"""[outputs, inputs], and a bias for each output."""
Matrices = Dict[int, _Matrix]
"""Axis -> its matrix."""


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes(*_MATRICES):
        if rewriter.dtype(node.outputs[0]) is None or not rewriter.rejected(node):
            continue
        before, after = rewriter.image(node.inputs[0]), rewriter.image(node.outputs[0])
        if before is None or after is None:
            rewriter.leave(node, "its tensors do not have four dimensions of known sizes")
        elif max(*before[1:], *after[1:]) > MOST_CHANNELS:
            rewriter.leave(node, f"it has more than {MOST_CHANNELS} values along an axis")
        else:
            rewriter.afford(node.name, *(max(sizes) for sizes in zip(before[2:], after[2:])))
            found = _MATRICES[node.op_type](rewriter, node)
            if isinstance(found, str):
                rewriter.leave(node, found)
            elif found:
                _convs(rewriter, node, found)


def _convs(rewriter: Rewriter, node: Node, matrices: Matrices) -> None:
    row, dtype = Row(rewriter, node), rewriter.dtype(node.inputs[0])
    layout = [0, 1, 2, 3]  # the axis of the image at each place
    for axis, (matrix, bias) in matrices.items():
        order, place = [0, 1, 2, 3], layout.index(axis)
        order[1], order[place] = place, 1
        layout = [layout[index] for index in order]
        what = ("batch", "channels", "rows", "columns")[axis]
        if place != 1:
            row.add("Transpose", f"by_{what}", perm=order)
        more = [rewriter.constant(f"{node.name}.{what}", matrix[:, :, None, None].astype(dtype))]
        more += [rewriter.constant(f"{node.name}.{what}_bias", bias.astype(dtype))] if bias is not None else []
        row.add("Conv", what, *more, kernel_shape=[1, 1])
    turned = layout != [0, 1, 2, 3]
    if turned:
        row.add("Transpose", "back", perm=[layout.index(axis) for axis in range(4)])
    row.put(RULE)
    target = node.outputs[0]
    larger = any(bias is not None or np.abs(matrix).sum(1).max(initial=0) > 1.001 for matrix, bias in matrices.values())
    for number, layer in enumerate(row.nodes[:-1]):
        if turned and number == len(row.nodes) - 2:
            rewriter.derive(RULE, layer.outputs[0], target, layer, note="the same values in another order")
        elif larger and layer.is_op("Conv"):
            rewriter.derive(RULE, layer.outputs[0], target, layer, note="scale of the result, which holds its values")
        else:
            rewriter.derive(
                RULE, layer.outputs[0], layer.inputs[0], layer, needs=[target], note="nothing in it is larger"
            )


# ---------------------------------------------------------------- matrices


def _taken(indices: np.ndarray, size: int) -> np.ndarray:
    """Each output is the input of that index, or 0 if it is negative."""
    found: np.ndarray = np.zeros((len(indices), size), np.float32)
    there = indices >= 0
    found[np.flatnonzero(there), indices[there]] = 1
    return found


def _resize(rewriter: Rewriter, node: Node) -> Union[Matrices, str]:
    if rewriter.graph.opset() < 11:
        return "an opset below 11 has no such Resize"
    found = parameters(rewriter, node)
    if isinstance(found, str):
        return found
    matrices: Matrices = {}
    for axis, ratio in zip((2, 3), found.ratios):
        size, made = int(found.before[axis] or 0), int(found.after[axis] or 0)
        at = places(size, made, ratio, found.coordinates[0])
        if at is None or (found.mode != "nearest" and found.coordinates[0] == "tf_half_pixel_for_nn"):
            return f"its coordinates are {found.coordinates[0]}"
        if found.mode == "nearest":
            index = nearest(at, found.coordinates[1])
            assert index is not None
            matrix = _taken(np.clip(index, 0, size - 1).astype(np.int64), size)
        else:
            matrix = _interpolated(node, at, size, found.mode == "cubic")
        if made != size or not np.array_equal(matrix, np.eye(size)):
            matrices[axis] = matrix, None
    return matrices


def _interpolated(node: Node, at: np.ndarray, size: int, cubic: bool) -> np.ndarray:
    """The shares of linear interpolation, or of Keys' cubic convolution (ONNX Resize: cubic_coeff_a, exclude_outside)."""
    at = at.astype(np.float64) if cubic else np.clip(at, 0, size - 1).astype(np.float64)
    low, a = np.floor(at).astype(np.int64), float(node.get("cubic_coeff_a", -0.75))
    found: np.ndarray = np.zeros((len(at), size))
    for tap in (-1, 0, 1, 2) if cubic else (0, 1):
        d = np.abs(at - low - tap)
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        share = np.where(d <= 1, near, np.where(d < 2, far, 0.0)) if cubic else 1 - d
        if cubic and node.get("exclude_outside", 0):
            share = share * ((low + tap >= 0) & (low + tap < size))
        np.add.at(found, (np.arange(len(at)), np.clip(low + tap, 0, size - 1)), share)
    return np.asarray(found / found.sum(1, keepdims=True))


def _pad(rewriter: Rewriter, node: Node) -> Union[Matrices, str]:
    constant, mode = rewriter.graph.array, operators.mode(node)
    pads, value = operators.integers(node, "pads", 1, constant), operators.pad_value(node, constant)
    if pads is None or value is None or node.input(3) or len(pads) != 8:
        return "its padding is computed, or names axes"
    if any(pads[axis] for axis in (0, 1, 4, 5)):
        return "it pads channels or the batch"
    image = rewriter.image(node.inputs[0])
    assert image is not None
    matrices: Matrices = {}
    for axis in (2, 3):
        size, begin, end = int(image[axis] or 0), pads[axis], pads[axis + 4]
        width = (max(begin, 0), max(end, 0))
        if mode == "constant":
            index = np.pad(np.arange(size), width, constant_values=-1)
        else:
            index = np.pad(np.arange(size), width, mode=mode)  # type: ignore[call-overload]
        index = index[max(-begin, 0) : len(index) - max(-end, 0)]
        if begin or end:
            bias = np.where(index < 0, value, 0.0) if mode == "constant" and value else None
            matrices[axis] = _taken(index, size), bias
    return matrices


def _tile(rewriter: Rewriter, node: Node) -> Union[Matrices, str]:
    repeats, image = rewriter.graph.array(node.inputs[1]), rewriter.image(node.inputs[0])
    assert image is not None
    if repeats is None or repeats.size != 4 or any(repeats[:2] != 1):
        return "it repeats channels or the batch, or is computed"
    pairs = ((axis, int(image[axis] or 0)) for axis in (2, 3) if repeats[axis] != 1)
    return {axis: (_taken(np.tile(np.arange(size), int(repeats[axis])), size), None) for axis, size in pairs}


def _cumsum(rewriter: Rewriter, node: Node) -> Union[Matrices, str]:
    given, image = rewriter.graph.array(node.inputs[1]), rewriter.image(node.inputs[0])
    axes = None if given is None else operators.non_negative([int(given.reshape(-1)[0])], 4)
    assert image is not None
    if axes is None or axes == [0]:
        return "its axis is computed, or the batch"
    size = int(image[axes[0]] or 0)
    matrix = np.tri(size, k=-1 if node.get("exclusive", 0) else 0)
    return {axes[0]: (matrix.T if node.get("reverse", 0) else matrix, None)}


_MATRICES: dict[str, Callable[[Rewriter, Node], Union[Matrices, str]]] = {
    "Resize": _resize,
    "Pad": _pad,
    "Tile": _tile,
    "CumSum": _cumsum,
}
