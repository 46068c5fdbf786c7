"""Every node and tensor that an emitted file names exists in the model, or the files say what became of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.lab.simulate.implicit import copy_model
from qdq_translator.translation.ir.constants import is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.names import name_nodes
from qdq_translator.translation.translator import Translation, translate
from tests.conftest import need_shared, zoo_paths
from tests.small_models import model
from tests.test_zoo_function import REFUSED, options_for

DLA = {
    "target": "orin-dla", "platform": "jetpack-6.2", "dla_rewrites": True, "infer_concat_scales": True,
    "infer_mul_scales": True, "infer_average_pool_scales": True, "unify_scales": "max",
}  # fmt: skip
NODE_KEYS = {"node", "nodes", "fp16_nodes", "float_readers", "rewritten", "layers", "shared_layers", "producer"}
TENSOR_KEYS = {"tensor", "tensors", "inputs", "outputs", "missing", "cause", "follows", "new_tensors", "weight"}
"""Keys of the JSON files whose values are names, in lists, rows, or as what became of a name that is gone."""
TABLES = {"int8_tensor_scales", "scale_origins"}
"""Keys whose values are keyed by tensor."""
WORDS = {"options", "dla"}
FILE_FACTS = {"source", "options", "cache_version", "coverage", "integrity"}
"""Keys whose values name no node and no tensor."""


def mentions(value: Any, kind: str = "") -> Iterator[tuple[str, str]]:
    """('node' or 'tensor', name) of everything that a JSON value names."""
    if isinstance(value, str):
        if kind and value:
            yield kind, value
    elif isinstance(value, list):
        for item in value:
            yield from mentions(item, kind)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in TABLES:
                for name in item:
                    yield "tensor", name
                yield from mentions(list(item.values()))
            elif key == "layers" and isinstance(item, dict):  # layer -> what it lacks, in words
                for name in item:
                    yield "node", name
            elif key in NODE_KEYS:
                yield from mentions(became(item), "node")
            elif key in TENSOR_KEYS or (key == "source" and "rule" in value):
                yield from mentions(became(item), "tensor")
            elif key not in WORDS:
                yield from mentions(item)


def became(item: Any) -> Any:
    """What a name that is gone became: its key is declared as gone."""
    return list(item.values()) if isinstance(item, dict) else item


def declared(report: dict[str, Any], explicit: Graph) -> dict[str, set[str]]:
    """Names that the files may hold beside the model's: rewritten nodes and tensors, and the quantizers."""
    gone = {"node": set(report["dla_rewrites"]["nodes"]), "tensor": set(report["dla_rewrites"]["tensors"])}
    for row in report["dla_rewrites"]["applied"]:
        gone["node"] |= {before["node"] for before in row["before"]}
    for told in report["diagnostics"]:
        gone["node"] |= set(told.get("data", {}).get("renamed", {}).values())  # and what they are called now
        if told["rule"] == "F7":  # what changes nothing went
            gone["node"] |= set(told["data"]["nodes"])
            gone["tensor"] |= set(told["data"]["tensors"])
    for node in explicit.nodes:
        producer = explicit.producer.get(node.input(0))
        if is_quantize(node) or is_dequantize(node) or (node.is_op("Clip") and producer and is_quantize(producer)):
            gone["node"].add(node.name)
    return gone


def assert_names_exist(made: Translation, explicit: onnx.ModelProto, folder: Path) -> None:
    files = made.save(folder)
    stripped = onnx.load(files.model).graph
    exists = {
        "node": {n.name for n in stripped.node},
        "tensor": {v.name for v in (*stripped.input, *stripped.initializer)}
        | {o for n in stripped.node for o in n.output},
    }
    assert all(exists["node"]) and len(exists["node"]) == len(stripped.node)
    given = Graph.from_model(copy_model(explicit))
    own = {"node": {node.name for node in given.nodes}, "tensor": {*given.inputs, *given.producer}}
    name_nodes(given, Diagnostics())
    report, config = (json.loads(path.read_text(encoding="utf-8")) for path in (files.report, files.config))
    gone = declared(report, given)
    own["node"] |= {node.name for node in given.nodes}  # of nodes without one
    for made_node, row in report.pop("nodes_in_your_model").items():
        assert made_node in exists["node"] and row["node"] in own["node"]
    for cause in report["root_causes"]["causes"]:
        assert cause["in_your_model"] in own["tensor"] | exists["tensor"]
    for name in (*report["plan"], *((report["dla"] or {}).get("layers", ()))):
        assert name["name"] in exists["node"]
    named = [m for file in (config, report) for m in mentions({k: v for k, v in file.items() if k not in FILE_FACTS})]
    assert len(named) > len(stripped.node)
    for kind, name in named:
        for part in [name] if name in exists[kind] else name.split(", ") if kind == "tensor" else [name]:
            assert part in exists[kind] or part in gone[kind], f"{kind} '{part}' does not exist"

    known = sorted({*exists["node"], *exists["tensor"], *gone["node"], *gone["tensor"]}, key=len, reverse=True)
    for text in sentences(report):
        left = text
        for name in known if "'" in text else ():
            left = left.replace(f"'{name}'", "")
        assert "'" not in re.sub(r"(readers'|TensorRT's|'s) ", "", left), f"{text!r} names what does not exist"


def sentences(value: Any) -> Iterator[str]:
    """What is said of layers in words: of the finished network, and so with its names."""
    if isinstance(value, list):
        for item in value:
            yield from sentences(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("reason", "cure", "why", "sentence", "found") and isinstance(item, str):
                yield item
            elif key != "diagnostics":
                yield from sentences(item)


def hostile(explicit: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with names that files cannot hold, that are missing, shared, or like those that TensorRT makes up."""
    graph = explicit.graph
    tensors: dict[str, str] = {}
    for index, value in enumerate(graph.input):
        tensors[value.name] = f"in,{index}'*"
    for index, value in enumerate(graph.output):
        tensors[value.name] = f"out,{index}:*"
    for index, tensor in enumerate(graph.initializer):
        tensors[tensor.name] = f"node{index}" if index % 2 else f"w, {index}"
    for index, node in enumerate(graph.node):
        node.name = ("", "same,", f"node{index}", f"odd '{index}*")[index % 4]
        if node.op_type in ("Gemm", "Softmax"):
            node.name = f"made{index}"
        for number, name in enumerate(node.output):
            tensors.setdefault(name, f"made{index}_output" if number == 0 else f"t, {index} {number}")
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = tensors.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [tensors.get(name, name) for name in node.input]
        node.output[:] = [tensors.get(name, name) for name in node.output]
    return explicit


TRANSLATED = [p for p in zoo_paths("*.onnx") if p.stem not in REFUSED]


@pytest.mark.parametrize("names", ["given", "hostile"])
@pytest.mark.parametrize("path", TRANSLATED, ids=lambda p: p.stem)
def test_every_name_exists(path: Path, names: str, tmp_path: Path) -> None:
    """Each kind of names with each set of options, by turns: every architecture is there in several dialects."""
    explicit = onnx.load(need_shared(path))
    if names == "hostile":
        explicit = hostile(explicit)
    flags = DLA if (TRANSLATED.index(path) + (names == "hostile")) % 2 else {}
    assert_names_exist(translate(explicit, options_for(path, **flags)), explicit, tmp_path)


def test_a_name_made_of_an_operator_is_legal() -> None:
    network = Graph.from_model(model("g (float[2] x) => (float[2] y) { y = Relu (x) }"))
    node = next(iter(network.nodes))
    node.op_type, node.name = "\x1aul", ""
    name_nodes(network, Diagnostics())
    assert node.name == "_ul_y"
