"""Files appear whole or not at all, sets of them together, and no command writes over what it reads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Optional

import pytest

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core import disk
from qdq_translator.core.disk import appear_together, read_file, refuse_overwriting, write_file
from qdq_translator.core.errors import UsageError, UserError
from tests.fuzz.faults import contents, count_calls, failing_at, killed_at

NAMES = ("a", "b", "c")


def write_set(folder: Path, text: str, names: tuple[str, ...] = NAMES) -> None:
    with appear_together(folder) as scratch:
        for name in names:
            with open(scratch / name, "wb") as file:
                file.write(f"{name} {text}".encode())


def a_set(text: str) -> dict[str, bytes]:
    return {name: f"{name} {text}".encode() for name in NAMES}


@pytest.mark.parametrize("from_then_on", [False, True])
def test_whatever_call_fails_the_folder_holds_one_set(from_then_on: bool, tmp_path: Path) -> None:
    """At every call in turn, once and with all later ones."""
    write_set(tmp_path / "count", "old")
    number = count_calls(lambda: write_set(tmp_path / "count", "new"))
    assert number > 12
    for call in range(number):
        folder = tmp_path / str(call)
        write_set(folder, "old")
        failing_at(call, lambda folder=folder: write_set(folder, "new"), from_then_on)  # type: ignore[misc]
        now = contents(folder)
        if now not in (a_set("old"), a_set("new")):
            # with every later call failing nothing can be put back
            assert from_then_on and all(now[n] in (a_set("old")[n], a_set("new")[n]) for n in NAMES)
        write_set(folder, "newest")
        assert contents(folder) == a_set("newest") and len(list(folder.iterdir())) == len(NAMES)


def test_whenever_a_run_is_killed_every_file_is_whole_and_the_next_run_tidies_up(tmp_path: Path) -> None:
    write_set(tmp_path / "count", "old")
    number = count_calls(lambda: write_set(tmp_path / "count", "new"))
    left_over = 0
    for call in range(number):
        folder = tmp_path / str(call)
        write_set(folder, "old")
        assert killed_at(call, lambda folder=folder: write_set(folder, "new"))  # type: ignore[misc]
        now = contents(folder)
        assert set(now) == set(NAMES) and all(now[n] in (a_set("old")[n], a_set("new")[n]) for n in NAMES)
        left_over += any(folder.glob(".qdq_unfinished-*"))
        write_set(folder, "newest")
        assert contents(folder) == a_set("newest") and len(list(folder.iterdir())) == len(NAMES)
    assert left_over > number // 2


def test_the_scratch_folder_of_a_live_run_is_never_touched(tmp_path: Path) -> None:
    with appear_together(tmp_path) as scratch:
        (scratch / "a").write_text("mine")
        write_set(tmp_path, "another's", ("b",))
        assert (scratch / "a").read_text() == "mine"
    assert contents(tmp_path) == {"a": b"mine", "b": b"b another's"}


def test_without_locks_scratch_folders_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "fcntl", None)
    for name, age in ((".qdq_unfinished-old", 2), (".qdq_unfinished-new", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, os.stat(tmp_path).st_mtime - age * 86400))
    write_set(tmp_path, "x")
    assert not (tmp_path / ".qdq_unfinished-old").exists() and (tmp_path / ".qdq_unfinished-new").exists()


def test_runs_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    def write(text: str) -> None:
        for _ in range(20):
            write_set(tmp_path, text)

    threads = [threading.Thread(target=write, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path) in [a_set(str(i)) for i in range(4)]


def test_a_target_that_is_a_folder_changes_nothing(tmp_path: Path) -> None:
    write_set(tmp_path, "old")
    (tmp_path / "c").unlink()
    (tmp_path / "c").mkdir()
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"c is a folder.*Nothing was changed"):
        write_set(tmp_path, "new")
    assert contents(tmp_path) == before and not list(tmp_path.glob(".qdq_unfinished-*"))


def test_write_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.sh"
    write_file(path, b"one", mode=0o777)
    assert path.read_bytes() == b"one" and os.access(path, os.X_OK)
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, b"two")
    assert link.is_symlink() and path.read_bytes() == b"two"
    write_file(Path("/dev/null"), b"gone")
    assert not Path("/dev/null").is_file()
    with pytest.raises(UserError):
        write_file(tmp_path / "new", b"a folder")


def test_read_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_file(tmp_path / "a") == b"0123456789"
    for place in ("/dev/zero", tmp_path, tmp_path / "none", "a\0b"):
        with pytest.raises(OSError):
            read_file(Path(place))


def test_outputs_never_overwrite_inputs(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(UsageError, match="would be overwritten"):
        refuse_overwriting([tmp_path / "link"], [tmp_path / "x" / ".." / "a"])
    refuse_overwriting([tmp_path / "b"], [tmp_path / "a"])


def test_every_command_refuses_to_write_over_what_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t"
    assert main(["translate", "--example", "--platform", "jetpack-6.2", "-o", str(out)]) == 0
    files = {p.suffix: str(p) for p in sorted(out.iterdir())}
    report, cache, stripped = str(next(out.glob("*_report.json"))), files[".cache"], files[".onnx"]
    (tmp_path / "m.onnx").write_bytes(EXAMPLE_MODEL.read_bytes())
    (tmp_path / "m_noqdq.onnx").write_bytes(EXAMPLE_MODEL.read_bytes())
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    capsys.readouterr()
    for arguments in (
        ["report", "-t", str(out), "--html", report],
        ["trtexec", "-t", str(out), "--opt_shapes", "input:1x1x16x16", "--script", stripped],
        ["restore", "-i", stripped, "-c", cache, "-o", stripped],
        ["restore", "-i", stripped, "-c", cache, "-o", cache],
        ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(out), "--save", report],
        ["translate", "-i", str(tmp_path / "m.onnx"), str(tmp_path / "m_noqdq.onnx"), "-o", str(tmp_path)],
    ):
        assert main(arguments) == 2
        assert "would be overwritten" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


# ---------------------------------------------------------------- streams


def command(arguments: list[str], shell: str, cwd: Optional[Path] = None) -> subprocess.CompletedProcess[str]:
    """`qdq-translator` with `shell` behind it, such as a redirection."""
    line = [
        sys.executable,
        "-c",
        "import sys; from qdq_translator.cli import main; sys.exit(main(sys.argv[1:]))",
        *arguments,
    ]
    quoted = " ".join(f"'{word}'" for word in line)
    return subprocess.run(["sh", "-c", f"{quoted} {shell}"], capture_output=True, text=True, cwd=cwd, errors="replace")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("t")
    assert main(["translate", "--example", "--platform", "jetpack-6.2", "-o", str(out)]) == 0
    return out


@pytest.mark.parametrize("shell", [">&-", "> /dev/full"])
@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["trtexec"]])
def test_output_that_nobody_can_read_is_an_error_in_one_sentence(
    arguments: list[str], shell: str, folder: Path
) -> None:
    done = command([*arguments, "-t", str(folder)], shell)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_reader_that_leaves_is_no_message(folder: Path) -> None:
    done = command(["report", "-t", str(folder), "--json"], "| head -c 1")
    assert done.stderr == "" and done.stdout == "{"


def test_errors_do_not_go_into_the_output(folder: Path) -> None:
    done = command(["report", "-t", str(folder / "none"), "--json"], "2>&-")
    assert done.returncode == 1 and done.stdout == ""


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsencode(str(tmp_path)) + b"/caf\xe9.onnx"
    with open(name, "wb") as file:
        file.write(EXAMPLE_MODEL.read_bytes())
    program = "import sys; from qdq_translator.cli import main; sys.exit(main(sys.argv[1:]))"
    out = tmp_path / "out"
    for extra in ([], ["--json"]):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                "translate",
                "-i",
                name,
                "-o",
                str(out),
                "--platform",
                "jetpack-6.2",
                *extra,
            ],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0, done.stderr
    for arguments in (
        ["report"],
        ["report", "--html", str(tmp_path / "page.html")],
        ["trtexec", "--opt_shapes", "input:1x1x16x16"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments, "-t", str(out)],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0 and b"unexpected" not in done.stderr, done.stderr


def test_a_set_within_a_set_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a set written into the scratch folder of another set appear with it; its lock is this process's own."""

    def asleep(_: float) -> None:
        raise AssertionError("waited for its own lock")

    monkeypatch.setattr("qdq_translator.core.disk.time.sleep", asleep)
    with appear_together(tmp_path) as scratch:
        write_file(scratch / "a.txt", b"a")
        with appear_together(scratch) as inner:
            (inner / "b.txt").write_bytes(b"b")
        assert not list(tmp_path.glob("*.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_a_users_folder_with_the_programs_name_is_nobodys_scratch(tmp_path: Path) -> None:
    mine = tmp_path / ".qdq-translator"
    write_file(mine / "a.txt", b"a")
    os.utime(mine, (0, 0))
    with appear_together(mine) as scratch:
        (scratch / "b.txt").write_bytes(b"b")
        assert scratch.parent == mine
    write_file(tmp_path / "c.txt", b"c")  # this run removes what others left over
    assert sorted(path.name for path in mine.iterdir()) == ["a.txt", "b.txt"]
