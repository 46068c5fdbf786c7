"""A report, or two reports side by side, for a terminal of 80 columns."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from typing import Iterable, Iterator, Optional, Sequence

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats.engine_rows import ComparedEngines
from qdq_translator.core.formats.report_rows import (
    Applied,
    Comparison,
    End,
    Finding,
    LayerPlan,
    Report,
    SharedRange,
    Verdict,
    WhatIf,
)
from qdq_translator.core.rules import words
from qdq_translator.core.words import amount, counted, milliseconds, percent, scale, shape
from qdq_translator.translation.report.data import inferred_by_rule
from qdq_translator.translation.report.model import by_limit
from qdq_translator.translation.report.tables import Section, indented, print_fitted, print_pairs, print_table, title
from qdq_translator.translation.report.terminal_summary import (
    FEW,
    best_line,
    cut_lines,
    few_lines,
    group_line,
    outputs_of,
    print_diagnostics,
    time_rows,
    verdict,
)


def print_report(report: Report, everything: bool, above: Sequence[Section] = ()) -> None:
    """Prints a report: at most `LINES` lines, or all of it with `everything`. above: sections before it."""
    short = (_print_head, _print_short, _print_messages)
    whole = (
        *(_print_head, _print_causes, _print_what_if, _print_layers, _print_dla, _print_rewrites, _print_shared),
        *(_print_scales, _print_ends, _print_all_messages),
    )
    parts = (functools.partial(part, report=report) for part in (whole if everything else short))
    print_fitted(Console(highlight=False), [*above, *parts], everything=everything)


def _print_short(console: Console, report: Report) -> None:
    """One line per cause, with a count and one example; a few lines each for layers, limits, rewrites and scales."""
    lines = (
        *(_cause_lines(report), _slowest_lines(report), _limit_lines(report), _rewrite_lines(report)),
        *(cut_lines(report.parts), _scale_lines(report)),
    )
    print_pairs(console, itertools.chain(*lines))


def _cause_lines(report: Report) -> Iterator[tuple[str, str]]:
    causes, total = report.root_causes, report.coverage.macs.total
    lines = [
        f"{group_line(group, total)} (for example '{group.tensors[0]}')" for group in causes.groups if group.layers
    ]
    yield from few_lines("cause", lines, "cause")
    if causes.what_if:
        yield "try", best_line(causes.what_if, total)


def _slowest_lines(report: Report) -> Iterator[tuple[str, str]]:
    timed = [(row.milliseconds, row) for row in report.plan if row.milliseconds]
    timed.sort(key=operator.itemgetter(0), reverse=True)
    for label, (time, row) in zip(("slowest", *[""] * (FEW - 1)), timed):
        bound = _cost_of(row)[1]
        yield label, f"{milliseconds(time)}  {row.op} '{row.name}', {row.runs}, bound by {bound}"


def _limit_lines(report: Report) -> Iterator[tuple[str, str]]:
    lines = []
    for rows in by_limit(report.dla.layers if report.dla else ()).values():
        (first, finding), then = rows[0], "on the GPU" if rows[0][1].effect == "gpu" else "in FP16"
        found = f"{_ops(row.op for row, _ in rows)} {then} (for example '{first.name}')"
        lines.append(f"{finding.text}: {found}")
    yield from few_lines("limit", lines, "limit")


def _rewrite_lines(report: Report) -> Iterator[tuple[str, str]]:
    before = [node.op for row in report.dla_rewrites.applied for node in row.before]
    if before:
        would = "would be rewritten" if report.assumption else "rewritten"
        yield would, f"{counted(len(before), 'node')} into forms that the DLA runs"
    left: dict[tuple[str, str], list[str]] = {}
    for layer in report.dla_rewrites.left:
        if layer.why:
            left.setdefault((layer.op, layer.why), []).append(layer.node)
    lines = [f"{len(nodes)} {op}: {why} (for example '{nodes[0]}')" for (op, why), nodes in left.items()]
    yield from few_lines("not rewritten", lines, "reason")


def _scale_lines(report: Report) -> Iterator[tuple[str, str]]:
    if report.assumption:
        return
    inferred = sum(inferred_by_rule(report.scales).values())
    explicit = sum(row.explicit for row in report.scales)
    more = f", {inferred} inferred" if inferred else ""
    yield "scales", f"{explicit} from the model{more}"
    odd = [row.weight for row in report.weights if not row.exact]
    if odd:
        total = len(report.weights)
        yield "weights", f"{len(odd)} of {total} are requantized by TensorRT (for example '{odd[0]}')"
    for kind, ends in (("input", report.inputs), ("output", report.outputs)):
        yield from few_lines(kind, [" ".join(_end(row)).rstrip() for row in ends], kind, most=2)


def _print_head(console: Console, report: Report) -> None:
    plan = f"plan only, assuming that {report.assumption}" if report.assumption else ""
    number = report.cache_version.number
    made_for = plan or (f"cache TRT {number}" if number else "explicit Q/DQ")
    console.print(f"[bold]{escape(report.model)}[/bold]  target {report.target}, {made_for}")
    if report.dla is not None and report.cost is not None:
        print_pairs(console, verdict(report.dla, report.cost))
        return
    if report.cost is not None:
        print_pairs(console, time_rows(report.cost, False))
    _print_coverage(console, report)


def _print_messages(console: Console, report: Report) -> None:
    notes = sum(item.severity == "info" for item in report.diagnostics)
    print_diagnostics(console, [d for d in report.diagnostics if d.severity != "info"], "--all")
    more = f" and {counted(notes, 'note')}" if notes else ""
    console.print(f"[dim]--all shows every layer{more}.[/dim]")


def _print_all_messages(console: Console, report: Report) -> None:
    if report.diagnostics:
        title(console, "Diagnostics")
        print_diagnostics(console, report.diagnostics, "")


def _print_coverage(console: Console, report: Report) -> None:
    coverage = report.coverage

    def share(part: Optional[int], total: Optional[int]) -> str:
        if part == 0:
            return "-"
        return amount(part) if not total or part is None else f"{amount(part)}  {percent(part, total):>6}"

    kinds = (("layers", coverage.layers), ("MACs", coverage.macs), ("weights", coverage.weights))
    rows = (
        (label, amount(row.total), *(share(part, row.total) for part in (row.int8, row.by_design, row.avoidable)))
        for label, row in kinds
        if row.total != 0
    )
    print_table(console, ("", "total", "INT8", "by design", "avoidable"), rows, right=(1, 2, 3, 4))
    macs = coverage.macs
    if macs.total:
        console.print(_bar(console, [part or 0 for part in (macs.int8, macs.by_design, macs.avoidable)], macs.total))
    elif macs.total is None:
        dynamic = [row.name for row in report.inputs if row.is_dynamic]
        asked = f" Translate with --shapes NAME:DIMS for {', '.join(dynamic)}." if dynamic else ""
        console.print(
            f"MACs of {counted(macs.unknown_layers, 'layer')} are unknown, as their shapes are.{asked}", markup=False
        )


def _bar(console: Console, parts: list[int], total: int) -> str:
    """MACs as a bar of 60 cells that is readable without colour."""
    cells = "#+." if console.options.ascii_only else "█▒░"
    bar, used = "", 0
    for part, cell, colour in zip(parts, cells, ("green", "cyan", "yellow")):
        used += part
        width = round(60 * used / total) - sum(bar.count(c) for c in cells)
        bar += f"[{colour}]{cell * width}[/]" if width else ""
    return f" MACs {bar}\n      {cells[0]} INT8  {cells[1]} by design  {cells[2]} avoidable"


def _print_causes(console: Console, report: Report) -> None:
    causes, groups = report.root_causes.causes, report.root_causes.groups
    if not causes:
        return
    total = report.coverage.macs.total
    avoidable = report.coverage.layers.avoidable
    title(
        console,
        f"Root causes: {counted(len(causes), 'tensor')} without scale behind {counted(avoidable, 'avoidable layer')}",
    )
    timed = any(group.milliseconds is not None for group in groups)
    rows = (
        (
            outputs_of(group.op, len(group.tensors)),
            str(group.layers),
            *([f"{group.milliseconds:.3f}"] if timed else []),
            *(_gain(macs, total) for macs in (group.macs, group.total_macs)),
            "\n".join(group.options) or "quantize in the model",
        )
        for group in groups
    )
    titles = ("never quantized", "layers", *(["ms gained"] if timed else []), "MACs", "so far", "cure")
    print_table(console, titles, rows, right=tuple(range(1, len(titles) - 1)))
    if report.cost and timed:
        console.print(f"  ms: {report.cost.what}", style="dim")
    for cause in causes:
        console.print(indented(f"{escape(cause.sentence)} [dim]Cure: {escape(cause.cure)}.[/dim]"))


def _gain(macs: Optional[int], total: Optional[int]) -> str:
    if macs is None:
        return "?"
    return f"+{percent(macs, total)}" if total and macs else amount(macs) if macs else "-"


def _print_what_if(console: Console, report: Report) -> None:
    rows = report.root_causes.what_if
    if not rows:
        return
    title(console, "What further options would do")
    total, layers, macs = report.coverage.macs.total, report.coverage.layers.int8, report.coverage.macs.int8
    timed = report.dla is not None and report.cost is not None
    now = WhatIf(("(as it is)",), layers, macs, len(report.scales))
    if report.dla and report.cost:
        told, int8 = report.dla.shares, report.dla.shares.dla_int8
        now = WhatIf(now.options, int8.layers, int8.macs, 0, told.gpu.layers, report.cost.total_high_milliseconds, 0.0)
    more = ("MACs", "GPU", "ms", "bits lost") if timed else ("INT8 MACs", "scales")
    cells = []
    for row in (now, *rows):
        ms = "?" if row.milliseconds is None else f"{row.milliseconds:.3f}"
        on_dla = (str(row.gpu_layers), ms, f"{row.bits_lost:.1f}" if row.bits_lost else "-")
        macs_ = percent(row.int8_macs, total) if row.int8_macs is not None and total else amount(row.int8_macs)
        cells.append(("\n".join(row.options), str(row.int8_layers), macs_, *(on_dla if timed else (str(row.scales),))))
    print_table(console, ("translate with", "INT8 layers", *more), cells, right=tuple(range(1, 2 + len(more))))
    if report.cost and now.milliseconds is not None:
        console.print(f"  ms: {report.cost.what}", style="dim")


def _print_layers(console: Console, report: Report) -> None:
    """The reasons are numbered and listed below the table, because most layers share a few."""
    title(console, "Plan")
    timed = report.cost is not None
    reasons: dict[str, str] = {}
    rows = []
    for row in report.plan:
        why = reasons.setdefault(row.reason, str(len(reasons) + 1))
        rows.append((row.name, row.op, row.runs, _part_of(row), *(_cost_of(row) if timed else ()), why))
    titles = ("layer", "op", "runs in", "MACs", *(("ms", "bound by") if timed else ()), "why")
    print_table(console, titles, rows, right=(3, 4) if timed else (3,))
    print_pairs(console, ((number, reason) for reason, number in reasons.items()))


def _cost_of(row: LayerPlan) -> tuple[str, str]:
    """Milliseconds of a row of the plan, and their bound."""
    cost = row.cost
    if not cost:
        return ("-", "")
    if cost.fused_into:
        return ("fused", "")
    if cost.milliseconds is None:
        return ("?", "")
    return (f"{cost.milliseconds:.3f}", cost.bound or "in place")


def _part_of(row: LayerPlan) -> str:
    if row.macs is None:
        return "?"
    if not row.macs:
        return "-"
    return amount(row.macs) if row.macs_share is None else percent(row.macs_share, 1)


def _print_dla(console: Console, report: Report) -> None:
    dla = report.dla
    if not dla:
        return
    title(console, f"DLA ({dla.generation}), predicted")
    if dla.counts.gpu:
        console.print("  GPU layers are a build error without GPU fallback.", style="dim")
    console.print(f"  A core loads at most {dla.max_loadables} subgraphs.", style="dim")
    print_table(
        console,
        ("limit", "not kept by", "then", "source"),
        itertools.starmap(_limit_cells, by_limit(dla.layers).items()),
    )
    for row in (row for row in dla.layers if row.verdict == "gpu"):
        reasons = "; ".join(f.text + _found(": {}", row, f) for f in row.findings if f.effect == "gpu")
        console.print(indented(f"GPU  {escape(row.op)} '{escape(row.name)}': {escape(reasons)}"))
    for note in dla.notes:
        console.print(indented(escape(note)))


def _limit_cells(limit: str, rows: Sequence[tuple[Verdict, Finding]]) -> tuple[str, ...]:
    """A limit of the DLA, the layers that violate it, the consequence for them, and its source."""
    first, finding = rows[0]
    example = f"{_ops(row.op for row, _ in rows)}: '{first.name}'{_found(' ({})', first, finding)}"
    then = "GPU" if finding.effect == "gpu" else "FP16"
    return f"{limit} {finding.text}", example, then, finding.source + " [inferred]" * (finding.status != "documented")


def _found(form: str, row: Verdict, finding: Finding) -> str:
    """The cause of a violation, unless it is the operator itself."""
    return form.format(finding.found) if finding.found != row.op else ""


def _print_rewrites(console: Console, report: Report) -> None:
    applied = report.dla_rewrites.applied
    if not applied:
        return
    would = "With --dla_rewrites, as this plan assumes" if report.assumption else "Rewritten for the DLA"
    title(console, f"{would}: {counted(len(applied), 'place')}")
    groups: dict[tuple[str, str, str], list[Applied]] = {}
    for row in applied:
        was, now = (_ops(node.op for node in nodes) for nodes in (row.before, row.after))
        groups.setdefault((row.rule, was, now), []).append(row)
    cells = (
        (rule, was, now or "a constant, or gone", str(len(rows)), rows[0].before[0].node)
        for (rule, was, now), rows in groups.items()
    )
    titles = ("rule", "was", "is", "places", "the first")
    print_table(console, titles, cells, right=(3,))
    for left in (left for left in report.dla_rewrites.left if left.why):
        console.print(indented(f"left: {escape(left.op)} '{escape(left.node)}': {escape(left.why)}"))


def _ops(ops: Iterable[str]) -> str:
    return ", ".join(f"{number} {op}" for op, number in Counter(ops).items())


def _print_shared(console: Console, report: Report) -> None:
    ranges = report.shared_ranges
    kinds: dict[str, list[SharedRange]] = {
        "raised": [shared for shared in ranges if shared.raised],
        "not raised (--unify_scales max)": [s for s in ranges if not s.raised and not s.refused],
        "not raised, layers stay FP16 (--max_bits_lost)": [s for s in ranges if s.refused],
    }
    titles = ("tensor", "own scale", "shared", "bits lost", "with")
    for kind, group in kinds.items():
        rows = [(tensor, shared) for shared in group for tensor in shared.tensors if tensor.scale != shared.scale]
        rows.sort(key=lambda pair: -pair[0].bits_lost)
        cells = (
            (own.tensor, f"{own.scale:.4g}", f"{shared.scale:.4g}", f"{own.bits_lost:.1f}", shared.source)
            for own, shared in rows
        )
        if group:
            title(console, f"Ranges that the DLA requires to be equal: {kind}")
        print_table(console, titles, cells, right=(1, 2, 3))


def _print_scales(console: Console, report: Report) -> None:
    if report.assumption:
        return
    title(console, "Scales and weights")
    counts = [(str(sum(row.explicit for row in report.scales)), "scales from the model")]
    for rule, number in inferred_by_rule(report.scales).items():
        counts.append((str(number), f"inferred by rule {rule}" + (f", {words(rule)}" if words(rule) else "")))
    if report.automatic_scales:
        counts.append((str(len(report.automatic_scales)), "for tensors that only TensorRT's network has (S10)"))
    if report.conflicts:
        counts.append((str(len(report.conflicts)), "tensors with conflicting scales (C1)"))
    exact = sum(row.exact for row in report.weights)
    print_pairs(console, [*counts, (f"{exact} of {len(report.weights)}", "weights reproduce every trained code")])
    odd = sorted((row for row in report.weights if not row.exact), key=lambda row: row.share)
    rows = ((row.weight, f"{100 * row.share:.4g}%", f"{100 * row.largest_error:.2g}%") for row in odd)
    titles = ("weight", "codes reproduced", "largest error")
    print_table(console, titles, rows, right=(1, 2))


def _print_ends(console: Console, report: Report) -> None:
    if report.assumption:
        return
    title(console, "Graph inputs and outputs")
    kinds = (("input", report.inputs), ("output", report.outputs))
    rows = ((f"{kind} {name}", *cells) for kind, ends in kinds for name, *cells in map(_end, ends))
    print_table(console, ("tensor", "shape", "scale", "hex"), rows, right=(2,))


def _end(row: End) -> tuple[str, str, str, str]:
    """Name, shape, scale and the scale's hex of a graph input or output."""
    return row.name, shape(row.shape), scale(row.scale) or ("float" if row.is_float else "integer"), row.hex or ""


def print_comparison(comparison: Comparison, everything: bool, above: Sequence[Section]) -> None:
    """Print two reports side by side. comparison: from `changes.compare`. above: sections that precede it."""
    parts = (_print_sides, _print_changed_layers, _print_changed_scales, _print_worse)
    sections = (functools.partial(part, comparison=comparison, everything=everything) for part in parts)
    print_fitted(Console(highlight=False), [*above, *sections], everything=everything)


def _print_sides(console: Console, comparison: Comparison, everything: bool) -> None:
    a, b = sides = comparison.a, comparison.b
    for letter, side in zip("AB", sides):
        options = " ".join(side.options) or "default options"
        console.print(f"[bold]{letter}[/bold]  {escape(side.name)}: {escape(options)}", soft_wrap=True)
    if not comparison.same_source:
        console.print("The two were made from different files.", style="yellow")
    on_dla = " on the DLA" if a.target == b.target != "gpu" else ""
    rows: list[tuple[str, ...]] = []
    rows.append((f"MACs in INT8{on_dla}", *(_share(side.macs_share) for side in sides)))
    rows.append((f"layers in INT8{on_dla}", *(_share(side.layers_share) for side in sides)))
    if None not in (a.milliseconds, b.milliseconds):
        rows.append(("estimated time", *(milliseconds(side.milliseconds) for side in sides)))
    if a.gpu_layers or b.gpu_layers:
        rows.append(("layers on the GPU", *(str(side.gpu_layers) for side in sides)))
    rows.append(("tensors with a scale", *(str(side.scales) for side in sides)))
    print_table(console, ("", "A", "B"), rows, right=(1, 2))


def _share(percent: Optional[float]) -> str:
    return "unknown" if percent is None else f"{percent:.1f}%"


def _print_changed_layers(console: Console, comparison: Comparison, everything: bool) -> None:
    layers = comparison.layers
    only = [f"{count} only in {side}" for count, side in ((layers.only_a, "A"), (layers.only_b, "B")) if count]
    differ = f"{len(layers.changed)} of {counted(layers.union, 'layer')} run differently"
    title(console, "; ".join([differ, ", ".join(only)] if only else [differ]))
    cells = ((row.name, row.op, row.a or "not there", row.b or "not there") for row in layers.changed)
    print_table(console, ("layer", "operator", "A", "B"), cells, everything=everything)


def _print_changed_scales(console: Console, comparison: Comparison, everything: bool) -> None:
    scales = comparison.scales
    if not scales:
        return
    title(console, f"{counted(len(scales), 'scale')} {'differs' if len(scales) == 1 else 'differ'}")
    cells = ((row.tensor, *("none" if s is None else f"{s:.6g}" for s in (row.a, row.b))) for row in scales)
    print_table(console, ("tensor", "A", "B"), cells, right=(1, 2), everything=everything)


def _print_worse(console: Console, comparison: Comparison, everything: bool) -> None:
    if comparison.worse:
        console.print(f"B is worse than A: {escape(comparison.worse)}.", style="yellow", soft_wrap=True)


def print_engines(console: Console, compared: ComparedEngines, everything: bool = False) -> None:
    """Two engines."""
    a, b = compared.milliseconds
    times = f"; {milliseconds(a)} in A, {milliseconds(b)} in B" if None not in (a, b) else ""
    differ = counted(compared.differ, "layer")
    title(console, f"Engines A and B: {differ} in another precision or on another device{times}")
    cells = []
    for row in compared.layers:
        sides = (row.a, row.b)
        words_ = (" ".join(filter(None, (side.actual or side.verdict, side.device))) for side in sides)
        took = ("" if side.milliseconds is None else f"{side.milliseconds:.3f}" for side in sides)
        cells.append((row.name, *words_, *took))
    print_table(console, ("layer", "A", "B", "ms in A", "in B"), cells, right=(3, 4), everything=everything)
