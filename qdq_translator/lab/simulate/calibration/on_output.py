"""`--calibrate_method output`: start from the ranges of `mse` and move them to the least error of the outputs.

The range with the least squared error of a tensor weights all its values alike. To the layers after it some values
matter more, and clipping errors, which have one sign, add up, while rounding errors cancel. So this is a coordinate
search on the simulated network, all in INT8:

1. A coordinate is a set of tensors whose scales follow from one another (`Origin.source`), or that share one range on a
   DLA. Sets with a scale of the model are not moved without `--recalibrate`, which gives them two starts, their own
   scale and that of the data. All scales of a set change by one factor, so that every rule between them still holds.
2. Only the `MOST_SETS` sets are moved whose rounding adds most noise to the outputs. Each round tries each of them one
   step up, one step down and at its other start. Moves that lower the noise energy at the outputs by more than its
   standard error over the samples are applied together, or the better half of them if all together gain nothing. Other
   sets wait for the next step size (STEPS).
3. A round is kept if the noise also falls by SURE standard errors on samples that no move was chosen on.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.lab.simulate.account import Judge, Targets
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, copy_model
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import finite_or_none, noise_to_db
from qdq_translator.lab.simulate.segments import Change
from qdq_translator.translation.ir.graph import Graph

RULE = "K1"
STEPS = (2.0**0.5, 2.0**0.25)
ROUNDS = 2
"""Rounds per step size."""
MOST_SETS, LOUD_RUNS, TRIED = 12, 2, 32
"""Sets that are moved, runs on which they are chosen, and groups of sets that are tried for it at a time."""
NARROWEST, WIDEST = 0.5, 4.0
"""Limits of a range, relative to its start."""
MOST_RUNS, LEAST_RUNS = 16, 4
SURE = 1.0
_Scales = Dict[str, float]


class Found(NamedTuple):
    """The result of the search for the least error of the outputs. factors: one per set. before_db, after_db: SQNR (sum
    over the outputs) on samples that no move was chosen on; NaN if there were too few."""

    factors: List[float]
    before_db: float = math.nan
    after_db: float = math.nan

    def report(self, diagnostics: Diagnostics) -> None:
        moved = sum(factor != 1 for factor in self.factors)
        text = (
            f"--calibrate_method output tried {len(self.factors)} ranges and moved none: nothing gains "
            "on samples held out."
        )
        if moved:
            gain = f"{self.before_db:.1f} to {self.after_db:.1f} dB on samples held out"
            text = (
                f"--calibrate_method output moved {moved} of {len(self.factors)} ranges: {gain}, simulated all in INT8."
            )
        elif math.isnan(self.before_db):
            text = f"--calibrate_method output needs {LEAST_RUNS} samples or more; the ranges are those of mse."
        diagnostics.info(
            RULE,
            text,
            data={
                "moved": moved,
                "before_db": finite_or_none(self.before_db),
                "after_db": finite_or_none(self.after_db),
            },
        )


def search(
    graph: Graph,
    scales: _Scales,
    precisions: Dict[str, str],
    sets: Sequence[Sequence[str]],
    others: Sequence[float],
    samples: Samples,
    options: SimulationOptions,
    where: Evaluation = HERE,
) -> Found:
    """Search one factor per set. graph: float, not changed. scales: of all its tensors. precisions: of layers above
    INT8. sets: names of tensors that move together. others: second starting factor of each set, in addition to 1."""
    samples = samples.some(MOST_RUNS)
    if samples.runs < LEAST_RUNS or not sets:
        return Found([1.0] * len(sets))
    model = graph.to_model()
    key = "output", model, sorted(scales.items()), precisions, sets, others, samples, options
    network = ImplicitNetwork(model, scales, precisions, frozenset())
    return Found(*where.engine.remembered(key, lambda: _Search(network, sets, others, samples, options, where).run()))


class _Search:
    def __init__(
        self,
        network: ImplicitNetwork,
        sets: Sequence[Sequence[str]],
        others: Sequence[float],
        samples: Samples,
        options: SimulationOptions,
        where: Evaluation,
    ) -> None:
        halves = [samples.chosen(list(range(first, samples.runs, 2))) for first in (0, 1)]
        self._fit, self._held_out = (Judge(network, options, half, where=where) for half in halves)
        self._base = self._fit.simulated({})
        self._targets = Targets(self._base, Graph.from_model(copy_model(network.model)))
        self._sets, self._others = sets, others
        held = self._base.placement.held.keys()
        self._known = [i for i, names in enumerate(sets) if not held.isdisjoint(names)]

    def run(self) -> Found:
        factors = [1.0] * len(self._sets)
        starts = [factors, *([[*self._others]] if any(other != 1 for other in self._others) else [])]
        before = self._noise(self._held_out, starts, factors)
        if (
            len(starts) > 1
            and is_less(before[1], before[0])
            and is_less(*self._noise(self._fit, starts[::-1], factors))
        ):
            factors = starts[1]
        loud = self._loudest(factors)
        for step in STEPS:
            tried = loud
            for _ in range(ROUNDS):
                tried, factors = self._round(factors, tried, step)
        (after,) = self._noise(self._held_out, [factors], factors)
        return Found(factors, noise_to_db(before[0].mean()), noise_to_db(after.mean()))

    def _loudest(self, factors: list[float]) -> set[int]:
        """The sets whose rounding adds most noise. Of a network with many sets, neighbours are first measured together,
        so that it costs at most 2 * `TRIED` trials."""
        fit = self._fit
        few = Judge(fit.network, fit.options, fit.samples.some(LOUD_RUNS), types=fit.types, where=fit.where)
        size = -(-len(self._known) // TRIED)
        groups = [self._known[first : first + size] for first in range(0, len(self._known), size or 1)]
        if size > 1:
            loud = self._louder(few, factors, groups)[: TRIED // size + 1]
            groups = [[one] for group in loud for one in group]
        return {one for group in self._louder(few, factors, groups)[:MOST_SETS] for one in group}

    def _louder(self, judge: Judge, factors: list[float], groups: list[list[int]]) -> list[list[int]]:
        """Groups of sets whose rounding together adds noise, most first."""
        freed = [_moved(factors, [(one, math.inf) for one in group]) for group in groups]
        now, *found = self._noise(judge, [factors, *freed], factors).mean(axis=1).tolist()
        gains = sorted(zip((noise - now for noise in found), range(len(groups))))
        return [groups[place] for gain, place in gains if gain < 0]

    def _round(self, factors: list[float], sets: set[int], step: float) -> tuple[set[int], list[float]]:
        """Sets that moved, and all factors after the round."""
        moves = [(i, to) for i in sorted(sets) for to in self._tried(factors[i], self._others[i], step)]
        now, *found = self._noise(self._fit, [factors, *(_moved(factors, [move]) for move in moves)], factors)
        gains = {move: float((now - noise).mean()) for move, noise in zip(moves, found) if is_less(noise, now)}
        better = sorted(gains, key=lambda move: -gains[move])
        better = [move for n, move in enumerate(better) if move[0] not in {i for i, _ in better[:n]}]
        (held_out,) = self._noise(self._held_out, [factors], factors) if better else (now,)
        while better:
            moved = _moved(factors, better)
            (noise,), (other,) = (self._noise(judge, [moved], factors) for judge in (self._fit, self._held_out))
            if is_less(noise, now) and is_less(other, held_out):
                return {i for i, _ in better}, moved
            better = better[: len(better) // 2]
        return set(), factors

    def _tried(self, factor: float, other: float, step: float) -> list[float]:
        low, high = NARROWEST * min(1.0, other), WIDEST * max(1.0, other)
        steps = [factor * way for way in (step, 1 / step) if low <= factor * way * 1.001 <= high * 1.002]
        return [*steps, *sorted({1.0, other} - {factor})]

    def _noise(self, judge: Judge, trials: Sequence[list[float]], ground: list[float]) -> np.ndarray:
        """(trials, runs)."""
        return judge.noises(self._base.model, [self._change(factors) for factors in trials], self._change(ground))

    def _change(self, factors: list[float]) -> Change:
        base, held = self._base, dict(self._base.placement.held)
        for names, factor in zip(self._sets, factors):
            held.update((name, float(np.float32(held[name] * factor))) for name in names if name in held)
        scales = {base.read[name]: scale for name, scale in held.items() if scale < math.inf}
        scales.update({base.wide[read]: scale for read, scale in list(scales.items()) if read in base.wide})
        return Change(self._targets.all.tensors, {}, scales)


def _moved(factors: list[float], moves: Sequence[tuple[int, float]]) -> list[float]:
    now = dict(moves)
    return [now.get(i, factor) for i, factor in enumerate(factors)]


def is_less(noise: np.ndarray, than: np.ndarray) -> bool:
    """Whether the noise is less by more than SURE standard errors of the paired differences."""
    gain = than - noise
    return bool(gain.mean() > (SURE * gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else 0))
