"""Rule D23: an operator that is linear along H, W or the channels becomes layers that multiply with a constant matrix
along each axis.

1. `Resize` of H and W: nearest, linear and cubic by any factors or sizes, with any coordinates
2. `Pad` of channels, H and W: zeros, another constant, reflect, edge, wrap, and negative padding (cropping)
3. `Expand` and `Tile` of channels, H and W, and `CumSum` along one of them
4. `Concat` along H or W of parts of one tensor: a roll, or a padding in parts; of others a Concat of channels between
   Transposes

The matrices decide which layers it becomes:

5. the channels: a 1x1 Conv
6. H or W repeated, or interpolated with half_pixel, by integer factors: a Resize that the DLA supports (limits R2 and
   R3), several in a row for nearest by more than 32. Linear by 5 to 8 is nearest by the same factors, AveragePool with
   the factor as window, stride 1, which leaves its padding of half a window out of the average, and if the factor is
   even AveragePool with window 2
7. the same few taps for every output, as of zeros around: a depthwise Conv, or one for each axis
8. any other matrix, and if it is estimated faster: a 1x1 Conv for each axis between Transposes that make it the
   channels

Row i of a matrix holds the factors of the inputs in output i; a constant that is padded is the bias. Weights of 0 and 1
are quantized values of 0 and 127, exact: input and output then keep their common scale (rule S3). Interpolation weights
are rounded by at most 0.4% of the largest one of their output. Tensors between have the scale of the input if none of
their values can exceed those of the input, else that of the output. The layers multiply with every weight, which the
report counts; if that is slower than a transition, rule R1 leaves the rewrite out.

Not: tensors that are not four-dimensional; sizes that are not known; more than 8192 along an axis; the batch axis;
`Resize` with tf_crop_and_resize, antialias, named axes, an aspect ratio to keep or other axes than H and W, and below
opset 11; parameters that are computed; operators that change nothing; a Concat of constants.
"""

from __future__ import annotations

import itertools
from typing import Callable, Dict, Sequence

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import axis_forms
from qdq_translator.translation.passes.dla.axis_forms import Matrices, taken
from qdq_translator.translation.passes.dla.chains import effect
from qdq_translator.translation.passes.dla.rewriter import MOST_CHANNELS, Rewriter, Row
from qdq_translator.translation.passes.editor import Image, Stays, known, stay_if

RULE = "D23"


def apply(rewriter: Rewriter) -> None:
    rewriter.each(*_MATRICES, rewrite=_rewrite)
    rewriter.each("Concat", rewrite=_concat, cured=("K1",))


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    why = "its tensors do not have four dimensions of known sizes"
    before, after = rewriter.sized(node.inputs[0], why), rewriter.sized(node.outputs[0], why)
    too_many = max(*before[1:], *after[1:]) > MOST_CHANNELS
    stay_if(too_many, f"it has more than {MOST_CHANNELS} values along an axis")
    for sizes in zip(before[1:], after[1:]):
        rewriter.afford(node.name, *sizes)
    _replace(rewriter, node, node.inputs[0], before, _MATRICES[node.op_type](rewriter, node))


def _replace(rewriter: Rewriter, node: Node, source: str, image: Image, matrices: Matrices) -> None:
    target = node.outputs[0]
    made = axis_forms.layers(rewriter, Node(node.op_type, [source], node.outputs, node.name), image, matrices)
    stay_if(not made, "it changes nothing, and rule F7 leaves it")
    rewriter.replace(RULE, node, made)
    _give_scales(rewriter, made, target, matrices)


def _give_scales(rewriter: Rewriter, made: Sequence[Node], target: str, matrices: Matrices) -> None:
    """Give scales to the tensors that the layers make, the last of which is the target."""
    sums = [np.abs(matrix).sum(1).max(initial=0) for matrix, _ in matrices.values()]
    larger = max(sums) > 1.001 or any(bias is not None for _, bias in matrices.values())
    copies = not larger and all(np.isin(matrix, (0, 1)).all() for matrix, _ in matrices.values())
    for layer, behind in itertools.zip_longest(made, made[1:]):
        name = layer.outputs[0]
        if copies and layer.is_op("Conv"):
            rewriter.same_scale(RULE, layer.inputs[0], name, layer)
        elif behind is made[-1] and behind.is_op("Transpose"):
            rewriter.derive(RULE, name, target, layer, note="the same values in another order")
        elif behind is not None and larger and layer.is_op("Conv"):
            rewriter.derive(RULE, name, target, layer, note="scale of the result, which holds its values")
        elif behind is not None:
            rewriter.derive(RULE, name, layer.inputs[0], layer, needs=[target], note="nothing in it is larger")


def _concat(rewriter: Rewriter, node: Node) -> None:
    """Case 4."""
    try:
        parts = _parts(rewriter, node)
    except Stays:
        _joined(rewriter, node)
    else:
        _replace(rewriter, node, *parts)


def _parts(rewriter: Rewriter, node: Node) -> tuple[str, Image, Matrices]:
    """Case 4 for parts of one tensor: the tensor, its shape and the matrices of the Concat. Raises Stays."""
    graph = rewriter.graph
    makers = [graph.producer.get(name) for name in node.inputs]
    cuts = [[maker] if maker is not None and maker.is_op("Slice", "Gather") else [] for maker in makers]
    source, *others = {cut[0].inputs[0] if cut else name for cut, name in zip(cuts, node.inputs)}
    why = "it does not join parts of one tensor"
    before, after = rewriter.sized(source, why), rewriter.sized(node.outputs[0], why)
    differ = rewriter.scales_differ(source, *node.inputs, node.outputs[0])
    stay_if(others or max(*before[1:], *after[1:]) > MOST_CHANNELS or differ, why)
    pairs = [effect(rewriter, cut, source) for cut in cuts]
    start, moved = pairs[0][0], np.concatenate([part for _, part in pairs], operators.axis(node, graph.opset()))
    stay_if(np.array_equal(start, moved), why)
    return source, before, known(axis_forms.selection(start, moved), why)


def _joined(rewriter: Rewriter, node: Node) -> None:
    """Case 4 for parts of several tensors."""
    graph, axis = rewriter.graph, operators.axis(node, rewriter.graph.opset())
    other = rewriter.rank(node.outputs[0]) != 4 or axis in (0, -4) or any(map(graph.is_constant, node.inputs))
    stay_if(other, "it does not join rows or columns of activations with four dimensions")
    row, order = Row(rewriter, node), [0, 2, 1, 3] if axis in (2, -2) else [0, 3, 2, 1]
    parts = []
    for number, name in enumerate(node.inputs):
        parts.append(row.at(name).add("Transpose", f"part{number}", perm=order))
    row.at(parts[0]).add("Concat", "channels", *parts[1:], axis=1)
    row.add("Transpose", "back", perm=order)
    row.put(RULE)
    for layer in (*row.nodes[:-2], row.nodes[-1]):
        rewriter.same_scale(RULE, layer.inputs[0], layer.outputs[0], layer)


# ---------------- matrices


def _pad(rewriter: Rewriter, node: Node) -> Matrices:
    constant, mode = rewriter.graph.array, operators.mode(node)
    pads, value = operators.integers(node, "pads", 1, constant), operators.pad_value(node, constant)
    if pads is None or value is None or node.input(3) or len(pads) != 8:
        raise Stays("its padding is computed, or names axes")
    stay_if(pads[0] or pads[4], "it pads the batch")
    matrices: Matrices = {}
    for axis, size in enumerate(rewriter.sized(node.inputs[0])[1:], 1):
        begin, end = pads[axis], pads[axis + 4]
        width = (max(begin, 0), max(end, 0))
        if mode == "constant":
            index = np.pad(np.arange(size), width, constant_values=-1)
        else:
            index = np.pad(np.arange(size), width, mode=mode)  # type: ignore[call-overload]
        index = index[max(-begin, 0) : len(index) - max(-end, 0)]
        bias = np.where(index < 0, value, 0.0) if mode == "constant" and value and max(width) else None
        matrices[axis] = taken(index, size), bias
    return matrices


def _repeat(rewriter: Rewriter, node: Node) -> Matrices:
    """Matrices of Expand and Tile: all values, repeated as a whole."""
    before, after = rewriter.sized(node.inputs[0]), rewriter.sized(node.outputs[0])
    times = rewriter.graph.array(node.inputs[1]) if node.is_op("Tile") else None
    stay_if(before[0] != after[0] and (times is None or times[0] != 1), "it repeats the batch")
    ends = enumerate(zip(before[1:], after[1:]), 1)
    return {axis: (taken(np.arange(made) % size, size), None) for axis, (size, made) in ends}


def _cumsum(rewriter: Rewriter, node: Node) -> Matrices:
    given, image = rewriter.graph.array(node.inputs[1]), rewriter.sized(node.inputs[0])
    axes = None if given is None else operators.non_negative([int(given.reshape(-1)[0])], 4)
    if axes is None or axes == [0]:
        raise Stays("its axis is computed, or the batch")
    size = int(image[axes[0]] or 0)
    matrix = np.tri(size, k=-1 if node.get("exclusive", 0) else 0)
    return {axes[0]: (matrix.T if node.get("reverse", 0) else matrix, None)}


_MATRICES: Dict[str, Callable[[Rewriter, Node], Matrices]] = {
    "Resize": axis_forms.resized,
    "Pad": _pad,
    "Expand": _repeat,
    "Tile": _repeat,
    "CumSum": _cumsum,
}
