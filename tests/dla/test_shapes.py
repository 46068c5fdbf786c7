"""Rule D1: shape arithmetic becomes constants."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, graph, ints, pair, same

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


@pytest.mark.parametrize("batch", BATCHES)
def test_sizes_that_are_known_fold_whatever_the_batch(batch: str) -> None:
    explicit = graph("float[{N},6,5,5] x", "float[b,c,h,w] y", CHUNK, batch, **NUMBERS)
    found = same(explicit, batch, bits=True)
    assert found.ops == ["Slice"]
    assert found.rewritten.graph.array("half").tolist() == [3]  # type: ignore[union-attr]
    # with an unknown batch size the Shape itself is no constant; nobody reads it any more
    assert found.rules == ["D1"] * (3 if batch == "N" else 4)


def test_unknown_sizes_stay_and_shapes_make_them_known() -> None:
    explicit = graph("float[1,c,5,5] x", "float[b,d,h,w] y", CHUNK, **NUMBERS)
    assert "Gather" in same(explicit).ops
    found = same(explicit, shapes=["x:1x6x5x5"])
    assert found.ops == ["Slice"]
    # what was folded holds for these sizes only, and the graph input says so
    shape = found.rewritten.graph.inputs["x"].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 6, 5, 5]


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


def test_graph_outputs_stay() -> None:
    body = pair("x", "q") + "y = Relu (q)\nshape = Shape (q)"
    found = same(graph("float[1,2,3,4] x", "float[1,2,3,4] y, int64[4] shape", body))
    assert found.ops == ["Relu", "Shape"]
    assert not found.rules
