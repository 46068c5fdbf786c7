"""Rule K1, the arithmetic: counts that do not depend on order, and ranges held against brute force and ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator.lab.simulate.calibration.histogram import BINS, Histogram
from qdq_translator.lab.simulate.calibration.methods import (
    LEVELS,
    METHODS,
    MOST_CLIPPED,
    PERCENTILE,
    clipped,
    energy,
    entropy,
    is_isolated,
    least_error,
    mse,
    percentile,
    squared_error,
)
from tests.small_models import model


def histogram_of(values: np.ndarray, parts: int = 1) -> Histogram:
    histogram = Histogram()
    for part in np.array_split(values, parts):
        histogram.add(part)
    return histogram


def heavy_tailed(count: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(3, count) * 0.7).astype(np.float32)


def same(a: Histogram, b: Histogram) -> bool:
    return bool((a.counts == b.counts).all()) and (a.lowest, a.highest, a.width) == (b.lowest, b.highest, b.width)


def test_counts_do_not_depend_on_order_parts_or_threads() -> None:
    values = np.concatenate([heavy_tailed(10_000), np.zeros(777, np.float32), [1e-30, 3e4, -5e4]]).astype(np.float32)
    whole = histogram_of(values)
    shuffled = np.random.default_rng(1).permutation(values)
    assert (
        same(whole, histogram_of(shuffled))
        and same(whole, histogram_of(values, 7))
        and same(whole, histogram_of(values[::-1], 997))
    )
    left, right = histogram_of(values[:4000]), histogram_of(values[4000:], 3)
    right.merge(left)
    assert same(whole, right)
    assert whole.total == values.size and whole.highest == 3e4 and whole.lowest == -5e4


def test_bins_are_those_of_numpy() -> None:
    values = heavy_tailed(50_000)
    histogram = histogram_of(values, 11)
    end = 2.0 ** math.frexp(float(np.abs(values).max()))[1]
    expected, _ = np.histogram(np.abs(values.astype(np.float64)), BINS, (0, end))
    assert (histogram.counts == expected).all() and histogram.width == end / BINS
    assert histogram.amax == np.abs(values).max()


def test_memory_does_not_grow_with_the_data() -> None:
    histogram = Histogram()
    for size in range(190):
        histogram.add(np.full(1000, 2.0**size / 1e20, np.float32))
    assert histogram.counts.shape == (BINS,) and histogram.total + histogram.non_finite == 190_000


def test_values_that_are_not_finite_are_counted_apart() -> None:
    histogram = histogram_of(np.array([1, np.nan, -2, np.inf, -np.inf, 0], np.float32))
    assert (histogram.total, histogram.non_finite, histogram.amax) == (3, 3, 2.0)


@pytest.mark.parametrize("method", METHODS)
def test_half_and_double_precision_count_like_single(method: str) -> None:
    values = heavy_tailed(3000).astype(np.float16)
    ranges = {METHODS[method](histogram_of(values.astype(dtype))) for dtype in (np.float16, np.float32, np.float64)}
    assert len(ranges) == 1


def brute_force_entropy(counts: np.ndarray, width: float, amax: float) -> float:
    """The published loop, one number of bins after the other."""
    counts = counts[: np.flatnonzero(counts)[-1] + 1].astype(np.float64)
    total = counts.sum()
    counts[0] = counts[1]
    best, best_bins = math.inf, 0
    for bins in range(LEVELS, len(counts) + 1):
        inside, outliers = counts[:bins], counts[bins:].sum()
        p = inside.copy()
        p[-1] += outliers
        level = np.arange(bins) * LEVELS // bins
        with np.errstate(invalid="ignore"):
            spread = np.bincount(level, inside, LEVELS) / np.bincount(level, p > 0, LEVELS)
        q = np.where(p > 0, spread[level], 0.0)
        used = p > 0
        if (q[used] == 0).any() or outliers > MOST_CLIPPED * total:
            continue
        divergence = float((p[used] / p.sum() * np.log((p[used] / p.sum()) / (q[used] / q.sum()))).sum())
        if divergence < best - 1e-12:
            best, best_bins = divergence, bins
    return min((best_bins + 0.5) * width, amax)


@pytest.mark.parametrize("seed", [0, 2])
def test_entropy_is_the_published_loop(seed: int) -> None:
    values = np.maximum(heavy_tailed(4000, seed), 0)
    histogram = histogram_of(values)
    assert entropy(histogram) == brute_force_entropy(histogram.counts, histogram.width, histogram.amax)


def test_entropy_of_a_gate_covers_it() -> None:
    """All values far from zero but one: a range below them would have all mass in one bin, before and after."""
    values = np.random.default_rng(0).uniform(0.3, 0.9, 50_000).astype(np.float32)
    values[7] = 0.04
    assert 0.85 < entropy(histogram_of(values)) <= 0.9


def test_entropy_leaves_an_outlier_out() -> None:
    values = np.concatenate([np.random.default_rng(0).standard_normal(50_000), [40.0]]).astype(np.float32)
    assert 2.5 < entropy(histogram_of(values)) < 6


def test_least_squared_error_is_that_of_the_values() -> None:
    """Against the error of the values themselves, not of their bins."""
    values = heavy_tailed(100_000)
    histogram = histogram_of(values)
    ranges = histogram.amax * 2.0 ** (-np.arange(96) / 16)

    def error(amax: float) -> float:
        codes = np.clip(np.rint(values.astype(np.float64) / (amax / 127)), -127, 127)
        return float(((values - codes * (amax / 127)) ** 2).sum())

    exact = np.array([error(amax) for amax in ranges])
    np.testing.assert_allclose(squared_error(histogram, ranges), exact, rtol=0.02)
    best = METHODS["mse"](histogram)
    assert error(best) <= exact.min() * 1.005 and best in ranges
    np.testing.assert_allclose(energy(histogram), (values.astype(np.float64) ** 2).sum(), rtol=1e-3)


def test_the_few_scores_of_a_map_that_matter_are_kept() -> None:
    """Six objects in 81,920 places: why `mse` has no rule that leaves rare extremes out, as it would have to for hot pixels."""
    scores = np.abs(np.random.default_rng(0).normal(0, 0.01, (20, 1, 64, 64))).astype(np.float32)
    objects = np.arange(6) * 13_000 + 77
    scores.reshape(-1)[objects] = np.linspace(0.6, 0.95, 6, dtype=np.float32)
    histogram = histogram_of(scores)
    assert is_isolated(histogram)  # fewer than one value in 10,000, and more than four times what the others reach
    kept, left_out = (np.minimum(scores.reshape(-1)[objects], amax) for amax in (mse(histogram), percentile(histogram)))
    np.testing.assert_allclose(kept, scores.reshape(-1)[objects], rtol=0.2)
    assert left_out.max() < 0.1


def test_one_range_for_two_tensors_is_between_theirs_and_beats_the_larger() -> None:
    wide, narrow = histogram_of(heavy_tailed(2000) * 4), histogram_of(heavy_tailed(20_000, 1) / 4)
    own = [METHODS["mse"](h) for h in (wide, narrow)]
    shared = least_error([wide, narrow])
    total = sum(squared_error(h, np.array([shared, max(own), max(wide.amax, narrow.amax)])) for h in (wide, narrow))
    assert min(own) <= shared <= max(wide.amax, narrow.amax) and total[0] <= total[1] and total[0] < total[2]


def test_share_clipped_and_percentile() -> None:
    values = heavy_tailed(100_000)
    histogram = histogram_of(values)
    amax = percentile(histogram)
    assert abs(clipped(histogram, amax) - (np.abs(values) > amax).mean()) < 1e-4
    assert (
        (np.abs(values) > amax).mean()
        <= 1 - PERCENTILE / 100
        < (np.abs(values) > amax - 2 * histogram.width).mean() + 1e-4
    )
    assert clipped(histogram, histogram.amax) == 0


@pytest.mark.parametrize("method", METHODS)
def test_constant_and_single_values(method: str) -> None:
    assert METHODS[method](histogram_of(np.full(100, -0.37, np.float32))) == pytest.approx(0.37, rel=1e-3)
    assert 0 < METHODS[method](histogram_of(np.float32([1e-20, 0, 1e-20]))) <= 1.0001e-20


# ---------------------------------------------------------------- ONNX Runtime's calibrators

MODEL = """net (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) {
    a = Conv <pads=[1, 1, 1, 1]>(x, w)
    s = Sigmoid(a)
    b = Mul(a, s)
    y = Conv(b, v)
}"""


def float_model(path: Path) -> Path:
    random = np.random.default_rng(3)
    w, v = (random.standard_t(3, shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4, 4, 1, 1)))
    onnx.save(model(MODEL, w=w, v=v), path)
    return path


def ort_ranges(path: Path, data: np.ndarray, method: str, **options: object) -> dict[str, float]:
    """Largest magnitude of the range that ONNX Runtime's calibrator gives each tensor, all data in one batch."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x": data}])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    calibrator = create_calibrator(
        path,
        None,
        augmented_model_path=str(path.with_suffix(".augmented.onnx")),
        calibrate_method=CalibrationMethod[method],
        extra_options={"symmetric": True, **options},
    )
    calibrator.collect_data(Reader())
    ranges = calibrator.compute_data()
    return {name: float(np.abs(np.ravel(ranges[name].range_value)).max()) for name in ("x", "a", "s", "b")}


def our_ranges(path: Path, data: np.ndarray, method: str, tmp_path: Path) -> dict[str, float]:
    from qdq_translator import TranslateOptions, translate

    np.save(tmp_path / "x.npy", data)
    options = TranslateOptions(calibrate=str(tmp_path / "x.npy"), calibrate_method=method)
    scales = translate(path, options).scales
    assert {scale.origin.rule for _, scale in scales.items()} == {"K1"}
    return {name: scales[name].amax for name in ("x", "a", "s", "b")}


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)


def test_max_is_onnxruntimes_minmax(tmp_path: Path, data: np.ndarray) -> None:
    path = float_model(tmp_path / "m.onnx")
    ours, theirs = our_ranges(path, data, "max", tmp_path), ort_ranges(path, data, "MinMax")
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_percentile_is_onnxruntimes_to_a_bin(tmp_path: Path, data: np.ndarray) -> None:
    """ONNX Runtime ends the range at the lower edge of the bin that holds the percentile, we at the upper one; its bins are
    amax / 2048 wide, ours at most that."""
    path = float_model(tmp_path / "m.onnx")
    largest = our_ranges(path, data, "max", tmp_path)
    ours = our_ranges(path, data, "percentile", tmp_path)
    theirs = ort_ranges(path, data, "Percentile", num_bins=2048, percentile=PERCENTILE)
    for name, amax in largest.items():
        assert -amax / 2048 <= ours[name] - theirs[name] <= 2 * amax / 2048, name


def test_entropy_is_close_to_onnxruntimes_on_the_same_counts() -> None:
    """ONNX Runtime's search, given our counts on both sides of zero and twice the levels. It differs in three details: it rounds
    what is left of a level's counts down (so there are many here), gives the last level the remainder of the bins, and fills
    empty bins with a little: with outliers far out, where most bins are empty, that moves its choice further out than the
    published loop, which ours is (above)."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    random = np.random.default_rng(0)
    values = np.concatenate([random.standard_normal(400_000), random.uniform(-8, 8, 400)]).astype(np.float32)
    ours = histogram_of(values)
    ours.counts = ours.counts.reshape(1024, -1).sum(1) * 1000
    bin_width = ours.width * BINS / 1024
    edges = np.arange(-1024, 1025) * np.float32(bin_width)
    counts = np.concatenate([ours.counts[::-1], ours.counts])
    collector = HistogramCollector("entropy", True, 2048, 2 * LEVELS, 99.99, "same")
    _, high = collector.get_entropy_threshold(
        (counts, edges, np.float32(ours.lowest), np.float32(ours.highest), edges[-1]), 2 * LEVELS
    )
    found = entropy(ours) / ours.width * bin_width
    assert found == pytest.approx(float(high), rel=0.02)


def test_onnxruntimes_default_entropy_is_the_maximum(tmp_path: Path, data: np.ndarray) -> None:
    """128 bins and 128 levels leave it one candidate: who compares with its defaults compares with `max`."""
    path = float_model(tmp_path / "m.onnx")
    assert ort_ranges(path, data, "Entropy") == pytest.approx(our_ranges(path, data, "max", tmp_path), rel=1e-6)
