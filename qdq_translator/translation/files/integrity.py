"""Integrity of the files of one translation, and later changes to them.

`contents` records the set when it is written: a digest of every node, every initializer and every input and output of
the stripped model (external data included), of cache, layer argument and precision config, and one digest over all, the
set's id, which the precision config and the model's metadata also contain. `disagreements` compares the files with that
record, and cache, config and layer argument with the report entry by entry, so that it names everything changed,
removed or added since.

Digests are the first 64 bits of SHA-256 (the set's id: 128); the values of an initializer enter them as a CRC-32, which
costs a third (`benchmarks/verify.py`). They guard against mixed up, stale or edited files, not against an attacker.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional

import numpy as np
import onnx
from onnx import numpy_helper

from qdq_translator.core.disk import read_text
from qdq_translator.core.formats.calibration_cache import CalibrationCache, is_usable, scale_to_hex
from qdq_translator.core.formats.files import SET_DIGITS, SET_KEY, TranslationFiles, digest, digest_of_json
from qdq_translator.core.formats.layer_precisions import fp16_layers
from qdq_translator.core.formats.report_rows import LayerPlan
from qdq_translator.core.formats.rows import read
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.weights import Initializer, Weight
from qdq_translator.translation.targets.precision import asked

_MODEL_PARTS = {
    "ends": ("graph input, output or opset", "has another type, shape or version"),
    "nodes": ("node", ""),
    "initializers": ("initializer", "has other values"),
}
"""Part of the model's contents -> its kind of entry, and the wording for one that differs."""


def _of_tensor(tensor: Initializer) -> str:
    """Type, shape and values, independent of how they are stored."""
    if isinstance(tensor, Weight):
        checksum = tensor.checksum()
    elif tensor.data_type == onnx.TensorProto.STRING:
        checksum = zlib.crc32(b"\0".join(tensor.string_data))
    else:
        checksum = zlib.crc32(tensor.raw_data or np.ascontiguousarray(numpy_helper.to_array(tensor)).tobytes())
    return digest([repr((tensor.data_type, *tensor.dims)).encode(), checksum.to_bytes(4, "little")])


def _of_nodes(nodes: Iterable[Node]) -> dict[str, str]:
    """Node -> two digests: one of its operator, inputs and outputs, one of its attributes."""
    found = {}
    for node in nodes:
        given = node.attributes
        attributes = digest(given[key].SerializeToString(deterministic=True) for key in sorted(given))
        wiring = [node.domain, node.op_type, *node.inputs, "", *node.outputs]
        found[node.name] = f"{digest([text.encode('utf-8', 'surrogateescape') for text in wiring])} {attributes}"
    return found


def model_contents(graph: Graph) -> dict[str, dict[str, str]]:
    """`ends` (inputs, outputs, opsets), `nodes` and `initializers`, each a mapping from name to digest."""
    ends = {
        f"{kind} '{name}'": digest([value.type.SerializeToString(deterministic=True)])
        for kind, values in (("input", graph.inputs), ("output", graph.outputs))
        for name, value in values.items()
    }
    used = {node.domain for node in graph.nodes} | {""}
    ends.update({f"opset '{name}'": str(version) for name, version in graph.opsets.items() if name in used})
    return {
        "ends": ends,
        "nodes": _of_nodes(graph.nodes),
        "initializers": {name: _of_tensor(tensor) for name, tensor in graph.initializers.items()},
    }


def contents(graph: Graph, cache: str, layer_argument: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The `integrity` entry of the report, computed from the stripped model, the text of cache and layer argument, and
    the precision config (without its `SET_KEY`)."""
    found: dict[str, Any] = {
        "model": model_contents(graph),
        "cache": digest_of_json(cache),
        "layer_arg": digest_of_json(layer_argument),
        "config": digest_of_json(config),
    }
    return {SET_KEY: digest_of_json(found, SET_DIGITS), **found}


# ---------------- later changes


def disagreements(
    files: TranslationFiles, graph: Graph, config: Mapping[str, Any], report: Mapping[str, Any]
) -> list[str]:
    """One sentence for each difference between the files and the output of the translation, [] if there is none.
    `graph`: of the stripped model on disk. `config`, `report`: {} if another translator wrote the set; existing ones
    are compared."""
    found: list[str] = []
    cache = files.read_cache()
    precisions = files.read_layer_precisions() if files.layer_arg.is_file() else None
    wrote = report.get("integrity")
    if report:
        scales = {row["tensor"]: row["scale"] for row in report.get("scales", ())}
        automatic = report.get("automatic_scales", {})
        plan = [read(LayerPlan, row) for row in report.get("plan", ())]
        listed = asked(plan, report.get("options", {}).get("float_type", "fp16"))
        who = "the report"
    elif config:
        scales, automatic = config.get("int8_tensor_scales", {}), config.get("automatic_tensor_scales", {})
        listed, who = _of_config(config), "the precision config"
    else:
        return []
    if wrote is not None:
        found += _model(wrote.get("model", {}), model_contents(graph))
    found += _cache(cache, {**scales, **automatic}, report.get("cache_version") or config.get("cache_version"), who)
    if precisions is not None:
        found += _layers("The layer argument", precisions, listed, who)
    if report and config:
        found += _scales("The precision config", config.get("int8_tensor_scales", {}), scales, who)
        found += _scales("The precision config", config.get("automatic_tensor_scales", {}), automatic, who)
        found += _layers("The precision config", _of_config(config), listed, who)
    if wrote is not None and not found:
        found += _rest(files, config, wrote)
    return found


def _of_config(config: Mapping[str, Any]) -> dict[str, str]:
    return {**fp16_layers(config.get("fp16_nodes", [])), **dict.fromkeys(config.get("fp32_nodes", []), "fp32")}


def _rest(files: TranslationFiles, config: Mapping[str, Any], wrote: Mapping[str, Any]) -> list[str]:
    """Changes outside entries: comments and order in a file, other keys of the config, files of other sets."""
    if config.get(SET_KEY) != wrote.get(SET_KEY):
        return ["The precision config and the report are of different translations (their set ids differ)."]
    own = {key: value for key, value in config.items() if key != SET_KEY}
    now: list[tuple[str, Path, Any]] = [("config", files.config, own)]
    for key, path in (("cache", files.cache), ("layer_arg", files.layer_arg)):
        text = read_text(path, "Translate the model again.") if path.is_file() else ""
        now.append((key, path, text))
    return [
        f"{path.name} was changed after the translation, in none of its entries."
        for key, path, content in now
        if digest_of_json(content) != wrote.get(key)
    ]


def _model(wrote: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    found: list[str] = []
    for part, (what, how) in _MODEL_PARTS.items():
        before, after = wrote.get(part, {}), now[part]
        label = "{}" if part == "ends" else f"{what} '{{}}'"
        found += [f"The model has lost the {label.format(name)}." for name in before if name not in after]
        found += [f"The model has a new {label.format(name)}." for name in after if name not in before]
        for name in before:
            if name in after and before[name] != after[name]:
                differs = how or _other_node(before[name], after[name])
                found.append(f"The model's {label.format(name)} {differs} than the translation wrote.")
    return found


def _other_node(before: str, after: str) -> str:
    """How a node differs from what it was, from its digests of `_of_nodes` then and now."""
    same_wiring = before.split()[:1] == after.split()[:1]
    return "has other attributes" if same_wiring else "is another operator or reads or makes other tensors"


def _cache(
    cache: CalibrationCache, scales: Mapping[str, float], version: Optional[Mapping[str, str]], who: str
) -> list[str]:
    found = []
    expected = f"TRT-{version['number']}-EntropyCalibration2" if version else cache.header
    if cache.header != expected:
        found.append(f"The cache has the header {cache.header}, {who} has {expected}.")
    found += [f"Line {number} of the cache cannot be read: {line!r}." for number, line in cache.unreadable]
    return found + _scales("The cache", cache.scales, {n: s for n, s in scales.items() if is_usable(s)}, who)


def _scales(what: str, given: Mapping[str, float], expected: Mapping[str, float], who: str) -> list[str]:
    found = [
        f"{what} has no scale for '{name}', {who} has {expected[name]:.6g}." for name in expected if name not in given
    ]
    found += [f"{what} has a scale for '{name}', {who} has none." for name in given if name not in expected]
    wrong = [n for n in given if n in expected and _bits(given[n]) != _bits(expected[n])]
    owner = {_bits(expected[name]): name for name in wrong}
    for name in wrong:
        twin = owner.get(_bits(given[name]))
        factor = f", {given[name] / expected[name]:.4g} times" if expected[name] else ""
        swapped = f": the scale of '{twin}'" if twin is not None and twin != name else factor
        found.append(f"{what} has the scale {given[name]:.6g} for '{name}', {who} {expected[name]:.6g}{swapped}.")
    return found


def _bits(scale: float) -> str:
    """The scale as in a cache; a config may contain values that no cache can."""
    try:
        return scale_to_hex(scale)
    except OverflowError:
        return repr(scale)


def _layers(what: str, given: Mapping[str, str], expected: Mapping[str, str], who: str) -> list[str]:
    found = [f"{what} does not keep layer '{name}' above INT8, {who} does." for name in expected if name not in given]
    found += [
        f"{what} asks for {given[name]} in layer '{name}', {who} does not." for name in given if name not in expected
    ]
    both = [name for name in given if name in expected and given[name] != expected[name]]
    return found + [f"{what} asks for {given[name]} in layer '{name}', {who} for {expected[name]}." for name in both]
