"""The style of every table and list on a terminal, and the limit on their printed lines."""

from __future__ import annotations

import io
import itertools
import re
from typing import Callable, Iterable, Optional, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHOWN = 8
"""Rows of a table without --all."""
LINES = 35
"""Lines that a command prints without --all; together with the next commands and the prompt they fit into 40."""
_UNWRAPPED = 100_000
"""Width in columns."""
Section = Callable[[Console], None]
"""Prints a part of a command's output."""


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


def print_list(out: Console, titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> None:
    """`print_table` without lines and margins, for many rows of few words."""
    _print(out, Table(box=None, padding=(0, 1, 0, 1), pad_edge=True), titles, list(rows), right)


def print_table(
    out: Console,
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Sequence[int] = (),
    everything: bool = True,
    bold: Optional[str] = None,
) -> None:
    """Prints rows of plain text, not markup, below their titles; nothing without rows. right: columns of numbers.
    everything: False prints the first rows and the number of the others. bold: the first cell of rows in bold."""
    found = list(rows)
    shown = found if everything else found[:SHOWN]
    if len(found) > len(shown):
        shown = [*shown, (f"... {len(found) - SHOWN} more", *[""] * (len(titles) - 1))]
    _print(out, Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False), titles, shown, right, bold)


def _print(
    out: Console,
    table: Table,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
    bold: Optional[str] = None,
) -> None:
    widths = _widths([titles, *rows], out.width - 2 * len(titles))  # two blanks between columns
    for index, (heading, width) in enumerate(zip(titles, widths)):
        table.add_column(heading, justify="right" if index in right else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if row[0] == bold else "")
    if rows:
        out.print(table)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column: its longest line if all fit into `room`; else at least its longest word, so that no
    name is cut in the middle, and an equal share of the rest. If not even the words fit, the widest column is folded.
    """
    columns = list(zip(*rows))
    wanted = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in columns]
    if sum(wanted) <= room:
        return wanted
    words = (re.findall(r"'[^']*'|\S+", " ".join(column)) for column in columns)
    widths = [max(map(cell_len, found), default=0) for found in words]
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    spare = room - sum(widths)
    lacking = sorted(range(len(widths)), key=lambda index: wanted[index] - widths[index])
    for place, index in enumerate(lacking):
        more = max(0, min(spare // (len(lacking) - place), wanted[index] - widths[index]))
        widths[index] += more
        spare -= more
    return widths


def print_fitted(out: Console, sections: Sequence[Section], lines: int = LINES, everything: bool = False) -> None:
    """Prints the sections in order, in at most `lines` lines: while there are more, the longest section loses its last
    row. With `everything` all are printed.

    A section that was shortened ends in the number of its lines that `--all` adds.
    """
    if everything:
        for section in sections:
            section(out)
        return
    printed = [(section, _lines(out, section, out.width)) for section in sections]
    texts = [(text, _row_ends(text, _lines(out, section, _UNWRAPPED))) for section, text in printed if text]
    for (text, ends), rows in zip(texts, _rows_that_fit(texts, lines)):
        shown = ends[rows - 1]
        more = [f"  ... {len(text) - shown} more lines: --all"] if shown < len(text) else []
        out.file.write("".join(f"{line}\n" for line in (*text[:shown], *more)))


def _rows_that_fit(texts: Sequence[tuple[list[str], list[int]]], lines: int) -> list[int]:
    """Number of rows that each text keeps, at least its title, after a blank line. texts: lines, `_row_ends`."""
    kept = [len(ends) for _, ends in texts]
    least = [min(len(ends), 1 if text[0].strip() else 2) for text, ends in texts]

    def height(index: int) -> int:
        ends = texts[index][1]
        return ends[kept[index] - 1] + (kept[index] < len(ends))

    while sum(map(height, range(len(texts)))) > lines and kept != least:
        kept[max((index for index, rows in enumerate(kept) if rows > least[index]), key=height)] -= 1
    return kept


def _row_ends(wrapped: Sequence[str], whole: Sequence[str]) -> list[int]:
    """Number of lines of `wrapped` up to the end of each row. whole: the same text with one line per row."""
    seen, ends = (
        list(itertools.accumulate(sum(map(str.isalnum, Text.from_ansi(line).plain)) for line in text))
        for text in (wrapped, whole)
    )
    return [number for number, count in enumerate(seen, 1) if count in ends and count not in seen[number:]]


def _lines(out: Console, section: Section, width: int) -> list[str]:
    """The lines that `section` prints on a terminal like `out`, of `width` columns, without trailing blank ones."""
    own = Console(
        file=io.StringIO(), width=width, force_terminal=out.is_terminal, highlight=False, legacy_windows=False
    )
    section(own)
    assert isinstance(own.file, io.StringIO)
    return own.file.getvalue().rstrip("\n").split("\n") if own.file.getvalue().strip() else []
