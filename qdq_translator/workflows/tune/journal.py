"""Journal of a search in an SQLite file next to its output: an interrupted search resumes from it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any, Iterator, MutableMapping

from qdq_translator.core.errors import UserError

SCHEMA_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL);
"""


class Journal(MutableMapping[str, bytes]):
    """Measurements and other values worth keeping. Every entry is on the disk when the call returns."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        """about: scope of the measurements. Raises UserError if the file is another search's journal or not a journal."""
        self.path = path
        told = {**about, "schema_version": SCHEMA_VERSION}
        remedy = f"Delete it to begin again, or choose another folder with -o: {path}."
        try:
            self._file = sqlite3.connect(str(path), timeout=1.0, isolation_level=None)
            self._file.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + _TABLES)
            self._file.execute("BEGIN IMMEDIATE")
            found = dict(self._file.execute("SELECT name, value FROM about"))
            if not found:
                rows = [(name, json.dumps(value, sort_keys=True)) for name, value in told.items()]
                self._file.executemany("INSERT INTO about VALUES (?, ?)", rows)
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise UserError(f"The journal cannot be used: {error}.", remedy) from error
        other = [name for name, value in told.items() if found.get(name, "") != json.dumps(value, sort_keys=True)]
        if found and other:
            self.close()
            raise UserError(f"The journal is of another search: {', '.join(other)} differ.", remedy)

    def __getitem__(self, key: str) -> bytes:
        row = self._file.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return bytes(row[0])

    def __setitem__(self, key: str, value: bytes) -> None:
        self._file.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, value))

    def __delitem__(self, key: str) -> None:
        self._file.execute("DELETE FROM kept WHERE key = ?", (key,))

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._file.execute("SELECT key FROM kept ORDER BY key"))

    def __len__(self) -> int:
        return int(self._file.execute("SELECT COUNT(*) FROM kept").fetchone()[0])

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._file.close()
