"""Rule F8: the same function in a form that TensorRT's parser makes no layers of its own for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qdq_translator import TranslateOptions, Translation, translate
from tests.small_models import bypassed, f32, model, ops, pair, run, same_function, scales_of

S: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(0)}
SCALE = f32(0.05)


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


# ------------------------------------------------------------------ Clip, empty inputs, chains


# ------------------------------------------------------------------ activations


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
