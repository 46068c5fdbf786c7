"""The search for lost accuracy: first the budget, then time.

1. The options as given are measured. Then each proposal (`points.proposals`) on top of those that were accepted: a
   proposal is measured only if it can be the answer, that is if it costs less than the best point that holds, or, as
   long as none holds, if it costs at most `SLOWER` more. It is accepted for less noise at the outputs, on samples that
   nothing was fitted to.
2. If no point holds, layers go to FP16: in order of the noise energy that they remove for the milliseconds that they
   add (`simulate.account` and the estimate). The shortest part of this order that holds is found by doubling and
   bisection; then each set of layers that the others make unnecessary returns to INT8, the dearest first.

3. If all layers in FP16 do not hold, some of its values are too large or too small for FP16: step 2 again, with FP32 in
   place of FP16 on the GPU.

With a budget of milliseconds the order ends where the budget does, and the metric is optimized. Nothing depends on
random numbers, and on the clock only that a search ends when its time is over: cost is counted in passes of the network
over the samples.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Iterator, Optional, Sequence

from qdq_translator.core.formats.tune_rows import FP16, Cost, Goal, Measured, Tuned
from qdq_translator.core.formats.verify_rows import Cure
from qdq_translator.core.words import counted
from qdq_translator.lab.tune.bench import Bench, OutOfTime
from qdq_translator.lab.tune.points import Point, Proposal

START, PROPOSED, KEPT = "start", "proposal", "most noise for the time in FP16"
WIDE = {"float_type": "fp32"}
LEAST_GAIN = 10 ** (-0.3 / 10)
"""Noise energy of a proposal, relative to that without it, above which it gains nothing (0.3 dB)."""
SLOWER = 1.02
MOST_SETS = 64
"""Candidates of the account that are priced."""
MOST_RETURNED = 8
"""Sets of layers that are tried in INT8 again."""
RESERVED = 10
"""Passes left for layers in FP16."""
TIED_MS = 1e-6
LAYER = 1e-3
"""Time of a layer without MACs, as a share of all MACs."""


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """A point with its cost and score. why: search step that found it."""

    point: Point
    cost: Cost
    measured: Measured
    why: str

    def row(self, held_out: Optional[Measured] = None) -> Tuned:
        """The evaluation as NAME_tune.json has it."""
        return Tuned(self.why, dict(self.point.changes), self.point.kept, self.cost, self.measured, held_out)


class Search:
    """The search for the best point. limit: passes, at most. report: called with each evaluation that is new, and the
    best one so far."""

    def __init__(
        self,
        bench: Bench,
        goal: Goal,
        limit: float,
        report: Callable[[Evaluated, Optional[Evaluated]], None] = lambda found, best: None,
    ) -> None:
        self._bench, self._goal, self._limit, self._report = bench, goal, limit, report
        self.found: dict[Point, Evaluated] = {}
        self._measured: dict[str, Measured] = {}
        self.interrupted = False

    @property
    def evaluations(self) -> int:
        """Networks that were measured: points whose networks compute the same are one."""
        return len(self._measured)

    @property
    def best(self) -> Optional[Evaluated]:
        """The best evaluation that meets the goal."""
        holding = [found for found in self.found.values() if self._goal.allows(found)]
        return min(holding, key=self._goal.rank, default=None)

    @property
    def chosen(self) -> Evaluated:
        """The best evaluation, or if none meets the goal the one that comes closest."""
        return min(self.found.values(), key=self._goal.rank)

    def run(self, proposals: Sequence[Proposal]) -> None:
        """An interrupt (Ctrl-C) or the end of the time ends the search with what was found, if anything was. Raises
        UserError if the options as given are impossible."""
        try:
            current = self._evaluate(Point(), START)
            if current is None:
                self._bench.check(self._bench.plain(Point()))
            for proposal in proposals if current is not None else ():
                assert current is not None
                current = self._proposed(current, proposal)
            if current is not None and (self.best is None or self._goal.budget_ms is not None):
                self._keep(current)
        except (KeyboardInterrupt, OutOfTime):
            if not self.found:
                raise
            self.interrupted = True

    def _evaluate(self, point: Point, why: str, passes: float = 1.0) -> Optional[Evaluated]:
        """The evaluation of a point; None if it is impossible or the passes are used up."""
        point = self._bench.plain(point)
        if point in self.found:
            return self.found[point]
        if self._measured and self._bench.passes + passes > self._limit:
            return None
        cost = self._bench.cost(point)
        if cost is None:
            return None
        identity = self._bench.identity(point)
        if identity not in self._measured:
            self._measured[identity] = self._bench.measure(point, self._goal.most)
        found = self.found[point] = Evaluated(point, cost, self._measured[identity], why)
        self._report(found, self.best)
        return found

    def _proposed(self, current: Evaluated, proposal: Proposal) -> Evaluated:
        """The point to go on from: with the proposal, if that is better."""
        point = self._bench.plain(current.point.moved(proposal.changes))
        if point == current.point or not self._may_gain(point, current, proposal.passes):
            return current
        found = self._evaluate(point, PROPOSED)
        if found is None:
            return current
        if self._is_settled:
            return found if self._goal.allows(found) else current
        gains = found.measured.noise <= LEAST_GAIN * current.measured.noise
        return found if gains or (self._goal.allows(found) and not self._goal.allows(current)) else current

    @property
    def _is_settled(self) -> bool:
        """The goal is met, and only time is left to gain."""
        return self.best is not None and self._goal.budget_ms is None

    def _may_gain(self, point: Point, current: Evaluated, passes: float) -> bool:
        """Whether there are passes for a point, and its cost allows that it is the answer."""
        reserved = 0.0 if self._is_settled else min(RESERVED, self._limit / 3)
        if self._bench.passes + passes > self._limit - reserved or (self._is_settled and passes > 1):
            return False
        cost, best = self._bench.cost(point), self.best
        if cost is None or not self._goal.affords(cost) or not _is_as_fast(cost, current.cost):
            return False
        return best is None or not self._is_settled or cost.key < best.cost.key

    # ---------------------------------------------------------------- FP16 layers

    def _keep(self, base: Evaluated) -> None:
        """Step 2 of the module."""
        order = self._ordered(base)
        if not order:
            self._widen(base)
            return
        if self._goal.budget_ms is not None:
            self._within_budget(base.point, order)
            return
        low, high = 0, 1
        while not self._holds(base.point, order[:high]):
            if high == len(order):
                self._widen(base)
                return
            low, high = high, min(2 * high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds(base.point, order[:middle]) else (middle, high)
        self._return(base.point, order[:high])

    def _widen(self, base: Evaluated) -> None:
        """Step 3 of the module."""
        point = self._bench.plain(base.point.moved(WIDE))
        wide = None if point == base.point else self._evaluate(point, PROPOSED)
        if wide is not None and not self._goal.allows(wide):
            self._keep(wide)

    def _ordered(self, base: Evaluated) -> list[tuple[str, ...]]:
        """Sets of layers, the one that removes most noise for its time first; the last holds all others."""
        rows = []
        for layers, noise in self._bench.sets(base.point)[:MOST_SETS]:
            cost = self._bench.cost(base.point.with_kept(layers))
            if cost is not None and cost.gpu_layers <= base.cost.gpu_layers:
                rows.append((noise / max(dearer(cost, base.cost), TIED_MS), layers))
        order = [layers for _, layers in sorted(rows, key=lambda row: -row[0])]
        rest = set(self._bench.layers(base.point)).difference(*order)
        return [*order, tuple(sorted(rest))] if rest else order

    def _holds(self, base: Point, order: Sequence[Sequence[str]]) -> bool:
        """Whether the point with these layers in FP16 meets the goal; False too if it was not measured."""
        point = base.with_kept(layer for layers in order for layer in layers)
        everything = len(point.kept) >= len(self._bench.layers(base))
        found = self._evaluate(point, FP16 if everything else KEPT)
        return found is not None and self._goal.allows(found)

    def _within_budget(self, base: Point, order: Sequence[Sequence[str]]) -> None:
        """Measures as many sets of the order as the budget of milliseconds allows, without those that do not fit, and
        half of them."""
        kept: list[Sequence[str]] = []
        for layers in order:
            cost = self._bench.cost(base.with_kept(layer for row in (*kept, layers) for layer in row))
            if cost is not None and self._goal.affords(cost):
                kept.append(layers)
        for size in sorted({len(kept), (len(kept) + 1) // 2}, reverse=True):
            self._holds(base, kept[:size])

    def _return(self, base: Point, order: Sequence[Sequence[str]]) -> None:
        """Returns sets of layers to INT8, the dearest first, as long as the goal is met."""
        kept = list(order)
        for layers in sorted(order[:-1], key=lambda row: self._added(base, row), reverse=True)[:MOST_RETURNED]:
            others = [other for other in kept if other is not layers]
            if self._holds(base, others):
                kept = others

    def _added(self, base: Point, layers: Sequence[str]) -> float:
        with_layers, without = self._bench.cost(base.with_kept(layers)), self._bench.cost(base)
        return dearer(with_layers, without) if with_layers is not None and without is not None else math.inf

    # ---------------------------------------------------------------- what it shows

    def cures(self) -> Iterator[Cure]:
        """What was measured on the way to the chosen point, relative to the options as given: the accepted proposals
        and the layers in FP16."""
        first, chosen = self.found.get(Point(), self.chosen), self.chosen
        on_the_way = [found for found in self.found.values() if found.why == PROPOSED and found is not chosen]
        on_the_way = [found for found in on_the_way if _is_on_the_way(found.point, chosen.point)]
        for one in (*on_the_way, *([chosen] if chosen is not first else [])):
            what = " and ".join(
                [*(_WORDS.get(name, "--{name}").format(name=name, value=value) for name, value in one.point.changes)]
                + ([f"{counted(len(one.point.kept), 'layer')} in FP16"] if one.point.kept else [])
            )
            time = None
            if one.cost.milliseconds is not None and first.cost.milliseconds is not None:
                time = one.cost.milliseconds - first.cost.milliseconds
            gain = first.measured.drop - one.measured.drop
            yield Cure(what, dict(one.point.changes), one.point.kept, gain, time, one.cost.int8_macs, one is chosen)


_WORDS = {
    "equalize": "equalized channels",
    "float_type": "FP32 instead of FP16",
    "calibrate_method": "ranges by {value}",
    "recalibrate": "ranges of the data instead of the model's",
    "unify_scales": "shared ranges by {value}",
    "dla_rewrites": "rewrites for the DLA",
}


def _is_on_the_way(point: Point, to: Point) -> bool:
    return set(point.changes) <= set(to.changes) and set(point.kept) <= set(to.kept)


def _is_as_fast(cost: Cost, than: Cost) -> bool:
    """Whether it costs at most `SLOWER` times as much."""
    if cost.gpu_layers != than.gpu_layers:
        return cost.gpu_layers < than.gpu_layers
    if cost.milliseconds is not None and than.milliseconds is not None:
        return cost.milliseconds <= SLOWER * than.milliseconds
    return cost.int8_macs >= than.int8_macs - (SLOWER - 1)


def dearer(cost: Cost, than: Cost) -> float:
    """Milliseconds more, or without an estimate the share of MACs that leaves INT8, and a little for each layer."""
    if cost.milliseconds is not None and than.milliseconds is not None:
        return cost.milliseconds - than.milliseconds
    return than.int8_macs - cost.int8_macs + LAYER * (cost.higher_layers - than.higher_layers)


def pareto(found: Sequence[Evaluated]) -> list[Evaluated]:
    """The points measured on all samples than which no other is as cheap and better, cheapest first."""
    front: list[Evaluated] = []
    complete = [one for one in found if one.measured.complete]
    for one in sorted(complete, key=lambda one: (one.cost.key, one.measured.drop)):
        if not front or one.measured.drop < front[-1].measured.drop:
            front.append(one)
    return front
