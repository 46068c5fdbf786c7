"""Files that are written past the system's memory: the same bytes, whatever the system can do, and every error is said."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
from pathlib import Path
from typing import Callable

import pytest

from qdq_translator.core import direct
from qdq_translator.core.direct import direct_file

PIECE = 2**13
DIRECT = os.O_DIRECT


def is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & DIRECT)


def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pass


def unknown_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_DIRECT", 0)
    monkeypatch.setattr(direct, "fcntl", None)


def refused_when_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: Path, flags: int, mode: int, really: Callable[..., int] = os.open) -> int:
        if flags & DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return really(path, flags, mode)

    monkeypatch.setattr(os, "open", opened)


def refused_when_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: memoryview, really: Callable[..., int] = os.write) -> int:
        if is_direct(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return really(descriptor, data)

    monkeypatch.setattr(os, "write", write)


def in_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may take a part of what it is given; what is left does not begin at a block any more."""
    really = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: really(descriptor, data[:3000]))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_PIECE", PIECE)
    monkeypatch.setattr(direct, "_BUFFER", 100)


@pytest.mark.parametrize("size", [0, 1, 4096, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 7 * PIECE + 4097])
@pytest.mark.parametrize(
    "system", [as_it_is, unknown_to_the_system, refused_when_opened, refused_when_written, in_bits]
)
def test_the_file_holds_what_was_written(
    system: Callable[[pytest.MonkeyPatch], None], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system(monkeypatch)
    generator = random.Random(size)
    data = generator.randbytes(size)
    (tmp_path / "a").write_bytes(b"an earlier one" * PIECE)
    threads = threading.active_count()
    with direct_file(tmp_path / "a") as file:
        done = 0
        while done < size:
            assert file.tell() == done
            count = generator.choice([1, 99, 101, 5000, 3 * PIECE])
            buffer = bytearray(data[done : done + count])
            file.write(buffer)
            buffer[:] = bytes(len(buffer))  # whoever gave it may use it again
            done += len(buffer)
    assert (tmp_path / "a").read_bytes() == data
    assert threading.active_count() == threads


def test_whole_pieces_go_past_memory_where_the_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | DIRECT))
    except OSError:
        pytest.skip("the file system of the temporary folder cannot do that")
    written: list[tuple[bool, int, bool]] = []

    def write(descriptor: int, data: memoryview, really: Callable[..., int] = os.write) -> int:
        written.append((is_direct(descriptor), len(data), threading.current_thread() is threading.main_thread()))
        return really(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    with direct_file(tmp_path / "a") as file:
        file.write(bytes(2 * PIECE + 5))
    assert written == [(True, PIECE, False), (True, PIECE, False), (False, 5, True)]


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_a_full_disk_is_said_once_the_file_is_closed_or_before(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def write(descriptor: int, data: memoryview, really: Callable[..., int] = os.write) -> int:
        nonlocal calls
        calls += 1
        if calls > failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    threads = threading.active_count()
    with pytest.raises(OSError, match="No space left"), direct_file(tmp_path / "a") as file:
        for _ in range(3):
            file.write(bytes(PIECE))
        file.write(b"the rest")
    assert file.closed and threading.active_count() == threads
    assert calls == failing + 1  # nothing is written behind a hole


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        direct_file(tmp_path / "none" / "a")
    with pytest.raises(IsADirectoryError):
        direct_file(tmp_path)
