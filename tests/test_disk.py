"""Files appear whole or not at all, sets of them together, and no command writes over what it reads."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core import switch
from qdq_translator.core.disk import read_file, refuse_overwriting, write_file
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.switch import SCRATCH, appear_together, clear_leftovers
from tests.fuzz.faults import contents, count_calls, failing_at, killed_at

NAMES = ("a", "b", "c")


def write_set(folder: Path, text: str, names: tuple[str, ...] = NAMES, gone: tuple[str, ...] = ()) -> None:
    with appear_together(folder, gone) as scratch:
        for name in names:
            (scratch / name).parent.mkdir(exist_ok=True)
            with open(scratch / name, "wb") as file:
                file.write(f"{name} {text}".encode())


def a_set(text: str, names: tuple[str, ...] = NAMES) -> dict[str, bytes]:
    return {name: f"{name} {text}".encode() for name in names}


OLD, NEW = ("a", "b", "old/c", "both/d"), ("a", "new/b", "both/d", "e")
"""Sets of which each has files, and a folder, that the other lacks."""


def prepared(folder: Path) -> Callable[[], None]:
    """Replaces OLD, which is in the folder beside a file of the user, with NEW."""
    write_set(folder, "old", OLD)
    (folder / "both" / "mine").write_bytes(b"mine")
    return lambda: write_set(folder, "new", NEW, OLD)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested are the calls; they still count."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def without_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("how", ["fails", "fails from then on", "killed"])
def test_at_every_call_in_turn_the_folder_shows_one_set(
    how: str, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old set or the new one, never a mixture, and the next run leaves nothing else. Where links are not supported, a
    reader of the program first completes what a killed run began."""
    if not linked:
        monkeypatch.setattr(os, "symlink", without_links)
    number = count_calls(prepared(tmp_path / "count"))
    assert number > 25
    seen = {"old": 0, "new": 0}
    for call in range(number):
        folder = tmp_path / str(call)
        write = prepared(folder)
        failed = killed_at(call, write) if how == "killed" else failing_at(call, write, how != "fails")
        if not linked:
            clear_leftovers(folder)
        now = contents(folder)
        assert now.pop("both/mine") == b"mine"
        shown = "old" if now == a_set("old", OLD) else "new"
        assert now == a_set(shown, OLD if shown == "old" else NEW), call
        assert failed or shown == "new"
        seen[shown] += 1
        write_set(folder, "newest", NEW, OLD)
        assert contents(folder) == {**a_set("newest", NEW), "both/mine": b"mine"}
        left = {p.name for p in folder.iterdir()} - {"a", "both", "e", "new"}
        assert left <= {"old"}  # empty: removing it failed, or was never reached
        assert not any(p.is_symlink() for p in folder.rglob("*"))
    assert min(seen.values()) > 3


@pytest.mark.parametrize("how", ["fails", "killed"])
def test_a_first_set_is_whole_or_absent(how: str, tmp_path: Path) -> None:
    def write(folder: Path) -> Callable[[], None]:
        return lambda: write_set(folder / "made", "new", NEW)

    for call in range(count_calls(write(tmp_path / "count"))):
        folder = tmp_path / str(call)
        folder.mkdir()
        killed_at(call, write(folder)) if how == "killed" else failing_at(call, write(folder), False)
        assert contents(folder / "made") in ({}, a_set("new", NEW))
        if how == "fails" and not contents(folder / "made"):
            assert not (folder / "made").exists()  # nor an empty folder
        write(folder)()
        assert contents(folder / "made") == a_set("new", NEW) and not list((folder / "made").glob(".*"))


def test_only_what_a_run_of_this_program_left_is_cleared(tmp_path: Path) -> None:
    """Not a folder of the user, not the bundle that version 0.3 set aside, and nothing outside the folder."""
    for name in ("-notes/mine", "-B/old/bundle"):
        (tmp_path / f"{SCRATCH}{name[1:]}").parent.mkdir(parents=True)
        (tmp_path / f"{SCRATCH}{name[1:]}").write_text("keep")
    foreign = tmp_path / f"{SCRATCH}foreign"
    (foreign / "new").mkdir(parents=True)
    (foreign / "new" / "x").write_text("evil")
    (tmp_path / "folder").mkdir()
    foreign.rename(tmp_path / "folder" / foreign.name)
    foreign = tmp_path / "folder" / foreign.name
    (foreign / "now").symlink_to("new")
    plan = {"files": ["../x"], "gone": [], "made": []}
    (foreign / "plan").write_text(json.dumps(plan))
    for folder in (tmp_path, tmp_path / "folder"):
        write_set(folder, "a")
    assert (tmp_path / f"{SCRATCH}notes" / "mine").exists() and (tmp_path / f"{SCRATCH}B" / "old" / "bundle").exists()
    assert not (tmp_path / "x").exists()


def test_a_reader_leaves_a_run_alone_that_begins(tmp_path: Path) -> None:
    """Its scratch folder is there, and not locked yet."""
    (tmp_path / f"{SCRATCH}begins" / "new").mkdir(parents=True)
    clear_leftovers(tmp_path, reader=True)
    assert (tmp_path / f"{SCRATCH}begins").exists()
    clear_leftovers(tmp_path)
    assert not (tmp_path / f"{SCRATCH}begins").exists()


def test_a_link_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "b").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"b is a link to .*elsewhere, .*Remove the link"):
        write_set(tmp_path / "set", "new")
    assert contents(tmp_path / "set") == {"b": b"mine"} and len(list((tmp_path / "set").iterdir())) == 1
    (tmp_path / "link").symlink_to(tmp_path / "set")
    write_set(tmp_path / "link", "new", ("a", "c"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "set" / "a").read_bytes() == b"a new"


def test_what_is_equal_is_not_written(tmp_path: Path) -> None:
    write_set(tmp_path, "old")
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    with appear_together(tmp_path, unless_equal=True) as scratch:
        for name, data in a_set("old").items():
            (scratch / name).write_bytes(data)
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before
    with appear_together(tmp_path, ["c"], unless_equal=True) as scratch:
        (scratch / "a").write_bytes(b"a old")
    assert contents(tmp_path) == a_set("old", ("a", "b"))


def test_the_scratch_folder_of_a_live_run_is_never_touched(tmp_path: Path) -> None:
    with appear_together(tmp_path) as scratch:
        (scratch / "a").write_text("mine")
        write_set(tmp_path, "another's", ("b",))
        assert (scratch / "a").read_text() == "mine"
    assert contents(tmp_path) == {"a": b"mine", "b": b"b another's"}


def test_without_locks_scratch_folders_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "fcntl", None)
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
        ["build", "--print", "-t", str(out), "--opt_shapes", "input:1x1x16x16", "--script", stripped],
        ["explicit", stripped, "-c", cache, "--for", "onnxruntime", "-o", stripped],
        ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(out), "--save", report],
        ["translate", "-i", str(tmp_path / "m.onnx"), str(tmp_path / "m_noqdq.onnx"), "-o", str(tmp_path)],
    ):
        assert main(arguments) == 2
        assert "would be overwritten" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


# ---------------------------------------------------------------- streams


PROGRAM = "import sys; from qdq_translator.cli import main; sys.exit(main(sys.argv[1:]))"


def command(arguments: list[str], shell: str, cwd: Optional[Path] = None) -> subprocess.CompletedProcess[str]:
    """`qdq-translator` with `shell` behind it, such as a redirection."""
    quoted = " ".join(f"'{word}'" for word in [sys.executable, "-c", PROGRAM, *arguments])
    return subprocess.run(["sh", "-c", f"{quoted} {shell}"], capture_output=True, text=True, cwd=cwd, errors="replace")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("t")
    assert main(["translate", "--example", "--platform", "jetpack-6.2", "-o", str(out)]) == 0
    return out


@pytest.mark.parametrize("shell", [">&-", "> /dev/full"])
@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["build", "--print"]])
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
    out, env = str(tmp_path / "out"), {**os.environ, "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"}
    translate: list[Any] = ["translate", "-i", name, "-o", out, "--platform", "jetpack-6.2"]
    for arguments in (
        translate,
        [*translate, "--json"],
        ["report", "-t", out],
        ["report", "-t", out, "--html", str(tmp_path / "page.html")],
        ["build", "--print", "-t", out, "--opt_shapes", "input:1x1x16x16"],
    ):
        done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, env=env)
        assert done.returncode == 0 and b"unexpected" not in done.stderr, done.stderr


def test_a_set_within_a_set_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a set written into the scratch folder of another set appear with it; its lock is this process's own."""

    def asleep(_: float) -> None:
        raise AssertionError("waited for its own lock")

    monkeypatch.setattr("qdq_translator.core.switch.time.sleep", asleep)
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
        assert mine in scratch.parents
    write_file(tmp_path / "c.txt", b"c")  # this run removes what others left over
    assert sorted(path.name for path in mine.iterdir()) == ["a.txt", "b.txt"]
