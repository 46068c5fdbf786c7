"""Rule D22: with `--dla_rewrites approximate`, the error function of a GELU becomes Tanh.

1. `Erf(x) = Tanh(2 / sqrt(pi) * x * (1 + 0.08943 * x * x))`, less than 0.00036 off for every x: the approximation that frameworks
   call GELU's tanh form (Hendrycks and Gimpel, arXiv 1606.08415; 0.044715 there, of x times the root of 2). A value just below 1
   has a step of 0.00049 in FP16.

It is two products, a Scale and Tanh, where the whole network would leave the DLA and come back. The new tensors get no scale:
a square in INT8 would lose small values, so these layers run in FP16.
Not: without that word; tensors that are not four-dimensional; an unknown number of channels; the operator Gelu.
"""

from __future__ import annotations

from qdq_translator.graph import Node
from qdq_translator.inference.self_gated import ERF_CUBIC, ERF_LINEAR
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D22"
ERROR = 0.00036
"""The largest difference from the function that was there, of values up to 1."""

_FLOAT = "a square in INT8 would lose small values, rule D22"


def apply(rewriter: Rewriter) -> None:
    if rewriter.settings.rewrites != "approximate":
        return
    for node in rewriter.nodes("Erf"):
        if not rewriter.rejected(node):
            continue
        channels, dtype = rewriter.channels(node.inputs[0]), rewriter.dtype(node.inputs[0])
        if channels is None or dtype is None:
            rewriter.leave(node, "its input does not have four dimensions with a known number of channels")
            continue
        source, target = node.inputs[0], node.outputs[0]
        parts = ("square", "factor", "argument")
        square, factor, argument = (rewriter.tensor(f"{target}_{part}") for part in parts)
        names = [rewriter.node(f"{node.name}_{part}") for part in parts]
        layers = [
            Node("Mul", [source, source], [square], names[0]),
            rewriter.scale_layer(square, factor, channels, ERF_CUBIC, ERF_LINEAR, names[1], dtype),
            Node("Mul", [source, factor], [argument], names[2]),
            Node("Tanh", [argument], [target], node.name),
        ]
        rewriter.replace(RULE, node, layers)
        rewriter.network.withhold(square, factor, argument, why=_FLOAT)
