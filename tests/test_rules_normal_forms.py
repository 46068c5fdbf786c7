"""Rule F8 below opset 11, against the formula; records hold its other forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qdq_translator import translate
from tests.small_models import bypassed, model, ops, pair, run

S: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(0)}


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------ Gemm


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
