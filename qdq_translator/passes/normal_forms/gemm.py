"""Rule F8: a Gemm is only a matrix product, and so is a MatMul.

1. alpha and beta are multiplied into constant weights and biases; the quantized weights are unchanged (rule W1: each
   per-channel scale is multiplied by the factor).
2. `Gemm(x, w, b)` -> `Add(Gemm(x, w), b')`, b' of shape [1, N]: the parser adds the same two layers, but with a tensor
   before the bias whose name is not the model's, and a broadcast of the bias. Below opset 11, which requires a bias
   for Gemm, the product is a MatMul.

The tensor before a bias gets `(amax of the output + max|b|) / 127` if the product's input and output have a scale; also
if the model itself has Gemm or MatMul and the Add of a constant, which exporters quantize as one layer. Not: below
opset 7, which broadcasts otherwise; factors of operands that are not constant; a bias of lower rank that is not
constant; a factor of 0; integers; below opset 11 the second if a factor or a transposed operand remains.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import coefficients, transposed
from qdq_translator.passes.editor import Editor

_NOTE = "range of the output and of the bias"


def apply(editor: Editor) -> None:
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
