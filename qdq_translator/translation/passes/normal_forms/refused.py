"""Rule F11: replace forms that TensorRT's parser refuses with equivalent ones that it reads.

| form | becomes |
| --- | --- |
| further outputs of MaxPool and LayerNormalization that nothing reads | left out |
| Einsum with capital letters | the same equation in small letters |
| Resize, `half_pixel_symmetric`, to a whole number of values | `half_pixel` |
| Resize, `tf_crop_and_resize`, of the whole image | `align_corners` |
| Resize, `tf_half_pixel_for_nn` with `floor`, by whole factors | `asymmetric` with `floor` |
| Resize, `antialias`, that makes nothing smaller | without `antialias` |
| Resize, `keep_aspect_ratio_policy`, whose one factor gives whole sizes | these sizes, `stretch` |
| GridSample, `linear` or `cubic` | `bilinear` or `bicubic` |
| GroupNormalization for TensorRT 8.x, whose opset has none | Reshape, InstanceNormalization, Reshape, Mul, Add |

A remaining refused form is an error (`targets/parser_network.py`). Not: sizes that are not known, or that the form
needs and are computed.
"""

from __future__ import annotations

import string
from typing import Callable, NamedTuple, Optional

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.editor import Editor, Row

RULE = "F11"


def apply(editor: Editor) -> None:
    for op_type, change in _FORMS.items():
        for node in editor.nodes(op_type):
            if change(editor, node):
                editor.note(RULE, [node], [node])
    if _is_8(editor) and editor.graph.opset() >= 18:
        for node in editor.nodes("GroupNormalization"):
            _group_normalization(editor, node)


def _is_8(editor: Editor) -> bool:
    return editor.parser is not None and editor.parser[0] == 8


def _einsum(editor: Editor, node: Node) -> bool:
    equation = str(node.get("equation", ""))
    used = [letter for letter in dict.fromkeys(equation) if letter.isalpha()]
    free = iter(letter for letter in string.ascii_lowercase if letter not in used)
    capitals = [letter for letter in used if letter.isupper()]
    names = dict(zip(capitals, free))
    if not capitals or len(names) < len(capitals) or "->" not in equation:  # without '->' the letters order the output
        return False
    node.set("equation", "".join(names.get(letter, letter) for letter in equation))
    return True


def _grid_sample(editor: Editor, node: Node) -> bool:
    newer = {"linear": "bilinear", "cubic": "bicubic"}
    if editor.rank(node.inputs[0]) != 4 or node.get("mode", "") not in newer or not _is_8(editor):
        return False
    node.set("mode", newer[node.get("mode")])
    return True


# ---------------- Resize


class _Axis(NamedTuple):
    """One axis that is resized: its size, its new size, and the factor."""

    size: int
    wanted: int
    factor: np.float32

    @property
    def whole(self) -> bool:
        return bool(np.float32(self.size) * self.factor == self.wanted)


def _axes(editor: Editor, node: Node) -> Optional[list[_Axis]]:
    """The resized axes; None if a size, the factors or the wanted sizes are unknown."""
    graph = editor.graph
    shape = editor.types.static_shape(node.inputs[0])
    factors = operators.resize_scales(node, graph.opset(), graph.array)
    wanted = graph.array(node.input(3)) if node.input(3) else None
    if shape is None or (factors is None and wanted is None):
        return None
    sizes = [shape[axis] for axis in node.get("axes", range(len(shape)))]
    if wanted is not None:
        return [_Axis(size, int(w), np.float32(int(w) / size)) for size, w in zip(sizes, wanted)]
    assert factors is not None
    return [_Axis(size, int(np.float32(size) * f), np.float32(f)) for size, f in zip(sizes, factors)]


def _resize(editor: Editor, node: Node) -> bool:
    if editor.graph.opset() < 11 or not any(key in node.attributes for key in _RESIZE_KEYS):
        return False
    changed = False
    for step in (_keep_aspect_ratio, _antialias, _coordinates):
        axes = _axes(editor, node)  # the first step changes them
        changed |= axes is not None and step(editor, node, axes)
    return changed


_RESIZE_KEYS = ("antialias", "keep_aspect_ratio_policy", "coordinate_transformation_mode")


def _antialias(editor: Editor, node: Node, axes: list[_Axis]) -> bool:
    return all(axis.factor >= 1 for axis in axes) and node.unset("antialias")


def _keep_aspect_ratio(editor: Editor, node: Node, axes: list[_Axis]) -> bool:
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not node.input(3):
        return False
    factor = (min if policy == "not_larger" else max)(axis.factor for axis in axes)
    sizes = [axis.size * float(factor) for axis in axes]
    if any(size != round(size) for size in sizes):
        return False
    editor.graph.set_input(node, 3, editor.constant(f"{node.name}_sizes", np.array(sizes, np.int64)))
    return node.unset("keep_aspect_ratio_policy")


def _coordinates(editor: Editor, node: Node, axes: list[_Axis]) -> bool:
    where, nearest = operators.resize_coordinates(node, editor.graph.opset())
    whole, mode = all(axis.whole for axis in axes), ""
    if where == "half_pixel_symmetric" and whole:
        mode = "half_pixel"
    elif where == "tf_crop_and_resize" and _keeps_corners(editor, node, axes):
        editor.graph.set_input(node, 1, "")
        node.unset("extrapolation_value")
        mode = "align_corners"
    elif (where, operators.mode(node), nearest) == ("tf_half_pixel_for_nn", "nearest", "floor"):
        factors = [float(axis.factor) for axis in axes]
        mode = "asymmetric" if whole and factors == list(map(round, factors)) else ""
    if mode:
        node.set("coordinate_transformation_mode", mode)
    return bool(mode)


def _keeps_corners(editor: Editor, node: Node, axes: list[_Axis]) -> bool:
    """Whether the region is the whole image and no axis gets a single value, which `align_corners` reads at a different
    position."""
    roi = editor.graph.array(node.input(1)) if node.input(1) else None
    whole = roi is not None and roi.tolist() == [0] * len(axes) + [1] * len(axes)
    return whole and all(axis.wanted > 1 or axis.size == 1 for axis in axes)


_FORMS: dict[str, Callable[[Editor, Node], bool]] = {
    **dict.fromkeys(("MaxPool", "LayerNormalization"), lambda editor, node: editor.graph.drop_unused_outputs(node)),
    "Einsum": _einsum,
    "GridSample": _grid_sample,
    "Resize": _resize,
}

# ---------------- GroupNormalization


def _group_normalization(editor: Editor, node: Node) -> None:
    """GroupNormalization as InstanceNormalization of the groups; the factors are per group (opset 18) or channel."""
    source, groups = node.inputs[0], operators.groups_of_channels(node)
    shape, dtype = editor.types.shape(source), editor.dtype(source)
    factors = [editor.graph.array(name) for name in node.inputs[1:3]]
    if shape is None or dtype is None or any(not isinstance(d, int) for d in shape[1:]):
        return
    sizes = [d for d in shape[1:] if isinstance(d, int)]
    known = [values for values in factors if values is not None]
    if groups < 1 or sizes[0] % groups or len(known) < 2:
        return
    row, values_each = Row(editor, node), sizes[0] // groups * int(np.prod(sizes[1:]))
    ones = editor.constant(f"{node.name}_1", np.ones(groups, dtype))
    zeros = editor.constant(f"{node.name}_0", np.zeros(groups, dtype))
    row.reshape("grouped", [0, groups, values_each])
    row.add("InstanceNormalization", "normal", ones, zeros, epsilon=operators.epsilon(node))
    row.reshape("ungrouped", [0, *sizes])
    for op, what, values in zip(("Mul", "Add"), ("scaled", "moved"), known):
        full = np.repeat(values, sizes[0] // len(values)).reshape([1, -1] + [1] * (len(sizes) - 1))
        row.add(op, what, editor.constant(f"{node.name}_{op.lower()}", full))
    row.put(RULE)
