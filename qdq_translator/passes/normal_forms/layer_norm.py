"""Rule F8: LayerNormalization in parts, where the parser of the target's TensorRT has none (8.5 and before).

`mean, x - mean, its square, its mean, + epsilon, root, quotient, * scale, + bias`. The parts get no scales: the inside of
a normalization is no place for INT8.
Not: on other versions; a second or third output that somebody reads; operands that are not constant; an unknown rank,
or an axis that it does not have.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.editor import Editor
from qdq_translator.targets.parser import has_operator

WHAT = "LayerNormalization in parts"


def apply(editor: Editor) -> None:
    if editor.parser is None or has_operator("LayerNormalization", editor.parser):
        return
    for node in editor.nodes("LayerNormalization"):
        rank, dtype = editor.rank(node.inputs[0]), editor.dtype(node.inputs[0])
        constant = all(name in editor.graph.initializers for name in node.inputs[1:])
        read = any(
            editor.graph.consumer_count(name) or name in editor.graph.outputs for name in node.outputs[1:] if name
        )
        if rank is None or dtype is None or not constant or read:
            continue
        first = operators.from_front(operators.axis(node, editor.graph.opset()), rank)
        if 0 <= first < rank:
            _in_parts(editor, node, list(range(first, rank)), dtype)


def _in_parts(editor: Editor, node: Node, axes: list[int], dtype: type) -> None:
    source, target = node.inputs[0], node.outputs[0]
    nodes: list[Node] = []

    def step(op: str, part: str, *inputs: str) -> str:
        output = editor.tensor(f"{target}_{part}")
        nodes.append(Node(op, inputs, [output], editor.node(f"{node.name}_{part}")))
        return output

    def mean(of: str, part: str) -> str:
        if editor.graph.opset() >= 18:
            return step("ReduceMean", part, of, editor.constant(f"{node.name}.axes", np.array(axes, np.int64)))
        output = step("ReduceMean", part, of)
        nodes[-1].set("axes", axes)
        return output

    centred = step("Sub", "centred", source, mean(source, "mean"))
    variance = mean(step("Mul", "square", centred, centred), "variance")
    epsilon = editor.constant(f"{node.name}.epsilon", np.full((1,) * (axes[-1] + 1), operators.epsilon(node), dtype))
    root = step("Sqrt", "deviation", step("Add", "shifted", variance, epsilon))
    current = step("Div", "normal", centred, root)
    for op, part, index in (("Mul", "scaled", 1), ("Add", "biased", 2)):
        if node.input(index):
            current = step(op, part, current, node.input(index))
    last = nodes[-1]
    last.outputs, last.name = [target], node.name
    editor.replace("F8", node, nodes)
