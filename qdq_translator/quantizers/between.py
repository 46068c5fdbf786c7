"""Operators between Q and DQ (rules Q1, Q9, Q10): one function per operator.

Each receives the node and its quantized input values, and returns a `Between`, or the reason why the node is not
allowed there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Optional, Union

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.constants import Constants
from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import QuantParams
from qdq_translator.quantizers.parameters import Rejected
from qdq_translator.quantizers.steps import ClampCodes, Codes, Move


@dataclasses.dataclass(frozen=True)
class Between:
    """The step that the node becomes, and the codes of each of its outputs that holds any."""

    step: Union[ClampCodes, Move]
    codes: dict[str, Codes]


def between(node: Node, read: dict[str, Codes], constants: Constants) -> Union[Between, Rejected]:
    """`read`: the tensors that the node reads and that hold codes, captured ones included; at least one."""
    operator = _OPERATORS.get(node.op_type) if node.is_standard else None
    found = operator(node, read, constants) if operator is not None else None
    if found is not None:
        return found
    tensor, codes = next(iter(read.items()))
    return Rejected(
        f"{node.op_type} {node.label} works on the integer tensor '{tensor}' of quantizer {codes.made_by}.",
        "Only Clip and data movement are allowed between Q and DQ; export in QDQ format, not as integer operators.",
    )


def same_grid(a: QuantParams, b: QuantParams) -> bool:
    """Equal grids; scales that went through float16 on one side count as equal."""
    if a is b:
        return True
    if a.per_channel != b.per_channel or not np.array_equal(a.zero_point, b.zero_point):
        return False
    if a.per_channel and a.axis != b.axis:
        return False
    if np.array_equal(a.scale, b.scale):
        return True
    halves = [p.scale.astype(np.float16).astype(np.float32) for p in (a, b)]
    went_through_half = any(np.array_equal(h, p.scale) for h, p in zip(halves, (a, b)))
    return went_through_half and np.array_equal(halves[0], halves[1])


_Operator = Callable[[Node, "dict[str, Codes]", Constants], Union[Between, Rejected, None]]
"""None: the node does not do on codes what it does on float values."""


def _clip(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    low, high = operators.clip_bounds(node, constants.value)
    if list(read) != node.inputs[:1] or low is None or high is None:
        return None
    codes = read[node.inputs[0]]
    lowest, highest = max(codes.bounds[0], low), min(codes.bounds[1], high)
    if not all(abs(bound) < 2**31 for bound in (lowest, highest)):
        return None
    bounds = (int(lowest), int(highest))
    clipped = dataclasses.replace(codes, bounds=bounds)
    clamp = clipped.clamp()
    if clamp == codes.clamp():
        clamp = None
    return Between(ClampCodes(node, codes.scale, clamp, codes.params.real), {node.outputs[0]: clipped})


def _move(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    if list(read) != node.inputs[:1]:
        return None
    return _moved(node, read[node.inputs[0]], node.outputs[:1])


def _split(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    if list(read) != node.inputs[:1]:
        return None
    return _moved(node, read[node.inputs[0]], node.outputs)


def _resize(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    return _move(node, read, constants) if operators.takes_nearest(node) else None


def _concat(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    parts = list(read.values())
    first = parts[0]
    if len(read) != len(set(node.inputs)) or not all(same_grid(first.params, c.params) for c in parts):
        return None
    bounds = (min(c.bounds[0] for c in parts), max(c.bounds[1] for c in parts))
    return _moved(node, dataclasses.replace(first, bounds=bounds), node.outputs[:1])


def _pad(node: Node, read: dict[str, Codes], constants: Constants) -> Union[Between, Rejected, None]:
    if list(read) != node.inputs[:1]:
        return None
    tensor, codes = node.inputs[0], read[node.inputs[0]]
    if operators.mode(node) != "constant":
        return _moved(node, codes, node.outputs[:1])
    value = operators.pad_value(node, constants.value)
    code = None if value is None or not math.isfinite(value) else int(value)
    values = set() if code is None else set(((code - codes.params.zero_point) * codes.params.scale).flat)
    if code is None or len(values) > 1:
        why = "with a value that is not constant" if code is None else "to a different value in each channel"
        return Rejected(
            f"Pad {node.label} pads the integer tensor '{tensor}' {why}.",
            "Pad before the QuantizeLinear, with a constant.",
        )
    bounds = (min(codes.bounds[0], code), max(codes.bounds[1], code))
    return _moved(node, dataclasses.replace(codes, bounds=bounds), node.outputs[:1], float(values.pop()))


def _moved(node: Node, codes: Codes, outputs: list[str], pad_value: Optional[float] = None) -> Between:
    moved = tuple(name for name in outputs if name)
    return Between(
        Move(node, codes.scale, moved, codes.params.real, pad_value, codes.note, codes.grid),
        dict.fromkeys(moved, codes),
    )


_MOVES = (
    "Identity Reshape Transpose Squeeze Unsqueeze Flatten MaxPool Slice Gather Expand Tile DepthToSpace SpaceToDepth"
)
_OPERATORS: dict[str, _Operator] = {
    **dict.fromkeys(_MOVES.split(), _move),
    "Clip": _clip,
    "Split": _split,
    "Concat": _concat,
    "Pad": _pad,
    "Resize": _resize,
}
"""A Clip cuts codes (rules Q1, Q9); the others do on them what they do on float values (rule Q10)."""
BETWEEN_OPS = tuple(_OPERATORS)
"""Operators that may stand between Q and DQ."""
