"""The results of `verify` on a terminal."""

from __future__ import annotations

import functools
import math
import shlex
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats.verify_rows import (
    BROKEN,
    EQUAL,
    FITS,
    GOOD,
    NOT_MEASURED,
    ROUNDING,
    SUSPICIOUS,
    Account,
    Audit,
    AuditedScale,
    AuditedWeight,
    Cure,
    Freed,
    Layer,
    Layers,
    Outputs,
    Pair,
    Sensitivity,
    Verification,
)
from qdq_translator.core.hypotheses import FUSION
from qdq_translator.core.words import counted, others
from qdq_translator.translation.report.tables import LINES, print_fitted, print_list, print_table

_Audited = TypeVar("_Audited", AuditedScale, AuditedWeight)
SCREEN = 12
"""Lines of the comparison without --all, before the next command."""
SHOWN_REASONS = 3
SPREAD = 0.3
"""Largest share of the noise of one tensor if the loss is spread over the network."""
_LONG_ARGUMENT = 300
"""Characters of arguments that are printed without --all."""


def _finite(value: Optional[float]) -> float:
    """The value, 0 if it is unknown or infinite."""
    return value if value is not None and math.isfinite(value) else 0.0


def _db(value: Optional[float], identical: bool) -> str:
    return "equal" if identical else "none" if value is None or math.isinf(value) else f"{value:.1f}"


def _ratio(value: Optional[float]) -> str:
    return _db(value, value is None or math.isinf(value))


def print_results(results: Verification, everything: bool) -> None:
    """Print the results in at most `LINES` lines of the terminal's width, or all rows with `everything`."""
    console = Console(highlight=False)
    overall, random = results.verdict.overall, results.inputs.random
    deeper = any((results.per_layer, results.account, results.sensitivity, results.audit))
    wide = everything or deeper
    figures = wide or not results.verdict.cures  # a first screen of cures needs the room
    parts: list[tuple[Callable[..., None], Any]] = [
        (_print_files, results),
        (_print_simulation, everything and results),
        (_print_not_measured if random and overall in GOOD else _print_verdict, results),
        (_print_cures, results.verdict.cures),
        (_print_scores, figures and results),
        (functools.partial(_print_outputs, all_pairs=wide), figures and results.outputs),
        (functools.partial(_print_slices, everything=everything), figures and results),
        (_print_layers, results.per_layer),
        (_print_account, results.account),
        (functools.partial(_print_ranking, everything=everything), results.sensitivity),
        (functools.partial(_print_chosen, everything=everything), results.sensitivity),
        (functools.partial(_print_scales, everything=everything), results.audit),
        (functools.partial(_print_weights, everything=everything), results.audit),
        (_print_notes, results.notes),
    ]
    sections = [functools.partial(part, found=found) for part, found in parts if found]
    if not everything:
        print_fitted(console, sections, LINES if deeper else SCREEN)
        return
    for section in sections:
        section(console)
    if results.per_layer is not None:
        _print_all_layers(console, results.per_layer)


def _print_outputs(out: Console, found: Outputs, all_pairs: bool) -> None:
    """One row for each output: the engine against the model, or every pair of stages."""
    if not all_pairs:
        print_table(out, _FIGURES, _figures(found.pairs[0]), right=(1, 2, 3, 4))
        return
    figures = ((pair.reference, pair.other, *cells) for pair in found.pairs for cells in _figures(pair))
    print_table(out, ("reference", "other", *_FIGURES), figures, right=(3, 4, 5, 6))


_FIGURES = ("output", "cosine", "SQNR dB", "max diff", "Top-1 same")


def _figures(pair: Pair) -> Iterator[tuple[str, ...]]:
    for name, row in pair.outputs.items():
        top1 = "-" if row.top1_agreement is None else f"{row.top1_agreement:.2f}%"
        yield name, f"{row.cosine:.6f}", _db(row.sqnr_db, row.identical), f"{row.max_abs:.3g}", top1


def _print_slices(out: Console, found: Verification, everything: bool) -> None:
    """The worst slice of the first pair; with `everything` that of each output."""
    rows = []
    for name, row in ((name, row) for pair in found.outputs.pairs[:1] for name, row in pair.outputs.items()):
        lowest, judged = row.worst_slice, found.verdict.outputs.get(name)
        of_classes = judged is not None and judged.decided and not judged.where  # whose rare classes decide nothing
        if lowest is not None and lowest.cosine < row.cosine and not of_classes:
            rows.append((name, lowest))
    for name, lowest in rows if everything else sorted(rows, key=lambda named: named[1].cosine)[:1]:
        out.print(
            f"  {escape(name)}, worst slice ({lowest.index} of {lowest.size} along axis {lowest.axis}): "
            f"cosine {lowest.cosine:.6f}, SQNR {_db(lowest.sqnr_db, False)} dB"
        )


def _print_scores(out: Console, found: Verification) -> None:
    """The results of labels or a metric that the verdict does not name."""
    outputs = found.outputs
    for name in next(iter(outputs.accuracy.values()), {}):
        stages = (f"{stage} {rows[name]:.2f}%" for stage, rows in outputs.accuracy.items() if name in rows)
        out.print(f"  labels right ({escape(name)}): {', '.join(stages)}")
    if found.metric is not None:
        stages = (f"{stage} {value:.6g}" for stage, value in outputs.metric.items())
        out.print(f"  {escape(found.metric.name)}: {', '.join(stages)}")


def _print_files(out: Console, found: Verification) -> None:
    inputs = found.inputs
    out.print(
        f"[bold]{escape(found.model.file)}[/bold] and the simulated INT8 engine of its translation, "
        f"{counted(inputs.samples, 'sample')} ({escape(inputs.source)})"
    )


def _print_simulation(out: Console, found: Verification) -> None:
    """Precisions used, and open questions."""
    simulation = found.simulation
    half = simulation.layers_in_fp16_on_dla
    above = simulation.layers_above_int8 - half
    on_dla = f", {half} in FP16 on the DLA" if half else ""
    higher = f" and {above} above it ({simulation.higher_layers})" if above else ""
    out.print(
        f"  {counted(simulation.layers_in_int8, 'layer')} in INT8{on_dla}{higher}, as planned"
        f"{' with --layer_arg' if simulation.layer_arg else ''}; "
        f"{counted(simulation.tensors_held_in_int8, 'tensor')} and "
        f"{counted(simulation.weights_rounded, 'weight')} rounded, ties to "
        f"{'even' if simulation.rounding == 'even' else 'away from zero'}"
        + (f", sigmoid in {simulation.sigmoid}" if simulation.sigmoid else "")
    )
    if simulation.tensors_inside_fusions:
        print_fusion = {
            "both": "inside fusions, unrounded; 'unfused' rounds them",
            "on": "inside fusions, unrounded",
            "off": "before biases",
        }[simulation.fuse]
        out.print(f"  {counted(simulation.tensors_inside_fusions, 'more tensor')} with a scale {print_fusion}")
    if simulation.parts:
        each = ", ".join(f"{role} {count}" for role, count in simulation.parts.items())
        out.print(f"  'parts': what was cut, one part behind the other; layers in INT8: {each}")
    for row in simulation.hypotheses:
        if row.id != FUSION:
            out.print(f"  Not known ({row.fact}): {row.planned}; '{row.stage}': {row.other}.")


_RANDOM = (
    "Random inputs prove little: they would show a wrong weight, connection or scale, but no range that does not fit "
    "the data. Give real inputs as DATA."
)
_VERDICT_COLOURS = {EQUAL: "green", ROUNDING: "green", SUSPICIOUS: "yellow", BROKEN: "red"}


def _print_not_measured(out: Console, found: Verification) -> None:
    out.print(f"Verdict: [bold yellow]{NOT_MEASURED}[/]. {_RANDOM}")


def _print_verdict(out: Console, found: Verification) -> None:
    """The output that decides the verdict, and limits of random inputs."""
    overall, reasons = found.verdict.overall, found.verdict.reasons
    deciding = [(name, row) for name, row in found.verdict.outputs.items() if row.verdict == overall]
    text = f"[bold {_VERDICT_COLOURS[overall]}]{overall}[/]"
    if found.metric is not None:
        before, after = (found.outputs.metric[stage] for stage in found.metric.stages)
        text += f", by the metric {escape(found.metric.name)}: {before:.6g} before, {after:.6g} in the engine"
    elif overall != EQUAL and deciding:
        name, row = min(deciding, key=lambda pair: _finite(pair[1].sqnr_db) - _finite(pair[1].least_db))
        where = f" in {row.where}" if row.where else ""
        text += f", by '{escape(name)}'{where}: {_db(row.sqnr_db, False)} dB; "
        if row.expected_db == -math.inf:
            text += "values leave the range of FP16 if nothing clips them, so that the cost of rounding is not known"
        else:
            text += (
                f"rounding alone would give {_db(row.expected_db, False)} dB, and below {_db(row.least_db, False)} dB "
                "it is suspicious"
            )
        if row.decided:
            text += f"; {row.changed} of {counted(row.decided, 'clear decision')} changed"
    out.print(f"Verdict: {text}.")
    if found.verdict.reason and found.verdict.reason not in reasons:
        out.print(f"  Reason: {escape(found.verdict.reason)}")
    for sentence in reasons[:SHOWN_REASONS]:
        out.print(f"  {escape(sentence)}")
    if len(reasons) > SHOWN_REASONS:
        out.print(f"  and {len(reasons) - SHOWN_REASONS} more sentences like these")
    if found.inputs.random:
        out.print(_RANDOM)


def _print_cures(out: Console, found: Sequence[Cure]) -> None:
    for cure in found:
        out.print(f"  Cure: {escape(cure.words)}")


def _print_layers(out: Console, found: Layers) -> None:
    """The places at which the error jumps."""
    tensors = counted(len(found.layers), "tensor")
    if not found.jumps:
        out.print(f"No layer stands out among {tensors}.")
        return
    out.print(f"The error jumps at {counted(len(found.jumps), 'place')} of {tensors}, the most added noise first:")
    for jump in found.jumps:
        what = "computes something else" if jump.where == "made" else "is rounded differently"
        who = f"{jump.op} '{escape(jump.node)}'" if jump.node else "graph input"
        added = "everything" if math.isinf(jump.added) else f"{100 * jump.added:.3g}%"
        out.print(
            f"  [yellow]{who} {what}[/], tensor '{escape(jump.tensor)}': adds {added} noise energy, SQNR "
            f"{_db(jump.sqnr_db, False)} dB; {100 * (jump.noise_share or 0.0):.1f}% of the noise at the outputs"
        )
        for note in jump.notes or [
            "no rule of the translation explains it: its weights, bias or attributes, or noise that grows in it"
        ]:
            out.print(f"    {escape(note)}")


def _print_all_layers(out: Console, found: Layers) -> None:
    def decibels(row: Layer) -> list[str]:
        return ["" if side is None else _db(side.sqnr_db, side.identical) for side in (row.made, row.read)]

    cells = ((row.node or "(input)", row.tensor, *decibels(row)) for row in found.layers)
    print_table(out, ("layer", "tensor", "made dB", "read dB"), cells, right=(2, 3))


def _print_account(out: Console, found: Account) -> None:
    if found.sentence:
        out.print(found.sentence)


def _print_ranking(out: Console, found: Sensitivity, everything: bool) -> None:
    """A row for each set of tensors left float alone, with its first cause, or all causes with `everything`."""
    base, before, left = found.baseline_db, found.baseline_metric, found.candidates_left_out
    metric = "" if before is None else f", metric {before:.6g}"
    ranked = " With one tensor left float:" if found.ranking else ""
    timed = any(row.milliseconds is not None for row in found.ranking)
    out.print(f"Output SQNR against float: {'equal' if base == math.inf else f'{base:.1f} dB'}{metric}.{ranked}")
    if left:
        out.print(f"  {counted(left, 'tensor')} left out by --time_limit")

    def cells(row: Freed) -> Iterator[str]:
        yield f"{row.gain_db:+.2f} dB" if math.isfinite(row.gain_db) else ""
        if before is not None:
            yield "" if row.metric is None else f"{row.metric - before:+.4g}"
        yield f"{100 * row.noise_share:.1f}%"
        if timed:
            yield "" if row.milliseconds is None else f"{row.milliseconds:+.2g}"
        causes = "; ".join(row.causes if everything else row.causes[:1])
        yield f"{row.tensor}{others(row.tensors)}: {causes}"

    titles = ("gain", *([] if before is None else ["metric"]), "noise", *["FP16 ms"] * timed)
    print_list(out, (*titles, "tensor: cause"), map(tuple, map(cells, found.ranking)), right=range(len(titles)))


def _print_chosen(out: Console, found: Sensitivity, everything: bool) -> None:
    """The layers that reach the requested gain together, as arguments."""
    if not found.chosen:
        if found.enough:
            out.print("The metric is what was asked for without any layer above INT8.")
        elif found.ranking:
            most = max(found.ranking, key=lambda row: row.noise_share)
            spread = most.noise_share < SPREAD
            what = "the loss is spread over the network" if spread else f"'{escape(most.tensor)}' has most of the noise"
            out.print(f"None of them alone gains enough to name layers: {what}.")
        return
    best = found.chosen[-1]
    metric = "" if best.metric is None else f", metric {best.metric:.6g}"
    out.print(
        f"{counted(len(found.layers), 'layer')} kept above INT8 together: "
        f"{_db(best.sqnr_db, best.sqnr_db == math.inf)} "
        f"dB, cosine {best.cosine:.6f}{metric}. Translate again with"
    )
    layer_argument = f"  --layer_arg {escape(shlex.quote(found.layer_argument))}"
    if everything or len(found.command + layer_argument) <= _LONG_ARGUMENT:
        out.print(f"  {escape(found.command)}", soft_wrap=True)
        out.print("or try it here, or give it to trtexec as --layerPrecisions:")
        out.print(layer_argument, soft_wrap=True)
    else:
        out.print("  --keep_fp16 @layers.txt (--save_layers layers.txt writes the file, --all prints the arguments)")


def _print_notes(out: Console, found: Sequence[str]) -> None:
    for note in found:
        out.print(f"  note: {escape(note)}")


def _print_scales(out: Console, found: Audit, everything: bool) -> None:
    """Scales that do not fit the data, the worst first, or all with `everything`."""
    if found.unlike:
        out.print(f"[yellow]{escape(found.unlike)}[/]")
    remedy = "--recalibrate NAME or worst:3 of translate, with --calibrate DATA, replaces scales"
    words = "scale", "compared with these inputs", ": no misfit.", f"; {remedy}:"

    def cells(row: AuditedScale) -> tuple[str, ...]:
        return _ratio(row.sqnr_db), _ratio(row.best_sqnr_db) if row.gain_db else "", f"{row.tensor}: {row.cause}"

    _print_audited(out, found.tensors, words, ("SQNR dB", "best range", "tensor: cause"), cells, everything)


def _print_weights(out: Console, found: Audit, everything: bool) -> None:
    """Weights with a channel that uses few quantized values, or all with `everything`."""
    words = "weight", "by their worst channel", ": every channel uses enough values.", ":"

    def cells(row: AuditedWeight) -> tuple[str, ...]:
        channel = f"{row.worst_channel} of {len(row.channel_amax)}"
        return _ratio(row.worst_sqnr_db), channel, f"{row.weight} of '{row.node}': {row.cause}"

    _print_audited(out, found.weights, words, ("SQNR dB", "channel", "weight: cause"), cells, everything)


def _print_audited(
    out: Console,
    rows: Sequence[_Audited],
    words: tuple[str, str, str, str],
    titles: tuple[str, str, str],
    cells: Callable[[_Audited], tuple[str, ...]],
    everything: bool,
) -> None:
    """The rows with a cause, or all with `everything`, and their share of the noise at the outputs. words: for a row,
    how it was audited, the end of the sentence if none has a cause, and if some have."""
    shown = rows if everything else [row for row in rows if row.cause != FITS]
    noun, how, none, some = words
    if shown:
        out.print(f"{len(shown)} of {counted(len(rows), noun)} {how}{some}")
    elif rows:
        out.print(f"{counted(len(rows), noun)} {how}{none}")
    lines = []
    for row in shown:
        *figures, cause = cells(row)
        lines.append((*figures, f"{100 * row.noise_share:.1f}%" if row.noise_share else "", cause))
    print_list(out, (*titles[:2], "noise", titles[2]), lines, right=range(3))
