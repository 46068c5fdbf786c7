"""Locations of data: a path, or an fsspec address (`s3://bucket/val`, `memory://x.npz`), with the same methods."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Union, cast

import numpy as np

from qdq_translator.core.disk import open_file
from qdq_translator.core.errors import UserError, needed
from qdq_translator.core.formats.npz import read_array, read_header


@dataclasses.dataclass(frozen=True, order=True)
class RemotePlace:
    """Parts of `pathlib.Path` needed for reading inputs. Raises UserError if the address cannot be reached."""

    address: str

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return posixpath.basename(self.address.rstrip("/"))

    @property
    def stem(self) -> str:
        return posixpath.splitext(self.name)[0]

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self.name)[1]

    def exists(self) -> bool:
        return bool(self._ask("exists"))

    def is_dir(self) -> bool:
        return bool(self._ask("isdir"))

    def is_file(self) -> bool:
        return bool(self._ask("isfile"))

    def iterdir(self) -> Iterator[RemotePlace]:
        for path in sorted(self._ask("ls", detail=False)):
            yield RemotePlace(f"{self.address.rstrip('/')}/{posixpath.basename(str(path).rstrip('/'))}")

    def open(self) -> BinaryIO:
        return cast(BinaryIO, self._ask("open", mode="rb"))

    def _ask(self, method: str, **more: Any) -> Any:
        fsspec = needed(
            "fsspec",
            f"Reading {self.address} needs fsspec, which is not installed.",
            "pip install '.[cluster]' in a checkout of qdq-translator",
        )
        try:
            files, path = fsspec.core.url_to_fs(self.address)
            return getattr(files, method)(path, **more)
        except (OSError, ValueError, ImportError) as error:  # ImportError: the package of the protocol is not installed
            raise UserError(
                f"{self.address} cannot be read: {error}.", "Check the address and who may read it."
            ) from error


Place = Union[Path, RemotePlace]


def place(text: str) -> Place:
    """An address if `text` has a protocol, else a path."""
    return RemotePlace(text) if "://" in text else Path(text)


def opened(where: Place) -> Any:
    """An open file, which the caller closes. Raises OSError if it is not a regular file."""
    return open_file(where) if isinstance(where, Path) else where.open()


@contextlib.contextmanager
def file_of(path: Place, what: str, hint: str, *errors: type[Exception]) -> Iterator[None]:
    """Raises UserError in place of the reader's exception for a file that is not `what`."""
    unreadable: tuple[type[Exception], ...] = (ValueError, OSError, *errors)
    try:
        yield
    except unreadable as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path} is not {what}: {why.rstrip('.')}.", hint) from error


class RemoteArray:
    """A .npy at an address: only rows that are indexed are read. Raises ValueError for another file."""

    def __init__(self, where: RemotePlace) -> None:
        self._where = where
        with where.open() as file:
            self.shape, self._by_column, self.dtype = read_header(file)
            self._start = file.tell()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        with self._where.open() as file:
            values = read_array(file)
        return np.asarray(values, dtype)

    def __getitem__(self, rows: Any) -> np.ndarray:
        if self._by_column or not isinstance(rows, slice) or rows.step not in (None, 1):
            return np.asarray(self)[rows]  # type: ignore[no-any-return]
        first, last, _ = rows.indices(len(self))
        count = max(0, last - first)
        size = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        with self._where.open() as file:
            file.seek(self._start + first * size)
            data = file.read(count * size)
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])
