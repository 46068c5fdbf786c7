"""The value of trtexec's `--layerPrecisions`: `name:fp16,name:fp16` (fact 3.6, 3.7, 3.19)."""

from __future__ import annotations

from typing import Iterable, Mapping

from qdq_translator.core.layer_names import is_expressible


def format_layer_precisions(precisions: Mapping[str, str]) -> str:
    """Layer name -> precision, as one argument value. Raises ValueError for names that the grammar cannot express."""
    for name in precisions:
        if not is_expressible(name):
            raise ValueError(f"layer name {name!r} cannot be expressed in --layerPrecisions")
    return ",".join(f"{name}:{precision}" for name, precision in precisions.items())


def parse_layer_precisions(text: str) -> dict[str, str]:
    """The inverse; items are split at their last ':', later duplicates win, as in trtexec.

    Raises ValueError on an item without a precision.
    """
    precisions: dict[str, str] = {}
    for item in text.strip("\r\n").split(","):
        if not item:
            continue
        name, colon, precision = item.rpartition(":")
        if not colon or not name:
            raise ValueError(f"'{item}' is not NAME:PRECISION")
        precisions[name] = precision
    return precisions


def fp16_layers(nodes: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(nodes, "fp16")
