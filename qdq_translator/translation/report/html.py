"""The report as one self-contained page, and the comparison of two translations as another.

Everything is made from the rows of `NAME_report.json` and the object of `verify --save`. Jinja2 escapes every name; the
page's policy names its only script and style by hash, so that nothing else runs and nothing is loaded.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Optional, Sequence

from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import needed
from qdq_translator.core.formats.engine_rows import Engine
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.core.formats.tune_rows import Tuning
from qdq_translator.core.formats.verify_rows import Account, Audit, AuditedWeight
from qdq_translator.core.rules import RULES
from qdq_translator.core.words import amount, clip, counted, decibel, milliseconds, percent, scale, shape, short, size
from qdq_translator.translation.report import changes
from qdq_translator.translation.report.data import one_a_rule
from qdq_translator.translation.report.embed import error_along, page_data, ridge, share_noise, shares
from qdq_translator.translation.report.model import KINDS, Layer, Network, dla_rows
from qdq_translator.translation.report.terminal_summary import time_range
from qdq_translator.translation.report.tuning import notes, table, tuning

_TEMPLATES = Path(__file__).with_name("templates")
_FILES = ("page.css", "dagre.min.js", "page.js", "map.js", "plots.js")
PLOTS = (60, 24)
"""The number of tensors and weights of an audit that are drawn, the worst first; the table has all of them."""
Engines = Sequence[Engine]


def write_page(
    report: Report,
    path: Path,
    against: Optional[Report] = None,
    verify: Optional[dict[str, Any]] = None,
    names: tuple[str, str] = ("A", "B"),
    tuned: Optional[Tuning] = None,
    engines: Engines = (),
) -> None:
    """Writes the page of `report`; with `against` (the earlier translation) the comparison of the two.

    verify: the object that `verify --save` wrote, for `report`. names: of the two sides of a comparison, for example
    their folders. tuned: of NAME_tune.json. engines: the result of `inspector.engine_truth` for the engine of `report`;
    two of them, A and B, are compared (with `against`, A is its engine). Raises MissingDependency without jinja2, and
    UserError if the file cannot be written.
    """
    if against is not None:
        text = comparison_page(report, against, verify, names, engines)
    else:
        text = report_page(report, verify, tuned, engines, names)
    write_file(path, text.encode("utf-8", errors="replace"))


def report_page(
    report: Report,
    verify: Optional[dict[str, Any]] = None,
    tuned: Optional[Tuning] = None,
    engines: Engines = (),
    names: tuple[str, str] = ("A", "B"),
) -> str:
    """The page of one translation as HTML; with two engines it compares them."""
    network = Network(report)
    given = (verify or {}).get("audit")
    audit = read(Audit, given) if given else Audit("", (), ())
    plots = audit.tensors[: PLOTS[0]], audit.weights[: PLOTS[1]]
    shown = _drawn(network, verify, engines)
    if shown["engines"]:
        changes.mark_engines(shown["engines"], network)
    return _render(
        "report.html",
        **shown,
        report=report,
        names=names,
        bars=shares(network),
        on_dla=dla_rows(report, network),
        causes=changes.causes_of(report),
        counts=Counter(layer.kind for layer in network.layers),
        messages=one_a_rule(report.diagnostics),
        options=changes.option_rows(report),
        verify=verify or {},
        audit=audit if given else None,
        plots=plots,
        tuned=tuned,
        tuning=table(tuned) if tuned and tuned.points else None,
        tuning_notes=list(notes(tuned)) if tuned else [],
        roofline=any(layer.milliseconds and layer.cost.bytes for layer in network.layers),
        worth=_worth_reading(network),
        data={
            **page_data(network, report, shown["engine"], None, shown["old_engine"]),
            "chart": shown["chart"],
            "ridge": ridge(report.cost.model if report.cost else None),
            "tuned": tuning(tuned) if tuned else {},
            "audit": plain(plots[0]) + [{**plain(row), "histogram": None} for row in audit.tensors[PLOTS[0] :]],
            "weightPlots": plain(plots[1]),
        },
    )


def report_summary(report: Report) -> str:
    """The overview of the report's page as HTML without script. Raises MissingDependency without jinja2."""
    network = Network(report)
    counts = Counter(layer.kind for layer in network.layers)
    return _render("summary.html", report=report, bars=shares(network), counts=counts, data={})


def comparison_page(
    report: Report,
    against: Report,
    verify: Optional[dict[str, Any]],
    names: tuple[str, str],
    engines: Engines,
) -> str:
    """Changes from `against` to `report`, as HTML; the network is drawn as in `report`."""
    before, after = Network(against), Network(report)
    shown = _drawn(after, verify, engines)
    layers, scales = changes.changed_layers(before, after), changes.changed_scales(before, after)
    return _render(
        "compare.html",
        **shown,
        report=report,
        against=against,
        bars=[
            (old, new, changes.first_share(old), changes.first_share(new))
            for old, new in zip(shares(before), shares(after))
        ],
        layers=layers,
        scales=scales,
        comparison=changes.compare(against, report, names),
        causes=(changes.causes_of(against), changes.causes_of(report)),
        with_device=before.on_dla or after.on_dla,
        data={
            **page_data(after, report, shown["engine"], before, shown["old_engine"]),
            "changedLayers": [_sides(row, ("kind", "device", "op", "macs", "reason")) for row in layers],
            "changedScales": [_sides(row, ("scale", "hex", "rule")) for row in scales],
        },
    )


def _drawn(network: Network, verify: Optional[dict[str, Any]], engines: Engines) -> dict[str, Any]:
    """The contents of both pages other than the plan. Adds the noise and the dB of `verify` to the layers."""
    account = read(Account, verify["account"]) if verify and verify.get("account") else None
    if account is not None:
        share_noise(account, network)
    old, engine = (None, *engines)[-2:] if engines else (None, None)
    return {
        "network": network,
        "account": account.sentence if account is not None else "",
        "chart": error_along(verify or {}, network),
        "engine": engine,
        "old_engine": old,
        "engines": changes.compare_engines(old, engine) if old and engine else None,
    }


def channels(weight: AuditedWeight) -> str:
    """A weight of `verify --audit --save` in words."""
    full = sum(code >= 127 for code in weight.channel_codes)
    words = f"{counted(len(weight.channel_amax), 'output channel')}, values reach 127 in {full:,}"
    worst = weight.worst_sqnr_db
    return words if worst is None else f"{words}; the noisiest is {weight.worst_channel} with {worst:.1f} dB"


def _worth_reading(network: Network) -> list[Layer]:
    """The order of rows for print: first the layers that could be in INT8 but are not, then those that a limit
    prevents, then the slowest."""
    order = ("avoidable", "gpu", "limit", "expected", "int8", "none")
    return sorted(network.layers, key=lambda x: (order.index(x.kind), -(x.milliseconds or 0.0), -(x.macs or 0)))[:24]


def _sides(row: changes.Change, keys: tuple[str, ...]) -> dict[str, Any]:
    """The data of a change for the script."""
    sides = {side: getattr(row, side) for side in ("before", "after")}
    return {**vars(row), **{side: x and {key: getattr(x, key) for key in keys} for side, x in sides.items()}}


def _render(template: str, **values: Any) -> str:
    jinja2 = needed(
        "jinja2",
        "The HTML report needs the package jinja2.",
        "pip install '.[report]' in a checkout of qdq-translator adds it.",
    )
    environment, style, script = _parts(jinja2)
    return str(
        environment.get_template(template).render(
            style=style,
            script=script,
            style_hash=_hash(style),
            script_hash=_hash(script),
            kinds=KINDS,
            rules={row.id: row.words for row in RULES.values()},
            **values,
        )
    )


@functools.lru_cache(maxsize=None)
def _parts(jinja2: Any) -> tuple[Any, str, str]:
    """The templates, the style and the script."""
    loader, undefined = jinja2.FileSystemLoader(_TEMPLATES), jinja2.ChainableUndefined
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=undefined, trim_blocks=True, lstrip_blocks=True
    )
    for filter_ in (amount, milliseconds, size, percent, scale, decibel, shape, clip, short, channels):
        environment.filters[filter_.__name__] = filter_
    environment.filters["plural"] = counted
    environment.filters["total"] = time_range
    texts = {name: (_TEMPLATES / name).read_text(encoding="utf-8") for name in _FILES}
    return environment, texts.pop("page.css"), "".join(texts.values())


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
