"""What we write for TensorRT 10.16, checked with the parser of TensorRT-RTX 1.7 (GPU, no DLA)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from qdq_translator import translate
from tests import rtx
from tests.conftest import SHARED, need_shared
from tests.parser_recordings import Recording, hold
from tests.test_zoo_function import ALL_FLAGS, MODELS, REFUSED, options_for


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_stripped_zoo_model_parses_and_every_name_exists(path: Path) -> None:
    rtx.bindings()
    path = need_shared(path)
    t = translate(path, options_for(path, platform=rtx.PLATFORM, **ALL_FLAGS))
    network = rtx.parse(t.model)
    assert network.errors == ()
    assert [name for name in t.cache.scales if name not in network.tensors and name not in t.graph.inputs] == []
    assert {node.name for node in t.graph.nodes} <= {layer.name for layer in network.layers}
    assert len(network.layers) <= 2 * len([*t.graph.nodes])  # no Slice that computes its start and size
    for name, largest in network.constants.items():
        assert t.cache.scales[name] == pytest.approx(largest / 127 if largest else 1 / 127, rel=1e-5)


def test_s10_recorded_networks() -> None:
    """The networks of ../shared/parsers: no dead and no wrong name; whatever is not predicted is reported."""
    rtx.bindings()
    counts: Counter[str] = Counter()
    faults = []
    for path in sorted(need_shared(SHARED / "parsers" / "models").glob("*.onnx")):
        network = rtx.parse(onnx.load(str(path)))
        if network.errors:
            counts["refused"] += 1
            continue
        layers = [[la.name, la.kind, "", la.node, [*la.inputs], [*la.outputs]] for la in network.layers]
        found, wrong = hold(Recording(path, "10.16", layers, network.constants))
        counts += found
        faults += [f"{path.stem}: {fault}" for fault in wrong]
    assert not faults
    assert counts["written"] >= 530 and counts["refused"] == 1, counts
