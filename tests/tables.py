"""The tables of docs/rules.md and docs/dialects.md, from the registries in the code; `tests.renew` writes them."""

from __future__ import annotations

import re

from qdq_translator.core.rules import RULES
from qdq_translator.quantizers.dialects import DIALECTS

_HEADS = {
    "Q": ("what is recognised", "what becomes of it"),
    "W": ("what holds", ""),
    "F": ("what happens", ""),
    "S": ("gives", "when"),
    "C": ("what", "what to do"),
    "A": ("what", "what to do"),
}
"""Letter of the rules of one table -> the heads of its columns."""
_TABLE = re.compile(r"(<!-- rules: ([A-Z ]+) -->\n).*?(<!-- end of rules -->)", re.S)


def table(letters: str) -> str:
    """The Markdown table of the rules whose numbers begin with one of `letters` (blanks between)."""
    what, then = _HEADS[letters.split()[0]]
    rows = [["rule", what, then], ["---", "---", "---"]]
    rows += [[row.id, row.what, row.then] for row in RULES.values() if re.sub(r"\d", "", row.id) in letters.split()]
    return "".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in (cells if then else cells[:2])) + " |\n"
        for cells in rows
    )


def rules_page(page: str) -> str:
    """The text of docs/rules.md with its tables as the registry has them."""
    return _TABLE.sub(lambda found: found[1] + table(found[2]) + found[3], page)


_DIALECTS = re.compile(r"(<!-- dialects -->\n).*?(<!-- end of dialects -->)", re.S)


def dialects_page(text: str) -> str:
    """The text of docs/dialects.md with its table as `DIALECTS` has it."""
    rows = [("form", "written by", "becomes", "exact"), ("---",) * 4]
    rows += [(row.name, row.writers, row.becomes, row.exact) for row in DIALECTS]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return _DIALECTS.sub(lambda found: found[1] + table + found[2], text)
