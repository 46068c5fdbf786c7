"""How long work reports how far it is."""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator, TextIO

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


@contextlib.contextmanager
def progress_bar(stream: TextIO) -> Iterator[Progress]:
    """A bar with the time left on a terminal, nothing elsewhere."""
    if not stream.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("starting", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
