"""Rule Q13: every other quantized form is converted into Q/DQ pairs that compute the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.cleanup import remove_dead_nodes
from qdq_translator.translation.quantizers.dialects import DIALECTS, Converted, convert
from tests.explicit_reference import random_inputs, run
from tests.small_models import f32, model, ops, scales_of, translated

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(3)
FOREIGN = ("qonnx.custom_op.general", "com.amd.quark", "mct_quantizers")


def as_pairs(explicit: onnx.ModelProto) -> tuple[onnx.ModelProto, Converted]:
    """The model with every other form converted, the nodes that nothing reads any more removed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(explicit)
    graph = Graph.from_model(copy)
    converted = convert(graph)
    remove_dead_nodes(graph)
    return graph.to_model(), converted


def both(explicit: onnx.ModelProto, count: int = 1) -> tuple[list[np.ndarray], list[np.ndarray], onnx.ModelProto]:
    """Outputs in ONNX Runtime before and after the conversion of `count` operators."""
    pairs, converted = as_pairs(explicit)
    assert not converted.rejected and sum(converted.dialects.values()) == count
    onnx.checker.check_model(pairs, full_check=True)
    feed = random_inputs(explicit, 7)
    names = [value.name for value in explicit.graph.output]
    return run(explicit, feed, names), run(pairs, feed, names), pairs


# ------------------------------------------------------------------ arithmetic

ARITHMETIC = {
    "div": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  d = Mul(c, s)",
    "mul": "a = Mul(x, k)  r = Round(a)  c = Clip(r, lo, hi)  d = Mul(c, s)",
    "div behind": "a = Mul(x, k)  r = Round(a)  c = Clip(r, lo, hi)  d = Div(c, k)",
    "clip first": "a = Div(x, s)  b = Clip(a, lo, hi)  r = Round(b)  d = Mul(r, s)",
    "min and max": "a = Div(x, s)  r = Round(a)  b = Max(lo, r)  c = Min(b, hi)  d = Mul(s, c)",
    "where": "a = Div(x, s)  r = Round(a)  g = Greater(r, hi)  b = Where(g, hi, r)  l = Less(b, lo)  c = Where(l, lo, b)  d = Mul(c, s)",
    "zero point": "a = Div(x, s)  r = Round(a)  b = Add(r, z)  c = Clip(b, zero, top)  e = Sub(c, z)  d = Mul(e, s)",
    "zero point before": "a = Div(x, s)  b = Add(a, z)  r = Round(b)  c = Clip(r, zero, top)  e = Sub(c, z)  d = Mul(e, s)",
    "estimator": "a = Div(x, s)  b = Clip(a, lo, hi)  r = Round(b)  u = Sub(r, b)  v = Add(b, u)  d = Mul(v, s)",
    "estimator behind": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  e = Mul(c, s)  u = Sub(e, x)  d = Add(x, u)",
    "pact": "p = Clip(x, zero, alpha)  a = Mul(p, k)  r = Round(a)  d = Div(r, k)",
    "casts": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  i = Cast<to=3>(c)  f = Cast<to=1>(i)  d = Mul(f, s)",
}  # fmt: skip
CONSTANTS = {"s": 2.0**-5, "k": 2.0**5, "lo": -127, "hi": 127, "z": 128, "zero": 0, "top": 255, "alpha": 3.96875}


def arithmetic(body: str, **more: Any) -> onnx.ModelProto:
    used = {
        name: np.float32(value)
        for name, value in {**CONSTANTS, **more}.items()
        if name in body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    return model(f"g (float[2,3,8,8] x) => (float[2,3,8,8] y) {{ {body} y = Abs(d) }}", **used)


@pytest.mark.parametrize("form", ARITHMETIC)
def test_q13_arithmetic_is_the_pair_that_it_computes(form: str) -> None:
    explicit = arithmetic(ARITHMETIC[form])
    before, after, pairs = both(explicit)
    np.testing.assert_array_equal(after[0], before[0])
    assert "QuantizeLinear" in [node.op_type for node in pairs.graph.node]
    t = translated(explicit)
    assert ops(t) == (["Clip", "Abs"] if form == "pact" else ["Abs"])
    assert set(scales_of(t).values()) == {2.0**-5}


def test_q13_arithmetic_with_any_scale_differs_at_ties_only() -> None:
    step = np.float32(0.0371)
    before, after, _ = both(arithmetic(ARITHMETIC["mul"], s=step, k=np.float32(1) / step))
    codes = [np.rint(values[0] / step) for values in (before, after)]
    assert np.abs(codes[0] - codes[1]).max() <= 1 and np.mean(codes[0] != codes[1]) < 0.005


@pytest.mark.parametrize(
    "body", ["a = Mul(x, k)  r = Round(a)  d = Mul(r, s)", "r = Round(x)  d = Add(r, s)", "d = Floor(x)"]
)
def test_q13_rounding_without_limits_is_the_networks_own(body: str) -> None:
    pairs, converted = as_pairs(arithmetic(body))
    assert converted == Converted({}, []) and "QuantizeLinear" not in [node.op_type for node in pairs.graph.node]


# ------------------------------------------------------------------ operators on quantized values

POINTS = {"s": np.float32(2**-6), "z": np.int8(0), "u": np.float32(2**-4), "h": np.int8(-3)}
QUANTIZED = {
    "Conv": "b = QLinearConv<pads=[1,1,1,1]>(a, s, z, w, ws, wz, u, h, bias)",
    "MatMul": "f = Reshape(a, flat)  b = QLinearMatMul(f, s, z, m, ms, mz, u, z)",
    "Add": "b = com.microsoft.QLinearAdd(a, s, z, a, s, z, u, z)",
    "Mul": "b = com.microsoft.QLinearMul(a, s, z, a, s, z, u, z)",
    "Sigmoid": "b = com.microsoft.QLinearSigmoid(a, s, z, u, h)",
    "LeakyRelu": "b = com.microsoft.QLinearLeakyRelu<alpha=0.25>(a, s, z, u, z)",
    "Concat": "b = com.microsoft.QLinearConcat<axis=1>(u, z, a, s, z, a, s, z)",
    "GlobalAveragePool": "b = com.microsoft.QLinearGlobalAveragePool(a, s, z, u, z)",
    "AveragePool": "b = com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(a, s, z, u, z)",
    "Gemm": "f = Reshape(a, flat)  b = com.microsoft.QGemm<transB=1>(f, s, z, g, ms, mz, gb, u, z)",
    "Gemm, weights by rows": "f = Reshape(a, flat)  b = com.microsoft.QGemm(f, s, z, m, ms, mz, gb, u, z)",
    "pool between": "p = MaxPool<kernel_shape=[2,2]>(a)  b = com.microsoft.QLinearAdd(p, s, z, p, s, z, u, z)",
}


def quantized(body: str) -> onnx.ModelProto:
    weight = RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    arrays = {
        **POINTS, "w": weight, "ws": np.array([1, 2, 4, 8], np.float32) * 2**-9, "wz": np.zeros(4, np.int8), "bias": np.array([5, -900, 44, 7], np.int32),
        "flat": np.array([24, 16]), "m": RNG.integers(-127, 128, (16, 5)).astype(np.int8), "g": RNG.integers(-127, 128, (5, 16)).astype(np.int8),
        "ms": np.array([1, 2, 4, 8, 1], np.float32) * 2**-9, "mz": np.zeros(5, np.int8), "gb": np.arange(5, dtype=np.int32) * 100,
        "product": np.array([1, 2, 4, 8], np.float32).reshape(4, 1, 1) * 2**-15,
    }  # fmt: skip
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split()) | {"s", "z", "u", "h"}
    sizes = "A,B" if "flat" in body else "A,B,C,D"
    if "b = " not in body:
        text = f"g (float[2,3,8,8] x) => (float[{sizes}] y) {{ a = QuantizeLinear(x, s, z)  {body} }}"
    else:
        point = "h" if body.rstrip(", bias)").endswith("h") else "z"
        text = f"g (float[2,3,8,8] x) => (float[{sizes}] y) {{ a = QuantizeLinear(x, s, z)  {body}  y = DequantizeLinear(b, u, {point}) }}"
    return model(text, domains=("com.microsoft",), **{k: v for k, v in arrays.items() if k in words})


@pytest.mark.parametrize("op", QUANTIZED)
def test_q13_operators_on_quantized_values(op: str) -> None:
    """Scales that are powers of two, so that real arithmetic is exact: the quantized values agree bit for bit."""
    before, after, pairs = both(quantized(QUANTIZED[op]))
    if op == "Sigmoid":  # a table in one of them
        assert np.abs(after[0] - before[0]).max() <= 2**-4
    else:
        np.testing.assert_array_equal(after[0], before[0])
    assert not any(node.domain for node in pairs.graph.node)


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("i = ConvInteger<pads=[1,1,1,1]>(a, w, z)  c = Cast<to=1>(i)  y = Mul(c, product)", "Conv"),
        (
            "f = Reshape(x, flat)  k = QuantizeLinear(f, s, z)  i = MatMulInteger(k, m, z)  c = Cast<to=1>(i)  y = Mul(c, s)",
            "MatMul",
        ),
    ],
)
@pytest.mark.skipif(
    sys.version_info < (3, 10),
    reason="SKIPPED FOR LACK OF OPERATORS: the last onnxruntime of this Python cannot run the model",
)
def test_q13_integer_products_with_constant_scales(body: str, op: str) -> None:
    explicit = quantized(body)
    before, after, _ = both(explicit)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-6, atol=1e-6)
    t = translated(explicit)
    assert op in ops(t) and scales_of(t)["x"] == 2**-6


# ------------------------------------------------------------------ operators of other domains


def foreign(node: str, **arrays: Any) -> onnx.ModelProto:
    return model(f"g (float[2,3,8,8] x) => (float[2,3,8,8] y) {{ {node}  y = Abs(d) }}", domains=FOREIGN, **arrays)


def qonnx(bits: float, **attributes: Any) -> onnx.ModelProto:
    words = ", ".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items())
    node = f"d = qonnx.custom_op.general.Quant<{words}>(x, s, z, bits)"
    return foreign(node, s=np.float32(0.0371), z=np.float32(0), bits=np.float32(bits))


@pytest.mark.parametrize(("bits", "signed", "narrow"), [(8, 1, 0), (8, 1, 1), (7, 0, 0), (4, 1, 1), (2, 0, 0)])
def test_q13_qonnx(bits: int, signed: int, narrow: int) -> None:
    """Against the published formula: `clip(x / scale)`, rounded half to even, times the scale."""
    explicit = qonnx(bits, signed=signed, narrow=narrow, rounding_mode="ROUND")
    pairs, converted = as_pairs(explicit)
    assert converted.dialects == {"QONNX": 1}
    x = (RNG.standard_normal((2, 3, 8, 8)) * 3).astype(np.float32)
    low, high = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
    step = np.float32(0.0371)
    np.testing.assert_array_equal(
        run(pairs, {"x": x}, ["y"])[0], np.abs(np.rint(np.clip(x / step, low, high)).astype(np.float32) * step)
    )
    assert f32(0.0371) in scales_of(translated(explicit)).values()


@pytest.mark.parametrize(
    ("node", "low", "high", "step"),
    [
        ("ActivationSymmetricQuantizer<threshold = 3.0, signed = 1, num_bits = 8>(x)", -128, 127, 3 / 128),
        ("ActivationPOTQuantizer<threshold = 4.0, signed = 0, num_bits = 7>(x)", 0, 127, 4 / 128),
        ("ActivationUniformQuantizer<min_range = -2.0, max_range = 1.984375, num_bits = 8>(x)", -128, 127, 1 / 64),
    ],
)
def test_q13_mct(node: str, low: int, high: int, step: float) -> None:
    """Against the published formulas."""
    explicit = foreign(f"d = mct_quantizers.{node}")
    pairs, converted = as_pairs(explicit)
    assert converted.dialects == {"MCT quantizers": 1}
    x = (RNG.standard_normal((2, 3, 8, 8)) * 3).astype(np.float32)
    expected = np.abs(np.clip(np.rint(x / np.float32(step)), low, high).astype(np.float32) * np.float32(step))
    np.testing.assert_array_equal(run(pairs, {"x": x}, ["y"])[0], expected)


def test_q13_table_of_the_page() -> None:
    text = (ROOT / "docs" / "dialects.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (?!form|---)([^|]*) \| .*? \| .*? \| .*? \|$", text.split("\n## ")[0], re.M) == [
        row.name for row in DIALECTS
    ]
