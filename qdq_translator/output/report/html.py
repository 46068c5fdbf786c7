"""The report as one self-contained page, and the comparison of two translations as another.

Everything is drawn from the objects of `NAME_report.json` and of `verify --save`; keys that are missing leave their part of
the page out. Jinja2 escapes every name; the page's policy names its only script and style by hash, so that nothing else runs
and nothing is loaded. Without script the page still shows all of its content.
"""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path
from typing import Any, Optional

from qdq_translator.core.disk import write_file
from qdq_translator.core.errors import MissingDependency
from qdq_translator.core.rules import RULES, words
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
from qdq_translator.output.report.charts import chart, roofline, shares
from qdq_translator.output.report.dla import dla_rows
from qdq_translator.output.report.figures import clip, decibel, scale, shape, short
from qdq_translator.output.report.histograms import tensor_histograms, weight_channels
from qdq_translator.output.report.layout import BOX_HEIGHT, BOX_WIDTH
from qdq_translator.output.report.messages import one_a_rule
from qdq_translator.output.report.model import KINDS, Network, cost_words
from qdq_translator.output.report.picture import draw
from qdq_translator.output.report.tuning import tuning

_TEMPLATES = Path(__file__).with_name("templates")


def write_page(
    report: dict[str, Any],
    path: Path,
    against: Optional[dict[str, Any]] = None,
    verify: Optional[dict[str, Any]] = None,
    names: tuple[str, str] = ("A", "B"),
    tuned: Optional[dict[str, Any]] = None,
) -> None:
    """Writes the page of `report`; with `against` (the earlier translation) the comparison of the two.

    report, against: objects of NAME_report.json. verify: the object that `verify --save` wrote, for `report`. names: what
    `against` and `report` are called in a comparison, their folders for example. tuned: the object of NAME_tune.json.
    Raises MissingDependency without jinja2, and UserError where the file cannot be written.
    """
    if against is not None:
        text = comparison_page(report, against, verify, names)
    else:
        text = report_page(report, verify, tuned)
    write_file(path, text.encode("utf-8", errors="replace"))


def report_page(
    report: dict[str, Any], verify: Optional[dict[str, Any]] = None, tuned: Optional[dict[str, Any]] = None
) -> str:
    """The page of one translation as HTML."""
    network = Network(report)
    seen = chart(verify, network) if verify else None
    audit = (verify or {}).get("audit") or {}
    causes = report.get("root_causes") or {}
    scaled = [t for t in network.tensors if t.scale is not None]
    return _render(
        "report.html",
        report=report,
        network=network,
        picture=draw(network),
        bars=shares(network),
        on_dla=dla_rows(report, network),
        causes={cause["tensor"]: cause for cause in causes.get("causes") or []},
        groups=causes.get("groups") or [],
        what_if=causes.get("what_if") or [],
        scaled=scaled,
        messages=one_a_rule(report.get("diagnostics") or []),
        options=option_rows(report),
        verify=verify or {},
        audit=audit,
        histograms=tensor_histograms(audit),
        weight_plots=weight_channels(audit),
        chart=seen,
        tuned=tuned,
        tuning=tuning(tuned) if tuned else None,
        with_db=seen is not None,
        with_device=any(layer.device for layer in network.layers),
        with_cost=any(layer.cost for layer in network.layers),
        longest=max((layer.milliseconds or 0.0 for layer in network.layers), default=0.0),
        roofline=roofline(network, (report.get("cost") or {}).get("model")),
        data=_data(network),
    )


def comparison_page(
    report: dict[str, Any],
    against: dict[str, Any],
    verify: Optional[dict[str, Any]] = None,
    names: tuple[str, str] = ("A", "B"),
) -> str:
    """What changed from `against` to `report`, as HTML; the network is drawn as `report` has it."""
    before, after = Network(against), Network(report)
    if verify:
        chart(verify, after)
    layers = changed_layers(before, after)
    bars = [
        {"title": new.title, "before": old, "after": new, "first": first_share(old), "second": first_share(new)}
        for old, new in zip(shares(before), shares(after))
    ]
    old_causes, new_causes = causes_of(against), causes_of(report)
    return _render(
        "compare.html",
        report=report,
        against=against,
        network=after,
        picture=draw(after),
        bars=bars,
        layers=layers,
        scales=changed_scales(before, after),
        comparison=compare(against, report, names),
        gone=[cause for tensor, cause in old_causes.items() if tensor not in new_causes],
        new=[cause for tensor, cause in new_causes.items() if tensor not in old_causes],
        times=times_of(against, report),
        with_device=any(layer.device for layer in (*before.layers, *after.layers)),
        with_db=any(layer.db is not None for layer in after.layers),
        data=_data(after),
    )


def _data(network: Network) -> dict[str, Any]:
    """What the page's script shows of a layer or tensor that is selected: rows without keys and every text once, because
    there are thousands. The order of a row is that of `layerKeys` and `tensorKeys` in page.js."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    layers = [
        [
            *(
                text(x.name),
                text(x.op),
                text(x.kind),
                text(x.mark),
                text(x.label),
                text(x.device_label),
                text(x.reason),
                text(x.cure),
            ),
            *(x.cause, text(amount(x.macs)), text(percent(x.share, 1)), text(amount(x.weights)), x.inputs, x.outputs),
            [[text(f.get(key, "")) for key in ("text", "found", "source", "status")] for f in x.findings],
            text(decibel(x.db)),
            text(cost_words(x)),
        ]
        for x in network.layers
    ]
    tensors = [
        [
            *(
                text(t.name),
                text(scale(t.scale)),
                text(t.hex),
                int(t.explicit),
                text(t.rule),
                text(words(t.rule)),
            ),
            *(
                text(t.node),
                text(t.source),
                text(shape(t.shape) if t.shape else ""),
                text(t.role),
                t.producer,
                t.readers,
            ),
        ]
        for t in network.tensors
    ]
    return {"texts": list(texts), "layers": layers, "tensors": tensors}


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
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        kinds=KINDS,
        rules={row.id: row.words for row in RULES.values()},
        infinity=math.inf,
        box_width=BOX_WIDTH,
        box_height=BOX_HEIGHT,
        **values,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
