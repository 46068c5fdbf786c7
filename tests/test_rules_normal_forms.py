"""Rule F8: the same function in a form that TensorRT's parser makes no layers of its own for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.core.errors import UserError
from tests.small_models import bypassed, f32, model, ops, pair, run, same_function, scales_of

S: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(0)}
SCALE = f32(0.05)
ONNXRUNTIME = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def between(body: str, inputs: str = "float[2,3] x", output: str = "float[2,3] y", **arrays: Any) -> onnx.ModelProto:
    """`i` -> body -> `o`, both quantized with SCALE; the last node makes the graph output."""
    opset = arrays.pop("opset", 17)
    text = f"g ({inputs}) => ({output}) {{ {pair('x', 'i')} {body} {pair('o', 'p')} y = Abs(p) }}"
    return model(text, opset=opset, **arrays, **S)


def int8(t: Translation) -> dict[str, bool]:
    """Layer -> in INT8; without the Abs that makes the graph output."""
    return {layer.name: layer.precision == "int8" for layer in t.plan if layer.op != "Abs"}


# ------------------------------------------------------------------ Gemm


@pytest.mark.parametrize("bias", [(), (4,), (1,), (1, 4), (2, 4), (2, 1)])
@pytest.mark.parametrize("factors", ["", "alpha=0.5, beta=-2.0", "alpha=-0.25, transB=1"])
def test_f8_gemm_is_a_product_and_nothing_else(factors: str, bias: tuple[int, ...]) -> None:
    w = weights(4, 3) if "transB" in factors else weights(3, 4)
    b = weights(*bias)
    t = same_function(between(f"[fc] o = Gemm<{factors}>(i, w, b)".replace("<>", ""), output="float[2,4] y", w=w, b=b))
    product, total, _ = t.model.graph.node
    assert ops(t) == ["Gemm", "Add", "Abs"] and len(product.input) == 2 and product.name == "fc"
    assert {a.name for a in product.attribute} <= {"transA", "transB"}
    constant = next(i for i in t.model.graph.initializer if i.name == total.input[1])
    assert len(constant.dims) == 2
    beta = -2.0 if "beta" in factors else 1.0
    expected = SCALE + abs(beta) * np.abs(b.astype(np.float64)).max() / 127
    assert scales_of(t)[product.output[0]] == pytest.approx(expected, rel=1e-6)
    assert all(int8(t).values())


def test_f8_the_codes_of_a_gemm_survive_a_factor() -> None:
    codes = np.random.default_rng(1).integers(-127, 128, (4, 3)).astype(np.int8)
    codes[:, 0] = 127
    body = "w = DequantizeLinear<axis=0>(q, ws, wz) o = Gemm<alpha=-0.3, transB=1>(i, w, b)"
    ws = np.array([0.1, 0.02, 0.003, 7], np.float32)
    t = same_function(between(body, output="float[2,4] y", q=codes, ws=ws, wz=np.zeros(4, np.int8), b=weights(4)))
    (check,) = t.weights
    assert check.exact and check.codes == 12


@pytest.mark.parametrize(
    ("factors", "product"), [("beta=2.0", "MatMul"), ("alpha=0.5, transB=1", "MatMul"), ("transA=1", "Gemm")]
)
def test_f8_a_gemm_that_has_to_have_a_bias(factors: str, product: str) -> None:
    """Below opset 11 ONNX's checker, and ONNX Runtime, take none without."""
    w = weights(4, 3) if "transB" in factors else weights(2 if "transA" in factors else 3, 4)
    rows = 3 if "transA" in factors else 2
    quantized = model(
        f"g (float[2,3] x) => (float[{rows},4] y) "
        f"{{ {pair('x', 'i')} {pair('w', 'v')} [fc] o = Gemm<{factors}>(i, v, b) {pair('o', 'p')} y = Abs(p) }}",
        opset=10, w=w, b=weights(4), **S,
    )  # fmt: skip
    t = translate(quantized)
    made = t.model
    onnx.checker.check_model(made, full_check=True)
    assert ops(t)[0] == product and made.graph.node[0].name == "fc" and not any(row.note for row in t.weights)
    feed = {"x": np.random.default_rng(2).standard_normal((2, 3)).astype(np.float32)}
    (actual,) = run(made, feed, ["y"])
    (baked,) = (numpy_helper.to_array(i) for i in bypassed(quantized).graph.initializer if i.name == "w")
    grid = np.clip(np.rint(baked / np.float32(0.05)), -127, 127) * np.float32(0.05)
    x = feed["x"].T if "transA" in factors else feed["x"]
    b = weights(4) * (2 if "beta" in factors else 1)
    want = np.abs((0.5 if "alpha" in factors else 1) * x @ (grid.T if "transB" in factors else grid) + b)
    np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-6)


def test_f8_a_gemm_above_int8_stays_so_with_its_bias() -> None:
    """No scale on the input: neither the product nor the Add of the bias is in INT8, and both are named."""
    text = f"g (float[2,3] x) => (float[2,4] y) {{ e = Exp(x) [fc] o = Gemm(e, w, b) {pair('o', 'p')} y = Abs(p) }}"
    t = same_function(model(text, w=weights(3, 4), b=weights(4), **S))
    assert scales_of(t) == {"o": SCALE} and {"fc", "fc_bias"} <= set(t.fp16_nodes)
    assert not any(int8(t).values())


@pytest.mark.parametrize("product", ["MatMul", "Gemm"])
def test_f8_a_product_and_a_bias_that_the_model_has_apart(product: str) -> None:
    body = f"[mm] m = {product}(i, w) o = Add(m, b)"
    t = same_function(between(body, output="float[2,4] y", w=weights(3, 4), b=weights(4)))
    assert scales_of(t)["m"] == pytest.approx(SCALE + np.abs(weights(4)).max() / 127, rel=1e-6) and all(
        int8(t).values()
    )


def test_f8_layers_that_the_user_keeps_are_kept_with_their_parts() -> None:
    explicit = between("[fc] o = Gemm(i, w, b)", output="float[2,4] y", w=weights(3, 4), b=weights(4))
    t = same_function(explicit, keep_fp16=["fc"])
    assert int8(t) == {"fc": False, "fc_bias": False} and {"fc", "fc_bias"} <= set(t.fp16_nodes)


# ------------------------------------------------------------------ operands


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 1, 1), (1, 1, 1, 4)])
def test_f8_constant_operands_have_full_rank(op: str, shape: tuple[int, ...]) -> None:
    explicit = between(
        f"o = {op}(i, k)", "float[1,2,3,4] x", "float[1,2,3,4] y", k=(np.abs(weights(*shape)) + 0.5).astype(np.float32)
    )
    t = same_function(explicit, platform="jetpack-6.2")
    assert {i.name: len(i.dims) for i in t.model.graph.initializer} == {"k": 4}
    assert set(t.automatic) == {"k_output"}


def test_f8_integers_keep_their_rank() -> None:
    text = f"""g (float[2,3] x) => (float[3,2] y) {{ {pair("x", "d")} s0 = Shape(d) r = Max(s0, one) t = Gather(r, order)
        y = Reshape(d, t) }}"""
    t = same_function(model(text, one=np.int64(1), order=np.array([1, 0]), **S))
    assert len(next(i for i in t.model.graph.initializer if i.name == "one").dims) == 0


# ------------------------------------------------------------------ Clip, empty inputs, chains


def test_f8_clip_without_a_minimum_gets_one() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Clip(d, , six) y = Abs(a) }}"
    t = same_function(model(text, six=np.float32(1), **S))
    clip = next(n for n in t.model.graph.node if n.op_type == "Clip")
    low = next(i for i in t.model.graph.initializer if i.name == clip.input[1])
    assert onnx.numpy_helper.to_array(low) == np.finfo(np.float32).min and len(clip.input) == 3


def test_f8_empty_inputs_at_the_end_go() -> None:
    explicit = between("o = Conv(i, w, )", "float[1,2,3,3] x", "float[1,4,1,1] y", w=weights(4, 2, 3, 3))
    t = same_function(explicit, platform="jetpack-5.1.1")
    assert list(t.model.graph.node[0].input) == ["x", "w"]


@pytest.mark.parametrize(("op", "layer"), [("Sum", "Add"), ("Max", "Max"), ("Min", "Min")])
def test_f8_several_inputs_as_a_chain(op: str, layer: str) -> None:
    text = f"""g (float[2,3] a, float[2,3] b, float[2,3] c) => (float[2,3] y) {{ {pair("a", "a1")} {pair("b", "b1", "t")}
        {pair("c", "c1")} [m] o = {op}(a1, b1, c1, k) {pair("o", "p", "t")} y = Abs(p) }}"""
    t = same_function(model(text, k=weights(2, 3), t=np.float32(0.2), **S))
    assert ops(t) == [layer, layer, layer, "Abs"] and [n.name for n in t.model.graph.node][2] == "m"
    parts = [n.output[0] for n in t.model.graph.node[:2]]
    expected = [SCALE + f32(0.2), 2 * SCALE + f32(0.2)] if op == "Sum" else [f32(0.2)] * 2
    assert [scales_of(t)[name] for name in parts] == pytest.approx(expected, rel=1e-6)
    assert all(int8(t).values())


# ------------------------------------------------------------------ activations


@pytest.mark.parametrize(
    ("call", "opset", "parts", "scales"),
    [
        ("HardSwish(i)", 17, ["HardSigmoid", "Mul"], [1 / 127]),
        ("Mish(i)", 18, ["Softplus", "Tanh", "Mul"], [SCALE + np.log(2) / 127, 1 / 127]),
        ("Celu(i)", 17, ["Elu"], []),
        ("Celu<alpha=2.0>(i)", 17, ["Mul", "Elu", "Mul"], [SCALE / 2, SCALE / 2]),
        ("LogSoftmax(i)", 17, ["Softmax", "Log"], [1 / 127]),
        ("LogSoftmax<axis=0>(i)", 17, ["Softmax", "Log"], [1 / 127]),
        ("LogSoftmax<axis=0>(i)", 11, ["Softmax", "Log"], [1 / 127]),
    ],
)
def test_f8_activations_in_parts(call: str, opset: int, parts: list[str], scales: list[float]) -> None:
    t = same_function(between(f"[act] o = {call}", opset=opset))
    assert ops(t) == [*parts, "Abs"] and t.model.graph.node[len(parts) - 1].name == "act"
    made = [n.output[0] for n in t.model.graph.node[: len(parts) - 1]]
    assert [scales_of(t)[name] for name in made] == pytest.approx(scales, rel=1e-6)
    assert all(int8(t).values())


def test_f8_parts_have_no_scale_where_the_activation_has_none() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} h = HardSwish(d) y = Exp(h) }}"
    t = same_function(model(text, **S))
    assert set(scales_of(t)) == {"x"} and not any(int8(t).values())


# ------------------------------------------------------------------ layers


@pytest.mark.parametrize(
    "call", ["DepthToSpace<blocksize=2>", 'DepthToSpace<blocksize=2, mode="CRD">', "SpaceToDepth<blocksize=2>"]
)
@pytest.mark.parametrize("batch", ["2", "N"])
def test_f8_depth_and_space(call: str, batch: str) -> None:
    out = "2,4,6" if call.startswith("D") else "32,1,1"
    feed = {"x": weights(2, 8, 2, 3) if call.startswith("D") else weights(2, 8, 2, 2)}
    shape = ",".join(map(str, feed["x"].shape[1:]))
    explicit = between(f"[c] o = {call}(i)", f"float[{batch},{shape}] x", f"float[{batch},{out}] y")
    t = same_function(explicit, feed)
    assert ops(t) == ["Reshape", "Transpose", "Reshape", "Abs"] and set(scales_of(t).values()) == {SCALE}
    on_dla = translate(explicit, TranslateOptions(target="orin-dla", platform="jetpack-6.0"))
    assert ops(on_dla)[0] == call.partition("<")[0]


# ------------------------------------------------------------------ what a parser lacks


@pytest.mark.parametrize("call", ["LayerNormalization(i, k, b)", "LayerNormalization<axis=1, epsilon=0.1>(i, k2)"])
def test_f8_layer_normalization_for_8_5(call: str) -> None:
    arrays = {"k": weights(4), "b": weights(4), "k2": weights(3, 4)}
    used = {name: values for name, values in arrays.items() if f" {name}," in call or f" {name})" in call}
    explicit = between(f"[ln] o = {call}", "float[2,3,4] x", "float[2,3,4] y", **used)
    t = same_function(explicit, platform="jetpack-5.1.1")
    assert "LayerNormalization" not in ops(t) and t.graph.producer["o"].name == "ln"
    assert set(scales_of(t)) == {"x", "o"}
    for platform in (None, "jetpack-6.0", "jetpack-6.2"):
        assert ops(same_function(explicit, platform=platform)) == ["LayerNormalization", "Abs"]


@pytest.mark.skipif(ONNXRUNTIME < (1, 23), reason="SKIPPED FOR AN OLD ONNX RUNTIME: it does not run opset 23")
def test_f8_rms_normalization_for_every_parser() -> None:
    explicit = between("[rms] o = RMSNormalization<epsilon=0.1>(i, k)", opset=23, k=weights(3))
    for platform in ("jetpack-5.1.1", "jetpack-6.2"):
        found = ops(same_function(explicit, platform=platform))
        assert found == ["Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Abs"]
    assert "RMSNormalization" in ops(same_function(explicit, platform=None))


@pytest.mark.parametrize("more, read", [("n", ""), ("v", "v = Neg(n)")], ids=["graph output", "read"])
def test_f8_layer_normalization_whose_mean_is_read_stays(more: str, read: str) -> None:
    text = f"""g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,1] {more}) {{ {pair("x", "i")} o, n = LayerNormalization(i, k) {read}
        {pair("o", "p")} y = Abs(p) }}"""
    with pytest.raises(UserError, match="LayerNormalization"):
        translate(model(text, k=weights(4), **S), TranslateOptions(platform="jetpack-5.1.1"))


@pytest.mark.parametrize(
    ("body", "platform", "words"),
    [
        ("n = IsInf(i) o = Where(n, i, i)", "jetpack-5.1.1", ["IsInf", "8.5", "8.6"]),
        ("o = MaxPool<kernel_shape=[2,1], dilations=[2,1]>(i4)", "jetpack-6.2", ["dilations", "MaxPool"]),
        ("o = HardSwish(i) n = Trilu(o)", "jetpack-4.6", ["Trilu", "8.0", "8.5"]),
    ],
)
def test_f6_what_the_parser_cannot_read_is_refused(body: str, platform: str, words: list[str]) -> None:
    if "i4" in body:
        explicit = between(body.replace("i4", "i"), "float[1,1,3,3] x", "float[1,1,1,3] y")
    else:
        explicit = between(body)
        if "Trilu" in body:
            explicit.graph.output.append(onnx.helper.make_tensor_value_info("n", 1, [2, 3]))
    with pytest.raises(UserError) as refusal:
        translate(explicit, TranslateOptions(platform=platform))
    text = f"{refusal.value.what} {refusal.value.hint}"
    assert all(word in text for word in words)


def test_f6_what_no_parser_can_read_is_a_warning_where_nobody_named_the_platform() -> None:
    explicit = between("o = MaxPool<kernel_shape=[2,1], dilations=[2,1]>(i)", "float[1,1,3,3] x", "float[1,1,1,3] y")
    (told,) = (d for d in translate(explicit).diagnostics.warnings if d.node == "MaxPool_o")
    assert told.code == "W-F6" and "dilations" in told.message
