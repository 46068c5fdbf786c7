"""The files of one translation are a set: its id is in the model, the precision config and the report.

A run that is killed while it places its files leaves a mixture of two sets: the model, which is placed first, and the
report, which is placed last, are of different ones. The cache and the layer argument have no room for an id; the report
holds their digests. Needs neither ONNX nor NumPy.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Iterable, Optional

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.schemas import config_schema, only, read_json, report_schema

SET_KEY = "set"
"""Of the precision config and of the report's `integrity`."""
MODEL_KEY = "qdq_translator.set"
"""Of the stripped model's metadata."""
DIGITS, SET_DIGITS = 16, 32
_IN_MODEL = re.compile(re.escape(MODEL_KEY).encode() + rb"\x12.([0-9a-f]{%d})" % SET_DIGITS, re.DOTALL)
_LOOK = 2**20
"""Bytes at both ends of a model in which its metadata are looked for; other tools write them behind the graph."""
_AGAIN = "Translate the model again."


def digest(parts: Iterable[bytes], digits: int = DIGITS) -> str:
    """Hex digits over byte strings whose borders count."""
    framed = b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)])
    return hashlib.sha256(framed).hexdigest()[:digits]


def digest_of_json(value: Any, digits: int = DIGITS) -> str:
    return digest([json.dumps(value, sort_keys=True).encode("utf-8", "surrogateescape")], digits)


def refuse_mixture(files: TranslationFiles) -> None:
    """Raises UserError if the files belong to different translations, or if the report knows another cache or layer
    argument. Without a report, or if it has no set id, only the config can show this."""
    report = read_json(files.report, only(report_schema(), "integrity"), _AGAIN) if files.report.is_file() else {}
    config = read_json(files.config, only(config_schema(), SET_KEY), _AGAIN) if files.config.is_file() else {}
    wrote = report.get("integrity") or {}
    in_model = set_of_model(files.model)
    ids = [(files.config, config.get(SET_KEY)), (files.report, wrote.get(SET_KEY))]
    for path, found in ids if in_model else ():
        if path.is_file() and found != in_model:
            raise UserError(f"{path.name} and {files.model.name} are of different translations.", _AGAIN)
    for key, path in (("cache", files.cache), ("layer_arg", files.layer_arg)):
        if key in wrote and path.is_file() and digest_of_json(read_text(path, _AGAIN)) != wrote[key]:
            raise UserError(
                f"{path.name} is not the file that was written with {files.report.name}.",
                f"{_AGAIN[:-1]}, or delete {files.report.name} if you changed the other on purpose.",
            )


def set_of_model(path: Path) -> Optional[str]:
    """The set's id in a model's metadata; None if absent."""
    try:
        with open(path, "rb") as file:
            found = _IN_MODEL.search(file.read(_LOOK))
            if found is None:
                file.seek(max(0, file.seek(0, 2) - _LOOK))
                found = _IN_MODEL.search(file.read())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", _AGAIN) from error
    return found[1].decode() if found else None
