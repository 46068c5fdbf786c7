"""The pipeline of passes: each promise fails by name where the order, or a pass, breaks it."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.rules import RULES
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.passes import pipeline
from qdq_translator.translation.passes.pipeline import PIPELINE, BrokenPass, Pass, run_passes
from qdq_translator.translation.scales.network import Applied, Network
from qdq_translator.translation.scales.table import Origin
from qdq_translator.translation.targets.settings import Settings, resolve
from tests.small_models import model, pair


def explicit(opset: int = 18) -> onnx.ModelProto:
    text = f"g (float[1,2,4,4] x) => (float[1,2,4,4] y) {{{pair('x', 'q')}c = Conv (q, w)\nk = Constant <value_float = 1.0> ()\ny = Add (c, k)}}"
    return model(text, opset, w=np.ones((2, 2, 1, 1), np.float32), s=np.float32(0.1), z=np.int8(0))


def network_and_settings(**options: object) -> tuple[Network, Settings]:
    settings = resolve(TranslateOptions(**{"platform": "jetpack-6.0", **options}), Diagnostics())
    return Network(Graph.from_model(explicit()), Diagnostics(), settings.input_shapes), settings


def order(*names: str) -> tuple[Pass, ...]:
    """The pipeline with these passes moved to its end, in this order."""
    by_name = {step.name: step for step in PIPELINE}
    return (*(step for step in PIPELINE if step.name not in names), *(by_name[name] for name in names))


@pytest.mark.parametrize(
    "moved, complaint",
    [
        (["one scale a tensor"], "requires scales_are_settled"),
        (["opset", "DLA rewrites"], "'DLA rewrites' requires opset_is_the_exporters"),
        (["quantizers"], "'one scale a tensor' requires no_quantizer_is_left"),
        (["constants"], "requires constants_are_initializers"),
        (["node names"], "requires node_names_are_legal"),
        (["tensors named after nodes"], "requires nothing_refers_to_names"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_order_fails_by_name(moved: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, settings = network_and_settings()
    for node in network.graph.nodes:
        node.name = ""
    monkeypatch.setattr(pipeline, "PIPELINE", order(*moved))
    with pytest.raises(BrokenPass, match=complaint):
        run_passes(network, settings, check=True)


def test_automatic_names_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass behind it that makes a name of the parser's breaks what it ensured."""

    def collide(network: Network, settings: Settings) -> None:
        network.graph.append(Node("Softmax", ["c"], ["soft_output"], "soft"))

    network, settings = network_and_settings()
    monkeypatch.setattr(pipeline, "PIPELINE", (*PIPELINE, Pass("late", (), collide)))
    with pytest.raises(BrokenPass, match="after 'late' not so: no_automatic_name_exists"):
        run_passes(network, settings, check=True)


def test_nothing_is_checked_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    network, settings = network_and_settings()
    monkeypatch.setattr(pipeline, "PIPELINE", order("node names"))
    monkeypatch.delenv(pipeline.CHECK)
    run_passes(network, settings)


def test_every_pass_names_rules_of_the_registry() -> None:
    assert {rule for step in PIPELINE for rule in step.rules} <= {*RULES, "D0"}
    assert len({step.name for step in PIPELINE}) == len(PIPELINE)


def test_the_checks_are_on_for_every_test() -> None:
    """A translation here is held against the promises (tests/conftest.py)."""
    broken = dataclasses.replace(PIPELINE[0], run=lambda network, settings: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "PIPELINE", (broken, *PIPELINE[1:]))
        with pytest.raises(BrokenPass, match="node_names_are_legal"):
            translate(explicit())


def test_all_that_names_a_tensor_or_a_node_follows() -> None:
    network, _ = network_and_settings()
    graph, conv = network.graph, network.graph.producer["c"]
    conv.name = "conv"
    network.scales.observe("c", 0.5, Origin("Q1", "conv", "c"))
    network.scales.settle("max", network.diagnostics)
    network.scales.infer("y", 0.5, Origin("S3", "conv", "c"))
    network.withhold("c", why="small")
    network.applied.append(Applied("D1", (("conv", "Conv"),), ((conv, "Conv"),), {"gone": ["c"]}, ("c",)))
    network.leave(conv, "because")
    network.diagnostics.info("C2", "c", node="conv", tensor="c", data={"nodes": ["conv"], "tensors": {"gone": ["c"]}})
    network.diagnostics.info("F6", "was old", data={"renamed": {"conv": "old"}})
    network.rename_tensor("c", "d")
    network.rename_tensor("d", "e")
    network.rename_node(conv, graph.node_name("conv'2"))
    network.end_of_pass()
    assert conv.name == "conv_2" and graph.producer["e"] is conv
    assert network.scales["e"].origin == Origin("Q1", "conv_2", "e") and "c" not in network.scales
    assert network.scales["y"].origin == Origin("S3", "conv_2", "e")
    assert network.withheld == {"e": "small"} and network.reasons == {"conv_2": "because"}
    assert plain(network.applied[0].row()) == {
        "rule": "D1",
        "before": [{"node": "conv", "op": "Conv"}],
        "after": [{"node": "conv_2", "op": "Conv"}],
        "tensors": {"gone": ["e"]},
        "new_tensors": ["e"],
    }
    first, second = network.diagnostics
    assert (first.node, first.tensor, first.data) == ("conv_2", "e", {"nodes": ["conv_2"], "tensors": {"gone": ["e"]}})
    assert second.data == {"renamed": {"conv_2": "old"}}


def test_codes_of_a_weight_follow_its_name() -> None:
    network, settings = network_and_settings()
    run_passes(network, settings)
    weights = dict(network.trained)
    network.rename_tensor("w", "v") if "w" in weights else None
    assert list(network.trained) == ["v" if name == "w" else name for name in weights]
