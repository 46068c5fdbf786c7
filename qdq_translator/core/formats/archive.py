"""Archives (.tar.gz) of other machines: a few files of known names, read into memory with a budget for all of them."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from pathlib import Path
from typing import Any

from qdq_translator.core.disk import open_file, size_of

_FREE = 2**26
"""The number of bytes to which any archive may unpack."""
_PER_STORED_BYTE = 32
"""Further bytes for each byte of the archive: logs and JSON reach 20."""
_MOST_MEMBERS = 1000


class _Unpacked(io.RawIOBase):
    """The unpacked stream, which ends with an error when the budget is spent."""

    def __init__(self, packed: Any, budget: int) -> None:
        self._file, self.left = gzip.GzipFile(fileobj=packed), budget

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size if 0 <= size <= self.left else self.left + 1)
        self.left -= len(data)
        self.check(0)
        return data

    def check(self, size: int) -> None:
        """Raises ValueError if less than `size` is left."""
        if self.left < size:
            raise ValueError("it unpacks to far more than it holds")


def read_archive(path: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Name -> content of the files whose whole name matches `wanted`; all others are skipped. Raises ValueError for
    another file, a damaged one, a name twice, and one that unpacks to too many bytes or files; OSError if it cannot be
    read or is not a regular file."""
    found: dict[str, bytes] = {}
    try:
        with open_file(path) as packed:
            stream: Any = _Unpacked(packed, _FREE + _PER_STORED_BYTE * size_of(packed))
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for number, member in enumerate(archive):
                    if number >= _MOST_MEMBERS:
                        raise ValueError(f"it contains more than {_MOST_MEMBERS} files")
                    stream.check(member.size)
                    file = archive.extractfile(member) if member.isreg() and wanted.fullmatch(member.name) else None
                    if file is not None:
                        if member.name in found:
                            raise ValueError(f"it contains {member.name} twice")
                        found[member.name] = file.read()
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        ArithmeticError,
        MemoryError,
        LookupError,
    ) as error:
        raise ValueError("it is damaged") from error
    return found
