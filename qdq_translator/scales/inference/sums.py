"""Rule S11, with `--infer_add_scales`, for Add, Sub and Sum: forward `amax_out` is the sum of the inputs' ranges; backward
a missing input gets `amax_out` plus the ranges of the others. Upper bounds: sound if the given ranges are. A constant
counts with its own largest magnitude.

Nothing where an activation's whole range would be less than one step of the scale, as beside a mask of -10000: all
of its codes would be 0.
"""

from __future__ import annotations

from typing import Sequence

from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference.context import Context

OPS = ("Add", "Sub", "Sum")


def _give(tensor: str, known: Sequence[str], node: Node, context: Context) -> bool:
    """`tensor` gets the sum of the ranges of `known`, where all of them are and none vanishes beside it."""
    ranges = {name: context.amax(name) or 0.0 for name in known}
    scale = sum(ranges[name] for name in known) / INT8_MAX
    if not all(amax >= scale for name, amax in ranges.items() if not context.graph.is_constant(name)):
        return False
    return 0.0 not in ranges.values() and context.give(tensor, scale, "S11", node, ", ".join(known))


def forward(node: Node, context: Context) -> bool:
    return context.lacks(node.outputs[0]) and _give(node.outputs[0], node.inputs, node, context)


def backward(node: Node, context: Context) -> bool:
    missing = [name for name in node.inputs if context.amax(name) is None]
    if len(missing) != 1:
        return False
    others = [name for name in node.inputs if name != missing[0]]
    return context.lacks(missing[0]) and _give(missing[0], [node.outputs[0], *others], node, context)
