"""Names of layers: those that trtexec's `--layerPrecisions` passes to TensorRT unchanged, its value
(`name:fp16,name:fp16`), and the layers that `--keep_fp16` names (fact 3.6, 3.7, 3.19)."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Iterable, Mapping, Sequence

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError


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


FORBIDDEN = ",'*"
"""',' splits the list, a quote raises an error or disappears, '*' is a pattern; control characters break files and
shells."""
_BAD = re.compile("[" + re.escape(FORBIDDEN) + r"\x00-\x1f\x7f]")


def is_expressible(name: str) -> bool:
    """True if trtexec's grammar passes `name` to TensorRT unchanged."""
    return bool(name) and _BAD.search(name) is None


def legal_name(name: str) -> str:
    """`name` with '_' for every character that no layer may have; '' stays ''."""
    return _BAD.sub("_", name)


def read_layers(items: Sequence[str]) -> list[str]:
    """Names and patterns, with `@FILE` replaced by its content: one name per line, or a --layerPrecisions argument.

    Raises UserError if the file cannot be read.
    """
    layers: list[str] = []
    for item in items:
        if not item.startswith("@"):
            layers.append(item)
            continue
        text = read_text(Path(item[1:]), "Check the path behind @.")
        try:
            layers += (name for name, precision in parse_layer_precisions(text).items() if precision != "int8")
        except ValueError:
            layers += filter(None, map(str.strip, text.splitlines()))
    return layers


def kept_layers(items: Sequence[str], nodes: Iterable[str], gone: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The nodes that `items` name. nodes: all of the stripped model. gone: node of the user's model that a rewrite
    replaced, or that has another name (rule F6) -> the nodes that do its work. `*` and `?` in an item match any
    characters, unless a node has exactly that name.

    Raises UserError for an item that names nothing.
    """
    if not items:
        return frozenset()
    from qdq_translator.core.parsing import did_you_mean

    known: dict[str, Sequence[str]] = {name: (name,) for name in nodes}
    known.update({old: (*known.get(old, ()), *new) for old, new in gone.items()})
    kept: set[str] = set()
    for item in read_layers(items):
        found = [item] if item in known else fnmatch.filter(known, item.replace("[", "[[]"))
        if not found:
            near = did_you_mean(item, known) or "The report lists the layers ('qdq-translator report --all')."
            raise UserError(f"--keep_fp16 names '{item}', which is not a layer of the model.", near)
        kept.update(name for one in found for name in known[one])
    return frozenset(kept)
