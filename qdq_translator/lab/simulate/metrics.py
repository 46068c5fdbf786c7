"""Differences of two tensors, summed over samples in float64."""

from __future__ import annotations

import hashlib
import math
from typing import Optional

import numpy as np
import numpy.typing as npt

from qdq_translator.core.formats.rows import made_of
from qdq_translator.core.formats.verify_rows import Compared, ComparedOutput, Slice
from qdq_translator.lab.simulate.boxes import box_decisions

TOP1_MOST = 100_000
"""An output with more values per sample is not taken for class scores."""
LEAST_SLICE = 64
"""Values of a slice over all samples; with fewer its cosine is not significant."""
RARE = 0.05
"""Root mean square of probabilities below which an error counts relative to this value."""
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


CLEAR = 0.2
"""Distance between the two most probable classes, or twice that of a probability from 1/2, of a clear decision."""
_SUMS = (0.85, 1.1)
"""Sums of the probabilities of all classes, whose small ones may be rounded to 0."""


def probabilities(values: np.ndarray) -> Optional[tuple[np.ndarray, int]]:
    """Probabilities of classes, and their axis: of values that sum to 1 along an axis or whose exponentials do (a
    LogSoftmax), or of class scores (`class_scores`). None for other outputs."""
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size or not np.isfinite(values).all():
        return None
    wide = values.astype(np.float64)
    for shares in (wide, np.exp(wide)) if wide.max() <= 0 else (wide,):
        axis = _axis_of_classes(shares)
        if axis is not None:
            return shares, axis
    if class_scores(values) is None or 0 <= wide.min() <= wide.max() <= 1:
        return None
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), 1


def _axis_of_classes(shares: np.ndarray) -> Optional[int]:
    """The axis along which values sum to 1, the last one first; None if there is none."""
    if shares.min() < -0.01 or shares.max() > _SUMS[1]:
        return None
    for axis in (shares.ndim - 1, *range(1, shares.ndim - 1)):
        sums = shares.sum(axis=axis)
        if shares.shape[axis] > 1 and sums.min() >= _SUMS[0] and sums.max() <= _SUMS[1]:
            return axis
    return None


def decisions(reference: np.ndarray, other: np.ndarray) -> tuple[int, int]:
    """(number of clear decisions, number of those that `other` changes): the most probable class, a probability above
    or below 1/2 (of which only those above count as decisions), an integer or boolean, or a box of a detector. (0, 0)
    for other outputs."""
    if reference.dtype.kind in "iub":
        return reference.size, int(np.count_nonzero(reference != other))
    found = probabilities(reference)
    if found is not None:
        shares, axis = found
        top = np.partition(shares, -2, axis=axis).take((-2, -1), axis=axis)
        clear = (top.take(1, axis=axis) - top.take(0, axis=axis)) >= CLEAR
        return int(clear.sum()), int((clear & (reference.argmax(axis=axis) != other.argmax(axis=axis))).sum())
    if reference.dtype.kind != "f" or not reference.size or reference.min() < 0 or reference.max() > 1:
        return box_decisions(reference, other)
    clear, above = np.abs(reference - 0.5) >= CLEAR / 2, reference > 0.5
    changed = clear & (above != (other > 0.5))
    return int((changed | (clear & above)).sum()), int(changed.sum())


class Comparison:
    """Comparison of `other` with `reference`, over everything that was added. `peak`: largest magnitude in `other`.
    comparable: False if the caller found something that cannot be added. lengths: the first two of a list whose lengths
    differ, which the caller matched."""

    def __init__(self) -> None:
        self.count = 0
        self.non_finite = 0
        self.comparable = True
        self.lengths: Optional[tuple[int, int]] = None
        self.max_abs = 0.0
        self.peak = 0.0
        self._aa = self._bb = self._dd = 0.0
        self._top1_same = 0
        self.top1_samples = 0

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        """Count the values of a sample: both arrays of one shape, of any float type. Values that are finite in only
        one of them are counted and left out."""
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
        self.lengths = self.lengths or other.lengths
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
        self.decided = self.changed = 0
        """Clear decisions, and those that changed (`decisions`)."""
        self.of_classes = False
        """Whether the reference holds probabilities of classes."""
        self.low, self.high = math.inf, -math.inf
        """Of the reference."""
        self._energies: dict[int, np.ndarray] = {}
        self._ends: dict[int, np.ndarray] = {}
        """Axis -> (2, slices): the negative least and the largest value of each slice."""
        self._values: dict[int, int] = {}

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        super().add(reference, other)
        self.references.add(hashlib.sha256(np.ascontiguousarray(reference).data).digest())
        decided, changed = decisions(reference, other)
        self.of_classes = self.of_classes or probabilities(reference) is not None
        self.decided, self.changed = self.decided + decided, self.changed + changed
        if reference.dtype.kind != "f" or not reference.size:
            return
        a, b = reference.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        self.low, self.high = min(self.low, float(a.min())), max(self.high, float(a.max()))
        energies = [x * x for x in (a, b, b - a)]
        for axis, size in enumerate(reference.shape):
            if size < 2 or (axis == 0 and size == self.batch):
                continue
            others = tuple(other for other in range(reference.ndim) if other != axis)
            ends = np.stack([-a.min(axis=others), a.max(axis=others)])
            self._weigh(axis, np.stack([energy.sum(axis=others) for energy in energies]), ends, reference.size // size)

    def _weigh(self, axis: int, energies: np.ndarray, ends: np.ndarray, values: int) -> None:
        if axis not in self._energies or self._energies[axis].shape == energies.shape:
            self._energies[axis] = self._energies.get(axis, 0) + energies
            self._ends[axis] = np.maximum(self._ends.get(axis, -math.inf), ends)
            self._values[axis] = self._values.get(axis, 0) + values

    def merge(self, other: Comparison) -> None:
        super().merge(other)
        if isinstance(other, SlicedComparison):
            self.references |= other.references
            self.decided, self.changed = self.decided + other.decided, self.changed + other.changed
            self.of_classes = self.of_classes or other.of_classes
            self.low, self.high = min(self.low, other.low), max(self.high, other.high)
            for axis, energies in other._energies.items():
                self._weigh(axis, energies, other._ends[axis], other._values[axis])

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

    @property
    def weighed(self) -> float:
        """`noise`, of probabilities that belong to no classes relative to at least `RARE` a value: of a rare event, or
        none, next to nothing would else be everything."""
        if not (0 <= self.low <= self.high <= 1) or self.non_finite or self.of_classes:
            return self.noise
        return self._dd / max(self._aa, RARE**2 * self.count)

    def noises(self) -> dict[int, np.ndarray]:
        """Axis -> energy of the difference relative to the reference's, of each slice; NaN for slices without values
        and of too few (`LEAST_SLICE`). A slice of probabilities counts relative to at least their mean slice: a class
        that never occurs is no signal of its own."""
        found = {}
        for axis, (aa, _, dd) in self._energies.items():
            if self._values[axis] < LEAST_SLICE:
                continue
            low, high = self._ends[axis]
            shares = (low <= 0.01) & (high <= 1.01)
            floor = np.where(shares, aa[shares].mean() if shares.any() else 0.0, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                found[axis] = np.where(aa > 0, dd / np.maximum(aa, floor), np.nan)
        return found

    def row(self) -> ComparedOutput:
        return made_of(ComparedOutput, self)


def _energy(values: np.ndarray) -> float:
    """Sum of squares, in one thread: a BLAS that synchronizes its threads for every chunk is slower."""
    return float(np.einsum("i,i->", values, values))


def _cosine(aa: npt.ArrayLike, bb: npt.ArrayLike, dd: npt.ArrayLike) -> np.ndarray:
    """Cosine of vectors with energies aa and bb, whose difference has the energy dd: from -1 to 1, 0 if one is zero."""
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
    if one is other or one.shape != other.shape or one.dtype != other.dtype or one.dtype.hasobject:
        return one is other or (one.shape == other.shape and one.tobytes() == other.tobytes())
    word = np.dtype(f"u{one.itemsize}") if one.itemsize in (1, 2, 4, 8) else np.dtype(np.uint8)
    first, second = (np.ascontiguousarray(values).reshape(-1).view(word) for values in (one, other))
    return np.array_equal(first, second)
