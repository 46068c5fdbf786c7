"""Steps for the nodes from Q to DQ: one value object per step (rules Q1, Q6 to Q10)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Optional, Tuple, Union

import numpy as np

from qdq_translator.ir.constants import is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.qparams import QuantParams

Bounds = Tuple[Optional[float], Optional[float]]
"""Lower and upper real bound; None where there is none."""


ASYMMETRIC = "asymmetric in the model"


@dataclass(frozen=True)
class Codes:
    """An integer tensor on its way from Q to DQ."""

    params: QuantParams
    scale: float
    """The symmetric scale that represents `params`."""
    bounds: tuple[int, int]
    """Codes that can occur."""
    made_by: str

    @property
    def note(self) -> str:
        """Of the origin of a scale that the exporter did not choose so."""
        return "" if self.params.symmetric or self.params.dtype == "int32" else ASYMMETRIC

    @property
    def grid(self) -> Optional[Tuple[float, int]]:
        """Scale and uint8 zero point of such a quantizer, if it is per tensor."""
        params = self.params
        if not self.note or params.per_channel or params.dtype not in ("int8", "uint8"):
            return None
        return float(params.scale), int(params.zero_point) + (128 if params.dtype == "int8" else 0)

    def clamp(self) -> Optional[Bounds]:
        """Real bounds tighter than int8 saturation at `scale` by more than one step (rule Q9).

        A lower bound of an asymmetric type counts only if it is 0: otherwise it is plain saturation of the calibrated
        range. With per-channel scales the widest bounds count, as the largest scale does.
        """
        params = self.params
        type_low, type_high = params.code_range
        if params.dtype == "int8" and params.centred and self.bounds == params.code_range:
            return None  # that saturation
        step = params.scale.astype(np.float64)
        low: Optional[float] = float(np.min((self.bounds[0] - params.zero_point) * step))
        high: Optional[float] = float(np.max((self.bounds[1] - params.zero_point) * step))
        assert low is not None and high is not None
        if low <= -127 * self.scale or (self.bounds[0] <= type_low and low < 0):
            low = None
        if high >= 127 * self.scale * (1 - 1e-6) or (self.bounds[1] >= type_high and high >= 0):
            high = None
        return None if low is None and high is None else (low, high)


@dataclass(frozen=True)
class Quantize:
    """`source` becomes codes: its scale is `scale`. `clamp`: real bounds that the type itself cuts at (Q9). `integer`:
    the source holds integers, so that a Cast must make the float tensor that the scale is for."""

    node: Node
    source: str
    params: QuantParams
    scale: float
    clamp: Optional[Bounds] = None
    integer: bool = False
    note: str = ""
    grid: Optional[Tuple[float, int]] = None


@dataclass(frozen=True)
class ClampCodes:
    """A Clip on quantized values; `clamp` holds its real bounds, None if it clips nothing (rules Q1, Q9)."""

    node: Node
    scale: float
    clamp: Optional[Bounds]
    real: np.dtype


@dataclass(frozen=True)
class Move:
    """Data movement on codes, to be done on float values (rule Q10): `moved` are its outputs that hold codes.
    `pad_value`: real value of a Pad's constant. `note`: of the origin of their scales."""

    node: Node
    scale: float
    moved: tuple[str, ...]
    real: np.dtype
    pad_value: Optional[float] = None
    note: str = ""
    grid: Optional[Tuple[float, int]] = None


@dataclass(frozen=True)
class Dequantize:
    """Dequantize to real values. `cast`: the real type, if it differs from the quantizer's."""

    node: Node
    source: str
    scale: float
    cast: Optional[np.dtype] = None


@dataclass(frozen=True)
class QuantizedInput:
    """A quantized graph input (rule Q6); `real`: the float type after dequantization."""

    name: str
    scale: float
    real: np.dtype


@dataclass(frozen=True)
class QuantizedOutput:
    """A quantized graph output (rule Q7); `real`: the float type before quantization."""

    name: str
    real: np.dtype


Step = Union[Quantize, ClampCodes, Move, Dequantize, QuantizedInput, QuantizedOutput]


# ---------------------------------------------------------------- pairs in series (rule Q8)


@dataclasses.dataclass
class Link:
    """One quantizer and its quantized values. scale: its own; holds: that of its series. before: the quantizer whose
    real values it reads. read: something other than a quantizer reads its output."""

    source: str
    scale: float
    holds: float
    before: Optional[Link] = None
    read: bool = False


def in_series(graph: Graph, steps: list[Step]) -> tuple[list[Step], list[Link]]:
    """The steps with the scales that hold, and the links whose scale is another than that of the quantizer before.

    Pairs in series, `x -> Q -> DQ -> Q -> DQ`, are one quantizer. What went through several saturates at the smallest range, so
    that scale holds: the finer grid loses less, and nothing that it cuts would have come through. A pair whose real values only
    feed further quantizers has no say of its own; one that something else reads too keeps its own (rule C1 then chooses, as for
    parallel pairs). Relu and data movement between DQ and Q end a series: both sides are tensors with a scale each.
    """
    real = {step.node.outputs[0] for step in steps if isinstance(step, Dequantize)}
    if real.isdisjoint([step.source for step in steps if isinstance(step, Quantize)]):
        return steps, []
    links: list[Link] = []
    codes: dict[str, Link] = {}
    reals: dict[str, Link] = {}
    of_step: list[Optional[Link]] = []

    def begin(source: str, scale: float, before: Optional[Link] = None) -> Link:
        links.append(Link(source, scale, scale if before is None else min(scale, before.holds), before))
        return links[-1]

    for step in steps:
        if isinstance(step, QuantizedInput):
            link = codes[step.name] = begin(step.name, step.scale)
        elif isinstance(step, QuantizedOutput):
            link = codes[step.name]
            link.read = True
        elif isinstance(step, Quantize):
            link = codes[step.node.outputs[0]] = begin(step.source, step.scale, reals.get(step.source))
        elif isinstance(step, Dequantize):
            link = codes[step.source]
            made = step.node.outputs[0]
            reals[made] = link
            link.read |= made in graph.outputs or not all(is_quantize(reader) for reader in graph.consumers(made))
        else:  # on codes; a Concat of several ends their series
            joined = list({id(codes[name]): codes[name] for name in step.node.reads() if name in codes}.values())
            if len(joined) != 1:
                link = begin(step.node.outputs[0], step.scale)
            elif isinstance(step, Move):  # a tensor of its own, which may saturate earlier than the one that is moved
                link = begin(step.node.outputs[0], joined[0].scale, joined[0])
            else:
                link = joined[0]
            for other in joined if len(joined) > 1 else ():
                other.read = True
            codes.update((name, link) for name in (step.moved if isinstance(step, Move) else step.node.outputs))
        of_step.append(link)
    after: dict[int, list[float]] = {}
    for link in reversed(links):
        if not link.read and id(link) in after:
            link.holds = max(after[id(link)])
        if link.before is not None:
            after.setdefault(id(link.before), []).append(link.holds)
    changed = [
        step
        if isinstance(step, QuantizedOutput) or link is None or step.scale == link.holds
        else dataclasses.replace(step, scale=link.holds)
        for step, link in zip(steps, of_step)
    ]
    return changed, [link for link in links if link.before is not None and link.scale != link.before.scale]
