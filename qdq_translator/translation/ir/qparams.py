"""Quantization arithmetic, with the rounding spelled out. Pure functions on NumPy arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Iterator, Optional, Sequence, Union

import numpy as np

INT8_MAX = 127
FLOAT16_MAX = float(np.finfo(np.float16).max)
FLOAT32: np.dtype = np.dtype(np.float32)
_AT_ONCE = 2**16
"""Elements computed at a time, so that intermediate results stay in the processor's cache."""
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}
"""Quantized values of each storage type. Other types (int16, int4, float8) have no implicit INT8 counterpart."""


@dataclass(frozen=True, eq=False)
class QuantParams:
    """Parameters of a QuantizeLinear or DequantizeLinear: `real = (quantized - zero_point) * scale`.

    scale: float32, shape () or (C,) along `axis`; zero_point: int64, same shape; dtype: 'int8', 'uint8' or 'int32';
    real: the type of the real values, which the scale is stored in.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    dtype: str
    axis: Optional[int] = None
    real: np.dtype = FLOAT32

    @cached_property
    def centred(self) -> bool:
        """Every zero point is 0."""
        return not np.count_nonzero(self.zero_point)

    @property
    def symmetric(self) -> bool:
        """The grid of int8 with zero point 0, which uint8 with zero point 128 is too."""
        return self.centred if self.dtype == "int8" else self.dtype == "uint8" and bool(np.all(self.zero_point == 128))

    @property
    def per_channel(self) -> bool:
        return self.scale.ndim == 1

    @property
    def code_range(self) -> tuple[int, int]:
        return RANGES[self.dtype]

    def same_grid(self, other: QuantParams) -> bool:
        """Equal scales and zero points, bit for bit."""
        return (
            self.axis == other.axis
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def real_value(self, code: int) -> np.ndarray:
        """The real value that DequantizeLinear makes of a quantized one: type `real`, shape of the scale."""
        return np.asarray(((code - self.zero_point).astype(np.float32) * self.scale).astype(self.real))

    def real_range(self) -> tuple[float, float]:
        """Smallest and largest real value that can be represented."""
        low, high = self.code_range
        scale, zero = self.scale.astype(np.float64), self.zero_point
        return float(np.min((low - zero) * scale)), float(np.max((high - zero) * scale))

    def symmetric_scale(self) -> np.float32:
        """Smallest scale with which int8 values [-128, 127] cover every channel's range; exact for zero point 0."""
        if self.dtype == "int8" and self.centred:
            return np.float32(self.scale.max() if self.scale.ndim else self.scale)
        low, high = self.real_range()
        largest = float(np.finfo(np.float32).max)  # real values are finite
        return np.float32(max(min(high, largest) / INT8_MAX, -max(low, -largest) / 128))


def along(values: np.ndarray, axis: Optional[int], rank: int) -> np.ndarray:
    """Reshapes (C,) so that it broadcasts over `axis` of a tensor of `rank`; scalars stay."""
    if axis is None or values.ndim == 0:
        return values
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def row_blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Row slices of an array (its first axis) that each fit in the processor's cache: intermediate results of a whole
    weight would be in memory between steps, which costs more than the steps."""
    size = math.prod(shape)
    if size <= _AT_ONCE:
        yield slice(None)
        return
    rows = shape[0]
    step = max(1, rows * _AT_ONCE // size)
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))


def in_blocks(
    compute: Callable[..., np.ndarray], dtype: Union[str, np.dtype], values: np.ndarray, *parameters: np.ndarray
) -> np.ndarray:
    """`compute(values, *parameters)`, element by element and of type `dtype`, a block of rows at a time. `parameters`
    broadcast over `values`, with as many axes or none."""
    if values.size <= _AT_ONCE:
        return compute(values, *parameters)
    made, rows = np.empty(values.shape, dtype), len(values)
    for part in row_blocks(values.shape):
        made[part] = compute(values[part], *(p[part] if p.ndim and len(p) == rows else p for p in parameters))
    return made


def largest(values: np.ndarray, axis: Optional[int]) -> np.ndarray:
    """The largest magnitude per index of `axis`, or of all values for None; NaN if one is present. 0 without values."""
    others = None if axis is None else tuple(a for a in range(values.ndim) if a != axis)
    return np.asarray(np.maximum(values.max(axis=others, initial=0), -values.min(axis=others, initial=0)))


def quantize(real: np.ndarray, params: QuantParams) -> np.ndarray:
    """Real -> quantized values as ONNX QuantizeLinear: divide in float32, round half to even, add zero point, saturate.

    Result: the params' dtype, the shape of `real`.
    """
    low, high = params.code_range

    def codes(part: np.ndarray, scale: np.ndarray, zero_point: Optional[np.ndarray] = None) -> np.ndarray:
        scaled = np.asarray(np.divide(part, scale, dtype=np.float32))
        np.rint(scaled, out=scaled)
        if zero_point is not None:
            scaled += zero_point
        np.clip(scaled, low, high, out=scaled)
        return scaled.astype(params.dtype)

    steps = [along(params.scale, params.axis, real.ndim)]
    if not params.centred:
        steps.append(along(params.zero_point, params.axis, real.ndim).astype(np.float32))
    return in_blocks(codes, params.dtype, real, *steps)


def dequantize(codes: np.ndarray, params: QuantParams, dtype: np.dtype) -> np.ndarray:
    """Quantized -> real as ONNX DequantizeLinear: subtract in integers, multiply in float32, round to `dtype`."""

    def real(part: np.ndarray, scale: np.ndarray, zero_point: Optional[np.ndarray] = None) -> np.ndarray:
        whole = part if zero_point is None else part.astype(np.int64) - zero_point
        values = whole.astype(np.float32)
        values *= scale
        return values.astype(dtype, copy=False)

    steps = [along(params.scale, params.axis, codes.ndim)]
    if not params.centred:
        steps.append(along(params.zero_point, params.axis, codes.ndim))
    return in_blocks(real, dtype, codes, *steps)


def tensorrt_weight_codes(weight: np.ndarray, channel_axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Quantized values and scales that TensorRT's implicit mode computes from float weights: per output channel
    `scale = max|w| / 127`, round, range [-127, 127] (fact 5.1, 5.2). All-zero channels get scale 0 and values 0.

    `channel_axes`: the axes that tell output channels apart. Returns quantized values (int8, shape of weight) and
    scales (float32, shape of weight with 1 on every other axis).
    """
    others = tuple(a for a in range(weight.ndim) if a not in channel_axes)
    weight = weight.astype(np.float32, copy=False)
    amax = np.maximum(
        weight.max(axis=others, keepdims=True, initial=0), -weight.min(axis=others, keepdims=True, initial=0)
    )
    scale = amax / np.float32(INT8_MAX)

    def codes(part: np.ndarray, step: np.ndarray) -> np.ndarray:
        scaled = part / step
        np.rint(scaled, out=scaled)
        return scaled.astype(np.int8)

    return in_blocks(codes, np.dtype(np.int8), weight, np.where(scale > 0, scale, np.float32(1))), scale
