"""Rule F8: one-dimensional Conv, ConvTranspose and pooling work on [N, C, L, 1].

`Unsqueeze(3)`, the two-dimensional layer with a kernel of [k, 1], `Squeeze(3)`: the parser adds the same layers, but
then the input and output of the convolution have no name of the model's. A tensor between two such layers has four
dimensions and keeps its name and scale. The new tensors hold the values of the old ones, so rule S3 gives them their
scales; the quantized values of weights stay. Not: a weight that is not constant; an `output_shape`; a second output
(the indices of MaxPool); an unknown rank.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import states_output_shape, window
from qdq_translator.translation.passes.editor import Editor

_NEUTRAL = {"kernel_shape": [1], "strides": [1], "dilations": [1], "output_padding": [0], "pads": []}
"""Values added to each attribute for the second dimension."""


def apply(editor: Editor) -> None:
    graph = editor.graph
    found = [
        n for n in editor.nodes("Conv", "ConvTranspose", "MaxPool", "AveragePool") if is_one_dimensional(editor, n)
    ]
    members = {id(node) for node in found}
    wide: dict[str, str] = {}
    for node in found:
        source, target = node.inputs[0], node.outputs[0]
        inside = target not in graph.outputs and all(id(n) in members for n in graph.consumers(target))
        new: list[Node] = []
        if source not in wide:
            wide[source] = editor.tensor(f"{source}_2d")
            new.append(_axis_layer(editor, "Unsqueeze", source, wide[source], f"{node.name}_2d"))
        wide[target] = target if inside else editor.tensor(f"{target}_2d")
        widen(editor, node)
        inputs = [wide[source], *node.inputs[1:]]
        new.append(Node(node.op_type, inputs, [wide[target]], node.name, attributes=node.attributes))
        if not inside:
            new.append(_axis_layer(editor, "Squeeze", wide[target], target, f"{node.name}_1d"))
        editor.replace("F8", node, new)


def widen(editor: Editor, node: Node) -> None:
    """Extend weight and attributes by a second dimension, in place."""
    if node.is_op("Conv", "ConvTranspose"):
        editor.graph.set_input(node, 1, editor.weight(node, 1, "", lambda values: values[..., np.newaxis]))
    for key, neutral in _NEUTRAL.items():
        if key in node.attributes:
            values = node.get(key)
            node.set(key, [values[0], 0, values[1], 0] if key == "pads" else [*values, *neutral])


def is_one_dimensional(editor: Editor, node: Node) -> bool:
    if node.is_op("Conv", "ConvTranspose"):
        weight = editor.graph.initializers.get(node.input(1))
        return weight is not None and len(weight.dims) == 3 and not states_output_shape(node)
    pool = window(node)
    return len(node.outputs) == 1 and pool is not None and len(pool.kernel) == 1


def _axis_layer(editor: Editor, op: str, source: str, target: str, name: str) -> Node:
    if editor.graph.opset() < 13:
        return Node(op, [source], [target], editor.node(name), axes=[3])
    return Node(op, [source, editor.constant(f"{name}.axes", np.array([3], np.int64))], [target], editor.node(name))
