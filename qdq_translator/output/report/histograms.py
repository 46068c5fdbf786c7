"""What `verify --audit` saw, drawn: the values of each tensor with the lines at which its scale and the best one clip, and the
range of each output channel of a weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

from qdq_translator.core.words import counted

TENSORS, WEIGHTS = 60, 24
"""So many are drawn, the worst first; the table on the page has them all."""
WIDTH, HEIGHT = 320.0, 96.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 6.0, 314.0, 8.0, 76.0
_CHANNELS = 256
"""So many channels are drawn one by one; of more, the largest of neighbours."""


@dataclass(frozen=True)
class Histogram:
    """A tensor's magnitudes, heights logarithmic. clip, best: where its scale and the best one clip, in pixels."""

    row: dict[str, Any]
    path: str
    clip: Optional[float]
    best: Optional[float]
    end: str


@dataclass(frozen=True)
class Channels:
    """A weight. path: the largest magnitude of each output channel; values: all magnitudes, each channel by its largest.

    worst: left side and width of the channel with the most noise, in pixels.
    """

    row: dict[str, Any]
    path: str
    values: str
    worst: tuple[float, float]
    words: str


def tensor_histograms(audit: dict[str, Any]) -> list[Histogram]:
    """audit: a key of what `verify --save` wrote (docs/report_schema.md). Tensors that are drawn, worst first."""
    drawn = []
    for row in (audit.get("tensors") or [])[:TENSORS]:
        counts, end = row["histogram"]["counts"], row["histogram"]["end"]
        span = max(end, row["amax"], row["best_amax"]) or 1.0
        clip, best = (round(_across(row[key] / span), 1) for key in ("amax", "best_amax"))
        drawn.append(Histogram(row, _steps(counts, end / span), clip, best, f"{span:.4g}"))
    return drawn


def weight_channels(audit: dict[str, Any]) -> list[Channels]:
    """As `tensor_histograms`, for `weights`."""
    drawn = []
    for row in (audit.get("weights") or [])[:WEIGHTS]:
        amax = row["channel_amax"]
        group = -(-len(amax) // _CHANNELS)
        bars = [max(amax[i : i + group]) for i in range(0, len(amax), group)]
        full = sum(code >= 127 for code in row["channel_codes"])
        words = f"{counted(len(amax), 'output channel')}, values reach 127 in {full:,}"
        if row["worst_sqnr_db"] is not None:
            words += f"; the noisiest is {row['worst_channel']} with {row['worst_sqnr_db']:.1f} dB"
        left, right = (_across((row["worst_channel"] // group + side) / len(bars)) for side in (0, 1))
        drawn.append(
            Channels(
                row,
                _bars(bars),
                _steps(row["histogram"]["counts"], 1.0),
                (round(left, 1), round(max(right - left, 1.5), 1)),
                words,
            )
        )
    return drawn


def _across(share: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * share


def _steps(counts: list[int], width: float) -> str:
    """Bins as one area over `width` (0 to 1) of the plot."""
    most = math.log1p(max(counts, default=0)) or 1.0
    return _area([math.log1p(count) / most for count in counts], width)


def _bars(values: list[float]) -> str:
    most = max(values, default=0.0) or 1.0
    return _area([value / most for value in values], 1.0)


def _area(heights: list[float], width: float) -> str:
    path = [f"M{_LEFT:g} {_BOTTOM:g}"]
    for number, height in enumerate(heights, 1):
        x, y = _across(width * number / len(heights)), _BOTTOM - (_BOTTOM - _TOP) * height
        path.append(f"V{round(y, 1):g}H{round(x, 1):g}")
    return "".join(path) + f"V{_BOTTOM:g}Z"
