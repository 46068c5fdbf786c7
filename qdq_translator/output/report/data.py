"""The report as one plain object: what `NAME_report.json` holds and every drawing of it reads.

The schema is described in `docs/report_schema.md`; a change there or here means a new `REPORT_SCHEMA_VERSION`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Optional

from qdq_translator._version import __version__
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.options import effective
from qdq_translator.core.rules import STATED
from qdq_translator.planning.root_causes import add_macs
from qdq_translator.planning.translation import Translated
from qdq_translator.targets.precision import FP16, INT8, NO_PRECISION, LayerPlan

REPORT_SCHEMA_VERSION = 3


def make_report(translation: Translated) -> dict[str, Any]:
    """JSON types only, in a fixed order."""
    plan, dla = translation.plan, translation.dla
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "generator": f"qdq-translator {__version__}",
        "model": translation.name,
        "source": {"file": translation.source.file, "sha256": translation.source.sha256},
        "assumption": "every tensor has a scale" if translation.assumed else "",
        "target": translation.options.target,
        "options": effective(translation.options),
        "cache_version": {"number": translation.hardware.cache_number, "origin": translation.hardware.origin},
        "coverage": coverage(plan),
        "inputs": _graph_tensors(translation, list(translation.graph.inputs)),
        "outputs": _graph_tensors(translation, list(translation.graph.outputs)),
        "root_causes": plain(translation.causes.found),
        "plan": _plan(translation),
        "nodes_in_your_model": {made: {"node": node, "op": op} for made, (node, op) in translation.users_nodes.items()},
        "dla": _dla(translation),
        "cost": None if translation.costs is None else translation.costs.as_dict(),
        "parts": None,
        "dla_rewrites": translation.rewrites.as_dict(dla),
        "shared_ranges": [shared.as_dict() for shared in translation.shared_ranges],
        "scales": _scales(translation),
        "automatic_scales": translation.automatic,
        "conflicts": [d.as_dict() for d in translation.diagnostics.of_rule("C1")],
        "weights": [row.as_dict() for row in translation.weights],
        "diagnostics": [d.as_dict() for d in translation.diagnostics],
    }


def _scales(translation: Translated) -> list[dict[str, Any]]:
    scales, origins = translation.tensor_scales, translation.scale_origins
    return [
        {
            "tensor": name,
            "scale": scale,
            "hex": scale_to_hex(scale),
            "explicit": origins[name]["rule"] in STATED,
            **origins[name],
        }
        for name, scale in scales.items()
    ]


def _dla(translation: Translated) -> Optional[dict[str, Any]]:
    dla, costs = translation.dla, translation.costs
    if dla is None or costs is None:
        return None
    from qdq_translator.planning.cost_summary import headline

    types = translation.planned_types
    return {**dla.as_dict(), **headline(translation.graph, types, translation.plan, dla, costs).as_dict()}


def format_report(report: dict[str, Any]) -> str:
    """JSON text with one line for every row of a list, so that it can be read, compared and searched by line."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_part(value)}" for key, value in report.items()) + "\n}\n"


def _part(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
    if isinstance(value, dict) and any(isinstance(v, list) and v for v in value.values()):
        return format_report(value).rstrip("\n").replace("\n", "\n  ")
    return json.dumps(value)


def coverage(plan: list[LayerPlan]) -> dict[str, Any]:
    """Layers, MACs and weights in INT8, and above it by design, by a limit of the DLA, and avoidably. MACs are None as soon
    as one layer's are unknown, and `unknown_layers` counts those."""
    computing = [layer for layer in plan if layer.precision in (INT8, FP16)]
    parts = {
        "total": computing,
        "int8": [layer for layer in computing if layer.precision == INT8],
        "by_design": [layer for layer in computing if layer.by_design],
        "limit": [layer for layer in computing if layer.limited],
        "avoidable": [layer for layer in computing if layer.avoidable],
    }
    unknown = sum([layer.macs is None for layer in computing])
    return {
        "layers": {
            **{key: len(layers) for key, layers in parts.items()},
            "without_float_data": sum(layer.precision == NO_PRECISION for layer in plan),
        },
        "macs": {
            **{key: None if unknown else add_macs(layers) for key, layers in parts.items()},
            "unknown_layers": unknown,
        },
        "weights": {key: sum([layer.weights for layer in layers]) for key, layers in parts.items()},
    }


def share(part: Optional[int], whole: Optional[int]) -> Optional[float]:
    """part / whole, None where either is unknown or the whole is nothing."""
    return part / whole if part is not None and whole else None


def _plan(translation: Translated) -> list[dict[str, Any]]:
    plan, costs = translation.plan, translation.costs
    macs = add_macs(layer for layer in plan if layer.precision != NO_PRECISION)
    weights = sum(layer.weights for layer in plan)
    rows = [layer.as_dict() for layer in plan]
    for row, layer in zip(rows, plan):
        row["macs_share"], row["weights_share"] = share(layer.macs, macs), share(layer.weights, weights)
    if costs is not None:
        for row, cost in zip(rows, costs.layers):
            row["cost"] = None if cost is None else cost.as_dict(costs.milliseconds)
    return rows


def is_dynamic(shape: Optional[list[Any]]) -> bool:
    """True where a size of a report's `shape` is no number, or nothing is known."""
    return shape is None or any(not isinstance(size, int) for size in shape)


def inferred_by_rule(scales: list[dict[str, Any]]) -> dict[str, int]:
    """Rule -> number of tensors that have their scale from it, of a report's `scales`; the model's own left out."""
    counts = Counter(row["rule"] for row in scales if not row["explicit"])
    return dict(sorted(counts.items()))


def _graph_tensors(translation: Translated, names: list[str]) -> list[dict[str, Any]]:
    """Application code needs these: scale as float and hex, shape and type."""
    rows = []
    for name in names:
        scale = translation.tensor_scales.get(name)
        shape = translation.types.shape(name)
        rows.append(
            {
                "name": name,
                "shape": list(shape) if shape is not None else None,
                "float": translation.types.is_float(name),
                "scale": scale,
                "hex": None if scale is None else scale_to_hex(scale),
                "origin": translation.scales[name].origin.as_dict() if scale is not None else None,
            }
        )
    return rows
