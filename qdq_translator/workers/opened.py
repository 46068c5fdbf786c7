"""Within a worker: pieces of work that it has opened, with their sessions, and a shard of one of them."""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable

from qdq_translator.workers.work import Work, fold, in_order

KEPT = 3
"""Pieces of work whose sessions stay in memory."""


class _Opened:
    """The last few pieces of work; the lock keeps two threads of a worker from opening one twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[str, tuple[Work, Callable[[int], Any]]] = collections.OrderedDict()

    def get(self, digest: str, read: Callable[[], Work]) -> tuple[Work, Callable[[int], Any]]:
        with self._lock:
            if digest not in self._kept:
                work = read()
                self._kept[digest] = work, work.open()
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(digest)
            return self._kept[digest]


_OPENED = _Opened()
"""Of this process, which is a worker and lives for nothing else."""


def shard_of(digest: str, read: Callable[[], Work], runs: range, threads: int) -> Any:
    """The folded part of one shard. digest: of the work, which `read` gives."""
    work, function = _OPENED.get(digest, read)
    return fold(work, in_order(function, runs, threads))
