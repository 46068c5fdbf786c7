"""Rule W1 for MatMul: a weight scale per column only where both operands are matrices (fact 5.2)."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator.translation.translator import Translation
from tests.small_models import f32, model, ops, pair, same_function, scales_of, translated

S = {"s": np.float32(0.05), "t": np.float32(0.2), "z": np.int8(0)}
CODES = np.random.default_rng(0).integers(-127, 128, (6, 4)).astype(np.int8)
CODES[0] = 127
STEPS = np.array([0.001, 0.01, 0.1, 1.0], np.float32)
WEIGHT = {"w": CODES * STEPS, "ws": STEPS, "wz": np.zeros(4, np.int8)}
BAKED = "q = QuantizeLinear<axis=1>(w, ws, wz)  v = DequantizeLinear<axis=1>(q, ws, wz)"


def matmul(x: str, y: str, body: str, more: str = "", **arrays: np.ndarray) -> Translation:
    text = f"g (float[{x}] x) => (float[{y}] y{more}) {{ {pair('x', 'd')} {BAKED} {body} }}"
    rows = [2 if size == "N" else int(size) for size in x.split(",")]
    feed = {"x": np.random.default_rng(1).standard_normal(rows).astype(np.float32)}
    return same_function(model(text, **WEIGHT, **S, **arrays), feed)


@pytest.mark.parametrize("x", ["3,5,6", "N,5,6", "2,3,5,6"])
def test_w1_matmul_of_higher_rank_works_on_matrices(x: str) -> None:
    y = x[:-1] + "4"
    t = matmul(x, y, f"m = MatMul(d, v) {pair('m', 'e', 't')} y = Tanh(e)")
    assert ops(t) == ["Reshape", "MatMul", "Reshape", "Tanh"]
    (row,) = t.weights
    assert row.exact and row.channels == 4 and not row.one_scale
    assert scales_of(t) == {"x": f32(0.05), "x_2d": f32(0.05), "m_2d": f32(0.2), "m": f32(0.2)}
    assert next(la for la in t.plan if la.op == "MatMul").precision == "int8"
    (told,) = (d for d in t.diagnostics.of_rule("W1") if "nodes" in d.data)
    assert told.node == "MatMul_m" and told.data["nodes"] == ["MatMul_m"]


@pytest.mark.parametrize("bias", [(4,), (1, 1, 4), (1,), ()])
def test_w1_a_bias_stays_beside_its_matmul(bias: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).standard_normal(bias).astype(np.float32)
    t = matmul("3,5,6", "3,5,4", f"m = MatMul(d, v)  a = Add(b, m) {pair('a', 'e', 't')} y = Tanh(e)", b=values)
    assert ops(t) == ["Reshape", "MatMul", "Add", "Reshape", "Tanh"]


def test_w1_two_matrices_and_weights_with_one_scale_stay() -> None:
    assert ops(matmul("5,6", "5,4", "y = MatMul(d, v)")) == ["MatMul"]
    text = f"g (float[3,5,6] x) => (float[3,5,4] y) {{ {pair('x', 'd')} q = QuantizeLinear(w, s, z)  v = DequantizeLinear(q, s, z)  y = MatMul(d, v) }}"
    t = same_function(model(text, w=CODES * np.float32(0.05), **S))
    assert ops(t) == ["MatMul"]
    (row,) = t.weights
    assert row.one_scale and row.exact and row.channels == 1


def test_w1_one_scale_for_columns_of_many_is_reported() -> None:
    """Two sizes are not known, so the matrix form does not apply; 0.001 is no step on a grid of 1."""
    text = f"g (float[N,M,6] x) => (float[N,M,4] y) {{ {pair('x', 'd')} {BAKED} y = MatMul(d, v) }}"
    feed = {"x": np.random.default_rng(1).standard_normal((2, 3, 6)).astype(np.float32)}
    t = same_function(model(text, **WEIGHT, **S), feed)
    (row,) = t.weights
    grid = np.rint(WEIGHT["w"] / (np.abs(WEIGHT["w"]).max() / np.float32(127)))
    assert ops(t) == ["MatMul"] and row.one_scale and not row.exact
    assert row.reproduced == int((grid == CODES).sum()) < CODES.size / 2
    (told,) = t.diagnostics.of_rule("W1")
    assert told.tensor == row.weight and told.data["one_scale"]


def test_w1_a_first_matrix_that_is_constant_has_one_scale() -> None:
    rows = {"w": np.ascontiguousarray(WEIGHT["w"].T), "ws": STEPS, "wz": WEIGHT["wz"]}
    baked = BAKED.replace("axis=1", "axis=0")
    text = f"g (float[6,5] x) => (float[4,5] y) {{ {pair('x', 'd')} {baked} y = MatMul(v, d) }}"
    (row,) = same_function(model(text, **rows, **S)).weights
    assert row.one_scale and not row.exact


@pytest.mark.parametrize("step, several", [(1.0, 0), (1.001, 0), (1.02, 4)])
def test_w1_rounding_to_half_precision_is_not_several_scales(step: float, several: int) -> None:
    """Weights of small codes are rounded by as much of their value as others; columns that differ by 2% are two scales."""
    codes = np.random.default_rng(3).integers(-100, 101, (4, 64)).astype(np.int8)
    codes[:, :7] = np.arange(1, 8)
    half = {
        "w": codes,
        "ws": (0.0123 * step ** (np.arange(64) % 2)).astype(np.float16),
        "wz": np.zeros(64, np.int8),
        "hs": np.float16(0.05),
    }
    text = f"""g (float16[5,64] x) => (float16[5,4] y) {{ {pair("x", "d", "hs")} v = DequantizeLinear<axis=1>(w, ws, wz)
        y = Gemm<transB=1>(d, v) }}"""
    (row,) = translated(model(text, opset=19, ir=9, z=np.int8(0), **half)).weights
    assert row.mixed_channels == several and not row.exact
