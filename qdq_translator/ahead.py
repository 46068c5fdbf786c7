"""Work that a second processor can do: items that are made while those before them are used."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Iterator, Optional, Tuple, TypeVar

import numpy as np

_Item = TypeVar("_Item")
_AT_ONCE = 16
"""Items that are asked for together: to wake a thread costs as much as to make one of 64 thousand weights."""


def ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items, made by a thread while those before them are used. It pays where both take long without Python's lock: NumPy's
    arithmetic on large arrays, reading, writing. What is raised on the way is raised here."""
    made: SimpleQueue[Tuple[Optional[_Item], Optional[BaseException]]] = SimpleQueue()
    wanted: SimpleQueue[int] = SimpleQueue()
    reported = np.geterr()  # each thread has its own

    def make() -> None:
        try:
            with np.errstate(**reported):
                while many := wanted.get():
                    for _ in range(many):
                        made.put((next(items), None))
        except BaseException as error:
            made.put((None, error))

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    try:
        wanted.put(_AT_ONCE)
        while True:
            wanted.put(_AT_ONCE)
            for _ in range(_AT_ONCE):
                item, error = made.get()
                if isinstance(error, StopIteration):
                    return
                if error is not None:
                    raise error
                yield item  # type: ignore[misc]
    finally:
        wanted.put(0)
        maker.join()
