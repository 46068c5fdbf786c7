"""Work of an engine of evaluations: a task, its shards, and the sum of their parts in a fixed order. A task is sent as
bytes, with its large parts (initializers of models, arrays) separate: a worker that already has them needs only the new
ones."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import os
import pickle
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import onnx

LARGEST_SHARD = 32
"""The largest number of runs in a shard: they are lost with a worker that dies, and read twice to detect changed data.
"""
FEWEST_SHARDS = 16


class Work(ABC):
    """Something to be done with every run of some samples. It is pickled to reach a worker, which opens it once.
    passes: of the network, that each run needs."""

    passes: float = 1.0

    @abstractmethod
    def open(self) -> Callable[[int], Any]:
        """The function that computes the part of one run; several threads call it. Raises UserError."""

    def merge(self, total: Any, part: Any) -> Any:
        """Merges both; `part` comes after `total`, and neither may be used afterwards."""
        return merged(total, part)


def merged(total: Any, part: Any) -> Any:
    """Mappings and named tuples entry by entry, other objects by their own `merge`; lists are joined, numbers added."""
    if isinstance(total, dict):
        total.update({key: merged(total[key], value) if key in total else value for key, value in part.items()})
        return total
    if isinstance(total, tuple):
        return type(total)._make(map(merged, total, part))  # type: ignore[attr-defined]  # a NamedTuple
    if hasattr(total, "merge"):
        total.merge(part)
        return total
    return total + part


def shards(runs: int) -> list[range]:
    """All runs in shards, in order. Their bounds depend on the number of runs alone, because they decide how sums are
    rounded."""
    size = max(1, min(LARGEST_SHARD, runs // FEWEST_SHARDS))
    return [range(first, min(first + size, runs)) for first in range(0, runs, size)]


def fold(work: Work, parts: Iterator[Any]) -> Any:
    """The parts merged one after the other."""
    total = next(parts)
    for part in parts:
        total = work.merge(total, part)
    return total


def in_order(function: Callable[[int], Any], runs: Sequence[int], threads: int) -> Iterator[Any]:
    """`function` of every run on so many threads: results, and the first error, come in the order of the runs."""
    if threads < 2 or len(runs) < 2:
        yield from map(function, runs)
        return
    waiting: collections.deque[Future[Any]] = collections.deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for run in runs:
                waiting.append(pool.submit(function, run))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # no thread continues after an error or Ctrl-C
            for future in waiting:
                future.cancel()


def processors() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Engine(ABC):
    """Performs the computation. `close` when done with it, or use `contextlib.closing`."""

    @abstractmethod
    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        """The folded part of each shard, in order. Raises UserError, the first in the order of the shards."""

    def remembered(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, possibly from a cache. key: everything that the result depends on; `pack` knows its
        types.
        """
        return compute()

    def run(
        self,
        work: Work,
        ranges: Sequence[range],
        progress: Callable[[int], None] = lambda done: None,
        watch: Callable[[Any], None] = lambda part: None,
    ) -> Any:
        """All shards folded. progress: told how many runs are done. watch: shown the part of each shard, in order,
        before it is merged."""
        done = 0

        def counted() -> Iterator[Any]:
            nonlocal done
            with contextlib.closing(self.parts(work, ranges)) as parts:  # type: ignore[type-var]
                for shard, part in zip(ranges, parts):
                    done += len(shard)
                    progress(done)
                    watch(part)
                    yield part

        return fold(work, counted())

    def close(self) -> None:  # noqa: B027 (an engine may have nothing to end)
        """Ends all that still runs."""


class InProcess(Engine):
    """Threads of this process, one for each processor: nothing is pickled."""

    def __init__(self, threads: Optional[int] = None) -> None:
        self._threads = threads or processors()

    def parts(self, work: Work, ranges: Sequence[range]) -> Iterator[Any]:
        runs = [run for shard in ranges for run in shard]
        with contextlib.closing(in_order(work.open(), runs, self._threads)) as results:  # type: ignore[type-var]
            for shard in ranges:
                yield fold(work, (next(results) for _ in shard))


# ---------------- within a worker


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


LEAST_PART = 16 * 1024
"""Bytes that are sent separately."""


@dataclass(frozen=True)
class Packed:
    """A value as bytes for another process. body: a pickle without its large parts. parts: SHA-256 -> bytes, in the
    body's order. digest: of everything."""

    body: bytes
    order: Sequence[str]
    parts: Mapping[str, memoryview]

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"".join([self.body, *map(str.encode, self.order)])).hexdigest()


def pack(value: Any) -> Packed:
    """`unpack` makes an equal value of it. Equal models give equal bytes, in any process."""
    order: list[str] = []
    parts: dict[str, memoryview] = {}

    def apart(buffer: pickle.PickleBuffer) -> bool:
        """False if kept separate."""
        view = buffer.raw()
        if view.nbytes < LEAST_PART:
            return True
        order.append(hashlib.sha256(view).hexdigest())
        parts[order[-1]] = view
        return False

    file = io.BytesIO()
    _Pickler(file, 5, buffer_callback=apart).dump(value)
    return Packed(file.getvalue(), order, parts)


def unpack(body: bytes, parts: Sequence[bytes]) -> Any:
    """The value that `pack` packed. parts: its large arrays, in the order of `Packed.order`."""
    return pickle.loads(body, buffers=parts)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, onnx.ModelProto):
            return NotImplemented
        light = onnx.ModelProto()
        light.CopyFrom(value)
        for tensor in light.graph.initializer:
            tensor.ClearField("raw_data")
        held = [pickle.PickleBuffer(tensor.raw_data) for tensor in value.graph.initializer]
        return _model, (light.SerializeToString(deterministic=True), held)


def _model(light: bytes, held: Sequence[Any]) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(light)
    for tensor, data in zip(model.graph.initializer, held):
        if len(data):
            tensor.raw_data = bytes(data)
    return model
