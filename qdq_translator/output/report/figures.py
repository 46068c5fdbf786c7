"""Figures and names as the page shows them: the filters of its templates."""

from __future__ import annotations

import math
from typing import Any, Iterable, Optional


def scale(value: Optional[float]) -> str:
    """Enough digits to give the float32 back."""
    return "" if value is None else f"{value:.9g}"


def decibel(value: Optional[float]) -> str:
    if value is None:
        return ""
    return "equal" if value == math.inf else "none left" if value == -math.inf else f"{value:.1f}"


def shape(sizes: Optional[Iterable[Any]]) -> str:
    return "unknown" if sizes is None else "x".join("?" if size is None else str(size) for size in sizes)


def clip(name: str, length: int) -> str:
    """The start of a long name."""
    return name if len(name) <= length else name[: length - 1] + "\u2026"


def short(name: str, length: int = 23) -> str:
    """The end of a long name, which tells layers apart."""
    return name if len(name) <= length else "\u2026" + name[-(length - 1) :]
