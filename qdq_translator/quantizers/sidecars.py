"""Rule Q14: insert Q/DQ pairs for the scales in a sidecar file of a float model.

Formats, recognized by content: AIMET encodings (0.x, 1.0, 2.0), ONNX Runtime's calibration table (JSON or text), PPQ's
quantization table, TensorRT's calibration cache. A format is a function and a row of `_FORMATS`. Real values are
`(quantized value - zero point) * scale` in all of them; float entries and biases wider than 8 bits are skipped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.disk import read_text
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.words import counted, quoted
from qdq_translator.ir.constants import Constants
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import output_channels
from qdq_translator.ir.types import TensorTypes
from qdq_translator.quantizers.dialects.pairs import FakeQuantizer, bit_range, write_pair
from qdq_translator.quantizers.parameters import Rejected, refusal

_HINT = "Give AIMET encodings, ONNX Runtime's calibration table, PPQ's JSON or a TensorRT calibration cache."


@dataclass(frozen=True)
class Encoding:
    """Of one tensor. scales: one, or one a channel along `axis` (None: the output channels of the layer that reads it).
    low, high: the quantized values less the zero point."""

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


def read_scales(path: str) -> tuple[str, list[Encoding]]:
    """The format's name and the INT8 entries of the file. Raises UserError."""
    text = read_text(Path(path), "Check --scales.")
    content: Any = text
    if text.lstrip()[:1] == "{":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} cannot be read as JSON: {error}.", _HINT) from error
    try:
        name, read = next((name, read) for name, matches, read in _FORMATS if matches(content))
        rows = list(read(content, path))
    except StopIteration:
        raise UserError(f"{path} is not a scale file of a known format.", _HINT) from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = f"{path} does not follow its format: {type(error).__name__} {error}."
        raise UserError(what, "Export it again.") from error
    seen: dict[str, Encoding] = {}
    for row in rows:
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
            bits = int(row["bw"])
            if str(row.get("dtype", "int")).lower() != "int" or (bits > 8 and section.startswith("param")):
                continue
            if "BLOCK" in str(row.get("enc_type", "")) or "LPBQ" in str(row.get("enc_type", "")):
                raise UserError(f"{path} quantizes '{row['name']}' in blocks.", "Implicit INT8 has no block scales.")
            low = _offset(row["name"], row["offset"], path)
            yield Encoding(row["name"], _listed(row["scale"]), low, low + 2**bits - 1)


def _aimet_0(name: str, channels: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """As version 1.0 has it."""
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
        low, high = bit_range(int(bits[3:]), signed)
        zero = _offset(row["name"], row.get("y_zero_point") or 0, path)
        yield Encoding(row["name"], _listed(row["y_scale"]), low - zero, high - zero, row.get("axis"))


def _table(content: Any, path: str) -> _Rows:
    """ONNX Runtime: the range of each tensor."""
    for name, row in content["data"].items():
        ends = [row[end]["data"] if isinstance(row[end], dict) else row[end] for end in ("lowest", "highest")]
        ends = [float(np.asarray(end).reshape(-1)[0]) for end in ends]
        yield Encoding(name, [max(map(abs, ends)) / 127], -128, 127)


def _text_table(content: Any, path: str) -> _Rows:
    """The same as lines of a name and the largest magnitude."""
    for number, line in enumerate(content.splitlines(), 1):
        name, _, amax = line.rpartition(" ")
        if not 0 < abs(float(amax)) < np.inf:
            raise UserError(f"{path}, line {number}: '{name}' reaches {amax}.", "Calibrate that tensor again.")
        yield Encoding(name, [abs(float(amax)) / 127], -128, 127)


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


_FORMATS: Tuple[Tuple[str, Callable[[Any], bool], Callable[[Any, str], _Rows]], ...] = (
    ("AIMET encodings", _has("activation_encodings"), _aimet),
    ("AIMET encodings 2.0", _has("encodings"), _aimet_2),
    ("ONNX Runtime calibration table", _has("CLS", "data"), _table),
    ("PPQ quantization table", _has("configs", "values"), _ppq),
    ("ONNX Runtime calibration table (text)", _is_text_table, _text_table),
    ("TensorRT calibration cache", lambda content: isinstance(content, str), _cache),
)
