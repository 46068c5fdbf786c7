"""Rule D25: tensors of five dimensions [N, R, C, H, W] between Reshapes work on [N, R * C, H, W] (split attention:
ResNeSt, SKNet).

1. `Add`, `Mul`, ... and layers that work value by value keep their operator; `Concat` over R becomes one over the
   channels
2. `ReduceSum` and `ReduceMean` over R, with keepdims 0 -> a 1x1 Conv whose weight is 1, or 1 / R, where input channel r
   * C + c belongs to output channel c
3. `Softmax` over an R of two -> Sigmoid of the differences, x[r] - x[1 - r], which a 1x1 Conv with weights 1 and -1
   computes
4. Reshapes from and to [N, R, C, H, W] are added at the ends; rule D17 merges them with their neighbours.

Equal weights of a Conv are quantized values of 127, exact in INT8. Tensors inside keep their names and scales; the
differences get none and are computed in FP16, like the Sigmoid.
Not: unknown sizes other than the batch size; reductions over other axes; `Softmax` over more or other values, or below
opset 13; tensors of other forms that are read, or constants of more than one value; regions without a layer of case 2.
"""

from __future__ import annotations

import math
from typing import Optional, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import lifting
from qdq_translator.translation.passes.dla.rewriter import MOST_CHANNELS, Rewriter

RULE = "D25"
_SUMS = ("ReduceSum", "ReduceMean")


def apply(rewriter: Rewriter) -> None:
    for region in lifting.regions(rewriter, _fits, lambda _, node: node.is_op(*_SUMS)):
        lifting.lift(rewriter, RULE, region, _borders, _convert)


def _borders(rewriter: Rewriter, name: str) -> lifting.Borders:
    r, c, h, w = _form(rewriter, name) or (0, 0, 0, 0)
    return ([0, r * c, h, w], [0, r, c, h, w]) if r else lifting.KEPT


def _form(rewriter: Rewriter, tensor: str) -> Optional[Tuple[int, int, int, int]]:
    """R, C, H, W of a five-dimensional float activation, else None."""
    shape = rewriter.activation(tensor)
    if len(shape) != 5:
        return None
    r, c, h, w = (size if isinstance(size, int) else 0 for size in shape[1:])
    return (r, c, h, w) if r * c * h * w and r * c <= MOST_CHANNELS else None


def _fits(rewriter: Rewriter, node: Node) -> bool:
    if not lifting.one_output(rewriter, node):
        return False
    if node.is_op(*_SUMS):
        axes = operators.non_negative(operators.axes(node, rewriter.graph.array), 5)
        return axes == [1] and not operators.keeps_dimensions(node) and _form(rewriter, node.inputs[0]) is not None
    made = _form(rewriter, node.outputs[0])
    if made is None:
        return False
    if node.is_op("Concat"):
        forms = [_form(rewriter, name) for name in node.inputs]
        return operators.axis(node, rewriter.graph.opset()) in (1, -4) and all(forms)
    if node.is_op("Softmax"):
        opset = rewriter.graph.opset()
        two = opset >= 13 and made[0] == 2 and operators.axis(node, opset) in (1, -4)
        return two and made == _form(rewriter, node.inputs[0])
    return lifting.value_by_value(
        rewriter, node, lambda n: (_form(rewriter, n) or ())[:2] == made[:2], lambda dims: math.prod(dims) == 1
    )


def _convert(rewriter: Rewriter, node: Node, inputs: list[str]) -> list[Node]:
    """Make the node work on four-dimensional inputs, in place; returns layers in front of it."""
    made: list[Node] = []
    r, c, _, _ = _form(rewriter, node.inputs[0]) or (1, 1, 1, 1)
    if node.is_op(*_SUMS):
        share = 1 / r if node.is_op("ReduceMean") else 1.0
        inputs = [inputs[0], rewriter.matrix(f"{node.name}.weight", np.tile(np.eye(c), r) * share, node)]
        rewriter.become(node, "Conv", kernel_shape=[1, 1])
    elif node.is_op("Concat"):
        node.set("axis", 1)
    elif node.is_op("Softmax"):
        signs = rewriter.matrix(f"{node.name}.signs", np.kron([[1, -1], [-1, 1]], np.eye(c)), node)
        differences = [rewriter.tensor(f"{node.outputs[0]}_differences")]
        name = rewriter.node(f"{node.name}_differences")
        conv = Node("Conv", [*inputs, signs], differences, name, kernel_shape=[1, 1])
        made, inputs = [rewriter.graph.insert_after(conv, node.prev)], differences
        rewriter.become(node, "Sigmoid")
    rewriter.graph.set_inputs(node, inputs)
    return made
