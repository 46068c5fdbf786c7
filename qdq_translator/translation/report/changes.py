"""Differences between two reports, or two engines (layers, scales, options, times), for the page, the terminal and as
one plain object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.engine_rows import ComparedEngines, Difference, Engine, Side
from qdq_translator.core.formats.report_rows import Report, RootCause
from qdq_translator.core.formats.rows import made_of
from qdq_translator.core.options import PRESETS, TranslateOptions, effective
from qdq_translator.core.words import counted, milliseconds
from qdq_translator.translation.report.embed import Bar, shares
from qdq_translator.translation.report.model import Network

COMPARISON_SCHEMA_VERSION = 1
_WORTH = ("int8", "limit", "expected", "avoidable", "gpu", "none")
"""Kinds of layers, from the best to the worst."""
_ENGINE_WORTH = ("int8", "fp8", "fp16", "bf16", "fp32")


@dataclass(frozen=True)
class Change:
    """A layer or a tensor that differs. before, after: a `Layer` or `Tensor`, None if one side lacks it. ratio: of two
    scales.
    """

    name: str
    link: str
    before: Any
    after: Any
    ratio: Optional[float] = None


def compare(against: Report, report: Report, names: tuple[str, str]) -> rows.Comparison:
    """A is `against`, B is `report`."""
    before, after = Network(against), Network(report)
    changed = changed_layers(before, after)
    a, b = (_side(*each) for each in zip((against, report), (before, after), names))
    old, new = causes_of(against), causes_of(report)
    return rows.Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        a=a,
        b=b,
        same_source=against.source.sha256 == report.source.sha256,
        worse=_worse(a, b),
        options=changed_options(against, report),
        layers=rows.ChangedLayers(
            union=len({*before.layer_index, *after.layer_index}),
            only_a=sum(row.after is None for row in changed),
            only_b=sum(row.before is None for row in changed),
            changed=tuple(map(_changed_layer, changed)),
        ),
        scales=tuple(
            rows.ChangedScale(row.name, row.before and row.before.scale, row.after and row.after.scale)
            for row in changed_scales(before, after)
        ),
        causes=rows.ChangedCauses(tuple(t for t in old if t not in new), tuple(t for t in new if t not in old)),
    )


def _changed_layer(row: Change) -> rows.ChangedLayer:
    return rows.ChangedLayer(
        row.name,
        (row.after or row.before).op,
        row.before and row.before.label,
        row.after and row.after.label,
        row.after.reason if row.after else "",
    )


def _side(report: Report, network: Network, name: str) -> rows.ComparedSide:
    macs, layers = shares(network)[:2]
    implied = PRESETS.get(report.options.get("preset") or "", {})
    return rows.ComparedSide(
        name=name,
        model=report.model,
        target=report.target,
        options=tuple(
            f"--{row['name']}" if row["value"] == "yes" else f"--{row['name']} {row['value']}"
            for row in option_rows(report)
            if row["changed"] and not (row["name"] in implied and implied[row["name"]] == report.options[row["name"]])
        ),
        macs_share=first_share(macs),
        layers_share=first_share(layers),
        milliseconds=report.cost.milliseconds if report.cost else None,
        gpu_layers=sum(layer.kind == "gpu" for layer in network.layers),
        scales=len(report.scales),
    )


def _worse(a: rows.ComparedSide, b: rows.ComparedSide) -> str:
    """The way in which B is worse, '' if it is not; translations for different targets are not compared."""
    if a.target != b.target:
        return ""
    said = []
    by_macs = a.macs_share is not None and b.macs_share is not None
    old, new = (side.macs_share if by_macs else side.layers_share for side in (a, b))
    if old is not None and new is not None and new < old:
        said.append(f"{new:.1f}% of the {'MACs' if by_macs else 'layers'} are in INT8, {old:.1f}% were")
    if b.gpu_layers > a.gpu_layers:
        said.append(f"{counted(b.gpu_layers, 'layer')} on the GPU, {a.gpu_layers} before")
    # GPU layers have no estimate: with fewer of them the DLA needs more time, which is not a loss
    timed = None not in (a.milliseconds, b.milliseconds) and b.gpu_layers >= a.gpu_layers
    if timed and (b.milliseconds or 0.0) > (a.milliseconds or 0.0):
        said.append(f"{milliseconds(b.milliseconds)} (estimate), {milliseconds(a.milliseconds)} before")
    return "; ".join(said)


def compare_engines(a: Engine, b: Engine) -> ComparedEngines:
    """Layers of both whose precision, device or time differs."""
    before, rows = {row.name: row for row in a.layers}, []
    for row in b.layers:
        if row.name not in before:
            continue
        old, new = made_of(Side, before[row.name]), made_of(Side, row)
        known = old.milliseconds is not None or new.milliseconds is not None
        difference = (new.milliseconds or 0.0) - (old.milliseconds or 0.0) if known else None
        differs = (old.actual, old.device) != (new.actual, new.device)
        if differs or difference:
            rows.append(Difference(row.name, row.op, old, new, difference, differs))
    rows.sort(key=lambda row: -abs(row.difference or 0.0))
    unmatched = tuple(sum(row.milliseconds or 0.0 for row in side.unmatched) for side in (a, b))
    return ComparedEngines((a.milliseconds, b.milliseconds), unmatched, sum(row.differs for row in rows), tuple(rows))


def mark_engines(compared: ComparedEngines, network: Network) -> None:
    """Marks the layers of the network that run differently in B as 'better' or 'worse'."""
    worth = {name: rank for rank, name in enumerate(_ENGINE_WORTH)}
    for row in compared.layers:
        if row.differs and row.name in network.layer_index:
            old, new = ((worth.get(side.actual, 9), side.device == "GPU") for side in (row.a, row.b))
            network.layers[network.layer_index[row.name]].changed = "better" if new < old else "worse"


def causes_of(report: Report) -> dict[str, RootCause]:
    return {cause.tensor: cause for cause in report.root_causes.causes}


def first_share(bar: Bar) -> Optional[float]:
    """Percentage of the first kind (INT8)."""
    if bar.total is None:
        return None
    return next((part.share for part in bar.parts if part.kind in ("int8", "dla-int8")), 0.0)


def changed_layers(before: Network, after: Network) -> list[Change]:
    """Layers whose precision differs, or their place on or off the DLA if both have a DLA as target, and layers that
    only one of the two has; marks the changed ones."""
    rows: list[Change] = []
    for layer in after.layers:
        index = before.layer_index.get(layer.name)
        was = None if index is None else before.layers[index]
        if (
            was is not None
            and was.kind == layer.kind
            and (was.device == layer.device or not (was.device and layer.device))
        ):
            continue
        layer.changed = "new"
        if was is not None:
            old, new = ((_WORTH.index(x.kind), x.device) for x in (was, layer))
            layer.changed = "better" if new < old else "worse"
        rows.append(Change(layer.name, f"#layer-{layer.index}", was, layer))
    return rows + [Change(x.name, "", x, None) for x in before.layers if x.name not in after.layer_index]


def changed_scales(before: Network, after: Network) -> list[Change]:
    """Tensors whose scale differs by a bit or more, or that have a scale in only one of the two, the largest factor
    first.
    """
    old, new = ({t.name: t for t in side.tensors if t.scale is not None} for side in (before, after))
    rows: list[Change] = []
    for name in dict.fromkeys((*new, *old)):
        a, b = old.get(name), new.get(name)
        if a is None or b is None or a.scale != b.scale:
            ratio = b.scale / a.scale if a and b and a.scale and b.scale else None
            rows.append(Change(name, after.link(tensor=name), a, b, ratio))
    return sorted(rows, key=lambda row: -abs(math.log(row.ratio)) if row.ratio else 0.0)


def option_rows(report: Report) -> list[dict[str, Any]]:
    """Every option with its value; `changed`: it is not the default."""
    defaults = effective(TranslateOptions())
    return [
        {"name": name, "value": _option_text(value), "changed": value != defaults.get(name)}
        for name, value in report.options.items()
    ]


def changed_options(against: Report, report: Report) -> tuple[rows.ChangedOption, ...]:
    old, new = ({**r.options, "cache version": r.cache_version.number} for r in (against, report))
    return tuple(
        rows.ChangedOption(
            name if name == "cache version" else f"--{name}", _option_text(old.get(name)), _option_text(new.get(name))
        )
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    )


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "not given"
    return " ".join(str(v) for v in value) if isinstance(value, list) else str(value)
