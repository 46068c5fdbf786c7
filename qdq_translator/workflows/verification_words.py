"""The results of `verify` on a terminal of 80 columns."""

from __future__ import annotations

import math
import shlex
from typing import Any, Optional, Sequence, TypeVar

from rich.console import Console
from rich.markup import escape

from qdq_translator.core.formats.verify_rows import (
    FITS,
    Audit,
    AuditedScale,
    AuditedWeight,
    ComparedOutput,
    Layer,
    Layers,
    Sensitivity,
    Simulation,
    Verification,
)
from qdq_translator.core.hypotheses import FUSION
from qdq_translator.core.words import counted, others
from qdq_translator.output.report.tables import print_table
from qdq_translator.simulate.verdict import BROKEN, EQUAL, ROUNDING, SUSPICIOUS

SHOWN_JUMPS = 8


def _finite(value: Optional[float]) -> float:
    """0 if it is not known or infinite."""
    return value if value is not None and math.isfinite(value) else 0.0


def _db(value: Optional[float], identical: bool) -> str:
    return "equal" if identical else "none" if value is None or math.isinf(value) else f"{value:.1f}"


def _ratio(value: Optional[float]) -> str:
    return _db(value, value is None or math.isinf(value))


def _compared(row: ComparedOutput) -> tuple[str, str]:
    """The largest difference and the agreement on Top-1."""
    return f"{row.max_abs:.3g}", "-" if row.top1_agreement is None else f"{row.top1_agreement:.2f}%"


def print_results(results: Verification, verbose: bool) -> None:
    """For a terminal of 80 columns."""
    console = Console(highlight=False)
    inputs, outputs = results.inputs, results.outputs
    console.print(
        f"[bold]{escape(results.model.file)}[/bold] and the simulated INT8 engine of its translation, "
        f"{counted(inputs.samples, 'sample')} ({escape(inputs.source)})"
    )
    _print_simulation(console, results.simulation)
    figures = (
        (pair.reference, pair.other, name, f"{row.cosine:.6f}", _db(row.sqnr_db, row.identical), *_compared(row))
        for pair in outputs.pairs
        for name, row in pair.outputs.items()
    )
    titles = ("reference", "other", "output", "cosine", "SQNR dB", "max diff", "Top-1 same")
    print_table(console, titles, figures, right=(3, 4, 5, 6))
    _print_verdict(console, results)
    for pair in outputs.pairs[:1]:
        for name, row in pair.outputs.items():
            lowest = row.worst_slice
            if lowest is not None and lowest.cosine < row.cosine:
                console.print(
                    f"  {escape(name)}, worst slice ({lowest.index} of {lowest.size} along axis {lowest.axis}): "
                    f"cosine {lowest.cosine:.6f}, SQNR {_db(lowest.sqnr_db, False)} dB"
                )
    for stage, rows in outputs.accuracy.items():
        for name, value in rows.items():
            console.print(f"  {stage}: {value:.2f}% of the labels right ({escape(name)})")
    metric = results.metric.name if results.metric is not None else ""
    for stage, value in outputs.metric.items():
        console.print(f"  {stage}: {escape(metric)} = {value:.6g}")
    if results.per_layer is not None:
        _print_layers(console, results.per_layer, verbose)
    if results.account is not None and results.account.sentence:
        console.print(results.account.sentence)
    if results.sensitivity is not None:
        _print_sensitivity(console, results.sensitivity)
    if results.audit is not None:
        _print_audit(console, results.audit, verbose)
    for note in results.notes:
        console.print(f"  note: {escape(note)}")


def _print_simulation(console: Any, simulation: Simulation) -> None:
    """Print the precisions used, and open questions."""
    half = simulation.layers_in_fp16_on_dla
    on_dla, above = f", {half} in FP16 on the DLA" if half else "", simulation.layers_above_int8 - half
    console.print(
        f"  {counted(simulation.layers_in_int8, 'layer')} in INT8{on_dla} and {above} above it "
        f"({simulation.higher_layers}), as planned{' with --layer_arg' if simulation.layer_arg else ''}; "
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
        console.print(f"  {counted(simulation.tensors_inside_fusions, 'more tensor')} with a scale {print_fusion}")
    if simulation.parts:
        each = ", ".join(f"{role} {count}" for role, count in simulation.parts.items())
        console.print(f"  'parts': what was cut, one part behind the other; layers in INT8: {each}")
    for row in simulation.hypotheses:
        if row.id != FUSION:
            console.print(f"  Not known ({row.fact}): {row.planned}; '{row.stage}': {row.other}.")


_VERDICT_COLOURS = {EQUAL: "green", ROUNDING: "green", SUSPICIOUS: "yellow", BROKEN: "red"}


def _print_verdict(console: Any, results: Verification) -> None:
    """Print the output that decides the verdict, and limits of random inputs."""
    overall, reasons = results.verdict.overall, results.verdict.reasons
    deciding = [(name, row) for name, row in results.verdict.outputs.items() if row.verdict == overall]
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
    console.print(f"Verdict: {text}.")
    for sentence in reasons[:SHOWN_JUMPS]:
        console.print(f"  {escape(sentence)}")
    if len(reasons) > SHOWN_JUMPS:
        console.print(f"  and {len(reasons) - SHOWN_JUMPS} more sentences like these")
    if results.inputs.random:
        console.print(
            "[yellow]Random inputs prove little[/]: they show a wrong weight, connection or scale of the model, but no "
            "range that does not fit the data, and they reach no real decision. Give real inputs with --inputs."
        )


def _print_layers(console: Any, layers: Layers, verbose: bool) -> None:
    jumps = layers.jumps
    tensors = counted(len(layers.layers), "tensor")
    if not jumps:
        console.print(f"No layer stands out among {tensors}.")
    else:
        shown = jumps if verbose else jumps[:SHOWN_JUMPS]
        console.print(
            f"The error jumps at {counted(len(jumps), 'place')} of {tensors}; what adds the most noise first:"
        )
        for jump in shown:
            what = "computes something else" if jump.where == "made" else "is rounded differently"
            who = f"{jump.op} '{escape(jump.node)}'" if jump.node else "graph input"
            added = "everything" if math.isinf(jump.added) else f"{100 * jump.added:.3g}%"
            console.print(
                f"  [yellow]{who} {what}[/], tensor '{escape(jump.tensor)}': adds {added} noise energy, SQNR "
                f"{_db(jump.sqnr_db, False)} dB; {100 * (jump.noise_share or 0.0):.1f}% of the noise at the outputs"
            )
            for note in jump.notes or [
                "no rule of the translation explains it: its weights, bias or attributes, or noise that grows in it"
            ]:
                console.print(f"    {escape(note)}")
        if len(shown) < len(jumps):
            console.print(f"  and {len(jumps) - len(shown)} more (--verbose)")
    if not verbose:
        return

    def decibels(row: Layer) -> list[str]:
        return ["" if side is None else _db(side.sqnr_db, side.identical) for side in (row.made, row.read)]

    cells = ((row.node or "(input)", row.tensor, *decibels(row)) for row in layers.layers)
    print_table(console, ("layer", "tensor", "made dB", "read dB"), cells, right=(2, 3))


def _print_sensitivity(console: Any, found: Sensitivity) -> None:
    base, before, left = found.baseline_db, found.baseline_metric, found.candidates_left_out
    metric = "" if before is None else f", metric {before:.6g}"
    ranked = " With one tensor left float:" if found.ranking else ""
    console.print(f"Output SQNR against float: {'equal' if base == math.inf else f'{base:.1f} dB'}{metric}.{ranked}")
    for row in found.ranking[:10]:
        gain = f"{row.gain_db:+.2f} dB" if math.isfinite(row.gain_db) else ""
        if before is not None and row.metric is not None:
            gain += f" {row.metric - before:+.4g}"
        console.print(
            f"  {gain:>10}  {100 * row.noise_share:5.1f}% of the noise: {escape(row.tensor)}{others(row.tensors)}, by "
            f"{escape(', '.join(row.layers))}"
        )
        for cause in row.causes:
            console.print(f"    {escape(cause)}")
    if left:
        console.print(f"  {counted(left, 'tensor')} left out by --time_limit")
    if found.chosen:
        best = found.chosen[-1]
        console.print(
            f"Kept above INT8 together: {_db(best.sqnr_db, best.sqnr_db == math.inf)} dB, cosine {best.cosine:.6f}"
            + ("" if best.metric is None else f", metric {best.metric:.6g}")
            + ". Translate again with"
        )
        console.print(f"  {escape(found.command)}", soft_wrap=True)
        console.print("or try it here, or give it to trtexec as --layerPrecisions:")
        console.print(f"  --layer_arg {escape(shlex.quote(found.layer_argument))}", soft_wrap=True)
    elif found.enough:
        console.print("The metric is what was asked for without any layer above INT8.")
    elif found.ranking:
        console.print("None of them gains enough to name layers: the loss is spread over the network.")


_Audited = TypeVar("_Audited", AuditedScale, AuditedWeight)


def _print_audit(console: Any, found: Audit, verbose: bool) -> None:
    """The worst ten scales and weights, or all with `verbose`."""
    rows, shown = found.tensors, _shown(found.tensors, verbose)
    if found.unlike:
        console.print(f"[yellow]{escape(found.unlike)}[/]")
    if shown:
        which = "all" if verbose else "the worst"
        console.print(f"Scales compared with these inputs, {which} {len(shown)} of {len(rows)}:")
    elif rows:
        console.print(f"{counted(len(rows), 'scale')} compared with these inputs: no misfit.")
    for row in shown:
        best = f", {_ratio(row.best_sqnr_db)} with the best range" if row.gain_db else ""
        console.print(f"  [bold]{escape(row.tensor)}[/]: SQNR {_ratio(row.sqnr_db)} dB{best}{_share(row)}")
        console.print(f"    {escape(row.cause)}")
    if shown and not verbose:
        console.print(
            "  --recalibrate of translate replaces scales: by name, or --recalibrate worst:3 --calibrate DATA"
        )
    weights = _shown(found.weights, verbose)
    if weights:
        console.print(f"Weights by their worst channel, {len(weights)} of {len(found.weights)}:")
    elif found.weights:
        console.print(f"{counted(len(found.weights), 'weight')} by channel: every channel uses enough values.")
    for weight in weights:
        place = f"channel {weight.worst_channel} of {len(weight.channel_amax)}{_share(weight)}"
        name = f"[bold]{escape(weight.weight)}[/] of '{escape(weight.node)}'"
        console.print(f"  {name}: SQNR {_ratio(weight.worst_sqnr_db)} dB in {place}\n    {escape(weight.cause)}")


def _shown(rows: Sequence[_Audited], verbose: bool) -> Sequence[_Audited]:
    return rows if verbose else [row for row in rows if row.cause != FITS][:10]


def _share(row: _Audited) -> str:
    return f"; {100 * row.noise_share:.1f}% of the noise at the outputs" if row.noise_share else ""
