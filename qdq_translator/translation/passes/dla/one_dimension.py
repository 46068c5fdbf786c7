"""Rule D26: one-dimensional layers, and the layers between them, work on [N, C, L, 1] instead of [N, C, L].

1. `Conv`, `ConvTranspose`, `MaxPool`, `AveragePool`, `GlobalAveragePool`, `GlobalMaxPool` with one spatial dimension
   get a second one of size 1, as by rule F8, which puts an Unsqueeze and a Squeeze around each of them
2. Layers between and around them that work value by value (Relu, Add, ...), normalizations over channels or L,
   `Softmax`, `Concat`, `Split`, `Slice`, `Pad`, `Resize` and `Reduce` over L keep their operator.
3. A Reshape to [N, C, L, 1] is added in front of the region, and one to [N, C, L] behind it if another layer or a graph
   output needs it; rule D17 merges them with their neighbours.
4. The same for `ReduceMean`, `ReduceSum`, `ReduceMax` and `ReduceMin` over L of an image that is flattened to it

Tensors inside keep their names and scales. The tensor in front of a last Reshape is new (`NAME_4d`) and has the scale
of the Reshape's output, no other (rule S2 if that is a graph output). Every weight keeps its quantized value.
Not: a weight that is not constant; an `output_shape`; Softmax below opset 13; a Slice, Pad, Resize or Reduce with
computed parameters; a Resize by sizes; regions without a layer of case 1 or 4.
"""

from __future__ import annotations

import functools
from typing import Callable, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import lifting
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.normal_forms.one_dimensional import is_one_dimensional, widen

RULE = "D26"
_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_NARY = (*operators.ELEMENTWISE, "PRelu", "Mean", "Pow", "Where")
_SAME = ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "GlobalAveragePool", "GlobalMaxPool")
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
_Parameter = Tuple[str, int, np.ndarray]
"""Attribute, input and values of a parameter for four dimensions."""


def apply(rewriter: Rewriter) -> None:
    for region in lifting.regions(rewriter, _fits, _asks):
        lifting.lift(rewriter, RULE, region, _borders, _convert)


def _borders(rewriter: Rewriter, name: str) -> lifting.Borders:
    return ([0, 0, -1, 1], [0, 0, -1]) if _is_series(rewriter, name) else lifting.KEPT


def _asks(rewriter: Rewriter, node: Node) -> bool:
    """Cases 1 and 4."""
    maker = rewriter.graph.producer.get(node.inputs[0])
    flattened = maker is not None and maker.is_op(*operators.VIEWS) and rewriter.image(maker.inputs[0]) is not None
    return node.is_op(*_WINDOWED) or (node.is_op(*_REDUCTIONS) and flattened)


def _is_series(rewriter: Rewriter, *tensors: str) -> bool:
    """True for [N, C, L] float activations."""
    return all(len(rewriter.activation(name)) == 3 for name in tensors)


def _fits(rewriter: Rewriter, node: Node) -> bool:
    series = functools.partial(_is_series, rewriter)
    made = series(*filter(None, node.outputs))
    if node.is_op(*lifting.UNARY, *_NARY):
        if not made or not lifting.one_output(rewriter, node):
            return False
        return lifting.value_by_value(rewriter, node, series, lambda dims: len(dims) <= 3, nary=_NARY)
    if not series(*(node.inputs if node.is_op("Concat") else node.inputs[:1])):
        return False
    if node.is_op(*_WINDOWED):
        return is_one_dimensional(rewriter, node)
    if node.is_op(*_PARAMETERS):
        return _PARAMETERS[node.op_type](rewriter, node) is not None
    if node.is_op("Split", "Concat", "Softmax"):
        # below opset 13 Softmax is over all axes from `axis` on
        return made and _axis(rewriter, node) != 0 and not (node.is_op("Softmax") and rewriter.graph.opset() < 13)
    return made and lifting.one_output(rewriter, node) and node.is_op(*_SAME)


def _axis(rewriter: Rewriter, node: Node) -> int:
    return operators.from_front(operators.axis(node, rewriter.graph.opset()), 3)


# ---------------- parameters, by axis


def _slice(rewriter: Rewriter, node: Node) -> Optional[_Parameter]:
    cut = operators.slices(node, rewriter.graph.array)
    axes = None if cut is None else operators.non_negative(cut.axes, 3)
    return None if axes is None or 0 in axes or not operators.is_given(node, "axes", 3) else ("axes", 3, np.array(axes))


def _pad(rewriter: Rewriter, node: Node) -> Optional[_Parameter]:
    pads = operators.integers(node, "pads", 1, rewriter.graph.array)
    if pads is None or len(pads) != 6 or node.input(3) or pads[0] or pads[3]:
        return None
    return "pads", 1, np.array([*pads[:3], 0, *pads[3:], 0])


def _resize(rewriter: Rewriter, node: Node) -> Optional[_Parameter]:
    opset = rewriter.graph.opset()
    scales = operators.resize_scales(node, opset, rewriter.graph.array)
    if scales is None or scales.size != 3 or opset < 11 or node.input(3):
        return None
    if "axes" in node.attributes or operators.mode(node) == "cubic" or operators.crops(node):
        return None
    return "scales", 2, np.append(scales, np.float32(1))


def _reduce(rewriter: Rewriter, node: Node) -> Optional[_Parameter]:
    axes = operators.non_negative(operators.axes(node, rewriter.graph.array), 3)
    return ("axes", 1, np.array([2, 3])) if axes == [2] else None


_PARAMETERS: dict[str, Callable[[Rewriter, Node], Optional[_Parameter]]] = {
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    **dict.fromkeys(_REDUCTIONS, _reduce),
}
"""Operator -> its parameter, None if it does not fit."""


# ---------------- lifting


def _convert(rewriter: Rewriter, node: Node, inputs: list[str]) -> Sequence[Node]:
    """Make the node work on four-dimensional inputs, in place."""
    found = _PARAMETERS[node.op_type](rewriter, node) if node.is_op(*_PARAMETERS) else None
    if found is not None:
        key, index, values = found
        if key in node.attributes:
            node.set(key, values.tolist())
        else:
            inputs[index] = rewriter.constant(f"{node.name}.{key}", values)
    elif node.is_op("Split", "Concat", "Softmax"):
        node.set("axis", _axis(rewriter, node))
    elif node.is_op(*_NARY):
        lifting.lift_constants(rewriter, inputs, "_4d", lambda values: values[..., np.newaxis])
    elif node.is_op(*_WINDOWED):
        widen(rewriter, node)
        inputs[1:2] = node.inputs[1:2]
    rewriter.graph.set_inputs(node, inputs)
    return ()
