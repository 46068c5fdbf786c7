"""Measure a network on the whole data, or on as much as is needed to reject it.

Early stopping checks an eighth, a quarter and a half of the shards, evenly spread. If a metric is a number for each
sample, the drop against the reference is a mean of paired differences, and its interval is known at every check:

- right or wrong (`top1`): the two ways in which reference and point can disagree are McNemar's; the interval is Wald's
  with half a sample added to each of the four cells (A. Agresti, Y. Min, Statistics in Medicine 24, 2005);
- any other mean: the percentile bootstrap of the differences, of 1,000 resamples with a fixed seed.

A point is rejected if even the lower end of the drop's interval is more than the drop allowed. Accepted points were
always measured on all samples.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Callable, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.tune_rows import Measured
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import class_scores
from qdq_translator.simulate.run import CodedEnds, Session
from qdq_translator.simulate.user_metric import UserMetric, top1

CONFIDENCE = 0.99
_Z = 2.5758293035489004 + 0.25
"""The normal quantile of CONFIDENCE, and a quarter more because there are three looks (Bonferroni: 0.9967)."""
LOOKS = (8, 4, 2)
"""One shard in this many is measured at each look."""
LEAST_SAMPLES = 200
RESAMPLES = 1000


class Meter:
    """One metric on one set of samples. Raises UserError if the data have no labels that it can use."""

    def __init__(self, metric: UserMetric, samples: Samples, where: Evaluation) -> None:
        self.metric, self.samples, self._where = metric, samples, where
        self.is_top1 = metric.make is top1  # not a function of the user with that name
        self.is_mean = not inspect.isclass(metric.make)
        self.reference = Measured(math.nan, 0, False, 0.0, None)
        self._reference: np.ndarray = np.empty(0)
        """Values of the reference for each run, if the metric is a mean."""

    def set_reference(self, model: onnx.ModelProto, ends: CodedEnds, kept: Optional[np.ndarray] = None) -> np.ndarray:
        """Set the model as given as the reference for drops. kept: result of an earlier call."""
        if kept is None:
            score, values, _ = self._measure(model, "explicit", ends, shards(self.samples.runs))
            kept = np.array([score, *values], np.float64)
        self._reference = kept[1:]
        self.reference = Measured(float(kept[0]), len(self.samples), True, 0.0, (0.0, 0.0) if self.is_mean else None)
        return kept

    def measure(self, model: onnx.ModelProto, most: float) -> Measured:
        """most: a drop beyond which the score is of no interest."""
        everything = shards(self.samples.runs)
        no_ends = CodedEnds({}, {})
        if not self.is_mean:
            score, _, _ = self._measure(model, "simulated", no_ends, everything)
            return Measured(score, len(self.samples), True, self.reference.score - score, None)
        values = np.full(self.samples.runs, np.nan)
        looks: list[Sequence[range]] = [everything]
        if len(self.samples) >= LEAST_SAMPLES and math.isfinite(most):
            looks = _looks(everything)
        for look in looks:
            _, found, runs = self._measure(model, "simulated", no_ends, look)
            values[runs] = found
            measured = self._so_far(values)
            if not measured.complete and measured.interval is not None and measured.interval[0] > most:
                break
        return measured

    def _so_far(self, values: np.ndarray) -> Measured:
        known = np.flatnonzero(~np.isnan(values))
        score, before = _mean(values[known]), _mean(self._reference[known])
        complete = len(known) == len(values)
        samples = len(known) * self.samples.batch
        interval = self._interval(self._reference[known] - values[known])
        return Measured(score, samples, complete, before - score, interval)

    def _interval(self, differences: np.ndarray) -> tuple[float, float]:
        if self.is_top1 and self.samples.batch == 1:
            return paired_interval(
                int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0)), len(differences)
            )
        return bootstrap_interval(differences)

    def _measure(
        self,
        model: onnx.ModelProto,
        stage: str,
        ends: CodedEnds,
        ranges: Sequence[range],
    ) -> tuple[float, np.ndarray, list[int]]:
        """(score, the value of each run if the metric is a mean, the runs measured)."""
        score = self.metric.start(stage)
        runs = [run for shard in ranges for run in shard]
        work = Outputs(model, stage, ends, self.samples, self._where.provider, self.is_top1)
        left = iter(runs)

        def take(part: list[dict[str, np.ndarray]]) -> None:
            """Score here and in order, for any worker."""
            for outputs in part:
                score.add(outputs, self.samples, next(left))
            part.clear()

        self._where.engine.run(work, ranges, watch=take)
        values = np.array(score.values)
        return _mean(values) if self.is_mean else score.result(), values, runs


def _mean(values: np.ndarray) -> float:
    """Exactly rounded, so that it does not depend on the order."""
    return math.fsum(values) / len(values)


@dataclasses.dataclass
class Outputs(Work):
    """Outputs of every run, as real numbers. classes: only the class with the largest score of each sample, in the form
    of scores of one class: enough for `top1`, at a thousandth of the bytes."""

    model: onnx.ModelProto
    stage: str
    ends: CodedEnds
    samples: Samples
    provider: str
    classes: bool

    def open(self) -> Callable[[int], list[dict[str, np.ndarray]]]:
        session = Session(self.model, self.stage, one_thread=True, provider=self.provider)

        def run(index: int) -> list[dict[str, np.ndarray]]:
            values = self.ends.real(session.run(self.ends.feed(self.samples.feed(index))))
            return [_best(values) if self.classes else values]

        return run


def _best(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name, output in values.items():
        scores = class_scores(output)
        if scores is not None:
            return {name: scores.argmax(axis=1)}
    raise UserError("No output contains class scores (samples x classes).", "Use another --metric than top1.")


def _looks(everything: Sequence[range]) -> list[Sequence[range]]:
    """The shards that each look adds, evenly spread, the rest last."""
    taken: set[int] = set()
    looks: list[Sequence[range]] = []
    for stride in (*LOOKS, 1):
        added = [number for number in range(0, len(everything), stride) if number not in taken]
        taken.update(added)
        if added:
            looks.append([everything[number] for number in added])
    return looks


def paired_interval(worse: int, better: int, samples: int) -> tuple[float, float]:
    """Of the drop in percent: `worse` samples only the reference has right, `better` only the point."""
    n, b, c = samples + 2, worse + 0.5, better + 0.5
    mean = (b - c) / n
    half = _Z * math.sqrt((b + c) - (b - c) ** 2 / n) / n
    return 100 * (mean - half), 100 * (mean + half)


def bootstrap_interval(differences: np.ndarray) -> tuple[float, float]:
    """Of the mean of paired differences, in their unit."""
    random = np.random.default_rng(0)
    means = [differences[random.integers(0, len(differences), len(differences))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
