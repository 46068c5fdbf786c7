"""Progress reports of long work."""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import Callable, Iterator, TextIO

Progress = Callable[[str, int, int], None]
"""Called with the current step, the amount done, and the total."""


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


@contextlib.contextmanager
def progress_bar(stream: TextIO, lines: bool = False) -> Iterator[Progress]:
    """A bar with the time left on a terminal; elsewhere nothing, or with `lines` a line for each new step."""
    if not stream.isatty():
        yield _Lines(stream).tell if lines else silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=getattr(stream, "device", stream)), transient=True) as bar:
        task = bar.add_task("starting", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


class _Lines:
    """The remaining time is estimated from the pace so far."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._begun, self._told = stream, time.monotonic(), ""

    def tell(self, what: str, done: int, total: int) -> None:
        if what == self._told:
            return
        self._told = what
        seconds = (time.monotonic() - self._begun) / done * (total - done) if done else 0.0
        left = f"; {done} of {total}, {datetime.timedelta(seconds=round(seconds))} left at most" if done else ""
        print(f"{what}{left}", file=self._stream, flush=True)
