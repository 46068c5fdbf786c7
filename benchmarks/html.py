"""Size of the report page, and the time until it can be used, in headless Chromium.

    python -m benchmarks.html [layers]

`usable`: from opening the file to the first painted frame after the page's script has run. `search`: from a letter in the
search box to the filtered table, painted.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.networks import residual
from qdq_translator import TranslateOptions, translate
from qdq_translator.output.report.html import write_page

REPEATS = 5
_USABLE = """
const done = arguments[0];
const look = () => {
  const marks = performance.getEntriesByName("usable");
  if (marks.length) done(marks[0].startTime); else setTimeout(look, 5);
};
look();
"""
_SEARCH = """
const done = arguments[0], box = document.getElementById("search-layers");
const start = performance.now();
box.value = "add";
box.dispatchEvent(new Event("input"));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
"""


def measure(page: Path) -> tuple[float, float]:
    """(seconds to usable, seconds to search), medians of `REPEATS` browsers, after one that warms the disk."""
    from selenium import webdriver

    usable, search = [], []
    for repeat in range(REPEATS + 1):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,1000"):
            options.add_argument(flag)
        with webdriver.Chrome(
            options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
        ) as browser:
            browser.get(page.as_uri())
            first = browser.execute_async_script(_USABLE) / 1000
            second = browser.execute_async_script(_SEARCH) / 1000
        if repeat:
            usable.append(first)
            search.append(second)
    return statistics.median(usable), statistics.median(search)


def main() -> int:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(machine())
    report = translate(residual(layers * 2 // 5, channels=4), TranslateOptions(target="orin-dla"), "residual").report
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        start = time.perf_counter()
        write_page(report, page)
        written = time.perf_counter() - start
        usable, search = measure(page)
        size = page.stat().st_size / 1e6
    print(
        f"{len(report['plan'])} layers: written in {written:.2f} s, {size:.2f} MB, usable in {usable:.2f} s, search in {search:.2f} s"
    )
    return 0 if size < 5 and usable < 2 else 1


if __name__ == "__main__":
    sys.exit(main())
