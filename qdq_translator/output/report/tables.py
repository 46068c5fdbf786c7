"""The style of every table and list on a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOWN = 8
"""Rows of a list that are shown where not all were asked for."""


def title(out: Console, text: str) -> None:
    out.print(f"\n[bold]{text}[/bold]")


def indented(markup: str) -> Any:
    """Two columns in, however many lines it takes."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text.from_markup(markup, overflow="fold"), (0, 0, 0, 2))


def pairs() -> Table:
    """What and how much, without a heading."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 1, 0, 1), pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def table_of(*titles: str, right: tuple[int, ...] = (), ratios: tuple[int, ...] = ()) -> Table:
    """right: columns of numbers. ratios: how the width is shared out, 0 for what a column needs."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=bool(ratios))
    for index, heading in enumerate(titles):
        table.add_column(
            heading,
            justify="right" if index in right else "left",
            overflow="fold",
            ratio=(ratios[index] or None) if ratios else None,
        )
    return table


def cut(table: Table, length: int, everything: bool) -> None:
    """A last row that says how many of `length` rows are not shown."""
    if length > SHOWN and not everything:
        table.add_row(f"... {length - SHOWN} more", *[""] * (len(table.columns) - 1), style="dim")
