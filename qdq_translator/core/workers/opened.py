"""Within a worker: the piece of work that it has opened, with its sessions, and a shard of it."""

from __future__ import annotations

import threading
from typing import Any, Callable

from qdq_translator.core.workers.work import Work, fold, in_order


class _Opened:
    """The last piece of work; the lock keeps two threads of a worker from opening it twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Work, Callable[[int], Any]]] = {}

    def get(self, digest: str, read: Callable[[], Work]) -> tuple[Work, Callable[[int], Any]]:
        with self._lock:
            if digest not in self._kept:
                self._kept.clear()
                work = read()
                self._kept[digest] = work, work.open()
            return self._kept[digest]


_OPENED = _Opened()
"""Of this process, which is a worker and lives for nothing else."""


def shard_of(digest: str, read: Callable[[], Work], runs: range, threads: int) -> Any:
    """The folded part of one shard. digest: of the work, which `read` gives."""
    work, function = _OPENED.get(digest, read)
    return fold(work, in_order(function, runs, threads))
