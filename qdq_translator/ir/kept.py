"""`--keep_fp16`: the layers that the user keeps above INT8, by name, by pattern or from a file."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Iterable, Mapping, Sequence

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import parse_layer_precisions


def read_layers(items: Sequence[str]) -> list[str]:
    """Names and patterns, with `@FILE` replaced by what the file holds: a name a line, or a --layerPrecisions argument.

    Raises UserError where the file cannot be read.
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
    """The nodes that `items` name. nodes: all of the stripped model. gone: node of the user's model that a rewrite replaced,
    or that has another name (rule F6) -> the nodes that do its work. `*` and `?` in an item match any characters, unless a node is called just so.

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
