"""Rule D1: shape arithmetic becomes constants."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, covers, graph, ints, pair, same
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


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
def test_sizes_that_are_known_fold_whatever_the_batch(batch: str) -> None:
    explicit = graph("float[{N},6,5,5] x", "float[b,c,h,w] y", CHUNK, batch, **NUMBERS)
    found = same(explicit, batch, bits=True)
    assert found.ops == ["Slice"]
    assert found.rewritten.graph.array("half").tolist() == [3]  # type: ignore[union-attr]
    # with an unknown batch size the Shape itself is no constant; nobody reads it any more
    assert found.rules == ["D1"] * (3 if batch == "N" else 4)


@covers("what depends on sizes that are not known (`--shapes` tells them)")
def test_unknown_sizes_stay_and_shapes_make_them_known() -> None:
    explicit = graph("float[1,c,5,5] x", "float[b,d,h,w] y", CHUNK, **NUMBERS)
    assert "Gather" in same(explicit).ops
    found = same(explicit, shapes=["x:1x6x5x5"])
    assert found.ops == ["Slice"]
    # what was folded holds for these sizes only, and the graph input says so
    shape = found.rewritten.graph.inputs["x"].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 6, 5, 5]


@covers(2)
def test_sizes_computed_in_float() -> None:
    body = pair("x", "q") + (
        "shape = Shape <start = 2> (q)\n f = Cast <to = 1> (shape)\n g2 = Mul (f, k)\n r = Floor (g2)\n"
        "hw = Cast <to = 7> (r)\n nc = Constant <value_ints = [1, 2]> ()\n sizes = Concat <axis = 0> (nc, hw)\n"
        'y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
        " (q, , , sizes)"
    )
    found = same(graph("float[1,2,3,4] x", "float[1,2,h,w] y", body, k=np.float32(2)), bits=True)
    assert found.ops == ["Resize"]
    assert found.rules[-1] == "D12"


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("r = RandomUniform <shape = [1, 2, 3, 4]> ()", marks=covers("random numbers")),
        pytest.param(
            "r = If (yes) <then_branch = t () => (float[1,2,3,4] a) {a = Identity (k)}, "
            "else_branch = e () => (float[1,2,3,4] b) {b = Neg (k)}>",
            marks=covers("control flow"),
        ),
        pytest.param("r = other.Op (k)", marks=covers("operators outside ONNX")),
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
