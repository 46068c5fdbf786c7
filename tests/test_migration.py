"""Programs, commands and configurations that TensorRT 11 breaks: every use is found, and none in files without TensorRT."""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from pathlib import Path

import pytest

from qdq_translator.board.engine import migration, removed
from qdq_translator.board.engine.messages import parse_log, recognize
from tests.transcripts import unpacked

SHARED = Path(__file__).resolve().parents[2] / "shared" / "facts" / "tensorrt_removed"


def marked(text: str) -> set[int]:
    """Lines with `<` behind their comment sign; for the continued command, the line of its option."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.search(r"(#|//) <$", line)]
    return set(lines) or {text[: text.index("--fp16")].count("\n") + 1}


@pytest.mark.parametrize(("name", "text"), [row for row in unpacked("programs.txt") if row[0][0].isdigit()])
def test_each_use_is_found_and_none_is_invented(tmp_path: Path, name: str, text: str) -> None:
    """Ten small programs of each kind. What is said of each use: tests/data/transcripts/desk/programs.txt."""
    path = tmp_path / Path(name).name
    path.write_text(text, encoding="utf-8")
    found = migration.uses(path)
    assert found is not None and {use.line for use in found} == marked(text)
    assert all(use.row.replacement or use.why for use in found)


def test_no_use_is_invented_in_other_programs() -> None:
    """200 modules of installed packages that do not use TensorRT."""
    folders = (Path(sysconfig.get_paths()[name]) for name in ("purelib", "stdlib"))
    files = [p for folder in folders for p in sorted(folder.rglob("*.py")) if p.stat().st_size < 100_000][::7]
    files = [p for p in files if b"tensorrt" not in p.read_bytes().lower() and b"trt_" not in p.read_bytes()][:200]
    assert len(files) > 150
    for path in files:
        try:
            assert migration.uses(path) == [], path
        except Exception as error:  # a module in Python 2, or in another encoding
            assert "no valid Python" in str(error) or "cannot be read" in str(error) or "UTF-8" in str(error)


def test_logs_are_no_programs(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("[E] Unknown option: --int8\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("trtexec --int8\n", encoding="utf-8")
    assert migration.uses(tmp_path / "build.log") is None and migration.uses(tmp_path / "notes.txt") is None


def _message(row: removed.Removal) -> str:
    """How Python, g++ or trtexec words that the name is missing; '' for other rows."""
    owner, _, member = row.name.rpartition("::" if row.language == "cpp" else ".")
    if not row.removed or any(sign in row.name for sign in "(#= ") or not member:
        is_flag = row.language == "trtexec" and row.name.startswith("--") and not set("= ") & set(row.name)
        return f"[E] Unknown option: {row.name} x" if is_flag and row.removed else ""
    if row.language == "cpp":
        return f"error: ‘{member}’ is not a member of ‘{owner}’"
    if row.language == "python":
        of = "module 'tensorrt'" if owner == "trt" else f"'tensorrt_bindings.tensorrt.{owner}' object"
        return f"AttributeError: {of} has no attribute '{member}'"
    return ""


def test_every_removed_name_is_named_by_its_message() -> None:
    rows = [row for row in removed.removals().values() if row.removed and _message(row)]
    assert len(rows) > 350
    for row in rows:
        found = recognize(_message(row))
        assert found is not None and found.message.removal is not None, row.name
        assert found.message.removal.removed == row.removed, row.name


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="LOUDLY: shared facts are not here; the table is not compared with them"
)
def test_the_table_has_every_row_of_the_facts() -> None:
    facts = json.loads((SHARED / "tensorrt-removed-apis.json").read_text(encoding="utf-8"))
    assert {(row["language"], row["name"]) for row in facts} <= removed.removals().keys()


def test_a_version_that_still_has_the_name_is_another_cause() -> None:
    line = "AttributeError: 'tensorrt.tensorrt.ITensor' object has no attribute 'dynamic_range'"
    assert parse_log(["TensorRT version: 11.4.0", line]).ranked()[0].message.id == "removed ITensor.dynamic_range"
    assert parse_log(["[I] TensorRT version: 10.3.0", line]).ranked() == []
    assert removed.stated_version("&&&& FAILED TensorRT.trtexec [TensorRT v8601]") == (8, 6)
    assert removed.stated_version("Use Deprecated in TensorRT 10.12. Superseded") is None


def test_the_readers_read_old_pythons(tmp_path: Path) -> None:
    """`ast.unparse` is of Python 3.9."""
    source = Path(migration.__file__).read_text(encoding="utf-8")
    assert not any(isinstance(n, ast.Attribute) and n.attr == "unparse" for n in ast.walk(ast.parse(source)))
