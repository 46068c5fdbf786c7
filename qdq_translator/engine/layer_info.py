"""Layer information JSON: the layers of an engine as TensorRT reports them, and the names of its fused layers.

It names fused layers, regions and precisions in several spellings: 8.x writes `a + PWN(b, c)` and formats in words,
10.x single words and the ONNX nodes under `Metadata`. Nothing here imports TensorRT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.schemas import LAYER_INFO, parse_json

_TYPE_WORDS = {
    "int8": "int8",
    "fp16": "fp16",
    "half": "fp16",
    "fp32": "fp32",
    "float": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "uint8": "uint8",
}
_TYPE = re.compile(r"\b(" + "|".join(_TYPE_WORDS) + r")\b", re.IGNORECASE)
FLOATING = ("int8", "fp16", "fp32", "bf16", "fp8")
"""Precisions of layers that compute with real numbers; the rest is shape arithmetic."""
_HELPER_TYPES = frozenset(("reformat", "noop", "copy", "shape_call", "signal", "wait", "constant"))
_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}", re.DOTALL)
_PROFILE = re.compile(r" \[profile \d+\]$")
_ONNX_LAYER = re.compile(r"^\[ONNX Layer: (.*)\]$", re.DOTALL)


def precision_of(words: str) -> str:
    """'Thirty-two wide channel vectorized row major Int8 format', 'Half' -> 'int8', 'fp16'; '' if none is named."""
    found = _TYPE.search(words)
    return _TYPE_WORDS[found[1].lower()] if found else ""


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
    def is_helper(self) -> bool:
        """Moves or copies data; computes nothing of the model."""
        return self.layer_type.lower() in _HELPER_TYPES

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
        if "int8" in kinds and re.search(r"i8i8|int8|imma|i8f32|i8816|i8i32", self.tactic):
            return "int8"
        return max(kinds, key=("int8", "fp8", "fp16", "bf16", "fp32").index)


@dataclass(frozen=True)
class LayerInfo:
    """The layers of an engine in its order, and the names of its inputs and outputs."""

    layers: tuple[EngineLayer, ...]
    bindings: tuple[str, ...]


def read_layer_info(path: Path) -> LayerInfo:
    """Read the output of `--exportLayerInfo` or our builder. Raises UserError if it is unusable."""
    return parse_layer_info(read_text(path, "Check the path."), str(path))


def parse_layer_info(text: str, origin: str = "The layer information") -> LayerInfo:
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
    bindings: Sequence[Any] = ()
    if isinstance(content, dict):
        bindings = content.get("Bindings") or content.get("I/O Tensors") or ()
    names = (b.get("Name", "") if isinstance(b, dict) else str(b) for b in bindings)
    return LayerInfo(tuple(_layer(row) for row in rows), tuple(names))


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


def _split_top(text: str, separator: str) -> list[str]:
    """Splits outside of parentheses; parentheses that do not balance are text."""
    parts, depth, start, index = [], 0, 0, 0
    while index < len(text):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth = max(0, depth - 1)
        elif not depth and text.startswith(separator, index):
            parts.append(text[start:index])
            index += len(separator)
            start = index
            continue
        index += 1
    return [*parts, text[start:]]


def fused_names(text: str, known: Mapping[str, Any]) -> list[str]:
    """'w + Conv_1 + PWN(Sigmoid_2, Mul_3)' -> its parts. A part that is a `known` name is not split."""
    if text in known:
        return [text]
    wrapped = re.fullmatch(r"\w*PWN\((.*)\)", text, re.DOTALL)
    if wrapped and not _balanced(wrapped[1]):
        wrapped = None  # 'PWN(a) + Conv + PWN(b)'
    inner = wrapped[1] if wrapped else text
    separators = (", ", " + ") if wrapped else (" + ",)
    for separator in separators:
        pieces = inner.split(separator) if separator == " + " and not wrapped else _split_top(inner, separator)
        joined = list(_joined(pieces, separator, known))
        if len(joined) > 1:
            return [name for piece in joined for name in fused_names(piece, known)]
    return fused_names(inner, known) if wrapped else [text]


def _joined(pieces: list[str], separator: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Rejoin pieces that form one name, or one pair of parentheses."""
    index = 0
    while index < len(pieces):
        stop = index + 1
        for end in range(min(len(pieces), index + 8), index + 1, -1):
            if separator.join(pieces[index:end]) in known:
                stop = end
                break
        else:
            if re.match(r"\w*PWN\(", pieces[index]):
                while stop < len(pieces) and (text := separator.join(pieces[index:stop])).count("(") > text.count(")"):
                    stop += 1
        yield separator.join(pieces[index:stop])
        index = stop


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0
