"""Figures as readable text, for the terminal and the page alike."""

from __future__ import annotations

import math
from typing import Any, Iterable, Optional, Sequence, Sized


def amount(number: Optional[float]) -> str:
    """1234567 -> '1.23 M'; None -> 'unknown'."""
    if number is None:
        return "unknown"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(int(number))


def counted(number: int, noun: str) -> str:
    """1, 'tensor' -> '1 tensor'; 2000 -> '2,000 tensors'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str], most: int) -> str:
    """'a', 'b', 'c', 'd', 'e' and 3 -> 'a, b, c and 2 more'."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def quoted(names: Sequence[str], most: int = 3) -> str:
    """a, b, c, d -> "'a', 'b', 'c', ..."."""
    return ", ".join(f"'{name}'" for name in names[:most]) + (", ..." if len(names) > most else "")


def others(found: Sized, form: str = " and {} more") -> str:
    """Words after the first of `found`: ' and 2 more' for three, '' for one."""
    return form.format(len(found) - 1) if len(found) > 1 else ""


def percent(part: Optional[float], whole: Optional[float] = 100.0) -> str:
    """A share in words: 12.34 -> '12.3%'; 0% and 100% only if exact; '' if unknown."""
    if part is None or not whole:
        return ""
    value = 100 * part / whole
    if 99.95 <= value < 100:
        return ">99.9%"
    return "<0.1%" if 0 < value < 0.05 else f"{value:.1f}%"


def milliseconds(value: Optional[float]) -> str:
    """0.01234 -> '0.012 ms', 12.345 -> '12.3 ms': three digits, as the error of an estimate deserves; None ->
    'unknown'.
    """
    if value is None:
        return "unknown"
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


def size(number: Optional[int]) -> str:
    """12345 -> '12.3 kB'; None -> 'unknown'."""
    if number is None:
        return "unknown"
    return f"{amount(number)}B" if number >= 1000 else f"{number} B"


def scale(value: Optional[float]) -> str:
    """Enough digits to recover the float32 exactly."""
    return "" if value is None else f"{value:.9g}"


def decibel(value: Optional[float]) -> str:
    if value is None:
        return ""
    return "equal" if value == math.inf else "none left" if value == -math.inf else f"{value:.1f}"


def by_x(sizes: Iterable[int]) -> str:
    """[1, 3, 224, 224] -> '1x3x224x224', the notation of --shapes."""
    return "x".join(map(str, sizes))


def shape(sizes: Optional[Iterable[Any]]) -> str:
    return "unknown" if sizes is None else "x".join("?" if size is None else str(size) for size in sizes)


def dotted(version: Iterable[int]) -> str:
    """(10, 3, 0) -> '10.3.0'."""
    return ".".join(map(str, version))


def clip(name: str, length: int) -> str:
    """The start of a long name."""
    return name if len(name) <= length else name[: length - 1] + "\u2026"


def short(name: str, length: int = 23) -> str:
    """The end of a long name, which tells layers apart."""
    return name if len(name) <= length else "\u2026" + name[-(length - 1) :]
