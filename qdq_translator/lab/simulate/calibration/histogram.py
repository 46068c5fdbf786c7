"""The magnitudes of a tensor's values, counted as they come: one pass, constant memory."""

from __future__ import annotations

import hashlib
import math
from typing import Optional

import numpy as np

BINS = 4096
_CHUNK = 2**15
"""Values counted at a time: as many as fit a processor's cache."""
MOST_COUNTED = 2**16
"""Values of a tensor, of each sample, that are counted. A full-size network makes up to twelve times as many, and
counting all of them is as slow as running the network."""
_LEAST_EXPONENT = -100
"""Magnitudes below 2**-112 share the first bin, so that the factor of the bins stays a float32."""


class Histogram:
    """Counts of |value| in BINS equal bins from 0 to `end`, the next power of two above the largest magnitude.

    When a larger magnitude arrives, bins merge in pairs and the range doubles. Counts therefore do not depend on the
    order or parts in which the values arrive, and every value has the same weight, regardless of its batch size. Of a
    sample (axis 0) of more than MOST_COUNTED values, every n-th is counted n times; n is coprime to all sizes, so that
    rows and columns are sampled evenly.

    lowest, highest: of all finite values (0 if there are none). non_finite: number of NaN or infinite values; they are
    counted nowhere else. negative: the counts of negative values alone. channels: the largest magnitude of each channel
    (axis 1), if the tensor has channels. These are exact for any size.
    """

    def __init__(self) -> None:
        self.channels: Optional[np.ndarray] = None
        self.counts, self.negative = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
        self.lowest = self.highest = 0.0
        self.non_finite = 0
        self._exponent = _LEAST_EXPONENT

    @property
    def total(self) -> int:
        """Finite values, to a multiple of n for large samples."""
        return int(self.counts.sum())

    @property
    def amax(self) -> float:
        """The largest magnitude, exactly."""
        return max(-self.lowest, self.highest)

    @property
    def digest(self) -> str:
        """Digest of all that ranges are computed from."""
        return hashlib.sha256(
            f"{self.lowest} {self.highest} {self._exponent}".encode() + self.counts.tobytes()
        ).hexdigest()

    @property
    def width(self) -> float:
        """Width of a bin, in the tensor's units."""
        return math.ldexp(1.0, self._exponent) / BINS

    def add(self, values: np.ndarray) -> None:
        """Any shape; float16, float32 or float64 (counted as float32)."""
        flat = values.reshape(-1).astype(np.float32, copy=False)
        if not flat.size:
            return
        rows = flat.reshape(*values.shape[:2], -1) if values.ndim > 1 else flat.reshape(1, 1, -1)
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            finite = flat[np.isfinite(flat)]
            self.non_finite += flat.size - finite.size
            self.add(finite)
            return
        if values.ndim > 1:
            highs = rows.max(axis=2).max(axis=0)
            self._widen(highs if low >= 0 else np.maximum(highs, -rows.min(axis=2).min(axis=0)))
        self.cover(low, high)
        size = rows[0].size if values.ndim > 1 else 1
        step = -(-size // MOST_COUNTED) | 1
        while math.gcd(step, size) > 1:
            step += 2
        flat = rows.reshape(-1, size)[:, ::step].reshape(-1)
        factor = np.float32(1 / self.width)
        buffer = np.empty(min(flat.size, _CHUNK), np.float32)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            scaled = buffer[: part.size]
            np.abs(part, out=scaled)
            np.multiply(scaled, factor, out=scaled)
            bins = scaled.astype(np.int32)
            self.counts += step * np.bincount(bins, minlength=BINS)
            if low < 0:
                self.negative += step * np.bincount(bins[part < 0], minlength=BINS)

    def signed(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts of the non-empty bins, and the middle of each with its sign (0 for the first, at most the largest
        magnitude); float64."""
        sides = ((self.counts - self.negative, 1.0), (self.negative, -1.0))
        places = [np.flatnonzero(counts) for counts, _ in sides]
        middles = [np.minimum((p + 0.5) * self.width, self.amax) * (p > 0) for p in places]
        counted = np.concatenate([counts[p] for (counts, _), p in zip(sides, places)]).astype(np.float64)
        return counted, np.concatenate([sign * m for (_, sign), m in zip(sides, middles)])

    def merge(self, other: Histogram) -> None:
        """Adds all that `other` has counted; `other` is used up."""
        self.cover(other.lowest, other.highest)
        other.cover(self.lowest, self.highest)
        self.counts += other.counts
        self.negative += other.negative
        self.non_finite += other.non_finite
        if other.channels is not None:
            self._widen(other.channels)

    def _widen(self, channels: np.ndarray) -> None:
        if self.channels is None or self.channels.shape != channels.shape:
            self.channels = channels
        else:
            self.channels = np.maximum(self.channels, channels)

    def cover(self, low: float, high: float) -> None:
        """Widens the range to hold both."""
        self.lowest, self.highest = min(self.lowest, low), max(self.highest, high)
        exponent = max(math.frexp(self.amax)[1], self._exponent)
        if exponent > self._exponent:
            step = 2 ** min(exponent - self._exponent, 63)
            self.counts, self.negative = _merged(self.counts, step), _merged(self.negative, step)
            self._exponent = exponent


def _merged(counts: np.ndarray, step: int) -> np.ndarray:
    """The counts with `step` bins in one."""
    merged = np.zeros(BINS, np.int64)
    if step < BINS:
        merged[: BINS // step] = counts.reshape(-1, step).sum(1)
    else:
        merged[0] = counts.sum()
    return merged
