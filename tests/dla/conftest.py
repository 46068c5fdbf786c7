"""The rewrites for the DLA are looked at by themselves: what rule F8 makes of the rest stands in test_rules_normal_forms.py."""

from __future__ import annotations

import pytest

from qdq_translator.planning import what_if
from qdq_translator.workflows import translator


@pytest.fixture(autouse=True)
def _rewrites_alone(request: pytest.FixtureRequest) -> None:
    if not request.module.__name__.endswith("test_docs_page"):  # the page shows what users get
        request.getfixturevalue("without_normal_forms")


@pytest.fixture(autouse=True)
def _function_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--prove` holds every rewrite of these tests against ONNX Runtime; the planned precision has tests of its own."""
    if not request.module.__name__.endswith("test_steps"):
        monkeypatch.setattr(translator, "_prove_precision", lambda *given, **more: None)


@pytest.fixture(autouse=True)
def _no_further_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A translation without rewrites also tries them, for its advice, and takes twice as long: see `tests/test_what_if.py`."""
    monkeypatch.setattr(what_if, "what_if_on_dla", lambda *given: [])
