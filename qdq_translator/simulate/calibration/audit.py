"""Check existing scales against data: clipping, unused range, and the range with less loss.

Each tensor is judged alone: the error is that of rounding and clipping its own values, as produced by its layer with
the model's own scales applied. `verify --sensitivity` measures the cost at the outputs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Collection, Mapping, Optional, Sequence

import numpy as np

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
from qdq_translator.simulate.calibration.weight_audit import FITS, AuditedWeight, audit_weights
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, copy_model
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import finite_or_none, noise_to_db
from qdq_translator.simulate.run import ExplicitNetwork

CLIPPED = 0.01
INPUT_CLIPPED = 0.05
"""The same of a graph input, for a finding of its own."""
UNUSED_BITS = 1.5
"""A tensor of which more is clipped, or fewer codes are used, does not fit its scale; most tensors so: unlike data."""
FITS_DB = 1.0
"""A better range that gains less is no finding."""
OUTLIER = 4.0
"""A channel that reaches so many times as far as the median channel."""
SHOWN_BINS = 128
RULE = "K1"
CHECK = "Check the preprocessing: RGB or BGR, division by 255, mean and standard deviation, layout."


@dataclasses.dataclass(frozen=True)
class AuditedScale:
    """scale: of the table; origin: the rule that gave it. lowest, highest: of the values seen. clipped: share (0 to 1)
    of the values beyond the scale's range. unused_bits: log2 of the scale's amax over the amax seen, not below 0.
    noise: energy of the error over energy of the tensor; best_noise: the same with `best`, the scale of the least
    squared error. histogram: of the magnitudes, SHOWN_BINS counts from 0 to `end`."""

    tensor: str
    origin: str
    scale: float
    lowest: float
    highest: float
    clipped: float
    unused_bits: float
    noise: float
    best: float
    best_noise: float
    cause: str
    histogram: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Neither much is clipped nor many bits are unused."""
        return self.clipped <= CLIPPED and self.unused_bits <= UNUSED_BITS

    @property
    def damage(self) -> float:
        """Noise that a better range would take away, relative to the tensor's energy."""
        return self.noise - self.best_noise

    @property
    def gain_db(self) -> float:
        return noise_to_db(self.best_noise) - noise_to_db(self.noise) if self.damage > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        del plain["noise"], plain["best_noise"]
        plain.update(
            amax=self.scale * INT8_MAX,
            best_amax=self.best * INT8_MAX,
            sqnr_db=finite_or_none(noise_to_db(self.noise)),
            best_sqnr_db=finite_or_none(noise_to_db(self.best_noise)),
            gain_db=finite_or_none(self.gain_db),
        )
        return plain


@dataclasses.dataclass(frozen=True)
class Audit:
    """Audit results. rows: worst first; silent: tensors that held only zeros. unlike: a sentence if the data differ
    from those used for the scales, else ''. weights: worst first."""

    rows: tuple[AuditedScale, ...]
    silent: tuple[str, ...]
    unlike: str
    weights: tuple[AuditedWeight, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "unlike": self.unlike,
            "zero": list(self.silent),
            "tensors": [row.as_dict() for row in self.rows],
            "weights": [row.as_dict() for row in self.weights],
        }


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
    return Audit(tuple(rows), tuple(silent), _unlike(rows, inputs))


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
    share = clipped(histogram, amax)
    unused = max(0.0, math.log2(amax / histogram.amax))
    row = AuditedScale(
        tensor,
        origin,
        scale,
        histogram.lowest,
        histogram.highest,
        share,
        unused,
        error / total,
        best / INT8_MAX,
        best_error / total,
        "",
        {"end": histogram.width * BINS, "counts": histogram.counts.reshape(SHOWN_BINS, -1).sum(1).tolist()},
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


def print_audit(console: Any, found: dict[str, Any], verbose: bool) -> None:
    """For a terminal: the worst ten scales, or all with `verbose`."""
    from rich.markup import escape

    rows, weights = found["tensors"], found["weights"]
    if found["unlike"]:
        console.print(f"[yellow]{escape(found['unlike'])}[/]")
    shown = _shown(rows, verbose)
    if shown:
        console.print(
            f"Scales compared with these inputs, {'all' if verbose else 'the worst'} {len(shown)} of {len(rows)}:"
        )
    elif rows:
        console.print(f"{counted(len(rows), 'scale')} compared with these inputs: no misfit.")
    for row in shown:
        best = "" if row["gain_db"] == 0 else f", {_db(row['best_sqnr_db'])} with the best range"
        console.print(f"  [bold]{escape(row['tensor'])}[/]: SQNR {_db(row['sqnr_db'])} dB{best}")
        console.print(f"    {escape(row['cause'])}")
    if shown and not verbose:
        console.print(
            "  --recalibrate of translate replaces scales by name, or the worst: --recalibrate worst:3 --calibrate DATA"
        )
    shown = _shown(weights, verbose)
    if shown:
        console.print(f"Weights by their worst channel, {len(shown)} of {len(weights)}:")
    elif weights:
        console.print(f"{counted(len(weights), 'weight')} by channel: every channel uses enough values.")
    for row in shown:
        console.print(
            f"  [bold]{escape(row['weight'])}[/] of '{escape(row['node'])}': SQNR {_db(row['worst_sqnr_db'])} dB in "
            f"channel {row['worst_channel']} of {len(row['channel_amax'])}"
        )
        console.print(f"    {escape(row['cause'])}")


def _shown(rows: list[dict[str, Any]], verbose: bool) -> list[dict[str, Any]]:
    return rows if verbose else [row for row in rows if row["cause"] != FITS][:10]


def _db(value: Optional[float]) -> str:
    return "equal" if value is None else f"{value:.1f}"
