"""Size of the report page, its elements, and the time until it can be used, in headless Chromium.

    python -m benchmarks.page [layers ...] [--axe axe.min.js]

`written`: processor time. `usable`: from opening the file to the first painted frame after the page's script has run. `stroke`: from a letter in the search box of the
layers to the filtered table, painted. `open`: from a click on a group to its layers, painted. `elements`: in the document after that.
--axe: the file of npm's axe-core; its findings in light and dark, at 1400 and 390 pixels, are counted.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.report.html import write_page

REPEATS = 3
BARS = {"written": 10.0, "usable": 3.0, "stroke": 0.1, "elements": 5000}
_USABLE = """
const done = arguments[0];
const look = () => {
  const marks = performance.getEntriesByName("usable");
  if (marks.length) done(marks[0].startTime); else setTimeout(look, 5);
};
look();
"""
_PAINTED = """
const done = arguments[0], start = performance.now();
%s
requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
"""
_STROKE = (
    _PAINTED
    % """
const box = document.getElementById("search-layers");
box.value = "add";
box.dispatchEvent(new Event("input"));
"""
)
_OPEN = _PAINTED % "document.querySelector('#graph .group').dispatchEvent(new MouseEvent('click', { bubbles: true }));"
_AXE = "const done = arguments[0]; axe.run().then((r) => done(r.violations.map((v) => [v.id, v.nodes.length, v.nodes[0].html])));"


def browser() -> Any:
    """Chromium; its driver is looked for on the path."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,1000"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def measure(page: Path) -> dict[str, float]:
    """Seconds to usable, stroke and open, medians of `REPEATS` browsers after one that warms the disk; and elements."""
    seen: dict[str, list[float]] = {"usable": [], "stroke": [], "open": [], "elements": []}
    for repeat in range(REPEATS + 1):
        with browser() as window:
            window.get(page.resolve().as_uri())
            row = [window.execute_async_script(script) / 1000 for script in (_USABLE, _STROKE, _OPEN)]
            row.append(window.execute_script("return document.querySelectorAll('*').length"))
        for key, value in zip(seen, row if repeat else ()):
            seen[key].append(value)
    return {key: statistics.median(values) for key, values in seen.items()}


def findings(page: Path, axe: Path) -> list[Any]:
    """What axe finds: (rule, elements, the first), each with the width and theme that it was found at."""
    found = []
    with browser() as window:
        for width in (1400, 390):
            for theme in ("light", "dark"):
                size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
                window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
                window.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                window.get(page.resolve().as_uri())
                window.execute_cdp_cmd("Runtime.evaluate", {"expression": axe.read_text(encoding="utf-8")})
                found += [(width, theme, *row) for row in window.execute_async_script(_AXE)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("layers", type=int, nargs="*", default=[2000, 10000])
    parser.add_argument("--axe", type=Path)
    arguments = parser.parse_args()
    print(machine())
    print(
        "| layers | MB | written s | usable s | filter stroke s | opening a group s | elements |\n"
        + "| ---: " * 7
        + "|"
    )
    failed = False
    for layers in arguments.layers:
        model = residual(layers * 2 // 5, channels=4)
        report = translate(model, TranslateOptions(target="orin-dla", platform="jetpack-6.2"), "residual").rows
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            start = time.process_time()
            write_page(report, page)
            row = {"written": time.process_time() - start, **measure(page)}
            figures = " | ".join(f"{row[key]:.2f}" for key in ("written", "usable", "stroke", "open"))
            print(f"| {len(report.plan):,} | {page.stat().st_size / 1e6:.1f} | {figures} | {row['elements']:,.0f} |")
            for finding in findings(page, arguments.axe) if arguments.axe else ():
                print(*finding)
                failed = True
        failed = failed or any(row[key] > bar for key, bar in BARS.items())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
