"""The report of a translation: the content of `NAME_report.json`, the source of every view of it.

`core.formats.report_rows` defines the rows and the schema; docs/report_schema.md explains the keys.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.core.formats.rows import json_text
from qdq_translator.core.options import effective
from qdq_translator.core.rules import STATED
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.targets.precision import FP16, INT8, NO_PRECISION, add_macs, share


def make_report(translation: Translated) -> rows.Report:
    """Everything known about a translation."""
    plan, dla = translation.plan, translation.dla
    diagnostics = tuple(translation.diagnostics)
    return rows.Report(
        schema_version=3,
        generator=rows.GENERATOR,
        model=translation.name,
        source=rows.Source(translation.source.file, translation.source.sha256),
        assumption="every tensor has a scale" if translation.assumed else "",
        target=translation.options.target,
        options=effective(translation.options),
        cache_version=rows.CacheVersion(translation.hardware.cache_number, translation.hardware.origin),
        coverage=coverage(plan),
        inputs=_ends(translation, list(translation.graph.inputs)),
        outputs=_ends(translation, list(translation.graph.outputs)),
        root_causes=translation.causes,
        plan=_plan(translation),
        nodes_in_your_model={made: rows.NodeRow(*users) for made, users in translation.users_nodes.items()},
        dla=_dla(translation),
        cost=None if translation.costs is None else translation.costs.row(),
        parts=None,
        dla_rewrites=translation.rewrites.row(dla),
        shared_ranges=tuple(shared.row() for shared in translation.shared_ranges),
        scales=_scales(translation),
        automatic_scales=translation.automatic,
        conflicts=tuple(found for found in diagnostics if found.rule == "C1"),
        weights=tuple(translation.weights),
        diagnostics=diagnostics,
    )


def _scales(translation: Translated) -> tuple[rows.TensorScale, ...]:
    origins = translation.scale_origins
    return tuple(
        rows.TensorScale(name, scale, scale_to_hex(scale), origins[name].rule in STATED, **vars(origins[name]))
        for name, scale in translation.tensor_scales.items()
    )


def _dla(translation: Translated) -> Optional[rows.Dla]:
    if translation.dla is None:
        return None
    from qdq_translator.translation.planning.layers import headline  # has imports that only a DLA target needs

    return translation.dla.row(*headline(translation.graph, translation.planned_types, translation.plan))


def format_report(report: dict[str, Any]) -> str:
    """JSON text with one line for every row of a list, so that it can be read, compared and searched by line."""
    try:
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_part(value)}" for key, value in report.items()) + "\n}\n"
    except ValueError:
        return json_text(report)  # a number is not finite: null


_dumps = functools.partial(json.dumps, allow_nan=False)


def _part(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n    " + ",\n    ".join(map(_dumps, value)) + "\n  ]"
    if isinstance(value, dict) and any(isinstance(v, list) and v for v in value.values()):
        return format_report(value)[:-1].replace("\n", "\n  ")
    return _dumps(value)


def coverage(plan: list[rows.LayerPlan]) -> rows.Coverage:
    """Layers, MACs and weights in INT8, and those above INT8: by design, by a limit of the DLA, and avoidably. MACs are
    None as soon as the MACs of one layer are unknown; `unknown_layers` is the number of such layers."""
    computing = [layer for layer in plan if layer.precision in (INT8, FP16)]
    parts = {"total": computing, "int8": [layer for layer in computing if layer.precision == INT8]}
    for part, why in (("by_design", "by_design"), ("limit", "limited"), ("avoidable", "avoidable")):
        parts[part] = [layer for layer in computing if getattr(layer, why)]
    unknown = sum(layer.macs is None for layer in computing)
    numbers: dict[str, Any] = {key: len(layers) for key, layers in parts.items()}
    macs: dict[str, Any] = {key: None if unknown else add_macs(layers) for key, layers in parts.items()}
    return rows.Coverage(
        rows.WeightParts(**numbers),
        rows.MacParts(**macs, unknown_layers=unknown),
        rows.WeightParts(**{key: sum(layer.weights for layer in layers) for key, layers in parts.items()}),
    )


def _plan(translation: Translated) -> tuple[rows.LayerPlan, ...]:
    plan = translation.plan
    macs = add_macs(layer for layer in plan if layer.precision != NO_PRECISION)
    return tuple(dataclasses.replace(layer, macs_share=share(layer.macs, macs)) for layer in plan)


def inferred_by_rule(scales: Sequence[rows.TensorScale]) -> dict[str, int]:
    """Rule -> number of tensors that have their scale from it, without the model's own scales."""
    counts = Counter(row.rule for row in scales if not row.explicit)
    return dict(sorted(counts.items()))


def _ends(translation: Translated, names: list[str]) -> tuple[rows.End, ...]:
    """The data that application code needs: scale as float and hex, shape and type."""
    ends = []
    for name in names:
        scale, shape = translation.tensor_scales.get(name), translation.types.shape(name)
        known = None if shape is None else tuple(shape)
        exact, origin = None, None
        if scale is not None:
            exact, origin = scale_to_hex(scale), translation.scales[name].origin.row()
        ends.append(rows.End(name, known, translation.types.is_float(name), scale, exact, origin))
    return tuple(ends)


_BADNESS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "Q1": lambda data: data["coarser"],
    "C1": lambda data: max(data["scales"]) / min(data["scales"]),
    "W1": lambda data: data["largest_error"],
    "W3": lambda data: data["largest_relative"],
}
"""Rule -> function of a diagnostic's data that ranks its diagnostics by severity."""


@dataclasses.dataclass
class Messages:
    """The diagnostics of one code. worst: of all diagnostics of one code. count: their number."""

    worst: rows.DiagnosticRow
    count: int = 1


def _badness(item: rows.DiagnosticRow) -> float:
    measure = _BADNESS.get(item.code.split("-")[-1])
    try:
        return float(measure(item.data)) if measure else 0.0
    except (KeyError, TypeError, ValueError):  # written by another version
        return 0.0


def one_a_rule(items: Iterable[rows.DiagnosticRow]) -> list[Messages]:
    """`items`: diagnostics as in a report. Ordered by the first diagnostic of each code."""
    by_code: dict[str, Messages] = {}
    for item in items:
        group = by_code.get(item.code)
        if group is None:
            by_code[item.code] = Messages(item)
            continue
        group.count += 1
        if _badness(item) > _badness(group.worst):
            group.worst = item
    return list(by_code.values())
