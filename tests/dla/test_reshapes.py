"""Rule D6: Flatten, Squeeze and Unsqueeze become Reshape."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator.translation.passes.dla.reshapes import target_sizes
from tests.dla.check import both, covers, graph, ints, pair, weights


@covers("where more than one size behind the first is unknown")
def test_not_where_sizes_are_unknown() -> None:
    body = pair("x", "q") + "m = Flatten <axis = 2> (q)\ny = Relu (m)"
    found = both(graph("float[N,C,H,W] x", "float[a,b] y", body))
    assert "D6" not in found.rules
    assert "not known" in found.reason(next(n.name for n in found.rewritten.graph.nodes if n.op_type == "Flatten"))


MASK = """
    m = Softmax <axis = 3> (q)
    u = Reshape (m, five)
    v = OP (u, mask)
    w = Reshape (v, four)
    y = Sigmoid (w)
"""
SHAPES = {"five": ints(1, 6, 2, 4, 5), "four": ints(6, 2, 4, 5)}


@covers(
    "case 2 where another layer reads a tensor between, where sizes are not known or scales of the model's own differ"
)
@pytest.mark.parametrize("change", ["reader", "scale"])
def test_not_case_2(change: str) -> None:
    body, outputs = pair("x", "q") + MASK.replace("OP", "Add"), "float[6,2,4,5] y"
    if change == "reader":
        body, outputs = body + "other = Relu (u)\n", outputs + ", float[1,6,2,4,5] other"
    if change == "scale":
        body = body.replace("u = Reshape (m,", pair("m", "n", "s2") + "u = Reshape (n,").replace(
            "v = Add (u,", pair("u", "o") + "v = Add (o,"
        )
    arrays = {"s2": np.float32(1 / 64)} if change == "scale" else {}
    found = both(graph("float[6,2,4,5] x", outputs, body, **SHAPES, mask=weights(1, 1, 6, 1, 4, 5), **arrays))
    assert "D6" not in found.rules and "Add" in found.gpu()[1]


def test_a_squeeze_between_four_dimensions_and_four_runs_on_the_dla() -> None:
    """Unsqueeze of [N, C, L] behind a Reshape stays; Flatten that changes nothing but sizes of [N, C, 1, 1] does not."""
    assert target_sizes((1, 2, 3), (1, 2, 1, 3)) == [0, 2, 1, 3]
    assert target_sizes(("N", 2, 3), ("N", 6)) == [0, 6]
    assert target_sizes((None, 2, 3), (None, None)) is None
    assert target_sizes((4, 2, None), (4, None)) == [0, -1]
    assert target_sizes((2, 0, 3), (2, 0)) is None
