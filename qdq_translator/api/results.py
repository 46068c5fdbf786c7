"""Return types of the API functions."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from qdq_translator.core.disk import write_json
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.rows import read
from qdq_translator.core.formats.verify_rows import GOOD, NOT_MEASURED, Cure
from qdq_translator.core.words import milliseconds
from qdq_translator.translation.report.shown import Shown, framed, report_lines
from qdq_translator.translation.translator import Translation


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """Plain values of one kind, as the command's `--json` prints them."""

    _results: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """A copy of all values, JSON types only."""
        return copy.deepcopy(self._results)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the values as JSON. Raises UserError if the file cannot be written."""
        write_json(Path(path), self._results)


class Report(Result):
    """`NAME_report.json`: plan, causes, scales, diagnostics (docs/report_schema.md)."""

    @property
    def layers(self) -> list[dict[str, Any]]:
        """One row per layer of the plan; `pandas.DataFrame(report.layers)` makes a table of them."""
        return list(self.to_dict()["plan"])

    @property
    def _rows(self) -> rows.Report:
        return read(rows.Report, self._results)

    def page(self) -> str:
        """The page of `report --html`, one HTML document. Raises MissingDependency without jinja2."""
        from qdq_translator.translation.report.html import report_page

        return report_page(self._rows)

    def _repr_html_(self) -> str:
        return framed(self.page(), self.lines()[0], 800)

    def lines(self) -> list[str]:
        """Model, coverage, estimated time and the largest causes."""
        return report_lines(self._rows)


class Verification(Result):
    """Output of `verify --json`."""

    @property
    def ok(self) -> bool:
        """True if no threshold is missed and no output is broken."""
        return not self._results["failed"]

    @property
    def verdict(self) -> str:
        """equal, within expected rounding, suspicious or broken."""
        return str((self._results.get("verdict") or {}).get("overall", ""))

    @property
    def metric(self) -> dict[str, float]:
        """Stage ('explicit', 'simulated', ...) -> the metric; {} without one."""
        return dict(self._results["outputs"].get("metric") or {})

    def lines(self) -> list[str]:
        """Verdict, figures, reason and next step, and missed thresholds."""
        found, random = self._results, self._results["inputs"]["random"]
        judged, cosines = found["verdict"], found["outputs"]["pairs"][0]["outputs"]
        overall = NOT_MEASURED if random and self.verdict in GOOD else self.verdict
        figures = [f"{found['metric']['name']}, {stage}: {value:.6g}" for stage, value in self.metric.items()]
        figures = figures or [f"{name}: cosine {row['cosine']:.6f}" for name, row in cosines.items()][:4]
        good = "give data" if random else "save the translation and build it (qdq-translator build --print)"
        advice = [judged.get("reason"), f"next: {judged.get('remedy') or good}"]
        cures = (f"cure: {read(Cure, row).words}" for row in judged.get("cures", ()))
        return [f"Verification: {overall}", *figures, *cures, *filter(None, advice), *found["failed"]]


@dataclass(frozen=True, repr=False)
class Tuning(Result):
    """Output of `tune --json`, with the translation of the best point."""

    translation: Translation
    holds: bool
    """Whether the best point meets the requested accuracy or time."""

    def _shown_report(self) -> rows.Report:
        """The rows of the report of the best point."""
        return self.translation.rows

    def lines(self) -> list[str]:
        """The best point and its translation."""
        best = self._results["best"]
        time = (best.get("cost") or {}).get("milliseconds")
        kept = "keeps" if self.holds else "misses"
        drop = f"drop {best['measured']['drop']:.4g}"
        return [
            f"Tuning: best point {kept} the budget, {drop}, {milliseconds(time)}",
            *report_lines(self.translation.rows),
        ]


@dataclass(frozen=True, repr=False)
class Bundle(Result):
    """Output of `deploy --json`, and the folder."""

    folder: Path
    _report: rows.Report = field(repr=False)

    def _shown_report(self) -> rows.Report:
        """The rows of the report of the translation in the folder."""
        return self._report

    @property
    def good(self) -> Optional[bool]:
        """True if the translation keeps the accuracy of the model, False if not, None without data to measure it."""
        good: Optional[bool] = self._results["good"]
        return good

    @property
    def milliseconds(self) -> Optional[float]:
        """Estimated time of the whole network, DLA, GPU and transitions; None where there is no figure."""
        time: Optional[float] = self._results["milliseconds"]
        return time

    def lines(self) -> list[str]:
        """The answer, the time, the reason and the next step."""
        found = self._results
        answer = {True: "good", False: "not good", None: "not measured"}[self.good]
        scores = [f"{name}: {before:.4g} -> {after:.4g}" for name, (before, after) in found["scores"].items()]
        time = f"{milliseconds(self.milliseconds)} (estimate)" if self.milliseconds else "no estimate of the time"
        return [f"Bundle: {self.folder}", f"{answer}: {found['reason']}", time, *scores, f"next: {found['next']}"]


class Explanation(Result):
    """A rule, limit, platform, message or log in words."""

    @property
    def title(self) -> str:
        """One line."""
        return str(self._results["title"])

    @property
    def paragraphs(self) -> list[str]:
        """One thing each."""
        return list(self._results["paragraphs"])

    def lines(self) -> list[str]:
        """The title and the first paragraphs."""
        return [self.title, *self.paragraphs]

    def __str__(self) -> str:
        return "\n\n".join(self.lines())
