"""Rule F8: activations that the parser writes as several layers are written so in the model.

1. `HardSwish(x)`      -> `Mul(x, HardSigmoid(x))`, alpha 1/6, beta 1/2
2. `Mish(x)`           -> `Mul(x, Tanh(Softplus(x)))`
3. `Celu(x)`           -> `Elu(x)`; with alpha not 1 `alpha * Elu(x / alpha)`
4. `LogSoftmax(x)`     -> `Log(Softmax(x))`, only where the model quantizes the output: with scores more than 87 apart the
   logarithm of a float that vanished would be minus infinity

Scales of the new tensors, where input and output have one: HardSigmoid, Tanh and Softmax 1/127; Softplus the input's and
ln 2 / 127, which it cannot exceed; around Elu those of input and output, divided by alpha.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import coefficients
from qdq_translator.passes.editor import Editor

WHAT = "Activations of several layers in parts"


def apply(editor: Editor) -> None:
    for node in editor.nodes(*_PARTS):
        if editor.is_float(node.outputs[0]):
            _PARTS[node.op_type](editor, node)


def _hard_swish(editor: Editor, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    gate = _step(editor, node, "HardSigmoid", source, "gate", alpha=1 / 6, beta=0.5)
    editor.replace("F8", node, [gate, Node("Mul", [source, gate.outputs[0]], [target], node.name)])
    _bounded(editor, gate, source, target)


def _mish(editor: Editor, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    plus = _step(editor, node, "Softplus", source, "softplus")
    gate = _step(editor, node, "Tanh", plus.outputs[0], "gate")
    editor.replace("F8", node, [plus, gate, Node("Mul", [source, gate.outputs[0]], [target], node.name)])
    editor.derive(
        "F8",
        plus.outputs[0],
        source,
        plus,
        plus=math.log(2) / 127,
        needs=editor.unless_output(target),
        note="at most x + ln 2",
    )
    _bounded(editor, gate, source, target)


def _celu(editor: Editor, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    alpha, dtype = coefficients(node)[0], editor.dtype(source)
    if alpha == 1:
        editor.replace("F8", node, [Node("Elu", [source], [target], node.name, alpha=1.0)])
        return
    if dtype is None or alpha <= 0:
        return
    divided = _step(editor, node, "Mul", source, "divided")
    divided.inputs.append(editor.constant(f"{node.name}.1/alpha", np.array(1 / alpha, dtype)))
    elu = _step(editor, node, "Elu", divided.outputs[0], "elu", alpha=1.0)
    factor = editor.constant(f"{node.name}.alpha", np.array(alpha, dtype))
    editor.replace("F8", node, [divided, elu, Node("Mul", [elu.outputs[0], factor], [target], node.name)])
    editor.derive(
        "F8",
        divided.outputs[0],
        source,
        divided,
        factor=1 / alpha,
        needs=[target],
        note="the input's, divided by alpha",
    )
    editor.derive(
        "F8", elu.outputs[0], target, elu, factor=1 / alpha, needs=[source], note="the output's, divided by alpha"
    )


def _log_softmax(editor: Editor, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    if target not in editor.scales:
        return
    axis = {key: value for key, value in node.attributes.items() if key == "axis"}
    soft = _step(editor, node, "Softmax", source, "softmax")
    soft.attributes = {**soft.attributes, **axis}
    editor.replace("F8", node, [soft, Node("Log", [soft.outputs[0]], [target], node.name)])
    _bounded(editor, soft, source, target)


def _step(editor: Editor, node: Node, op: str, source: str, part: str, **values: Any) -> Node:
    output = editor.tensor(f"{node.outputs[0]}_{part}")
    return Node(op, [source], [output], editor.node(f"{node.name}_{part}"), **values)


def _bounded(editor: Editor, step: Node, source: str, target: str) -> None:
    needs = editor.unless_output(target)
    editor.derive("F8", step.outputs[0], source, step, factor=0.0, least=1 / 127, needs=needs, note="at most 1")


_PARTS: dict[str, Callable[[Editor, Node], None]] = {
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "Celu": _celu,
    "LogSoftmax": _log_softmax,
}
