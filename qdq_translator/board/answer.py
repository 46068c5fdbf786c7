"""What a deployment ends in: yes or no, how fast, how accurate, why, and the next command."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path
from typing import NamedTuple, Optional, Sequence

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.verify_rows import BROKEN, EQUAL, SUSPICIOUS, Judged, MetricDrop, Outputs
from qdq_translator.core.words import counted, percent

_STAGES = ("explicit", "simulated")
ENOUGH = 300
"""Decisions that prove 99%, if all of them stay; with fewer, the proven share is printed."""
_Z = 1.6449
"""The normal quantile of 95%, one-sided."""


class Measured(NamedTuple):
    """The parts of a verification that decide."""

    verdict: Optional[Judged]
    failed: Sequence[str]
    outputs: Outputs
    metric: Optional[MetricDrop]
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the first screen of `deploy` answers. good: None if nothing was measured on data. scores: name -> value of
    the model as given and of what was written. decided, changed: clear decisions of the model, and those that the
    engine decides otherwise."""

    good: Optional[bool]
    verdict: str
    reason: str
    scores: dict[str, tuple[float, float]]
    decided: int
    changed: int
    next: str

    @property
    def words(self) -> str:
        return {True: "yes, it is good", False: "no, it is not good", None: "not measured"}[self.good]

    def accuracy(self) -> str:
        """The scores of the model and of the simulated engine, or the decisions that stay."""
        parts = [f"{name} {before:.4g} -> {after:.4g}" for name, (before, after) in self.scores.items()]
        if self.decided:
            same = percent(self.decided - self.changed, self.decided)
            few = f" (so few prove {proven(self.decided, self.changed):.0%}; more data prove more)"
            few = few if self.decided < ENOUGH else ""
            parts.append(f"{same} of {counted(self.decided, 'clear decision')} as your model{few}")
        return "; ".join(parts) or "no labels and no decisions: only the values were compared"


def proven(decided: int, changed: int) -> float:
    """The share of all decisions that stays with 95% confidence, 0 to 1: the lower end of E. B. Wilson's interval
    (Journal of the American Statistical Association 22, 1927). decided: at least 1."""
    share, square = 1 - changed / decided, _Z**2 / decided
    half = math.sqrt(square * share * (1 - share) + square**2 / 4)
    return (share + square / 2 - half) / (1 + square)


def answer(
    verification: Optional[Measured],
    data: Optional[str],
    repeat: Sequence[str],
    folder: Path,
    kept: Optional[str] = None,
) -> Answer:
    """The first screen's answer. verification: None if it was left out. repeat: words of the command, for one with
    data. kept: the agreement with the model that the search for accuracy reached, if that is enough: differences of a
    few values decide nothing then."""
    copy = f"copy {shlex.quote(str(folder))} to the board; its README.md has the commands"
    if verification is None:
        return Answer(None, "", "the comparison was left out (--skip verify)", {}, 0, 0, copy)
    verdict = verification.verdict
    overall = verdict.overall if verdict else ""
    # random inputs suffice for 'broken'; the agreement that a search reached overrules 'suspicious'
    only = kept if overall == SUSPICIOUS and len(verification.failed) == 1 else None
    if verification.failed and only is None and (data is not None or overall == BROKEN):
        words = ["deploy", *repeat] if data is None else ["verify", *repeat, "--sensitivity"]
        more = shlex.join(["qdq-translator", *words])
        return Answer(False, overall, _why(verification), *_measured(verification), more)
    if data is None:
        more = shlex.join(["qdq-translator", "deploy", *repeat])
        return Answer(None, overall, "random inputs show no accuracy: give data with labels", {}, 0, 0, more)
    if only is not None:
        good = f"it keeps {only} of what your model says; some values differ by more than rounding"
    elif overall == EQUAL:
        good = "it computes what your model computes"
    else:
        good = "it loses what rounding to INT8 costs, no more"
    return Answer(True, overall, good, *_measured(verification), copy)


def _why(verification: Measured) -> str:
    """The first reason that is known."""
    verdict = verification.verdict
    known = (verdict.reason, *verdict.reasons) if verdict else ()
    return next(filter(None, (*known, *verification.failed)))


def _measured(verification: Measured) -> tuple[dict[str, tuple[float, float]], int, int]:
    verdicts = verification.verdict.outputs.values() if verification.verdict else ()
    name = verification.metric.name if verification.metric else ""
    return _scores(verification.outputs, name), sum(v.decided for v in verdicts), sum(v.changed for v in verdicts)


def _scores(outputs: Outputs, metric: str) -> dict[str, tuple[float, float]]:
    """Name of a score -> its value for the model and for the simulated engine. metric: name of the user's."""
    before, after = _STAGES
    found = {}
    if {before, after} <= outputs.metric.keys():
        found[metric] = (outputs.metric[before], outputs.metric[after])
    for name, right in (outputs.accuracy.get(before) or {}).items():
        other = (outputs.accuracy.get(after) or {}).get(name)
        if right is not None and other is not None and metric != "top1":
            found[f"right labels in % ({name})"] = (float(right), float(other))
    return found


def total_of(cost: Optional[rows.Cost]) -> Optional[float]:
    """Milliseconds of the whole network, DLA, GPU and transitions; on a GPU alone its own."""
    if cost is None:
        return None
    return cost.total_milliseconds if cost.total_milliseconds is not None else cost.all_gpu_milliseconds
