"""Rule Q14: insert Q/DQ pairs for the scales in a sidecar file of a float model.

Formats, recognized by content: AIMET encodings (0.x, 1.0, 2.0), ONNX Runtime's calibration table (JSON or text), PPQ's
quantization table, TensorRT's calibration cache, and tables of names with ranges or scales (JSON, CSV, text). A format
is a function and a row of `_FORMATS`. Real values are `(quantized value - zero point) * scale` in all of them; float
entries and biases wider than 8 bits are skipped.
"""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.schemas import parse_json
from qdq_translator.core.words import counted, quoted
from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import output_channels
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.quantizers.dialects.pairs import FakeQuantizer, bit_range, write_pair
from qdq_translator.translation.quantizers.parameters import Rejected, refusal

_HINT = (
    "Give AIMET encodings, ONNX Runtime's calibration table, PPQ's JSON, a TensorRT calibration cache, or names with "
    "their largest magnitudes."
)
_LARGEST = 2**32
"""Quantized values beyond it are no quantized values."""


@dataclass(frozen=True)
class Encoding:
    """The scales of one tensor. scales: one, or one a channel along `axis` (None: the output channels of the layer that
    reads it). low, high: the quantized values less the zero point."""

    tensor: str
    scales: List[float]
    low: int
    high: int
    axis: Optional[int] = None


def apply_scales(graph: Graph, path: str, diagnostics: Diagnostics) -> None:
    """Inserts a pair on every tensor that the file names, and reports how many have one. Raises UserError for a file
    that is none of these, for scales that are none, for names of which no tensor exists, and for a model that has Q/DQ
    already."""
    types, constants = TensorTypes(graph), Constants(graph)
    if constants.quantizers:
        what = f"The model has Q/DQ nodes ({constants.quantizers[0].label}), and {path} has scales for a float model."
        raise UserError(what, "Give the float model, or leave --scales out.")
    name, encodings = read_scales(path)
    activations = {tensor for tensor in graph.tensors() if types.is_float(tensor) and not constants.is_constant(tensor)}
    check_names((row.tensor for row in encodings), graph, path)
    known = [row for row in encodings if row.tensor in activations or row.tensor in graph.initializers]
    if not known:
        raise UserError(f"{path} has no scale for a float tensor of the model.", "Calibrate the model again.")
    _insert(graph, constants, known, path)
    covered, of = sum(row.tensor in activations for row in known), len(activations)
    weights = len(known) - covered
    diagnostics.info(
        "Q14",
        f"{path} ({name}) has scales of {covered} of {counted(of, 'float tensor')} ({100 * covered / max(of, 1):.0f}%) "
        f"and of {counted(weights, 'weight')}.",
        data={"format": name, "covered": covered, "of": of, "weights": weights},
    )
    there = {row.tensor for row in known}
    unknown = [row.tensor for row in encodings if row.tensor not in there]
    if unknown:
        diagnostics.warning(
            "Q14",
            f"{counted(len(unknown), 'name')} in {path} match no float tensor of the model: {quoted(unknown)}.",
            hint="Names must be those of the ONNX file that the scales were made for.",
            data={"unknown": unknown},
        )


def check_names(names: Iterable[str], graph: Graph, source: str) -> None:
    """Raises UserError for the names of `source` if it was made for another network. Exporters name inputs and outputs
    of all networks alike, and TensorRT its own tensors: such names count only if there are no others."""
    ends, tensors = {*graph.inputs, *graph.outputs}, {*graph.tensors(), *graph.initializers}
    every = list(names)
    own = [name for name in every if name in tensors or not _AUTOMATIC.search(name)] or every
    inner = [name for name in own if name not in ends] or own
    foreign = [name for name in inner if name not in tensors]
    if every and len(inner) - len(foreign) <= _LEAST_KNOWN * len(inner):
        raise UserError(
            f"The model has {len(inner) - len(foreign)} of the names in {source} and lacks {len(foreign)}, such as "
            f"'{foreign[0]}': the scales were made for another network.",
            "Give the model that they were made for; names must be those of the ONNX file.",
        )


_LEAST_KNOWN = 1 / 3
"""Of caches and models of 62 zoo files, those of one network have more than 0.46 of the names in common, those of two
at most 0.25; YOLOv5 and YOLOv8, whose modules have equal names, 0.57. Rewrites for a DLA may leave a ViT 0.24 of the
names that it has for a GPU."""
_AUTOMATIC = re.compile(r"^\(Unnamed Layer|^ONNXTRT_|_output$")
"""Names that TensorRT makes for tensors that only its own network has (rule S10)."""


def activation_scales(path: str) -> dict[str, float]:
    """Tensor -> the symmetric scale that holds its range, of all rows with one scale: for `--keep_model`, which leaves
    weights as they are. Raises UserError as `apply_scales` for the file."""
    rows = (row for row in read_scales(path)[1] if len(row.scales) == 1)
    return {row.tensor: row.scales[0] * max(row.high / 127, -row.low / 128) for row in rows}


def _insert(graph: Graph, constants: Constants, rows: Sequence[Encoding], path: str) -> None:
    """Raises UnsupportedQuantizer if INT8 cannot hold one."""
    rejected: list[Rejected] = []
    for row in rows:
        source = result = row.tensor
        axis = _axis(graph, row, path) if len(row.scales) > 1 else None
        if source in graph.outputs and source in graph.producer:
            source = graph.before_output(result)
        else:
            result = graph.unique_name(f"{source}_dequantized")
        graph.replace_uses(source, result)
        stand_in = Node("Identity", [source], [result], row.tensor)
        graph.insert_after(stand_in, graph.producer.get(source))
        scale = np.array(row.scales if axis is not None else row.scales[0], np.float32)
        found = FakeQuantizer(source, result, scale, row.low, row.high, axis, stand_in)
        try:
            write_pair(graph, constants, found)
        except Rejected as why:
            rejected.append(why)
    if rejected:
        raise refusal(rejected)


def _axis(graph: Graph, row: Encoding, path: str) -> int:
    """Channel axis of a weight. Raises UserError if channels and scales differ in number."""
    tensor = graph.initializers.get(row.tensor)
    shape = list(tensor.dims) if tensor is not None else []
    axis = row.axis
    for node in graph.consumers(row.tensor) if axis is None else ():
        found = output_channels(node, node.inputs.index(row.tensor), len(shape))
        axis = found.axis if found is not None else axis
    axis = 0 if axis is None else axis
    if not -len(shape) <= axis < len(shape) or shape[axis] != len(row.scales):
        what = f"{path} has {len(row.scales)} scales for '{row.tensor}', whose shape is {shape} (axis {axis})."
        raise UserError(what, "Give the encodings that were made for this model; activations have one scale.")
    return axis


def _content(text: str, path: str) -> Any:
    """JSON where it begins like JSON, rows by their names; else the text. Raises UserError for a file that is known and
    has no scales of tensors."""
    for sign, what, hint in _OTHERS:
        if re.search(sign, text):
            raise UserError(f"{path} {what}.", hint)
    if text.lstrip()[:1] == "{":
        return parse_json(text, {"type": "object"}, path, _HINT)
    if re.match(r"\s*\[\s*\{", text):
        rows = parse_json(text, {"type": "array", "items": {"type": "object"}}, path, _HINT)
        return {str(row.get("name", row.get("tensor", ""))): row for row in rows}
    return text


def read_scales(path: str) -> tuple[str, list[Encoding]]:
    """The format's name and the INT8 entries of the file. Raises UserError."""
    text = read_text(Path(path), "Check --scales.")
    content = _content(text, path)
    try:
        name, read = next((name, read) for name, matches, read in _FORMATS if matches(content))
        rows = list(read(content, path))
    except StopIteration:
        raise UserError(f"{path} is not a scale file of a known format.", _HINT) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, csv.Error) as error:
        what = f"{path} does not follow its format: {type(error).__name__} {error}."
        raise UserError(what, "Export it again.") from error
    seen: dict[str, Encoding] = {}
    for row in rows:
        if not isinstance(row.tensor, str) or max(abs(row.low), abs(row.high)) > _LARGEST:
            what = f"{path} gives {str(row.tensor)[:60]!r} values of {row.low} to {row.high}."[:300]
            raise UserError(what, "Tensors have names, and quantized values at most 32 bits.")
        bad = [scale for scale in row.scales if not 0 < scale < np.inf]
        if bad or not row.scales:
            what = f"{path} gives '{row.tensor}' the scale {bad[0] if bad else 'nothing'}."
            raise UserError(what, "A scale must be finite and above 0; calibrate that tensor again.")
        if seen.setdefault(row.tensor, row) != row:
            raise UserError(f"{path} gives '{row.tensor}' two scales that differ.", "Export it again with one.")
    return name, list(seen.values())


_Rows = Iterator[Encoding]


def _listed(value: Any) -> list[float]:
    return [float(v) for v in np.atleast_1d(np.asarray(value, np.float64))]


def _bits(value: Any) -> int:
    """Raises ValueError for a width that no quantized value has."""
    bits = int(value)
    if not 1 <= bits <= 32:
        raise ValueError(f"a width of {bits if abs(bits) < _LARGEST else 'far too many'} bits")
    return bits


def _offset(tensor: str, offsets: Any, path: str) -> int:
    """The zero point that all channels share."""
    values = sorted(set(_listed(offsets)))
    if len(values) != 1 or values[0] != round(values[0]):
        what = f"{path} gives the channels of '{tensor}' different zero points."
        raise UserError(what, "Quantize weights symmetrically.")
    return int(values[0])


def _aimet(content: Any, path: str) -> _Rows:
    """Offsets are the lowest quantized value less the zero point."""
    for section in ("activation_encodings", "param_encodings"):
        given = content.get(section, {})
        rows = given if isinstance(given, list) else [_aimet_0(n, row, path) for n, row in given.items()]
        for row in rows:
            bits = _bits(row["bw"])
            if str(row.get("dtype", "int")).lower() != "int" or (bits > 8 and section.startswith("param")):
                continue
            if "BLOCK" in str(row.get("enc_type", "")) or "LPBQ" in str(row.get("enc_type", "")):
                raise UserError(f"{path} quantizes '{row['name']}' in blocks.", "Implicit INT8 has no block scales.")
            low = _offset(row["name"], row["offset"], path)
            yield Encoding(row["name"], _listed(row["scale"]), low, low + 2**bits - 1)


def _aimet_0(name: str, channels: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """Scales of AIMET's oldest form of encodings, brought into that of version 1.0."""
    if isinstance(channels, dict):
        what = f"{path} names modules of PyTorch ('{name}'), not tensors."
        raise UserError(what, "Give the .encodings without '_torch' that AIMET wrote with it.")
    first, keys = channels[0], ("scale", "offset")
    columns = {key: [channel[key] for channel in channels] for key in keys if key in first}
    return {"name": name, "bw": first["bitwidth"], "dtype": first.get("dtype", "int"), **columns}


def _aimet_2(content: Any, path: str) -> _Rows:
    for row in content["encodings"]:
        kind = str(row["output_dtype"])
        signed, bits = not kind.startswith("u"), kind.lstrip("u")
        if not bits.startswith("int") or bits == "int32":
            continue
        if row.get("block_size"):
            raise UserError(f"{path} quantizes '{row['name']}' in blocks.", "Implicit INT8 has no block scales.")
        low, high = bit_range(_bits(bits[3:]), signed)
        zero = _offset(row["name"], row.get("y_zero_point") or 0, path)
        yield Encoding(row["name"], _listed(row["y_scale"]), low - zero, high - zero, row.get("axis"))


def _table(content: Any, path: str) -> _Rows:
    """ONNX Runtime: the range of each tensor."""
    for name, row in content["data"].items():
        ends = [row[end]["data"] if isinstance(row[end], dict) else row[end] for end in ("lowest", "highest")]
        ends = [float(np.asarray(end).reshape(-1)[0]) for end in ends]
        yield Encoding(name, [max(map(abs, ends)) / 127], -128, 127)


def _text_table(content: Any, path: str) -> _Rows:
    """Scales from lines of text, each a name and the largest magnitude."""
    for number, line in enumerate(content.splitlines(), 1):
        name, _, amax = line.rpartition(" ")
        if not 0 < abs(float(amax)) < np.inf:
            raise UserError(f"{path}, line {number}: '{name}' reaches {amax}.", "Calibrate that tensor again.")
        yield Encoding(name, [abs(float(amax)) / 127], -128, 127)


_RANGES, _SCALES = ("max", "amax", "range", "ranges", "threshold", "out_threshold"), ("scale", "scales", "int8_scale")
"""Names of a column or key."""


def _stated(path: str, form: str = "", key: str = "") -> str:
    """'max' or 'scale', as the key or the file name has it, else as its form means. Raises UserError if nothing
    tells."""
    words = {*re.split(r"[^a-z]+", f"{key} {Path(path).stem}".lower())}
    if words & {*_SCALES} or words & {*_RANGES} or form:
        return "scale" if words & {*_SCALES} else "max"
    raise UserError(
        f"{path} gives a number for each tensor and does not say whether it is the largest magnitude or the scale.",
        'Put them below a key, {"max": {...}} or {"scale": {...}}; CSV takes a title line, name,max or name,scale.',
    )


def _numbers(content: Any, path: str) -> _Rows:
    """Name -> number, or name -> object with a maximum, a minimum and a maximum, or a scale; also below one key that
    names the kind, such as NVIDIA's `int8_tensor_scales`."""
    (key, inner), *more = content.items()
    if not more and isinstance(inner, dict) and not {*_RANGES, *_SCALES} & {word.lower() for word in inner}:
        content = {name: {_stated(path, key=key): value} for name, value in inner.items()}
    elif "int8_tensor_scales" in content:
        content = {name: {"scale": value} for name, value in content["int8_tensor_scales"].items()}
    for name, row in content.items():
        row = dict(zip(("min", "max"), row)) if isinstance(row, list) else row
        row = {word.lower(): value for word, value in row.items()} if isinstance(row, dict) else {_stated(path): row}
        yield _of_columns(name, row)


def _of_columns(name: str, row: Mapping[str, Any]) -> Encoding:
    """Raises KeyError for a row without a known column."""
    scale = next((row[word] for word in _SCALES if word in row), None)
    if scale is None:
        ends = [row[word] for word in ("min", *_RANGES) if word in row]
        scale = max(abs(float(end)) for end in ends) / 127 if ends else row["max"]
    return Encoding(name, [float(scale)], -128, 127)


def _is_numbers(content: Any) -> bool:
    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def is_row(value: Any) -> bool:
        if isinstance(value, list):
            return len(value) == 2 and all(map(is_number, value))
        return isinstance(value, dict) and any(is_number(inner) for inner in value.values())

    if not isinstance(content, dict) or not content:
        return False
    return "int8_tensor_scales" in content or all(is_number(row) or is_row(row) for row in content.values())


def _csv(content: Any, path: str) -> _Rows:
    """Columns by their titles, else a name and a number."""
    separator = next(sign for sign in ",;\t" if sign in content)
    rows = list(csv.reader(io.StringIO(content), skipinitialspace=True, delimiter=separator))
    titles = [title.strip().lower() for title in rows[0]]
    if not {*_RANGES, *_SCALES} & {*titles[1:]}:
        titles = ["name", _stated(path)]
    else:
        del rows[0]
    for row in filter(None, rows):
        yield _of_columns(row[0], dict(zip(titles[1:], row[1:])))


def _is_csv(content: Any) -> bool:
    rows = [line for line in content.splitlines() if line.strip()] if isinstance(content, str) else []
    return bool(rows) and any(
        all(sign in row and _is_decimal(row.rpartition(sign)[2]) for row in rows[1:] or rows) for sign in ",;\t"
    )


def _colons(content: Any, path: str) -> _Rows:
    """The form of NVIDIA's sampleINT8API and Paddle2ONNX's max_range.txt: a name and its largest magnitude; weights
    with a scale a channel are names alone there."""
    kind = _stated(path, "max")
    for line in content.splitlines():
        name, colon, value = line.rpartition(":")
        if not colon:
            continue
        yield _of_columns(name.strip(), {kind: value})


def _is_colons(content: Any) -> bool:
    """Decimal numbers; eight hexadecimal digits without a point are those of a cache."""
    rows = [line for line in content.splitlines() if line.strip()] if isinstance(content, str) else []
    values = [row.rpartition(":")[2].strip() for row in rows if ":" in row]
    alone = all(len(row.split()) == 1 for row in rows if ":" not in row)
    return alone and all(map(_is_decimal, values)) and any("." in v for v in values)


def _is_decimal(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_text_table(content: Any) -> bool:
    rows = content.splitlines() if isinstance(content, str) else []
    try:
        return bool(rows) and all(" " in row and float(row.rpartition(" ")[2]) is not None for row in rows)
    except ValueError:
        return False


def _cache(content: Any, path: str) -> _Rows:
    cache = CalibrationCache.from_text(content, path)
    if cache.unreadable:
        number, line = cache.unreadable[0]
        raise UserError(f"{path}, line {number} is no scale: '{line}'.", "Lines read like 'tensor: 3c010204'.")
    for name, scale in cache.scales.items():
        yield Encoding(name, [scale], -128, 127)


def _ppq(content: Any, path: str) -> _Rows:
    for tensors in content["configs"].values():
        for name, row in tensors.items():
            if row.get("state") in ("INITIAL", "PASSIVE_INIT", "FP32", "SOI") or int(row["bit_width"]) > 16:
                continue
            value = content["values"][str(row.get("dominator", row["hash"]))]
            zero = _offset(name, value.get("zero_point", value.get("offset", 0)), path)
            low, high = int(row["quant_min"]) - zero, int(row["quant_max"]) - zero
            yield Encoding(name, _listed(value["scale"]), low, high)


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, dict) and all(key in content for key in keys)


_OTHERS = (
    (
        r"(?m)^\S+_param_\d+(?: [-+.\deE]+)+$",
        "is a table for ncnn, as mmdeploy writes it: it names layers, not tensors",
        "Give PPQ's quantization table (JSON) of the same run.",
    ),
    (
        "^.?HDF\r?\n",
        "is HDF5, such as mmdeploy's calib_data.h5: it holds samples, not scales",
        "Give the samples to --calibrate.",
    ),
)
"""What the text of a file that is often given shows, what it is, and what to give in its place."""
_FORMATS: Tuple[Tuple[str, Callable[[Any], bool], Callable[[Any, str], _Rows]], ...] = (
    ("AIMET encodings", _has("activation_encodings"), _aimet),
    ("AIMET encodings 2.0", _has("encodings"), _aimet_2),
    ("ONNX Runtime calibration table", _has("CLS", "data"), _table),
    ("PPQ quantization table", _has("configs", "values"), _ppq),
    ("names with numbers", _is_numbers, _numbers),
    ("lines of a name and a range", _is_colons, _colons),
    ("CSV", _is_csv, _csv),
    ("ONNX Runtime calibration table (text)", _is_text_table, _text_table),
    ("TensorRT calibration cache", lambda content: isinstance(content, str), _cache),
)
