"""The search: hand-picked points, FP16 sets from sensitivities, then single changes.

1. Points that users usually choose by hand, and all layers in FP16, are measured, so that the result is never worse
   than the best of them.
2. Starting from the cheapest of them that lose too much, all layers are set to FP16 and returned to INT8 one by one, in
   the order of the noise energy that each adds for the milliseconds that it saves (`simulate.account`). The cheapest
   set on this way that holds is found by bisection; then single layers are returned as long as the metric holds. With a
   budget of milliseconds the last sets on the way that it has room for are measured.
3. Local search: drop, add or swap a candidate of the account, or change an option; points
   that cost more than the best one are not measured. Random numbers come from a seed, and nothing depends on the clock.

With a budget of milliseconds the metric is optimized, and the estimate must stay within the budget.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from qdq_translator.core.formats.tune_rows import FP16, Cost, Goal, Measured, Tuned
from qdq_translator.workflows.tune.bench import Bench
from qdq_translator.workflows.tune.points import Point

REPAIRED = 2
"""Starting points that get FP16 sets."""
NEAR, PROPOSED = 4, 3
"""How many units elimination looks at in each step, and how many sets it proposes for a budget of milliseconds."""
ELIMINATED = "all layers in FP16, but those that cost least noise"
RESERVED = 8
"""Evaluations that are left for FP16 sets."""
ADDED = 12
"""Number of candidates, the best ones, that the local search may add."""
IDLE = 60
"""Moves in a row that are not worth a measurement, after which the local search ends."""
TIED_MS = 1e-6


@dataclass(frozen=True)
class Evaluated:
    """why: search step that found the point."""

    point: Point
    cost: Cost
    measured: Measured
    why: str

    def row(self, held_out: Optional[Measured] = None) -> Tuned:
        """Of the file."""
        return Tuned(self.why, dict(self.point.changes), self.point.kept, self.cost, self.measured, held_out)


@dataclass(frozen=True)
class Step:
    """A set of units in FP16. noise: predicted."""

    point: Point
    units: tuple[tuple[str, ...], ...]
    cost: Cost
    noise: float


class Search:
    """limit: evaluations, at most. report: called with each that is new, the best one so far and how many there are."""

    def __init__(
        self,
        bench: Bench,
        goal: Goal,
        moves: Sequence[dict[str, Any]],
        seed: int,
        limit: int,
        report: Callable[[Evaluated, Optional[Evaluated], int], None] = lambda found, best, count: None,
    ) -> None:
        self._bench, self._goal, self._moves = bench, goal, moves
        self._random, self._limit, self._report = random.Random(seed), limit, report
        self.found: dict[Point, Evaluated] = {}
        self.additivity: list[tuple[int, float, float]] = []
        """For an FP16 set: number of units, predicted and actual share of the noise energy that they remove together.
        """
        self._measured: dict[str, tuple[Measured, float]] = {}
        """Measurement of each network, with the drop beyond which it was of no interest."""

    @property
    def best(self) -> Optional[Evaluated]:
        """The best evaluation that meets the goal."""
        holding = [found for found in self.found.values() if self._goal.allows(found)]
        return min(holding, key=self._goal.rank, default=None)

    def run(self, starts: Sequence[Point]) -> None:
        first, *others = starts
        self._evaluate(first, "start")
        layers = [layer for unit in self._bench.units(first) for layer in unit]
        self._evaluate(Point.of(dict(first.changes), [*first.kept, *layers]), FP16)
        for point in others:
            if self.evaluations < self._limit - min(RESERVED, self._limit // 3):
                self._evaluate(point, "start")
        for base in self._repairable():
            self._eliminate(base)
        self._local()

    def _evaluate(self, point: Point, why: str) -> Optional[Evaluated]:
        """Evaluation of a point; None if it is impossible or the limit is reached."""
        if point in self.found:
            return self.found[point]
        cost = self._bench.cost(point)
        if cost is None:
            return None
        identity, most = self._bench.identity(point), self._most
        measured, before = self._measured.get(identity, (None, most))
        if measured is None and self.evaluations >= self._limit:
            return None
        if measured is None or not (measured.complete or before == most):
            measured = self._bench.measure(point, most)
            self._measured[identity] = measured, most
        found = self.found[point] = Evaluated(point, cost, measured, why)
        self._report(found, self.best, self.evaluations)
        return found

    @property
    def evaluations(self) -> int:
        """Networks that were measured: points whose networks compute the same are one."""
        return len(self._measured)

    @property
    def _most(self) -> float:
        """The drop beyond which a point is of no interest."""
        best = self.best if self._goal.budget_ms is not None else None
        return self._goal.most if best is None else min(best.measured.drop, self._goal.most)

    # ---------------------------------------------------------------- FP16 sets

    def _repairable(self) -> list[Evaluated]:
        """The cheapest points that could be better than the best one with some layers in FP16."""
        best = self.best
        rows = [found for found in self.found.values() if self._goal.affords(found.cost)]
        if self._goal.budget_ms is None:
            rows = [found for found in rows if not self._goal.allows(found)]
            if best is not None:
                rows = [found for found in rows if found.cost.key < best.cost.key]
        rows.sort(key=lambda found: (found.cost.key, found.measured.drop))
        chosen: list[Evaluated] = []
        for found in rows:
            if all(found.cost.key != other.cost.key for other in chosen):
                chosen.append(found)
        return chosen[:REPAIRED]

    def _eliminate(self, base: Evaluated) -> None:
        """Backward elimination: starting with all layers in FP16, return units to INT8. Next is the unit of least noise
        for the time saved (account, estimate). Search the cheapest set that holds on this way; then single units."""
        steps = self._steps(base.point, self._bench.units(base.point))
        front: list[Step] = []
        for step in sorted(steps, key=lambda step: (step.cost.key, step.noise)):
            if not front or step.noise < front[-1].noise:
                front.append(step)
        chosen = self._within_budget(front) if self._goal.budget_ms is not None else self._cheapest(base, front)
        predicted = self._bench.predicted(base.point, base.point)
        if chosen is not None and chosen.units and predicted > 0:
            removed = self._bench.removed(base.point, chosen.point)
            self.additivity.append((len(chosen.units), 1 - chosen.noise / predicted, removed))

    def _within_budget(self, front: Sequence[Step]) -> Optional[Step]:
        within = [step for step in front if self._goal.affords(step.cost)][-PROPOSED:]
        for step in within:
            self._evaluate(step.point, ELIMINATED)
        return within[-1] if within else None

    def _cheapest(self, base: Evaluated, front: Sequence[Step]) -> Optional[Step]:
        low, high = -1, len(front) - 1
        found = self._evaluate(front[high].point, ELIMINATED) if front else None
        if found is None or not self._goal.allows(found):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            found = self._evaluate(front[middle].point, ELIMINATED)
            if found is None:
                return None
            low, high = (low, middle) if self._goal.allows(found) else (middle, high)
        return self._thin(base.point, front[high])

    def _steps(self, base: Point, units: Sequence[tuple[str, ...]]) -> list[Step]:
        """Steps of the elimination, all units in FP16 first."""
        kept = list(units)
        at = self._step(base, kept)
        steps = [at] if at is not None else []
        worth = dict.fromkeys(kept, (0, 0.0))
        while at is not None and kept:
            rows = []
            for unit in sorted(kept, key=lambda one: worth[one])[:NEAR] if len(steps) > 1 else kept:
                step = self._step(base, [other for other in kept if other is not unit])
                if step is not None:
                    saved, added = _dearer(at.cost, step.cost), step.noise - at.noise
                    worth[unit] = (0, added / saved) if saved > TIED_MS else (1, added)
                    rows.append((worth[unit], unit, step))
            if not rows:
                break
            _, gone, at = min(rows, key=lambda row: row[0])
            kept = [other for other in kept if other is not gone]
            steps.append(at)
        return steps

    def _step(self, base: Point, units: Sequence[tuple[str, ...]]) -> Optional[Step]:
        point = _kept(base, units)
        cost = self._bench.cost(point)
        return None if cost is None else Step(point, tuple(units), cost, self._bench.predicted(base, point))

    def _thin(self, base: Point, step: Step) -> Step:
        """Return single units to INT8, largest savings first, as long as the metric holds."""
        units = step.units
        tried: set[tuple[str, ...]] = set()
        while True:
            point, unit = self._cheaper(base, units, tried)
            found = self._evaluate(point, ELIMINATED) if unit else None
            if found is None:
                return (self._step(base, units) if units != step.units else None) or step
            tried.add(unit)
            if self._goal.allows(found):
                units = tuple(one for one in units if one is not unit)

    def _cheaper(
        self, base: Point, units: Sequence[tuple[str, ...]], tried: set[tuple[str, ...]]
    ) -> tuple[Point, tuple[str, ...]]:
        """The cheapest point that has one unit less and costs less than the best one, and this unit; () if there is
        none. tried: units that stay.
        """
        best, rows = self.best, []
        for unit in (unit for unit in units if unit not in tried):
            point = _kept(base, [one for one in units if one is not unit])
            cost = self._bench.cost(point)
            if cost is not None and best is not None and cost.key < best.cost.key:
                rows.append((cost.key, point, unit))
        return min(rows, key=lambda row: row[0])[1:] if rows else (base, ())

    # ---------------------------------------------------------------- single changes

    def _local(self) -> None:
        """Search from the best point, or from the one that loses least; accept each new best."""
        idle = 0
        while idle < IDLE and self.evaluations < self._limit and self.found:
            current = self.best or min(self.found.values(), key=self._goal.rank)
            proposal = self._proposal(current)
            idle += 1
            if proposal is None:
                continue
            point, why = self._bench.plain(proposal[0]), proposal[1]
            cost = self._bench.cost(point) if point not in self.found else None
            if cost is None or not self._promising(cost, current):
                continue
            before = self.evaluations
            self._evaluate(point, why)
            if self.evaluations > before:
                idle = 0

    def _promising(self, cost: Cost, current: Evaluated) -> bool:
        if not self._goal.affords(cost):
            return False
        return self._goal.budget_ms is not None or not self._goal.allows(current) or cost.key <= current.cost.key

    def _proposal(self, current: Evaluated) -> Optional[tuple[Point, str]]:
        point, kind = current.point, self._random.choice(("options", "drop", "add", "swap"))
        if kind == "options":
            return (point.moved(**self._random.choice(self._moves)), "option") if self._moves else None
        kept = self._other_set(point, kind)
        return None if kept is None else (Point.of(dict(point.changes), kept), kind)

    def _other_set(self, point: Point, kind: str) -> Optional[set[str]]:
        """FP16 layers with a candidate less ('drop'), more ('add') or another ('swap'); None if there is none."""
        layers = [c.layers for c, share in self._bench.candidates(Point(point.changes)) if share > 0]
        inside = [row for row in layers if point.includes(row)]
        outside = [row for row in layers[:ADDED] if not point.includes(row)]
        out = self._random.choice(inside) if inside and kind != "add" else None
        into = self._random.choice(outside) if outside and kind != "drop" else None
        if out is None and into is None:
            return None
        odd = set(point.kept).difference(*inside)
        if out is not None:
            inside.remove(out)
        return odd.union(into or (), *inside)


def _kept(base: Point, units: Sequence[Sequence[str]]) -> Point:
    """With the layers of these units in FP16 too."""
    return Point.of(dict(base.changes), [*base.kept, *(layer for unit in units for layer in unit)])


def _dearer(cost: Cost, than: Cost) -> float:
    """Milliseconds more, or without an estimate the share of MACs that leaves INT8."""
    if cost.milliseconds is not None and than.milliseconds is not None:
        return cost.milliseconds - than.milliseconds
    return than.int8_macs - cost.int8_macs


def pareto(found: Sequence[Evaluated]) -> list[Evaluated]:
    """Measured on everything, and no other is as cheap and better: cheapest first."""
    front: list[Evaluated] = []
    complete = [one for one in found if one.measured.complete]
    for one in sorted(complete, key=lambda one: (one.cost.key, one.measured.drop)):
        if not front or one.measured.drop < front[-1].measured.drop:
            front.append(one)
    return front
