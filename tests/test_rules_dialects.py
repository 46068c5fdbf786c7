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
from tests.record_models import ARITHMETIC, INTEGER_PRODUCTS, QUANTIZED, arithmetic, foreign, quantized
from tests.small_models import f32, ops, scales_of, translated

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(3)


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


@pytest.mark.parametrize("op", QUANTIZED)
def test_q13_operators_on_quantized_values(op: str) -> None:
    """Scales that are powers of two, so that real arithmetic is exact: the quantized values agree bit for bit."""
    before, after, pairs = both(quantized(QUANTIZED[op]))
    if op == "Sigmoid":  # a table in one of them
        assert np.abs(after[0] - before[0]).max() <= 2**-4
    else:
        np.testing.assert_array_equal(after[0], before[0])
    assert not any(node.domain for node in pairs.graph.node)


@pytest.mark.parametrize(("body", "op"), INTEGER_PRODUCTS)
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


@pytest.mark.parametrize(("node", "low", "high", "step"), [
    ("ActivationSymmetricQuantizer<threshold = 3.0, signed = 1, num_bits = 8>(x)", -128, 127, 3 / 128),
    ("ActivationPOTQuantizer<threshold = 4.0, signed = 0, num_bits = 7>(x)", 0, 127, 4 / 128),
    ("ActivationUniformQuantizer<min_range = -2.0, max_range = 1.984375, num_bits = 8>(x)", -128, 127, 1 / 64),
])  # fmt: skip
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
