"""The search on made-up networks, where the best set of layers can be found by trying all."""

from __future__ import annotations

import itertools
from typing import Optional

import numpy as np
import pytest

from qdq_translator.lab.tune.bench import Cost
from qdq_translator.lab.tune.meter import Measured
from qdq_translator.lab.tune.points import Point, Proposal
from qdq_translator.lab.tune.search import Evaluated, Goal, Search, pareto

LAYERS = 10


class Made:
    """Each layer adds noise in INT8 and milliseconds in FP16; the drop is the sum of what is left. The option `good` takes a
    tenth of all noise away, `bad` cannot be."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.noise = {f"l{i}": float(v) for i, v in enumerate(random.lognormal(0, 1.5, LAYERS))}
        self.time = {f"l{i}": float(v) for i, v in enumerate(random.uniform(0.1, 1.0, LAYERS))}
        self.measured = 0

    def plain(self, point: Point) -> Point:
        return Point.of({name: value for name, value in point.changes if value}, point.kept)

    def cost(self, point: Point) -> Optional[Cost]:
        if "bad" in dict(point.changes):
            return None
        time = 5.0 + sum(self.time[name] for name in point.kept)
        return Cost(round(time, 6), 0, 1 - len(point.kept) / LAYERS, len(point.kept))

    def drop(self, point: Point) -> float:
        left = sum(noise for name, noise in self.noise.items() if name not in point.kept)
        return left * (0.9 if dict(point.changes).get("good") else 1.0)

    def identity(self, point: Point) -> str:
        """The option `idle` changes nothing that is computed."""
        changes = tuple(change for change in point.changes if change[0] != "idle")
        return repr((changes, point.kept))

    def measure(self, point: Point, most: float) -> Measured:
        self.measured += 1
        drop = self.drop(point)
        return Measured(100 - drop, 100, True, drop, None, drop)

    @property
    def passes(self) -> float:
        return float(self.measured)

    def layers(self, point: Point) -> list[str]:
        return list(self.time)

    def sets(self, point: Point) -> list[tuple[tuple[str, ...], float]]:
        total = sum(self.noise.values())
        rows = [((name,), self.noise[name] / total) for name in self.time]
        return sorted(rows, key=lambda row: -row[1])

    def optimum(self, most: float) -> float:
        """Least time of all sets whose drop holds."""
        best = float("inf")
        for size in range(LAYERS + 1):
            for kept in itertools.combinations(self.noise, size):
                point = Point.of({"good": True}, kept)
                cost = self.cost(point)
                if cost is not None and cost.milliseconds is not None and self.drop(point) <= most:
                    best = min(best, cost.milliseconds)
        return best


class Shared(Made):
    """Layers of one shared range: each rounds what the others have rounded, so that freeing some of them gains nothing."""

    SET = ("l2", "l3", "l4", "l5")

    def __init__(self) -> None:
        super().__init__(0)
        self.noise = dict.fromkeys(self.noise, 0.01)
        self.time["l9"] = 9.0

    def drop(self, point: Point) -> float:
        together = 0.0 if set(self.SET) <= set(point.kept) else 5.0
        return super().drop(point) + together

    def sets(self, point: Point) -> list[tuple[tuple[str, ...], float]]:
        return [(layers, 0.002) for layers, _ in super().sets(point)]


def test_tensors_that_round_one_after_the_other_are_found() -> None:
    made = Shared()
    search = searched(made, Goal(1.0, None), limit=30)
    assert search.best is not None and search.best.cost.milliseconds is not None
    assert set(Shared.SET) <= set(search.best.point.kept)
    assert search.best.cost.milliseconds <= 5.0 + 1.1 * (made.optimum(1.0) - 5.0)


def test_everything_in_fp16_is_always_measured() -> None:
    search = searched(Made(1), Goal(1e-12, None), limit=8)
    assert search.best is not None and len(search.best.point.kept) == LAYERS


PROPOSALS = [Proposal({"bad": True}), Proposal({"good": True}), Proposal({"idle": True})]


def searched(made: Made, goal: Goal, limit: int = 120) -> Search:
    search = Search(made, goal, limit)  # type: ignore[arg-type]
    search.run(PROPOSALS)
    return search


@pytest.mark.parametrize("seed", range(8))
def test_it_comes_near_the_optimum(seed: int) -> None:
    made = Made(seed)
    most = 0.3 * sum(made.noise.values())
    search = searched(made, Goal(most, None))
    best = search.best
    assert best is not None and best.measured.drop <= most and best.cost.milliseconds is not None
    assert best.cost.milliseconds <= 5.0 + 1.15 * (made.optimum(most) - 5.0) + 1e-9
    assert search.evaluations == made.measured <= 120


def test_what_computes_the_same_is_measured_once() -> None:
    made = Made(3)
    search = searched(made, Goal(0.3 * sum(made.noise.values()), None))
    idle = [point for point in search.found if "idle" in dict(point.changes)]
    assert idle and made.measured == len({made.identity(point) for point in search.found}) < len(search.found)
    for point in idle:
        twin = Point(tuple(change for change in point.changes if change[0] != "idle"), point.kept)
        if twin in search.found:
            assert search.found[point].measured == search.found[twin].measured


def test_a_proposal_that_gains_is_a_cure_and_the_layers_come_after_it() -> None:
    made = Made(3)
    search = searched(made, Goal(0.3 * sum(made.noise.values()), None))
    *first, last = search.cures()
    assert [cure.changes for cure in first] == [{"good": True}] and first[0].milliseconds == 0
    assert first[0].gain == pytest.approx(0.1 * sum(made.noise.values()))
    assert last.applied and last.layers and last.gain > first[0].gain and last.milliseconds > 0
    assert last.words.startswith("--good and ") and "layer" in last.words


def test_nothing_more_is_measured_once_the_goal_holds() -> None:
    made = Made(0)
    search = searched(made, Goal(sum(made.noise.values()), None))
    assert made.measured == 1 and search.best is not None and search.best.point == Point()


def test_an_interrupt_leaves_the_best_found() -> None:
    class Interrupted(Made):
        def measure(self, point: Point, most: float) -> Measured:
            if self.measured == 4:
                raise KeyboardInterrupt
            return super().measure(point, most)

    made = Interrupted(1)
    search = searched(made, Goal(1e-12, None))
    assert search.interrupted and search.evaluations == 4
    assert search.chosen.measured.drop == min(found.measured.drop for found in search.found.values())
    made = Interrupted(1)
    made.measured = 4
    with pytest.raises(KeyboardInterrupt):
        searched(made, Goal(1.0, None))


def test_a_limit_of_evaluations_holds() -> None:
    made = Made(0)
    search = searched(made, Goal(0.1, None), limit=5)
    assert search.evaluations == made.measured == 5


def test_a_budget_of_milliseconds() -> None:
    made = Made(5)
    search = searched(made, Goal(None, 6.0))
    best = search.best
    assert best is not None and best.cost.milliseconds is not None and best.cost.milliseconds <= 6.0
    assert best.measured.drop < search.found[Point()].measured.drop
    assert all(
        found.measured.drop >= best.measured.drop for found in search.found.values() if Goal(None, 6.0).allows(found)
    )


def test_what_cannot_be_reached_is_not_said_to_hold() -> None:
    made = Made(2)
    made.noise["floor"] = 7.0  # no layer to keep it
    search = searched(made, Goal(1.0, None))
    assert search.best is None and search.found


def test_the_front() -> None:
    def point(ms: float, drop: float, complete: bool = True) -> Evaluated:
        return Evaluated(Point(), Cost(ms, 0, 1.0, 0), Measured(0, 1, complete, drop, None), "")

    rows = [point(1, 5), point(2, 3), point(2, 4), point(3, 3), point(4, 0), point(0.5, 1, complete=False)]
    assert pareto(rows) == [rows[0], rows[1], rows[4]]
