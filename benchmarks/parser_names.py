"""Names of TensorRT's own tensors (rule S10) against what its real ONNX parsers recorded.

    python -m benchmarks.parser_names FOLDER     a folder with models/ and recorded/, for example tests/data/parsers

Every float tensor of a recorded network gets a scale; then the entries that are written for tensors of TensorRT's own are
looked up in the recording. Runs with version 0.1.0 too (PYTHONPATH=CHECKOUT), which wrote them for 10.x only.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import Origin, ScaleTable
from qdq_translator.translation.targets import auto_names

_SHAPE_LAYERS = ("SHAPE", "GATHER", "CAST", "CONCATENATION")


def written(graph: Graph, types: TensorTypes, scales: ScaleTable, version: str) -> tuple[dict[str, float], set[str]]:
    """Entries, and nodes that are reported because a name of theirs is not certain."""
    if len(inspect.signature(auto_names.automatic_scales).parameters) == 3:  # 0.1.0
        entries: Any = auto_names.automatic_scales(graph, types, scales) if version.startswith("10") else {}  # type: ignore[call-arg]
        return entries, set()
    major, minor = map(int, version.split("."))
    found = auto_names.automatic_scales(graph, types, scales, (major, minor, 0))
    return found.scales, set(found.without)


def hold(path: Path, version: str, network: dict[str, Any]) -> Counter[str]:
    graph = Graph.from_model(onnx.load(str(path)))
    types, scales = TensorTypes(graph), ScaleTable()
    for number, name in enumerate([*graph.inputs, *graph.producer], 1):
        if types.is_float(name):
            scales.infer(name, 0.001 * number, Origin("Q1"))
    entries, told = written(graph, types, scales, version)
    made = {output: layer for layer in network["layers"] for output in layer[5]}
    read = {name for layer in network["layers"] for name in layer[4]}
    counts: Counter[str] = Counter()
    for name, scale in entries.items():
        counts["dead" if name not in made else "right" if _right(name, scale, made, network, scales) else "wrong"] += 1
    for name, layer in made.items():
        own = name in read and name not in graph.producer and name not in entries
        if own and not _integer(layer, graph, network):
            counts["reported" if layer[3] in told else "missing"] += 1
    return counts


def _right(name: str, scale: float, made: dict[str, Any], network: dict[str, Any], scales: ScaleTable) -> bool:
    """Constants and their broadcasts by value; others by what they must hold at least."""
    layer = made[name]
    source = name if layer[1] == "CONSTANT" else layer[4][0] if layer[1] == "SHUFFLE" else ""
    if source in network["constants"]:
        return bool(np.isclose(scale * 127, network["constants"][source] or 1, rtol=1e-4))
    if layer[1] == "SHUFFLE":
        return scale == scales.value(source)
    return layer[1] in ("MATRIX_MULTIPLY", "SOFTMAX")


def _integer(layer: Any, graph: Graph, network: dict[str, Any]) -> bool:
    tensor = graph.initializers.get(layer[0])
    if layer[1] in _SHAPE_LAYERS or "ONNXTRT_Shape" in layer[0]:
        return True
    if tensor is not None:
        return tensor.data_type == onnx.TensorProto.INT64
    readers = [other for other in network["layers"] if layer[5][0] in other[4]]
    return layer[1] == "CONSTANT" and all(reader[1] in _SHAPE_LAYERS for reader in readers)


def table(folder: Path) -> str:
    totals: dict[str, Counter[str]] = {}
    for path in sorted((folder / "recorded").glob("*.json")):
        for version, network in json.loads(path.read_text()).items():
            if network["accepted"]:
                total = totals.setdefault(version, Counter())
                total += hold(folder / "models" / f"{path.stem}.onnx", version, network)
                total["networks"] += 1
    columns = ("networks", "right", "wrong", "dead", "missing", "reported")
    lines = [f"| parser | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    lines += [f"| {version} | {' | '.join(str(total[c]) for c in columns)} |" for version, total in totals.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    print(table(parser.parse_args().folder), end="")


if __name__ == "__main__":
    main()
