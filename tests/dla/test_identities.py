"""Rule D2: what hands its input on goes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, graph, pair, same, weights

CONV = {"w": weights(0, 4, 2, 1, 1)}


@pytest.mark.parametrize("op", ["Identity", "Dropout", "Sum", "Mean", "Max", "Min", "Concat <axis = 1>"])
@pytest.mark.parametrize("batch", BATCHES)
def test_case_1(op: str, batch: str) -> None:
    body = pair("x", "q") + f"c = Conv (q, w)\ni = {op} (c)\n" + pair("i", "p") + "y = Relu (p)"
    found = same(graph("float[{N},2,3,3] x", "float[{N},4,3,3] y", body, batch, **CONV), batch, bits=True)
    assert found.ops == ["Conv", "Relu"]
    assert found.rewritten.rewrites.tensors == {"i": ["c"]}
    # the Conv's output has the scale that the identity's output had
    assert found.rewritten.tensor_scales["c"] == found.plain.tensor_scales["i"]
    assert found.rewritten.scales["c"].origin.rule == "D2"


def test_case_2_the_node_before_makes_the_graph_output() -> None:
    body = pair("x", "q") + "c = Conv (q, w)\ny = Identity (c)"
    found = same(graph("float[1,2,3,3] x", "float[1,4,3,3] y", body, **CONV), bits=True)
    assert found.ops == ["Conv"] and list(found.rewritten.graph.producer) == ["y"]
    assert found.rewritten.rewrites.tensors == {"c": ["y"]}
    assert "y" not in found.rewritten.tensor_scales  # rule S2


def test_not_where_the_input_has_other_readers_and_the_output_leaves() -> None:
    body = pair("x", "q") + "c = Conv (q, w)\ny = Identity (c)\nr = Relu (c)\n" + pair("r", "z2")
    found = same(graph("float[1,2,3,3] x", "float[1,4,3,3] y, float[1,4,3,3] z2", body, **CONV))
    assert "Identity" in found.ops
    node = next(n.name for n in found.rewritten.graph.nodes if n.op_type == "Identity")
    assert "graph output" in found.reason(node)


def test_not_between_different_scales() -> None:
    two = pair("q", "i0") + "i = Identity (i0)\n" + pair("i", "p", "s2")
    body = pair("x", "q0") + "q = Conv (q0, w)\n" + two + "y = Relu (p)"
    arrays = {**CONV, "s2": np.float32(0.07)}
    found = same(graph("float[1,2,3,3] x", "float[1,4,3,3] y", body, **arrays), bits=True)
    assert "Identity" in found.ops
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


def test_not_dropout_whose_mask_is_read() -> None:
    body = pair("x", "q") + "d, m = Dropout (q)\ny = Relu (d)"
    explicit = graph("float[1,2,3,3] x", "float[1,2,3,3] y, bool[1,2,3,3] m", body)
    assert "Dropout" in same(explicit).ops
