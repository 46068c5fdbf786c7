"""What TensorRT built, layer by layer beside the plan: precision, format, what a layer is fused with, and its measured time."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Sequence

from qdq_translator.engine.inspector import FREE, MISSING, EngineCheck
from qdq_translator.engine.layer_info import EngineLayer, LayerInfo


def engine_truth(check: EngineCheck, info: LayerInfo, times: Mapping[str, float]) -> dict[str, Any]:
    """JSON types only. times: layer of the engine -> milliseconds (`board.read_profile`), {} without a profile.

    `layers`: one row a planned layer. `format`: of inputs and outputs, in TensorRT's words. The time of a layer of the engine is in the
    row of the first planned layer that it computes, the others have `null` and the same `engine_layer`. `disagreements`: names of the
    layers that run against the plan. `unmatched`: layers of the engine that compute no planned one. `missing`: planned, nowhere.
    """
    engine = {layer.name: layer for layer in info.layers}
    members: dict[str, list[str]] = {}
    for verdict in check.verdicts:
        if verdict.engine_layer:
            members.setdefault(verdict.engine_layer, []).append(verdict.name)
    rows = []
    for verdict in check.verdicts:
        layer, with_ = engine.get(verdict.engine_layer), members.get(verdict.engine_layer, [verdict.name])
        row = {
            key: getattr(verdict, key)
            for key in ("name", "op", "planned", "actual", "verdict", "engine_layer", "device", "why")
        }
        row["against"] = verdict.is_disobedience
        row["format"] = _formats(layer) if layer is not None else ""
        row["fused_with"] = [name for name in with_ if name != verdict.name]
        row["milliseconds"] = times.get(verdict.engine_layer) if with_[0] == verdict.name else None
        rows.append(row)
    return {
        "summary": check.summary(),
        "milliseconds": sum(times.values()) if times else None,
        "layers": rows,
        "disagreements": [verdict.name for verdict in check.disobediences],
        "unmatched": _unmatched(check, info, members, times),
        "missing": [v.name for v in check.verdicts if v.verdict == MISSING and v.planned != FREE],
        "unfused_qdq": [dataclasses.asdict(layer) for layer in check.unfused_qdq],
        "gpu_fallbacks": [{"layer": layer, "cause": cause} for layer, cause in check.gpu_fallbacks],
    }


def _formats(layer: EngineLayer) -> str:
    sides = (("reads", layer.inputs), ("writes", layer.outputs))
    words = ((side, "; ".join(dict.fromkeys(t.words for t in tensors if t.words))) for side, tensors in sides)
    return ", ".join(f"{side} {text}" for side, text in words if text)


def _unmatched(
    check: EngineCheck, info: LayerInfo, members: Mapping[str, Sequence[str]], times: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Layers of the engine without a planned one, the slowest first, and rows of the profile that the engine does not name."""
    kinds = (
        ("reformat", check.reformats),
        ("to or from INT8", check.quantizers),
        ("Q/DQ left unfused", check.unfused_qdq),
    )
    what = {layer.name: kind for kind, layers in kinds for layer in layers}
    types = {layer.name: layer.layer_type for layer in info.layers}
    names = [name for name in dict.fromkeys((*types, *times)) if name not in members]
    rows = [
        {
            "name": name,
            "layer_type": types.get(name, ""),
            "what": what.get(name, "computes no layer of the plan" if name in types else "in the profile only"),
            "milliseconds": times.get(name),
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: -(row["milliseconds"] or 0.0))
