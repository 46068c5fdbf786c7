"""Rule S10: the names of tensors that only TensorRT's network has, against what the real parsers recorded."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import Origin, ScaleTable
from qdq_translator.translation.targets.auto_names import automatic_scales
from tests.conftest import SHARED, need_shared
from tests.parser_recordings import OWN, PLATFORMS, VERSIONS, Recording, hold, quantized, recordings


def identity(recording: Recording) -> str:
    return f"{recording.path.stem}-{recording.version}"


@pytest.mark.parametrize("recording", recordings(OWN), ids=identity)
def test_s10_names_and_values(recording: Recording) -> None:
    counts, faults = hold(recording)
    assert not faults and counts["silent"] == 0


def test_s10_all_recorded_networks() -> None:
    """No wrong value and no dead entry on any of them; what has no certain name is said."""
    need_shared(SHARED / "parsers")
    counts: dict[str, Counter[str]] = {version: Counter() for version in VERSIONS}
    faults = []
    for recording in recordings(SHARED / "parsers"):
        found, wrong = hold(recording)
        counts[recording.version] += found
        faults += [f"{identity(recording)}: {fault}" for fault in wrong]
    assert not faults
    assert all(counts[version]["written"] >= 430 for version in VERSIONS)


@pytest.mark.parametrize(
    "recording", [r for r in recordings(OWN) if r.path.stem == "dynamic_batch_flat_gemm"], ids=identity
)
def test_s10_with_a_dynamic_batch_every_bias_has_its_own_scale(recording: Recording) -> None:
    """The number of a broadcast was off by two there, and one bias's scale landed on another."""
    graph = recording.graph()
    types, scales = TensorTypes(graph), ScaleTable()
    for name in [*graph.inputs, *graph.producer]:
        scales.infer(name, 0.1, Origin("Q1"))
    found = automatic_scales(graph, types, scales, recording.tensorrt)
    assert not found.without
    biases = {n.inputs[2]: n for n in graph.nodes if n.op_type == "Gemm"}
    made = {layer[5][0]: layer for layer in recording.layers}
    broadcasts = [
        name for name, layer in made.items() if layer[1] == "SHUFFLE" and layer[3] in {n.name for n in biases.values()}
    ]
    assert len(broadcasts) == len(biases) == 3
    for name in broadcasts:
        constant = made[name][4][0]
        assert (
            found.scales[name] == found.scales[constant] == pytest.approx(recording.constants[constant] / 127, rel=1e-5)
        )


def normal_forms() -> list[tuple[str, str]]:
    return [
        (path.stem, version)
        for path in sorted((OWN / "normal_forms").glob("*.json"))
        for version in json.loads(path.read_text())
    ]


@pytest.mark.parametrize(("stem", "version"), normal_forms())
def test_s10_f8_nothing_planned_in_int8_lacks_a_scale(stem: str, version: str) -> None:
    """`normal_forms/NAME.json`: what the parsers made of the translations themselves, with Q/DQ on every activation."""
    network = json.loads((OWN / "normal_forms" / f"{stem}.json").read_text())[version]
    t = translate(quantized(OWN / "models" / f"{stem}.onnx"), TranslateOptions(platform=PLATFORMS[version]))
    cache, floats = t.cache.scales, set(network["floats"])
    made = {output for layer in network["layers"] for output in layer[5]}
    read = {name for layer in network["layers"] for name in layer[4]}
    assert not [name for name in cache if name not in made and name not in t.graph.inputs]  # no dead entry
    layers = {layer[0] for layer in network["layers"]}
    unnamed = ["LayerNormalization"] if version == "8.6" else []  # that parser does not name it (fact 4.12)
    assert all(n.name in layers or n.op_type in unnamed for n in t.graph.nodes)
    for name, largest in network["constants"].items():
        if name in cache:
            assert cache[name] == pytest.approx(largest / 127, rel=1e-5)
    plan = {layer.name: layer for layer in t.plan}
    for layer in network["layers"]:
        row = plan.get(layer[3])
        if row is None or row.precision != "int8":
            continue
        missing = [
            n for n in (*layer[4], *layer[5]) if n in floats and n not in cache and (n in read or n in t.graph.outputs)
        ]
        assert not missing, f"{layer[3]}: {missing}"
        assert row.reason == "every input and output has a scale"
