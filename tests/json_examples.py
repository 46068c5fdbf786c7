"""The smallest content that a JSON schema of ours lets through, and the schema without room for further keys."""

from __future__ import annotations

from typing import Any


def minimal(schema: dict[str, Any]) -> Any:
    """Required keys only; empty lists and texts."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    if kind == "object":
        return {key: minimal(schema["properties"][key]) for key in schema.get("required", ())}
    return {"string": "", "array": [], "integer": 0, "number": 0.0, "boolean": False}[kind]


def strict(schema: Any) -> Any:
    """No key may stand there that the schema does not name, but where it says so."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        closed.setdefault("additionalProperties", False)
    return closed
