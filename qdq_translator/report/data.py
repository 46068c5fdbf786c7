"""The report as one plain object: what `NAME_report.json` holds and every drawing of it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdq_translator._version import __version__
from qdq_translator.emit.calibration_cache import scale_to_hex
from qdq_translator.options import effective
from qdq_translator.precision import FP16, INT8, LayerPlan

if TYPE_CHECKING:
    from qdq_translator.translator import Translation

REPORT_SCHEMA_VERSION = 1


def make_report(translation: Translation) -> dict[str, Any]:
    """JSON types only, in a fixed order."""
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "generator": f"qdq-translator {__version__}",
        "model": translation.name,
        "source": {"file": translation.source.file, "sha256": translation.source.sha256},
        "options": effective(translation.options),
        "cache_version": {"number": translation.version.number, "origin": translation.version.origin},
        "coverage": coverage(translation.plan),
        "inputs": _graph_tensors(translation, list(translation.graph.inputs)),
        "outputs": _graph_tensors(translation, list(translation.graph.outputs)),
        "plan": [layer.as_dict() for layer in translation.plan],
        "scales": [
            {"tensor": name, "scale": scale, "hex": scale_to_hex(scale), "explicit": translation.scales[name].explicit}
            | translation.scales[name].origin.as_dict()
            for name, scale in translation.tensor_scales.items()
        ],
        "automatic_scales": translation.automatic,
        "conflicts": [d.as_dict() for d in translation.diagnostics.of_rule("C1")],
        "weights": [row.as_dict() for row in translation.weights],
        "diagnostics": [d.as_dict() for d in translation.diagnostics],
    }


def coverage(plan: list[LayerPlan]) -> dict[str, Any]:
    """Layers, MACs and weights in INT8 and above. `macs` is None as soon as one layer's are unknown."""
    computing = [layer for layer in plan if layer.precision in (INT8, FP16)]
    int8 = [layer for layer in computing if layer.precision == INT8]
    macs_known = all(layer.macs is not None for layer in computing)
    return {
        "layers": {
            "total": len(computing),
            "int8": len(int8),
            "expected_higher": sum(layer.expected for layer in computing),
        },
        "macs": {
            "total": sum(layer.macs or 0 for layer in computing) if macs_known else None,
            "int8": sum(layer.macs or 0 for layer in int8) if macs_known else None,
        },
        "weights": {"total": sum(la.weights for la in computing), "int8": sum(la.weights for la in int8)},
    }


def _graph_tensors(translation: Translation, names: list[str]) -> list[dict[str, Any]]:
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
