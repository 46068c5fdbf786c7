"""Schemas of the JSON files that are read (JSON Schema, draft 7), and their reader, which describes each fault in a
sentence.

`docs/report_schema.md` explains the keys. Unknown keys are accepted, because later versions may add some. Keys are
`required` if the readers depend on them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any, NoReturn, Optional

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.report_rows import CacheVersion, DiagnosticRow, Origin, Part, Report
from qdq_translator.core.formats.rows import COUNT, NUMBER, TEXT, Schema, maybe, schema_of

_OBJECT: Schema = {"type": "object"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    """Any keys."""
    return {"type": "object", "additionalProperties": values}


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _record(required: Schema, later: Optional[Schema] = None) -> Schema:
    return {"type": "object", "properties": {**required, **(later or {})}, "required": list(required)}


def _row(keys: str, schema: Schema = TEXT) -> Schema:
    """Several keys of one schema."""
    return dict.fromkeys(keys.split(), schema)


_TEXTS = _list(TEXT)
_FILE = _record(_row("file sha256"))


@functools.lru_cache(maxsize=None)  # made when a file is read: translate reads none
def split_schema() -> Schema:
    """NAME_split.json."""
    return _record({"parts": _list(schema_of(Part))})


@functools.lru_cache(maxsize=None)
def report_schema() -> Schema:
    """NAME_report.json; a report with verdicts for a DLA must have an estimated time."""
    timed = {"if": {"properties": {"dla": _OBJECT}}, "then": {"properties": {"cost": _OBJECT}}}
    return {**schema_of(Report), **timed}


@functools.lru_cache(maxsize=None)
def config_schema() -> Schema:
    """NAME_precision_config.json; NVIDIA's translator writes the first two keys only."""
    later = {
        "int8_tensor_scales": _map(NUMBER),
        "fp16_nodes": _TEXTS,
        "fp32_nodes": _TEXTS,
        "gpu_nodes": _TEXTS,
        "schema_version": COUNT,
        "generator": TEXT,
        "scale_origins": _map(schema_of(Origin)),
        "automatic_tensor_scales": _map(NUMBER),
        "diagnostics": _list(schema_of(DiagnosticRow)),
        "options": {
            **_record({}, {**_row("target platform", maybe(TEXT)), "shapes": maybe(_TEXTS)}),
            "additionalProperties": True,
        },
        "source": _FILE,
        "cache_version": schema_of(CacheVersion),
        "digests": _map(TEXT),
        "set": TEXT,
    }
    return _record({}, later)


@functools.lru_cache(maxsize=None)
def tuning_schema() -> Schema:
    """NAME_tune.json."""
    from qdq_translator.core.formats.tune_rows import Tuning

    return schema_of(Tuning)


@functools.lru_cache(maxsize=None)
def board_schema() -> Schema:
    """NAME_board.json, written by `ingest`."""
    from qdq_translator.core.formats.engine_rows import Engine

    return _record({"kind": _one_of("qdq-translator board")}, {"engine": schema_of(Engine)})


@functools.lru_cache(maxsize=None)
def results_schema() -> Schema:
    """The output of `verify --save`."""
    from qdq_translator.core.formats.verify_rows import Verification

    results = schema_of(Verification)
    for name in ("model", "simulation", "verdict", "metric", "per_layer"):  # earlier versions had fewer of their keys
        del results["properties"][name]["required"]
    return results


DEVICE_RESULTS = _record(
    {
        "schema_version": {"type": "integer", "enum": [1]},
        "kind": _one_of("qdq-translator device results"),
        **_row("model cache inputs", _FILE),
        "engines": _map(
            {
                **_record({"status": _one_of("ok", "failed")}, _row("outputs error")),
                "if": {"properties": {"status": {"enum": ["ok"]}}},
                "then": {"required": ["outputs"]},
            }
        ),
    }
)
"""The output of `e2e_workflow/on_device/run_on_device.py`; only the keys that are used here."""

BOARD_OUTPUTS = _list(_record({"name": TEXT, "dimensions": TEXT, "values": {"type": "array"}}))
"""trtexec's --exportOutput."""

LONGEST_MS = 1e9
PROFILE = _list({"type": "object", "properties": {"name": TEXT, "averageMs": {**NUMBER, "maximum": LONGEST_MS}}})
"""trtexec's --exportProfile; its first row holds a count only."""

_STEP = _record({"key": TEXT, "files": _map(TEXT)})
DEPLOY = _record(
    {
        "schema_version": {"type": "integer", "enum": [1]},
        "kind": _one_of("qdq-translator deploy"),
        "steps": _map(_STEP),
    },
    {"files": _map(TEXT)},
)
"""deploy.json of a bundle. files: all that were written, with their digests; manifests of version 0.3 lack it."""

_ENDS = {"type": ["array", "null"], "items": {"type": ["object", "string"]}}
LAYER_INFO: Schema = {
    "type": ["object", "array"],
    "properties": {
        "Layers": _list({"type": ["object", "string"], "properties": {"Inputs": _ENDS, "Outputs": _ENDS}}),
    },
}
"""TensorRT's own file; only the keys that are used here."""

_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}


EXPLICIT_REPORT = _record(
    {
        "target": _one_of("gpu", "orin-dla"),
        "platform": TEXT,
        "pairs": _map(NUMBER),
        "without_pair": _map(TEXT),
        "stays_float": _list(_OBJECT),
    }
)
"""NAME_explicit_report.json: the keys that other commands read."""


def only(schema: Schema, *keys: str) -> Schema:
    """Some keys of an object, which may be missing; the others are not checked."""
    return {"type": "object", "properties": {key: schema["properties"][key] for key in keys}}


def read_json(path: Path, schema: Schema, hint: str) -> Any:
    """The content of a JSON file. Raises UserError with `hint` if it cannot be read or violates
    `schema`."""
    return parse_json(read_text(path, hint), schema, str(path), hint)


def parse_json(text: str, schema: Schema, where: str, hint: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number")

    try:
        # strict: TensorRT writes control characters as they are
        content = json.loads(text, strict=False, parse_constant=refuse)
    except RecursionError as error:
        raise UserError(f"{where} is nested too deeply for a file of this program.", hint) from error
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}.", hint) from error
    key = id(schema), hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    if _VALID.get(key) is not schema:
        fault = _fault(content, schema)
        if fault:
            raise UserError(f"{where}: {fault}.", hint)
        _VALID[key] = schema
    return content


_VALID: dict[tuple[int, bytes], Schema] = {}
"""The texts that were valid, by schema and digest: one run of `deploy` reads the same report a dozen times, and the
check takes most of it. The schema as value keeps its id from being used again."""


def _fault(content: Any, schema: Schema) -> str:
    """The first invalid field, in words; '' if all are valid."""
    from jsonschema import Draft7Validator

    error = next(Draft7Validator(schema).iter_errors(content), None)
    if error is None:
        return ""
    if list(error.absolute_path) == ["schema_version"]:
        return f"it has schema version {_short(json.dumps(error.instance))}, which this program does not read"
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    what = f"'{_short(place.lstrip('.'))}'" if place else "the whole"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{what} lacks '{missing}'"
    found = _short(json.dumps(error.instance))
    if error.validator == "type":
        kinds = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        return f"{what} is {found} instead of {' or '.join(_WORDS[kind] for kind in kinds)}"
    if error.validator == "enum":
        return f"{what} is {found} instead of {' or '.join(json.dumps(word) for word in error.validator_value)}"
    return f"{what} is {found}, which is out of range"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}...{text[-15:]}"
