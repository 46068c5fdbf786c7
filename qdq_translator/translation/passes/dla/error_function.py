"""Rule D22: with `--dla_rewrites approximate`, the error function of a GELU becomes Tanh.

1. `Erf(x) = Tanh(2 / sqrt(pi) * x * (1 + 0.08943 * x * x))`, with an error below 0.00036 for every x: the approximation
   that frameworks call GELU's tanh form (Hendrycks and Gimpel, arXiv 1606.08415; there 0.044715, for x times the root
   of 2). The step of FP16 just below 1 is 0.00049.

2. `Gelu` without approximate -> case 7 of rule D7, which is the same with a product behind it

It is two products, a Scale and Tanh, instead of two transitions between DLA and GPU. The tensors in front of Tanh get
no scale: a square in INT8 would lose small values, so these layers run in FP16.
Not: without that word; tensors that are not four-dimensional; an unknown number of channels.
"""

from __future__ import annotations

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import is_exact_gelu
from qdq_translator.translation.passes.dla.hard_activations import FORMULAS, cubic
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.scales.inference.self_gated import ERF_CUBIC, ERF_LINEAR

RULE = "D22"
OPERATORS = ("Erf", "Gelu")
ERROR = 0.00036
"""The largest difference from the original function, for values up to 1."""


def rewrite(rewriter: Rewriter, node: Node) -> None:
    if rewriter.settings.rewrites != "approximate":
        return
    rewriter.width(node.inputs[0])
    if is_exact_gelu(node):
        FORMULAS["Gelu"].write(RULE, rewriter, node, *cubic(rewriter, node))
    elif node.is_op("Erf"):
        FORMULAS["Erf"].write(RULE, rewriter, node, ERF_LINEAR, ERF_CUBIC)
