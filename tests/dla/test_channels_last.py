"""Rule D18: linear layers over the last of several axes work on [N, C, H, W]."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.dla.check import SCALE, both, case, covers, graph, ints, pair, same, weights

W1, W2 = weights(1, 8, 12).T.copy(), weights(2, 6, 12).copy()
S1, S2 = (np.abs(w).max(axis=0) / np.float32(127) for w in (W1, W2))
COLUMNS = "".join(
    f"q{i} = QuantizeLinear <axis = 1> (w{i}, s{i}, z{i})\nd{i} = DequantizeLinear <axis = 1> (q{i}, s{i}, z{i})\n"
    for i in (1, 2)
)
"""Weights with a scale a column: rule W1 puts Reshapes around each MatMul that D18 does not take."""
ARRAYS = {
    "w1": W1,
    "w2": W2,
    "s1": S1,
    "s2": S2,
    "z1": np.zeros(8, np.int8),
    "z2": np.zeros(12, np.int8),
    "b1": weights(3, 8),
    "b2": weights(4, 12),
    "g": weights(5, 12),
    "h": weights(6, 8),
    "half": np.float32(0.5),
    "pos": weights(7, 1, 5, 12),
    "sizes": ints(3, 5),
    "minus": ints(-1),
    "ends": ints(6),
    "zero": ints(0),
    "two": ints(-1, 12),
    "three": ints(1, 5, 12),
    "mid": ints(5, 1, 12),
    "one": ints(1),
    "row": weights(8, 1, 8),
}


def model(shape: str, body: str, batch: str = "1", out: str = "", **more: np.ndarray):  # type: ignore[no-untyped-def]
    words = set(re.findall(r"\w+", COLUMNS + body))
    used = {name: values for name, values in {**ARRAYS, **more}.items() if name in words}
    out = out or f"float[b,{','.join('tuvw'[: shape.count(',') + 1])}] y"
    return graph(f"float[{{N}},{shape}] x", out, pair("x", "x0") + COLUMNS + body, batch, opset=17, **used)


MLP = "m = MatMul (q, d1)\na = Add (m, b1)\n" + pair("a", "p") + "r = Relu (p)\nsl = Slice (r, zero, ends, minus)\n"
MLP += "n = MatMul (sl, d2)\n"
IMAGE = (
    "q = Transpose <perm = [0, 2, 3, 1]> (x0)\n" + MLP + "t = Transpose <perm = [0, 3, 1, 2]> (n)\n" + pair("t", "t1")
)
IMAGE += "y = Relu (t1)"
"""ConvNeXt: from and to [N, C, H, W]."""


@covers(1, 2)
@pytest.mark.parametrize("batch", ["1", "3", "N"])
def test_between_images_nothing_moves_any_more(batch: str) -> None:
    found = same(model("12,4,5", IMAGE, batch), batch, bits=True)
    assert found.ops.count("Conv") >= 2 and not {"MatMul", "Reshape", "Transpose"} & set(found.ops)
    assert found.gpu()[1] == [] and found.gpu()[0].count("Reshape") == 4
    assert found.rewritten.tensor_scales[found.rewritten.rewrites.tensors["a"][0]] == SCALE
    assert [row.exact for row in found.rewritten.weights] == [True, True]


@covers(4)
def test_case_4_normalization_stays_on_its_axis() -> None:
    body = "t = Transpose <perm = [0, 2, 3, 1]> (x0)\nl = LayerNormalization (t, g)\n" + pair("l", "q")
    body += "m = MatMul (q, d1)\nr = Relu (m)\ny = Transpose <perm = [0, 3, 1, 2]> (r)"
    found = same(model("12,4,5", body, "3"), "3")
    assert found.ops == ["Transpose", "LayerNormalization", "Transpose", "Conv", "Relu"]
    assert found.gpu()[1] == ["LayerNormalization"]


@covers(3)
def test_case_3_views_between_two_forms_go() -> None:
    """Sequence first, and as one matrix, as PyTorch's attention and ONNX Runtime's quantizer write it."""
    body = (
        "e = Add (x0, pos)\nv = Transpose <perm = [1, 0, 2]> (e)\n"
        + pair("v", "v0")
        + "u = MatMul (v0, d1)\nru = Relu (u)\n"
        "rf = Reshape (e, two)\nt = Gemm (rf, d1, row)\nrt = Relu (t)\nsq = Squeeze (ru, one)\nf = Add (sq, rt)\ny = Relu (f)"
    )
    found = same(model("5,12", body, out="float[t,u] y"), relative=1e-5)
    assert found.gpu()[1] == ["Reshape", "Reshape"] and found.ops.count("Conv") == 2
    assert not {"Gemm", "MatMul", "Squeeze"} & set(found.ops)


@pytest.mark.parametrize(
    "layer",
    [
        "c = Concat <axis = 2> (m, a)\ny = Relu (c)",
        "c1, c2 = Split <axis = -1> (m, sizes)\ny = Add (c1, c1)",
        "y = Softmax (m)",
        "c = Pow (m, half)\ny = Sub (half, a)",
        "c = Sigmoid (m)\ny = Mul (c, a)",
        "c = Erf (m)\ny = Div (c, h)",
    ],
)
@pytest.mark.parametrize("batch", ["1", "3"])
def test_case_2_layers_around(layer: str, batch: str) -> None:
    body = "m = MatMul (x0, d1)\na = Add (b1, m)\n" + layer
    found = same(model("5,12", body, batch), batch)
    assert found.ops.count("Conv") == 1 and "MatMul" not in found.ops


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


FLAT = "f = Reshape (v, flat)\nk = Gemm (f, d1, b1)\na = Reshape (k, rows)\n"
"""As OnnxSlim writes a MatMul and an Add."""


@pytest.mark.parametrize("between", ["", "Relu", "Add"])
def test_a_matrix_between_reshapes_is_as_good_as_a_matmul(between: str) -> None:
    sizes = {"win": ints(4, 16, 12), "flat": ints(64, 12), "rows": ints(4, 16, 8), "all": weights(9, 64, 8)}
    tail = pair("a", "p") + "r = Relu (p)\nu = Reshape (r, image)\ny = Transpose <perm = [0, 3, 1, 2]> (u)"
    start = "q = Transpose <perm = [0, 2, 3, 1]> (x0)\nv = Reshape (q, win)\n"
    made = {"": FLAT, "Relu": FLAT.replace("(k,", "(l,"), "Add": FLAT.replace("(k,", "(l,")}[between]
    more = {"": "", "Relu": "l = Relu (k)\n", "Add": "l = Add (k, all)\n"}[between]
    parts = made.split("a = ")
    body = start + parts[0] + more + "a = " + parts[1] + tail
    found = same(model("12,4,16", body, **sizes, image=ints(1, 4, 16, 8)))
    assert "D18" in found.rules and found.gpu()[1] == []
    assert "Reshape" not in found.ops


def test_matrices_of_other_rows_do_not_meet() -> None:
    """The windows and the image have as many rows, in another order."""
    body = (
        "q = Transpose <perm = [0, 2, 3, 1]> (x0)\nv = Reshape (q, win)\nf = Reshape (v, flat)\nk = Gemm (f, d1, b1)\n"
    )
    body += "g0 = Reshape (q, flat)\nl = Gemm (g0, d1, b1)\na = Add (k, l)\ny = Reshape (a, image)"
    sizes = {"win": ints(8, 8, 12), "flat": ints(64, 12), "image": ints(1, 4, 16, 8)}
    same(model("12,4,16", body, **sizes))
    columns = "f = Reshape (x0, flat)\nk = Gemm (f, d1, b1)\nt = Transpose <perm = [1, 0]> (k)\ny = Relu (t)"
    same(model("12,4,16", columns, out="float[8,64] y", **sizes))


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
