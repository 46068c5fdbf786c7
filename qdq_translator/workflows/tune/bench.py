"""Network, cost and measurements of a point."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Callable, Iterator, MutableMapping, Optional, Sequence

import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.formats.tune_rows import Cost, Loud, Measured, Ranking
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.workers.work import Engine, Work, pack
from qdq_translator.planning.placement import Placement
from qdq_translator.simulate.account import Account, Candidate, Judge, account
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, placement_of, simulate
from qdq_translator.targets.dla.limits import GPU
from qdq_translator.targets.precision import INT8
from qdq_translator.workflows.translator import Translation, translate
from qdq_translator.workflows.tune.journal import Journal
from qdq_translator.workflows.tune.meter import Meter
from qdq_translator.workflows.tune.points import Point

KEPT = 4
"""Networks that stay in memory."""
ACCOUNT_RUNS = 32
"""Of the network: the samples of the noise account."""
MOST_UNITS = 32
"""Units of layers that elimination returns to INT8 one by one."""


class Remembering(Engine):
    """An engine that caches results by request, except those that a cached one is made of. Calibration data are
    observed once for all points with the same request."""

    def __init__(self, engine: Engine, kept: MutableMapping[str, Any]) -> None:
        self._engine, self._kept, self._busy = engine, kept, False

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        return self._engine.parts(work, ranges)

    def remembered(self, key: Any, compute: Callable[[], Any]) -> Any:
        if self._busy:
            return compute()
        digest = pack(key).digest
        found = self._kept.get(digest, self)
        if found is self:
            self._busy = True
            try:
                self._kept[digest] = compute()
            finally:
                self._busy = False
            found = self._kept[digest]
        return found

    def run(
        self,
        work: Work,
        ranges: Sequence[range],
        progress: Callable[[int], None] = lambda done: None,
        watch: Callable[[Any], None] = lambda part: None,
    ) -> Any:
        return self.remembered((work, ranges), lambda: self._engine.run(work, ranges, progress, watch))


class Bench:
    """Points of one model: their networks, costs and measurements, read from the journal if possible. base: the options
    that points change. Raises UserError if the model itself is invalid."""

    def __init__(self, model: Path, base: TranslateOptions, meter: Meter, journal: Journal, where: Evaluation) -> None:
        self.model, self.base, self._meter, self._journal, self._where = model, base, meter, journal, where
        self._remembering = Remembering(where.engine, journal)
        self._simulation = dataclasses.replace(SimulationOptions.on(base.target), fp16=True)
        self._costs: dict[Point, Optional[Cost]] = {}
        self._networks: dict[Point, ImplicitNetwork] = {}
        self._accounts: dict[Point, Account] = {}
        self._simulated: dict[Point, tuple[onnx.ModelProto, str]] = {}
        """The simulated model of the last requested point, with its digest."""

    def translation(self, point: Point, try_more: bool = False) -> Translation:
        where = dataclasses.replace(self._where, engine=self._remembering)
        return translate(self.model, point.options(self.base), where=where, try_more=try_more)

    def plain(self, point: Point) -> Point:
        """The same point without changes that have no effect."""
        return point.plain(self.base)

    def cost(self, point: Point) -> Optional[Cost]:
        """Cost; None for an impossible point: it names something missing, or contradicts itself."""
        if point not in self._costs:
            try:
                translation = self.translation(point)
            except UserError:
                self._costs[point] = None
            else:
                self._costs[point] = cost_of(translation)
                self._networks[point] = ImplicitNetwork.of(translation)
                while len(self._networks) > KEPT:
                    del self._networks[next(iter(self._networks))]
        return self._costs[point]

    def _network(self, point: Point) -> ImplicitNetwork:
        """Network of a possible point."""
        if point not in self._networks:
            return ImplicitNetwork.of(self.translation(point))
        return self._networks[point]

    def _model(self, point: Point) -> tuple[onnx.ModelProto, str]:
        if point not in self._simulated:
            model = simulate(self._network(point), self._simulation).model
            self._simulated = {point: (model, pack(model).digest)}
        return self._simulated[point]

    def identity(self, point: Point) -> str:
        """Equal for points whose networks compute the same."""
        return self._model(point)[1]

    def measure(self, point: Point, most: float) -> Measured:
        """most: a drop beyond which the score is of no interest. Raises UserError."""
        model, key = self._model(point)
        row, before = self._journal.get(f"measured {key}", ((), most))
        if row and (Measured(*row).complete or before == most):
            return Measured(*row)
        measured = self._meter.measure(model, most)
        self._journal[f"measured {key}"] = dataclasses.astuple(measured), most
        return measured

    def again(self, point: Point, meter: Meter) -> Measured:
        """On all samples of another meter."""
        model, key = self._model(point)
        kept = f"{meter.samples.digest} {key}"
        return Measured(
            *self._remembering.remembered(kept, lambda: dataclasses.astuple(meter.measure(model, math.inf)))
        )

    def _judge(self, point: Point) -> Judge:
        few = self._meter.samples.some(ACCOUNT_RUNS)
        return Judge(self._network(point), self._simulation, few, where=self._where)

    def _noise(self, point: Point) -> float:
        key = f"noise {self.identity(point)}"
        return float(self._remembering.remembered(key, lambda: self._judge(point).noise))

    def removed(self, base: Point, point: Point) -> float:
        """The share of the noise energy of `base` at the outputs that `point` avoids."""
        left, whole = self._noise(point), self._noise(base)
        return 1 - left / whole if whole else 0.0

    def units(self, point: Point) -> list[tuple[str, ...]]:
        """Its INT8 layers in graph order, so many together that there are at most `MOST_UNITS`."""
        plan = self._network(point).plan
        layers = [row.name for row in plan if row.precision == INT8 and is_expressible(row.name)]
        size = -(-len(layers) // MOST_UNITS) or 1
        return [tuple(layers[first : first + size]) for first in range(0, len(layers), size)]

    def _account(self, point: Point) -> Account:
        if point not in self._accounts:
            key = f"account {self.identity(point)}"
            made = self._remembering.remembered(key, lambda: account(self._judge(point), everything=True))
            self._accounts[point] = made
        return self._accounts[point]

    def _placement(self, point: Point) -> Placement:
        return placement_of(self._network(point), self._simulation)

    def predicted(self, base: Point, point: Point) -> float:
        """Noise energy at the outputs by the account of `base`: the sum over all that `point` rounds."""
        return self._account(base).of(self._placement(point))

    def candidates(self, point: Point) -> list[tuple[Candidate, float]]:
        """Candidates with the share (0 to 1) of the output noise energy that each alone removes, largest first."""
        return self._account(point).candidates(self._placement(point))

    def rankings(self) -> Iterator[Ranking]:
        """The account of each point that has one, with the share of the noise energy that each candidate adds."""
        for point, found in self._accounts.items():
            loud = tuple(Loud(one.label, one.layers, share) for one, share in self.candidates(point))
            yield Ranking(dict(point.changes), point.kept, loud, found.row(found.of(self._placement(point))))


def cost_of(translation: Translation) -> Cost:
    rows = [layer for layer in translation.plan if layer.precision != "none"]
    verdicts = {} if translation.dla is None else {layer.name: layer.verdict for layer in translation.dla.layers}
    gpu = sum(verdict == GPU for verdict in verdicts.values())
    total = sum(row.macs or 0 for row in rows)
    int8 = sum(row.macs or 0 for row in rows if row.precision == INT8 and verdicts.get(row.name) != GPU)
    time = None if translation.costs is None else translation.costs.milliseconds
    return Cost(time, gpu, int8 / total if total else 1.0, sum(row.precision != INT8 for row in rows))
