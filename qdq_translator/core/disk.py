"""Reading and writing files: regular files only, atomically, several of them together. Needs only Python.

Files are first written to a scratch folder next to their destination. A scratch folder is locked during its run; the
next run into the same folder removes those without a running owner. On systems without locks (fcntl), scratch folders
count as left over after a day.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
import time
from io import BufferedReader
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.rows import plain

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SCRATCH = ".qdq_unfinished-"
_KEPT = ".earlier"
"""Inside a scratch folder: the files that the new files replace."""
_PATIENCE = 10.0
"""Seconds to wait for another run that is just placing its files; then this run continues without the lock."""
_POLLED = 0.002
"""Seconds after which a lock is tried again: placing a set needs less time."""
_DAY = 24 * 3600.0
_LARGEST_TEXT = 2**30


VALUES = "qdq_translator_values"
"""Folder of files that represent values in memory."""


def shown_place(path: str) -> str:
    """`path` as files and messages name it; a path below VALUES is `(in memory, sha256 ...)`, the same in every run."""
    place = Path(path)
    return f"(in memory, sha256 {place.stem})" if place.parent.name == VALUES else path


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes as hex, '' for a file that cannot be read."""
    import hashlib

    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def open_file(path: Path) -> BufferedReader:
    """A file to read from. Raises OSError for a device, FIFO or socket, which would be read for ever."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # NUL in the name
        raise OSError(errno.EINVAL, "that is no name of a file") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(path, "rb")


def size_of(file: BufferedReader) -> int:
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def read_file(path: Path) -> bytes:
    """All bytes of a regular file. Raises OSError as `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_text(path: Path, hint: str) -> str:
    """A text file of at most 1 GiB; invalid UTF-8 becomes surrogates. Raises UserError, with `hint`, if unreadable."""
    try:
        with open_file(path) as file:
            if size_of(file) > _LARGEST_TEXT:
                raise OSError(errno.EFBIG, "it has more than 1 GiB")
            return file.read().decode("utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", hint) from error


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write the file atomically; an earlier one remains until then. `mode`: permissions, less the umask.

    Raises UserError if it cannot be written.
    """
    try:
        path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/stdout, a pipe
            path.write_bytes(data)
            return
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.", "Choose another place.") from error
    with appear_together(path.parent) as scratch:
        descriptor = os.open(scratch / path.name, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)
        with open(descriptor, "wb") as file:
            file.write(data)


def write_json(path: Path, values: Any) -> None:
    """The same for rows and values of JSON types."""
    write_file(path, (json.dumps(plain(values), indent=2) + "\n").encode())


def check_place(path: Path) -> None:
    """Raises UserError if `path` is not writable: to be called before long work."""
    folder = path.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}.", "Choose another place.") from error
    if path.is_dir():
        raise UserError(f"{path} is a folder.", "Name a file in it.")


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raises UsageError if a command would overwrite one of its inputs, under any name."""
    read = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise UsageError(
                f"{path} would be overwritten, and this command reads it.", "Give another output file or folder."
            )


def check_outputs(outputs: Sequence[Path], inputs: Iterable[Path]) -> None:
    """Raises UsageError or UserError for files that must not or cannot be written: to be called before long work."""
    refuse_overwriting(outputs, inputs)
    for path in outputs:
        check_place(path)


@contextlib.contextmanager
def appear_together(folder: Path) -> Iterator[Path]:
    """Provide a scratch folder inside `folder`; at the end its files replace files of the same names in `folder`.

    On any error no new file appears and the existing ones remain. In a nested scratch folder, files appear with those
    of the outer one. Raises UserError if the folder cannot be written.
    """
    if folder.name.startswith(_SCRATCH):  # its lock is held, by the set that it belongs to
        yield folder
        return
    with contextlib.ExitStack() as alive:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                _remove_leftovers(folder)
                scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder))
                alive.callback(shutil.rmtree, scratch, ignore_errors=True)
                alive.enter_context(_locked(scratch))
        except OSError as error:
            raise UserError(f"The folder {folder} cannot be written: {error.strerror}.", "Choose another.") from error
        try:
            yield scratch
            written = _on_disk(scratch)  # while others may place their files
            with _locked(folder):
                _place(written, scratch / _KEPT, folder)
        except OSError as error:
            raise UserError(
                f"Writing to {folder} failed: {error.strerror or error}.",
                "Nothing was changed there; free space or choose another folder.",
            ) from error


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Locks `path`, whose folder must exist, against other runs. Raises UserError if another run has the lock."""
    held = path.parent / f"{_SCRATCH}{path.name}"
    with contextlib.ExitStack() as alive:
        try:
            with _locked(path.parent):
                _remove_leftovers(path.parent)
                held.mkdir()
                alive.enter_context(_locked(held))
                alive.callback(
                    shutil.rmtree, held, ignore_errors=True
                )  # before the lock is released: the next run uses the same name
        except FileExistsError as error:
            raise UserError(
                f"Another run writes to {path} now.",
                f"Wait until it ends, or choose another folder. If no run is active, delete {held}.",
            ) from error
        except OSError as error:
            raise UserError(f"{path.parent} cannot be written: {error.strerror}.", "Choose another folder.") from error
        yield


def _on_disk(scratch: Path) -> list[Path]:
    """The files of `scratch`, flushed so that a power cut leaves them intact."""
    written = sorted(scratch.iterdir())
    for path in written:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return written


def _place(written: Sequence[Path], kept: Path, folder: Path) -> None:
    """Moves those files to `folder`; on an error moved files are put back. kept: folder for the replaced files."""
    for path in written:
        if (folder / path.name).is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{folder / path.name} is a folder")
    kept.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for path in written:
            target = folder / path.name
            if os.path.lexists(target):
                _keep(target, kept / path.name)
            moved.append((path, target))
            os.replace(path, target)
    except BaseException:
        for path, target in moved:
            with contextlib.suppress(OSError):
                if os.path.lexists(kept / target.name):
                    os.replace(kept / target.name, target)
                elif not os.path.lexists(path):
                    os.unlink(target)
        raise


def _keep(path: Path, place: Path) -> None:
    """Hard-link a file, or copy it if the file system has no hard links."""
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, place, follow_symlinks=False)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f"{_SCRATCH}*"):
        if path.is_dir() and not path.is_symlink() and _is_dead(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_dead(scratch: Path) -> bool:
    """True for a scratch folder whose run has ended: its lock is free."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            descriptor = os.open(scratch, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)
    with contextlib.suppress(OSError):
        return time.time() - scratch.stat().st_mtime > _DAY
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, if locks are supported."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        patient_until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > patient_until:
                    break
                time.sleep(_POLLED)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
