"""What the page's script draws from: layers and tensors as rows without keys, and every text once, because there are thousands."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from qdq_translator.core.options import words_of
from qdq_translator.core.rules import words
from qdq_translator.output.report.figures import scale, shape
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
    "db": lambda x: x.db if x.db is None or math.isfinite(x.db) else "equal" if x.db > 0 else "none left",
    "noise": lambda x: x.noise,
    "subgraph": lambda x: x.subgraph,
    "hypotheses": lambda x: list(x.hypotheses),
    "$changed": lambda x: x.changed,
    "$was": lambda x: x.was,
}
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


def page_data(network: Network, report: dict[str, Any], engine: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    """The object of the script. engine: what `engine.truth` found for the layers of `report`."""
    texts: dict[str, int] = {}

    def rows(columns: dict[str, Callable[[Any], Any]], items: list[Any]) -> dict[str, Any]:
        def cell(key: str, value: Any) -> Any:
            return texts.setdefault(value, len(texts)) if key[0] == "$" else value

        return {"keys": list(columns), "rows": [[cell(k, f(x)) for k, f in columns.items()] for x in items]}

    def findings(layer: Layer) -> list[list[int]]:
        keys = ("text", "found", "source", "status")
        return [[texts.setdefault(row.get(key, ""), len(texts)) for key in keys] for row in layer.findings]

    follows: dict[str, list[str]] = {}
    for made, yours in (report.get("nodes_in_your_model") or {}).items():
        follows.setdefault(yours["node"], []).append(made)
    causes = (report.get("root_causes") or {}).get("causes") or []
    options = report.get("options") or {}
    return {
        "layers": rows(_LAYER, network.layers),
        "tensors": rows(_TENSOR, network.tensors),
        "findings": {x.index: findings(x) for x in network.layers if x.findings},
        "cures": {network.tensor_index.get(row["tensor"], -1): row.get("options") or [] for row in causes},
        "inputs": network.inputs,
        "outputs": network.outputs,
        "kinds": [[kind, *words_] for kind, words_ in KINDS.items()],
        "devices": DEVICES,
        "follows": follows,
        "tail": (report.get("parts") or {}).get("tail") or [],
        "milliseconds": (report.get("cost") or {}).get("milliseconds"),
        "command": _command(report, options),
        "kept": options.get("keep_fp16") or [],
        "engine": {row["name"]: row for row in (engine or {}).get("layers", ())},
        "texts": list(texts),
    }


def _command(report: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """What made the report, without --keep_fp16."""
    file = (report.get("source") or {}).get("file") or "MODEL"
    if report.get("assumption"):
        chosen = {key: value for key, value in options.items() if key in _PLAN_OPTIONS}
        rewrites = [] if options.get("dla_rewrites") else ["--no_rewrites"]
        return ["qdq-translator", "plan", "-i", file, *words_of(chosen), *rewrites]
    return ["qdq-translator", "translate", file, *words_of({**options, "keep_fp16": []})]
