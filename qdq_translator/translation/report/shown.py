"""A result at a prompt and in a notebook."""

from __future__ import annotations

import html
from typing import Optional

from qdq_translator.core.errors import MissingDependency
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.words import counted, milliseconds, percent

_LONGEST = 200
"""Length of a line in characters."""


class Shown:
    """At most ten lines as text; in a notebook the overview of the page, or the lines if there is no report or no
    jinja2.
    """

    def lines(self) -> list[str]:
        """The summary."""
        raise NotImplementedError

    def _shown_report(self) -> Optional[Report]:
        """The data of the overview."""
        return None

    def __repr__(self) -> str:
        return "\n".join(line[:_LONGEST] for line in self.lines()[:10])

    def _repr_html_(self) -> str:
        text, report = f"<pre>{html.escape(repr(self))}</pre>", self._shown_report()
        if report is None:
            return text
        from qdq_translator.translation.report.html import report_summary

        try:
            return text + framed(report_summary(report), self.lines()[0], 480)
        except MissingDependency:
            return text


def report_lines(report: Report) -> list[str]:
    """A report in at most ten lines: figures, reason and next step."""
    layers, macs = report.coverage.layers, report.coverage.macs
    lines = [f"{report.model}, target {report.target}"]
    if report.dla and report.cost:
        shares = ((name.replace("_", "-"), row.layers) for name, row in vars(report.dla.shares).items())
        lines += [f"{name}: {counted(layers, 'layer')}" for name, layers in shares if layers]
        whole = report.cost.total_milliseconds or report.cost.milliseconds
        lines.append(f"estimated time: {milliseconds(whole)}")
    else:
        share = f", {percent(macs.int8, macs.total)} of MACs" if macs.total else ""
        lines.append(f"INT8: {layers.int8} of {counted(layers.total, 'layer')}{share}")
    warnings = [d for d in report.diagnostics if d.severity == "warning"]
    if report.root_causes.causes:
        lines.append(f"{counted(len(report.root_causes.causes), 'tensor')} without scale")
    if warnings:
        codes = ", ".join(dict.fromkeys(d.code for d in warnings))
        lines += [f"{counted(len(warnings), 'warning')}: {codes}", f"reason: {warnings[0].message}"]
    return [*lines, _next(report)]


def _next(report: Report) -> str:
    """The step that helps most."""
    cure = next((group.options for group in report.root_causes.groups if group.options), ())
    found = "translate or deploy it" if report.assumption else "verify it on data"
    return f"next: {' '.join(cure)}" if cure else f"next: {found}"


def framed(page: str, title: str, height: int) -> str:
    """An HTML document inside another; `height` in pixels."""
    return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" title="{html.escape(title)}"></iframe>'
