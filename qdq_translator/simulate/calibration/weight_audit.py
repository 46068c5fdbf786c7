"""Check weights against their steps, channel by channel: which output channels use few quantized values, and why.

No data are needed. The noise of a channel is that of rounding to steps of its size (variance step^2 / 12): the step of
the model's own grid if one scale was used for the whole weight, else TensorRT's, `max|w| / 127` of the channel (fact
5.1, 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Optional

import numpy as np

from qdq_translator.ir.graph import Graph
from qdq_translator.ir.operators import has_one_scale, output_channels
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.simulate.metrics import noise_to_db

LEAST_DB = 30.0
"""A channel below has a weight that reaches 14 times as far as their root mean square, or steps of the same effect."""
BINS = 64
FITS = "fits"
"""The cause where nothing is wrong."""
_ON_GRID = 2.0**-4
"""A weight may be so far (in steps) beside the model's grid: half precision's rounding of 127 steps."""
_TELLING = 8
"""Fewer different magnitudes may lie on a grid by chance."""


@dataclass(frozen=True)
class AuditedWeight:
    """Audit of one weight. weight: the initializer; node: the layer that uses it. amax: largest magnitude of each
    output channel; codes: amax in steps; noise: of each channel, relative to its energy (nan for all zeros). counts:
    magnitudes in BINS equal bins from 0 to their channel's largest. one_scale: TensorRT has one scale for the whole
    weight."""

    weight: str
    node: str
    amax: np.ndarray
    codes: np.ndarray
    noise: np.ndarray
    counts: np.ndarray
    one_scale: bool

    @property
    def worst(self) -> int:
        """The channel with most noise."""
        return int(np.nanargmax(self.noise))

    @property
    def cause(self) -> str:
        """Likely cause in words; 'fits' if there is none."""
        poor = np.flatnonzero(np.nan_to_num(self.noise) > 10 ** (-LEAST_DB / 10))
        if not poor.size:
            return FITS
        where = f"{poor.size} of {len(self.amax)} channels" if len(self.amax) > 1 else "the weight"
        if (self.codes[poor] < INT8_MAX).any():
            worst = self.worst
            return f"one scale for all channels: {where} use few of the INT8 values, channel {worst} only {int(self.codes[worst])} of {INT8_MAX}"
        reach = INT8_MAX * float(np.sqrt(12 * self.noise[self.worst]))
        return f"few large weights set the step of {where}: in channel {self.worst} the largest is {reach:.0f} times the root mean square"

    def as_dict(self) -> dict[str, Any]:
        return {
            "weight": self.weight,
            "node": self.node,
            "one_scale": self.one_scale,
            "worst_channel": self.worst,
            "worst_sqnr_db": noise_to_db(float(self.noise[self.worst])),
            "channel_amax": [float(v) for v in self.amax],
            "channel_codes": [int(v) for v in self.codes],
            "channel_sqnr_db": [None if np.isnan(v) else noise_to_db(float(v)) for v in self.noise],
            "histogram": {"end": 1.0, "counts": [int(v) for v in self.counts]},
            "cause": self.cause,
        }


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
    return sorted(rows, key=lambda row: -float(row.noise[row.worst]))  # stable: graph order among equals


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
    counts = np.histogram(relative[amax > 0], BINS, (0.0, 1.0))[0]
    return AuditedWeight(weight, node, amax, codes, noise, counts, one_scale)


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
