"""Layer information JSON: the layers of an engine as TensorRT reports them, and the names of its fused layers.

TensorRT spells fused layers, regions and precisions in several ways: 8.x writes `a + PWN(b, c)` and formats in words,
10.x single words and the ONNX nodes under `Metadata`. Nothing here imports TensorRT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.schemas import LAYER_INFO, parse_json

_TYPES = ("int8", "fp16", "fp32", "bf16", "fp8", "int32", "int64", "bool", "uint8")
_TYPE_WORDS = dict(zip(_TYPES, _TYPES), half="fp16", float="fp32", bfloat16="bf16")
_TYPE = re.compile(r"\b(" + "|".join(_TYPE_WORDS) + r")\b", re.IGNORECASE)
FLOATING = ("int8", "fp16", "fp32", "bf16", "fp8")
"""Precisions of layers that compute with real numbers; the rest is shape arithmetic."""
HELPERS = frozenset(("reformat", "noop", "copy", "shape_call", "signal", "wait", "constant"))
"""Types of layers that only move or copy data."""
_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}", re.DOTALL)
_PROFILE = re.compile(r" \[profile \d+\]$")
_ONNX_LAYER = re.compile(r"^\[ONNX Layer: (.*)\]$", re.DOTALL)


def precision_of(words: str) -> str:
    """'Thirty-two wide channel vectorized row major Int8 format', 'Half' -> 'int8', 'fp16'; '' if none is named."""
    found = _TYPE.search(words)
    return _TYPE_WORDS[found[1].lower()] if found else ""


_LAYOUTS: tuple[tuple[re.Pattern[str], dict[str, int]], ...] = (
    (re.compile(r"(?i)(thirty-two|sixteen|four|two) wide channel"), dict(zip(("two", "four", "sixteen"), (2, 4, 16)))),
    (re.compile(r"(?i)\b(?:N?C/?|CHW|HWC)(\d+)"), {}),
    (re.compile(r"(?i)channel % (\d+)"), {}),
)


def layout_of(words: str) -> str:
    """'Four wide channel vectorized row major Int8 format' -> 'CHW4'; 'linear', or '' if none is named."""
    for pattern, numbers in _LAYOUTS:
        found = pattern.search(words)
        if found:
            major = "HWC" if re.search(r"(?i)channel major|hwc", words) else "CHW"
            return f"{major}{found[1] if found[1].isdigit() else numbers.get(found[1].lower(), 32)}"
    if re.search(r"(?i)channel major|\bHWC\b", words):
        return "HWC"
    dla = re.search(r"(?i)\bDLA[ _]?(linear|HWC4)", words)
    return f"DLA {dla[1].lower()}" if dla else "linear" if re.search(r"(?i)linear|row major|\bCHW\b", words) else ""


@dataclass(frozen=True)
class EngineTensor:
    """An input or output of an engine layer; `words`: TensorRT's own description of format and type."""

    name: str
    words: str

    @property
    def precision(self) -> str:
        return precision_of(self.words)


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine. `metadata`: ONNX nodes that TensorRT itself names; `weights`: their type or ''."""

    name: str
    layer_type: str
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    weights: str = ""
    origin: str = ""
    tactic: str = ""
    metadata: tuple[str, ...] = ()

    @property
    def region(self) -> str:
        """The text between the brackets of `{ForeignNode[...]}`; '' for other layers."""
        found = _FOREIGN.match(self.name)
        return found[1] if found else ""

    @property
    def precision(self) -> str:
        """Precision of the layer: type of its weights, else the common type of its floating-point inputs.

        A convolution with INT8 weights reads INT8, for any output type; a second input of higher precision (of a fused
        Add) does not change that. '' if unknown.
        """
        if self.weights in FLOATING:
            return self.weights
        kinds = [t.precision for t in self.inputs if t.precision in FLOATING]
        if not kinds:
            return ""
        # names of kernels that multiply INT8, as TensorRT's tactics and CUTLASS spell them
        if "int8" in kinds and re.search(r"i8i8|int8|imma|i8f32|i8816|i8i32", self.tactic):
            return "int8"
        return max(kinds, key=("int8", "fp8", "fp16", "bf16", "fp32").index)


def read_layer_info(path: Path) -> list[EngineLayer]:
    """Read the output of `--exportLayerInfo` or our builder. Raises UserError if it is unusable."""
    return parse_layer_info(read_text(path, "Check the path."), str(path))


def parse_layer_info(text: str, origin: str = "The layer information") -> list[EngineLayer]:
    """Layer information JSON of TensorRT 8.x, 10.x and 11.x; unescaped control characters are accepted.

    Raises UserError on other JSON, and on files with names only.
    """
    content = parse_json(text, LAYER_INFO, origin, "Give the file that trtexec --exportLayerInfo=FILE wrote.")
    rows = content.get("Layers") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{origin} lists no layers.", "Give the file that trtexec --exportLayerInfo=FILE wrote.")
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(
            f"{origin} contains only layer names, no precisions.",
            "Build the engine again with --profilingVerbosity=detailed (it is fixed at build time) and export again.",
        )
    return [_layer(row) for row in rows]


def _layer(row: Mapping[str, Any]) -> EngineLayer:
    def tensors(key: str) -> tuple[EngineTensor, ...]:
        return tuple(
            EngineTensor(str(t.get("Name", "")), str(t.get("Format/Datatype") or t.get("Datatype") or ""))
            for t in row.get(key) or ()
            if isinstance(t, dict)
        )

    weights = row.get("Weights")
    # '[ONNX Layer: a]<U+001E or U+001F>[ONNX Layer: b]'; the names may hold brackets
    parts = re.split(r"[\x1e\x1f]|(?<=\])(?=\[ONNX Layer: )", str(row.get("Metadata", "")))
    return EngineLayer(
        _PROFILE.sub("", str(row.get("Name", ""))),
        str(row.get("LayerType", "")),
        tensors("Inputs"),
        tensors("Outputs"),
        precision_of(str(weights.get("Type", ""))) if isinstance(weights, dict) else "",
        str(row.get("Origin", "")),
        str(row.get("TacticName", "")),
        tuple(found[1] for found in map(_ONNX_LAYER.match, parts) if found),
    )


def fused_names(text: str, known: Mapping[str, Any]) -> list[str]:
    """'w + Conv_1 + PWN(Sigmoid_2, Mul_3)' -> its parts. A part that is a `known` name is not split."""
    if text in known:
        return [text]
    wrapped = re.fullmatch(r"\w*PWN\((.*)\)", text, re.DOTALL)
    if wrapped and _balanced(wrapped[1]):  # not 'PWN(a) + Conv + PWN(b)'
        return [name for piece in _pieces(wrapped[1], r", | \+ ", known, "") for name in fused_names(piece, known)]
    pieces = _pieces(text, r" \+ ", known, r"\w*PWN\(")
    return pieces if len(pieces) == 1 else [name for piece in pieces for name in fused_names(piece, known)]


def _pieces(text: str, separator: str, known: Mapping[str, Any], nested: str) -> list[str]:
    """The text between separators, except those inside known names and inside parentheses after `nested`."""
    ends = [*(match.span() for match in re.finditer(separator, text)), (len(text), len(text))]
    found, start, index = [], 0, 0
    while index < len(ends):
        # a name may hold separators itself; with more than seven of them the search would be slow in long texts
        longer = range(min(len(ends), index + 8) - 1, index, -1)
        stop = next((end for end in longer if text[start : ends[end][0]] in known), index)
        if stop == index and re.match(nested, text[start:]):
            while stop + 1 < len(ends) and (piece := text[start : ends[stop][0]]).count("(") > piece.count(")"):
                stop += 1
        found.append(text[start : ends[stop][0]])
        start, index = ends[stop][1], stop + 1
    return found


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0
