"""A page in headless Chromium, and pages of reports as JSON has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

from qdq_translator.core.formats.engine_rows import Engine
from qdq_translator.core.formats.report_rows import Report
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.translation.report import changes, html, model


def rows(report: dict[str, Any]) -> Report:
    return read(Report, report)


def network(report: dict[str, Any]) -> model.Network:
    return model.Network(rows(report))


def report_page(
    report: dict[str, Any], verify: Any = None, tuned: Any = None, engines: Sequence[Any] = (), *names: Any
) -> str:
    return html.report_page(rows(report), verify, tuned, [read(Engine, engine) for engine in engines], *names)


def comparison_page(
    report: dict[str, Any], against: dict[str, Any], names: tuple[str, str] = ("A", "B"), **more: Any
) -> str:
    return html.comparison_page(rows(report), rows(against), names=names, **{"verify": None, "engines": (), **more})


def compare(against: dict[str, Any], report: dict[str, Any], names: tuple[str, str] = ("A", "B")) -> dict[str, Any]:
    found: dict[str, Any] = plain(changes.compare(rows(against), rows(report), names))
    return found


class Page:
    """A page on disk, opened; written first if `text` is given. clicks: how many were made on it."""

    def __init__(self, browser: Any, path: Path, text: str = "") -> None:
        if text:
            path.write_text(text, encoding="utf-8")
        self.browser, self.clicks = browser, 0
        browser.get_log("browser")
        browser.get(path.as_uri())

    def js(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def one(self, selector: str) -> Any:
        found = self.js("return document.querySelector(arguments[0])", selector)
        assert found is not None, selector
        return found

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector)).strip()

    def rows(self, table: str) -> list[list[str]]:
        """Cells of the rows that show."""
        found: list[list[str]] = self.js(
            "return Array.from(document.querySelectorAll(`#${arguments[0]} tbody tr:not([hidden])`))"
            ".map(r => Array.from(r.cells).map(c => c.textContent.trim()))",
            table,
        )
        return found

    def settle(self) -> None:
        """Until what a change of size brings about has been painted."""
        self.browser.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 50)))"
        )

    def click(self, selector: str) -> None:
        element = self.one(selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        self.clicks += 1

    def choose(self, selector: str, value: str) -> None:
        """An option of a select: one click opens it, one takes the option."""
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            self.one(selector),
            value,
        )
        self.clicks += 2

    def select(self, kind: str, index: int) -> None:
        """As a link to a layer or a tensor does it."""
        self.js(f"location.hash = '#{kind}-{index}'; dispatchEvent(new PopStateEvent('popstate'))")

    def sides(self) -> dict[str, list[str]]:
        """The panel's table of A and B."""
        cells = "Array.from(r.cells).map(c => c.textContent)"
        rows = self.js(f"return Array.from(document.querySelectorAll('#panel .sides tr')).map(r => {cells})")
        return {row[0]: row[1:] for row in rows}

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]
