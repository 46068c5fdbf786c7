"""Lines of public build logs and the rows of `board/engine/messages.json` that explain them; `explain` and `check-engine --log`.

`data/log_lines.json` holds lines with the thread each is from. `round` 0: the rows were written from these; `part`: only the words
that the row holds of them. The lines of each later
round were chosen when the table was frozen, from threads that had not been read before. At first sight the table recognised 6 of 14
lines of round 1, 2 of 8 of round 2 and 1 of 7 of round 3 (others only by TensorRT's error code). From round 4 on, `cause` is what the
maintainers or the thread name, and `explained_at_first_sight` says whether the row named it (judged by its author). Rows were added
after each round; lines of rounds 8 to 11 are mostly of programs around TensorRT. From round 12 on a line may have a known wording, but
its thread was in no row and no test; rounds 17 to 22 are about DLA, calibration and Q/DQ. From round 24 on
`wrong_at_first_sight` marks an answer that claimed another cause; the others abstained. Rounds 27 and 28
were collected together, with their causes; rows were written from 27, then 28 was asked once; 29 was collected after that, 30 after symptoms
were told from causes: a list of causes counts as unanswered, even if it holds the right one; strictly judged, a cause beside the
thread's is wrong. From 31 on, collected after most rows had become symptoms, `listed_at_first_sight` marks a list of at most four causes
that holds the thread's. An `id` of null: no row should claim it. `data/whole_logs.json` holds shortened logs with the row that explains the failure.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from qdq_translator.board.engine.messages import messages, parse_log, read_log, recognize, rows
from qdq_translator.cli import main
from qdq_translator.commands import COMMANDS
from qdq_translator.core.errors import UserError

LINES = json.loads((Path(__file__).parent / "data" / "log_lines.json").read_text(encoding="utf-8"))
LISTED = json.loads((Path(__file__).parent / "data" / "message_sources.json").read_text(encoding="utf-8"))["patterns"]
LOGS = json.loads((Path(__file__).parent / "data" / "whole_logs.json").read_text(encoding="utf-8"))
FALLBACK = "Layer '/fc/Gemm' (SHUFFLE): Unsupported on DLA. Switching this layer's device type to GPU."


@pytest.mark.parametrize("row", LINES, ids=[f"{row['id']}-{index}" for index, row in enumerate(LINES)])
def test_lines_of_public_threads(row: dict[str, Any]) -> None:
    found = recognize(row["line"])
    if row["id"] is None:
        assert found is None or not found.message.claims
        return
    assert found is not None and found.message.id == row["id"]
    assert not found.also, "exactly one row claims the cause"


@pytest.mark.parametrize("pattern", sorted(LISTED))
def test_words_of_public_source_are_known(pattern: str) -> None:
    """Those that programs print, as `benchmarks/message_sources.py` found them."""
    found = recognize(LISTED[pattern][2])
    assert found is not None and not found.also
    (row,) = [row["id"] for row in rows() if pattern in row["patterns"]]
    assert found.message.id == row


def test_every_row_has_a_line() -> None:
    lines = {row["id"] for row in LINES} | {row["id"] for row in rows() if LISTED.keys() & set(row["patterns"])}
    assert not {row["id"] for row in rows()} - lines


def test_first_sight_is_counted() -> None:
    """The figures of docs/deploy.md."""
    page = " ".join((Path(__file__).parents[1] / "docs" / "deploy.md").read_text(encoding="utf-8").split())
    fresh = [row for row in LINES if row["round"] >= 4]
    assert all(row["cause"] and "#" in row["thread"] for row in fresh)
    named = sum(row["explained_at_first_sight"] for row in fresh)
    assert f"A new message is often unknown: {named} of {len(fresh)}" in page
    assert f"knows {len(messages())} messages" in page
    last = [row for row in LINES if row["round"] == max(row["round"] for row in LINES)]
    right, listed, wrong = (
        sum(row.get(f"{key}_at_first_sight", False) for row in last) for key in ("explained", "listed", "wrong")
    )
    assert f"{right} of the last {len(last)} and {listed} in a list of up to four (goal: 75%), {wrong} a wrong" in page


@pytest.mark.parametrize("log", LOGS, ids=[log["thread"] for log in LOGS])
def test_the_cause_of_a_failure_is_ranked_first(log: dict[str, Any]) -> None:
    """Though other messages precede it in six of these logs, and its consequences follow."""
    ranked = [entry.message.id for entry in parse_log(log["lines"]).ranked()]
    assert ranked[0] == log["first"] and len(ranked) > 1


def test_ordinary_lines_are_no_problems() -> None:
    """Lines of builds and runs without a fault."""
    text = (Path(__file__).parent / "data" / "ordinary_log.txt").read_text(encoding="utf-8")
    log = parse_log(text.splitlines())
    assert log.lines > 140 and {entry.message.kind for entry in log.found.values()} == {"note"}
    assert not log.unknown_count and log.dla and log.gpu


def test_rows_are_complete_and_reachable() -> None:
    table = messages()
    assert len(table) >= 60 and len({row.id for row in table}) == len(table)
    kinds = {
        *("fallback", "scale", "cache", "build", "format", "memory", "engine", "parser", "board", "note"),
        *("consequence", "general"),
    }
    for row in table:
        assert len(row.causes) != 1 and row.claims == (row.kind != "general" and not row.causes)
        assert row.kind in kinds and row.happened.endswith(".")
        assert row.status in ("maintainer", "documented", "measured", "user report", "inferred")
        assert re.match(r"(github|docs\.nvidia|TensorRT-RTX)", row.source), row.id
        assert min(map(len, row.keys), default=0) >= 4, row.id
        assert row.remedy or row.kind in ("note", "consequence", "board", "general"), row.id
        assert row.below <= {other.id for other in table} | {"*"}, row.id


@pytest.mark.parametrize("remedy", sorted({row.remedy for row in messages() if row.remedy}))
def test_remedies_are_commands_that_parse(remedy: str) -> None:
    import importlib

    from qdq_translator.core.parsing import make_parser, normalise_flags

    program, command, *words = remedy.split()
    assert program == "qdq-translator"
    module = importlib.import_module(f"qdq_translator.commands.{COMMANDS[command][0]}")
    make_parser(module.Options, "x").parse_args(normalise_flags(words))


@pytest.mark.parametrize("prefix", [
    "",
    "[01/29/2026-15:42:39] [W] [TRT] ",
    "[01/29/2026-15:42:39] [TRT] [W] ",
    "WARNING: [TRT]: ",
    "[TensorRT] WARNING: ",
    "\x1b[33m[W] [TRT] \x1b[0m",
    "2020-03-17 11:35:24.933445802 [W:onnxruntime:Default, tensorrt_execution_provider.h:28 log] [2020-03-17 11:35:24 WARNING] ",
])  # fmt: skip
def test_prefixes_do_not_belong_to_the_layer(prefix: str) -> None:
    for text, layer in ((FALLBACK, "/fc/Gemm"), ("a/b: DLA only supports concatenation on the C dimension.", "a/b")):
        found = recognize(prefix + text)
        assert found is not None and (found.layer, found.text) == (layer, text)


@pytest.mark.parametrize("quotes", ["''", '""', "``", "‘’", "“”", ""], ids=["'", '"', "`", "‘", "“", "none"])
def test_quotes_blanks_and_markdown_do_not_matter(quotes: str) -> None:
    """As pasted into a forum or copied from a web page."""
    text = FALLBACK.replace("'/fc/Gemm'", f"{quotes[:1]}/fc/Gemm{quotes[1:]}")
    for line in (text, text.upper(), f"> {text}", f"* [W] {text}", text.replace(" ", "\u00a0"), f"\t{text}  \r"):
        found = recognize(line)
        assert found is not None and (found.message.id, found.layer.lower()) == ("dla-unsupported", "/fc/gemm")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_files_of_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "build.log"
    path.write_bytes(
        f"trtexec\r\n[W] {FALLBACK}\r\n".encode(encoding) + (b"\xff\xfe\xff\n" if encoding == "utf-8" else b"")
    )
    assert list(read_log(path).fallbacks) == [("/fc/Gemm", FALLBACK)]


def test_long_lines_and_hostile_lines_end(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_text("[W] [TRT] " + "a: DLA " * 200_000 + "\n[E] " + "Layer '" * 100_000 + "DLA Unsupported on DLA\n")
    assert read_log(path).lines >= 2


def test_the_middle_of_a_huge_log_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of 500 MB and of 8 GB of zeros: the version is at the beginning, the cause at the end."""
    monkeypatch.setattr("qdq_translator.board.engine.messages._MOST", 1 << 20)
    path = tmp_path / "huge.log"
    for encoding in ("utf-8", "utf-16"):
        path.write_text(f"[I] TensorRT version: 10.3.0\n{'x' * 5_000_000}\n[W] {FALLBACK}\n", encoding=encoding)
        log = read_log(path)
        assert log.version == (10, 3) and list(log.fallbacks) == [("/fc/Gemm", FALLBACK)] and log.skipped > 2 << 20
    assert main(["explain", str(path)]) == 0
    assert "MiB in the middle were not read" in capsys.readouterr().out
    with open(path, "wb") as stream:
        stream.truncate(1 << 33)
    with pytest.raises(UserError, match="contains no line of TensorRT"):
        read_log(path)
    with open(path, "ab") as stream:  # a log emptied while a program writes it
        stream.write(f"[W] {FALLBACK}\n".encode())
    assert list(read_log(path).fallbacks) == [("/fc/Gemm", FALLBACK)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "log")
    assert main(["explain", str(tmp_path / "log")]) == 1
    assert "cannot be read: it is not a regular file" in capsys.readouterr().err
    with pytest.raises(UserError, match="cannot be read"):
        read_log(tmp_path)
    assert main(["explain", "x" * 5000]) == 1  # too long for the name of a file


def test_explain_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(f"[W] [TRT] {FALLBACK}\n", encoding="utf-8")
    with open(tmp_path / "log", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert main(["explain", "-"]) == 0
    assert "1 x A layer runs on the GPU" in capsys.readouterr().out


def test_a_log_of_everything_fits_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first causes in full, further messages on a line each, then their number; `--all` has all of them in full."""
    log = tmp_path / "all.log"
    log.write_text("\n".join(row["line"] for row in LINES), encoding="utf-8")
    assert main(["explain", str(log)]) == 0
    short = capsys.readouterr().out
    assert main(["explain", str(log), "--all"]) == 0
    whole = capsys.readouterr().out
    titles = [line for line in short.splitlines() if re.match(r"\d+ x ", line)]
    more = re.search(r"\.\.\. and (\d+) more messages", short)
    assert len(short.splitlines()) <= 40 and short.count("cause: ") >= 2 and more
    assert whole.count("cause: ") == len(titles) + int(more[1])
