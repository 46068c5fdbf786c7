"""Files that are written past the system's own memory (its page cache), where the system can do that.

Each page of a copy there has to be found first, which may take longer than the disk does; and whoever wants the file to stay
(`disk.appear_together`) waits for the disk all the same.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Optional

if TYPE_CHECKING:
    from queue import SimpleQueue

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_DIRECT = getattr(os, "O_DIRECT", 0)  # on Linux
_PIECE = 2**20
"""Bytes that leave at once: a multiple of any disk's block."""
_BUFFER = 2**18
"""Bytes that are collected before: what thousands of small weights cost should be their copy."""


def direct_file(path: Path) -> BinaryIO:
    """A new file, to be written from its start to its end. Raises OSError, of `close` too, where the system does not take it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags | _DIRECT, 0o666)
    except OSError:  # of the file system, or of what was asked for
        descriptor = os.open(path, flags, 0o666)
    return io.BufferedWriter(_Direct(descriptor), _BUFFER)


class _Direct(io.RawIOBase):
    """While one piece is filled, a thread writes the one before."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._piece = mmap.mmap(-1, _PIECE)  # where pages begin, as the system demands
        self._filled = self._sent = 0
        self._thread: Optional[threading.Thread] = None
        self._failed: Optional[OSError] = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + self._filled

    def write(self, data: Any) -> int:
        """data: a memoryview of bytes."""
        size = len(data)
        while data:
            some = data[: _PIECE - self._filled]
            self._piece[self._filled : self._filled + len(some)] = some
            self._filled += len(some)
            data = data[len(some) :]
            if self._filled == _PIECE:
                self._send()
        return size

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._thread:
                self._full.put(None)
                self._thread.join()
            self._check()
            self._use_memory()  # the rest is no whole block
            self._write(memoryview(self._piece)[: self._filled])
        finally:
            os.close(self._descriptor)
            super().close()

    def _send(self) -> None:
        if self._thread is None:
            self._start()
        self._full.put(self._piece)
        self._piece = self._empty.get()
        self._sent, self._filled = self._sent + _PIECE, 0
        self._check()

    def _start(self) -> None:
        from queue import SimpleQueue  # which small networks do without

        self._full: SimpleQueue[Optional[mmap.mmap]] = SimpleQueue()
        self._empty: SimpleQueue[mmap.mmap] = SimpleQueue()
        self._empty.put(mmap.mmap(-1, _PIECE))
        self._thread = threading.Thread(target=self._write_pieces, daemon=True)
        self._thread.start()

    def _check(self) -> None:
        if self._failed:
            raise self._failed

    def _write_pieces(self) -> None:
        while piece := self._full.get():
            try:
                if not self._failed:
                    self._write(memoryview(piece))
            except OSError as error:
                self._failed = error
            self._empty.put(piece)

    def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                if error.errno != errno.EINVAL or not self._use_memory():
                    raise

    def _use_memory(self) -> bool:
        """From now on it is written as any other file. False where it has been already."""
        if not _DIRECT:
            return False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_DIRECT)
        return bool(flags & _DIRECT)
