"""Rule D18: linear layers over the last of several axes work on [N, C, H, W]."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.dla.check import both, case, covers, graph, ints, pair, same, weights

W1, W2 = weights(1, 8, 12).T.copy(), weights(2, 6, 12).copy()
S1, S2 = (np.abs(w).max(axis=0) / np.float32(127) for w in (W1, W2))
COLUMNS = "".join(
    f"q{i} = QuantizeLinear <axis = 1> (w{i}, s{i}, z{i})\nd{i} = DequantizeLinear <axis = 1> (q{i}, s{i}, z{i})\n"
    for i in (1, 2)
)
"""Weights with a scale a column: rule W1 puts Reshapes around each MatMul that D18 does not take."""
ARRAYS = {
    "w1": W1, "w2": W2, "s1": S1, "s2": S2, "z1": np.zeros(8, np.int8), "z2": np.zeros(12, np.int8),
    "b1": weights(3, 8), "b2": weights(4, 12), "g": weights(5, 12), "h": weights(6, 8), "half": np.float32(0.5),
    "pos": weights(7, 1, 5, 12), "sizes": ints(3, 5), "minus": ints(-1), "ends": ints(6), "zero": ints(0),
    "two": ints(-1, 12), "three": ints(1, 5, 12), "mid": ints(5, 1, 12), "one": ints(1), "row": weights(8, 1, 8),
}  # fmt: skip


def model(shape: str, body: str, batch: str = "1", out: str = "", **more: np.ndarray):  # type: ignore[no-untyped-def]
    words = set(re.findall(r"\w+", COLUMNS + body))
    used = {name: values for name, values in {**ARRAYS, **more}.items() if name in words}
    out = out or f"float[b,{','.join('tuvw'[: shape.count(',') + 1])}] y"
    return graph(f"float[{{N}},{shape}] x", out, pair("x", "x0") + COLUMNS + body, batch, opset=17, **used)


MLP = "m = MatMul (q, d1)\na = Add (m, b1)\n" + pair("a", "p") + "r = Relu (p)\nsl = Slice (r, zero, ends, minus)\n"
MLP += "n = MatMul (sl, d2)\n"


@pytest.mark.parametrize(
    ("shape", "body", "batch"),
    [
        case("where the DLA gains nothing (more Reshapes are added than GPU layers removed, counting "
                                  "the Reshapes of rule W1)", "5,12", "a = ReduceMax <axes = [1]> (x0)\nb = Expand (a, three)\ny = MatMul (b, plain)", "1"),
        case("weights that are not constant matrices", "5,12", "t = Transpose <perm = [0, 2, 1]> (x0)\ny = MatMul (x0, t)", "1"),
        case("transA 1", "12", "t = Transpose <perm = [1, 0]> (x0)\nr = Relu (t)\ny = Gemm <transA = 1> (r, d1)", "1"),
        case("unknown sizes other than the batch size", "h,12", "y = MatMul (x0, d1)", "1"),
        case("first axes that are not the batch where the batch size is not 1", "5,12", "t = Transpose <perm = [1, 0, 2]> (x0)\nr = Relu (t)\ny = MatMul (r, d1)", "3"),
        case("tensors of five and more dimensions", "2,3,5,12", "y = MatMul (x0, d1)", "1"),
    ],
)  # fmt: skip
def test_not(shape: str, body: str, batch: str) -> None:
    found = both(model(shape, body, batch, plain=W1))
    assert "D18" not in found.rules and "Conv" not in found.ops


@covers("more than 8192 channels")
def test_not_above_8192_channels() -> None:
    wide = np.ones((8193, 1), np.float32)
    body = pair("x", "x0") + "r = Relu (x0)\ny = MatMul (r, w)"
    found = both(graph("float[1,2,8193] x", "float[b,t,c] y", body, w=wide))
    assert "D18" not in found.rules


def test_a_trained_range_of_a_tensor_holds_for_its_other_form(tmp_path: Path) -> None:
    """Not narrowed to the range, from the data, of the other operand of an Add."""
    body = (
        "e = Add (x0, pos)\n" + pair("e", "o", scale="wide") + "l = LayerNormalization (e, g)\n" + pair("l", "q") + MLP
    )
    body += "v = Softmax <axis = 1> (e)\nf = Add (o, n)\nk = Add (f, v)\ny = MatMul (k, d1)"
    explicit = model("5,12", body, wide=np.float32(1 / 8))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((8, 5, 12)).astype(np.float32))
    found = same(explicit, calibrate=str(tmp_path / "x.npy")).rewritten.scales
    assert (found["e_nchw"].value, found["e_nchw"].origin.rule) == (1 / 8, "D18") and found["n_nchw"].value < 1 / 32
