"""The tables of docs/report_schema.md, made from the rows that write and read NAME_report.json: `python -m tests.renew`."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any, Iterator, Literal, Union, get_args, get_origin, get_type_hints

from qdq_translator.core.formats.report_rows import Report

WORDS = {str: "string", bool: "boolean", int: "integer", float: "number", Any: "object"}


def key_of(field: Any) -> str:
    return str(field.metadata.get("key", field.name))


def described(row: Any) -> tuple[str, dict[str, str]]:
    """The introduction of a row's docstring, and the text of each field: "name, name: text." after it."""
    names = "|".join(field.name for field in fields(row))
    text = " ".join((row.__doc__ or "").split())
    text = "" if text.startswith(f"{row.__name__}(") else text  # made by dataclass
    parts = re.split(rf"(?:^|(?<=[.;]) )((?:{names})(?:, (?:{names}))*): ", text)
    found = {}
    for several, about in zip(parts[1::2], parts[2::2]):
        found.update(dict.fromkeys(several.split(", "), about.rstrip(".;")))
    return parts[0], found


def plain(text: str) -> str:
    """A docstring as text of a page: values as in JSON."""
    text = re.sub(r"\bNone\b", "null", re.sub(r"'([\w -]+)'", r"`\1`", text)).replace("''", '`""`')
    text = re.sub(r"\b([a-z_]+\.md)\b", r"[\1](\1)", text)
    return text.replace("|", "\\|")


def rows_in(kind: Any) -> Iterator[Any]:
    if is_dataclass(kind):
        yield kind
    for part in get_args(kind):
        yield from rows_in(part)


def typed(kind: Any, sections: dict[Any, str]) -> str:
    """A type in words; a row is a link to its section."""
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return f"[object](#{sections[kind]})"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin is Union:
        *first, last = ("null" if part is type(None) else typed(part, sections) for part in inside)
        return f"{', '.join(first)} or {last}"
    if origin in (tuple, list):
        item = typed(inside[0], sections)
        return f"list of ({item})" if get_origin(inside[0]) is Union else f"list of {item}"
    if origin is dict:
        return f"object: name to {typed(inside[1], sections)}"
    return WORDS[kind]


def all_rows(row: Any, place: str = "") -> Iterator[tuple[Any, str]]:
    """Each row below `row` with the key that leads to it, nested rows after their owner."""
    hints = get_type_hints(row)
    for field in fields(row):
        for below in rows_in(hints[field.name]):
            path = f"{place}{key_of(field)}"
            yield below, path
            yield from all_rows(below, f"{path}.")


def tables() -> str:
    """One section per row, in the order of the report."""
    places = {Report: ""}
    for row, place in all_rows(Report):
        places.setdefault(row, place)
    sections = {row: re.sub(r"[^\w-]", "", place.lower()) for row, place in places.items()}
    lines = []
    for row, place in places.items():
        intro, texts = described(row)
        hints = get_type_hints(row)
        lines += [f"{'###' if '.' in place else '##'} `{place}`", ""] if place else []
        lines += [plain(intro), ""] if intro and place else []
        lines += ["| key | type | content |", "| --- | --- | --- |"]
        for field in fields(row):
            kind = typed(hints[field.name], sections)
            lines.append(f"| `{key_of(field)}` | {kind} | {plain(texts.get(field.name, ''))} |")
        lines.append("")
    return "\n".join(lines).rstrip()
