"""Check weights against their steps, channel by channel: which output channels use few quantized values, and why.

No data are needed. The noise of a channel is that of rounding to steps of its size (variance step^2 / 12): the step of
the model's own grid if one scale was used for the whole weight, else TensorRT's, `max|w| / 127` of the channel (fact
5.1, 5.2).
"""

from __future__ import annotations

import math
from typing import Collection, Optional

import numpy as np

from qdq_translator.core.formats.verify_rows import FITS, AuditedWeight, Magnitudes
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.operators import has_one_scale, output_channels
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.simulate.metrics import noise_to_db

LEAST_DB = 30.0
"""A channel below has a weight that reaches 14 times as far as their root mean square, or steps of the same effect."""
BINS = 64
_ON_GRID = 2.0**-4
"""A weight may be so far (in steps) beside the model's grid: half precision's rounding of 127 steps."""
_TELLING = 8
"""Fewer different magnitudes may lie on a grid by chance."""


def audit_weights(graph: Graph, types: TensorTypes, used: Collection[tuple[str, int]]) -> list[AuditedWeight]:
    """`used`: (node, input index) of the weights that INT8 layers round. Worst first; weights of zeros only are left out."""
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
    counts = tuple(np.histogram(relative[amax > 0], BINS, (0.0, 1.0))[0].tolist())
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
        cause=_cause(codes, noise),
    )


def _cause(codes: np.ndarray, noise: np.ndarray) -> str:
    """Likely cause in words; 'fits' if there is none. codes: largest magnitude of each channel in steps."""
    poor, worst = np.flatnonzero(np.nan_to_num(noise) > 10 ** (-LEAST_DB / 10)), int(np.nanargmax(noise))
    if not poor.size:
        return FITS
    where = f"{poor.size} of {len(codes)} channels" if len(codes) > 1 else "the weight"
    if (codes[poor] < INT8_MAX).any():
        return f"one scale for all channels: {where} use few of the INT8 values, channel {worst} only {int(codes[worst])} of {INT8_MAX}"
    reach = INT8_MAX * float(np.sqrt(12 * noise[worst]))
    return f"few large weights set the step of {where}: in channel {worst} the largest is {reach:.0f} times the root mean square"


def _common_step(values: np.ndarray) -> Optional[float]:
    """The step of the one grid on which all weights lie, the largest of them at 127 steps; None without one."""
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
