"""Figures as people read them, for the terminal and the page alike."""

from __future__ import annotations

from typing import Optional


def amount(number: Optional[float]) -> str:
    """1234567 -> '1.23 M'; None -> 'unknown'."""
    if number is None:
        return "unknown"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(int(number))


def counted(number: int, noun: str) -> str:
    """1, 'tensor' -> '1 tensor'; 2 -> '2 tensors'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
