"""What the page's script draws from (layers and tensors as rows without keys, every text once), and node data for Model Explorer."""

from __future__ import annotations

from typing import Any, Callable, Optional

from qdq_translator.core.formats.engine_rows import Engine
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.options import words_of
from qdq_translator.core.rules import words
from qdq_translator.core.words import scale, shape
from qdq_translator.output.report.model import DEVICES, KINDS, Layer, Network, Tensor

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
"""Column -> its value; of a column with $ the rows hold the number of a text."""
_PLAN_OPTIONS = ("target", "platform", "shapes", "power_mode", "dla_clock", "cost_model")


def page_data(
    network: Network,
    report: Report,
    engine: Optional[Engine] = None,
    before: Optional[Network] = None,
    engine_before: Optional[Engine] = None,
) -> dict[str, Any]:
    """The object of the script. engine: what `inspector.engine_truth` found for the layers of `report`. before, engine_before: of the other side of
    a comparison."""
    texts: dict[str, int] = {}

    def rows(columns: dict[str, Callable[[Any], Any]], items: list[Any]) -> dict[str, Any]:
        def cell(key: str, value: Any) -> Any:
            return texts.setdefault(value, len(texts)) if key[0] == "$" else value

        return {"keys": list(columns), "rows": [[cell(k, f(x)) for k, f in columns.items()] for x in items]}

    def findings(layer: Layer) -> list[list[int]]:
        found = ((row.text, row.found, row.source, row.status) for row in layer.findings)
        return [[texts.setdefault(text, len(texts)) for text in row] for row in found]

    follows: dict[str, list[str]] = {}
    for made, yours in report.nodes_in_your_model.items():
        follows.setdefault(yours.node, []).append(made)
    old = {t.name: scale(t.scale) for t in before.tensors} if before else {}
    return {
        "layers": rows(_LAYER, network.layers),
        "tensors": rows(_TENSOR, network.tensors),
        "findings": {x.index: findings(x) for x in network.layers if x.findings},
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
        "engine": {row.name: plain(row) for row in (engine.layers if engine else ())},
        "unfused": plain((engine and engine.unfused) or ()),
        "before": rows(_BEFORE, [x for x in (before or network).layers if before and x.name in network.layer_index]),
        "scalesBefore": [old.get(t.name) for t in network.tensors] if before else [],
        "engineBefore": {row.name: plain(row) for row in (engine_before.layers if engine_before else ())},
        "texts": list(texts),
    }


def _command(report: Report) -> list[str]:
    """What made the report, without --keep_fp16; [] for an explicit network."""
    if not report.options:
        return []
    file, options = report.source.file or "MODEL", report.options
    if report.assumption:
        chosen = {key: value for key, value in options.items() if key in _PLAN_OPTIONS}
        rewrites = [] if options.get("dla_rewrites") else ["--no_rewrites"]
        return ["qdq-translator", "plan", "-i", file, *words_of(chosen), *rewrites]
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


def node_data(report: Report, engine: Optional[Engine] = None) -> dict[str, dict[str, Any]]:
    """Name of a file's ending -> an object of Model Explorer's `GraphNodeData`: '' what each layer runs in; '_ms' its milliseconds,
    measured if `engine` (of `engine_truth`) has them, else estimated; absent if neither is known."""
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
