"""Terminal output in which names from files cannot act: their control characters are printed as escapes."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any, Iterator, Match

_COLOR = r"\x1b\[(?:[0-79]|[1-9]\d)?(?:;\d{1,3}){0,4}m"
"""Colors and emphasis of our own tables, except 8, which hides text."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CONTROL_BUT_COLOR = re.compile(f"{_COLOR}|{_CONTROL.pattern}")


def _escaped(found: Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else f"\\u{ord(found[0]):04x}"


class Printable:
    """A text stream that writes control and direction characters as `\\u001b`, which is also right inside JSON. On a
    terminal colors pass. device: the stream itself, for what moves the cursor."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def write(self, text: str) -> int:
        self.device.write((_CONTROL_BUT_COLOR if self.device.isatty() else _CONTROL).sub(_escaped, text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


@contextlib.contextmanager
def printable() -> Iterator[None]:
    """Standard output and standard error are such streams."""
    before: tuple[Any, Any] = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and Printable(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
