"""What the tests share: models of real exporters, and a loud skip where one is missing.

Ten small ones are in the repository (`tests/data/models`), the others lie beside the project. `tests/data/zoo.txt` lists
them all, so that the same tests are collected wherever they run, and what is missing is counted as skipped.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

from qdq_translator.translation.passes import pipeline

os.environ.setdefault("QDQ_TRANSLATOR_CHECK_PASSES", "1")
"""Every translation of the tests, in this process and in those that it starts, holds each pass to what it ensures."""

SHARED = Path(__file__).resolve().parents[2] / "shared"
ZOO = SHARED / "zoo"
DATA = Path(__file__).resolve().parent / "data"
OWN_MODELS = DATA / "models"


def zoo_paths(pattern: str) -> list[Path]:
    """Where the models, references and recordings of that pattern (`mini/*.onnx`) lie, whether they are there or not."""
    names = (DATA / "zoo.txt").read_text(encoding="utf-8").splitlines()
    return [ZOO / name for name in names if fnmatch(name, pattern)]


def need_shared(path: Path) -> Path:
    """`path`, else the repository's own copy of that model, else a skip that says what is missing."""
    if path.exists():
        return path
    own = OWN_MODELS / path.name
    if not own.exists():
        pytest.skip(f"SKIPPED FOR LACK OF DATA: {path.name} does not lie beside the project")
    return own


@pytest.fixture
def zoo() -> Path:
    return need_shared(ZOO)


PLAIN_PIPELINE = tuple(p for p in pipeline.PIPELINE if "F8" not in p.rules)


@pytest.fixture
def without_normal_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translations without rule F8, for tests of other rules that look at the operators."""
    monkeypatch.setattr(pipeline, "PIPELINE", PLAIN_PIPELINE)
