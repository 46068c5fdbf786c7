"""Short texts on a terminal: paragraphs and two columns, with a few colours.

`rich` draws reports. What `translate` says at its end does without: importing it takes as long as translating a hundred layers.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from typing import Iterable, Optional, TextIO

_STYLES = {"bold": 1, "dim": 2, "red": 31, "yellow": 33, "cyan": 36}
_ESCAPE = re.compile(r"\x1b\[\d+m")
_CONTROL = dict.fromkeys((7, 8, 11, 12, 13, 27))
"""Characters that would move the cursor or start an escape sequence."""


class Plain:
    """Writes to a stream, as wide as the terminal or the variable COLUMNS says, or 80; in colours on a terminal (NO_COLOR and
    FORCE_COLOR are heard)."""

    def __init__(self, stream: Optional[TextIO]) -> None:
        self._stream = stream
        self._width = shutil.get_terminal_size((80, 24)).columns
        dull = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._coloured = not dull and ("FORCE_COLOR" in os.environ or (stream is not None and stream.isatty()))

    def styled(self, text: str, style: str = "") -> str:
        """`text` without control characters; in colour where there is one."""
        text = text.translate(_CONTROL)
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and text and self._coloured else text

    def line(self, text: str) -> None:
        """However long it is."""
        print(text, file=self._stream)

    def paragraph(self, text: str) -> None:
        """Two columns in, however many lines it takes."""
        for line in wrapped(text, self._width - 2):
            self.line(f"  {line}")

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """What and how much, in two columns."""
        rows = list(rows)
        first = max((cells(label) for label, _ in rows), default=0)
        for label, text in rows:
            for line in wrapped(self.styled(text), self._width - first - 4):
                self.line(f" {label}{' ' * (first - cells(label))}  {line}")
                label = ""


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, cut between words; a word that is longer is cut where the line ends."""
    lines, width = [], max(width, 2)
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            joined = f"{line} {word}" if line else word
            if cells(joined) <= width:
                line = joined
                continue
            if line:
                lines.append(line.rstrip(" "))
            while cells(word) > width:
                fits = next(i for i in range(len(word), 0, -1) if cells(word[:i]) <= width)
                lines.append(word[:fits])
                word = word[fits:]
            line = word
        lines.append(line.rstrip(" "))
    return lines


def cells(text: str) -> int:
    """The places that a text takes on a terminal."""
    text = _ESCAPE.sub("", text)
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
