"""Masks that comparisons compute, as factors: what rule D19 makes of Where and of step functions."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter, Row, Stays

_OPPOSITE = {"Greater": "", "Less": "", "Equal": "", "GreaterOrEqual": "Less", "LessOrEqual": "Greater"}
"""Comparison -> the one that the DLA has for its opposite; '' for those that it has."""
_Part = Tuple[str, str, bool, Optional[str], float]
"""A comparison of x, its second operand, and what is added where it is true, or false: a tensor or a number."""


def compared(rewriter: Rewriter, rule: str, node: Node) -> None:
    """A Where with a computed condition (case 6 of rule D19)."""
    graph, shape = rewriter.graph, rewriter.types.shape(node.outputs[0])
    maker = graph.producer.get(node.inputs[0])
    inverse = maker is not None and maker.is_op("Not")
    if maker is not None and inverse:
        maker = graph.producer.get(maker.inputs[0])
    if maker is None or maker.op_type not in _OPPOSITE:
        raise Stays("its condition is computed")
    op = _OPPOSITE[maker.op_type] or maker.op_type
    inverse ^= op != maker.op_type
    x, y = maker.inputs
    if graph.is_constant(x):
        x, y, op = y, x, {"Greater": "Less", "Less": "Greater"}.get(op, op)
    parts: List[_Part] = []
    for name, number in zip(node.inputs[1:], (0, 1)):
        values, taken = graph.array(name), (number == 0) != inverse
        if values is not None and values.size == 1 and np.isfinite(values).all():
            parts.append((op, y, taken, None, float(values.reshape(()))))
        elif values is None and rewriter.types.shape(name) == shape:
            parts.append((op, y, taken, name, 0.0))
        else:
            raise Stays("one of its branches is broadcast, or no finite number")
    _masked(rewriter, rule, node, x, parts)


def steps(rewriter: Rewriter, rule: str, node: Node) -> None:
    """Step functions (case 7 of rule D19)."""
    x, dtype, rank = node.inputs[0], rewriter.dtype(node.inputs[0]), rewriter.rank(node.inputs[0]) or 0
    limit, bias = {"ThresholdedRelu": (float(node.get("alpha", 1.0)), 0.0), "Sign": (0.0, 0.0)}.get(
        node.op_type, (float(node.get("lambd", 0.5)), float(node.get("bias", 0.0)))
    )
    high, low = (
        rewriter.constant(f"{node.name}.{what}", np.full((1,) * rank, value, dtype))
        for what, value in (("above", limit), ("below", -limit))
    )
    kept: List[_Part] = [("Greater", high, True, x, 0.0), ("Less", low, True, x, 0.0)]
    shift = -1.0 if node.is_op("Sign") else bias
    shifts: List[_Part] = [("Greater", high, True, None, -shift), ("Less", low, True, None, shift)]
    _masked(rewriter, rule, node, x, {"ThresholdedRelu": kept[:1], "Sign": shifts}.get(node.op_type, kept + shifts))


def _masked(rewriter: Rewriter, rule: str, node: Node, x: str, parts: List[_Part]) -> None:
    target, channels, shapes = node.outputs[0], rewriter.channels(x), rewriter.types.shape
    asked = [rewriter.rejected_by(Node(part[0], [x, part[1]], [target])) - {"E4"} for part in parts]
    fits = all(rewriter.graph.is_constant(y) or shapes(y) == shapes(x) for _, y, *_ in parts)
    parts = [part for part in parts if part[3] is not None or part[4]]
    if channels is None or any(asked) or not fits or shapes(x) != shapes(target) or not parts:
        raise Stays("the DLA compares tensors of one shape in INT8 only, from TensorRT 8.6.12 on")
    row = Row(rewriter, node)
    masks: Dict[Tuple[str, str], str] = {}
    ranges: Dict[str, float] = {}
    summands: List[str] = []
    for number, (op, y, taken, tensor, value) in enumerate(parts):
        if (op, y) not in masks:
            values = rewriter.graph.array(y)
            row.at(x).add(
                op, f"compared{number}", y if values is None else rewriter.constant(f"{y}_full", ranked(values, 4))
            )
            masks[op, y] = row.add("Cast", f"mask{number}", to=int(rewriter.types.elem_type(x) or 1))
            ranges[row.current] = 1
        row.current, size = masks[op, y], value if tensor is None else 1.0
        if not taken or size != 1:
            row.scale(f"gate{number}", channels, size if taken else -size, 0.0 if taken else size)
            ranges[row.current] = abs(size)
        if tensor is not None:
            gate = row.current
            row.at(tensor).add("Mul", f"part{number}", gate)
        summands.append(row.current)
    while len(summands) > 1:
        summands = [*summands[2:], row.at(summands[0]).add("Add", "sum", summands[1])]
    row.put(rule)
    for layer in row.nodes[:-1]:
        if layer.outputs[0] in ranges:
            row.derive([layer], x, 0.0, ranges[layer.outputs[0]] / 127, note="its bound")
        elif layer.is_op("Mul", "Add"):
            row.derive([layer], layer.inputs[0], note="scale of what it masks")


def ranked(values: np.ndarray, rank: int) -> np.ndarray:
    """With axes of size 1 in front."""
    return values.reshape((1,) * (rank - values.ndim) + values.shape)
