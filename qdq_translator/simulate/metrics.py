"""Differences of two tensors, summed over samples in float64."""

from __future__ import annotations

import hashlib
import math
from typing import Optional

import numpy as np
import numpy.typing as npt

from qdq_translator.core.formats.rows import made_of
from qdq_translator.core.formats.verify_rows import Compared, ComparedOutput, Slice

TOP1_MOST = 100_000
"""An output with more values per sample is not taken for class scores."""
LEAST_SLICE = 64
"""Values of a slice over all samples; with fewer its cosine is not significant."""
_CHUNK = 2**15
"""Values compared at a time: as many as fit into a processor's cache."""


def class_scores(values: np.ndarray) -> Optional[np.ndarray]:
    """(samples, classes) if an output looks like class scores: float, one score vector per sample, else None."""
    if values.dtype.kind != "f" or values.ndim < 2:
        return None
    if values.ndim > 2 and any(size != 1 for size in values.shape[2:]):
        return None
    classes = values.shape[1]
    return values.reshape(values.shape[0], classes) if 2 <= classes <= TOP1_MOST else None


class Comparison:
    """Comparison of `other` with `reference`, over everything that was added. `peak`: largest magnitude in `other`.
    comparable: False if the caller found something that cannot be added."""

    def __init__(self) -> None:
        self.count = 0
        self.non_finite = 0
        self.comparable = True
        self.max_abs = 0.0
        self.peak = 0.0
        self._aa = self._bb = self._dd = 0.0
        self._top1_same = 0
        self.top1_samples = 0

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        """Both of one shape, any float type. Values that are finite in only one of them are counted and left out."""
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

    def merge(self, other: Comparison) -> None:
        """Append all comparisons of `other` to this one."""
        self.comparable &= other.comparable
        self.count += other.count
        self.non_finite += other.non_finite
        self.max_abs, self.peak = max(self.max_abs, other.max_abs), max(self.peak, other.peak)
        self._aa, self._bb, self._dd = self._aa + other._aa, self._bb + other._bb, self._dd + other._dd
        self._top1_same += other._top1_same
        self.top1_samples += other.top1_samples

    @property
    def identical(self) -> bool:
        """Equal in every number (0 and -0 count as equal)."""
        return self._dd == 0 and self.non_finite == 0

    @property
    def cosine(self) -> float:
        return float(_cosine(self._aa, self._bb, self._dd))

    @property
    def noise(self) -> float:
        """Energy of the difference relative to the reference's; infinite if that is zero and they differ."""
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
        """Percent of samples with the same largest score; None if the output is not class scores."""
        return 100 * self._top1_same / self.top1_samples if self.top1_samples else None

    def row(self) -> Compared:
        return made_of(Compared, self)


class SlicedComparison(Comparison):
    """Comparison of a network's output, and for each axis except samples the slice with the lowest cosine.

    An output that mixes quantities (boxes in pixels and scores in [0, 1]) hides the small ones: they have no weight in
    the whole. An axis counts if it has two slices or more, of at least `LEAST_SLICE` values over all samples. Values
    that are not finite are left out here; the whole counts them. Like any cosine, that of a slice with one constant
    value does not detect a wrong level; its SQNR does.
    """

    def __init__(self, batch: int) -> None:
        """`batch`: a first axis of this size is the samples."""
        super().__init__()
        self.batch = batch
        self.references: set[bytes] = set()
        """Digests of the reference's values, one for each run that differs from the others."""
        self._energies: dict[int, np.ndarray] = {}
        self._values: dict[int, int] = {}

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        super().add(reference, other)
        self.references.add(hashlib.sha256(np.ascontiguousarray(reference).data).digest())
        if reference.dtype.kind != "f":
            return
        a, b = reference.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        energies = [x * x for x in (a, b, b - a)]
        for axis, size in enumerate(reference.shape):
            if size < 2 or (axis == 0 and size == self.batch):
                continue
            others = tuple(other for other in range(reference.ndim) if other != axis)
            self._weigh(axis, np.stack([energy.sum(axis=others) for energy in energies]), reference.size // size)

    def _weigh(self, axis: int, energies: np.ndarray, values: int) -> None:
        if axis not in self._energies or self._energies[axis].shape == energies.shape:
            self._energies[axis] = self._energies.get(axis, 0) + energies
            self._values[axis] = self._values.get(axis, 0) + values

    def merge(self, other: Comparison) -> None:
        super().merge(other)
        if isinstance(other, SlicedComparison):
            self.references |= other.references
            for axis, energies in other._energies.items():
                self._weigh(axis, energies, other._values[axis])

    @property
    def slices(self) -> list[Slice]:
        """The slice with the lowest cosine for each axis that counts."""
        worst = []
        for axis, (aa, bb, dd) in self._energies.items():
            heard = np.flatnonzero(aa)
            if self._values[axis] < LEAST_SLICE or not len(heard):
                continue
            cosine = _cosine(aa, bb, dd)
            index = int(heard[np.argmin(cosine[heard])])
            noise = noise_to_db(float(dd[index] / aa[index]))
            worst.append(Slice(axis, index, len(aa), len(aa) - len(heard), float(cosine[index]), noise))
        return worst

    def noise_of(self, axis: int, index: int) -> Optional[float]:
        """Energy of the difference relative to the reference's, of one slice. None if the slice is all zero or has too
        few values (`LEAST_SLICE`)."""
        if self._values.get(axis, 0) < LEAST_SLICE or index >= self._energies[axis].shape[1]:
            return None
        aa, _, dd = self._energies[axis][:, index]
        return float(dd / aa) if aa else None

    def row(self) -> ComparedOutput:
        return made_of(ComparedOutput, self)


def _energy(values: np.ndarray) -> float:
    """Sum of squares, in one thread: a BLAS that synchronizes its threads for every chunk is slower."""
    return float(np.einsum("i,i->", values, values))


def _cosine(aa: npt.ArrayLike, bb: npt.ArrayLike, dd: npt.ArrayLike) -> np.ndarray:
    """Of vectors with energies aa and bb, whose difference has the energy dd: from -1 to 1, 0 if one is zero."""
    a, b, d = (np.asarray(energy, np.float64) for energy in (aa, bb, dd))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where((a == 0) | (b == 0), 0.0, (a + b - d) / 2 / np.sqrt(a) / np.sqrt(b))
    return np.where(d == 0, 1.0, np.clip(cosine, -1.0, 1.0))


def noise_to_db(noise: float) -> float:
    """-10 log10(noise); infinite for no noise."""
    if noise == 0:
        return math.inf
    return -math.inf if math.isinf(noise) else -10 * math.log10(noise)


def finite_or_none(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal in shape, type and every bit: NaN equals NaN, and 0 is not -0."""
    same = one.shape == other.shape and one.dtype == other.dtype
    return one is other or (same and one.tobytes() == other.tobytes())
