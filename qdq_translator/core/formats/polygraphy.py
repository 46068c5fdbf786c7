"""Files of `polygraphy run`: inputs (`--save-inputs`) and outputs (`--save-outputs`), as JSON with arrays in base64.

Tested with files of Polygraphy 0.53.6 (tests/data/polygraphy); Polygraphy itself is not needed.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, Iterable, Mapping

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.npz import read_array
from qdq_translator.core.formats.schemas import read_json

_HINT = "Name a file that 'polygraphy run' wrote with --save-inputs or --save-outputs."


def is_results(content: Any) -> bool:
    """True for outputs of `polygraphy run`, by the type in their JSON."""
    return isinstance(content, dict) and content.get("polygraphy_class") == "RunResults"


def read_inputs(path: Path) -> dict[str, np.ndarray]:
    """Input -> every iteration's array, one after the other along the first axis. Raises UserError."""
    content = read_json(path, {"type": "array", "minItems": 1, "items": {"type": "object"}}, _HINT)
    return _stacked(content, path)


def read_results(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Runner -> output -> every iteration's array, one after the other along the first axis. Raises UserError."""
    content = read_json(path, {"type": "object"}, _HINT)
    try:
        return {
            str(runner): _stacked([iteration["outputs"] for iteration in iterations], path)
            for runner, iterations in content["lst"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} contains no results of 'polygraphy run'.", _HINT) from error


def _stacked(rows: Iterable[Mapping[str, Any]], path: Path) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for row in rows:
        for name, held in row.items():
            found.setdefault(name, []).append(np.atleast_1d(_array(held, name, path)))
    try:
        return {name: np.concatenate(arrays) for name, arrays in found.items()}
    except ValueError as error:
        raise UserError(f"{path}: iterations have different shapes.", "Run Polygraphy with one shape.") from error


def _array(held: Any, name: str, path: Path) -> np.ndarray:
    """Array in `{"array": base64 of an .npy}`, optionally in `values`."""
    try:
        inner = held.get("values", held)
        return read_array(io.BytesIO(base64.b64decode(inner["array"], validate=True)))
    except Exception as error:  # NumPy raises various types
        raise UserError(f"{path}: '{name}' is not an array of Polygraphy's.", _HINT) from error
