"""Rule D1: shape arithmetic becomes constants."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest

from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from tests.dla.check import both, case, covers, graph, ints, pair, same
from tests.small_models import model

CHUNK = (
    pair("x", "q")
    + """
    shape = Shape (q)
    c = Gather <axis = 0> (shape, one)
    up = Add (c, one)
    half = Div (up, two)
    y = Slice (q, zero, half, one)
"""
)
NUMBERS = {"zero": ints(0), "one": ints(1), "two": ints(2)}


@covers("results that depend on unknown sizes (`--shapes` gives them)")
def test_unknown_sizes_stay_and_shapes_make_them_known() -> None:
    explicit = graph("float[1,c,5,5] x", "float[b,d,h,w] y", CHUNK, **NUMBERS)
    assert "Gather" in same(explicit).ops
    found = same(explicit, shapes=["x:1x6x5x5"])
    assert found.ops == ["Slice"]
    # what was folded holds for these sizes only, and the graph input says so
    shape = found.rewritten.graph.inputs["x"].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 6, 5, 5]


@pytest.mark.parametrize(
    "made",
    [
        case("random numbers", "r = RandomUniform <shape = [1, 2, 3, 4]> ()"),
        case(
            "control flow",
            "r = If (yes) <then_branch = t () => (float[1,2,3,4] a) {a = Identity (k)}, "
            "else_branch = e () => (float[1,2,3,4] b) {b = Neg (k)}>",
        ),
        case("operators outside ONNX", "r = other.Op (k)"),
    ],
)
def test_not(made: str) -> None:
    explicit = model(
        "g (float[1,2,3,4] x) => (float[1,2,3,4] y) {\n" + pair("x", "q") + made + "\ny = Add (q, r)\n}",
        domains=("other",),
        k=np.ones((1, 2, 3, 4), np.float32),
        yes=np.bool_(True),
        s=np.float32(0.1),
        z=np.int8(0),
    )
    found = both(explicit)
    assert made.split()[2].rpartition(".")[2] in found.ops and "D1" not in found.rules


@covers("results that are graph outputs")
def test_graph_outputs_stay() -> None:
    body = pair("x", "q") + "y = Relu (q)\nshape = Shape (q)"
    found = same(graph("float[1,2,3,4] x", "float[1,2,3,4] y, int64[4] shape", body))
    assert found.ops == ["Relu", "Shape"]
    assert not found.rules


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_have_the_sign_that_onnx_gives_them(fmod: int) -> None:
    numbers = [-7, -3, -2, 2, 3, 7]
    a, b = ints(*(x for x in numbers for _ in numbers)), ints(*numbers * len(numbers))
    text = f"shape = Shape (x)\nk = Identity (a)\nr = Mod <fmod = {fmod}> (k, b)\nd = Concat <axis = 0> (r, shape)\ny = Relu (x)"
    one = graph("float[1,4] x", "float[1,4] y, int64[n] d", text, a=a, b=b)
    want = onnx.reference.ReferenceEvaluator(one).run(["d"], {"x": np.zeros((1, 4), np.float32)})[0]
    assert TensorTypes(Graph.from_model(one)).integers()["d"].tolist() == want.tolist()
