"""A result at a prompt and in a notebook."""

from __future__ import annotations

import html
from typing import Any, Optional

from qdq_translator.core.errors import MissingDependency

_LONGEST = 200
"""Of a line, in characters."""


class Shown:
    """At most ten lines as text; in a notebook the overview of the page, or the lines if there is no report or no jinja2."""

    def lines(self) -> list[str]:
        """The summary."""
        raise NotImplementedError

    def _shown_report(self) -> Optional[dict[str, Any]]:
        """The object of NAME_report.json that the overview is drawn from."""
        return None

    def __repr__(self) -> str:
        return "\n".join(line[:_LONGEST] for line in self.lines()[:10])

    def _repr_html_(self) -> str:
        text, report = f"<pre>{html.escape(repr(self))}</pre>", self._shown_report()
        if report is None:
            return text
        from qdq_translator.output.report.html import report_summary

        try:
            return text + framed(report_summary(report), self.lines()[0], 480)
        except MissingDependency:
            return text


def framed(page: str, title: str, height: int) -> str:
    """An HTML document inside another; `height` in pixels."""
    return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" title="{html.escape(title)}"></iframe>'
