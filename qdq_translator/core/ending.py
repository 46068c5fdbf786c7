"""How a process ends that is ours alone.

Python frees what is left object by object: a twentieth of the time that a large network takes in all, for memory that the system
takes back in one go. So a command that is done, in a process that nobody else waits in, may `keep` what it made, and `program`
then ends the process past the interpreter's own end. What others rely on is done before, in Python's order: threads are awaited, `atexit`
functions run (temporary folders go, worker processes end), what was printed leaves.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

_alone = False
_kept: list[Any] = []


def program(command: Callable[[], int]) -> NoReturn:
    """Runs `command` as all that its caller does, and ends the process with the status that it returns."""
    global _alone
    _alone = _nobody_waits()
    status = command()
    if _kept:
        _leave(status)
    sys.exit(status)


def keep(value: Any) -> bool:
    """False where the process goes on afterwards, so that `value` is to be freed as usual. For commands that ran no code but ours:
    a user's file that nobody closed would stay without its last bytes."""
    if _alone:
        _kept.append(value)
    return _alone


def is_alone() -> bool:
    """True where `keep` keeps."""
    return _alone


def _nobody_waits() -> bool:
    """False for whoever runs the program inside his own (a profiler, `coverage run`, `runpy.run_path`), or asks questions
    afterwards (`python -i`)."""
    frame: Optional[FrameType] = sys._getframe()
    others = []
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("qdq_translator", "runpy"):
            others.append(frame.f_code.co_name)
        frame = frame.f_back
    return others == ["<module>"] and not sys.flags.inspect


def _leave(status: int) -> None:
    """Comes back only in a Python that does not have these functions any more: the process then ends as every other."""
    import threading  # which --help does without

    await_threads, run_exit_functions = getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)
    if await_threads is None or run_exit_functions is None:
        return
    await_threads()
    with contextlib.suppress(Exception):  # of a function that is not ours; Python tells it
        run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)
