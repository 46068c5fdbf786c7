"""Reading and writing files: regular files only, atomically. Needs only Python."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from io import BufferedReader
from pathlib import Path
from typing import Any, Iterable, Sequence

from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.rows import json_text
from qdq_translator.core.switch import appear_together, destination

_LARGEST_TEXT = 2**28


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
        with open_file(path) as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def open_file(path: Path) -> BufferedReader:
    """A file to read from. Raises OSError for a folder, and for a device, FIFO or socket, which would be read for ever;
    opening does not wait for their other end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # NUL in the name
        raise OSError(errno.EINVAL, "that is no name of a file") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(descriptor, "rb")


def size_of(file: BufferedReader) -> int:
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def read_file(path: Path) -> bytes:
    """All bytes of a regular file. Raises OSError if it cannot be opened or is none."""
    with open_file(path) as file:
        return file.read()


def read_text(path: Path, hint: str) -> str:
    """A text file of at most 256 MiB; invalid UTF-8 becomes surrogates. Raises UserError with `hint` if unreadable."""
    try:
        with open_file(path) as file:
            if size_of(file) > _LARGEST_TEXT:
                raise OSError(errno.EFBIG, "it has more than 256 MiB")
            return file.read().decode("utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", hint) from error


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write the file atomically; an earlier one remains until then. `mode`: permissions, less the umask.

    Raises UserError if it cannot be written.
    """
    try:
        path = destination(path)
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
    """Write rows and values of JSON types as an indented file, whole or not at all."""
    write_file(path, (json_text(values, indent=2) + "\n").encode())


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
