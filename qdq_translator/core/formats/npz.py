"""NumPy's .npy and .npz files from untrusted sources: sizes and types are checked before anything is unpacked or
mapped.
"""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Tuple, Union

import numpy as np

from qdq_translator.core.disk import open_file, size_of

_FREE = 2**28
"""The number of bytes to which any file may unpack."""
_PER_STORED_BYTE = 64
"""Further bytes for each byte of the file; deflate reaches 1032, but not with useful data."""
Header = Tuple[Tuple[int, ...], bool, np.dtype]
"""Shape, whether the first axis varies fastest, and type."""


def read_npz(file: Union[Path, IO[bytes]]) -> dict[str, np.ndarray]:
    """Name -> array. Raises ValueError for another file, Python objects, and one that unpacks to far more than its
    size; OSError if it cannot be read or is not a regular file."""
    try:
        with open_file(file) if isinstance(file, Path) else file as stream:
            stored = stream.seek(0, os.SEEK_END)
            with zipfile.ZipFile(stream) as archive:  # which unpacks no more of a member than is declared
                members = archive.infolist()
                unpacked = sum(member.file_size for member in members)
                if unpacked > _FREE + _PER_STORED_BYTE * stored:
                    raise ValueError(f"its {stored:,} bytes would unpack to {unpacked:,}")
                return {member.filename[: -len(".npy")]: _member(archive, member) for member in members}
    except (EOFError, MemoryError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if not member.filename.endswith(".npy"):
        raise ValueError(f"its member '{member.filename}' is not an array")
    with archive.open(member) as file:
        try:
            (shape, by_column, dtype), begin = read_header(file), file.tell()
            size = _size(shape, dtype, member.file_size - begin)
        except ValueError as error:
            raise ValueError(f"its member '{member.filename}' is not usable: {error}") from error
        values = np.frombuffer(bytearray(file.read(size)), dtype)
        return values.reshape(shape, order="F" if by_column else "C")


def read_array(stream: IO[bytes]) -> np.ndarray:
    """The array of a .npy in a stream that can seek. Raises ValueError as `read_npy`."""
    (shape, by_column, dtype), begin = read_header(stream), stream.tell()
    size = _size(shape, dtype, stream.seek(0, os.SEEK_END) - begin)
    stream.seek(begin)
    return np.frombuffer(bytearray(stream.read(size)), dtype).reshape(shape, order="F" if by_column else "C")


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy, mapped. Raises ValueError for another file and for Python objects, OSError if it cannot be
    read or is not a regular file."""
    with open_file(path) as file:
        (shape, by_column, dtype), begin = read_header(file), file.tell()
        if not _size(shape, dtype, size_of(file) - begin):
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype, "r", begin, shape, "F" if by_column else "C")  # type: ignore


def read_header(file: Any) -> Header:
    """Reads a .npy up to its values. Raises ValueError for another file type, Python objects and impossible sizes."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, by_column, dtype = read(file)
    except (
        SyntaxError,
        TypeError,
        LookupError,
        RecursionError,
        MemoryError,
        OverflowError,
        tokenize.TokenError,
    ) as error:
        raise ValueError("its header cannot be read") from error
    if dtype.hasobject:
        raise ValueError("it contains Python objects")
    if any(isinstance(size, bool) or size < 0 for size in shape) or len(shape) > 32:
        raise ValueError(f"its header specifies the shape {shape}")
    return tuple(shape), bool(by_column), dtype


def _size(shape: Tuple[int, ...], dtype: np.dtype, held: int) -> int:
    """Bytes of the values, which the file must hold."""
    size = math.prod(shape) * dtype.itemsize
    if size > held:
        raise ValueError(f"its header specifies {size:,} bytes of values, and it holds {held:,}")
    return size
