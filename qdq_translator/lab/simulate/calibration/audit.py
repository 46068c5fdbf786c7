"""Check existing scales against data: clipping, unused range, and the range with less loss.

Each tensor is judged alone: the error is that of rounding and clipping its own values, as produced by its layer with
the model's own scales applied. `verify --sensitivity` measures the cost at the outputs.

Weights are judged channel by channel without data: which output channels use few quantized values, and why. The noise
of a channel is that of rounding to steps of its size (variance step^2 / 12): the step of the model's own grid if one
scale was used for the whole weight, else TensorRT's, `max|w| / 127` of the channel (fact 5.1, 5.2).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Collection, Mapping, Optional, Sequence

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
from qdq_translator.lab.simulate.calibration.histogram import BINS, Histogram
from qdq_translator.lab.simulate.calibration.likeness import INPUTS, channel_means, unlike_calibration, unlike_training
from qdq_translator.lab.simulate.calibration.methods import clipped, energy, mse, squared_error
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, copy_model
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import noise_to_db
from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.operators import has_one_scale, output_channels
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.ir.types import TensorTypes

INPUT_CLIPPED = 0.05
"""Share of a graph input's values, for a finding of its own."""
FITS_DB = 1.0
"""A better range that gains less is no finding."""
OUTLIER = 4.0
"""A channel with this many times the range of the median channel is a finding."""
SHOWN_BINS = 128
LEAST_DB = 30.0
"""A channel below has a weight that reaches 14 times as far as their root mean square, or steps of the same effect."""
WEIGHT_BINS = 64
_ON_GRID = 2.0**-4
"""Largest distance (in steps) of a weight from the model's grid: half precision's rounding of 127 steps."""
_TELLING = 8
"""Fewer different magnitudes may be on a grid by chance."""
RULE = "K1"
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
        if not energy(histogram):  # zeros, or smaller than the magnitudes that are counted
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
    origins = network.rules
    names = [
        name
        for name in graph.tensors()
        if name in network.scales and name not in network.unary and types.is_float(name)
    ]
    stated = {name: network.scales[name] for name in names if not origins or origins.get(name) in STATED}
    observed = observe(graph, types, stated, names, samples, progress, where=where)
    audit = audit_scales(
        {name: (network.scales[name], origins.get(name, "")) for name in names}, observed, graph.inputs
    )
    unlike = audit.unlike or _unlike_recorded(network, samples, explicit)
    return dataclasses.replace(audit, unlike=unlike, weights=tuple(audit_weights(graph, types, weights)))


def _unlike_recorded(network: ImplicitNetwork, samples: Samples, explicit: Optional[ExplicitNetwork]) -> str:
    """A sentence if the inputs differ from the statistics that calibration or training recorded, else ''."""
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
                f"range made wide by rare values: {_percent(clipped(histogram, row.best * INT8_MAX))} "
                "are beyond a better one"
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


def _unlike(rows: Sequence[AuditedScale], inputs: Collection[str]) -> str:
    """A sentence if the inputs fit neither most ranges that are stated or calibrated, nor that of a graph input, else
    ''."""
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
                f"The inputs are unlike those of the calibration: '{row.tensor}' reaches from {row.lowest:.4g} to "
                f"{row.highest:.4g}, "
                f"its scale +-{row.scale * INT8_MAX:.4g}. {CHECK}"
            )
    return ""


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


# ---------------- weights


def audit_weights(graph: Graph, types: TensorTypes, used: Collection[tuple[str, int]]) -> list[AuditedWeight]:
    """`used`: (node, input index) of the weights that INT8 layers round. Worst first; weights of zeros only are left
    out.
    """
    rows = []
    for node in graph.nodes:
        for index, name in enumerate(node.inputs[:2]):
            values = graph.array(name) if (node.name, index) in used else None
            if values is None or not values.any():
                continue
            one = has_one_scale(node, index, values.ndim, types.rank(node.inputs[1 - index]))
            channels = output_channels(node, index, values.ndim)
            wide = values.astype(np.float64)
            row = wide.reshape(1, -1) if one or channels is None else channels.rows(wide)
            rows.append(_audited(name, node.name, np.abs(row), one))
    return sorted(rows, key=lambda row: row.worst_sqnr_db or 0.0)  # stable: graph order among equals


def _audited(weight: str, node: str, values: np.ndarray, one_scale: bool) -> AuditedWeight:
    """`values`: magnitudes (channels, weights of each)."""
    amax = values.max(axis=1)
    step = _common_step(values)
    steps = amax / INT8_MAX if step is None else np.full(len(amax), step)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = steps**2 / 12 / np.mean(values**2, axis=1)
        relative = values / amax[:, None]
        codes = np.nan_to_num(np.rint(amax / steps)).astype(np.int64)
    noise[amax == 0] = np.nan
    counts = tuple(np.histogram(relative[amax > 0], WEIGHT_BINS, (0.0, 1.0))[0].tolist())
    worst, decibels = int(np.nanargmax(noise)), (noise_to_db(value) for value in noise.tolist())
    return AuditedWeight(
        *(
            weight,
            node,
            one_scale,
            worst,
            noise_to_db(float(noise[worst])),
            tuple(amax.tolist()),
            tuple(codes.tolist()),
        ),
        channel_sqnr_db=tuple(None if math.isnan(db) else db for db in decibels),
        histogram=Magnitudes(1.0, counts),
        cause=_weight_cause(codes, noise),
    )


def _weight_cause(codes: np.ndarray, noise: np.ndarray) -> str:
    """Likely cause in words; 'fits' if there is none. `codes`: largest magnitude of each channel in steps."""
    poor, worst = np.flatnonzero(np.nan_to_num(noise) > 10 ** (-LEAST_DB / 10)), int(np.nanargmax(noise))
    if not poor.size:
        return FITS
    where = f"{poor.size} of {len(codes)} channels" if len(codes) > 1 else "the weight"
    if (codes[poor] < INT8_MAX).any():
        return (
            f"one scale for all channels: {where} use few of the INT8 values, channel {worst} only {int(codes[worst])} "
            f"of {INT8_MAX}"
        )
    reach = INT8_MAX * float(np.sqrt(12 * noise[worst]))
    return (
        f"few large weights set the step of {where}: in channel {worst} the largest is {reach:.0f} times "
        "the root mean square"
    )


def _common_step(values: np.ndarray) -> Optional[float]:
    """Step of the grid that holds all weights, the largest at 127 steps; None if there is no such grid."""
    few, most = (
        values.reshape(-1)[: 32 * INT8_MAX],
        16 * INT8_MAX,
    )  # more are not on one grid, even if rounded to half precision
    magnitudes = np.unique(few if len(np.unique(few)) > most else values)
    largest = float(magnitudes[-1])
    if not _TELLING <= len(magnitudes) <= most:
        return None
    codes = magnitudes * (INT8_MAX / largest)
    return largest / INT8_MAX if np.abs(codes - np.rint(codes)).max() < _ON_GRID else None
