"""What the page draws beside the map: shares, the ridge of the roofline, and the noise of `verify` along the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence, Union

from qdq_translator.core.words import amount, milliseconds
from qdq_translator.output.report.model import DEVICES, KINDS, Network


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
    """title: the divided quantity. total, parts: None and [] if unknown."""

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


def ridge(model: Optional[dict[str, Any]]) -> Optional[float]:
    """MACs a byte at which arithmetic takes as long as memory in INT8; None without a figure. model: `cost.model` of the report."""
    rates = [(model or {}).get(key) for key in ("int8_rate", "clock_ghz", "bytes_per_second")]
    known = [rate for rate in rates if isinstance(rate, (int, float)) and rate > 0]
    return known[0] * known[1] * 1e9 / known[2] if len(known) == len(rates) else None


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


def error_along(verify: dict[str, Any], network: Network) -> dict[str, Any]:
    """`points`: a tensor each, with its number and that of the layer that makes it (-1: none), SQNR in dB as read and as made (None: not
    computed). `jumps`: the number of a point, where the error grows. {} without results per layer. The dB go into the layers."""
    per_layer = verify.get("per_layer") or {}
    points: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for row in per_layer.get("layers") or []:
        layer = network.layer_index.get(row.get("node") or "", -1)
        tensor = network.tensor_index.get(row["tensor"], -1)
        read, made = _decibel(row.get("read") or {}), _decibel(row["made"]) if row.get("made") else None
        places[row["tensor"]] = len(points)
        points.append({"name": row["tensor"], "layer": layer, "tensor": tensor, "read": read, "made": made})
        if layer >= 0:
            network.layers[layer].db = read
    jumps = []
    for jump in per_layer.get("jumps") or []:
        if jump["tensor"] in places:
            made, lost = jump.get("where") == "made", jump.get("lost_db")
            who = f"{jump.get('op', '')} {jump.get('node') or jump['tensor']}".strip()
            title = f"{who} {'computes something else' if made else 'is rounded differently'}"
            title += f", {min(lost, 999.0):.1f} dB lost" if lost is not None else ""
            at, link = places[jump["tensor"]], network.link(jump.get("node") or "", jump["tensor"])
            made = made and points[at]["made"] is not None
            jumps.append({"at": at, "made": made, "link": link, "title": title, "notes": jump.get("notes") or []})
    return {"points": points, "jumps": jumps} if points else {}


def _decibel(comparison: dict[str, Any]) -> Union[float, str]:
    value = comparison.get("sqnr_db")
    if value is None:
        return "equal" if comparison.get("identical") else "none left"
    return float(value)
