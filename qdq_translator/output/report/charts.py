"""What the page draws beside the picture: shares, the roofline, and the noise of `verify` along the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from qdq_translator.core.words import amount, milliseconds
from qdq_translator.output.report.model import DEVICES, KINDS, Network

_TOP_DB = 80.0
"""The chart of `verify` ends here; equal tensors lie on this line."""


@dataclass(frozen=True)
class Part:
    """One piece of a bar; start and share in percent, words: the amount for people."""

    kind: str
    mark: str
    label: str
    words: str
    amount: float
    start: float
    share: float


@dataclass(frozen=True)
class Bar:
    """title: what is shared out. total, parts: None and [] where it is unknown."""

    title: str
    total: Optional[float]
    words: str
    parts: list[Part]


def shares(network: Network) -> list[Bar]:
    """MACs, layers and weights by planned precision; with a DLA as target by its verdict, and the estimated time too."""
    working = [layer for layer in network.layers if layer.kind != "none"]
    placed = [layer for layer in network.layers if layer.device in DEVICES and layer.device != "folded"]
    if placed:
        verdicts = [layer.device for layer in placed]
        bars = [
            _bar("MACs", list(zip(verdicts, (x.macs for x in placed))), DEVICES),
            _bar("Layers", [(verdict, 1) for verdict in verdicts], DEVICES),
            _bar("Weights", list(zip(verdicts, (x.weights for x in placed))), DEVICES),
        ]
        times = [(x.device, x.cost.milliseconds) for x in placed if x.cost]
        if times and all(time is not None for _, time in times):
            bars.append(_bar("Estimated ms on the DLA", times, DEVICES, milliseconds))
        return bars
    kinds = [layer.kind for layer in working]
    return [
        _bar("MACs", list(zip(kinds, (x.macs for x in working))), KINDS),
        _bar("Layers", [(kind, 1) for kind in kinds], KINDS),
        _bar("Weights", list(zip(kinds, (x.weights for x in working))), KINDS),
    ]


def _bar(
    title: str,
    amounts: Sequence[tuple[str, Optional[float]]],
    kinds: dict[str, tuple[str, str]],
    words: Callable[[Optional[float]], str] = amount,
) -> Bar:
    if any(amount is None for _, amount in amounts):
        return Bar(title, None, "unknown", [])
    sums = dict.fromkeys(kinds, 0.0)
    for kind, value in amounts:
        sums[kind] += value or 0
    total = sum(sums.values())
    parts, start = [], 0.0
    for kind, (mark, label) in kinds.items():
        if sums[kind]:
            share = 100 * sums[kind] / total
            parts.append(Part(kind, mark, label, words(sums[kind]), sums[kind], start, share))
            start += share
    return Bar(title, total, words(total), parts)


@dataclass(frozen=True)
class Roofline:
    """MACs per byte against milliseconds, both logarithmic; layers that do not multiply stand at the left edge.

    dots: (x, y, layer), in pixels. ridge: where arithmetic takes as long as memory in INT8, a pixel; None without a model.
    columns, rows: ticks (pixel, words).
    """

    dots: list[tuple[float, float, int]]
    ridge: Optional[float]
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]


_PLOT = (72.0, 970.0, 14.0, 280.0)
"""left, right, top, bottom of the plot in a drawing of 1000 by 320."""


def roofline(network: Network, model: Optional[dict[str, Any]] = None) -> Optional[Roofline]:
    """None where no layer has an estimate. model: `cost.model` of the report."""
    shown = [layer for layer in network.layers if layer.milliseconds and layer.cost.bytes]
    if not shown:
        return None
    left, right, top, bottom = _PLOT
    times = [math.log10(layer.milliseconds or 1.0) for layer in shown]
    low, high = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)
    most = 4.0  # 10^4 MACs a byte

    def across(value: float) -> float:
        return round(left + 40 + (right - left - 40) * min(max(math.log10(value), 0.0), most) / most, 1)

    def up(power: float) -> float:
        return round(bottom - (bottom - top) * (power - low) / (high - low), 1)

    dots = []
    for layer, time in zip(shown, times):
        intensity = (layer.macs or 0) / layer.cost.bytes
        dots.append((across(intensity) if intensity >= 1 else left + 6, up(time), layer.index))
    rates = [(model or {}).get(key) for key in ("int8_rate", "clock_ghz", "bytes_per_second")]
    known = [rate for rate in rates if isinstance(rate, (int, float)) and rate > 0]
    ridge = across(known[0] * known[1] * 1e9 / known[2]) if len(known) == len(rates) else None
    columns = [(across(10.0**power), f"{10**power:,}") for power in range(5)]
    rows = [(up(power), milliseconds(10.0**power)) for power in range(low, high + 1)]
    return Roofline(dots, ridge, columns, rows)


def share_noise(account: dict[str, Any], network: Network) -> None:
    """`account` of `verify --save`, into the network's layers: the layers that make an entry's tensors, or hold its weights, share it."""
    for entry in account.get("entries") or []:
        producers = [
            network.tensors[i].producer for i in map(network.tensor_index.get, entry["tensors"]) if i is not None
        ]
        makers = [
            network.layers[i]
            for i in (*producers, *map(network.layer_index.get, entry["weights"]))
            if i is not None and i >= 0
        ]
        for layer in makers:
            layer.noise = (layer.noise or 0.0) + entry["share"] / len(makers)


@dataclass(frozen=True)
class Point:
    """One tensor on the chart of `verify`: pixels, and SQNR in dB (None: equal)."""

    x: float
    read_y: float
    made_y: Optional[float]
    tensor: int
    layer: int
    text: str


@dataclass(frozen=True)
class JumpMark:
    x: float
    y: float
    link: str
    title: str
    notes: list[str]


@dataclass(frozen=True)
class Chart:
    """Error along the depth of the network. made_lines: pieces, broken where nothing is known."""

    points: list[Point]
    jumps: list[JumpMark]
    grid: list[tuple[float, str]]
    read_line: str
    made_line: str


_CHART = (46.0, 984.0, 14.0, 224.0)
"""left, right, top, bottom of the plot in a drawing of 1000 by 260."""


def chart(verify: dict[str, Any], network: Network) -> Optional[Chart]:
    """None without results per layer. The tensors' dB go into the network's layers."""
    per_layer = verify.get("per_layer") or {}
    rows = per_layer.get("layers") or []
    if not rows:
        return None
    left, right, top, bottom = _CHART

    def height(comparison: Optional[dict[str, Any]]) -> Optional[float]:
        if comparison is None:
            return None
        db = _decibel(comparison)
        return round(bottom - (bottom - top) * min(max(db, 0.0), _TOP_DB) / _TOP_DB, 1)

    points: list[Point] = []
    places: dict[str, Point] = {}
    for number, row in enumerate(rows):
        x = round(left + (right - left) * (number / (len(rows) - 1) if len(rows) > 1 else 0.5), 1)
        made, read = row.get("made"), row.get("read") or {}
        tensor = network.tensor_index.get(row["tensor"], -1)
        layer = network.layer_index.get(row.get("node") or "", -1)
        text = f"{row['tensor']}: {_db_text(read)} as read"
        if made:
            text += f", {_db_text(made)} as made"
        point = Point(x, height(read) or 0.0, height(made), tensor, layer, text)
        points.append(point)
        places[row["tensor"]] = point
        if layer >= 0:
            network.layers[layer].db = _decibel(read)
    jumps = []
    for jump in per_layer.get("jumps") or []:
        at = places.get(jump["tensor"])
        if at is None:
            continue
        who = f"{jump.get('op', '')} {jump.get('node') or jump['tensor']}".strip()
        what = "computes something else" if jump.get("where") == "made" else "is rounded differently"
        lost = jump.get("lost_db")
        title = f"{who} {what}" + (f", {min(lost, 999.0):.1f} dB lost" if lost is not None else "")
        y = at.made_y if jump.get("where") == "made" and at.made_y is not None else at.read_y
        jumps.append(
            JumpMark(at.x, y, network.link(jump.get("node") or "", jump["tensor"]), title, jump.get("notes") or [])
        )
    grid = [(bottom - (bottom - top) * db / _TOP_DB, f"{db}") for db in (0, 20, 40, 60)] + [(top, "80+")]
    return Chart(
        points,
        jumps,
        grid,
        " ".join(f"{p.x:g},{p.read_y:g}" for p in points),
        " ".join(f"{p.x:g},{p.made_y:g}" for p in points if p.made_y is not None),
    )


def _decibel(comparison: dict[str, Any]) -> float:
    value = comparison.get("sqnr_db")
    if value is None:
        return math.inf if comparison.get("identical") else -math.inf
    return float(value)


def _db_text(comparison: dict[str, Any]) -> str:
    db = _decibel(comparison)
    return "equal" if db == math.inf else "nothing of the signal left" if db == -math.inf else f"{db:.1f} dB"
