"""Rule D8: Sum, Max and Mean of several inputs become two-input layers with named tensors between them.

1. `Sum(a, b, c, ...)` -> `Add(Add(a, b), c) ...`, `Max` likewise: TensorRT's parser makes the same layers, but with tensors
   of its own between them, for which no scale can be written (the open-source parser's code)
2. `Mean(a, b, ...)`   -> the same sum, then a Scale by 1/n

Scales of the new tensors: a partial maximum has the output's (a maximum and a clamp may change places); the whole sum in a
Mean n times the output's; any other partial sum the sum of the scales of what it adds up, because it may reach beyond the
output's range where a later summand takes it back.
Not: Sum and Max of two inputs (they run as they are), of one (rule D2); Mean of tensors that are not four-dimensional or
have an unknown number of channels.
"""

from __future__ import annotations

from qdq_translator.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D8"


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Sum", "Max", "Mean"):
        count = len(node.inputs)
        if not rewriter.types.is_float(node.outputs[0]) or count < (2 if node.is_op("Mean") else 3):
            continue
        target = node.outputs[0]
        channels, dtype = rewriter.channels(target), rewriter.dtype(target)
        if node.is_op("Mean") and (channels is None or dtype is None):
            rewriter.leave(node, "its output has not four dimensions with a known number of channels")
            continue
        op = "Max" if node.is_op("Max") else "Add"
        nodes: list[Node] = []
        current = node.inputs[0]
        for number, other in enumerate(node.inputs[1:], 1):
            last = number == count - 1 and not node.is_op("Mean")
            output = target if last else rewriter.tensor(f"{target}_part{number}")
            name = node.name if last else rewriter.node(f"{node.name}_part{number}")
            nodes.append(Node(op, [current, other], [output], name))
            current = output
        if node.is_op("Mean"):
            assert channels is not None
            nodes.append(rewriter.scale_layer(current, target, channels, 1 / count, 0.0, node.name, dtype))
        rewriter.replace(RULE, node, nodes)
        for number, part in enumerate(nodes[:-1], 2):
            tensor, summands = part.outputs[0], node.inputs[:number]
            if op == "Max":
                rewriter.derive(RULE, tensor, target, part, note="scale of the output")
            elif number == count:
                rewriter.derive(RULE, tensor, target, part, factor=count, note=f"{count} times the output's scale")
            else:
                note = f"sum of the scales of {number} summands"
                rewriter.derive(RULE, tensor, summands[0], part, more=summands[1:], note=note)
