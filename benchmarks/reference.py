"""The parts of docs/ that repeat what the program contains: limits, platforms, hypotheses, tables of docstrings.

`python -m tests.renew` writes them.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.dla_rewrites import page
from qdq_translator.board.engine import unfused
from qdq_translator.core.hypotheses import HYPOTHESES
from qdq_translator.lab.simulate.thresholds import TABLE
from qdq_translator.translation.ir import operator_table
from qdq_translator.translation.qdq import explicit
from qdq_translator.translation.targets.dla.limits import LIMITS, NO_SCALE
from qdq_translator.translation.targets.platforms import PLATFORMS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table(heads: str, rows: list[tuple[str, ...]]) -> str:
    """heads: with ' | ' between them."""
    lines = [heads, " | ".join("---" for _ in heads.split(" | ")), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def limits() -> str:
    """Each limit with its operators, the device or precision of a layer that violates it, and its source."""
    rows = [
        (
            limit.id,
            ", ".join(limit.ops).replace("*", "all"),
            f"{limit.text} (Xavier)" if limit.only else limit.text,
            {"gpu": "GPU", "dla-fp16": "FP16"}[limit.effect],
            f"{limit.source} [{limit.status}]",
        )
        for limit in (*LIMITS, NO_SCALE)
    ]
    return table("id | operators | limit | otherwise | source", rows)


def platforms() -> str:
    rows = [
        (
            f"`{row.name}`",
            ".".join(map(str, row.tensorrt)),
            row.cache_version if row.has_implicit_int8 else "-",
            row.dla or "-",
            row.note,
            row.source,
        )
        for row in PLATFORMS
    ]
    return table("platform | TensorRT | cache number | DLA | note | source", rows)


def thresholds() -> str:
    """Table of the verdict's thresholds."""
    rows = "".join(f"| {finding} | {limit} |\n" for finding, limit in TABLE)
    return f"| finding | threshold |\n| --- | --- |\n{rows}"


def hypotheses() -> str:
    rows = [(f"`{row.id}`", row.planned, f"{row.other}: `{row.stage}`", row.fact) for row in HYPOTHESES.values()]
    return table("hypothesis | the plan | the other alternative: row of `verify` | source", rows)


def part_of(docstring: str | None, pattern: str) -> str:
    """The first match in a docstring."""
    found = re.search(pattern, docstring or "", re.M | re.S)
    assert found is not None
    return found[0].strip() + "\n"


def columns() -> str:
    """Each column of the table of operators and the meaning of its values."""
    rows = ["| column | value | meaning |", "| --- | --- | --- |"]
    for column, values in operator_table.COLUMNS.items():
        rows += [f"| {column} | `{value}` | {meaning} |" for value, meaning in values.items()]
    return "\n".join(rows) + "\n"


def operators() -> str:
    """The table of operators."""
    names = list(operator_table.COLUMNS)
    rows = [f"| operator | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    rows += [f"| {op} | {' | '.join(row[name] for name in names)} |" for op, row in operator_table.OPERATORS.items()]
    return "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """Each page with its parts as they have to be."""
    parts = {
        "operators.md": {"columns": columns(), "operators": operators()},
        "facts.md": {"limits": limits(), "platforms": platforms()},
        "verdict.md": {"hypotheses": hypotheses(), "thresholds": thresholds()},
        "tensorrt11.md": {
            "placement": part_of(explicit.__doc__, r"^1\. .*"),
            "unfused": part_of(unfused.__doc__, r"^\| .*^\|[^\n]*"),
        },
    }
    found = {}
    for name, contents in parts.items():
        text = (DOCS / name).read_text(encoding="utf-8")
        for part, content in contents.items():
            text = page(text, part, content)
        found[DOCS / name] = text
    return found
