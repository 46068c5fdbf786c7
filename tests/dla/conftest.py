"""The rewrites for the DLA are looked at by themselves: what rule F8 makes of the rest stands in test_rules_normal_forms.py."""

from __future__ import annotations

import pytest

from qdq_translator.translation.planning import regions, what_if


@pytest.fixture(autouse=True)
def _rewrites_alone(request: pytest.FixtureRequest) -> None:
    if not request.module.__name__.endswith("test_docs_page"):  # the page shows what users get
        request.getfixturevalue("without_normal_forms")


@pytest.fixture(autouse=True)
def _without_prices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rewrite is applied: which of them are worth it is the subject of test_earned.py and tests/test_regions.py."""
    if (
        not request.module.__name__.endswith(("test_earned", "test_docs_page"))
        and "r1" not in request.function.__name__
    ):
        monkeypatch.setattr(regions, "placed", lambda *given: None)


@pytest.fixture(autouse=True)
def _no_further_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A translation without rewrites also tries them, for its advice, and takes twice as long: see `tests/test_what_if.py`."""
    monkeypatch.setattr(what_if, "what_if_on_dla", lambda *given: [])
