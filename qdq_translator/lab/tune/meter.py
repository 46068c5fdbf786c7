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
from typing import Callable, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.tune_rows import Measured
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.lab.simulate.compare import in_shapes, matched_rows
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import Comparison, class_scores, decisions
from qdq_translator.lab.simulate.named_metrics import top1
from qdq_translator.lab.simulate.run import CodedEnds, Session
from qdq_translator.lab.simulate.user_metric import UserMetric

CONFIDENCE = 0.99
_Z = 2.5758293035489004 + 0.25
"""The normal quantile of CONFIDENCE, and a quarter more because there are three looks (Bonferroni: 0.9967)."""
LOOKS = (8, 4, 2)
"""One shard in this many is measured at each look."""
LEAST_SAMPLES = 200
RESAMPLES = 1000
NOISE_RUNS, MOST_NOISE = 32, 1e6
AGREEMENT = "agreement with float"


class Agreement:
    """Comparison of outputs with those of the reference, over some runs."""

    def __init__(self) -> None:
        self._rows: dict[str, Comparison] = {}
        self._decisions: dict[str, np.ndarray] = {}
        """Output -> (clear decisions, those that are changed)."""

    def add(self, outputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
        for name, values in zip(wanted, outputs.values()):
            reference = wanted[name]
            own = matched_rows(reference, outputs.get(name, values)).reshape(reference.shape)
            found = np.array(decisions(reference, own))
            self._decisions[name] = self._decisions.get(name, 0) + found
            if reference.dtype.kind == "f":
                self._rows.setdefault(name, Comparison()).add(reference, own)

    def result(self) -> float:
        """Percent, of the output with the least: of clear decisions (`metrics.decisions`) that are the same, or for an
        output without any, of its energy that is not error."""
        found = []
        for name, (clear, changed) in self._decisions.items():
            if clear or name in self._rows:
                found.append(100 * (1 - (changed / clear if clear else min(self._rows[name].noise, 1.0))))
        return min(found, default=100.0)

    @property
    def noise(self) -> float:
        """Energy of the error relative to the output's own, summed over the outputs."""
        return sum(min(row.noise, MOST_NOISE) for row in self._rows.values())


class Meter:
    """One metric on one set of samples; without a metric, the agreement with the outputs of the reference. Raises
    UserError if the data have no labels that the metric can use."""

    def __init__(self, metric: Optional[UserMetric], samples: Samples, where: Evaluation) -> None:
        self.metric = metric or UserMetric(AGREEMENT, Agreement)
        self.samples, self._where = samples, where
        self.is_top1 = self.metric.make is top1  # not a function of the user with that name
        self.is_mean = not inspect.isclass(self.metric.make)
        self.reference = Measured(math.nan, 0, False, 0.0, None)
        self._given: dict[str, np.ndarray] = {}
        """The first outputs of the model as given, whose shapes a metric gets."""
        self._reference: np.ndarray = np.empty(0)
        """Values of the reference for each run, if the metric is a mean."""
        heard = samples.runs if metric is None else min(NOISE_RUNS, samples.runs)
        self._expected: dict[int, dict[str, np.ndarray]] = {
            int(run): {} for run in np.linspace(0, samples.runs - 1, heard).round()
        }
        """Run -> outputs of the reference, of the runs on which noise is measured."""

    def set_reference(self, model: onnx.ModelProto, ends: CodedEnds) -> None:
        """Set the model as given as the reference for drops."""
        score, self._reference, _ = self._measure(model, "explicit", ends, shards(self.samples.runs), Agreement())
        self.reference = Measured(score, len(self.samples), True, 0.0, (0.0, 0.0) if self.is_mean else None)

    def measure(self, model: onnx.ModelProto, most: float) -> Measured:
        """Score of a network and its drop from the float model. most: a drop beyond which the score is of no interest:
        measuring ends there."""
        everything, same = shards(self.samples.runs), Agreement()
        no_ends = CodedEnds({}, {})
        if not self.is_mean:
            score, _, _ = self._measure(model, "simulated", no_ends, everything, same)
            return Measured(score, len(self.samples), True, self.reference.score - score, None, same.noise)
        values = np.full(self.samples.runs, np.nan)
        looks: list[Sequence[range]] = [everything]
        if len(self.samples) >= LEAST_SAMPLES and math.isfinite(most):
            looks = _looks(everything)
        for look in looks:
            _, found, runs = self._measure(model, "simulated", no_ends, look, same)
            values[runs] = found
            measured = self._so_far(values, same.noise)
            if not measured.complete and measured.interval is not None and measured.interval[0] > most:
                break
        return measured

    def _so_far(self, values: np.ndarray, noise: float) -> Measured:
        known = np.flatnonzero(~np.isnan(values))
        score, before = _mean(values[known]), _mean(self._reference[known])
        complete = len(known) == len(values)
        samples = len(known) * self.samples.batch
        interval = self._interval(self._reference[known] - values[known])
        return Measured(score, samples, complete, before - score, interval, noise)

    def _interval(self, differences: np.ndarray) -> tuple[float, float]:
        if self.is_top1 and self.samples.batch == 1:
            return paired_interval(
                int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0)), len(differences)
            )
        return bootstrap_interval(differences)

    def _measure(
        self, model: onnx.ModelProto, stage: str, ends: CodedEnds, ranges: Sequence[range], same: Agreement
    ) -> tuple[float, np.ndarray, list[int]]:
        """(score, the value of each run if the metric is a mean, the runs measured). same: gets the outputs of the runs
        on which noise is measured."""
        own = self.metric.make is not Agreement
        score, samples = self.metric.start(stage), self.samples
        runs = [run for shard in ranges for run in shard]
        whole = frozenset(self._expected) if self.is_top1 else None
        work = Outputs(model, stage, ends, samples, self._where.provider, whole)
        left = iter(runs)

        def take(part: list[dict[str, np.ndarray]]) -> None:
            """Score here and in order, for any worker."""
            for outputs in part:
                run = next(left)
                self._given = self._given or outputs
                outputs = in_shapes(outputs, self._given)
                if stage == "explicit" and run in self._expected:
                    self._expected[run] = outputs
                if run in self._expected:
                    same.add(outputs, self._expected[run])
                if own:
                    score.add(outputs, samples, run)
            part.clear()

        self._where.engine.run(work, ranges, watch=take)
        values = np.array(score.values)
        return _mean(values) if self.is_mean else score.result() if own else same.result(), values, runs


def _mean(values: np.ndarray) -> float:
    """Exactly rounded, so that it does not depend on the order."""
    return math.fsum(values) / len(values)


@dataclasses.dataclass
class Outputs(Work):
    """Outputs of every run, as real numbers. whole: the runs of which all is needed; of others only the class with the
    largest score of each sample: enough for `top1`, at a thousandth of the bytes. None: all runs."""

    model: onnx.ModelProto
    stage: str
    ends: CodedEnds
    samples: Samples
    provider: str
    whole: Optional[frozenset[int]] = None

    def open(self) -> Callable[[int], list[dict[str, np.ndarray]]]:
        session = Session(self.model, self.stage, one_thread=True, provider=self.provider)

        def run(index: int) -> list[dict[str, np.ndarray]]:
            values = self.ends.real(session.run(self.ends.feed(self.samples.feed(index))))
            return [values if self.whole is None or index in self.whole else _best(values)]

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
    """99% interval of the drop of Top-1 in percent: `worse` samples only the reference has right, `better` only the
    point."""
    n, b, c = samples + 2, worse + 0.5, better + 0.5
    mean = (b - c) / n
    half = _Z * math.sqrt((b + c) - (b - c) ** 2 / n) / n
    return 100 * (mean - half), 100 * (mean + half)


def bootstrap_interval(differences: np.ndarray) -> tuple[float, float]:
    """99% interval of the mean of paired differences, in their unit."""
    random = np.random.default_rng(0)
    means = [differences[random.integers(0, len(differences), len(differences))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
