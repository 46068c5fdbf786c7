"""The summary that `translate` prints; the report has some of the same lines."""

from __future__ import annotations

import itertools
import re
from typing import Iterator, Optional, Sequence, Union

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.words import clip, counted, milliseconds, percent, size
from qdq_translator.translation.report.data import Messages, one_a_rule
from qdq_translator.translation.report.tables import indented, print_pairs, print_table

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
MOST_ROWS = 6
"""The short form prints two warnings, each of another rule, below at most this many rows, and one below more."""
FEW = 3
"""Lines of one kind in the short form."""
_LABELS = {"dla_int8": "DLA INT8", "dla_fp16": "DLA FP16", "gpu": "GPU"}


def print_short(summary: rows.Summary, verbose: bool) -> None:
    """The summary of one translation."""
    print_file(summary)
    out = Console(highlight=False)
    shown = list(_rows(summary, verbose))
    print_pairs(out, shown)
    if verbose:
        print_diagnostics(out, summary.diagnostics, "")
        return
    warnings = one_a_rule([item for item in summary.diagnostics if item.severity != "info"])
    most = 2 if len(shown) <= MOST_ROWS else 1
    for group in warnings[:most]:
        colour = _COLOURS[group.worst.severity]
        more = f" (the worst of {group.count})" if group.count > 1 else ""
        out.print(indented(f"[{colour}]{group.worst.severity}[/]: {escape(_plain(group.worst.message))}{more}"))
    notes = len(summary.diagnostics) - len(warnings[:most])
    hint = f"{counted(notes, 'note')}, remedies: --verbose. " if notes or warnings else ""
    out.print(indented(f"[dim]{hint}qdq-translator report has the causes.[/dim]"))


def _plain(message: str) -> str:
    """The first sentence, without the numbers of rules, in about two lines."""
    return clip(without_numbers(_first(message)), 138) + "."


def _first(text: str) -> str:
    """The first sentence, without its full stop."""
    return re.split(r"(?<=[a-z)'])\. ", text)[0].rstrip(".")


def without_numbers(text: str) -> str:
    """`text` without the numbers of rules, facts and limits, which first screens leave to `--all` and `explain`."""
    return re.sub(r" \((?:rules?|facts?|limits?) [^()]*\)", "", text)


def print_file(summary: rows.Summary) -> None:
    file = escape(summary.files["model"])
    Console(highlight=False).print(f"[bold]{escape(summary.model)}[/bold] -> {file}", soft_wrap=True)


def _rows(summary: rows.Summary, verbose: bool) -> Iterator[tuple[str, str]]:
    dla, layers, macs = summary.dla, summary.coverage.layers, summary.coverage.macs
    yield from _time_and_int8(summary)
    yield "scales", _scales(summary.scales)
    purpose = f"{layers.by_design} on purpose"
    if not layers.avoidable:
        purpose = (
            f"{counted(layers.by_design, 'layer')} on purpose ({'graph outputs, GPU' if dla else 'graph outputs'})"
        )
    kinds = (
        (layers.avoidable, f"{counted(layers.avoidable, 'layer')} could run in INT8"),
        (layers.by_design, purpose),
        (summary.fp16_nodes, f"{summary.fp16_nodes} in the layer argument"),
    )
    if any(number for number, _ in kinds):
        yield "no scale" if dla else "FP16", ", ".join(text for number, text in kinds if number)
    yield from (("", line) for line in _without_scale(summary, verbose))
    if summary.root_causes.what_if and verbose:
        yield "try", best_line(summary.root_causes.what_if, macs.total)
    if summary.preset and verbose:
        yield "added", " ".join(summary.preset)
    yield from _notes(dla, verbose)
    yield from _outcome(summary, verbose)


def _without_scale(summary: rows.Summary, verbose: bool) -> Iterator[str]:
    """What has no scale: a line for one operator, or each with `verbose`; else all in one."""
    groups = [group for group in summary.root_causes.groups if group.layers]
    if verbose or len(groups) < 2:
        yield from (group_line(group, summary.coverage.macs.total) for group in groups)
        return
    named = [outputs_of(group.op, len(group.tensors)) for group in groups]
    more = f" and {counted(len(named) - FEW, 'operator')} more" if len(named) > FEW else ""
    cures = dict.fromkeys(_cure(group) for group in groups)
    yield f"without scale: {', '.join(named[:FEW])}{more}; {' or '.join(cures)}"


def _notes(dla: Optional[rows.DlaSummary], verbose: bool) -> Iterator[tuple[str, str]]:
    """The notes on what the DLA asks for; in the short form the first sentence of each."""
    for note in dla.notes if dla else ():
        yield "", note if verbose else f"{_first(note)}."


def _time_and_int8(summary: rows.Summary) -> Iterator[tuple[str, str]]:
    layers, cost = summary.coverage.layers, summary.cost
    if summary.dla and cost:
        yield from verdict(summary.dla, cost)
        return
    if cost:
        yield from time_rows(cost, False)
    yield "INT8", f"{layers.int8} of {layers.total} layers, {_macs_share(summary.coverage.macs)}"


def _scales(scales: rows.ScaleCounts) -> str:
    inferred = scales.total - scales.explicit
    more = f", {inferred} inferred" if inferred else ""
    automatic = f"; {scales.automatic} of TensorRT's own" if scales.automatic else ""
    return f"{counted(scales.total, 'tensor')} ({scales.explicit} from the model{more}{automatic})"


def _outcome(summary: rows.Summary, verbose: bool) -> Iterator[tuple[str, str]]:
    """The files written, and how well the translation keeps the model's values."""
    weights, found, macs = summary.weights, summary.metric, summary.coverage.macs
    if summary.dla_rewrites and verbose:
        yield "rewritten", summary.dla_rewrites
    why = "; --verbose has the cause of each" if not weights.exact else ""
    if weights.total and (verbose or weights.exact < weights.total):
        yield "weights", f"{weights.exact} of {weights.total} keep every trained value{why}"
    for index, sentence in enumerate(summary.accuracy):
        yield "" if index else "accuracy", sentence
    if found:
        yield "metric", f"{found.name}: {found.model:.6g} of the model, {found.engine:.6g} simulated"
    lines = cut_lines(summary.split, summary.not_cut)
    yield from lines if verbose else itertools.islice(lines, 1)
    default = " (default; name a --platform)" if summary.cache_origin == "default" else ""
    yield "header", summary.cache_header + default
    if macs.total is None and summary.dynamic_inputs:
        yield "shapes", f"set --shapes NAME:DIMS for {', '.join(summary.dynamic_inputs)} to count MACs"


def few_lines(label: str, lines: Sequence[str], noun: str, most: int = FEW) -> Iterator[tuple[str, str]]:
    """The first of `lines` below one label, and the number of the others."""
    for line in lines[:most]:
        yield label, line
    if len(lines) > most:
        yield "", f"and {counted(len(lines) - most, noun)} more"


def cut_lines(split: Optional[rows.CutParts], not_cut: str = "") -> Iterator[tuple[str, str]]:
    """The cut tail and the folder of the parts, or why none exist; then the parts for the DLA."""
    if split is None:
        if not_cut:
            yield "not cut", not_cut
        return
    behind = split.tail_macs_share or 0.0
    macs = f" with {percent(behind, 1)} of the MACs, which are not on the DLA," if behind >= 0.001 else ""
    tail = f"the tail of {counted(len(split.tail), 'layer')}{macs} is a part of its own; " if split.tail else ""
    runs = counted(split.proof.runs, "run")
    yield "cut", f"{tail}parts in {split.folder} give the bits of the whole ({runs}); --parts off: none"
    for part in (row for row in split.parts if row.role == "dla"):
        own = counted(part.gpu_layers, "GPU layer") if part.gpu_layers else "no GPU layer"
        time = f", {milliseconds(part.milliseconds)}" if part.milliseconds is not None else ""
        yield "", f"the DLA's part {part.file}: {own}, {counted(part.subgraphs or 0, 'subgraph')}{time}"


def print_many(summaries: Sequence[rows.Summary], failures: list[dict[str, str]]) -> None:
    """The table below several translations: one row per model, including those that failed."""
    timed = any(summary.cost for summary in summaries)  # estimated on a DLA alone
    titles = ["model", "INT8 layers", "INT8 MACs", *["ms"] * timed, "FP16 avoidable", "warnings", "status"]
    missed = {row["model"] for row in failures}
    lines = [
        (summary.model, *_figures(summary, timed), "below limit" if summary.source in missed else "done")
        for summary in summaries
    ]
    translated = {summary.source for summary in summaries}
    failed = (row["model"] for row in failures if row["model"] not in translated)
    lines += ((model, *["-"] * (len(titles) - 2), "failed") for model in failed)
    print_table(Console(highlight=False), titles, lines, right=range(1, len(titles) - 1))


def _figures(summary: rows.Summary, timed: bool) -> Iterator[str]:
    layers, macs = summary.coverage.layers, summary.coverage.macs
    best = summary.dla.shares.dla_int8 if summary.dla else None
    yield f"{best.layers if best else layers.int8}/{layers.total}"
    yield percent(best.macs if best else macs.int8, macs.total) if macs.total else "unknown"
    if timed:
        yield milliseconds(summary.cost.milliseconds if summary.cost else None).replace(" ms", "")
    yield str(layers.avoidable or "-")
    yield str(sum(d.severity == "warning" for d in summary.diagnostics) or "-")


def verdict(dla: Union[rows.Dla, rows.DlaSummary], cost: rows.Cost) -> Iterator[tuple[str, str]]:
    """The DLA's verdict: the total, then devices, their times, and transitions between them, without zero counts."""
    timed = time_rows(cost, True)
    yield from itertools.islice(timed, 1) if isinstance(dla, rows.DlaSummary) else _sourced(timed, cost)
    for name, label in _LABELS.items():
        share = getattr(dla.shares, name)
        if not share.layers:
            if name == "dla_int8":  # the purpose of the DLA: its absence deserves a line
                yield label, "no layer"
            continue
        parts = [counted(share.layers, "layer")]
        if share.macs is None:
            parts.append("MACs unknown")
        elif share.macs_share:
            parts.append(f"{percent(share.macs_share, 1)} of MACs")
        if name == "gpu" and isinstance(dla, rows.DlaSummary):
            kinds = sorted(dla.gpu_operators.items(), key=lambda item: -item[1])
            parts += [f"{number} {op}" for op, number in kinds[:FEW]] + ["..."] * (len(kinds) > FEW)
        elif name != "gpu" and share.milliseconds:
            parts.append(f"{milliseconds(share.milliseconds)} ({percent(share.milliseconds, cost.milliseconds)})")
        yield label, ", ".join(parts)
    between = [
        f"{counted(row.tensors, f'{kind} transition')} ({size(row.bytes)})"
        for kind, row in (("INT8/FP16", dla.transitions.int8_fp16), ("DLA/GPU", dla.transitions.dla_gpu))
        if row.tensors
    ]
    yield "between", ", ".join([*between, counted(dla.subgraphs, "DLA subgraph")])


def _sourced(timed: Iterator[tuple[str, str]], cost: rows.Cost) -> Iterator[tuple[str, str]]:
    """`timed`, and what the estimate is made from, its error and the power mode."""
    yield from timed
    if cost.milliseconds is not None:
        yield "", f"{cost.what} ({cost.note})" if cost.note else cost.what


def time_rows(cost: Optional[rows.Cost], on_dla: bool) -> Iterator[tuple[str, str]]:
    """`time_lines` below one label."""
    for number, line in enumerate(time_lines(cost, on_dla)):
        yield "" if number else "time", line


def time_lines(cost: Optional[rows.Cost], on_dla: bool) -> Iterator[str]:
    """The total with its range and parts; then FP16 and everything on the GPU. All of it is an estimate."""
    whole = None if cost is None else cost.all_gpu_milliseconds
    if cost is None or (cost.total_milliseconds is None and whole is None):
        yield f"no estimate{f': {cost.note}' if cost and cost.note else ' for this board'}"
        return
    if on_dla and cost.total_milliseconds is None:
        yield f"no estimate for the DLA ({cost.note}); all on the GPU {milliseconds(whole)}"
    elif on_dla and cost.milliseconds:
        yield from _with_dla(cost)
    else:  # nothing is left for the DLA
        bound = "at most " * (whole == cost.all_gpu_fp16_milliseconds)
        total = time_range(cost) if whole is None else milliseconds(whole)
        fp16 = cost.all_gpu_fp16_milliseconds
        slow = whole is not None and fp16 is not None and fp16 < whole
        gain = ": by this estimate (±40%) INT8 gains no time" * slow
        yield f"{bound}{total} on the GPU (estimate); beside it: in FP16 {milliseconds(fp16)}{gain}"


def _with_dla(cost: rows.Cost) -> Iterator[str]:
    """The lines of a network of which the DLA runs a part or all."""
    whole, moves = cost.all_gpu_milliseconds, milliseconds(cost.transition_milliseconds)
    if cost.transition_high_milliseconds != cost.transition_milliseconds:
        moves = f"{moves.replace(' ms', '')} to {milliseconds(cost.transition_high_milliseconds)}"
    parts = f"DLA {milliseconds(cost.milliseconds)}, GPU {milliseconds(cost.gpu_milliseconds)}, transitions {moves}"
    alone = cost.milliseconds == cost.total_high_milliseconds
    yield f"{time_range(cost)} on the DLA (estimate)" if alone else f"{time_range(cost)} in all (estimate): {parts}"
    beside = [f"DLA layers in FP16 {milliseconds(cost.fp16_milliseconds)}"] if cost.fp16_milliseconds else []
    if whole is not None:
        faster = cost.total_milliseconds is not None and whole < cost.total_milliseconds
        beside.append(f"all on the GPU {milliseconds(whole)}{', faster if the GPU is free' * faster}")
    if beside:
        yield f"beside it: {', '.join(beside)}"


def time_range(cost: rows.Cost) -> str:
    """The estimate of the whole network at both ends, such as '1.31 to 1.57 ms'."""
    low, high = milliseconds(cost.total_milliseconds), milliseconds(cost.total_high_milliseconds)
    return low if low == high else f"{low.replace(' ms', '')} to {high}"


def _macs_share(macs: rows.MacParts) -> str:
    if macs.total is None:
        return f"MACs unknown ({counted(macs.unknown_layers, 'layer')} of unknown shape)"
    return f"{percent(macs.int8, macs.total)} of MACs"


def group_line(group: rows.CauseGroup, total: Optional[int]) -> str:
    gain = f" and {percent(group.macs, total)} of MACs" if total and group.macs else ""
    if group.milliseconds:
        gain = f" and {milliseconds(group.milliseconds)}"
    what = outputs_of(group.op, len(group.tensors))
    return f"{what} without scale: {counted(group.layers, 'layer')}{gain} in FP16; {_cure(group)}"


def _cure(group: rows.CauseGroup) -> str:
    return f"use {' '.join(group.options)}" if group.options else "quantize them in the model"


def best_line(tried: Sequence[rows.WhatIf], total: Optional[int]) -> str:
    """All options together if they gain more than the best one alone, else the best one, with their effect."""
    best = tried[-1] if len(tried[-1].options) > 1 else tried[0]
    share = "" if not total or best.int8_macs is None else f", {percent(best.int8_macs, total)} of MACs"
    time = f", {milliseconds(best.milliseconds)}" if best.milliseconds is not None else ""
    lost = f", at most {best.bits_lost:.1f} bits lost in ranges that are raised" if best.bits_lost else ""
    return f"{' '.join(best.options)}: INT8 {counted(best.int8_layers, 'layer')}{share}{time}{lost}"


def outputs_of(op: str, number: int) -> str:
    return counted(number, op if op == "graph input" else f"{op} output")


def print_diagnostics(console: Console, items: Sequence[rows.DiagnosticRow], all_of_them: str) -> None:
    """Prints one line per rule with its worst case, in plain words; one per diagnostic, with the number of its rule, if
    `all_of_them`, the option that lists them, is ''."""
    for group in one_a_rule(items) if all_of_them else map(Messages, items):
        item = group.worst
        text = " ".join(filter(None, (item.message, item.hint)))
        more = f" (the worst of {group.count}; {all_of_them} lists them)" if group.count > 1 else ""
        label = f"{item.severity}:" if all_of_them else item.code
        shown = without_numbers(text) if all_of_them else text
        console.print(indented(f"[{_COLOURS[item.severity]}]{label}[/] {escape(shown)}[dim]{escape(more)}[/dim]"))
