"""`--workers N`: processes on this machine. A process that dies is replaced, and its task is repeated."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from qdq_translator.core.errors import UserError
from qdq_translator.core.workers.work import Engine, Packed, Work, pack, processors, shard_of, unpack


def in_processes(workers: int, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
    """The results of the tasks, in their order, each as soon as it and those before it are available."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, tasks)


MOST_DEATHS = 3
"""Consecutive deaths, without a completed shard between them."""


class Processes(Engine):
    """`workers` processes that share the processors: each computes so many samples at a time as it has of them."""

    def __init__(self, workers: int) -> None:
        self._workers, self._threads = workers, max(1, processors() // workers)
        self._folder = tempfile.mkdtemp(prefix="qdq-workers-")
        self._pool: Optional[ProcessPoolExecutor] = None

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        packed = pack(work)
        digest, order = packed.digest, packed.order
        self._give(packed)
        del packed
        done = deaths = 0
        while done < len(ranges):
            pool = self._alive()
            futures: list[Future[Any]] = []
            try:
                for shard in ranges[done:]:
                    futures.append(
                        pool.submit(_shard, self._folder, digest, order, shard.start, shard.stop, self._threads)
                    )
                for future in futures:
                    yield future.result()
                    done, deaths = done + 1, 0
            except BrokenProcessPool as error:
                deaths += 1
                self._pool = None
                if deaths >= MOST_DEATHS:
                    raise UserError(
                        f"Worker processes died {deaths} times in a row at runs {ranges[done].start} to "
                        f"{ranges[done].stop - 1} of the data.",
                        "The system may have ended them for lack of memory: use fewer --workers.",
                    ) from error
            finally:
                for future in futures:
                    future.cancel()

    def _give(self, packed: Packed) -> None:
        """Written as files. Those of the previous work are reused if they are needed, and deleted otherwise."""
        wanted: dict[str, Any] = {packed.digest: packed.body, **packed.parts}
        there = set(os.listdir(self._folder))
        for name in there - wanted.keys():
            (Path(self._folder) / name).unlink()
        for name in wanted.keys() - there:
            (Path(self._folder) / name).write_bytes(wanted[name])

    def _alive(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, spawn, _watch, (self._folder,))
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _watch(folder: str) -> None:
    """Ends a worker when its parent has ended, and removes its files. Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _shard(folder: str, digest: str, order: Sequence[str], first: int, last: int, threads: int) -> Any:
    def read() -> Any:
        body, *parts = ((Path(folder) / name).read_bytes() for name in (digest, *order))
        return unpack(body, parts)

    return shard_of(digest, read, range(first, last), threads)
