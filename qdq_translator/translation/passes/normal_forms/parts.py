"""Rule F8: operators that the parser expands into several layers are expanded in the model."""

from __future__ import annotations

import math
from typing import Callable, Optional

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import coefficients, transposed
from qdq_translator.translation.passes.editor import Editor, Row
from qdq_translator.translation.targets.parser_network import has_operator


def activations(editor: Editor) -> None:
    """Rule F8: activations that the parser expands into several layers are expanded in the model.

    1. `HardSwish(x)`      -> `Mul(x, HardSigmoid(x))`, alpha 1/6, beta 1/2
    2. `Mish(x)`           -> `Mul(x, Tanh(Softplus(x)))`
    3. `Celu(x)`           -> `Elu(x)`; with alpha not 1 `alpha * Elu(x / alpha)`
    4. `LogSoftmax(x)`     -> `Log(Softmax(x))`, only if the model quantizes the output: with scores over 87 apart the
       logarithm of an underflowed float would be minus infinity

    Scales of the new tensors, if input and output have one: HardSigmoid, Tanh and Softmax 1/127; Softplus the input's
    plus ln 2 / 127, which it cannot exceed; around Elu those of input and output, divided by alpha.
    """
    for node in editor.nodes(*_PARTS):
        if editor.is_float(node.outputs[0]):
            _PARTS[node.op_type](editor, node)


def _hard_swish(editor: Editor, node: Node) -> None:
    row, source = Row(editor, node), node.inputs[0]
    gate = row.add("HardSigmoid", "gate", alpha=1 / 6, beta=0.5)
    row.at(source).add("Mul", "product", gate)
    row.put("F8")
    _bounded(row, row.nodes[0])


def _mish(editor: Editor, node: Node) -> None:
    row, source = Row(editor, node), node.inputs[0]
    plus = row.add("Softplus", "softplus")
    gate = row.add("Tanh", "gate")
    row.at(source).add("Mul", "product", gate)
    row.put("F8")
    needs, note = editor.unless_output(node.outputs[0]), "at most x + ln 2"
    editor.derive("F8", plus, source, row.nodes[0], plus=math.log(2) / 127, needs=needs, note=note)
    _bounded(row, row.nodes[1])


def _celu(editor: Editor, node: Node) -> None:
    source, target = node.inputs[0], node.outputs[0]
    alpha, dtype = coefficients(node)[0], editor.dtype(source)
    if alpha == 1:
        editor.replace("F8", node, [Node("Elu", [source], [target], node.name, alpha=1.0)])
    elif dtype is not None and alpha > 0:
        row = Row(editor, node)
        row.add("Mul", "divided", editor.constant(f"{node.name}.1/alpha", np.array(1 / alpha, dtype)))
        elu = row.add("Elu", "elu", alpha=1.0)
        row.add("Mul", "product", editor.constant(f"{node.name}.alpha", np.array(alpha, dtype)))
        row.put("F8")
        row.derive(row.nodes[:1], source, 1 / alpha, note="the input's, divided by alpha")
        note = "the output's, divided by alpha"
        editor.derive("F8", elu, target, row.nodes[1], 1 / alpha, needs=[source], note=note)


def _log_softmax(editor: Editor, node: Node) -> None:
    if node.outputs[0] in editor.scales:
        row = Row(editor, node)
        row.add("Softmax", "softmax")
        row.nodes[0].attributes = {key: value for key, value in node.attributes.items() if key == "axis"}
        row.add("Log", "logarithm")
        row.put("F8")
        _bounded(row, row.nodes[0])


def _bounded(row: Row, step: Node) -> None:
    needs = row.editor.unless_output(row.node.outputs[0])
    row.editor.derive(
        "F8", step.outputs[0], row.node.inputs[0], step, 0.0, least=1 / 127, needs=needs, note="at most 1"
    )


_PARTS: dict[str, Callable[[Editor, Node], None]] = {
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "Celu": _celu,
    "LogSoftmax": _log_softmax,
}


def layer_norm(editor: Editor) -> None:
    """Rule F8: LayerNormalization in parts, if the parser of the target's TensorRT does not have it (8.5 and before),
    and RMSNormalization.

    `mean, x - mean, its square, its mean, + epsilon, root, quotient, * scale, + bias`; RMSNormalization without the
    first two. The parts get no scales: the inside of a normalization is not suitable for INT8. Not: on other versions;
    a second or third output that is read; operands that are not constant; an unknown rank, or an axis that it does not
    have.
    """
    missing = [op for op in operators.LAYER_NORMS if editor.parser is not None and not has_operator(op, editor.parser)]
    for node in editor.nodes(*missing):
        rank, dtype = editor.rank(node.inputs[0]), editor.dtype(node.inputs[0])
        constant = all(name in editor.graph.initializers for name in node.inputs[1:])
        read = any(name and editor.graph.is_used(name) for name in node.outputs[1:])
        if rank is None or dtype is None or not constant or read:
            continue
        first = operators.from_front(operators.axis(node, editor.graph.opset()), rank)
        if 0 <= first < rank:
            _in_parts(editor, node, list(range(first, rank)), dtype)


def _in_parts(editor: Editor, node: Node, axes: list[int], dtype: type) -> None:
    row, source = Row(editor, node), node.inputs[0]

    def mean(what: str) -> str:
        if editor.graph.opset() >= 18:
            return row.add("ReduceMean", what, editor.constant(f"{node.name}.axes", np.array(axes, np.int64)))
        return row.add("ReduceMean", what, axes=axes)

    centred = source
    if node.is_op("LayerNormalization"):
        average = mean("mean")
        centred = row.at(source).add("Sub", "centred", average)
    row.add("Mul", "square", centred)
    mean("variance")
    epsilon: np.ndarray = np.full((1,) * (axes[-1] + 1), operators.epsilon(node), dtype)
    row.add("Add", "shifted", editor.constant(f"{node.name}.epsilon", epsilon))
    root = row.add("Sqrt", "deviation")
    row.at(centred).add("Div", "normal", root)
    for op, what, index in (("Mul", "scaled", 1), ("Add", "biased", 2)):
        if node.input(index):
            row.add(op, what, node.input(index))
    row.put("F8")


def chains(editor: Editor) -> None:
    """Rule F8: Sum, Max and Min of three or more become two-input layers with named tensors between them.

    1. `Sum(a, b, c, ...)` -> `Add(Add(a, b), c) ...`
    2. `Max(a, b, c, ...)` -> `Max(Max(a, b), c) ...`, Min likewise

    Scales of the new tensors, if output and inputs have one: for a partial sum the sum of its terms' ranges, sufficient
    for all values; for a partial maximum or minimum that of the output, because the rest of the chain never selects a
    value that this scale saturates. Not: integers.
    """
    for node in editor.nodes("Sum", "Max", "Min"):
        if len(node.inputs) < 3 or not editor.is_float(node.outputs[0]):
            continue
        row, target, terms = Row(editor, node), node.outputs[0], node.inputs
        for number, other in enumerate(terms[1:], 1):
            row.add("Add" if node.is_op("Sum") else node.op_type, f"part{number}", other)
        row.put("F8")
        activations = [term for term in terms if term not in editor.graph.initializers]
        for count, part in enumerate(row.nodes[:-1], 2):
            name = part.outputs[0]
            if not node.is_op("Sum"):
                editor.derive("F8", name, target, part, needs=activations, note="scale of the output")
                continue
            added = [term for term in terms[:count] if term in activations]
            plus = sum(editor.largest(term) for term in terms[:count] if term not in activations) / 127
            needs, note = [*editor.unless_output(target), *activations], f"sum of the ranges of {count} terms"
            if added:
                editor.derive("F8", name, added[0], part, more=added[1:], plus=plus, needs=needs, note=note)


def depth_space(editor: Editor) -> None:
    """Rule F8: DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape.

    1. `DepthToSpace(b)`: [N, b, b, C', H, W] (CRD: [N, C', b, b, H, W]) -> [N, C', H, b, W, b] -> [N, C', H*b, W*b]
    2. `SpaceToDepth(b)`: [N, C, H', b, W', b] -> [N, b, b, C, H', W'] -> [N, b*b*C, H', W']

    The values only move, so rule S3 gives the new tensors their scales. Not: on a DLA, which does not support six
    dimensions (rule D11 applies there); unknown C, H or W; blocks that do not divide them.
    """
    if editor.settings.hardware.generation:
        return
    for node in editor.nodes("DepthToSpace", "SpaceToDepth"):
        image = editor.image(node.inputs[0])
        if image is None:
            continue
        _, channels, height, width = image
        block = operators.block_size(node)
        if block < 1 or (channels % block**2 if node.is_op("DepthToSpace") else height % block or width % block):
            continue
        if node.is_op("DepthToSpace"):
            rest = channels // (block * block)
            if operators.mode(node) == "CRD":
                split, order = [0, rest, block, block, height, width], [0, 1, 4, 2, 5, 3]
            else:
                split, order = [0, block, block, rest, height, width], [0, 3, 4, 1, 5, 2]
            joined = [0, rest, height * block, width * block]
        else:
            height, width = height // block, width // block
            split, order = [0, channels, height, block, width, block], [0, 3, 5, 1, 2, 4]
            joined = [0, channels * block * block, height, width]
        target, name = node.outputs[0], node.name
        parts, moved = editor.tensor(f"{target}_split"), editor.tensor(f"{target}_moved")
        first, move = editor.node(f"{name}_split"), editor.node(f"{name}_move")
        before = editor.reshape(node.inputs[0], parts, split, first)
        behind = editor.reshape(moved, target, joined, name)
        editor.replace("F8", node, [before, Node("Transpose", [parts], [moved], move, perm=order), behind])


# ---------------- Gemm and MatMul


_NOTE = "range of the output and of the bias"


def gemm(editor: Editor) -> None:
    """Rule F8: a Gemm is only a matrix product, and so is a MatMul.

    1. alpha and beta are multiplied into constant weights and biases; the quantized weights are unchanged (rule W1:
       each per-channel scale is multiplied by the factor).
    2. `Gemm(x, w, b)` -> `Add(Gemm(x, w), b')`, b' of shape [1, N]: the parser adds the same two layers, but with a
       tensor before the bias whose name is not the model's, and a broadcast of the bias. Below opset 11, which requires
       a bias for Gemm, the product is a MatMul.

    The tensor before a bias gets `(amax of the output + max|b|) / 127` if the product's input and output have a scale;
    also if the model itself has Gemm or MatMul and the Add of a constant, which exporters quantize as one layer. Not:
    below opset 7, which broadcasts otherwise; factors of operands that are not constant; a bias of lower rank that is
    not constant; a factor of 0; integers; below opset 11 the second if a factor or a transposed operand remains.
    """
    if editor.graph.opset() < 7:
        return
    for node in editor.nodes("Gemm"):
        changed = _fold(editor, node, "alpha", coefficients(node)[0], 1)
        if node.input(2):
            changed |= _fold(editor, node, "beta", coefficients(node)[1], 2)
        elif node.unset("beta"):
            changed = True
        if not _split(editor, node) and changed:
            editor.note("F8", [node], [node])
    for node in editor.nodes("Gemm", "MatMul"):
        _scale_before_bias(editor, node)


def _fold(editor: Editor, node: Node, key: str, factor: float, index: int) -> bool:
    name = node.input(index)
    if factor in (0.0, 1.0) or name not in editor.graph.initializers or editor.dtype(name) is None:
        return False
    editor.graph.set_input(node, index, editor.weight(node, index, "", lambda values: values, factor))
    node.unset(key)
    return True


def _split(editor: Editor, node: Node) -> bool:
    bias, target = node.input(2), node.outputs[0]
    if not bias or coefficients(node)[1] != 1:
        return False
    constant = bias in editor.graph.initializers
    rank = len(editor.graph.initializers[bias].dims) if constant else editor.rank(bias)
    if rank is None or (rank < 2 and not constant) or editor.dtype(bias if constant else target) is None:
        return False
    before = editor.tensor(f"{target}_before_bias")
    product = _product(editor, node, before)
    if product is None:
        return False
    if rank < 2:
        bias = editor.weight(node, 2, "", lambda values: values.reshape(1, -1))
    total = Node("Add", [before, bias], [target], editor.node(f"{node.name}_bias"))
    editor.replace("F8", node, [product, total])
    if not constant:
        needs = [name for name in node.inputs[:2] if name not in editor.graph.initializers]
        editor.derive("F8", before, target, product, more=[bias], needs=needs, note=_NOTE)
    return True


def _product(editor: Editor, node: Node, output: str) -> Optional[Node]:
    if editor.graph.opset() >= 11:
        attributes = {key: value for key, value in node.attributes.items() if key != "beta"}
        return Node("Gemm", node.inputs[:2], [output], node.name, attributes=attributes)
    first, second = node.inputs[:2]
    if coefficients(node)[0] != 1 or transposed(node, 0):
        return None
    if transposed(node, 1):
        if editor.dtype(second) is None or second not in editor.graph.initializers:
            return None
        second = editor.weight(node, 1, "", np.transpose)
    return Node("MatMul", [first, second], [output], node.name)


def _scale_before_bias(editor: Editor, node: Node) -> None:
    graph, before = editor.graph, node.outputs[0]
    reader = graph.only_consumer(before)
    if reader is None or not reader.is_op("Add") or node.input(1) not in graph.initializers or node.input(2):
        return
    biases = [name for name in reader.inputs if name in graph.initializers]
    if biases and editor.dtype(biases[0]) is not None:
        plus = editor.largest(biases[0]) / 127
        editor.derive("F8", before, reader.outputs[0], node, plus=plus, needs=node.inputs[:1], note=_NOTE)
