"""Rule D12: Resize becomes Resize by integer scale factors in a mode that the DLA has, and poolings where that is linear.

1. `Resize(sizes)`, or with factors that are no constant, where both shapes are known and H and W grow by whole numbers ->
   the same with constant scales [1, 1, h, w]. ONNX computes with output size / input size, so nothing changes.
2. Coordinates by which an output takes the same inputs (nearest: pixel i takes i // factor; linear: half_pixel under another name)
   -> asymmetric with floor, or half_pixel.
3. linear, half_pixel, by 5 to 8 along H or W -> nearest by the same factors; AveragePool with the factor as window, stride 1,
   which leaves its padding of half a window out of the average; where the factor is even, AveragePool with window 2.

The interpolation's triangle is two boxes in a row: the first one is the pixel that was repeated, the second one the pooling; an
even factor has its samples between those of the pooling, so that two neighbours are averaged. At the border a window holds
the same pixel only, which is what linear interpolation takes there. The names stay; the tensors between have the scale of the
input if the result has one (the DLA requires one for both ends of a pooling, NvInfer.h).

Not: factors that are not whole; sizes that are not known; tf_crop_and_resize; keep_aspect_ratio_policy other than stretch;
named axes; opset below 11 (which has no sizes); linear by more than 8; antialias. Other interpolations and coordinate modes stay what they
are (limit R3).
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from qdq_translator import operators
from qdq_translator.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter
from qdq_translator.passes.dla.spatial_mean import WINDOW

RULE = "D12"
_LINEAR, _NEAREST = 4, 32
"""The largest factors that the DLA has (limit R2)."""
_OURS = {"nearest": ("asymmetric", "floor"), "linear": ("half_pixel", "round_prefer_floor")}
_GONE = (
    "keep_aspect_ratio_policy",
    "coordinate_transformation_mode",
    "nearest_mode",
    "mode",
    "cubic_coeff_a",
    "exclude_outside",
)


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
    if before[0] != after[0] or before[1] != after[1] or after[2] % before[2] or after[3] % before[3]:
        return f"from {before[2]}x{before[3]} to {after[2]}x{after[3]} is not a whole factor"
    if operators.crops(node):
        return "it crops"
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch" or node.get("axes") is not None:
        return "it keeps the aspect ratio, or names axes"
    factors = (after[2] // before[2], after[3] // before[3])
    scales = rewriter.graph.array(node.input(2))
    if scales is not None and scales.size and list(scales) != [1, 1, *factors]:
        return "its factors are not whole, too large, or not of H and W only"
    mode, coordinates = operators.mode(node), operators.resize_coordinates(node, rewriter.graph.opset())
    if node.get("antialias", 0):
        return "it is smoothed (antialias)"
    if mode in _OURS and all(_same_inputs(mode, coordinates, size, f) for size, f in zip(before[2:], factors)):
        coordinates = _OURS[mode]
    if mode == "linear" and coordinates == _OURS[mode] and max(factors) > _LINEAR:
        if max(factors) > WINDOW:
            return f"it interpolates by more than {WINDOW}"
        _poolings(rewriter, node, factors)
        return ""
    given = scales is not None and scales.size
    if given and (coordinates != _OURS.get(mode) or max(factors) > _NEAREST):
        return f"the DLA has no {mode} interpolation by {max(factors)} with these coordinates"
    rewriter.replace(RULE, node, [_resize(rewriter, node, target, node.name, mode, coordinates, factors)])
    return ""


def _same_inputs(mode: str, coordinates: Tuple[str, str], size: int, factor: int) -> bool:
    """Along an axis of `size`, the same inputs count for each output as in the mode that the DLA has."""
    where, rounding = coordinates
    if mode == "linear":
        return where == "half_pixel" or (where == "pytorch_half_pixel" and size * factor > 1)
    places: np.ndarray = np.arange(size * factor)
    at = {
        "asymmetric": places / factor,
        "half_pixel": (places + 0.5) / factor - 0.5,
        "pytorch_half_pixel": (places + 0.5) / factor - 0.5 if size * factor > 1 else places * 0.0,
        "tf_half_pixel_for_nn": (places + 0.5) / factor,
    }.get(where)
    if at is None:
        return False
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }.get(rounding)
    return rounded is not None and np.array_equal(np.clip(rounded, 0, size - 1), places // factor)


def _resize(
    rewriter: Rewriter,
    node: Node,
    target: str,
    name: str,
    mode: str,
    coordinates: Tuple[str, str],
    factors: Tuple[int, int],
) -> Node:
    scales = rewriter.constant(f"{name}.scales", np.array([1, 1, *factors], np.float32))
    new = Node("Resize", [node.inputs[0], "", scales], [target], name)
    if mode in _OURS:
        new.attributes = {key: value for key, value in node.attributes.items() if key not in _GONE}
        new.set("mode", mode)
        new.set("coordinate_transformation_mode", coordinates[0])
        new.set("nearest_mode", coordinates[1])
    else:
        new.attributes = {key: value for key, value in node.attributes.items() if key != _GONE[0]}
    if rewriter.graph.opset() < 13:  # the region of interest was not optional yet
        new.inputs[1] = rewriter.constant(f"{name}.roi", np.zeros(0, np.float32))
    return new


def _poolings(rewriter: Rewriter, node: Node, factors: Tuple[int, int]) -> None:
    """Case 3."""
    source, target = node.inputs[0], node.outputs[0]
    even = [1 if factor % 2 else 2 for factor in factors]
    between = [rewriter.tensor(f"{target}_nearest")]
    nodes = [
        _resize(rewriter, node, between[0], rewriter.node(f"{node.name}_nearest"), "nearest", _OURS["nearest"], factors)
    ]
    windows = [(list(factors), [factor // 2 for factor in factors])] + ([(even, [0, 0])] if max(even) > 1 else [])
    for number, (window, pads) in enumerate(windows):
        last = number == len(windows) - 1
        output = target if last else rewriter.tensor(f"{target}_mean")
        name = node.name if last else rewriter.node(f"{node.name}_mean")
        nodes.append(Node("AveragePool", [between[-1]], [output], name, kernel_shape=window, pads=pads * 2))
        between.append(output)
    rewriter.replace(RULE, node, nodes)
    for layer in nodes[:-1]:
        rewriter.derive(RULE, layer.outputs[0], source, layer, needs=[target], note="scale of the Resize's input")
