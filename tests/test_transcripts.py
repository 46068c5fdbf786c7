"""Commands on small models print and write what was recorded (tests/transcripts.py says how, and how to record anew)."""

from __future__ import annotations

import pytest

from tests.records import differences
from tests.transcripts import SESSIONS, Session, kept, transcript


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name)
def test_commands_print_and_write_what_was_recorded(session: Session) -> None:
    if session.name.startswith("desk/lab_"):
        pytest.importorskip("onnxruntime")
    if session.name.endswith("_addresses"):
        pytest.importorskip("fsspec")
    found = differences(kept(session), transcript(session), session.tolerance)
    assert not found, found
