"""Every command in the README and in docs/ does what the page says: shell blocks are run, links are followed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qdq_translator.cli import main, main_translate
from qdq_translator.commands import options_of_command
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.parsing import make_parser

ROOT = Path(__file__).resolve().parents[1]
BY_THE_HOUR = "first_hour.md"
"""Run by tests/test_first_hour.py, with all that its commands print."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[a-z ]+) -->\s*)?```sh\n(?P<text>.*?)```", re.S)
NOT_RUN = ("pip install",)
"""What .ci/run does itself, in empty environments."""
COMMANDS = {"qdq-translator": main, "qdq_translator.py": main_translate}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [
        (m["mark"] or "", "\n".join(line.strip() for line in m["text"].splitlines()))
        for m in BLOCK.finditer(page.read_text())
    ]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A working folder with the commands on the path, a model.onnx, and the checkout's models where the docs say."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, entry in (("qdq-translator", "main"), ("qdq_translator.py", "main_translate")):
        script = tools / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path[0] = {str(ROOT)!r}\n"
            f"from qdq_translator.cli import {entry}\nsys.exit({entry}())\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    work = tmp_path / "work"
    (work / "qdq_translator").mkdir(parents=True)
    (work / "qdq_translator" / "models").symlink_to(EXAMPLE_MODEL.parent)
    shutil.copy(EXAMPLE_MODEL, work / "model.onnx")
    return work


def run_in_a_shell(text: str, desk: Path) -> tuple[int, str]:
    env = {**os.environ, "PATH": f"{desk.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", text], cwd=desk, env=env, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def run_here(text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Lines of commands without anything for a shell; up to the first that fails."""
    status, errors = 0, ""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        status = status or (COMMANDS[words[0]](words[1:]) if words else 0)
        errors += capsys.readouterr().err
    return status, errors


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_run(
    page: Path, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's in a shell, and those of other pages that need one."""
    if page.name == BY_THE_HOUR:
        return
    monkeypatch.chdir(desk)
    for mark, text in blocks(page):
        if mark == "needs an engine" or any(word in text for word in NOT_RUN):
            continue
        lines = text.replace("\\\n", " ").splitlines()
        plain = all(not line or line.split()[0] in COMMANDS for line in lines) and not re.search(r"[$|<>&;*~`]", text)
        here = plain and page.name != "README.md"
        status, errors = run_here(text, capsys) if here else run_in_a_shell(text, desk)
        assert "Traceback" not in errors
        if mark == "fails":
            assert status == 1 and errors
        else:
            assert status == 0, f"{text}\n{errors}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_diagnostic_rule_is_documented() -> None:
    """Rules named in the code stand in docs/rules.md."""
    text = (ROOT / "docs" / "rules.md").read_text()
    used = set()
    for source in (ROOT / "qdq_translator").rglob("*.py"):
        used |= set(re.findall(r"(?:info|warning)\)?\(\s*\"([A-Z]+\d+)\"", source.read_text()))
    assert {"C1", "C2", "F6", "Q9", "W1"} <= used
    assert [rule for rule in sorted(used) if not re.search(rf"\b{rule}\b", text)] == []


def test_every_claim_of_the_threat_model_names_tests_that_exist() -> None:
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")][1:]
    rows = [row for row in rows if not row.startswith("| ---")]
    assert len(rows) > 12
    for row in rows:
        shown = re.findall(r"`(tests/[\w/.]+)(?:: (\w+))?`", row.rsplit("|", 2)[1])
        assert shown, row
        for path, function in shown:
            assert (ROOT / path).exists(), path
            assert f"def {function}(" in (ROOT / path).read_text() if function else True, f"{path}: {function}"


def test_commands_of_the_symptoms_exist() -> None:
    """Each with its options; a page is named in every row."""
    rows = [line for line in (ROOT / "docs" / "symptoms.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| ---", "| what you see"))]
    assert len(rows) > 20 and all(re.search(r"\]\([^)]+\) \|$", row) for row in rows)
    commands = [words for row in rows for words in re.findall(r"`qdq-translator ([^`]+)`", row)]
    assert len(commands) > 20
    for words in commands:
        parser = make_parser(options_of_command(words.split()[0]), "qdq-translator")
        known = {flag for action in parser._actions for flag in action.option_strings}
        assert set(re.findall(r"(?<= )--?[A-Za-z]\w*", words)) <= known, words
