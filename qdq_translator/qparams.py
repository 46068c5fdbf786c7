"""Quantization arithmetic, with the rounding spelled out. Pure functions on NumPy arrays."""

from __future__ import annotations

import dataclasses
from typing import Optional

import numpy as np

INT8_MAX = 127
FLOAT32: np.dtype = np.dtype(np.float32)
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}
"""Codes that a storage type can hold. Other types (int16, int4, float8) have no implicit INT8 counterpart."""


@dataclasses.dataclass(frozen=True, eq=False)
class QuantParams:
    """What a QuantizeLinear or DequantizeLinear does: `real = (code - zero_point) * scale`.

    scale: float32, shape () or (C,) along `axis`; zero_point: int64, same shape; dtype: 'int8', 'uint8' or 'int32';
    real: the type of the real values, which the scale is stored in.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    dtype: str
    axis: Optional[int] = None
    real: np.dtype = FLOAT32

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

    def real_range(self) -> tuple[float, float]:
        """Smallest and largest real value that any code stands for."""
        low, high = self.code_range
        scale, zero = self.scale.astype(np.float64), self.zero_point
        return float(np.min((low - zero) * scale)), float(np.max((high - zero) * scale))

    def symmetric_scale(self) -> np.float32:
        """Smallest scale with which int8 codes [-128, 127] cover every channel's range; exact for zero point 0."""
        if self.dtype == "int8" and not self.zero_point.any():
            return np.float32(self.scale.max())
        low, high = self.real_range()
        largest = float(np.finfo(np.float32).max)  # no real value lies beyond
        return np.float32(max(min(high, largest) / INT8_MAX, -max(low, -largest) / 128))


def along(values: np.ndarray, axis: Optional[int], rank: int) -> np.ndarray:
    """Reshapes (C,) so that it broadcasts over `axis` of a tensor of `rank`; scalars stay."""
    if axis is None or values.ndim == 0:
        return values
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def quantize(
    real: np.ndarray, params: QuantParams, low: Optional[int] = None, high: Optional[int] = None
) -> np.ndarray:
    """Real -> codes as ONNX QuantizeLinear: divide in float32, round half to even, add zero point, saturate.

    `low`/`high` tighten the saturation. Result: the params' dtype, the shape of `real`.
    """
    code_low, code_high = params.code_range
    scaled = np.asarray(np.divide(real, along(params.scale, params.axis, real.ndim), dtype=np.float32))
    np.rint(scaled, out=scaled)
    if params.zero_point.any():
        scaled += along(params.zero_point, params.axis, real.ndim).astype(np.float32)
    np.clip(scaled, code_low if low is None else low, code_high if high is None else high, out=scaled)
    return scaled.astype(params.dtype)


def dequantize(codes: np.ndarray, params: QuantParams, dtype: np.dtype) -> np.ndarray:
    """Codes -> real as ONNX DequantizeLinear: subtract in integers, multiply in float32, then round to `dtype`."""
    if params.zero_point.any():
        codes = codes.astype(np.int64) - along(params.zero_point, params.axis, codes.ndim)
    real = codes.astype(np.float32)
    real *= along(params.scale, params.axis, codes.ndim)
    return real.astype(dtype, copy=False)


def tensorrt_weight_codes(weight: np.ndarray, channel_axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales that TensorRT's implicit mode computes from float weights: per output channel
    `scale = max|w| / 127`, round, range [-127, 127] (fact 5.1, 5.2). All-zero channels get scale 0 and codes 0.

    `channel_axes`: the axes that tell output channels apart. Returns codes (int8, shape of weight) and scales
    (float32, shape of weight with 1 on every other axis).
    """
    others = tuple(a for a in range(weight.ndim) if a not in channel_axes)
    weight = weight.astype(np.float32, copy=False)
    amax = np.maximum(
        weight.max(axis=others, keepdims=True, initial=0), -weight.min(axis=others, keepdims=True, initial=0)
    )
    scale = amax / np.float32(INT8_MAX)
    codes = weight / np.where(scale > 0, scale, np.float32(1))
    np.rint(codes, out=codes)
    return codes.astype(np.int8), scale
