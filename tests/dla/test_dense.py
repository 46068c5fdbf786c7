"""Rule D5: fully connected layers on [N, C, 1, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import both, case, covers, graph, pair, same, weights

W1, W2 = weights(1, 8, 12), weights(2, 5, 8)
ARRAYS = {"w1": W1, "b1": weights(3, 8), "w2": W2, "b2": weights(4, 5)}


def ends(batch: str, body: str, shape: str = "3,2,2", out: str = "float[b,k] y", **more: np.ndarray):  # type: ignore[no-untyped-def]
    return graph(f"float[{{N}},{shape}] x", out, pair("x", "q") + body, batch, **{**ARRAYS, **more})


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        pytest.param(
            "y = Gemm <transB = 1> (q, w1, b1)",  # two-dimensional all along: runs as it is
            "12",
            marks=covers("where the DLA gains nothing (more such Reshapes are added than GPU layers removed)"),
        ),
        case("transA 1", "f = Flatten (q)\nt = Transpose (f)\ny = Gemm <transA = 1, transB = 1> (t, w1)", "3,2,2"),
        case(
            "weights that are not constant",
            "f = Flatten (q)\ng1 = Relu (f)\ny = Gemm (g1, f2)\nf2 = Transpose (g1)",
            "3,2,2",
        ),
        case(
            "a bias that is not one value a channel",
            "f = Flatten (q)\nc = ReduceMax <axes = [0]> (f)\ny = Gemm <transB = 1> (f, w1, r)\nr = Gemm <transB = 1> (c, w1)",
            "3,2,2",
        ),
        case("tensors of other ranks", "y = MatMul (q, wt)", "4,12"),
    ],
)
def test_not(body: str, shape: str) -> None:
    more = {"wt": np.ascontiguousarray(W1.T)} if "wt" in body else {}
    found = same(ends("1", body, shape, out="float[b,i,k] y" if more else "float[b,k] y", **more))
    assert "D5" not in found.rules and "Conv" not in found.ops


@covers("C above 8192 (but for 4.)")
@pytest.mark.parametrize(("size", "applies"), [("2,64,64", True), ("1,91,91", False)])
def test_not_above_8192_channels(size: str, applies: bool) -> None:
    body = "f = Flatten (q)\nr = Relu (f)\ny = MatMul (r, big)"
    found = same(ends("1", body, size, big=weights(1, 8192 if applies else 8281, 2)))
    assert ("D5" in found.rules) is applies and ("MatMul" in found.ops) is not applies


@covers("H or W above 32")
@pytest.mark.parametrize(("size", "kernel"), [("9,31,32", [31, 32]), ("9,32,33", None), ("9,33,32", None)])
def test_a_kernel_as_large_as_the_image(size: str, kernel: object) -> None:
    """AlexNet flattens 256 x 6 x 6 and VGG 512 x 7 x 7 into more values than the DLA has channels."""
    wide = weights(1, int(np.prod([int(n) for n in size.split(",")])), 2)
    found = same(
        ends(
            "2",
            "f = Flatten (q)\na = MatMul (f, wide)\nb = Gemm (f, wide)\ny = Concat <axis = 1> (a, b)",
            size,
            wide=wide,
        ),
        "2",
    )
    assert found.ops == (["Conv", "Conv", "Concat", "Reshape"] if kernel else ["Reshape", "MatMul", "Gemm", "Concat"])
    assert all(n.get("kernel_shape") == kernel for n in found.rewritten.graph.nodes if n.op_type == "Conv")
    assert found.gpu()[1] == (["Reshape"] if kernel else ["Reshape", "MatMul", "Gemm"])


@covers("C unknown")
def test_not_with_unknown_channels() -> None:
    found = both(ends("1", "f = Flatten (q)\ny = Gemm <transB = 1> (f, w1, b1)", "3,4,w"))
    assert "D5" not in found.rules and "Gemm" in found.ops
