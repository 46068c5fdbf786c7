"""Rows of our JSON files: a subclass of `Row` defines writing, reading and the schema of both.

Fields become keys in their order. Their metadata may contain `key` (another name in the file), `digits` (a float is
rounded to them), `finite` (True: may be null, for a float that is infinite or NaN), `later` (True: files of
earlier versions lack the key) and `sparse` (True: omitted if empty or None).
Annotations: str, bool, int, float, Any (an object), Literal, Optional, Tuple[X, ...], List[X], Dict[str, X], unions of
plain types, and other rows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    Literal,
    Mapping,
    Sequence,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**about: Any) -> Any:
        return lambda kind: kind


Schema = Dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63}
NUMBER: Schema = {"type": "number", "minimum": -1e300, "maximum": 1e300}
OBJECT: Schema = {"type": "object"}
_PLAIN: Dict[Any, Schema] = {str: TEXT, bool: FLAG, int: COUNT, float: NUMBER, Any: OBJECT}
T = TypeVar("T")
_SCALARS = (str, int, float, type(None))


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Row:
    """Makes each subclass a frozen dataclass."""

    __dataclass_fields__: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)


def plain(value: Any) -> Any:
    """The value as JSON: rows become objects, tuples lists, and numbers that are not finite null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number, and strict readers refuse the words Infinity and NaN
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    found = {}
    for field, key, _ in _fields(type(value)):  # type: ignore
        item, about = getattr(value, field.name), field.metadata
        if about:
            item = _rounded(item, about)
            if "sparse" in about and item in ("", None, {}):
                continue
        found[key] = plain(item)
    return found


def json_text(value: Any, **form: Any) -> str:
    """JSON of rows and of values of JSON types, without NaN and infinite numbers. form: of `json.dumps`."""
    return json.dumps(plain(value), allow_nan=False, **form)


def _rounded(item: Any, about: Mapping[str, Any]) -> Any:
    """A value rounded to the digits in the metadata of its field."""
    return round(item, about["digits"]) if "digits" in about and item else item


@functools.lru_cache(maxsize=None)
def _fields(row: Any) -> list[tuple[dataclasses.Field[Any], str, Any]]:
    """Each field, its key and its annotation."""
    hints = get_type_hints(row)
    return [(f, str(f.metadata.get("key", f.name)), hints[f.name]) for f in dataclasses.fields(row)]


def read(row: Type[T], content: Mapping[str, Any]) -> T:
    """The row that `plain` wrote. Unknown keys are ignored; missing fields have their defaults.

    Raises TypeError for a missing field without a default: check the content against `schema_of(row)` first."""
    given = _fields(row)  # type: ignore
    return row(**{field.name: _value(kind, content[key]) for field, key, kind in given if key in content})


def _value(kind: Any, content: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return None if content is None else read(kind, content)  # type: ignore
    inside = get_args(kind)
    if content is None or not inside or kind in _PLAIN:
        return content
    if get_origin(kind) is Union:
        return _value(inside[0], content) if len(inside) == 2 else content
    if get_origin(kind) in (tuple, list):
        return get_origin(kind)(_value(inside[0], item) for item in content)
    return {key: _value(inside[1], item) for key, item in content.items()} if get_origin(kind) is dict else content


def read_some(row: Type[Any], content: Mapping[str, Any], keys: Sequence[str]) -> list[Any]:
    """The fields of a row under these keys; None for those that the content lacks."""
    kinds = {key: kind for _, key, kind in _fields(row)}  # type: ignore
    return [_value(kinds[key], content.get(key)) for key in keys]


def made_of(row: Type[T], thing: Any) -> T:
    """The row whose fields have the values of the equally named attributes of an object."""
    return row(**{field.name: getattr(thing, field.name) for field in dataclasses.fields(row)})  # type: ignore


def maybe(schema: Schema) -> Schema:
    """The schema of the same values, or null."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": [*kinds, "null"]}


def schema_of(row: Type[Any]) -> Schema:
    """JSON Schema (draft 7) of a row. Raises TypeError for an annotation that has none."""
    fields = _fields(row)  # type: ignore
    optional = ("later", "sparse")
    return {
        "type": "object",
        "properties": {key: maybe(_schema(k)) if "finite" in f.metadata else _schema(k) for f, key, k in fields},
        "required": [key for field, key, _ in fields if not any(field.metadata.get(word) for word in optional)],
    }


def _schema(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        return schema_of(kind)  # type: ignore
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string" if isinstance(inside[0], str) else "integer", "enum": list(inside)}
    if origin is Union:
        return _of_union(inside)
    if origin in (tuple, list) and (origin is list or inside[1:] == (Ellipsis,)):
        return {"type": "array", "items": _schema(inside[0])}
    if origin is dict:
        return OBJECT if inside[1] is Any else {**OBJECT, "additionalProperties": _schema(inside[1])}
    raise TypeError(f"{kind} has no schema")


def _of_union(inside: Sequence[Any]) -> Schema:
    kinds = [_schema(part) for part in inside if part is not type(None)]
    whole = kinds[0] if len(kinds) == 1 else {"type": [part["type"] for part in kinds]}
    return maybe(whole) if type(None) in inside else whole
