"""Rules F1 to F6 and the naming of nodes: equal function for every input, refused where it would not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from tests.explicit_reference import bypassed, random_inputs
from tests.small_models import f32, initializer, model, ops, pair, same_function, scales_of, translated

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


@pytest.mark.usefixtures("without_normal_forms")
@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4)])
def test_f1_gemm_bias_shapes_that_fold(shape: tuple[int, ...]) -> None:
    text = f"g (float[5,3] x) => (float[5,4] y) {{ {pair('x', 'd')} c = Gemm<beta=0.5>(d, w, b)  {NORM} }}"
    t = same_function(model(text, w=weights(3, 4), b=weights(*shape), **BN, **S))
    assert ops(t) == ["Gemm"]


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


@pytest.mark.parametrize("shared", ["weights", "bias", "weight is an output", "bias is an output", "bias and beta"])
def test_f1_shared_parameters_are_copied(shared: str) -> None:
    more = {
        "weights": ("v = Conv(d, w)", "float[1,4,4,4] v"),
        "bias": ("v = Abs(b)", "float[4] v"),
        "weight is an output": ("", "float[4,3,3,3] w"),
        "bias is an output": ("", "float[4] b"),
        "bias and beta": ("v = Exp(d)", "float[1,3,6,6] v"),
    }[shared]
    norm = "y = BatchNormalization(c, ga, b, me, va)" if shared == "bias and beta" else NORM
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y, {more[1]}) {{ {pair('x', 'd')} c = Conv(d, w, b)  {norm} {more[0]} }}"
    t = same_function(model(text, w=weights(4, 3, 3, 3), b=weights(4), **BN, **S))
    assert "BatchNormalization" not in ops(t)


def test_f1_two_batchnorms_on_one_weight() -> None:
    text = f"""g (float[1,3,6,6] x) => (float[1,4,4,4] y, float[1,4,4,4] v) {{ {pair("x", "d")}
        c = Conv(d, w)  {NORM}  e = Conv(d, w)  v = BatchNormalization(e, be, ga, va, va) }}"""
    t = same_function(model(text, w=weights(4, 3, 3, 3), **BN, **S))
    assert ops(t) == ["Conv", "Conv"] and len({n.input[1] for n in t.model.graph.node}) == 2


def test_f1_scale_of_the_folded_output_stays() -> None:
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] v) {{ {pair('x', 'd')} c = Conv(d, w)  {NORM} {pair('y', 'e')} v = Exp(e) }}"
    t = same_function(model(text, w=weights(4, 3, 3, 3), **BN, **S))
    assert ops(t) == ["Conv", "Exp"] and scales_of(t) == dict.fromkeys("xy", f32(0.05))


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


@pytest.mark.parametrize("scale, folded", [(0.05, True), (0.2, False)])
def test_f2_a_padded_tensor_with_a_scale_of_its_own(scale: float, folded: bool) -> None:
    text = f"g (float[1,3,8,8] x) => (float[a,b,c,d] y) {{ {pair('x', 'q')} p = Pad(q, pads) {pair('p', 'pq', scale='t')} y = Conv(pq, w) }}"
    t = same_function(model(text, w=weights(4, 3, 3, 3), pads=PADS, t=np.float32(scale), **S))
    assert ("Pad" not in ops(t)) == folded and scales_of(t).get("p", f32(0.05)) == f32(scale)


def test_f2_a_padded_tensor_with_another_reader_or_as_output() -> None:
    for reader in ("v = Exp(p)", "v = Identity(p)"):
        text = f"g (float[1,3,8,8] x) => (float[a,b,c,d] y, float[a,e,f,g] v) {{ {pair('x', 'q')} p = Pad(q, pads)  y = Conv(p, w)  {reader} }}"
        t = same_function(model(text, w=weights(4, 3, 3, 3), pads=PADS, **S))
        (told,) = t.diagnostics.of_rule("F2")
        assert "Pad" in ops(t) and "'p'" in told.message


# ------------------------------------------------------------------ F3


def test_f3_constants_and_dead_nodes() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ k = Constant<value = float[3] {{1.0, 2.0, 3.0}}>()  {pair("x", "d")}
        dead = Exp(d)  deader = Sin(dead)  y = Add(d, k) }}"""
    t = same_function(model(text, unused=weights(5), **S))
    assert ops(t) == ["Add"] and [i.name for i in t.model.graph.initializer] == ["k"]


def test_f3_weights_that_are_standardized_in_the_graph() -> None:
    """As NFNets export them: a BatchNormalization in training mode over the quantized values of a weight (timm's ScaledStdConv2d)."""
    rows = np.random.default_rng(3).integers(-127, 128, (1, 4, 27)).astype(np.int8)
    gain = np.array([0.5, 1, 1.5, 2], np.float32)
    explicit = model(
        "g (float[1,3,8,8] x) => (float[1,4,6,6] y) {"
        + pair("x", "d")
        + """r = DequantizeLinear(rows, s, z)
        w, mean, var = BatchNormalization<training_mode=1, momentum=1.0, epsilon=0.001>(r, gain, zeros, zeros, zeros)
        v = Reshape(w, shape)
        y = Conv(d, v)
        }""",
        s=np.float32(0.05),
        z=np.int8(0),
        rows=rows,
        gain=gain,
        zeros=np.zeros(4, np.float32),
        shape=np.array([4, 3, 3, 3]),
    )
    done = translated(explicit)
    assert ops(done) == ["Conv"]
    real = rows[0].astype(np.float64) * 0.05
    want = (real - real.mean(1, keepdims=True)) / np.sqrt(real.var(1, keepdims=True) + 0.001) * gain[:, None]
    np.testing.assert_allclose(initializer(done, "v"), want.reshape(4, 3, 3, 3), rtol=1e-5, atol=1e-6)


def test_f3_a_graph_output_that_is_constant() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y, float[3] k, float[3] j) {{ k = Constant<value = float[3] {{1.0, 2.0, 3.0}}>()
        {pair("x", "d")} y = Add(d, k) }}"""
    same_function(model(text, j=weights(3), **S))


# ------------------------------------------------------------------ F5


def test_f5_tensors_are_called_like_their_nodes() -> None:
    text = f"""g (float[2,4] x) => (float[2,2] y) {{ {pair("x", "d")} [split] t1, t2 = Split<axis=1>(d)  [exp] t3 = Exp(t1)
        [y_node] y = Add(t3, t2) }}"""
    t = same_function(model(text, **S), rename_node_outputs=True)
    assert [list(n.output) for n in t.model.graph.node] == [["split", "split_1"], ["exp"], ["y"]]


def test_f5_collisions() -> None:
    """Names of inputs, outputs, initializers and of other nodes' tensors are never taken twice."""
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ {pair("x", "d")} [x] a = Exp(d)  [y] b = Sin(a)  [k] c = Add(b, k)
        [n] n_1 = Abs(c)  [n_1] n = Neg(n_1)  [a] e = Cos(n)  [last] y = Exp(e) }}"""
    t = same_function(model(text, k=weights(3), **S), rename_node_outputs=True)
    made = [o for n in t.model.graph.node for o in n.output]
    assert len(set(made)) == len(made) and made == ["x_t1", "y_t1", "k_t1", "n", "n_1", "a", "y"]
    assert scales_of(t) == {"x": f32(0.05)}


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


@pytest.mark.parametrize(
    "attributes",
    [
        'mode="nearest"',
        'mode="linear"',
        'mode="cubic", antialias=0',
        'mode="linear", keep_aspect_ratio_policy="stretch"',
    ],
)
@pytest.mark.parametrize("opset", [18, 19])
def test_f6_resize(attributes: str, opset: int) -> None:
    lowered(f"g (float[1,2,4,4] x) => (float[1,2,8,8] y) {{ {pair('x', 'd')} y = Resize<{attributes}>(d, , k) }}", opset,
            k=np.array([1, 1, 2, 2], np.float32))  # fmt: skip


@pytest.mark.parametrize("axes, pads", [([2, 3], [1, 2, 0, 1]), ([-1], [1, 2]), ([3, 1], [1, 0, 2, 0])])
@pytest.mark.parametrize("value", ["", ", v"])
def test_f6_pad_axes(axes: list[int], pads: list[int], value: str) -> None:
    lowered(f"g (float[1,2,4,4] x) => (float[a,b,c,e] y) {{ {pair('x', 'd')} p = Pad(d, k{value or ', '}, axes)  y = Exp(p) }}", 18,
            k=np.array(pads), axes=np.array(axes), v=np.float32(0.5))  # fmt: skip


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_f6_changes_of_types_only(opset: int) -> None:
    text = f"""g (float[2,3] x) => (float[6,1] y) {{ {pair("x", "d")} a = Clip(d, lo, hi)  b = Gemm(a, w)  c = Relu(b)  e = Flatten(c)
        f = Cast<to=1>(e)  h = Reshape(f, shape)  i = Identity(h)  j = Transpose(i)  y = Unsqueeze(j, one) }}"""
    lowered(text.replace("float[6,1] y", "float[6,1,1] y"), opset, lo=np.float32(-1), hi=np.float32(1), w=weights(3, 3),
            shape=np.array([1, 6]), one=np.array([1]))  # fmt: skip


@pytest.mark.parametrize(
    "call, x, opset, word",
    [
        ("CenterCropPad<axes=[2,3]>(d, pads2)", "1,2,4,4", 18, "CenterCropPad"),
        ('Resize<mode="linear", antialias=1>(d, , k3)', "1,2,4,4", 18, "antialias"),
        ('Resize<mode="linear", axes=[2,3]>(d, , k2)', "1,2,4,4", 18, "axes"),
        (
            'Resize<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">(d, , k3)',
            "1,2,4,4",
            19,
            "coordinate",
        ),
        ('Pad<mode="wrap">(d, pads)', "1,2,4,4", 19, "mode"),
        ("Pad(d, pads2, , moving)", "1,2,4,4", 18, "input 4"),
        ("ReduceMean(d, moving)", "1,2,4,4", 18, "input 2"),
        ("ReduceMean<noop_with_empty_axes=1>(d)", "1,2,4,4", 18, "noop"),
        ("DFT(d)", "1,4,4,1", 20, "axis"),
        ('ScatterElements<reduction="max">(d, idx, d)', "1,2,4,4", 18, "reduction"),
        ("AveragePool<kernel_shape=[2,2], dilations=[2,2]>(d)", "1,2,4,4", 19, "dilations"),
        ("Split<axis=1, num_outputs=3>(d)", "1,m,4,4", 18, "num_outputs"),
    ],
)
def test_f6_refused_where_not_exact(call: str, x: str, opset: int, word: str) -> None:
    left = "y, o1, o2" if "Split" in call else "y"
    text = f"g (float[{x}] x, int64[1] moving, int64[1,2,4,4] idx, float[1,4,4,2] grid) => (float y) {{ {pair('x', 'd')} {left} = {call} }}"
    explicit = model(text, opset=opset, ir=9 if opset > 18 else 8, k=np.array([1, 1, 2, 2], np.float32), k2=np.array([2, 2], np.float32), k3=np.array([1, 1, 0.6, 0.6], np.float32),
                     pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), pads2=np.array([1, 1]), **S)  # fmt: skip
    with pytest.raises(UserError, match=word) as refusal:
        translate(explicit, TranslateOptions(platform="jetpack-6.0"))
    assert "opset 17" in str(refusal.value) and call.split("(")[0].split("<")[0] in str(refusal.value)


def test_f6_tensorrt_10_keeps_its_opset() -> None:
    text = f"g (float[1,3,4,4] x) => (float[1,3,1,1] y) {{ {pair('x', 'd')} y = ReduceMean(d, axes) }}"
    t = same_function(model(text, opset=18, axes=np.array([2, 3]), **S), platform="jetpack-6.2")
    assert [o.version for o in t.model.opset_import] == [18]


# ------------------------------------------------------------------ F6: what the parser needs


def test_f6_kernel_shape_and_weights_as_initializers() -> None:
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} w = Identity(w0)  b = Identity(b0)  y = Conv(d, w, b) }}"
    t = same_function(model(text, w0=weights(4, 3, 3, 3), b0=weights(4), **S))
    (conv,) = t.model.graph.node
    assert helper.get_attribute_value(conv.attribute[0]) == [3, 3]
    assert set(conv.input[1:]) <= {i.name for i in t.model.graph.initializer}


def test_f6_tensors_called_as_tensorrt_would_call_its_own() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ {pair("x", "d")} k_output = Exp(d)  a = Add(k_output, k)  gemm_output = Sin(a)
        [gemm] b = Gemm(gemm_output, w)  sm_output = Abs(b)  [sm] y = Softmax(sm_output) }}"""
    t = same_function(model(text, k=weights(3), w=weights(3, 3), **S), platform="jetpack-6.2")
    tensors = {o for n in t.model.graph.node for o in n.output}
    made_up = {f"{n.name}_output" for n in t.model.graph.node if n.op_type in ("Gemm", "Softmax")}
    made_up |= {f"{i.name}_output" for i in t.model.graph.initializer}
    assert not tensors & made_up and not set(t.automatic) & tensors


def test_f6_a_name_that_looks_like_a_helper_and_is_none_stays() -> None:
    text = f"""g (float[3,2] x) => (float[3,2] y) {{ {pair("x", "d")} [sp] a, b, c = Split(d, parts) [sp_7] e = Exp(a)
        y = Concat<axis=0>(b, e, c) }}"""
    t = same_function(model(text, parts=np.array([1, 1, 1]), **S), platform="jetpack-6.2")
    assert "sp_7" in {n.name for n in t.model.graph.node}


def test_names_of_nodes() -> None:
    explicit = model(
        f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Exp(d) b = Sin(a) c = Cos(b) e = Abs(c) y = Neg(e) }}",
        **S,
    )
    for node, name in zip(explicit.graph.node[2:], ["", "same", "same", "a,b'c*\n", "same_1"]):
        node.name = name
    t = same_function(explicit)
    names = [n.name for n in t.model.graph.node]
    assert names == ["Exp_a", "same", "same_2", "a_b_c__", "same_1"]
    (told,) = [d for d in t.diagnostics if "were renamed" in d.message]
    assert told.data["renamed"]["same_2"] == "same"


def test_names_with_line_breaks() -> None:
    explicit = model(
        f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Exp(d) y = Add(a, k) }}", k=weights(3), **S
    )
    explicit.graph.initializer[0].name = "k\nk"
    explicit.graph.node[3].input[1] = "k\nk"
    explicit.graph.node[2].output[0] = explicit.graph.node[3].input[0] = "a\r\na"
    t = same_function(explicit, platform="jetpack-6.2")
    assert "k_k_output: " in t.cache.to_text() and list(t.model.graph.node[0].output) == ["a_a"]
    explicit.graph.input[0].name = explicit.graph.node[0].input[0] = "x\nx"
    with pytest.raises(UserError, match="line break"):
        translate(explicit)


def test_value_types_of_the_example_are_known() -> None:
    t = translated(
        model(f"g (float[2,3] x) => (int8[2,3] y) {{ {pair('x', 'd')} e = Exp(d) y = QuantizeLinear(e, s, z) }}", **S)
    )
    onnx.checker.check_model(t.model, full_check=True)
    assert t.model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize(("channels", "left"), [("4", []), ("c", ["Shape", "Gather", "Div"])])
def test_f3_arithmetic_on_known_sizes_is_constant(channels: str, left: list[str]) -> None:
    """The half of the channels, as exporters write `chunk`; the batch size may be open."""
    body = "h = Shape(x) g = Gather(h, one) n = Div(g, two) o = Slice(i, zero, n, one)"
    text = (
        f"g (float[b,{channels},2,2] x) => (float[b,k,2,2] y) {{ {pair('x', 'i')} {body} {pair('o', 'p')} y = Abs(p) }}"
    )
    numbers = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4, 2, 2)).astype(np.float32)}
    t = same_function(model(text, **numbers, **S), feed, platform="jetpack-6.2")
    assert ops(t) == [*left, "Slice", "Abs"]
