"""Rows of NAME_tune.json, the results of `tune`. docs/report_schema.md explains the keys."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, Dict, Final, Iterator, Optional, Tuple

from qdq_translator.core.formats.report_rows import Source, Texts
from qdq_translator.core.formats.rows import Row
from qdq_translator.core.formats.verify_rows import Account, Cure

_ASKED: Final = {"sparse": True}
MOST_CURES: Final = 3
"""Causes that a summary names."""
FP16: Final = "all layers in FP16"
"""`why` that point was measured."""


class Cost(Row):
    """milliseconds: estimated, of the layers on the DLA; None without an estimate. gpu_layers: not supported by the
    DLA. int8_macs: share (0 to 1) of MACs in INT8. higher_layers: layers above INT8."""

    milliseconds: Optional[float]
    gpu_layers: int
    int8_macs: float
    higher_layers: int

    @property
    def key(self) -> Tuple[float, ...]:
        """Less is better. A GPU layer has no estimated time, so their number is first; without a DLA, MACs decide."""
        time = round(self.milliseconds, 9) if self.milliseconds is not None else 0.0
        return (self.gpu_layers, time, round(1 - self.int8_macs, 9), self.higher_layers)


class Measured(Row):
    """score: on `samples` samples, in the metric's own unit. complete: these are all samples. drop: from the reference
    on the same samples; interval: of the drop, 99%, None if the metric is not a mean over samples. noise: energy of the
    outputs' error, relative to their own and summed over the outputs, on some of the samples."""

    score: float
    samples: int
    complete: bool
    drop: float
    interval: Optional[Tuple[float, ...]] = None
    noise: float = field(default=0.0, metadata={"finite": True, "later": True})

    @property
    def error(self) -> Optional[float]:
        """Half of the interval."""
        return (self.interval[1] - self.interval[0]) / 2 if self.interval else None


class Goal(Row):
    """max_drop: in the metric's unit; None if only the budget counts. budget_ms: estimated; None if the drop counts.
    holds: whether the best point is within both."""

    max_drop: Optional[float]
    budget_ms: Optional[float]
    holds: bool = False

    @property
    def most(self) -> float:
        """The largest allowed drop."""
        return math.inf if self.max_drop is None else self.max_drop + 1e-9

    def affords(self, cost: Cost) -> bool:
        """Whether a cost is within the budget of milliseconds."""
        return self.budget_ms is None or (cost.milliseconds is not None and cost.milliseconds <= self.budget_ms)

    def allows(self, point: Any) -> bool:
        """Whether a point is within the drop and the budget; never if it was not measured on all samples."""
        return bool(point.measured.complete and self.affords(point.cost) and point.measured.drop <= self.most)

    def rank(self, point: Any) -> Tuple[Any, ...]:
        """Least is best; first all points within both."""
        if self.budget_ms is None and self.allows(point):
            return (False, *point.cost.key, point.measured.drop)
        measured = point.measured
        return (not self.allows(point), not self.affords(point.cost), measured.drop, measured.noise, *point.cost.key)


class Tuned(Row):
    """A point. why: search step that found it. changes: option -> value, if it differs from the given one. kept_fp16:
    layers, in addition to those of the options. held_out: measured on the samples of --held_out."""

    why: str
    changes: Dict[str, Any]
    kept_fp16: Texts
    cost: Cost
    measured: Measured
    held_out: Optional[Measured] = field(default=None, metadata=_ASKED)


class Data(Row):
    """digest: of the data read. notes: sentences on samples that were left out."""

    source: str
    samples: int
    digest: str
    notes: Texts


class Metric(Row):
    """reference: of the model as given. held_out: the same on the samples of --held_out."""

    name: str
    reference: float
    held_out: Optional[float] = field(default=None, metadata=_ASKED)


class Ranking(Row):
    """Noise of one point."""

    changes: Dict[str, Any]
    kept_fp16: Texts
    account: Account


LEAST_TOLD = 1e-3
"""Milliseconds of a change that a first screen names although it leaves the metric as it was."""


class Tuning(Row):
    """front: points measured on all samples of which no other is as cheap and better, cheapest first. evaluations:
    networks measured. passes: of the network over the samples, all together; limit: the most that were allowed.
    interrupted: the search did not end. cures: measured on the way to the best point, which is the last. command:
    translates the best point again. held_out: samples that the search did not see."""

    schema_version: int
    kind: str
    generator: str
    data: Data
    metric: Metric
    early_stopping: str
    evaluations: int
    best: Tuned
    front: Tuple[Tuned, ...]
    points: Tuple[Tuned, ...]
    cures: Tuple[Cure, ...]
    passes: float
    limit: float
    interrupted: bool
    model: Source
    goal: Goal
    sensitivity: Tuple[Ranking, ...]
    command: str
    seconds: float
    held_out: Optional[Data] = field(default=None, metadata=_ASKED)

    @property
    def remedies(self) -> Texts:
        """What was lost, what each cure gains and costs, and what is left, a sentence each, for a first screen."""
        first, best, goal = self.points[0], self.best, self.goal
        after, before = (f"{point.measured.score:.4g}" for point in (best, first))
        about = f"{self.metric.name} {after} on {self.data.samples} samples"
        about += f", {before} without help" if before != after else ""
        told = [cure for cure in self.cures[-1:] if before != after or abs(cure.milliseconds or 0.0) >= LEAST_TOLD]
        sentences = [about, *(cure.words for cure in told)]
        if not goal.holds and goal.max_drop is not None:
            sentences += _left(self, goal.max_drop)
        return tuple(sentences)


def _left(found: Tuning, most: float) -> Iterator[str]:
    """Why a search did not reach its goal."""
    yield f"{found.best.measured.drop:.3g} is still lost, {most:g} was allowed"
    fp16 = next((point for point in found.points if point.why == FP16), None)
    if fp16 is not None and fp16.measured.drop > most:
        yield f"FP16 itself loses {fp16.measured.drop:.3g}: some values are too large or too small for it"
    for ranking in found.sensitivity[:1]:
        rows = [row for row in ranking.account.entries if row.layers]
        loud = [f"'{row.name}' ({100 * row.share:.0f}%)" for row in rows[:MOST_CURES]]
        yield f"most noise comes from {', '.join(loud)}"
