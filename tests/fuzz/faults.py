"""A writer that fails, or is killed, at its n-th call of the operating system that changes anything.

The calls are wrapped where Python makes them: opening a file for writing, each write, and the functions of `os` that
rename, link, sync, make or remove. A killed write has written half of its bytes.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UserError
from qdq_translator.core.switch import SCRATCH
from qdq_translator.translation.translator import Translation

CALLS = ("replace", "rename", "link", "symlink", "fsync", "mkdir", "rmdir", "unlink", "remove", "open", "write")
KILLED = 137


class _File(io.FileIO):
    """A file whose writes count. Unbuffered, so that what was written is there."""

    tick: Callable[[], None]

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        half = len(view) // 2
        if half:
            super().write(view[:half])
        self.tick()
        super().write(view[half:])
        return len(view)


@contextlib.contextmanager
def injected(tick: Callable[[], None]) -> Iterator[None]:
    """`tick` is called before each of the calls."""
    originals = {name: getattr(os, name) for name in CALLS}
    opened = builtins.open

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or args[1] & (os.O_WRONLY | os.O_RDWR):
                tick()
            return originals[name](*args, **kwargs)

        return call

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode not in ("wb", "r+b"):
            return opened(file, mode, *args, **kwargs)
        tick()
        made = _File(file, mode)
        made.tick = tick
        return made

    try:
        for name in CALLS:
            setattr(os, name, wrapped(name))
        builtins.open = io.open = opening  # type: ignore[assignment]
        yield
    finally:
        builtins.open = io.open = opened
        for name, original in originals.items():
            setattr(os, name, original)


def count_calls(writer: Callable[[], object]) -> int:
    calls = [0]

    def tick() -> None:
        calls[0] += 1

    with injected(tick):
        writer()
    return calls[0]


def killed_at(number: int, writer: Callable[[], object]) -> bool:
    """Runs `writer` in a process that dies at its call `number` (from 0); False where it came to its end."""
    child = os.fork()
    if not child:
        left = [number]

        def tick() -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)

        with contextlib.suppress(BaseException), injected(tick):
            writer()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def failing_at(number: int, writer: Callable[[], object], from_then_on: bool) -> bool:
    """Runs `writer`, whose call `number` fails (with `from_then_on` all later ones too); False where none did.

    Raises AssertionError where the writer did not say so with a UserError.
    """
    left = [number]
    failed = [False]

    def tick() -> None:
        left[0] -= 1
        if left[0] == -1 or (from_then_on and left[0] < 0):
            failed[0] = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with injected(tick):
        try:
            writer()
        except UserError:
            assert failed[0]
    return failed[0]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that a program sees there, by its name in the folder, without those of scratch folders."""
    found = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(SCRATCH)}


@functools.lru_cache(maxsize=None)
def two_translations() -> tuple[Translation, Translation]:
    """Two translations of one model that differ in every file."""
    other = TranslateOptions(platform="drive-os-6.0.9", keep_fp16=["*onv*"], weights="float")
    return translate(EXAMPLE_MODEL, TranslateOptions(platform="jetpack-6.2")), translate(EXAMPLE_MODEL, other)


def interrupted(rng: random.Random) -> str:
    """Writes a second translation over a first one, interrupted somewhere; '' where the folder shows one of them, and the
    next run leaves the second one and nothing else."""
    first, second = two_translations()
    with tempfile.TemporaryDirectory() as name:
        places = [Path(name) / place for place in ("first", "second", "out")]
        for translation, place in zip((first, second, first), places):
            translation.save(place)
        old, new = contents(places[0]), contents(places[1])
        out = places[2]
        calls = count_calls(lambda: second.save(places[1]))
        number, kind = rng.randrange(calls + 1), rng.randrange(3)
        if kind == 0:
            happened = killed_at(number, lambda: second.save(out))
        else:
            happened = failing_at(number, lambda: second.save(out), kind == 2)
        said = check(out, old, new, happened)
        second.save(out)
        if contents(out) != new or len(list(out.iterdir())) != len(new):
            said = said or f"the next run leaves {sorted(p.name for p in out.iterdir())}"
        return f"call {number} of {calls}, kind {kind}: {said}" if said else ""


def check(out: Path, old: dict[str, bytes], new: dict[str, bytes], interrupted: bool) -> str:
    """'' where `out` shows one of the two sets, the new one if nothing interrupted."""
    now = contents(out)
    if now == new or (now == old and interrupted):
        return ""
    other = [name for name in {**now, **old, **new} if now.get(name) not in (old.get(name), new.get(name))]
    return f"{other[0]} is neither the old nor the new one" if other else "a mixture"
