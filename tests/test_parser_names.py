"""Rule S10: the names of tensors that only TensorRT's network has, against what the real parsers recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from qdq_translator.auto_names import automatic_scales
from qdq_translator.scales import Origin, ScaleTable
from qdq_translator.types import TensorTypes
from tests.conftest import SHARED, need_shared
from tests.parser_recordings import OWN, VERSIONS, Recording, hold, recordings


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
