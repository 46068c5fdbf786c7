"""Rule Q9: a quantizer is a rounding and a saturation; the saturation alone, as a float network."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qdq_translator.lab.simulate.run import ExplicitNetwork, Session
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.quantizers.saturation import saturate, saturate_at, saturate_both

HEAD = '<ir_version: 8, opset_import: ["" : 13]>'
STEP = "float s = {0.1}"
MODELS = {
    "int8": "Q = QuantizeLinear(x, s, z) y = DequantizeLinear(Q, s, z)|int8 z = {-30}",
    "uint8": "Q = QuantizeLinear(x, s, z) y = DequantizeLinear(Q, s, z)|uint8 z = {0}",
    "symmetric": "Q = QuantizeLinear(x, s, z) y = DequantizeLinear(Q, s, z)|int8 z = {0}",
    "no zero point": "Q = QuantizeLinear(x, s) y = DequantizeLinear(Q, s)|int8 z = {0}",
    "clipped": "Q = QuantizeLinear(x, s, z) C = Clip(Q, a, b) y = DequantizeLinear(C, s, z)"
    "|int8 z = {3}, int8 a = {-7}, int8 b = {9}",
    "moved": "Q = QuantizeLinear(x, s, z) T = Transpose <perm = [0, 2, 1, 3]> (Q) y = DequantizeLinear(T, s, z)"
    "|int8 z = {-100}",
    "padded": "Q = QuantizeLinear(x, s, z) T = Pad(Q, p, v) y = DequantizeLinear(T, s, z)"
    "|int8 z = {-100}, int8 v = {-90}, int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}",
    "in series": "Q = QuantizeLinear(x, s, z) D = DequantizeLinear(Q, s, z) R = QuantizeLinear(D, t, u) "
    "y = DequantizeLinear(R, t, u)|int8 z = {-100}, float t = {0.02}, uint8 u = {7}",
}


def model(body: str, out: str = "float[1,N,A,B] y") -> onnx.ModelProto:
    nodes, _, constants = body.partition("|")
    text = f"{HEAD} g (float[1,2,3,4] x) => ({out}) <{STEP}, {constants}> {{ {nodes} }}"
    return onnx.parser.parse_model(text)


def values() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 20, (1, 2, 3, 4)).astype(np.float32)


def run(graph: Graph, x: np.ndarray) -> np.ndarray:
    return Session(graph.to_model(), "float").run({"x": x})["y"]


@pytest.mark.parametrize("name", MODELS)
def test_saturated_model_differs_by_half_a_step_from_the_quantized_one(name: str) -> None:
    made, x = model(MODELS[name]), values()
    wanted = Session(made, "explicit").run({"x": x})["y"]
    graph = Graph.from_model(made)
    saturate(graph)
    assert not graph.of("QuantizeLinear", "DequantizeLinear")
    found, inner = run(graph, x), run(graph, np.abs(x) / 1000)
    step = 0.1 if name != "in series" else 0.12
    assert np.abs(found - wanted).max() <= step / 2 + 1e-5
    assert len(np.unique(inner)) > 20, "nothing is rounded"


def test_channels_saturate_at_their_own_bounds() -> None:
    body = "Q = QuantizeLinear <axis = 1> (x, c, d) y = DequantizeLinear <axis = 1> (Q, c, d)"
    made = model(f"{body}|float[2] c = {{0.1, 0.01}}, uint8[2] d = {{0, 128}}")
    graph = Graph.from_model(made)
    saturate(graph)
    x = values()
    bounds = np.array([[0, -1.28], [25.5, 1.27]], np.float32).reshape((2, 1, 2, 1, 1))
    assert np.abs(run(graph, x) - np.clip(x, bounds[0], bounds[1])).max() < 1e-5


def test_quantized_ends_become_float() -> None:
    made = onnx.parser.parse_model(
        f"{HEAD} g (int8[1,4] x) => (uint8[1,4] y) <{STEP}, int8 z = {{0}}, uint8 u = {{7}}> "
        "{ D = DequantizeLinear(x, s, z) y = QuantizeLinear(D, s, u) }"
    )
    graph = ExplicitNetwork.of(made).graph
    saturate(graph)
    x = np.array([[-100, -0.5, 0.5, 100]], np.float32)
    assert np.abs(run(graph, x) - np.array([[-0.7, -0.5, 0.5, 24.8]])).max() < 1e-5


def test_weights_stay_rounded_behind_their_quantizers() -> None:
    body = "W = QuantizeLinear(w, s, z) V = DequantizeLinear(W, s, z) y = Add(x, V)"
    graph = Graph.from_model(model(f"{body}|int8 z = {{0}}, float[1,1,1,4] w = {{0.11, -0.04, 99, -99}}"))
    saturate(graph)
    x = values()
    assert np.abs(run(graph, x) - (x + np.array([0.1, 0, 12.7, -12.8], np.float32))).max() < 1e-5


def test_int8_tensors_saturate_for_all_readers() -> None:
    graph = Graph.from_model(model("a = Relu(x) b = Neg(a) c = Abs(a) y = Add(b, c)|int8 z = {0}"))
    saturate_at(graph, {"a": 0.1, "y": 0.01, "unknown": 1.0})
    assert np.abs(run(graph, values())).max() == 0
    graph = Graph.from_model(model("a = Relu(x) y = Add(a, x)|int8 z = {0}"))
    saturate_at(graph, {"a": 0.1, "y": 0.01})
    x = values()
    assert np.abs(run(graph, x) - np.clip(np.clip(x, 0, 12.7) + x, -1.28, 1.27)).max() < 1e-5


@pytest.mark.parametrize("bound", [25.4, 12.7])
def test_networks_that_are_compared_saturate_once_a_tensor(bound: float) -> None:
    """Rules C1 and C2: for all readers alike, where both networks have the tensor with a scale."""
    body = (
        "n = Neg(x) a = Neg(n) Q = QuantizeLinear(a, s, z) R = QuantizeLinear(a, t, z) "
        "D = DequantizeLinear(Q, s, z) E = DequantizeLinear(R, t, z) DE = Sub(D, E) y = Sub(DE, a)"
    )
    source = Graph.from_model(model(f"{body}|int8 z = {{0}}, float t = {{0.2}}"))
    plain = model("n = Neg(x) a = Neg(n) DE = Sub(a, a) y = Sub(DE, a)|int8 z = {0}")
    written = Graph.from_model(plain)
    x = values() * 3
    for scales, high in (({}, np.inf), ({"a": bound / 127, "n": 1.0}, bound)):
        one, two = Graph.from_picture(source.picture()), Graph.from_picture(written.picture())
        saturate_both(one, two, scales)
        wanted = -np.clip(x, -high * 128 / 127, high)
        for graph in (one, two):
            assert np.abs(run(graph, x) - wanted).max() < 1e-4


UNDER_ANOTHER_NAME = {
    "y = Neg(x) between two quantizers is z1, and y a copy of it": (
        "n = Neg(x) Q = QuantizeLinear(n, s, z) y = DequantizeLinear(Q, s, z) R = QuantizeLinear(y, t, z) "
        "z1 = DequantizeLinear(R, t, z)",
        "z1 = Neg(x) y = Identity(z1)",
        {"z1": 0.1, "y": 0.1},
    ),
    "a clamp that clamps nothing is left out, and its tensor is read by another node": (
        "a = Abs(x) Q = QuantizeLinear(a, s, z) C = Clip(Q, z, top) z1 = DequantizeLinear(C, s, z) y = Neg(a)",
        "z1 = Abs(x) y = Neg(z1)",
        {"z1": 0.1},
    ),
}


@pytest.mark.parametrize("name", UNDER_ANOTHER_NAME)
def test_a_tensor_under_another_name_saturates_too(name: str) -> None:
    body, written, scales = UNDER_ANOTHER_NAME[name]
    out, constants = "float[1,N,A,B] y, float[1,N,A,B] z1", "int8 z = {0}, int8 top = {127}, float t = {0.2}"
    graphs = [Graph.from_model(model(f"{nodes}|{constants}", out)) for nodes in (body, written)]
    saturate_both(*graphs, scales)
    same, x = "Abs" not in written, values()
    wanted = np.clip(-x if same else np.abs(x), -12.8, 12.7)
    for graph in graphs:
        found = Session(graph.to_model(), "float").run({"x": x})
        assert np.abs(found["z1"] - wanted).max() < 1e-5
        assert np.abs(found["y"] - (wanted if same else -wanted)).max() < 1e-5


def test_opset_10_has_the_bounds_as_attributes() -> None:
    made = model(MODELS["int8"])
    made.opset_import[0].version = 10
    made.ir_version = 5
    graph = Graph.from_model(made)
    saturate(graph)
    assert np.abs(run(graph, values()) - np.clip(values(), -9.8, 15.7)).max() < 1e-5
