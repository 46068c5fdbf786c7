"""Check existing scales against data: clipping, unused range, and the range with less loss.

Each tensor is judged alone: the error is that of rounding and clipping its own values, as produced by its layer with
the model's own scales applied. `verify --sensitivity` measures the cost at the outputs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Collection, Mapping, Optional, Sequence, TypeVar

import numpy as np

from qdq_translator.core.formats.verify_rows import (
    CLIPPED,
    FITS,
    UNUSED_BITS,
    Audit,
    AuditedScale,
    AuditedWeight,
    Magnitudes,
)
from qdq_translator.core.progress import Progress
from qdq_translator.core.rules import STATED
from qdq_translator.core.words import counted
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.simulate.calibration.histogram import BINS, Histogram
from qdq_translator.simulate.calibration.likeness import INPUTS, channel_means, unlike_calibration, unlike_training
from qdq_translator.simulate.calibration.methods import clipped, energy, mse, squared_error
from qdq_translator.simulate.calibration.observe import observe
from qdq_translator.simulate.calibration.weight_audit import audit_weights
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, copy_model
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import noise_to_db
from qdq_translator.simulate.run import ExplicitNetwork

INPUT_CLIPPED = 0.05
"""Share of a graph input's values, for a finding of its own."""
FITS_DB = 1.0
"""A better range that gains less is no finding."""
OUTLIER = 4.0
"""A channel that reaches so many times as far as the median channel."""
SHOWN_BINS = 128
RULE = "K1"
_Audited = TypeVar("_Audited", AuditedScale, AuditedWeight)
CHECK = "Check the preprocessing: RGB or BGR, division by 255, mean and standard deviation, layout."


def audit_scales(
    scales: Mapping[str, tuple[float, str]], histograms: Mapping[str, Histogram], inputs: Collection[str] = ()
) -> Audit:
    """`scales`: tensor -> (scale, rule that gave it). Tensors without histogram are left out. inputs: of the graph."""
    rows, silent = [], []
    for tensor, (scale, origin) in scales.items():
        histogram = histograms.get(tensor)
        if histogram is None:
            continue
        if not energy(histogram):  # zeros, or smaller than what is counted
            silent.append(tensor)
            continue
        rows.append(_row(tensor, scale, origin, histogram))
    rows.sort(key=lambda row: -row.damage)  # a stable sort: graph order among equals
    return Audit(_unlike(rows, inputs), tuple(silent), tuple(rows))


def audit_network(
    network: ImplicitNetwork,
    samples: Samples,
    progress: Progress,
    weights: Collection[tuple[str, int]] = (),
    where: Evaluation = HERE,
    explicit: Optional[ExplicitNetwork] = None,
) -> Audit:
    """Audit every scale of the cache that is an activation range, and the rounded weights (node, input index).
    explicit: the model as given, whose BatchNormalizations describe its training data.

    Raises UserError as `observe` does."""
    graph = Graph.from_model(copy_model(network.model))
    types = TensorTypes(graph)
    origins = {name: str(origin.get("rule", "")) for name, origin in network.config.get("scale_origins", {}).items()}
    names = [
        name
        for name in graph.tensors()
        if name in network.scales and name not in network.unary and types.is_float(name)
    ]
    stated = {name: network.scales[name] for name in names if not origins or origins.get(name) in STATED}
    observed = observe(graph, types, stated, names, samples, progress, by_channel=True, where=where)
    audit = audit_scales(
        {name: (network.scales[name], origins.get(name, "")) for name in names}, observed.histograms, graph.inputs
    )
    unlike = audit.unlike or _unlike_recorded(network, samples, explicit)
    return dataclasses.replace(audit, unlike=unlike, weights=tuple(audit_weights(graph, types, weights)))


def _unlike_recorded(network: ImplicitNetwork, samples: Samples, explicit: Optional[ExplicitNetwork]) -> str:
    """Like `_unlike`, based on the data statistics recorded by calibration or training."""
    recorded = [row.get("data", {}).get(INPUTS) for row in network.config.get("diagnostics", ())]
    then = next((found for found in recorded if isinstance(found, dict)), None)
    what = unlike_calibration(channel_means(samples), then) if then else ""
    if not what and explicit is not None:
        what = unlike_training(explicit, samples)
    return f"The inputs are unlike those of the calibration: {what}. {CHECK}" if what else ""


def _row(tensor: str, scale: float, origin: str, histogram: Histogram) -> AuditedScale:
    amax, total = scale * INT8_MAX, energy(histogram)
    best = mse(histogram)
    error, best_error = (float(v) for v in squared_error(histogram, np.array([amax, best])))
    if error <= best_error:
        best, best_error = amax, error
    share, unused = clipped(histogram, amax), max(0.0, math.log2(amax / histogram.amax))
    counts = tuple(histogram.counts.reshape(SHOWN_BINS, -1).sum(1).tolist())
    sqnr, best_sqnr = noise_to_db(error / total), noise_to_db(best_error / total)
    row = AuditedScale(
        *(tensor, origin, scale, histogram.lowest, histogram.highest, share, unused, best / INT8_MAX, ""),
        Magnitudes(histogram.width * BINS, counts),
        *(scale * INT8_MAX, best / INT8_MAX * INT8_MAX, sqnr, best_sqnr),
        gain_db=best_sqnr - sqnr if error > best_error else 0.0,
    )
    return dataclasses.replace(row, cause=_cause(row, histogram))


def _cause(row: AuditedScale, histogram: Histogram) -> str:
    """Likely cause in words; 'fits' if a better range would gain next to nothing."""
    notes = []
    if row.gain_db >= FITS_DB:
        if row.best > row.scale:
            notes.append(f"range too tight: {_percent(row.clipped)} of the values are clipped")
        elif row.unused_bits >= 1 or row.best * INT8_MAX >= histogram.amax:
            notes.append(f"range too wide: {row.unused_bits:.1f} of 8 bits are never used")
        else:
            notes.append(
                f"range made wide by rare values: {_percent(clipped(histogram, row.best * INT8_MAX))} are beyond a better one"
            )
    outlier = _outlier(histogram.channels)
    if outlier is not None and row.best <= row.scale:
        notes.append(f"channel {outlier[0]} reaches {outlier[1]:.1f} times as far as the median channel")
    low, high = sorted((abs(row.lowest), abs(row.highest)))
    if not notes and row.lowest < 0 < row.highest and low < high / 3:
        notes.append(f"asymmetric: from {row.lowest:.4g} to {row.highest:.4g} under a symmetric scale")
    return "; ".join(notes) or FITS


def _outlier(channels: Optional[np.ndarray]) -> Optional[tuple[int, float]]:
    """Channel with the largest range, and its ratio to the median one, if that is large."""
    if channels is None or channels.size < 4:
        return None
    largest, median = int(channels.argmax()), float(np.median(channels))
    if median == 0 or channels[largest] <= OUTLIER * median:
        return None
    return largest, float(channels[largest]) / median


def _unlike(rows: Sequence[AuditedScale], inputs: Collection[str] = ()) -> str:
    """By the ranges that the model states or that were calibrated: those of most tensors, or that of an input."""
    known = [row for row in rows if row.origin in (*STATED, RULE) or not row.origin]
    clip = [row for row in known if row.clipped > CLIPPED]
    unused = [row for row in known if row.unused_bits > UNUSED_BITS]
    for found, what in (
        (clip, f"clip more than {_percent(CLIPPED)} of what these inputs make"),
        (unused, f"leave more than {UNUSED_BITS:g} bits unused on these inputs"),
    ):
        if len(known) > 1 and 2 * len(found) > len(known):
            return (
                f"The inputs are unlike those of the calibration: {len(found)} of {len(known)} scales {what}. {CHECK}"
            )
    for row in known:
        if row.tensor in inputs and (row.clipped > INPUT_CLIPPED or row.unused_bits > UNUSED_BITS):
            return (
                f"The inputs are unlike those of the calibration: '{row.tensor}' reaches from {row.lowest:.4g} to {row.highest:.4g}, "
                f"its scale +-{row.scale * INT8_MAX:.4g}. {CHECK}"
            )
    return ""


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def print_audit(console: Any, found: Audit, verbose: bool) -> None:
    """For a terminal: the worst ten scales and weights, or all with `verbose`."""
    from rich.markup import escape

    rows, shown = found.tensors, _shown(found.tensors, verbose)
    if found.unlike:
        console.print(f"[yellow]{escape(found.unlike)}[/]")
    if shown:
        which = "all" if verbose else "the worst"
        console.print(f"Scales compared with these inputs, {which} {len(shown)} of {len(rows)}:")
    elif rows:
        console.print(f"{counted(len(rows), 'scale')} compared with these inputs: no misfit.")
    for row in shown:
        best = f", {_db(row.best_sqnr_db)} with the best range" if row.gain_db else ""
        console.print(f"  [bold]{escape(row.tensor)}[/]: SQNR {_db(row.sqnr_db)} dB{best}{_share(row)}")
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
        console.print(f"  {name}: SQNR {_db(weight.worst_sqnr_db)} dB in {place}\n    {escape(weight.cause)}")


def _shown(rows: Sequence[_Audited], verbose: bool) -> Sequence[_Audited]:
    return rows if verbose else [row for row in rows if row.cause != FITS][:10]


def _share(row: _Audited) -> str:
    return f"; {100 * row.noise_share:.1f}% of the noise at the outputs" if row.noise_share else ""


def _db(value: Optional[float]) -> str:
    return f"{value:.1f}" if value is not None and math.isfinite(value) else "equal"
