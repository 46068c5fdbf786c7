"""Types and shapes of tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.families import FAMILIES
from qdq_translator import TranslateOptions
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.translator import translate
from tests.small_models import model

W = np.ones((4, 4, 3, 3), np.float32)
LAYERS = """c = Conv <strides = [2, 2]> (x, w)  r = Relu (c)  d = Conv <pads = [1, 1, 1, 1]> (r, w, b)  a = Add (d, r)
    p = MaxPool <kernel_shape = [2, 2], ceil_mode = 1> (a)  t = ConvTranspose <strides = [3, 2]> (p, w)  e = Max (t, k)
    n = BatchNormalization (e, b, b, b, b)  j = Concat <axis = 1> (n, e, n)  q = Transpose <perm = [0, 2, 3, 1]> (j)
    g = GlobalAveragePool (j)  f = Flatten (g)  m = Gemm <transB = 1> (f, v, b)  s = Softmax (m)  l = Clip (s, , one)"""


def network(text: str = LAYERS, shape: str = "1,4,19,17", ends: str = "float[1,9] l") -> Graph:
    one = np.ones(4, np.float32)
    arrays = {"w": W, "b": one, "k": W[:1, :, :1, :1], "v": np.ones((4, 12), np.float32), "one": np.float32(1)}
    return Graph.from_model(model(f"g (float[{shape}] x) => ({ends}) {{ {text} }}", **arrays))


def test_every_layer() -> None:
    graph = network()
    types = TensorTypes(graph)
    assert types.static_shape("p") == (1, 4, 8, 7) and types.shape("l") == (1, 4) and types.rank("w") == 4
    assert types.contradictions() == {"l": ((1, 9), (1, 4))} and types.integers() == {}
    assert types.elem_type("p") == onnx.TensorProto.FLOAT and types.shape("no tensor") is None


@pytest.mark.parametrize(
    ("shape", "pooled"), [("2,4,99,1", (2, 4, 48, None)), ("0,4,9,9", (0, 4, 3, 3)), ("n,4,19,17", ("n", 4, 8, 7))]
)
def test_sizes_that_do_not_fit_or_are_not_known(shape: str, pooled: object) -> None:
    types = TensorTypes(network(shape=shape))
    assert types.shape("p") == pooled


@pytest.mark.parametrize(("name", "same"), [("unet_attention", True), ("tcn", True), ("open", False)])
def test_types_that_follow_from_those_before_the_edits_are_those_of_the_whole_network(
    name: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rules for the DLA; with an open batch all types are inferred again."""
    followed, follows = [], TensorTypes._follows

    def compared(types: TensorTypes, before: TensorTypes) -> bool:
        followed.append(follows(types, before))
        if followed[-1]:
            whole = TensorTypes(types._graph)
            assert types._known == whole._known and types._values.keys() >= types._graph.producer.keys()
        return followed[-1]

    monkeypatch.setattr(TensorTypes, "_follows", compared)
    given = network(shape="n,4,19,17").to_model() if name == "open" else FAMILIES[name]()
    options = TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites="force")
    translate(given, options, assume_scales=True)
    assert len(followed) > 3 and any(followed) == same


def test_an_edit_that_others_read_is_inferred_with_all_that_follows() -> None:
    graph = network()
    before = TensorTypes(graph)
    graph.producer["c"].set("strides", [1, 1])
    after = TensorTypes(graph, before=before)
    assert after.static_shape("d") == (1, 4, 17, 15) != before.static_shape("d")
