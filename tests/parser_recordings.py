"""Recordings of what TensorRT's open-source ONNX parsers make of small networks, and our predictions held against them.

`recorded/NAME.json`: parser version -> accepted, layers `[name, type, kind, ONNX node, inputs, outputs]` and constants with
their largest magnitude. Some lie in tests/data/parsers; all of them beside the project.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.qdq.restore import restore
from qdq_translator.translation.targets.parser_network import OwnTensor, ParsedNetwork, Version

OWN = Path(__file__).parent / "data" / "parsers"
VERSIONS = ("8.5", "8.6", "10.3", "10.10")
_LAYER_TYPES = {
    "constant": ("CONSTANT",),
    "broadcast": ("SHUFFLE",),
    "inside": ("MATRIX_MULTIPLY", "SOFTMAX", "SHUFFLE", "ELEMENTWISE", "ACTIVATION"),
}


@dataclasses.dataclass
class Recording:
    """One network as one parser made it; `path` is the model."""

    path: Path
    version: str
    layers: list[Any]
    constants: dict[str, float]

    @property
    def tensorrt(self) -> Version:
        major, minor = map(int, self.version.split("."))
        return major, minor, 0

    def graph(self) -> Graph:
        return Graph.from_model(onnx.load(str(self.path)))


def recordings(folder: Path) -> list[Recording]:
    """Every network in `folder` and every parser version that accepted it."""
    found = []
    for path in sorted((folder / "recorded").glob("*.json")):
        for version, network in json.loads(path.read_text()).items():
            if network["accepted"]:
                model = folder / "models" / f"{path.stem}.onnx"
                found.append(Recording(model, version, network["layers"], network["constants"]))
    return found


def hold(recording: Recording) -> tuple[Counter[str], list[str]]:
    """Counts of tensors that only the parser's network has, and what is wrong.

    written: predicted, there, and what was said of it; dead: no such tensor; wrong: another tensor; left out: not
    predicted, and said so; silent: not predicted and not said.
    """
    graph = recording.graph()
    made = {output: layer for layer in recording.layers for output in layer[5]}
    read = {name for layer in recording.layers for name in layer[4]}
    counts: Counter[str] = Counter()
    faults, seen, told = [], set(), set()
    for tensor in ParsedNetwork(graph, TensorTypes(graph), recording.tensorrt).own:
        if tensor.name is None:
            told.add(tensor.node.name)
            continue
        seen.add(tensor.name)
        verdict = "dead" if tensor.name not in made else "written" if _same(tensor, graph, recording, made) else "wrong"
        counts[verdict] += 1
        if verdict != "written":
            faults.append(f"{verdict}: {tensor.kind} of '{tensor.node.name}' as '{tensor.name}'")
    for name, layer in made.items():
        is_own = name not in graph.producer and name not in graph.inputs and name not in seen
        if not is_own or name not in read or _is_integer(name, layer, graph, made):
            continue
        verdict = "left out" if layer[3] in told else "silent"
        counts[verdict] += 1
        if verdict == "silent":
            faults.append(f"silent: '{name}' of {layer[:4]}")
    return counts, faults


def _same(tensor: OwnTensor, graph: Graph, recording: Recording, made: dict[str, Any]) -> bool:
    """The tensor of that name is what was said: kind of layer, node, and for constants the values."""
    layer = made[tensor.name]
    if layer[1] not in _LAYER_TYPES[tensor.kind] or (tensor.kind != "constant" and layer[3] != tensor.node.name):
        return False
    values = graph.array(tensor.source) if tensor.source else None
    if values is None:
        return not tensor.source or layer[4][0] == tensor.source
    constant = tensor.name if tensor.kind == "constant" else layer[4][0]
    return bool(np.isclose(recording.constants[constant], np.abs(values.astype(np.float64)).max(), rtol=1e-5))


def _is_integer(name: str, layer: Any, graph: Graph, made: dict[str, Any]) -> bool:
    """Shape arithmetic: integer initializers, and the layers with which the parser computes shapes."""
    if layer[1] in ("SHAPE", "GATHER", "CAST", "CONCATENATION") or "ONNXTRT_Shape" in layer[0]:
        return True
    tensor = graph.initializers.get(layer[0])
    if tensor is not None:
        return tensor.data_type == onnx.TensorProto.INT64
    readers = [reader for reader in made.values() if name in reader[4]]
    return layer[1] == "CONSTANT" and all(reader[1] in ("GATHER", "CONCATENATION") for reader in readers)


def quantized(path: Path) -> onnx.ModelProto:
    """The float model with Q/DQ on every float activation."""
    graph = Graph.from_model(onnx.load(str(path)))
    types = TensorTypes(graph)
    tensors = [name for name in [*graph.inputs, *graph.producer] if types.is_float(name)]
    scales = {name: 0.01 + 0.001 * number for number, name in enumerate(tensors)}
    return restore(onnx.load(str(path)), scales, {}).model


PLATFORMS = {"8.5": "jetpack-5.1.1", "8.6": "jetpack-6.0", "10.3": "jetpack-6.2", "10.10": "tensorrt-10.10.0"}
