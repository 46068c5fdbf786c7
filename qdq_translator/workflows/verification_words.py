"""The results of `verify` on a terminal."""

from __future__ import annotations

import functools
import math
import shlex
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats.verify_rows import (
    FITS,
    Account,
    Audit,
    AuditedScale,
    AuditedWeight,
    Freed,
    Layer,
    Layers,
    Outputs,
    Sensitivity,
    Verification,
)
from qdq_translator.core.hypotheses import FUSION
from qdq_translator.core.words import counted, others
from qdq_translator.output.report.tables import print_fitted, print_list, print_table
from qdq_translator.simulate.verdict import BROKEN, EQUAL, ROUNDING, SUSPICIOUS

SHOWN_REASONS = 8
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
    """At most `LINES` lines of the terminal's width, or all rows with `everything`."""
    console = Console(highlight=False)
    parts: list[tuple[Callable[..., None], Any]] = [
        (_print_simulation, results),
        (_print_outputs, results.outputs),
        (_print_verdict, results),
        (_print_scores, results),
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
        print_fitted(console, sections)
        return
    for section in sections:
        section(console)
    if results.per_layer is not None:
        _print_all_layers(console, results.per_layer)


def _print_outputs(out: Console, found: Outputs) -> None:
    """One row for each output and pair of stages."""
    figures = (
        (
            *(pair.reference, pair.other, name, f"{row.cosine:.6f}", _db(row.sqnr_db, row.identical)),
            f"{row.max_abs:.3g}",
            "-" if row.top1_agreement is None else f"{row.top1_agreement:.2f}%",
        )
        for pair in found.pairs
        for name, row in pair.outputs.items()
    )
    titles = ("reference", "other", "output", "cosine", "SQNR dB", "max diff", "Top-1 same")
    print_table(out, titles, figures, right=(3, 4, 5, 6))


def _print_scores(out: Console, found: Verification) -> None:
    """The worst slices of the first pair, and the results of labels or a metric."""
    outputs = found.outputs
    for name, row in ((name, row) for pair in outputs.pairs[:1] for name, row in pair.outputs.items()):
        lowest = row.worst_slice
        if lowest is not None and lowest.cosine < row.cosine:
            out.print(
                f"  {escape(name)}, worst slice ({lowest.index} of {lowest.size} along axis {lowest.axis}): "
                f"cosine {lowest.cosine:.6f}, SQNR {_db(lowest.sqnr_db, False)} dB"
            )
    for stage, rows in outputs.accuracy.items():
        for name, value in rows.items():
            out.print(f"  {stage}: {value:.2f}% of the labels right ({escape(name)})")
    metric = found.metric.name if found.metric is not None else ""
    for stage, value in outputs.metric.items():
        out.print(f"  {stage}: {escape(metric)} = {value:.6g}")


def _print_simulation(out: Console, found: Verification) -> None:
    """Model, inputs, precisions used, and open questions."""
    inputs, simulation = found.inputs, found.simulation
    out.print(
        f"[bold]{escape(found.model.file)}[/bold] and the simulated INT8 engine of its translation, "
        f"{counted(inputs.samples, 'sample')} ({escape(inputs.source)})"
    )
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


_VERDICT_COLOURS = {EQUAL: "green", ROUNDING: "green", SUSPICIOUS: "yellow", BROKEN: "red"}


def _print_verdict(out: Console, found: Verification) -> None:
    """The output that decides the verdict, and limits of random inputs."""
    overall, reasons = found.verdict.overall, found.verdict.reasons
    deciding = [(name, row) for name, row in found.verdict.outputs.items() if row.verdict == overall]
    text = f"[bold {_VERDICT_COLOURS[overall]}]{overall}[/]"
    if overall != EQUAL and deciding:
        name, row = min(deciding, key=lambda pair: _finite(pair[1].sqnr_db) - _finite(pair[1].least_db))
        where = f" in {row.where}" if row.where else ""
        text += f", by '{escape(name)}'{where}: {_db(row.sqnr_db, False)} dB; "
        if row.expected_db == -math.inf:
            text += "values leave the range of FP16 if nothing clips them, so that the cost of rounding is not known"
        else:
            text += (
                f"rounding with the model's scales would give {_db(row.expected_db, False)} dB, and below "
                f"{_db(row.least_db, False)} dB it is suspicious"
            )
    out.print(f"Verdict: {text}.")
    for sentence in reasons[:SHOWN_REASONS]:
        out.print(f"  {escape(sentence)}")
    if len(reasons) > SHOWN_REASONS:
        out.print(f"  and {len(reasons) - SHOWN_REASONS} more sentences like these")
    if found.inputs.random:
        out.print(
            "[yellow]Random inputs prove little[/]: they show a wrong weight, connection or scale of the model, but no "
            "range that does not fit the data, and they reach no real decision. Give real inputs with --inputs."
        )


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
    out.print(f"Output SQNR against float: {'equal' if base == math.inf else f'{base:.1f} dB'}{metric}.{ranked}")
    if left:
        out.print(f"  {counted(left, 'tensor')} left out by --time_limit")

    def cells(row: Freed) -> Iterator[str]:
        yield f"{row.gain_db:+.2f} dB" if math.isfinite(row.gain_db) else ""
        if before is not None:
            yield "" if row.metric is None else f"{row.metric - before:+.4g}"
        yield f"{100 * row.noise_share:.1f}%"
        causes = "; ".join(row.causes if everything else row.causes[:1])
        yield f"{row.tensor}{others(row.tensors)}: {causes}"

    titles = ("gain", *([] if before is None else ["metric"]), "noise")
    print_list(out, (*titles, "tensor: cause"), map(tuple, map(cells, found.ranking)), right=range(len(titles)))


def _print_chosen(out: Console, found: Sensitivity, everything: bool) -> None:
    """The layers that reach the requested gain together, as arguments."""
    if not found.chosen:
        if found.enough:
            out.print("The metric is what was asked for without any layer above INT8.")
        elif found.ranking:
            out.print("None of them gains enough to name layers: the loss is spread over the network.")
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


_Audited = TypeVar("_Audited", AuditedScale, AuditedWeight)


def _print_scales(out: Console, found: Audit, everything: bool) -> None:
    """Scales that do not fit the data, the worst first, or all with `everything`."""
    rows, shown = found.tensors, _shown(found.tensors, everything)
    if found.unlike:
        out.print(f"[yellow]{escape(found.unlike)}[/]")
    if not shown:
        if rows:
            out.print(f"{counted(len(rows), 'scale')} compared with these inputs: no misfit.")
        return
    out.print(
        f"{len(shown)} of {counted(len(rows), 'scale')} compared with these inputs; --recalibrate NAME or worst:3 of "
        "translate, with --calibrate DATA, replaces scales:"
    )
    titles = ("SQNR dB", "best range", "noise", "tensor: cause")
    cells = (
        (
            _ratio(row.sqnr_db),
            _ratio(row.best_sqnr_db) if row.gain_db else "",
            _share(row),
            f"{row.tensor}: {row.cause}",
        )
        for row in shown
    )
    print_list(out, titles, cells, right=range(3))


def _print_weights(out: Console, found: Audit, everything: bool) -> None:
    """Weights with a channel that uses few quantized values, or all with `everything`."""
    rows, shown = found.weights, _shown(found.weights, everything)
    if rows and not shown:
        out.print(f"{counted(len(rows), 'weight')} by channel: every channel uses enough values.")
    if not shown:
        return
    out.print(f"{len(shown)} of {counted(len(rows), 'weight')} by their worst channel:")
    titles = ("SQNR dB", "channel", "noise", "weight: cause")
    cells = (
        (
            _ratio(row.worst_sqnr_db),
            f"{row.worst_channel} of {len(row.channel_amax)}",
            _share(row),
            f"{row.weight} of '{row.node}': {row.cause}",
        )
        for row in shown
    )
    print_list(out, titles, cells, right=range(3))


def _shown(rows: Sequence[_Audited], everything: bool) -> Sequence[_Audited]:
    return rows if everything else [row for row in rows if row.cause != FITS]


def _share(row: _Audited) -> str:
    """Its share of the noise at the outputs."""
    return f"{100 * row.noise_share:.1f}%" if row.noise_share else ""
