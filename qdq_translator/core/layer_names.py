"""Valid layer names: those that trtexec's `--layerPrecisions` passes to TensorRT unchanged (fact 3.6, 3.7)."""

from __future__ import annotations

import re
from typing import Sequence

FORBIDDEN = ",'*"
"""',' splits the list, a quote throws or vanishes, '*' is a pattern; control characters break files and shells."""
_BAD = re.compile("[" + re.escape(FORBIDDEN) + r"\x00-\x1f\x7f]")


def is_expressible(name: str) -> bool:
    """True where trtexec's grammar hands `name` to TensorRT unchanged."""
    return bool(name) and _BAD.search(name) is None


def all_expressible(names: Sequence[str]) -> bool:
    """The same of many names, in one search."""
    return "" not in names and _BAD.search("/".join(names)) is None


def legal_name(name: str) -> str:
    """`name` with '_' for every character that no layer may have; '' stays ''."""
    return _BAD.sub("_", name)
