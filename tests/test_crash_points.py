"""Every command that writes a set of files is interrupted at every call of the operating system: the folder shows the old
set or the new one, beside the user's file, and the next run leaves nothing behind."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.crash_points import CASES, points

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("name", CASES)
def test_killed_before_every_call(name: str) -> None:
    counted = points(name, "killed", again=25)
    assert counted.keys() == {"old", "new"} and counted.total() > 12


@pytest.mark.parametrize("how", ["fails", "disk full"])
@pytest.mark.parametrize("name", [name for name in CASES if name != "tune"])
def test_calls_fail(name: str, how: str) -> None:
    """Every 31st; `python -m tests.fuzz.crash_points` lets each fail."""
    assert points(name, how, every=31, again=3).keys() <= {"old", "new"}
