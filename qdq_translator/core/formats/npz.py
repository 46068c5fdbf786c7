"""Arrays in an .npz file, whoever wrote it: how much it unpacks to is looked at before anything is unpacked."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import IO, Union

import numpy as np

_FREE = 2**28
"""Bytes that any file may unpack to."""
_PER_STORED_BYTE = 64
"""And more for each of its own; deflate reaches 1032, which no data of use does."""


def read_npz(file: Union[Path, IO[bytes]]) -> dict[str, np.ndarray]:
    """Name -> array. Raises ValueError for another file, Python objects, and one that unpacks to far more than it holds;
    OSError where it cannot be read."""
    try:
        with open(file, "rb") if isinstance(file, Path) else file as stream:
            stored = stream.seek(0, os.SEEK_END)
            with zipfile.ZipFile(stream) as archive:  # which unpacks no more of a member than is declared
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > _FREE + _PER_STORED_BYTE * stored:
                raise ValueError(f"its {stored:,} bytes would unpack to {unpacked:,}")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except (EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error
