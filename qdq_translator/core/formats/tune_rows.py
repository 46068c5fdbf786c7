"""Rows of NAME_tune.json, the results of `tune`. docs/report_schema.md explains the keys."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, Dict, Final, Optional, Tuple

from qdq_translator.core.formats.report_rows import Source, Texts
from qdq_translator.core.formats.rows import Row
from qdq_translator.core.formats.verify_rows import Account

_ASKED: Final = {"sparse": True}
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
    on the same samples; interval: of the drop, 99%, None if the metric is not a mean over samples."""

    score: float
    samples: int
    complete: bool
    drop: float
    interval: Optional[Tuple[float, ...]] = None

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
        """Within the budget of milliseconds."""
        return self.budget_ms is None or (cost.milliseconds is not None and cost.milliseconds <= self.budget_ms)

    def allows(self, point: Any) -> bool:
        """Within both; never for a point that was not measured on all samples."""
        return bool(point.measured.complete and self.affords(point.cost) and point.measured.drop <= self.most)

    def rank(self, point: Any) -> Tuple[Any, ...]:
        """Least is best; first all points within both."""
        if self.budget_ms is None and self.allows(point):
            return (False, *point.cost.key, point.measured.drop)
        return (not self.allows(point), not self.affords(point.cost), point.measured.drop, *point.cost.key)


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


class Sum(Row):
    """An FP16 set. tensors: of it; the shares (0 to 1) of the noise energy that it should remove by the account, and
    that it removes."""

    tensors: int
    expected_share: float
    measured_share: float


class Loud(Row):
    """tensor: or 'weights of' a layer. layers: to keep in FP16 for it. noise_share: 0 to 1."""

    tensor: str
    layers: Texts
    noise_share: float


class Ranking(Row):
    """Noise of one point. tensors: largest share first."""

    changes: Dict[str, Any]
    kept_fp16: Texts
    tensors: Tuple[Loud, ...]
    account: Account


class Tuning(Row):
    """front: points measured on all samples of which no other is as cheap and better, cheapest first. evaluations:
    networks measured. command: translates the best point again. held_out: samples that the search did not see."""

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
    additivity: Tuple[Sum, ...]
    model: Source
    goal: Goal
    seed: int
    sensitivity: Tuple[Ranking, ...]
    command: str
    seconds: float
    held_out: Optional[Data] = field(default=None, metadata=_ASKED)
