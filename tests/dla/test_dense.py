"""Rule D5: fully connected layers on [N, C, 1, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, case, covers, graph, ints, pair, same, weights

W1, W2 = weights(1, 8, 12), weights(2, 5, 8)
ARRAYS = {"w1": W1, "b1": weights(3, 8), "w2": W2, "b2": weights(4, 5)}


def ends(batch: str, body: str, shape: str = "3,2,2", out: str = "float[b,k] y", **more: np.ndarray):  # type: ignore[no-untyped-def]
    return graph(f"float[{{N}},{shape}] x", out, pair("x", "q") + body, batch, **{**ARRAYS, **more})


MLP = (
    "f = Flatten (q)\nh = Gemm <transB = 1> (f, w1, b1)\n"
    + pair("h", "hp")
    + "r = Relu (hp)\ny = Gemm <transB = 1> (r, w2, b2)"
)


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_classifier_becomes_one_dla_subgraph(batch: str) -> None:
    found = same(ends(batch, MLP), batch, bits=True)
    assert found.ops == ["Conv", "Relu", "Conv", "Reshape"]
    assert found.gpu() == (["Flatten", "Relu"], ["Reshape"])  # only what makes the graph output two-dimensional
    assert found.rewritten.dla is not None and found.rewritten.dla.subgraphs == 1
    # inner tensors keep their names and scales and have four dimensions
    for name in ("x", "h", "r"):
        assert found.rewritten.tensor_scales[name] == found.plain.tensor_scales[name]
    assert found.rewritten.types.shape("h")[1:] == (8, 1, 1)  # type: ignore[index]
    assert found.rewritten.types.shape("y")[1:] == (5,)  # type: ignore[index]
    # rule S2: what stands for the graph output gets no scale either
    assert "y_4d" not in found.rewritten.tensor_scales
    assert {n.name: n.op_type for n in found.rewritten.graph.nodes}[
        next(n.name for n in found.plain.graph.nodes if n.op_type == "Gemm")
    ] == "Conv"


def test_weights_keep_their_codes() -> None:
    scale = (np.abs(W1).max(axis=1) / np.float32(127)).astype(np.float32)
    body = (
        "wq = QuantizeLinear <axis = 0> (w1, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\n"
        "f = Flatten (q)\ny = Gemm <transB = 1> (f, wd, b1)"
    )
    found = same(ends("1", body, ws=scale, wz=np.zeros(8, np.int8)), bits=True)
    assert found.ops == ["Conv", "Reshape"]
    assert [(w.codes, w.channels, w.exact) for w in found.rewritten.weights] == [(96, 8, True)]


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
def test_what_reads_value_by_value_needs_a_reshape(batch: str) -> None:
    """Relu has no kernel that could flatten; so do tensors whose scale is not that of the tensor before them."""
    relu = same(ends(batch, "f = Flatten (q)\nr = Relu (f)\ny = Gemm <transB = 1> (r, w1, b1)"), batch, bits=True)
    assert relu.ops == ["Reshape", "Relu", "Conv", "Reshape"]
    body = "f = Flatten (q)\nfq = QuantizeLinear (f, own, z)\nfd = DequantizeLinear (fq, own, z)\ny = Gemm <transB = 1> (fd, w1, b1)"
    own = same(ends(batch, body, own=np.float32(0.07)), batch, bits=True)
    assert own.ops == ["Reshape", "Conv", "Reshape"]
    assert own.rewritten.tensor_scales["f"] == own.plain.tensor_scales["f"] != own.plain.tensor_scales["x"]


@pytest.mark.parametrize("batch", BATCHES)
def test_pooled_features_need_no_reshape(batch: str) -> None:
    body = "m = GlobalAveragePool (q)\n" + pair("m", "mp") + "f = Flatten (mp)\ny = Gemm <transB = 1> (f, w1, b1)"
    found = same(ends(batch, body, "12,4,4"), batch, bits=True)
    assert found.ops == ["AveragePool", "Conv", "Reshape"]
    assert found.rewritten.rewrites.tensors == {"f": ["m"]}


@covers(1)
@pytest.mark.parametrize(
    "dense",
    [
        "MatMul (f, wt)",
        "Gemm <alpha = 0.5, beta = 2.0, transB = 1> (f, w1, b1)",
        "Gemm (f, wt)",
        "Gemm (f, wt, one)",
    ],
)
def test_forms_of_the_dense_layer(dense: str) -> None:
    body = f"f = Flatten (q)\ny = {dense}"
    found = same(ends("3", body, wt=np.ascontiguousarray(W1.T), one=np.float32(0.7)), "3")
    assert found.ops == ["Conv", "Reshape"]
    (conv,) = (node for node in found.rewritten.graph.nodes if node.op_type == "Conv")
    assert conv.get("kernel_shape") == [2, 2] and found.rewritten.graph.initializers[conv.inputs[1]].dims == (
        8,
        3,
        2,
        2,
    )


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
def test_layers_around(batch: str) -> None:
    body = (
        "f = Flatten (q)\na = Gemm <transB = 1> (f, w1, b1)\nb = MatMul (f, wt)\n"
        "c = Add (a, b)\nd = Mul (c, k)\ne = Add (d, b1)\ng1 = Sigmoid (e)\nh = Mul (e, g1)\nj = Concat <axis = -1> (h, a)\n"
        "y = Softmax (j)"
    )
    found = same(ends(batch, body, wt=np.ascontiguousarray(W1.T), k=np.float32(0.3)), batch)
    assert found.gpu()[1] == ["Reshape"]
    assert "Flatten" in found.gpu()[0]


def test_shared_weight_is_copied() -> None:
    square = {"v": weights(9, 12, 12)}
    body = "f = Flatten (q)\na = Gemm (f, v)\ny = Gemm <transB = 1> (a, v)"
    found = same(ends("1", body, **square))
    assert found.ops == ["Conv", "Conv", "Reshape"]


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


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("view", ["Reshape (r, image)", "Unsqueeze (r, places)"])
def test_the_start_of_a_generator_is_one_region(view: str, batch: str) -> None:
    """A fully connected layer and a view of it as an image: the Reshape of four dimensions runs on the DLA."""
    channels, sizes = (2, (2, 2)) if "image" in view else (8, (1, 1))
    body = pair("x", "q") + "h = Gemm <transB = 1> (q, w1, b1)\n" + pair("h", "hp") + f"r = Relu (hp)\nv = {view}\n"
    body += pair("v", "vp") + "y = Conv (vp, w3)"
    more = {"image": ints(0, 2, 2, 2)} if "image" in view else {"places": ints(2, 3)}
    explicit = graph(
        "float[{N},12] x",
        "float[b,c,h,w] y",
        body,
        batch,
        w1=W1,
        b1=ARRAYS["b1"],
        w3=weights(5, 3, channels, 1, 1),
        **more,
    )
    found = same(explicit, batch, bits=True)
    assert found.ops == ["Reshape", "Conv", "Relu", "Reshape", "Conv"] and found.gpu()[1] == ["Reshape"]
    assert found.rewritten.types.shape("v")[1:] == (channels, *sizes)  # type: ignore[index]
