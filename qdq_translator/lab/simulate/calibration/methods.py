"""From counted magnitudes to a range: the largest, a percentile, least divergence, least squared error.

A range is an amax: quantized values are `round(value * 127 / amax)`, clipped to +-127, so `scale = amax / 127`. All
functions take `Histogram.counts` with the true amax and are deterministic.
"""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.translation.ir.qparams import INT8_MAX

PERCENTILE = 99.99
"""Share of the values, in percent, that the method `percentile` keeps: the default of NVIDIA pytorch-quantization."""
LEVELS = 128
"""Of the quantized distribution of `entropy`; also the fewest bins that are kept."""
MOST_CLIPPED = 0.01
"""Share of the values that `entropy` may clip."""
ISOLATED = 4.0
"""Multiple of the percentile beyond which the largest magnitude is an outlier (docs/calibration.md)."""
MSE_STEPS = 96
MSE_STEPS_PER_OCTAVE = 16


def largest(histogram: Histogram) -> float:
    """The largest magnitude."""
    return histogram.amax


def percentile(histogram: Histogram, share: float = PERCENTILE) -> float:
    """Upper end of the first bin up to which there are `share` percent of the values; at most the largest magnitude."""
    below = np.cumsum(histogram.counts)
    index = int(np.searchsorted(below, share / 100 * float(below[-1])))
    return min((index + 1) * histogram.width, histogram.amax)


def entropy(histogram: Histogram) -> float:
    """Range whose 128 levels preserve the distribution best: least Kullback-Leibler divergence.

    As published (S. Migacz, 8-bit Inference with TensorRT, GTC 2017, S7310): for every number m of bins from 128 on, P
    is the distribution of the first m bins with all larger values added to the last of them, Q the one that results
    from merging those bins into 128 levels and spreading each level evenly over its non-empty bins. The smallest
    divergence of P and Q wins; the range ends in the middle of bin m. Two details follow NVIDIA pytorch-quantization:
    the first bin, which holds the zeros, counts as much as the second, and bin j belongs to level floor(128 j / m). One
    is ours: values of m that clip more than MOST_CLIPPED of the values do not count. If nearly all values are larger
    (the output of a gate's Sigmoid), P and Q both have all their mass in the last bin and would look the same.

    All m at once, by prefix sums: with S and N the count and the number of non-empty bins of each level, `sum P log Q =
    sum over levels of S_P log(S_Q / N)`.
    """
    used = int(np.flatnonzero(histogram.counts)[-1]) + 1 if histogram.counts.any() else 0
    if used <= LEVELS:
        return histogram.amax
    counts = histogram.counts[:used].astype(np.float64)
    counts[0] = counts[1]
    total = counts.sum()
    if total == 0:
        return histogram.amax
    sizes = np.arange(LEVELS, used + 1)
    starts = -(-np.arange(LEVELS + 1)[None, :] * sizes[:, None] // LEVELS)  # first bin of each level
    below = np.concatenate([[0.0], np.cumsum(counts)])
    filled = np.concatenate([[0], np.cumsum(counts > 0)])
    merged = np.diff(below[starts], axis=1)
    bins = np.diff(filled[starts], axis=1)
    last = counts[sizes - 1]
    outliers = total - below[sizes]
    bins[:, -1] += (last == 0) & (outliers > 0)
    reference = merged.copy()
    reference[:, -1] += outliers
    log_p = np.concatenate([[0.0], np.cumsum(_x_log_x(counts))])
    p_log_p = log_p[sizes] - _x_log_x(last) + _x_log_x(last + outliers)
    kept = merged.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(merged / bins)
        log_q[reference == 0] = 0.0
        divergence = p_log_p / total - np.log(total) - ((reference * log_q).sum(1) / total - np.log(kept))
    divergence[~np.isfinite(divergence) | (outliers > MOST_CLIPPED * histogram.total)] = np.inf
    best = int(sizes[int(np.argmin(divergence))])
    return min((best + 0.5) * histogram.width, histogram.amax)


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.where(x > 0, x, 1.0))


def mse(histogram: Histogram) -> float:
    """The range with the least squared error among amax * 2**(-k / 16), k = 0 to 95; the largest of equals."""
    return least_error([histogram])


def least_error(histograms: Sequence[Histogram]) -> float:
    """The one range with which several tensors together lose the least squared error, summed over all their values."""
    amax = max(histogram.amax for histogram in histograms)
    ranges = amax * 2.0 ** (-np.arange(MSE_STEPS) / MSE_STEPS_PER_OCTAVE)
    errors = np.sum([squared_error(histogram, ranges) for histogram in histograms], axis=0)
    return float(ranges[int(np.argmin(errors))])


def squared_error(histogram: Histogram, ranges: np.ndarray) -> np.ndarray:
    """Sum over all counted values of the squared error with each of the ranges (R,): (R,), in the tensor's units
    squared.

    A value counts as the middle of its bin, those of the first bin as 0 and those of the last one as the largest.
    """
    filled, values = _values(histogram)
    errors = np.empty(len(ranges))
    for index, amax in enumerate(ranges):
        scale = amax / INT8_MAX
        codes = np.minimum(np.rint(values / scale), INT8_MAX)
        errors[index] = float(filled @ (values - codes * scale) ** 2)
    return errors


def energy(histogram: Histogram) -> float:
    """Sum of the squares of all counted values, with the same rule for bins as `squared_error`."""
    filled, values = _values(histogram)
    return float(filled @ values**2)


def clipped(histogram: Histogram, amax: float) -> float:
    """The share (0 to 1) of the values whose magnitude is beyond `amax`, to the width of a bin. The range of a scale in
    float32 may be less than the largest value by its last bits: a value that equals it is not clipped."""
    if amax * (1 + 2.0**-22) >= histogram.amax or not histogram.total:
        return 0.0
    return float(histogram.counts[int(amax / histogram.width) + 1 :].sum()) / histogram.total


def is_isolated(histogram: Histogram) -> bool:
    """Whether fewer than 1 in 10,000 values are far larger than all others."""
    return bool(histogram.total) and histogram.amax > ISOLATED * percentile(histogram)


def _values(histogram: Histogram) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the non-empty bins, and the representative magnitude of each; float64."""
    places = np.flatnonzero(histogram.counts)
    values = np.minimum((places + 0.5) * histogram.width, histogram.amax)
    values[places == 0] = 0.0
    if len(places):
        values[-1] = histogram.amax if places[-1] else 0.0
    return histogram.counts[places].astype(np.float64), values


METHODS: dict[str, Callable[[Histogram], float]] = {
    "max": largest,
    "percentile": percentile,
    "entropy": entropy,
    "mse": mse,
    "output": mse,
}
