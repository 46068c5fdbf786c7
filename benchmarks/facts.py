"""The tables of docs/facts.md that repeat what the program checks: limits of the DLA and platforms. `python -m tests.renew` writes them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.dla_rewrites import page
from qdq_translator.targets.dla.limits import LIMITS, NO_SCALE
from qdq_translator.targets.platforms import PLATFORMS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "facts.md"


def limits() -> str:
    """Each limit with its operators, the precision or device of a layer that violates it, and its source."""
    rows = ["| id | operators | limit | otherwise | source |", "| --- | --- | --- | --- | --- |"]
    for limit in (*LIMITS, NO_SCALE):
        operators = ", ".join(limit.ops).replace("*", "all")
        text = f"{limit.text} (Xavier)" if limit.only else limit.text
        effect = {"gpu": "GPU", "dla-fp16": "FP16"}[limit.effect]
        rows.append(f"| {limit.id} | {operators} | {text} | {effect} | {limit.source} [{limit.status}] |")
    return "\n".join(rows) + "\n"


def platforms() -> str:
    rows = ["| platform | TensorRT | cache number | DLA | note | source |", "| --- | --- | --- | --- | --- | --- |"]
    for row in PLATFORMS:
        number = row.cache_version if row.has_implicit_int8 else "-"
        version = ".".join(map(str, row.tensorrt))
        rows.append(f"| `{row.name}` | {version} | {number} | {row.dla or '-'} | {row.note} | {row.source} |")
    return "\n".join(rows) + "\n"


def text() -> str:
    """The page with both tables as they have to be."""
    return page(page(PAGE.read_text(encoding="utf-8"), "limits", limits()), "platforms", platforms())
