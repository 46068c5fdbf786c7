"""Node data for Model Explorer: the plan as colours on the nodes of NAME_noqdq.onnx (ids are names of nodes)."""

from __future__ import annotations

from typing import Any, Optional

from qdq_translator.output.report.model import KINDS, Network

_COLOURS = {
    "int8": "#2a9d94",
    "avoidable": "#e8590c",
    "expected": "#b5a96c",
    "limit": "#7c5cc4",
    "gpu": "#b4235f",
    "none": "#9aa6b3",
}
_HEAT = [{"stop": 0, "bgColor": "#f4f6f8"}, {"stop": 1, "bgColor": "#2a6fa9"}]


def node_data(report: dict[str, Any], engine: Optional[dict[str, Any]] = None) -> dict[str, dict[str, Any]]:
    """Name of a file's ending -> an object of Model Explorer's `GraphNodeData`: '' what each layer runs in; '_ms' its milliseconds,
    measured if `engine` (of `engine.truth`) has them, else estimated; absent if neither is known."""
    layers = Network(report).layers
    kinds = {x.name: {"value": KINDS[x.kind][1], "bgColor": _COLOURS[x.kind], "textColor": "#ffffff"} for x in layers}
    found = {"": {"name": "runs in", "results": kinds, "showExpandedSummaryOnGroupNode": True}}
    measured = {row["name"]: row["milliseconds"] for row in (engine or {}).get("layers", ())}
    times = {name: time for name, time in measured.items() if time is not None}
    name = "measured ms" if times else "estimated ms"
    times = times or {x.name: x.milliseconds for x in layers if x.milliseconds is not None}
    if times:
        results = {layer: {"value": time} for layer, time in times.items()}
        found["_ms"] = {"name": name, "results": results, "gradient": _HEAT}
    return found
