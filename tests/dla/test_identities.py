"""Rule D2: what changes nothing goes, as by rule F7, now that D1 has made shapes constant."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import both, case, covers, graph, pair, same, weights

CONV = {"w": weights(0, 4, 2, 1, 1)}
"""The height of the input, computed when the network runs."""


@covers("a graph output made from a constant")
def test_not_from_a_constant() -> None:
    body = pair("x", "q") + "c = Conv (q, w)\nr = Relu (c)\ny = Identity (k)"
    explicit = graph("float[1,2,3,3] x", "float[2] y, float[1,4,3,3] r", body, **CONV, k=np.ones(2, np.float32))
    found = same(explicit)
    assert "Identity" in found.ops and "D2" not in found.rules


@covers("a Dropout in training mode")
def test_not_in_training_mode() -> None:
    body = pair("x", "q") + "c = Conv (q, w)\nd = Dropout (c, ratio, train)\ny = Relu (d)"
    more = {"ratio": np.float32(0.5), "train": np.bool_(True)}
    found = both(graph("float[1,2,3,3] x", "float[1,4,3,3] y", body, **CONV, **more))
    assert "Dropout" in found.ops and not found.rules
    done = both(graph("float[1,2,3,3] x", "float[1,4,3,3] y", body, **CONV, **{**more, "train": np.bool_(False)}))
    assert "Dropout" not in done.ops


@covers("a Dropout whose mask is in use")
def test_not_with_a_mask_in_use() -> None:
    body = "c = Conv (q, w)\ny, m = Dropout (c)"
    found = same(graph("float[1,2,3,3] x", "float[1,4,3,3] y, bool[1,4,3,3] m", pair("x", "q") + body, **CONV))
    node = next(n for n in found.rewritten.graph.nodes if n.op_type == "Dropout")
    assert "mask" in found.reason(node.name)
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


SIZE = "t = Shape (x)\ne = Gather (t, two)\n"


@pytest.mark.parametrize("body, outputs", [
    case("a graph output made from a tensor that others read",
        "c = Conv (q, w)\ny = Identity (c)\nr = Relu (c)\n" + pair("r", "z2"), "float[1,4,3,3] y, float[1,4,3,3] z2"),
    case("between two tensors with different scales of their own",
        "c = Conv (q, w)\n" + pair("c", "i0") + "i = Identity (i0)\n" + pair("i", "p", "s2") + "y = Relu (p)",
        "float[1,4,3,3] y"),
    case("a graph output made from a graph input", "y = Identity (x)\nc = Conv (q, w)\nr = Relu (c)",
        "float[1,2,3,3] y, float[1,4,3,3] r"),
])  # fmt: skip
def test_what_f7_leaves_becomes_a_scale_by_rule_d9(body: str, outputs: str) -> None:
    found = same(graph("float[1,2,3,3] x", outputs, pair("x", "q") + body, **CONV, s2=np.float32(0.07)))
    assert "BatchNormalization" in found.ops and "Identity" not in found.ops and found.gpu() == (["Identity"], [])
    assert found.rewritten.tensor_scales == found.plain.tensor_scales
