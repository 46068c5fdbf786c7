"""What `translate` says is laid out without rich: held against it, and a record against a frozen dataclass."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qdq_translator.core.records import record
from qdq_translator.output.report.plain import Plain, cells

TEXTS = (
    "118 tensors (60 from the model, 58 inferred, 4 more for TensorRT's own)",
    "a name_that_is_longer_than_any_line_of_the_terminal_and_has_to_be_cut_somewhere/in/its/middle and more",
    "畳み込み層の重み 畳み込み層 is wide, cafe\u0301 is not",
    "two\nlines",
    "",
)


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("width", [20, 33, 80])
def test_lines_are_those_of_rich(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ours, theirs = io.StringIO(), io.StringIO()
    out, console = Plain(ours), Console(file=theirs, highlight=False, width=width)
    table = Table(show_header=False, box=None, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for text in TEXTS:
        table.add_row("label", text)
        if text:
            out.paragraph(text)
            console.print(Padding(Text(text, overflow="fold"), (0, 0, 0, 2)))
    out.pairs(("label", text) for text in TEXTS)
    console.print(table)
    assert trimmed(ours.getvalue()) == trimmed(theirs.getvalue())
    assert all(cells(line) <= width for line in ours.getvalue().splitlines())


def test_colours_take_no_place_and_names_bring_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    text = Plain(io.StringIO()).styled("evil\x1b[31m\rname", "bold")
    assert text == "\x1b[1mevil[31mname\x1b[0m"
    assert cells(text) == len("evil[31mname")
    monkeypatch.setenv("NO_COLOR", "1")
    assert Plain(io.StringIO()).styled("name", "red") == "name"


@dataclasses.dataclass(frozen=True)
class Theirs:
    name: str
    sizes: tuple[int, ...] = ()
    note: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    seen: int = dataclasses.field(default=0, repr=False, compare=False)


@record(frozen=True)
class Ours:
    name: str
    sizes: tuple[int, ...] = ()
    note: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    seen: int = dataclasses.field(default=0, repr=False, compare=False)


def test_a_record_is_a_dataclass() -> None:
    given = [("a",), ("a", (1, 2)), ("b", (1, 2), {"x": 1}), ("b", (1, 2), {"x": 1}, 7)]
    theirs, ours = [Theirs(*g) for g in given], [Ours(*g) for g in given]
    assert [repr(r).replace("Ours", "Theirs") for r in ours] == [repr(r) for r in theirs]
    assert [[a == b for a in ours] for b in ours] == [[a == b for a in theirs] for b in theirs]
    assert [hash(r) for r in ours] == [hash(r) for r in theirs]
    assert ours[0] != theirs[0]
    assert dataclasses.asdict(ours[2]) == dataclasses.asdict(theirs[2])
    assert dataclasses.replace(ours[1], name="c") == Ours("c", (1, 2))
    assert len(set(ours)) == len(set(theirs)) == 3


def test_a_record_that_may_change_has_no_hash() -> None:
    @record
    class Open:
        name: str

        def __repr__(self) -> str:
            return "mine"

    assert repr(Open("a")) == "mine"
    with pytest.raises(TypeError):
        hash(Open("a"))
