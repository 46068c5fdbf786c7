"""Work for the processes of tests/test_workers.py, which each import this module and so little else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.workers.work import Work

if TYPE_CHECKING:
    from qdq_translator.lab.simulate.inputs import Samples


class Floats(Work):
    """A sum that depends on the order of its parts, and who computed them. die: the run at which a worker ends itself, once
    for each line that `deaths` may still get."""

    def __init__(self, die: int = -1, deaths: str = "", times: int = 0) -> None:
        self.die, self.deaths, self.times = die, deaths, times

    def open(self) -> Callable[[int], Any]:
        def part(run: int) -> tuple[float, set[int], int]:
            if run == self.die:
                file = Path(self.deaths)
                if len(file.read_text().splitlines()) < self.times:
                    with file.open("a") as written:
                        written.write("dead\n")
                    os.kill(os.getpid(), signal.SIGKILL)
            return float(np.random.default_rng(run).normal() * 10.0 ** (run % 17)), {os.getpid()}, 1

        return part

    def merge(self, total: Any, part: Any) -> Any:
        return total[0] + part[0], total[1] | part[1], total[2] + part[2]


class Refusing(Work):
    def open(self) -> Callable[[int], Any]:
        def part(run: int) -> int:
            if run in (40, 90):
                raise UserError(f"Run {run} is bad.", "Fix it.")
            return run

        return part

    def merge(self, total: int, part: int) -> int:
        return total + part


class Sum(Work):
    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def open(self) -> Callable[[int], float]:
        return lambda run: float(self.samples.feed(run)["x"].sum())

    def merge(self, total: float, part: float) -> float:
        return total + part


class Heavy(Work):
    """The sum of its weights, for every run."""

    def __init__(self, *weights: np.ndarray) -> None:
        self.weights = weights

    def open(self) -> Callable[[int], float]:
        return lambda run: float(run * sum(values.astype(np.float64).sum() for values in self.weights))

    def merge(self, total: float, part: float) -> float:
        return total + part
