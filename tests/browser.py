"""Headless Chromium for the tests that look at pages; without it they are skipped, and say so."""

from __future__ import annotations

import shutil
from typing import Any

import pytest


def start(*flags: str) -> Any:
    """A browser; whoever starts it quits it."""
    try:
        from selenium import webdriver
    except ImportError:
        pytest.skip("SKIPPED FOR LACK OF SELENIUM: the page was not opened in a browser")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("SKIPPED FOR LACK OF CHROMIUM: the page was not opened in a browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,1000", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
