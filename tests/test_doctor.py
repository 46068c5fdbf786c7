"""doctor on this machine; on boards made of their files: tests/data/transcripts/desk/machines.txt."""

from __future__ import annotations

import json

import pytest

from qdq_translator.board.engine.machine import PROBLEM
from qdq_translator.cli import main


def test_the_command_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert status == int(any(row["state"] == PROBLEM for row in rows))
    assert {"board", "trtexec", "numpy"} <= {row["what"] for row in rows}
    main(["doctor"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 160
