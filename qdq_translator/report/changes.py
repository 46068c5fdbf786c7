"""What differs between two reports: layers, scales, options."""

from __future__ import annotations

import math
from typing import Any, Optional

from qdq_translator.options import TranslateOptions, effective
from qdq_translator.report.charts import Bar
from qdq_translator.report.model import Network


def times_of(*reports: dict[str, Any]) -> list[float]:
    """Estimated milliseconds of each, [] where one has none."""
    found = [(report.get("cost") or {}).get("milliseconds") for report in reports]
    known = [float(time) for time in found if time is not None]
    return known if len(known) == len(found) else []


def causes_of(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cause["tensor"]: cause for cause in (report.get("root_causes") or {}).get("causes") or []}


def first_share(bar: Bar) -> Optional[float]:
    """Percent of the first kind (INT8)."""
    first = {"int8", "dla-int8"}
    if bar.total is None:
        return None
    return next((part.share for part in bar.parts if part.kind in first), 0.0)


def changed_layers(before: Network, after: Network) -> list[dict[str, Any]]:
    """Layers whose precision or device differs, and those that only one of the two has; marks the changed ones."""
    rows: list[dict[str, Any]] = []
    for layer in after.layers:
        old = before.layer_index.get(layer.name)
        if old is None:
            layer.changed = "new"
            rows.append({"name": layer.name, "link": f"#layer-{layer.index}", "before": None, "after": layer})
            continue
        was = before.layers[old]
        if (was.kind, was.device) != (layer.kind, layer.device):
            worth = {"int8": 0, "limit": 1, "expected": 2, "avoidable": 3, "gpu": 4, "none": 5}
            layer.changed = "better" if (worth[layer.kind], layer.device) < (worth[was.kind], was.device) else "worse"
            rows.append({"name": layer.name, "link": f"#layer-{layer.index}", "before": was, "after": layer})
    rows += [
        {"name": layer.name, "link": "", "before": layer, "after": None}
        for layer in before.layers
        if layer.name not in after.layer_index
    ]
    return rows


def changed_scales(before: Network, after: Network) -> list[dict[str, Any]]:
    """Tensors whose scale differs by a bit or more, or that only one of the two gives a scale."""
    old = {t.name: t for t in before.tensors if t.scale is not None}
    new = {t.name: t for t in after.tensors if t.scale is not None}
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((*new, *old)):
        a, b = old.get(name), new.get(name)
        if a is not None and b is not None and a.scale == b.scale:
            continue
        ratio = b.scale / a.scale if a is not None and b is not None and a.scale and b.scale else None
        rows.append({"name": name, "link": after.link(tensor=name), "before": a, "after": b, "ratio": ratio})
    rows.sort(key=_change)
    return rows


def _change(row: dict[str, Any]) -> float:
    """The largest factor first, then scales that only one of the two has."""
    return -abs(math.log(row["ratio"])) if row["ratio"] else 0.0


def option_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every option with its value; `changed`: it is not the default."""
    defaults = effective(TranslateOptions())
    return [
        {"name": name, "value": _option_text(value), "changed": value != defaults.get(name)}
        for name, value in (report.get("options") or {}).items()
    ]


def changed_options(against: dict[str, Any], report: dict[str, Any]) -> list[dict[str, str]]:
    old, new = against.get("options") or {}, report.get("options") or {}
    rows = [
        {"name": f"--{name}", "before": _option_text(old.get(name)), "after": _option_text(new.get(name))}
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    versions = [(r.get("cache_version") or {}).get("number", "") for r in (against, report)]
    if versions[0] != versions[1]:
        rows.append({"name": "cache version", "before": versions[0], "after": versions[1]})
    return rows


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "not given"
    return " ".join(str(v) for v in value) if isinstance(value, list) else str(value)
