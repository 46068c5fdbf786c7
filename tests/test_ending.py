"""A process that is the program's own ends at once, and nobody misses anything."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qdq_translator.cli import main, main_translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core import ending

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "qdq_translator.py")
OTHERS = """
import atexit, os, pathlib, sys, tempfile, threading, time
folder = pathlib.Path(os.environ["OTHERS"])
def late():
    time.sleep(1.0)
    (folder / "thread").write_text("done")
def at_exit():
    (folder / "atexit").write_text(str("onnx" in sys.modules))
    left.write("unflushed")
    left.close()
    print("last words")
def start():
    threading.Thread(target=late).start()
left = open(folder / "left", "w")
scratch = tempfile.TemporaryDirectory(dir=folder)
atexit.register(at_exit)
start()
"""
"""What somebody else began in the process before us."""


@pytest.mark.parametrize("form", ["script", "module", "installed"])
def test_what_others_began_is_brought_to_its_end(tmp_path: Path, form: str) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "sitecustomize.py").write_text(OTHERS)
    installed = "import sys; from qdq_translator.cli import main_program; sys.exit(main_program())"
    command = {"script": [SCRIPT], "module": ["-m", "qdq_translator"], "installed": ["-c", installed, "translate"]}[
        form
    ]
    path = os.pathsep.join((str(others), str(ROOT)))
    done = subprocess.run(
        [sys.executable, *command, "-i", str(EXAMPLE_MODEL), "-o", str(tmp_path / "o")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OTHERS": str(others)},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "INT8" in done.stdout and done.stdout.endswith("last words\n")
    assert {p.name: p.read_text() for p in others.iterdir() if p.is_file() and p.suffix != ".py"} == {
        "thread": "done",
        "atexit": "True",
        "left": "unflushed",
    }
    assert [p.name for p in others.iterdir() if p.is_dir() and p.name != "__pycache__"] == []


def test_it_ends_before_python_frees_anything(tmp_path: Path) -> None:
    """Else all of this would be for nothing."""
    probe = (
        "import os, sys\nfrom qdq_translator.cli import main_program\n"
        "class Left:\n    def __del__(self, write=os.write): write(1, b'freed')\nsys.left = Left()\n"
        f"sys.argv[1:] = ['translate', {str(EXAMPLE_MODEL)!r}, '-o', {str(tmp_path / 'o')!r}, *sys.argv[1:]]\nmain_program()"
    )
    for more, freed in (([], False), (["--on_conflict", "nonsense"], True)):
        done = subprocess.run([sys.executable, "-c", probe, *more], capture_output=True, text=True, cwd=ROOT)
        assert ("freed" in done.stdout) == freed, done.stderr
        assert done.returncode == (2 if freed else 0)


def test_nobody_is_left_behind_who_wants_to_go_on(tmp_path: Path) -> None:
    arguments = ["-i", str(EXAMPLE_MODEL), "-o", str(tmp_path / "o")]
    runner = (
        f"import runpy, sys; sys.argv = [{SCRIPT!r}, *sys.argv[1:]]\n"
        f"try: runpy.run_path({SCRIPT!r}, run_name='__main__')\nexcept SystemExit as left: print('status', left.code)\n"
        "sys.exit(7)"
    )
    done = subprocess.run([sys.executable, "-c", runner, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 7 and done.stdout.endswith("status 0\n"), done.stderr
    measured = tmp_path / "measured"
    command = [sys.executable, "-m", "cProfile", "-o", str(measured), SCRIPT, *arguments]
    assert subprocess.run(command, capture_output=True, cwd=ROOT).returncode == 0
    assert measured.stat().st_size


def test_a_call_keeps_nothing(tmp_path: Path) -> None:
    assert main_translate(["-i", str(EXAMPLE_MODEL), "-o", str(tmp_path / "o")]) == 0
    assert main(["translate", str(EXAMPLE_MODEL), "-o", str(tmp_path / "o")]) == 0
    assert not ending.is_alone() and not ending.keep(gc) and not ending._kept
    assert gc.isenabled()


def test_a_python_without_these_functions_ends_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("left"))
    monkeypatch.delattr("atexit._run_exitfuncs")
    monkeypatch.setattr(ending, "_kept", [gc])
    with pytest.raises(SystemExit) as left:
        ending.program(lambda: 3)
    assert left.value.code == 3
