"""The report as one self-contained page, and the comparison of two translations as another.

Everything is drawn from the objects of `NAME_report.json` and of `verify --save`; keys that are missing leave their part of
the page out. Jinja2 escapes every name; the page's policy names its only script and style by hash, so that nothing else runs
and nothing is loaded. Without script the page still shows all of its content.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Optional

from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import MissingDependency
from qdq_translator.core.formats.report_rows import DiagnosticRow
from qdq_translator.core.formats.rows import read
from qdq_translator.core.rules import RULES
from qdq_translator.core.words import amount, counted, milliseconds, percent, size
from qdq_translator.output.report.changes import (
    causes_of,
    changed_layers,
    changed_scales,
    compare,
    first_share,
    option_rows,
    times_of,
)
from qdq_translator.output.report.charts import chart, roofline, share_noise, shares
from qdq_translator.output.report.dla import dla_rows
from qdq_translator.output.report.embed import page_data
from qdq_translator.output.report.figures import clip, decibel, scale, shape, short
from qdq_translator.output.report.histograms import tensor_histograms, weight_channels
from qdq_translator.output.report.messages import one_a_rule
from qdq_translator.output.report.model import KINDS, Layer, Network
from qdq_translator.output.report.tuning import tuning

_TEMPLATES = Path(__file__).with_name("templates")


def write_page(
    report: dict[str, Any],
    path: Path,
    against: Optional[dict[str, Any]] = None,
    verify: Optional[dict[str, Any]] = None,
    names: tuple[str, str] = ("A", "B"),
    tuned: Optional[dict[str, Any]] = None,
    engine: Optional[dict[str, Any]] = None,
) -> None:
    """Writes the page of `report`; with `against` (the earlier translation) the comparison of the two.

    report, against: objects of NAME_report.json. verify: the object that `verify --save` wrote, for `report`. names: what
    `against` and `report` are called in a comparison, their folders for example. tuned: the object of NAME_tune.json.
    engine: what `engine.truth.engine_truth` made of the engine of `report`. Raises MissingDependency without jinja2, and UserError where the file cannot be written.
    """
    if against is not None:
        text = comparison_page(report, against, verify, names, engine)
    else:
        text = report_page(report, verify, tuned, engine)
    write_file(path, text.encode("utf-8", errors="replace"))


def report_page(
    report: dict[str, Any],
    verify: Optional[dict[str, Any]] = None,
    tuned: Optional[dict[str, Any]] = None,
    engine: Optional[dict[str, Any]] = None,
) -> str:
    """The page of one translation as HTML."""
    network = Network(report)
    seen = chart(verify, network) if verify else None
    share_noise((verify or {}).get("account") or {}, network)
    audit = (verify or {}).get("audit") or {}
    causes = report.get("root_causes") or {}
    scaled = [t for t in network.tensors if t.scale is not None]
    dots = roofline(network, (report.get("cost") or {}).get("model"))
    return _render(
        "report.html",
        report=report,
        network=network,
        bars=shares(network),
        on_dla=dla_rows(report, network),
        causes={cause["tensor"]: cause for cause in causes.get("causes") or []},
        groups=causes.get("groups") or [],
        what_if=causes.get("what_if") or [],
        counts=Counter(layer.kind for layer in network.layers),
        scaled=scaled,
        messages=one_a_rule(read(DiagnosticRow, row) for row in report.get("diagnostics") or []),
        options=option_rows(report),
        verify=verify or {},
        audit=audit,
        histograms=tensor_histograms(audit),
        weight_plots=weight_channels(audit),
        chart=seen,
        tuned=tuned,
        tuning=tuning(tuned) if tuned else None,
        roofline=dots,
        engine=engine or {},
        worth=_worth_reading(network),
        data={
            **page_data(network, report, engine),
            "dots": dots.dots if dots else [],
            "audit": [{key: row[key] for key in row if key != "histogram"} for row in audit.get("tensors") or []],
        },
    )


def report_summary(report: dict[str, Any]) -> str:
    """The overview of that page alone, as HTML without script. Raises MissingDependency without jinja2."""
    network = Network(report)
    scaled = [t for t in network.tensors if t.scale is not None]
    return _render("summary.html", report=report, network=network, bars=shares(network), scaled=scaled, data={})


def comparison_page(
    report: dict[str, Any],
    against: dict[str, Any],
    verify: Optional[dict[str, Any]] = None,
    names: tuple[str, str] = ("A", "B"),
    engine: Optional[dict[str, Any]] = None,
) -> str:
    """What changed from `against` to `report`, as HTML; the network is drawn as `report` has it."""
    before, after = Network(against), Network(report)
    if verify:
        chart(verify, after)
        share_noise(verify.get("account") or {}, after)
    layers = changed_layers(before, after)
    bars = [
        {"title": new.title, "before": old, "after": new, "first": first_share(old), "second": first_share(new)}
        for old, new in zip(shares(before), shares(after))
    ]
    old_causes, new_causes = causes_of(against), causes_of(report)
    scales = changed_scales(before, after)
    return _render(
        "compare.html",
        report=report,
        against=against,
        network=after,
        bars=bars,
        layers=layers,
        scales=scales,
        comparison=compare(against, report, names),
        gone=[cause for tensor, cause in old_causes.items() if tensor not in new_causes],
        new=[cause for tensor, cause in new_causes.items() if tensor not in old_causes],
        times=times_of(against, report),
        with_device=any(layer.device for layer in (*before.layers, *after.layers)),
        engine=engine or {},
        data={
            **page_data(after, report, engine),
            "changedLayers": [_changed(row) for row in layers],
            "changedScales": [{**row, **_sides(row, ("scale", "hex", "rule"))} for row in scales],
        },
    )


def _worth_reading(network: Network) -> list[Layer]:
    """For print: the layers that are not in INT8 and could be, those that a limit keeps from it, then the slowest."""
    order = ("avoidable", "gpu", "limit", "expected", "int8", "none")
    return sorted(network.layers, key=lambda x: (order.index(x.kind), -(x.milliseconds or 0.0), -(x.macs or 0)))[:24]


def _sides(row: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """What the script needs of `before` and `after`."""
    return {side: row[side] and {key: getattr(row[side], key) for key in keys} for side in ("before", "after")}


def _changed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `changed_layers` for the script."""
    layer = row["after"] or row["before"]
    reason = row["after"].reason if row["after"] else ""
    return {**row, **_sides(row, ("kind", "device")), "op": layer.op, "macs": layer.macs, "reason": reason}


def _render(template: str, **values: Any) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency(
            "The HTML report needs the package jinja2.", "pip install 'qdq-translator[report]' adds it."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_ in (amount, milliseconds, size, percent, scale, decibel, shape, clip, short):
        environment.filters[filter_.__name__] = filter_
    environment.filters["plural"] = counted
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    script = "".join((_TEMPLATES / f"{name}.js").read_text(encoding="utf-8") for name in ("dagre.min", "page", "map"))
    return environment.get_template(template).render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        kinds=KINDS,
        rules={row.id: row.words for row in RULES.values()},
        **values,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
