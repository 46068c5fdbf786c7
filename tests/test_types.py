"""Types of a network whose layers say them one by one are those that ONNX infers of the whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.networks import chain
from qdq_translator import translate
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.operators import TYPES_SUFFICE
from qdq_translator.ir.types import TensorTypes
from tests.small_models import model

W = np.ones((4, 4, 3, 3), np.float32)
LAYERS = """c = Conv <strides = [2, 2]> (x, w)  r = Relu (c)  d = Conv <pads = [1, 1, 1, 1]> (r, w, b)  a = Add (d, r)
    p = MaxPool <kernel_shape = [2, 2], ceil_mode = 1> (a)  t = ConvTranspose <strides = [3, 2]> (p, w)  e = Max (t, k)
    n = BatchNormalization (e, b, b, b, b)  j = Concat <axis = 1> (n, e, n)  q = Transpose <perm = [0, 2, 3, 1]> (j)
    g = GlobalAveragePool (j)  f = Flatten (g)  m = Gemm <transB = 1> (f, v, b)  s = Softmax (m)  l = Clip (s, , one)"""


def both_ways(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> tuple[TensorTypes, TensorTypes]:
    followed = TensorTypes(graph)
    with monkeypatch.context() as patch:
        patch.setattr(TensorTypes, "_follow", lambda self, inputs: False)
        return followed, TensorTypes(graph)


def same(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the types were followed layer by layer; they are the same anyway."""
    followed, inferred = both_ways(graph, monkeypatch)
    for name in {*graph.tensors(), *graph.initializers, "no tensor"}:
        assert followed.elem_type(name) == inferred.elem_type(name), name
        assert followed.shape(name) == inferred.shape(name) and followed.rank(name) == inferred.rank(name), name
        assert followed.static_shape(name) == inferred.static_shape(name), name
    return followed._inferred is None


def network(text: str = LAYERS, shape: str = "1,4,19,17", ends: str = "float[1,9] l") -> Graph:
    one = np.ones(4, np.float32)
    arrays = {"w": W, "b": one, "k": W[:1, :, :1, :1], "v": np.ones((4, 12), np.float32), "one": np.float32(1)}
    return Graph.from_model(model(f"g (float[{shape}] x) => ({ends}) {{ {text} }}", **arrays))


def test_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network()
    assert same(graph, monkeypatch)
    assert TensorTypes(graph).static_shape("p") == (1, 4, 8, 7) and TensorTypes(graph).shape("l") == (1, 4)
    assert TensorTypes(graph).contradictions() == {"l": ((1, 9), (1, 4))}
    assert same(translate(chain(3, channels=8)).graph, monkeypatch)
    for shape in ("1,3,19,17", "1,4,2,2", "2,4,99,1", "0,4,9,9"):  # what the windows and weights do not fit
        same(network(shape=shape), monkeypatch)


@pytest.mark.parametrize(
    "what",
    [
        {"shape": "n,4,19,17"},
        {"text": LAYERS.replace("Add (d, r)", "Add (d, x)")},  # which have other sizes
        {"ends": "int64[1,4] l"},
        {"text": f"{LAYERS}  z = Shape (x)"},
        {"text": LAYERS.replace("p = MaxPool", "p, i = MaxPool")},
        {"text": LAYERS.replace("Relu (c)", "Erf (c)")},
    ],
)
def test_what_is_left_to_onnx(what: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not same(network(**what), monkeypatch)


def test_integers_of_a_network_that_was_followed() -> None:
    graph = network()
    types = TensorTypes(graph)
    assert types._inferred is None and types.integers() == {}
    assert types._values["p"].type == onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1, 4, 8, 7])


def test_operators_are_those_of_onnx() -> None:
    assert all(onnx.defs.has(op_type) for op_type in TYPES_SUFFICE) and len(set(TYPES_SUFFICE)) == len(TYPES_SUFFICE)
