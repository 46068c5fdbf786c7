"""Journal of a search in an SQLite file next to its output: an interrupted search resumes from it. Its values are JSON,
read without executing anything: numbers, texts, arrays, containers and objects of the classes in `_KINDS`."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any, Iterator, MutableMapping

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.account import Account, Candidate, Entry
from qdq_translator.lab.simulate.calibration.histogram import Histogram

SCHEMA_VERSION = 3
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_VERSIONS = ("version", "schema_version")
_KINDS = {kind.__name__: kind for kind in (Account, Candidate, Entry, Histogram)}


def _written(value: Any) -> Any:
    """The value as JSON; types unknown to JSON become {kind: content}."""
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": [value.dtype.str, value.shape, base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, list):
        return list(map(_written, value))
    if isinstance(value, tuple):
        return {"tuple": list(map(_written, value))}
    kind = type(value).__name__
    if isinstance(value, dict) or kind in _KINDS:
        return {kind: [[key, _written(item)] for key, item in (value if kind == "dict" else vars(value)).items()]}
    return value


def _read(found: dict[str, Any]) -> Any:
    """The value of {kind: content}. Raises LookupError, TypeError or ValueError."""
    ((kind, content),) = found.items()
    if kind in ("tuple", "dict"):
        return tuple(content) if kind == "tuple" else dict(content)
    if kind == "array":
        dtype, shape, text = content
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()[()]
    made: Any = object.__new__(_KINDS[kind])
    made.__dict__.update(content)
    return made


class Journal(MutableMapping[str, Any]):
    """Measurements and other values worth keeping; each read gives a new copy. Every entry is on the disk when the call
    returns. note: a sentence, if the file was of another version, whose values are not used."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        """Open or begin the journal at `path`. about: scope of the measurements. Raises UserError for another search's
        journal or another file."""
        rows = {name: json.dumps(v, sort_keys=True) for name, v in {**about, "schema_version": SCHEMA_VERSION}.items()}
        remedy = f"Delete it to begin again, or choose another folder with -o: {path}."
        self.note = ""
        if path.exists() and not path.is_file():
            raise UserError(f"The journal cannot be used: {path} is not a regular file.", remedy)
        try:
            self._file = sqlite3.connect(str(path), timeout=1.0, isolation_level=None)
            self._file.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + _TABLES)
            self._file.execute("BEGIN IMMEDIATE")
            found = dict(self._file.execute("SELECT name, value FROM about"))
            if any(found.get(name, rows.get(name)) != rows.get(name) for name in _VERSIONS):
                self.note = f"{path.name} was the journal of another version; the search started from the beginning."
                found = {}
                self._file.execute("DELETE FROM about")
                self._file.execute("DELETE FROM kept")
            if not found:
                self._file.executemany("INSERT INTO about VALUES (?, ?)", rows.items())
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise UserError(f"The journal cannot be used: {error}.", remedy) from error
        other = [name for name, value in rows.items() if found.get(name, "") != value]
        if found and other:
            self.close()
            raise UserError(f"The journal is of another search: {', '.join(other)} differ.", remedy)

    def __getitem__(self, key: str) -> Any:
        """Raises KeyError also for a value that this program did not write."""
        row = self._file.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        try:
            return json.loads(row[0], object_hook=_read)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise KeyError(key) from error

    def __setitem__(self, key: str, value: Any) -> None:
        """Raises UserError if the disk is full; what was written before stays."""
        try:
            self._file.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, json.dumps(_written(value))))
        except sqlite3.Error as error:
            what = f"The journal cannot be written: {error}."
            raise UserError(what, "Free space and repeat the command: it continues from there.") from error

    def __delitem__(self, key: str) -> None:
        self._file.execute("DELETE FROM kept WHERE key = ?", (key,))

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._file.execute("SELECT key FROM kept ORDER BY key"))

    def __len__(self) -> int:
        return int(self._file.execute("SELECT COUNT(*) FROM kept").fetchone()[0])

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._file.close()
