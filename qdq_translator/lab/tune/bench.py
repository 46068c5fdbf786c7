"""Network, cost and measurements of a point. Only what a point changes is done again: another set of FP16 layers is
planned on the same scales, other ranges are decided on the same network, and data are observed once for each network.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from pathlib import Path
from typing import Any, Callable, Iterator, MutableMapping, Optional, Sequence

import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.formats.tune_rows import Cost, Measured, Ranking
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.workers.work import Engine, Work, pack
from qdq_translator.lab.laboratory import OnnxRuntime, translate
from qdq_translator.lab.simulate.account import Account, Judge, account
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, placement_of, simulate
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.tune.journal import Journal
from qdq_translator.lab.tune.meter import Meter
from qdq_translator.lab.tune.points import Point
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.planning.decision import Decision, planned
from qdq_translator.translation.targets.precision import INT8
from qdq_translator.translation.targets.settings import Settings, resolve
from qdq_translator.translation.translator import Prepared, Translation, prepared

KEPT = 3
"""Networks that stay in memory."""
ACCOUNT_RUNS, ACCOUNT_PASSES = 32, 4.0
"""The noise account: the samples that it is for, and its passes over all samples."""


Fitted = Callable[[Samples], Samples]
"""Chooses the calibration data that ranges come from."""


def everything(data: Samples) -> Samples:
    """The `Fitted` that chooses all data."""
    return data


class OutOfTime(Exception):
    """The time of a search is over."""


class Remembering(Engine):
    """An engine that counts runs and caches results by request, except those that a cached one is made of. Calibration
    data are observed once for all points with the same request."""

    def __init__(self, engine: Engine, kept: MutableMapping[str, Any]) -> None:
        self._engine, self._kept, self._busy = engine, kept, False
        self._near: dict[str, Any] = {}
        self.runs = 0.0
        """Runs of the network, in float or simulated."""
        self.until = math.inf
        """End of the time, as of `time.monotonic`."""

    def check_time(self) -> None:
        """Raises OutOfTime after `until`."""
        if time.monotonic() > self.until:
            raise OutOfTime

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        self.runs += sum(map(len, ranges)) * work.passes
        for part in self._engine.parts(work, ranges):
            self.check_time()
            yield part

    def remembered(self, key: Any, compute: Callable[[], Any]) -> Any:
        if self._busy:
            return compute()
        digest = pack(key).digest
        if digest not in self._near:
            found, runs = self._kept.get(digest, (self, 0.0))
            self.runs += runs  # so that a search that continues ends like one that was not interrupted
            if found is self:
                before, self._busy = self.runs, True
                try:
                    found = compute()
                finally:
                    self._busy = False
                self._kept[digest] = found, self.runs - before
            self._near[digest] = found
        return copy.deepcopy(self._near[digest])

    def run(
        self,
        work: Work,
        ranges: Sequence[range],
        progress: Callable[[int], None] = lambda done: None,
        watch: Callable[[Any], None] = lambda part: None,
    ) -> Any:
        return self.remembered((work, ranges), lambda: super(Remembering, self).run(work, ranges, progress, watch))

    def fresh(self) -> Engine:
        """An engine that counts runs here, too, but caches nothing."""
        return _Counting(self)


class _Counting(Engine):
    def __init__(self, counted: Remembering) -> None:
        self._counted = counted

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        return self._counted.parts(work, ranges)


@dataclasses.dataclass(frozen=True)
class _Fitting(OnnxRuntime):
    """A laboratory with only those of the calibration data that `fitted` chooses."""

    fitted: Fitted = everything

    def samples(self, graph: Graph, settings: Settings) -> Samples:
        return self.fitted(super().samples(graph, settings))


class Bench:
    """Points of one model: their networks, costs and measurements, read from the journal if possible. base: the options
    that points change. fitted: the calibration data that ranges come from. Raises UserError if the model itself is
    invalid."""

    def __init__(
        self,
        model: Path,
        base: TranslateOptions,
        meter: Meter,
        journal: Journal,
        remembering: Remembering,
        where: Evaluation,
        fitted: Fitted = everything,
    ) -> None:
        self.model, self.base, self.meter, self._journal, self._fitted = model, base, meter, journal, fitted
        self._remembering, self._where = remembering, where
        self._simulation = dataclasses.replace(SimulationOptions.on(base.target), fp16=True)
        self._ready: dict[Point, Prepared] = {}
        self._decided: dict[Point, Decision] = {}
        self._costs: dict[Point, Optional[Cost]] = {}
        self._impossible: dict[Point, UserError] = {}
        self._accounts: dict[Point, Account] = {}
        self._simulated: dict[Point, tuple[onnx.ModelProto, str]] = {}
        """The simulated model of the last requested point, with its digest."""

    @property
    def passes(self) -> float:
        """Passes of the network over the samples that were needed so far."""
        return self._remembering.runs / self.meter.samples.runs

    def translation(self, point: Point, name: Optional[str]) -> Translation:
        """The translation of a point with the ranges of all calibration data, which ends the time of the search: it and
        what follows take as long as they need. name: base name of its files. Raises UserError."""
        self._remembering.until = math.inf
        where = dataclasses.replace(self._where, engine=self._remembering)
        return translate(self.model, point.options(self.base), name, where=where)

    def plain(self, point: Point) -> Point:
        """The point without changes that have no effect on the options of this bench."""
        return point.plain(self.base)

    def _prepared(self, point: Point) -> Prepared:
        key = point.layers
        if key not in self._ready:
            lab = _Fitting(where=dataclasses.replace(self._where, engine=self._remembering), fitted=self._fitted)
            self._ready[key] = prepared(self.model, key.options(self.base), lab=lab)
            while len(self._ready) > KEPT:
                gone = next(iter(self._ready))
                del self._ready[gone]
                self._decided = {one: made for one, made in self._decided.items() if one.layers != gone}
        return self._ready[key]

    def _decision(self, point: Point) -> Decision:
        """Scales and plan of a point: points that differ in FP16 layers only share the scales. Raises UserError."""
        scales, ready = Point(point.changes), self._prepared(point)
        settings = resolve(point.options(self.base))
        if scales not in self._decided:
            settings_of_scales = dataclasses.replace(settings, keep_fp16=self.base.keep_fp16)
            self._decided[scales] = ready.decided(settings_of_scales, ready.given_scales.fork(), Diagnostics())
        made = self._decided[scales]
        return planned(ready.network, made, settings, Diagnostics()) if point.kept else made

    def cost(self, point: Point) -> Optional[Cost]:
        """Cost; None for an impossible point: it names something missing, or contradicts itself."""
        if point not in self._costs:
            self._remembering.check_time()
            try:
                self._costs[point] = cost_of(self._decision(point))
            except UserError as error:
                self._costs[point], self._impossible[point] = None, error
        return self._costs[point]

    def check(self, point: Point) -> None:
        """Raises the UserError that makes a point impossible, if there is one."""
        if self.cost(point) is None:
            raise self._impossible[point]

    def _network(self, point: Point) -> ImplicitNetwork:
        """Network of a possible point."""
        return ImplicitNetwork.of(self._prepared(point).sketch(self._decision(point), point.options(self.base)))

    def _model(self, point: Point) -> tuple[onnx.ModelProto, str]:
        if point not in self._simulated:
            model = simulate(self._network(point), self._simulation, types=self._prepared(point).network.types).model
            self._simulated = {point: (model, pack(model).digest)}
        return self._simulated[point]

    def identity(self, point: Point) -> str:
        """Equal for points whose networks compute the same."""
        return self._model(point)[1]

    def measure(self, point: Point, most: float) -> Measured:
        """Translate and measure a point, or take its row of the journal. most: a drop beyond which the score is of no
        interest. Raises UserError."""
        model, digest = self._model(point)
        key = f"{self.meter.samples.digest} {digest}"
        row, before = self._journal.get(f"measured {key}", ((), most))
        measured = Measured(*row) if row else None
        if measured is not None and (measured.complete or before == most):
            self._remembering.runs += measured.samples / self.meter.samples.batch
            return measured
        measured = self.meter.measure(model, most)
        self._journal[f"measured {key}"] = dataclasses.astuple(measured), most
        return measured

    def measured(self, made: Translation) -> Measured:
        """The measurement of a translation, as it will be written, on all samples."""
        model = simulate(ImplicitNetwork.of(made), self._simulation).model
        return self.meter.measure(model, math.inf)

    def again(self, point: Point, meter: Meter) -> Measured:
        """The measurement of a point on all samples of another meter."""
        model, key = self._model(point)
        kept = f"{meter.samples.digest} {key}"
        return Measured(
            *self._remembering.remembered(kept, lambda: dataclasses.astuple(meter.measure(model, math.inf)))
        )

    def layers(self, point: Point) -> list[str]:
        """Names of the point's INT8 layers that `--keep_fp16` can name, in graph order."""
        plan = self._decision(Point(point.changes)).plan
        return [row.name for row in plan if row.precision == INT8 and is_expressible(row.name)]

    def _account(self, point: Point) -> Account:
        if point not in self._accounts:
            few = self.meter.samples.some(ACCOUNT_RUNS)
            passes = ACCOUNT_PASSES * self.meter.samples.runs / few.runs
            where = dataclasses.replace(self._where, engine=self._remembering.fresh())
            judge = Judge(self._network(point), self._simulation, few, where=where)
            key = f"account {self.meter.samples.digest} {self.identity(point)}"
            self._accounts[point] = self._remembering.remembered(key, lambda: account(judge, passes=passes))
        return self._accounts[point]

    def sets(self, point: Point) -> list[tuple[tuple[str, ...], float]]:
        """Sets of layers with the share (0 to 1) of the output noise energy that each alone removes in FP16, largest
        first."""
        placement = placement_of(self._network(point), self._simulation)
        return [(one.layers, share) for one, share in self._account(point).candidates(placement.held)]

    def rankings(self) -> Iterator[Ranking]:
        """The account of each point that has one."""
        for point, found in self._accounts.items():
            yield Ranking(dict(point.changes), point.kept, found.row())


def cost_of(made: Any) -> Cost:
    """Milliseconds and shares of INT8 of a decision or a translation."""
    rows = [layer for layer in made.plan if layer.precision != "none"]
    on_gpu = {layer.name for layer in made.dla.fallbacks} if made.dla else set()
    int8 = [row for row in rows if row.precision == INT8]
    here = [row for row in int8 if row.name not in on_gpu]
    macs, total = (sum(row.macs or 0 for row in part) for part in (here, rows))
    ends = made.costs and made.costs.ends
    return Cost(ends and ends[0], len(on_gpu), macs / total if total else 1.0, len(rows) - len(int8))
