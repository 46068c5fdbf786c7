"""How far two tensors are apart, added up over samples in float64."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

TOP1_MOST = 100_000
"""More scores than this are no classes."""
_CHUNK = 2**15
"""Values compared at a time: what a processor's cache holds."""


def class_scores(values: np.ndarray) -> Optional[np.ndarray]:
    """(samples, classes) where an output looks like class scores: float, one score vector per sample, else None."""
    if values.dtype.kind != "f" or values.ndim < 2:
        return None
    if values.ndim > 2 and any(size != 1 for size in values.shape[2:]):
        return None
    classes = values.shape[1]
    return values.reshape(values.shape[0], classes) if 2 <= classes <= TOP1_MOST else None


class Comparison:
    """Of `other` with `reference`, over everything that was added. `peak`: largest magnitude in `other`."""

    def __init__(self) -> None:
        self.count = 0
        self.non_finite = 0
        self.max_abs = 0.0
        self.peak = 0.0
        self._aa = self._bb = self._dd = 0.0
        self._top1_same = 0
        self.top1_samples = 0

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        """Both of one shape, any float type. Values that are not finite in one of them only are counted and left out."""
        scores, others = class_scores(reference), class_scores(other)
        if scores is not None and others is not None:
            self.top1_samples += len(scores)
            self._top1_same += int(np.count_nonzero(scores.argmax(axis=1) == others.argmax(axis=1)))
        flat, flat_other = reference.reshape(-1), other.reshape(-1)
        self.count += flat.size
        for start in range(0, flat.size, _CHUNK):
            self._add(flat[start : start + _CHUNK], flat_other[start : start + _CHUNK])

    def _add(self, reference: np.ndarray, other: np.ndarray) -> None:
        a, b = reference.astype(np.float64), other.astype(np.float64)
        aa, bb = _energy(a), _energy(b)
        if not math.isfinite(aa + bb):
            finite = np.isfinite(a) & np.isfinite(b)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            self.non_finite += int(np.count_nonzero(~finite & ~same))
            a, b = a[finite], b[finite]
            aa, bb = _energy(a), _energy(b)
        self._aa += aa
        self._bb += bb
        self.peak = max(self.peak, float(b.max(initial=0)), -float(b.min(initial=0)))
        b -= a
        self._dd += _energy(b)
        self.max_abs = max(self.max_abs, float(b.max(initial=0)), -float(b.min(initial=0)))

    @property
    def identical(self) -> bool:
        """Equal in every number (0 and -0 count as equal)."""
        return self._dd == 0 and self.non_finite == 0

    @property
    def cosine(self) -> float:
        if self._dd == 0:
            return 1.0
        if self._aa == 0 or self._bb == 0:
            return 0.0
        product = (self._aa + self._bb - self._dd) / 2
        return min(1.0, max(-1.0, product / math.sqrt(self._aa) / math.sqrt(self._bb)))

    @property
    def noise(self) -> float:
        """Energy of the difference relative to the reference's; infinite where that is zero and they differ."""
        if self.non_finite:
            return math.inf
        if self._dd == 0:
            return 0.0
        return self._dd / self._aa if self._aa else math.inf

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio; infinite for equal tensors."""
        return noise_to_db(self.noise)

    @property
    def mse(self) -> float:
        return self._dd / self.count if self.count else 0.0

    @property
    def top1_agreement(self) -> Optional[float]:
        """Percent of samples with the same largest score; None where the output holds no class scores."""
        return 100 * self._top1_same / self.top1_samples if self.top1_samples else None

    def as_dict(self) -> dict[str, Any]:
        """JSON types; `sqnr_db` is None where it is infinite (see `identical`)."""
        return {
            "identical": self.identical,
            "cosine": self.cosine,
            "sqnr_db": finite_or_none(self.sqnr_db),
            "mse": self.mse,
            "max_abs": self.max_abs,
            "top1_agreement": self.top1_agreement,
            "top1_samples": self.top1_samples,
            "non_finite": self.non_finite,
            "values": self.count,
        }


def _energy(values: np.ndarray) -> float:
    """Sum of squares, in one thread: a BLAS that waits for its threads on every chunk is slower."""
    return float(np.einsum("i,i->", values, values))


def noise_to_db(noise: float) -> float:
    """-10 log10: infinite for no noise."""
    if noise == 0:
        return math.inf
    return -math.inf if math.isinf(noise) else -10 * math.log10(noise)


def finite_or_none(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None
