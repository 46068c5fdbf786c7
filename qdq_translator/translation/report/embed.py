"""The data of the page: layers and tensors as rows without keys, with every text stored once; shares, the ridge of the
roofline, and the noise of `verify` along the network. Node data for Model Explorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence, Union

from qdq_translator.core.formats.engine_rows import Engine
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.verify_rows import Account
from qdq_translator.core.options import words_of
from qdq_translator.core.rules import words
from qdq_translator.core.words import amount, milliseconds, scale, shape
from qdq_translator.translation.report.model import DEVICES, KINDS, Layer, Network, Tensor

_LAYER: dict[str, Callable[[Layer], Any]] = {
    "$name": lambda x: x.name,
    "$op": lambda x: x.op,
    "$kind": lambda x: x.kind,
    "$device": lambda x: x.device,
    "$reason": lambda x: x.reason,
    "$cure": lambda x: x.cure,
    "cause": lambda x: x.cause,
    "inputs": lambda x: x.inputs,
    "outputs": lambda x: x.outputs,
    "macs": lambda x: x.macs,
    "share": lambda x: x.share,
    "weights": lambda x: x.weights,
    "ms": lambda x: x.milliseconds,
    "int8": lambda x: x.cost and x.cost.int8_milliseconds,
    "fp16": lambda x: x.cost and x.cost.fp16_milliseconds,
    "bytes": lambda x: x.cost and x.cost.bytes,
    "$bound": lambda x: (x.cost and x.cost.bound) or "",
    "$fused": lambda x: (x.cost and x.cost.fused_into) or "",
    "db": lambda x: x.db,
    "noise": lambda x: x.noise,
    "subgraph": lambda x: x.subgraph,
    "hypotheses": lambda x: list(x.hypotheses),
    "$changed": lambda x: x.changed,
}
_BEFORE = {key: _LAYER[key] for key in ("$name", "$kind", "$device", "$reason", "ms", "int8", "fp16", "$fused")}
_TENSOR: dict[str, Callable[[Tensor], Any]] = {
    "$name": lambda t: t.name,
    "$scale": lambda t: scale(t.scale),
    "$hex": lambda t: t.hex,
    "explicit": lambda t: int(t.explicit),
    "assumed": lambda t: int(t.assumed),
    "$rule": lambda t: t.rule,
    "$words": lambda t: words(t.rule),
    "$node": lambda t: t.node,
    "$source": lambda t: t.source,
    "$shape": lambda t: shape(t.shape) if t.shape else "",
    "$role": lambda t: t.role,
    "producer": lambda t: t.producer,
    "readers": lambda t: t.readers,
    "bits": lambda t: t.bits_lost,
}
"""Column -> its value; in a column with $ the rows hold the number of a text."""
_PLAN_OPTIONS = ("target", "platform", "shapes", "power_mode", "dla_clock", "cost_model")


class _Texts:
    """Columns and rows, in which every text is a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def rows(self, columns: dict[str, Callable[[Any], Any]], items: Sequence[Any]) -> dict[str, Any]:
        rows: list[list[Any]] = []
        for item in items:
            rows.append([])
            for key, of in columns.items():
                rows[-1].append(self.number(of(item)) if key[0] == "$" else of(item))
        return {"keys": list(columns), "rows": rows}

    def findings(self, layers: Sequence[Layer]) -> dict[int, list[list[int]]]:
        found: dict[int, list[list[int]]] = {}
        for layer in layers:
            for row in layer.findings:
                texts = map(self.number, (row.text, row.found, row.source, row.status))
                found.setdefault(layer.index, []).append(list(texts))
        return found


def page_data(
    network: Network,
    report: Report,
    engine: Optional[Engine],
    before: Optional[Network],
    engine_before: Optional[Engine],
) -> dict[str, Any]:
    """The object for the script. engine: the result of `inspector.engine_truth` for the layers of `report`. before,
    engine_before: of the other side of a comparison."""
    texts = _Texts()
    follows: dict[str, list[str]] = {}
    for made, yours in report.nodes_in_your_model.items():
        follows.setdefault(yours.node, []).append(made)
    return {
        "layers": texts.rows(_LAYER, network.layers),
        "tensors": texts.rows(_TENSOR, network.tensors),
        "findings": texts.findings(network.layers),
        "cures": {network.tensor_index.get(row.tensor, -1): row.options for row in report.root_causes.causes},
        "inputs": network.inputs,
        "outputs": network.outputs,
        "kinds": [[kind, *words_] for kind, words_ in KINDS.items()],
        "devices": DEVICES,
        "follows": follows,
        "tail": report.parts.tail if report.parts else [],
        "milliseconds": report.cost.milliseconds if report.cost else None,
        "command": _command(report),
        "kept": report.options.get("keep_fp16") or [],
        "engine": _by_name(engine),
        "unfused": plain((engine and engine.unfused) or ()),
        **_before(network, before, texts),
        "engineBefore": _by_name(engine_before),
        "texts": list(texts.numbers),
    }


def _by_name(engine: Optional[Engine]) -> dict[str, Any]:
    return {row.name: plain(row) for row in engine.layers} if engine else {}


def _before(network: Network, before: Optional[Network], texts: _Texts) -> dict[str, Any]:
    """The other side of a comparison: the layers that both have, and its scales for the tensors of `network`."""
    layers = [layer for layer in before.layers if layer.name in network.layer_index] if before else []
    old = {tensor.name: scale(tensor.scale) for tensor in before.tensors} if before else {}
    scales = [old.get(tensor.name) for tensor in network.tensors] if before else []
    return {"before": texts.rows(_BEFORE, layers), "scalesBefore": scales}


def _command(report: Report) -> list[str]:
    """The options of the report, without --keep_fp16; [] for an explicit network."""
    if not report.options:
        return []
    file, options = report.source.file or "MODEL", report.options
    if report.assumption:
        chosen = {key: value for key, value in options.items() if key in _PLAN_OPTIONS}
        given = [word for word in words_of(chosen) if word != "--as_is"]  # a plan adds nothing
        rewrites = [] if options.get("dla_rewrites") else ["--no_rewrites"]
        return ["qdq-translator", "plan", "-i", file, *given, *rewrites]
    return ["qdq-translator", "translate", file, *words_of({**options, "keep_fp16": []})]


_COLOURS = {
    "int8": "#2a9d94",
    "avoidable": "#e8590c",
    "expected": "#b5a96c",
    "limit": "#7c5cc4",
    "gpu": "#b4235f",
    "none": "#9aa6b3",
}
_HEAT = [{"stop": 0, "bgColor": "#f4f6f8"}, {"stop": 1, "bgColor": "#2a6fa9"}]


def node_data(report: Report, engine: Optional[Engine]) -> dict[str, dict[str, Any]]:
    """Name of a file's ending -> an object of Model Explorer's `GraphNodeData`: '' for the precision and device of each
    layer; '_ms' for its milliseconds, measured if `engine` (of `engine_truth`) has them, else estimated; absent if
    neither is known."""
    layers = Network(report).layers
    kinds = {x.name: {"value": KINDS[x.kind][1], "bgColor": _COLOURS[x.kind], "textColor": "#ffffff"} for x in layers}
    found = {"": {"name": "runs in", "results": kinds, "showExpandedSummaryOnGroupNode": True}}
    measured = {row.name: row.milliseconds for row in (engine.layers if engine else ())}
    times = {name: time for name, time in measured.items() if time is not None}
    name = "measured ms" if times else "estimated ms"
    times = times or {x.name: x.milliseconds for x in layers if x.milliseconds is not None}
    if times:
        results = {layer: {"value": time} for layer, time in times.items()}
        found["_ms"] = {"name": name, "results": results, "gradient": _HEAT}
    return found


@dataclass(frozen=True)
class Part:
    """One piece of a bar; start and share: in percent. words: the amount as text."""

    kind: str
    mark: str
    label: str
    words: str
    amount: float
    start: float
    share: float


@dataclass(frozen=True)
class Bar:
    """A bar of shares. title: the divided quantity. total, parts: None and [] if unknown."""

    title: str
    total: Optional[float]
    words: str
    parts: list[Part]


def shares(network: Network) -> list[Bar]:
    """MACs, layers and weights by planned precision; for a DLA by its verdict, together with the estimated time."""
    placed = [x for x in network.layers if x.device in DEVICES and x.device != "folded"]
    found = [(x.device, x) for x in placed] or [(x.kind, x) for x in network.layers if x.kind != "none"]
    kinds = DEVICES if placed else KINDS
    bars = [
        _bar("MACs", [(kind, x.macs) for kind, x in found], kinds),
        _bar("Layers", [(kind, 1) for kind, _ in found], kinds),
        _bar("Weights", [(kind, x.weights) for kind, x in found], kinds),
    ]
    times = [(x.device, x.cost.milliseconds) for x in placed if x.cost]
    estimated = _bar("Estimated ms on the DLA", times, DEVICES, milliseconds)
    return [*bars, estimated] if estimated.total else bars  # no bar unless all layers have figures


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
    """MACs per byte at which arithmetic and memory need equal time in INT8; None without a figure. model: `cost.model`
    of the report.
    """
    rates = [(model or {}).get(key) for key in ("int8_rate", "clock_ghz", "bytes_per_second")]
    known = [rate for rate in rates if isinstance(rate, (int, float)) and rate > 0]
    return known[0] * known[1] * 1e9 / known[2] if len(known) == len(rates) else None


def share_noise(account: Account, network: Network) -> None:
    """Adds the noise to the layers of the network: it is shared by the layers that make the tensors of an entry or hold
    its weights."""
    for entry in account.entries:
        producers = [network.tensors[i].producer for i in map(network.tensor_index.get, entry.tensors) if i is not None]
        makers = [
            network.layers[i]
            for i in (*producers, *map(network.layer_index.get, entry.weights))
            if i is not None and i >= 0
        ]
        for layer in makers:
            layer.noise = (layer.noise or 0.0) + entry.share / len(makers)


def error_along(verify: dict[str, Any], network: Network) -> dict[str, Any]:
    """`points`: one for each tensor, with its number and that of the layer that makes it (-1: none), SQNR in dB as read
    and as made (None: not computed). `jumps`: the numbers of the points at which the error grows. {} without results
    per layer. Adds the dB to the layers."""
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
    found = (_jump(jump, network, places, points) for jump in per_layer.get("jumps") or [] if jump["tensor"] in places)
    return {"points": points, "jumps": list(found)} if points else {}


def _jump(
    jump: dict[str, Any], network: Network, places: dict[str, int], points: list[dict[str, Any]]
) -> dict[str, Any]:
    made, lost = jump.get("where") == "made", jump.get("lost_db")
    who = f"{jump.get('op', '')} {jump.get('node') or jump['tensor']}".strip()
    title = f"{who} {'computes something else' if made else 'is rounded differently'}"
    title += f", {min(lost, 999.0):.1f} dB lost" if lost is not None else ""
    at, link = places[jump["tensor"]], network.link(jump.get("node") or "", jump["tensor"])
    made = made and points[at]["made"] is not None
    return {"at": at, "made": made, "link": link, "title": title, "notes": jump.get("notes") or []}


def _decibel(comparison: dict[str, Any]) -> Union[float, str]:
    value = comparison.get("sqnr_db")
    if value is None:
        return "equal" if comparison.get("identical") else "none left"
    return float(value)
