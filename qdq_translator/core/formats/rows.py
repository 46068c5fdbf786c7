"""Rows of our JSON files: a dataclass defines what is written and its schema.

Fields become keys in their order. Their metadata may hold `key` (another name in the file), `digits` (a float is rounded to
them) and `later` (True: files of earlier versions lack the key). Annotations: str, bool, int, float, Optional, Tuple[X, ...],
List[X], Dict[str, X] and other rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Type, Union, get_type_hints

Schema = Dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63}
NUMBER: Schema = {"type": "number", "minimum": -1e300, "maximum": 1e300}
_PLAIN: Dict[Any, Schema] = {str: TEXT, bool: FLAG, int: COUNT, float: NUMBER}


def plain(value: Any) -> Any:
    """The value as JSON has it: rows as objects, tuples as lists."""
    if dataclasses.is_dataclass(value):
        return {_key(field): _rounded(field, getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _key(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


def _rounded(field: dataclasses.Field[Any], value: Any) -> Any:
    digits = field.metadata.get("digits")
    return plain(value) if digits is None or value is None else round(value, digits)


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": [*kinds, "null"]}


def schema_of(row: Type[Any]) -> Schema:
    """JSON Schema (draft 7) of a row. Raises TypeError for an annotation that has none."""
    hints, fields = get_type_hints(row), dataclasses.fields(row)
    return {
        "type": "object",
        "properties": {_key(field): _schema(hints[field.name]) for field in fields},
        "required": [_key(field) for field in fields if not field.metadata.get("later")],
    }


def _schema(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        return schema_of(kind)  # type: ignore[arg-type]
    origin: Any = getattr(kind, "__origin__", None)
    inside: Any = getattr(kind, "__args__", ())
    if origin is Union and len(inside) == 2 and inside[1] is type(None):
        return maybe(_schema(inside[0]))
    if origin in (tuple, list) and (origin is list or inside[1:] == (Ellipsis,)):
        return {"type": "array", "items": _schema(inside[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inside[1])}
    raise TypeError(f"{kind} has no schema")
