"""What differs between two reports: layers, scales, options, for the page, the terminal and as one plain object."""

from __future__ import annotations

import math
from typing import Any, Optional

from qdq_translator.core.options import PRESETS, TranslateOptions, effective
from qdq_translator.core.words import counted, milliseconds
from qdq_translator.output.report.charts import Bar, shares
from qdq_translator.output.report.model import Layer, Network

COMPARISON_SCHEMA_VERSION = 1


def compare(against: dict[str, Any], report: dict[str, Any], names: tuple[str, str] = ("A", "B")) -> dict[str, Any]:
    """`report --against --json` (docs/report_schema.md): A is `against`, B is `report`, both objects of NAME_report.json."""
    before, after = Network(against), Network(report)
    rows = changed_layers(before, after)
    a, b = (_side(*each) for each in zip((against, report), (before, after), names))
    old, new = causes_of(against), causes_of(report)
    return {
        "schema_version": COMPARISON_SCHEMA_VERSION,
        "a": a,
        "b": b,
        "same_source": (against.get("source") or {}).get("sha256") == (report.get("source") or {}).get("sha256"),
        "worse": _worse(a, b),
        "options": changed_options(against, report),
        "layers": {
            "union": len({*before.layer_index, *after.layer_index}),
            "only_a": sum(row["after"] is None for row in rows),
            "only_b": sum(row["before"] is None for row in rows),
            "changed": [
                {
                    "name": row["name"],
                    "op": (row["after"] or row["before"]).op,
                    "a": _where(row["before"]),
                    "b": _where(row["after"]),
                    "reason": row["after"].reason if row["after"] else "",
                }
                for row in rows
            ],
        },
        "scales": [
            {
                "tensor": row["name"],
                "a": row["before"].scale if row["before"] else None,
                "b": row["after"].scale if row["after"] else None,
            }
            for row in changed_scales(before, after)
        ],
        "causes": {"gone": [t for t in old if t not in new], "new": [t for t in new if t not in old]},
    }


def _side(report: dict[str, Any], network: Network, name: str) -> dict[str, Any]:
    """macs_share and layers_share: percent in INT8, on the DLA where that is the target."""
    macs, layers = shares(network)[:2]
    options = report.get("options") or {}
    implied = PRESETS.get(options.get("preset") or "", {})
    return {
        "name": name,
        "model": report.get("model", ""),
        "target": report.get("target", ""),
        "options": [
            _flag(row)
            for row in option_rows(report)
            if row["changed"] and not (row["name"] in implied and implied[row["name"]] == options[row["name"]])
        ],
        "macs_share": first_share(macs),
        "layers_share": first_share(layers),
        "milliseconds": (report.get("cost") or {}).get("milliseconds"),
        "gpu_layers": sum(layer.kind == "gpu" for layer in network.layers),
        "scales": sum(t.scale is not None for t in network.tensors),
    }


def _flag(row: dict[str, Any]) -> str:
    return f"--{row['name']}" if row["value"] == "yes" else f"--{row['name']} {row['value']}"


def _where(layer: Optional[Layer]) -> Optional[str]:
    """'INT8', 'FP16 avoidable', ...; None for a layer that is not there."""
    return None if layer is None else layer.label


def _worse(a: dict[str, Any], b: dict[str, Any]) -> str:
    """What B is worse at, '' where it is not; translations for different targets are not measured by each other."""
    if a["target"] != b["target"]:
        return ""
    said = []
    key, what = ("macs_share", "MACs") if None not in (a["macs_share"], b["macs_share"]) else ("layers_share", "layers")
    if None not in (a[key], b[key]) and b[key] < a[key]:
        said.append(f"{b[key]:.1f}% of the {what} are in INT8, {a[key]:.1f}% were")
    if b["gpu_layers"] > a["gpu_layers"]:
        said.append(f"{counted(b['gpu_layers'], 'layer')} on the GPU, {a['gpu_layers']} before")
    # nobody estimates the GPU's layers: with fewer of them the DLA takes longer, and that is no loss
    timed = None not in (a["milliseconds"], b["milliseconds"]) and b["gpu_layers"] >= a["gpu_layers"]
    if timed and b["milliseconds"] > a["milliseconds"]:
        said.append(f"{milliseconds(b['milliseconds'])} (estimate), {milliseconds(a['milliseconds'])} before")
    return "; ".join(said)


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
        layer.was = ", ".join(filter(None, (was.label, was.device_label)))
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
