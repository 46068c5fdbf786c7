"""Rule S8, with `--infer_mul_scales`: `amax_out = amax_a * amax_b`; with two of the three known it gives the third.
A constant operand's amax is read off its values."""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.qparams import INT8_MAX

OPS = ("Mul",)


def _amax(name: str, context: Context) -> Optional[float]:
    value = context.scale(name)
    if value is not None:
        return value * INT8_MAX
    constant = context.graph.array(name)
    if constant is None or constant.size == 0 or constant.dtype.kind != "f":
        return None
    amax = float(np.abs(constant.astype(np.float64)).max())
    return amax if amax > 0 else None


def forward(node: Node, context: Context) -> bool:
    if not context.options.infer_mul_scales or not context.lacks(node.outputs[0]):
        return False
    a, b = (_amax(name, context) for name in node.inputs)
    if a is None or b is None:
        return False
    return context.give(node.outputs[0], a * b / INT8_MAX, "S8", node, ", ".join(node.inputs))


def backward(node: Node, context: Context) -> bool:
    if not context.options.infer_mul_scales:
        return False
    out = _amax(node.outputs[0], context)
    changed = False
    for name, other in (node.inputs, node.inputs[::-1]):
        known = _amax(other, context)
        if out is not None and known is not None and context.lacks(name):
            changed |= context.give(name, out / known / INT8_MAX, "S8", node, f"{node.outputs[0]}, {other}")
    return changed
