"""Rules F1 to F6 and the naming of nodes: equal function for every input, refused where it would not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from tests.explicit_reference import bypassed, random_inputs
from tests.small_models import initializer, model, ops, pair, same_function, translated

S = {"s": np.float32(0.05), "z": np.int8(0)}
BN = {
    "ga": np.array([1, -1.5, 0.5, -2], np.float32), "be": np.arange(4).astype(np.float32),
    "me": np.full(4, 0.1, np.float32), "va": np.array([0.7, 2, 0.3, 5], np.float32),
}  # fmt: skip
NORM = "y = BatchNormalization<epsilon=0.01>(c, ga, be, me, va)"


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------ F1


@pytest.mark.usefixtures("without_normal_forms")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("real", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "layer, x, y, shape",
    [
        ("Conv", "1,3,6,6", "1,4,4,4", (4, 3, 3, 3)),
        ("Conv<group=2>", "1,6,6,6", "1,4,4,4", (4, 3, 3, 3)),
        ("ConvTranspose", "1,3,6,6", "1,4,8,8", (3, 4, 3, 3)),
        ("ConvTranspose<group=2>", "1,6,6,6", "1,4,8,8", (6, 2, 3, 3)),
        ("Gemm", "5,3", "5,4", (3, 4)),
        ("Gemm<transB=1>", "5,3", "5,4", (4, 3)),
        ("Gemm<transB=1, alpha=0.5, beta=2.0>", "5,3", "5,4", (4, 3)),
        ("Gemm<beta=0.0>", "5,3", "5,4", (3, 4)),
        ("MatMul", "5,3", "5,4", (3, 4)),
    ],
)
def test_f1_batchnorm_is_folded(layer: str, x: str, y: str, shape: tuple[int, ...], real: type, bias: bool) -> None:
    if bias and layer == "MatMul":
        pytest.skip("a MatMul has no bias")
    if real is np.float64 and layer == "ConvTranspose<group=2>":
        pytest.skip("neither ONNX Runtime nor ONNX's reference has a grouped ConvTranspose in double precision")
    if real is np.float16 and layer != "Conv":
        pytest.skip("ONNX Runtime's CPU lacks half precision kernels; one layer stands for all")
    kind = {np.float32: "float", np.float64: "double", np.float16: "float16"}[real]
    # the quantized tensor is float32 (Q/DQ know no double); a Cast stands behind it, as exporters write it
    to = helper.np_dtype_to_tensor_dtype(np.dtype(real))
    cast = f"d = Cast<to={to}>(d0)"
    text = f"g (float[{x}] x) => ({kind}[{y}] y) {{ {pair('x', 'd0')} {cast}  c = {layer}(d, w{', b' if bias else ''})  {NORM} }}"
    arrays = {k: v.astype(real) for k, v in {"w": weights(*shape), "b": weights(4), **BN}.items()}
    if real is np.float16:
        t = translated(model(text, opset=15, **arrays, **S))
        factor = BN["ga"].astype(np.float16) / np.sqrt(BN["va"].astype(np.float16).astype(np.float64) + 0.01)
        expected = arrays["w"].astype(np.float32) * factor.astype(np.float32).reshape(-1, 1, 1, 1)
        np.testing.assert_array_equal(initializer(t, "w"), expected)
    elif real is np.float64 and "Conv" in layer:  # ONNX Runtime's CPU has none in double precision
        explicit = model(text, opset=15, **arrays, **S)
        t = translated(explicit)
        feed = random_inputs(explicit, 1)
        expected = ReferenceEvaluator(bypassed(explicit)).run(None, feed)[0]
        np.testing.assert_allclose(ReferenceEvaluator(t.model).run(None, feed)[0], expected, rtol=1e-5, atol=1e-5)
    else:
        t = same_function(model(text, opset=15, **arrays, **S))
    # the network became float32 (rules F7, F9); only its output keeps its type
    border = [] if real is np.float32 else ["Cast"]
    assert ops(t) == ["Gemm" if layer == "MatMul" else layer.split("<")[0], *border]
    assert list(t.model.graph.node[-1].output) == ["y"] and t.model.graph.output[0].type.tensor_type.elem_type == to
    assert {i.data_type for i in t.model.graph.initializer} == {TensorProto.FLOAT}


@pytest.mark.parametrize(
    "body, output, kept",
    [
        (f"c = Conv(d, w) {NORM} o = Exp(c)", ", float[1,4,4,4] o", True),  # another consumer
        (f"c = Conv(d, w) {NORM}", ", float[1,4,4,4] c", True),  # a graph output
        (f"c0 = Conv(d, w) {pair('c0', 'c')} {NORM}", "", True),  # an explicit scale of its own
        ("c = Conv(d, w) y, rm, rv = BatchNormalization<training_mode=1>(c, ga, be, me, va)", ", float[4] rm, float[4] rv", True),
        (f"wr = Exp(dw) c = Conv(d, wr) {NORM}", "", True),  # the weight is computed
        ("c = Conv(d, w) gr = Exp(dg) y = BatchNormalization(c, gr, be, me, va)", "", True),  # the statistics are
        ("r = Relu(d) c = Exp(r) c2 = Conv(d, w) y = BatchNormalization(c2, ga, be, me, va)", "", False),
    ],
)  # fmt: skip
def test_f1_not_folded(body: str, output: str, kept: bool) -> None:
    inputs = "float[1,3,6,6] x, float[4,3,3,3] dw, float[4] dg"
    text = f"g ({inputs}) => (float[1,4,4,4] y{output}) {{ {pair('x', 'd')} {body} }}"
    t = same_function(model(text, opset=14, w=weights(4, 3, 3, 3), **BN, **S))
    assert ("BatchNormalization" in ops(t)) == kept
    assert [told.node for told in t.diagnostics.of_rule("F1")] == ["BatchNormalization_y"] * kept


# ------------------------------------------------------------------ F2

PADS = np.array([0, 0, 1, 2, 0, 0, 1, 0])


@pytest.mark.parametrize(
    "reader, relu, folded",
    [
        ("Conv<pads=[1,0,0,1]>(p, w)", False, True),
        ("Conv<dilations=[2,2]>(p, w)", False, True),
        ('Conv<auto_pad="SAME_UPPER">(p, w)', False, False),
        ("AveragePool<kernel_shape=[3,3], count_include_pad=1>(p)", False, True),
        ("AveragePool<kernel_shape=[3,3]>(p)", False, True),
        ("AveragePool<kernel_shape=[3,3], pads=[1,0,0,0]>(p)", False, False),
        ("AveragePool<kernel_shape=[2,2], count_include_pad=1>(p)", False, False),
        ("AveragePool<kernel_shape=[3,3], ceil_mode=1, strides=[2,2]>(p)", False, False),
        ("MaxPool<kernel_shape=[3,3]>(p)", True, True),
        ("MaxPool<kernel_shape=[3,3]>(p)", False, False),
        ("MaxPool<kernel_shape=[3,3], ceil_mode=1, strides=[2,2]>(p)", True, False),
        ("MaxPool<kernel_shape=[3,3], dilations=[2,2]>(p)", True, False),
        ("Abs(p)", True, False),
    ],
)
def test_f2_padding_with_zero(reader: str, relu: bool, folded: bool) -> None:
    before = "r = Relu(x)" if relu else "r = Identity(x)"
    text = f"g (float[1,3,8,8] x) => (float[a,b,c,d] y) {{ {before} {pair('r', 'q')} p = Pad(q, pads)  y = {reader} }}"
    t = same_function(model(text, w=weights(4, 3, 3, 3), pads=PADS, **S))
    assert ("Pad" not in ops(t)) == folded


# ------------------------------------------------------------------ F3


def test_f3_constants_and_dead_nodes() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ k = Constant<value = float[3] {{1.0, 2.0, 3.0}}>()  {pair("x", "d")}
        dead = Exp(d)  deader = Sin(dead)  y = Add(d, k) }}"""
    t = same_function(model(text, unused=weights(5), **S))
    assert ops(t) == ["Add"] and [i.name for i in t.model.graph.initializer] == ["k"]


# ------------------------------------------------------------------ F5


def test_f5_tensors_are_called_like_their_nodes() -> None:
    text = f"""g (float[2,4] x) => (float[2,2] y) {{ {pair("x", "d")} [split] t1, t2 = Split<axis=1>(d)  [exp] t3 = Exp(t1)
        [y_node] y = Add(t3, t2) }}"""
    t = same_function(model(text, **S), rename_node_outputs=True)
    assert [list(n.output) for n in t.model.graph.node] == [["split", "split_1"], ["exp"], ["y"]]


# ------------------------------------------------------------------ F6: opset 17 for TensorRT 8


def lowered(text: str, opset: int, **arrays: Any) -> Any:
    t = same_function(model(text, opset=opset, ir=9 if opset > 18 else 8, **arrays, **S), platform="jetpack-6.0")
    assert [o.version for o in t.model.opset_import] == [17]
    return t


@pytest.mark.parametrize(
    "op",
    [
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceProd",
        "ReduceSumSquare",
        "ReduceLogSumExp",
    ],
)
@pytest.mark.parametrize("axes", [[2, 3], [-1], None])
def test_f6_axes_of_reductions(op: str, axes: Any) -> None:
    call = f"{op}<keepdims=0>(d{', axes' if axes else ''})"
    t = lowered(f"g (float[1,2,3,4] x) => (float y) {{ {pair('x', 'd')} r = {call}  y = ReduceSum<keepdims=0>(r) }}", 18,
                **({"axes": np.array(axes)} if axes else {}))  # fmt: skip
    node = t.model.graph.node[0]
    assert list(node.input) == ["x"] and [list(a.ints) for a in node.attribute if a.name == "axes"] == (
        [axes] if axes else []
    )


@pytest.mark.parametrize("call, x, opset, word", [
    ("CenterCropPad<axes=[2,3]>(d, pads2)", "1,2,4,4", 18, "CenterCropPad"),
    ('Resize<mode="linear", antialias=1>(d, , k3)', "1,2,4,4", 18, "antialias"),
    ('Resize<mode="linear", axes=[2,3]>(d, , k2)', "1,2,4,4", 18, "axes"),
    ('Resize<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">(d, , k3)', "1,2,4,4", 19, "coordinate"),
    ('Pad<mode="wrap">(d, pads)', "1,2,4,4", 19, "mode"),
    ("Pad(d, pads2, , moving)", "1,2,4,4", 18, "input 4"),
    ("ReduceMean(d, moving)", "1,2,4,4", 18, "input 2"),
    ("ReduceMean<noop_with_empty_axes=1>(d)", "1,2,4,4", 18, "noop"),
    ("DFT(d)", "1,4,4,1", 20, "axis"),
    ('ScatterElements<reduction="max">(d, idx, d)', "1,2,4,4", 18, "reduction"),
    ("AveragePool<kernel_shape=[2,2], dilations=[2,2]>(d)", "1,2,4,4", 19, "dilations"),
    ("Split<axis=1, num_outputs=3>(d)", "1,m,4,4", 18, "num_outputs"),
])  # fmt: skip
def test_f6_refused_where_not_exact(call: str, x: str, opset: int, word: str) -> None:
    left = "y, o1, o2" if "Split" in call else "y"
    text = f"g (float[{x}] x, int64[1] moving, int64[1,2,4,4] idx, float[1,4,4,2] grid) => (float y) {{ {pair('x', 'd')} {left} = {call} }}"
    explicit = model(text, opset=opset, ir=9 if opset > 18 else 8, k=np.array([1, 1, 2, 2], np.float32), k2=np.array([2, 2], np.float32), k3=np.array([1, 1, 0.6, 0.6], np.float32),
                     pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), pads2=np.array([1, 1]), **S)  # fmt: skip
    with pytest.raises(UserError, match=word) as refusal:
        translate(explicit, TranslateOptions(platform="jetpack-6.0"))
    assert "opset 17" in str(refusal.value) and call.split("(")[0].split("<")[0] in str(refusal.value)


# ------------------------------------------------------------------ F6: what the parser needs
