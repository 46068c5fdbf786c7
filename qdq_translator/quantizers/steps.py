"""What becomes of each node on the way from Q to DQ: one value object a step (rules Q1, Q6 to Q10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

import numpy as np

from qdq_translator.ir.graph import Node
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
        """Real bounds that int8 saturation at `scale` does not already cut at, within one step (rule Q9).

        A lower bound of an asymmetric type counts only where it is 0: elsewhere it is plain saturation of the
        calibrated range. With one scale per channel the widest bounds count, as the largest scale does.
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
    """A Clip on codes; `clamp` holds its bounds as real values, None where it cuts nothing (rules Q1, Q9)."""

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
    """Codes become real again. `cast`: the real type, where it is another than the quantizer's was."""

    node: Node
    source: str
    scale: float
    cast: Optional[np.dtype] = None


@dataclass(frozen=True)
class QuantizedInput:
    """A graph input that arrives as codes (rule Q6); `real`: the float type of what it is dequantized to."""

    name: str
    scale: float
    real: np.dtype


@dataclass(frozen=True)
class QuantizedOutput:
    """A graph output that leaves as codes (rule Q7); `real`: the float type of what it is quantized from."""

    name: str
    real: np.dtype


Step = Union[Quantize, ClampCodes, Move, Dequantize, QuantizedInput, QuantizedOutput]
