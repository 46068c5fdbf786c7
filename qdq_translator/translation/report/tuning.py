"""The results of `tune`, for a page and a terminal: every point by its cost and its score, and the Pareto front."""

from __future__ import annotations

import math
from typing import Any, Iterator, Optional

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats.tune_rows import FP16, Measured, Tuned, Tuning
from qdq_translator.core.words import counted, milliseconds, others
from qdq_translator.translation.report.tables import print_table

MOST_ROWS, LONGEST = 8, 400
"""Limits for rows and for the characters of a command; only the file has longer ones."""
GIVEN = "the given options"
"""A row for comparison."""
CHOSEN, BEYOND = "->", "x"
CALIBRATED = ("calibrate_method", "equalize", "unify_scales", "recalibrate")
"""Options fitted to data (unify_scales: 'data', 'requantize'), measured on other samples, and reported if they were not
chosen.
"""


def tuning(results: Tuning) -> dict[str, Any]:
    """Chart of the page; {} if nothing was measured. front: place on the Pareto front, from 1, or 0. kind: 'best',
    'front', 'whole' (measured on all samples) or 'part' (given up early). least: the lowest score allowed."""
    points, front = results.points, results.front
    timed = all(point.cost.milliseconds is not None for point in points)
    drawn = []
    for point in points:
        cost = point.cost.milliseconds if timed and point.cost.milliseconds else 100 * (1 - point.cost.int8_macs)
        measured, place = point.measured, front.index(point) + 1 if point in front else 0
        kind = "best" if point == results.best else "front" if place else "whole"
        words = milliseconds(cost) if timed else f"{cost:.1f}% of MACs above INT8"
        words += f", {measured.score:.6g} on {measured.samples} samples: {changed(point)}"
        drawn.append({"cost": cost, "score": measured.score, "front": place, "title": words})
        drawn[-1]["kind"] = kind if measured.complete else "part"
    reference, drop = results.metric.reference, results.goal.max_drop
    least = None if drop is None else reference - drop
    axis = "estimated ms" if timed else "% of MACs above INT8"
    return {"points": drawn, "reference": reference, "least": least, "axis": axis} if drawn else {}


def table(results: Tuning) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the chosen point, the others of the front within the limits, those beyond, and for comparison
    the given options and FP16. The first cell marks the chosen one and those beyond. A row with the same figures as the
    one above is left out."""
    front = sorted(results.front or (results.best,), key=results.goal.rank)
    more = [p for p in results.points if _to_compare(p) and p not in front]
    rows = [*front[:MOST_ROWS], *more]
    gpu, held = any(point.cost.gpu_layers for point in rows), results.held_out is not None
    name = results.metric.name.replace("\\", "/").rpartition("/")[2].rpartition(":")[2]
    scores = ["drop", "held out"] if held else [name, "drop"]
    headings = ["", "ms", *["GPU layers"] * gpu, "INT8 MACs", *scores, "change"]
    cells: list[list[str]] = []
    above: Optional[Tuned] = None
    for point in rows:
        figures = _figures(point, gpu, held)
        if not cells or figures != cells[-1][1:-1]:
            mark = "" if results.goal.allows(point) else BEYOND
            mark = CHOSEN if point == results.best else mark
            usual = FP16 if not point.cost.int8_macs else GIVEN if _as_given(point) else ""
            cells.append([mark, *figures, usual or changed(point, above)])
            above = point
    return headings, cells


def _to_compare(point: Tuned) -> bool:
    return point.why == FP16 or _as_given(point)


def _as_given(point: Tuned) -> bool:
    return not (point.changes or point.kept_fp16)


def _figures(point: Tuned, gpu: bool, held: bool) -> list[str]:
    """Cells of a row. gpu: with the number of layers on the GPU; held: with the drop on held out samples."""
    cost, measured = point.cost, point.measured
    time = "" if cost.milliseconds is None else f"{cost.milliseconds:.3f}"
    on_gpu, drop = [str(cost.gpu_layers)] * gpu, _drop(measured)
    scores = [f"{measured.score:.6g}", drop]
    if held:
        scores = [drop, _drop(point.held_out) if point.held_out is not None else ""]
    return [time, *on_gpu, f"{100 * cost.int8_macs:.1f}%", *scores]


def notes(results: Tuning) -> Iterator[str]:
    """The sentences below the table."""
    goal, best, held = results.goal, results.best, results.held_out
    limits = [] if goal.max_drop is None else [f"a drop of {goal.max_drop:g}"]
    limits += [] if goal.budget_ms is None else [f"{goal.budget_ms:g} ms"]
    more = len(results.front) - MOST_ROWS
    yield (
        f"{CHOSEN}: chosen and written; {BEYOND}: beyond {' and '.join(limits)}; change: from the row "
        "above; times are estimates"
    )
    if more > 0:
        yield f"{more} more rows in the file"
    if best.measured.error is not None:
        wide = goal.max_drop is not None and best.measured.error > goal.max_drop
        more_data = "; it is wider than the drop allowed: give more samples" if wide else ""
        yield f"±: 99% interval of the drop on a sample of this size{more_data}"
    if held is None:
        yield "the search chose by these samples: --held_out measures the drop on others"
    else:
        yield f"held out: {counted(held.samples, 'sample')} ({held.source}), {results.metric.held_out:.6g} as given"
    given_up = sum(not point.measured.complete for point in results.points)
    if given_up:
        yield f"{counted(given_up, 'point')} given up before all samples were measured: surely beyond"
    tried = list(_tried(results))
    if tried:
        yield f"tried, not chosen: {'; '.join(tried)}"
    yield from (cure.words for cure in results.cures)
    sums = (row.account.sentence for row in results.sensitivity[:1])
    yield from (sentence for sentence in sums if "interact" in sentence)
    yield from results.data.notes


def _tried(results: Tuning) -> Iterator[str]:
    """Each value of an option fitted to data that the chosen point does not have, with the best point that has it."""
    best: dict[str, Tuned] = {}
    for point in sorted(results.points, key=results.goal.rank):
        for name, value in point.changes.items():
            fitted = name in CALIBRATED and (name != "unify_scales" or value in ("data", "requantize"))
            same = point.measured == results.best.measured
            if fitted and not same and results.best.changes.get(name) != value:
                best.setdefault(_option(name, value), point)
    for words, point in best.items():
        time = "" if point.cost.milliseconds is None else f" at {point.cost.milliseconds:.3f} ms"
        yield f"{words} ({point.measured.drop:+.3g}{time})"


def _drop(measured: Measured) -> str:
    error = measured.error
    if not error or error < 1e-4:
        return f"{measured.drop:+.3g}" + ("" if error is None else f"±{error:.1g}")
    digits = max(0, -math.floor(math.log10(error)))
    return f"{measured.drop:+.{digits}f}±{error:.{digits}f}"


def changed(point: Tuned, above: Optional[Tuned] = None) -> str:
    """The difference from another point, or from the given options, in words."""
    before, kept = ({}, ()) if above is None else (above.changes, above.kept_fp16)
    words = _options({name: value for name, value in point.changes.items() if before.get(name) != value})
    words += [f"{name} as given" for name in _options({n: True for n in before if n not in point.changes})]
    for ours, theirs, precision in ((point.kept_fp16, kept, "FP16"), (kept, point.kept_fp16, "INT8")):
        layers = [layer for layer in ours if layer not in theirs]
        if layers:
            words.append(f"{layers[0]}{others(layers)} in {precision}")
    return ", ".join(words) or "nothing"


def _options(changes: dict[str, Any]) -> list[str]:
    """The enabled inference rules count as one word."""
    rules = [name for name, value in changes.items() if name.startswith("infer_") and value is True]
    short = "/".join(name[len("infer_") :].replace("_scales", "") for name in rules)
    words = [_option(name, value) for name, value in changes.items() if name not in rules]
    return [*words, f"infer {short}"] if rules else words


def _option(name: str, value: Any) -> str:
    shown = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return name if value is True else f"{name} {'off' if value is False or not shown else shown}"


def print_outcome(results: Tuning, file: str) -> None:
    """Print the result of a search, with the command that reproduces the chosen point. file: NAME_tune.json."""
    console, metric, (headings, rows) = Console(highlight=False), results.metric, table(results)
    console.print(
        f"[bold]{escape(results.model.file)}[/bold]: {escape(metric.name)} = {metric.reference:.6g} as given, on "
        f"{counted(results.data.samples, 'sample')}; {counted(results.evaluations, 'network')} measured"
    )
    print_table(console, headings, rows, right=range(1, len(headings) - 1), bold=CHOSEN)
    for note in notes(results):
        console.print(f"  {escape(note)}")
    command = results.command if len(results.command) <= LONGEST else f"'command' in {file}"
    console.print(f"the same again: {escape(command)}", soft_wrap=True)
