"""Items that a thread makes while those before them are used."""

from __future__ import annotations

import threading
from typing import Iterator

import numpy as np
import pytest

from qdq_translator.ahead import ahead


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 101])
def test_the_same_items_in_their_order(count: int) -> None:
    before = threading.active_count()
    makers = set()

    def items() -> Iterator[int]:
        for number in range(count):
            makers.add(threading.current_thread())
            yield number

    assert list(ahead(items())) == list(range(count))
    assert threading.current_thread() not in makers and threading.active_count() == before


def test_some_are_made_while_one_is_used_and_never_many() -> None:
    made: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            if number == 3:
                third.set()
            yield number

    taken = ahead(items())
    assert next(taken) == 0 and third.wait(60)  # without anybody asking for it
    most = max(len(made) - number for number in taken)
    assert most <= 33  # those that were asked for twice, and the one in use


def test_what_is_raised_on_the_way_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("gone")

    taken = ahead(items())
    assert [next(taken), next(taken)] == [1, 2]
    with pytest.raises(OSError, match="gone"):
        next(taken)


def test_whoever_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    taken = ahead(iter(range(10**9)))
    assert next(taken) == 0
    taken.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_numpy_reports_what_the_caller_asked_for() -> None:
    def items() -> Iterator[np.ndarray]:
        yield np.array([1.0], np.float32) / np.zeros(1, np.float32)

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(ahead(items()))
    with np.errstate(divide="ignore"):
        assert np.isinf(next(iter(ahead(items()))))
