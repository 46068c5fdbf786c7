"""Diagnostics as people read them: one line a rule, the worst case of it, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping

from qdq_translator.core.formats.report_rows import DiagnosticRow

_BADNESS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "Q1": lambda data: data["coarser"],
    "C1": lambda data: max(data["scales"]) / min(data["scales"]),
    "W1": lambda data: data["largest_error"],
    "W3": lambda data: data["largest_relative"],
}
"""Rule -> what makes one of its diagnostics worse than another, of its data."""


@dataclass
class Messages:
    """worst: of all diagnostics of one code. count: how many there are."""

    worst: DiagnosticRow
    count: int = 1


def _badness(item: DiagnosticRow) -> float:
    measure = _BADNESS.get(item.code.split("-")[-1])
    try:
        return float(measure(item.data)) if measure else 0.0
    except (KeyError, TypeError, ValueError):  # written by another version
        return 0.0


def one_a_rule(items: Iterable[DiagnosticRow]) -> list[Messages]:
    """`items`: diagnostics as a report has them. In the order of the first of each code."""
    by_code: dict[str, Messages] = {}
    for item in items:
        group = by_code.get(item.code)
        if group is None:
            by_code[item.code] = Messages(item)
            continue
        group.count += 1
        if _badness(item) > _badness(group.worst):
            group.worst = item
    return list(by_code.values())
