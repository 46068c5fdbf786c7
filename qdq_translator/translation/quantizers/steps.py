"""Steps for the nodes from Q to DQ: one value object per step (rules Q1, Q6 to Q10)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Callable, Optional, Tuple, Union

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.constants import Constants, is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import QuantParams
from qdq_translator.translation.quantizers.parameters import Rejected

Bounds = Tuple[Optional[float], Optional[float]]
"""Lower and upper real bound; None for no bound."""
ASYMMETRIC = "asymmetric in the model"


@dataclass(frozen=True)
class Codes:
    """An integer tensor on its way from Q to DQ."""

    params: QuantParams
    scale: float
    """The symmetric scale that represents `params`."""
    bounds: tuple[int, int]
    """Quantized values that can occur."""
    made_by: str

    @property
    def note(self) -> str:
        """Note on the origin of a scale that the exporter did not choose."""
        return "" if self.params.symmetric or self.params.dtype == "int32" else ASYMMETRIC

    @property
    def grid(self) -> Optional[Tuple[float, int]]:
        """Scale and uint8 zero point of such a quantizer, if it is per tensor."""
        params = self.params
        if not self.note or params.per_channel or params.dtype not in ("int8", "uint8"):
            return None
        return float(params.scale), int(params.zero_point) + (128 if params.dtype == "int8" else 0)

    def clamp(self, kept: bool = False, whole: bool = False) -> Optional[Bounds]:
        """Real bounds at which INT8 does not saturate itself (rule Q9): all but those of a symmetric type, whose lowest
        value may be one step off. kept: nor those of a type whose zero point stays (`--asymmetric keep`), 0 apart. With
        per-channel scales the widest bounds count, as the largest scale does. whole: all bounds."""
        params = self.params
        type_low, type_high = params.code_range
        ends = [params.real_value(bound).astype(np.float64) for bound in self.bounds]
        low, high = float(ends[0].min()), float(ends[1].max())
        if whole:
            return low, high
        free = self.bounds[0] <= type_low + params.symmetric and (params.symmetric or (kept and low != 0))
        open_ = self.bounds[1] >= type_high and (params.symmetric or kept)
        return None if free and open_ else (None if free else low, None if open_ else high)


@dataclass(frozen=True)
class Quantize:
    """The node's input becomes `codes`: its scale is `scale`. `integer`: that input holds integers, so that a Cast must
    make the float tensor that the scale is for."""

    node: Node
    codes: Codes
    scale: float
    integer: bool


@dataclass(frozen=True)
class ClampCodes:
    """A Clip on quantized values; `clamp` holds its real bounds, None if it clips nothing (rules Q1, Q9)."""

    node: Node
    scale: float
    clamp: Optional[Bounds]
    real: np.dtype


@dataclass(frozen=True)
class Move:
    """Data movement on quantized values, to be done on float values (rule Q10): `moved` are its outputs that hold
    `codes`. `pad_value`: real value of a Pad's constant."""

    node: Node
    codes: Codes
    scale: float
    moved: tuple[str, ...]
    pad_value: Optional[float] = None


@dataclass(frozen=True)
class Dequantize:
    """Dequantize to real values. `cast`: the real type, if it differs from the quantizer's."""

    node: Node
    scale: float
    cast: Optional[np.dtype] = None


@dataclass(frozen=True)
class End:
    """A quantized graph input (rule Q6) or output (rule Q7)."""

    name: str
    is_input: bool
    scale: float
    params: QuantParams

    @property
    def real(self) -> np.dtype:
        """The float type on its other side."""
        return self.params.real


Step = Union[Quantize, ClampCodes, Move, Dequantize, End]


# ---------------- pairs in series (rule Q8)


@dataclass
class Link:
    """One quantizer and its quantized values. scale: its own; holds: that of its series. before: the quantizer whose
    real values it reads; behind: those that read its own. read: something other than a quantizer reads its output."""

    source: str
    scale: float
    holds: float
    before: Optional[Link] = None
    behind: list[Link] = field(default_factory=list)
    read: bool = False


def in_series(graph: Graph, steps: list[Step]) -> tuple[list[Step], list[Link]]:
    """The steps with the scales that hold, and the links whose scale differs from that of the quantizer before.

    Pairs in series, `x -> Q -> DQ -> Q -> DQ`, are one quantizer. Values that pass several saturate at the smallest
    range, so its scale holds: the finer grid loses less, and clips only values that would be clipped anyway. A pair
    whose real values only feed further quantizers gets the scale of the series; one with other readers keeps its own
    (rule C1 then chooses, as for parallel pairs). Relu and data movement between DQ and Q end a series: both sides are
    tensors with a scale each.
    """
    series = _Series(graph)
    of_step: list[Link] = []
    for step in steps:
        of_step.append(series.link(step))
    for link in reversed(series.links):
        if link.behind and not link.read:
            link.holds = max(later.holds for later in link.behind)
    changed = [dataclasses.replace(step, scale=link.holds) for step, link in zip(steps, of_step)]
    return changed, [link for link in series.links if link.before is not None and link.scale != link.before.scale]


class _Series:
    """links: all, in graph order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.links: list[Link] = []
        self.codes: dict[str, Link] = {}
        self.reals: dict[str, Link] = {}

    def link(self, step: Step) -> Link:
        """That of the next step, in graph order."""
        if isinstance(step, End):
            if step.is_input:
                self.codes[step.name] = self._begin(step.name, step.scale)
            link = self.codes[step.name]
            link.read |= not step.is_input
        elif isinstance(step, Quantize):
            source, made = step.node.inputs[0], step.node.outputs[0]
            link = self.codes[made] = self._begin(source, step.scale, self.reals.get(source))
        elif isinstance(step, Dequantize):
            made = step.node.outputs[0]
            link = self.reals[made] = self.codes[step.node.inputs[0]]
            link.read |= made in self.graph.outputs or not all(map(is_quantize, self.graph.consumers(made)))
        else:
            link = self._on_codes(step)
        return link

    def _on_codes(self, step: Union[ClampCodes, Move]) -> Link:
        read = [self.codes[name] for name in step.node.reads() if name in self.codes]
        link = read[0]
        if any(other is not link for other in read):  # a Concat of several ends their series
            link = self._begin(step.node.outputs[0], step.scale)
            for other in read:
                other.read = True
        elif isinstance(step, Move):  # a separate tensor, which may saturate earlier than the one that is moved
            link = self._begin(step.node.outputs[0], link.scale, link)
        made = step.moved if isinstance(step, Move) else step.node.outputs
        self.codes.update(dict.fromkeys(made, link))
        return link

    def _begin(self, source: str, scale: float, before: Optional[Link] = None) -> Link:
        link = Link(source, scale, scale if before is None else min(scale, before.holds), before)
        if before is not None:
            before.behind.append(link)
        self.links.append(link)
        return link


# ---------------- operators between Q and DQ (rules Q1, Q9, Q10)


Between = Tuple[Union[ClampCodes, Move], "dict[str, Codes]"]
"""The step that the node becomes, and the quantized values of each output that holds some."""


def between(node: Node, read: dict[str, Codes], constants: Constants) -> Between:
    """`read`: the tensors with quantized values that the node reads, captured ones included; at least one. Raises
    Rejected."""
    operator = _OPERATORS.get(node.op_type) if node.is_standard else None
    fits = operator is _concat or list(read) == node.inputs[:1]
    found = operator(node, read, constants) if operator is not None and fits else None
    if found is not None:
        return found
    tensor, codes = next(iter(read.items()))
    raise Rejected(
        f"{node.op_type} {node.label} works on the integer tensor '{tensor}' of quantizer {codes.made_by}.",
        "Only Clip and data movement are allowed between Q and DQ; export in QDQ format, not as integer operators.",
    )


def same_grid(a: QuantParams, b: QuantParams) -> bool:
    """Whether the grids are equal; scales converted through float16 on one side count as equal."""
    if a is b or a.same_grid(b):
        return True
    if a.axis != b.axis or not np.array_equal(a.zero_point, b.zero_point):
        return False
    halves = [p.scale.astype(np.float16).astype(np.float32) for p in (a, b)]
    went_through_half = any(np.array_equal(h, p.scale) for h, p in zip(halves, (a, b)))
    return went_through_half and np.array_equal(halves[0], halves[1])


_Operator = Callable[[Node, "dict[str, Codes]", Constants], Optional[Between]]
"""None if the node does not have the same effect on quantized values as on float values."""


def _clip(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    low, high = operators.clip_bounds(node, constants.value)
    if low is None or high is None:
        return None
    codes = read[node.inputs[0]]
    lowest, highest = max(codes.bounds[0], low), min(codes.bounds[1], high)
    if not all(abs(bound) < 2**31 for bound in (lowest, highest)):  # nor NaN
        return None
    clipped = dataclasses.replace(codes, bounds=(int(lowest), int(highest)))
    clamp = clipped.clamp()
    step = ClampCodes(node, codes.scale, None if clamp == codes.clamp() else clamp, codes.params.real)
    return step, {node.outputs[0]: clipped}


def _move(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    if node.op_type == "Resize" and not operators.takes_nearest(node):
        return None
    return _moved(node, read[node.inputs[0]])


def _concat(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    parts = list(read.values())
    first = parts[0]
    if len(read) != len(set(node.inputs)) or not all(same_grid(first.params, c.params) for c in parts):
        return None
    bounds = (min(c.bounds[0] for c in parts), max(c.bounds[1] for c in parts))
    return _moved(node, dataclasses.replace(first, bounds=bounds))


def _pad(node: Node, read: dict[str, Codes], constants: Constants) -> Optional[Between]:
    tensor, codes = node.inputs[0], read[node.inputs[0]]
    if operators.mode(node) != "constant":
        return _moved(node, codes)
    value = operators.pad_value(node, constants.value)
    code = None if value is None or not math.isfinite(value) else int(value)
    values = set() if code is None else set(((code - codes.params.zero_point) * codes.params.scale).flat)
    if code is None or len(values) > 1:
        why = "with a value that is not constant" if code is None else "to a different value in each channel"
        raise Rejected(
            f"Pad {node.label} pads the integer tensor '{tensor}' {why}.",
            "Pad before the QuantizeLinear, with a constant.",
        )
    bounds = (min(codes.bounds[0], code), max(codes.bounds[1], code))
    return _moved(node, dataclasses.replace(codes, bounds=bounds), float(values.pop()))


def _moved(node: Node, codes: Codes, pad_value: Optional[float] = None) -> Between:
    moved = tuple(operators.data_outputs(node))
    return Move(node, codes, codes.scale, moved, pad_value), dict.fromkeys(moved, codes)


_OPERATORS: dict[str, _Operator] = {
    **dict.fromkeys((*operators.REARRANGES, *operators.PARTS, "MaxPool", "Expand", "Tile", "Resize"), _move),
    "Clip": _clip,
    "Concat": _concat,
    "Pad": _pad,
}
"""A Clip limits quantized values (rules Q1, Q9); the others move them as they move float values (rule Q10)."""
BETWEEN_OPS = tuple(_OPERATORS)
"""Operators that may be between Q and DQ."""
