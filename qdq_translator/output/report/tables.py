"""The style of every table and list on a terminal, and how many lines of them are printed."""

from __future__ import annotations

import io
import itertools
from typing import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHOWN = 8
"""Rows of a table without --all."""
LINES = 35
"""Lines that a command prints without --all; with the next commands and the prompt they fit 40."""
_UNWRAPPED = 100_000
"""Columns."""


def title(out: Console, text: str) -> None:
    out.print(f"\n[bold]{text}[/bold]")


def indented(markup: str) -> Padding:
    """Markup indented by two columns on all lines."""
    return Padding(Text.from_markup(markup, overflow="fold"), (0, 0, 0, 2))


def print_pairs(out: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Names and values in plain text, no heading."""
    table = Table(show_header=False, box=None, padding=(0, 1, 0, 1), pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    out.print(table)


def print_list(out: Console, titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Rows of plain text below their titles, without lines or margins: many rows of few words. right: columns of
    numbers.
    """
    table = Table(box=None, padding=(0, 1, 0, 1), pad_edge=True)
    for index, heading in enumerate(titles):
        table.add_column(heading, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if table.row_count:
        out.print(table)


def table_of(*titles: str, right: tuple[int, ...] = (), ratios: tuple[int, ...] = ()) -> Table:
    """right: columns of numbers. ratios: shares of the width, 0 for a column's own need."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=bool(ratios))
    for index, heading in enumerate(titles):
        table.add_column(
            heading,
            justify="right" if index in right else "left",
            overflow="fold",
            ratio=(ratios[index] or None) if ratios else None,
        )
    return table


def print_table(
    out: Console,
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: tuple[int, ...] = (),
    ratios: tuple[int, ...] = (),
    everything: bool = True,
) -> None:
    """`table_of` with rows of plain text, not markup; without `everything` the first rows and how many more there are.
    Prints nothing without rows."""
    table, found = table_of(*titles, right=right, ratios=ratios), list(rows)
    for row in found if everything else found[:SHOWN]:
        table.add_row(*map(Text, row))
    if len(found) > SHOWN and not everything:
        table.add_row(f"... {len(found) - SHOWN} more", *[""] * (len(titles) - 1), style="dim")
    if found:
        out.print(table)


def print_fitted(out: Console, sections: Sequence[Callable[[Console], None]], lines: int = LINES) -> None:
    """Prints the sections in order, in at most `lines` lines: while there are more, the longest section loses its last
    row.

    A section that was shortened ends in the number of its lines that `--all` adds.
    """
    printed = [(section, _lines(out, section, out.width)) for section in sections]
    full = [(text, _row_ends(text, _lines(out, section, _UNWRAPPED))) for section, text in printed if text]
    kept = [len(ends) for _, ends in full]

    def height(index: int) -> int:
        ends = full[index][1]
        return ends[kept[index] - 1] + (kept[index] < len(ends))

    while sum(map(height, range(len(full)))) > lines and max(kept) > 1:
        kept[max((index for index, rows in enumerate(kept) if rows > 1), key=height)] -= 1
    for (text, ends), rows in zip(full, kept):
        shown = ends[rows - 1]
        more = [f"  ... {len(text) - shown} more lines: --all"] if shown < len(text) else []
        out.file.write("".join(f"{line}\n" for line in (*text[:shown], *more)))


def _row_ends(wrapped: Sequence[str], whole: Sequence[str]) -> list[int]:
    """How many lines of `wrapped` each row and those before it need; whole: the same text, a row a line."""
    seen, ends = (
        list(itertools.accumulate(sum(map(str.isalnum, Text.from_ansi(line).plain)) for line in text))
        for text in (wrapped, whole)
    )
    return [number for number, count in enumerate(seen, 1) if count in ends and count not in seen[number:]]


def _lines(out: Console, section: Callable[[Console], None], width: int) -> list[str]:
    """The lines that `section` prints on a terminal like `out`, of `width` columns, without blank ones at its end."""
    own = Console(
        file=io.StringIO(), width=width, force_terminal=out.is_terminal, highlight=False, legacy_windows=False
    )
    section(own)
    assert isinstance(own.file, io.StringIO)
    return own.file.getvalue().rstrip("\n").split("\n") if own.file.getvalue().strip() else []
