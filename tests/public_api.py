"""What is public of `qdq_translator`: names, signatures, options and the JSON schemas, as a text that a test holds.

`python -m tests.renew` writes the text (`tests/data/public_api.txt`) and the types of the keyword arguments
(`qdq_translator/api/keywords.pyi`) anew. A line that is removed or changed is a change that users notice: CHANGELOG.md names it, and
the old form warns for one minor version before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from pathlib import Path
from typing import Any, Iterator, Literal, Union, get_args, get_origin

import qdq_translator
from qdq_translator.api.functions import OPTIONS
from qdq_translator.core.formats import schemas
from qdq_translator.core.options import choices_of

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "public_api.txt"
KEYWORDS = ROOT / "qdq_translator" / "api" / "keywords.pyi"
SCHEMAS = {
    "REPORT": schemas.report_schema(),
    "CONFIG": schemas.config_schema(),
    "RESULTS": schemas.results_schema(),
    "TUNING": schemas.tuning_schema(),
    "EXPLICIT_REPORT": schemas.EXPLICIT_REPORT,
}


def keywords() -> str:
    """The stub: one TypedDict a function."""
    parts = [
        "# Made by 'python -m tests.renew' from the options of the commands.\n\nimport os\n"
        "from typing import List, Literal, Mapping, Sequence, TypedDict, Union\n\nPlace = Union[str, os.PathLike[str]]\nReal = float"
    ]
    groups = {name: {field.name: type_of(field) for field in fields} for name, fields in options()}
    long = [groups[name].items() for name in ("translate", "calibrate", "explicit", "tune")]
    common = dict(row for row in long[0] if all(row in other for other in long))
    for name, rows in {"common": common, **groups}.items():
        shared = rows is not common and common.items() <= rows.items()
        own = [f"    {key}: {kind}" for key, kind in rows.items() if not shared or key not in common]
        parts.append(
            "\n".join([f"class {name.capitalize()}({'Common' if shared else 'TypedDict'}, total=False):", *own])
        )
    return "\n\n".join(parts) + "\n"


def options() -> Iterator[tuple[str, list[dataclasses.Field[Any]]]]:
    """Each function with the options that are its keyword arguments."""
    for function, (kind, names) in OPTIONS.items():
        fields = {field.name: field for field in dataclasses.fields(kind)}
        yield function, [fields[name] for name in names]


_PATHS = ("FILE", "PATH", "DIR", "FOLDER", "MODEL", "DATA")


def type_of(field: dataclasses.Field[Any]) -> str:
    """As mypy reads it: choices as a Literal; text that is a path may be a path object; sizes may be numbers."""
    if field.name == "shapes":
        return "Union[List[str], Mapping[str, Sequence[int]]]"
    kinds = list(get_args(field.type)) if get_origin(field.type) is Union else [field.type]
    choices = choices_of(field)
    text = f"Literal[{', '.join(map(json.dumps, choices))}]" if choices else "str"
    text = "Place" if text == "str" and field.metadata.get("metavar") in _PATHS else text
    words = [text if kind is str or get_origin(kind) is Literal else _word(kind) for kind in kinds]
    return words[0] if len(words) == 1 else f"Union[{', '.join(words)}]"


def _word(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"List[{_word(get_args(kind)[0])}]"
    return "None" if kind is type(None) else "Real" if kind is float else str(kind.__name__)


def record() -> str:
    """Names with their signatures and members, options with types and defaults, digests of the schemas."""
    lines = []
    for name in dir(qdq_translator):
        thing = getattr(qdq_translator, name)
        if not callable(thing):
            continue
        lines.append(f"{name}{inspect.signature(thing) if not inspect.isclass(thing) else ''}")
        if inspect.isclass(thing):
            lines += [f"    {key}" for key in sorted(text for _, text in public_members(thing))]
    for function, fields in options():
        lines.append(f"options of {function}")
        lines += [f"    {field.name}: {type_of(field)} = {default_of(field)}" for field in fields]
    for name, schema in SCHEMAS.items():
        lines.append(f"schema {name} {hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()}")
    return "\n".join(lines) + "\n"


def public_members(kind: type) -> Iterator[tuple[str, str]]:
    """Name and signature of methods and properties that say what they do, and of the fields of plain results."""
    for key, member in inspect.getmembers(kind):
        if key[0] != "_" and (inspect.isfunction(member) or type(member).__name__ in ("property", "cached_property")):
            yield key, f"{key}{inspect.signature(member)}" if inspect.isfunction(member) else key
    if kind.__module__ == "qdq_translator.api.results":
        yield from ((field.name, field.name) for field in dataclasses.fields(kind) if field.name[0] != "_")


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return repr(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else repr(field.default)
