"""The arithmetic is that of ONNX Runtime, bit for bit: ties, saturation, zero points, channels, half precision."""

from __future__ import annotations

import dataclasses
from typing import Optional

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from qdq_translator.translation.ir import qparams
from qdq_translator.translation.ir.qparams import QuantParams, dequantize, quantize, tensorrt_weight_codes
from qdq_translator.translation.planning.weight_check import _several_scales
from tests.explicit_reference import run

HALF_DIVISION = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 20)


def runtime(op: str, data: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: Optional[int]) -> np.ndarray:
    result = scale.dtype if op == "DequantizeLinear" else zero.dtype
    node = helper.make_node(op, ["x", "s", "z"], ["y"], **({} if axis is None else {"axis": axis}))
    kinds = [helper.np_dtype_to_tensor_dtype(d) for d in (data.dtype, result)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kinds[0], data.shape)],
        [helper.make_tensor_value_info("y", kinds[1], data.shape)],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return run(model, {"x": data})[0]


def params(scale: np.ndarray, zero: np.ndarray, axis: Optional[int]) -> QuantParams:
    return QuantParams(scale.astype(np.float32), zero.astype(np.int64), zero.dtype.name, axis, scale.dtype)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [0, 3, 128])
@pytest.mark.parametrize("real", ["float32", "float16"])
def test_ties_and_saturation(kind: str, zero: int, real: str) -> None:
    if real == "float16" and HALF_DIVISION:
        pytest.skip("this ONNX Runtime divides half precision in half precision")
    if kind == "int8" and zero == 128:
        zero = -128
    scale, point = np.asarray(0.0625, real), np.asarray(zero, kind)
    halves = np.arange(-700, 700).astype(real) * np.asarray(0.03125, real)  # every second one is a tie
    far = np.array([-1e4, 1e4, 0.0, -0.0, 15.96875, -16.03125], real)
    x = np.concatenate([halves, far])
    codes = quantize(x, params(scale, point, None))
    assert codes.dtype == kind
    np.testing.assert_array_equal(codes, runtime("QuantizeLinear", x, scale, point, None))
    back = dequantize(codes, params(scale, point, None), scale.dtype)
    expected = runtime("DequantizeLinear", codes, scale, point, None)
    assert back.dtype == expected.dtype
    np.testing.assert_array_equal(back, expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_values_and_axes(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from(["int8", "uint8"]))
    axis = data.draw(st.sampled_from([None, 0, 1, 2]))
    shape = (3, 4, 5)
    count = () if axis is None else (shape[axis],)
    scale = (10.0 ** rng.uniform(-6, 3, count)).astype(np.float32)
    zero = np.asarray(rng.integers(-20, 20, count) + (128 if kind == "uint8" else 0)).astype(kind)
    x = (rng.standard_normal(shape) * 10.0 ** rng.uniform(-5, 5)).astype(np.float32)
    scale, zero = np.asarray(scale), np.asarray(zero)
    codes = quantize(x, params(scale, zero, axis))
    np.testing.assert_array_equal(codes, runtime("QuantizeLinear", x, scale, zero, axis))
    np.testing.assert_array_equal(
        dequantize(codes, params(scale, zero, axis), np.dtype(np.float32)),
        runtime("DequantizeLinear", codes, scale, zero, axis),
    )


def test_no_scale_is_infinite() -> None:
    """Codes that stand for values beyond float32."""
    params = QuantParams(np.float32(3e38), np.array(-128), "int8", None, np.dtype(np.float32))
    assert float(params.symmetric_scale()) == pytest.approx(np.finfo(np.float32).max / 127)


def test_dequantize_int32() -> None:
    """A bias code beyond 2**24 is rounded to float32 first, as ONNX Runtime does."""
    codes = np.array([2**24 + 1, -(2**31), 2**31 - 1, 5], np.int32)
    scale, zero = np.asarray(3e-6, np.float32), np.asarray(0, np.int32)
    np.testing.assert_array_equal(
        dequantize(codes, params(scale, zero, None), np.dtype(np.float32)),
        runtime("DequantizeLinear", codes, scale, zero, None),
    )


def test_symmetric_scale_is_the_smallest_that_covers() -> None:
    """Rule `--asymmetric widen`: exact for zero point 0 and for uint8 around 128, else range / 127 or / 128."""
    one = np.float32(0.1)
    for kind, zero, expected in [
        ("int8", 0, one),
        ("uint8", 128, one),
        ("uint8", 0, np.float32(255 * np.float64(one) / 127)),
        ("int8", -128, np.float32(255 * np.float64(one) / 127)),
        ("int8", 127, np.float32(255 * np.float64(one) / 128)),
        ("uint8", 255, np.float32(255 * np.float64(one) / 128)),
    ]:
        p = QuantParams(np.asarray(one), np.asarray(zero, np.int64), kind)
        assert p.symmetric_scale() == expected, (kind, zero)
        low, high = p.real_range()
        assert -128 * float(expected) <= low * (1 - 1e-6) and high * (1 - 1e-6) <= 127 * float(expected)


def test_same_grid_needs_scales_zero_points_and_axis() -> None:
    base = QuantParams(np.array([0.1, 0.2], np.float32), np.zeros(2, np.int64), "int8", 0)
    assert base.same_grid(dataclasses.replace(base))
    assert not base.same_grid(dataclasses.replace(base, axis=1))
    assert not base.same_grid(dataclasses.replace(base, scale=np.array([0.1, 0.3], np.float32)))
    assert not base.same_grid(dataclasses.replace(base, zero_point=np.array([0, 1])))


def test_tensorrt_weight_codes() -> None:
    """Per channel max|w| / 127; a channel of zeros gets scale 0 and codes 0; never below -127."""
    weight = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [127.0, -127.0, 63.5]], np.float32)
    codes, scale = tensorrt_weight_codes(weight, (0,))
    np.testing.assert_array_equal(codes, [[64, -127, 32], [0, 0, 0], [127, -127, 64]])
    np.testing.assert_array_equal(scale, np.array([[2 / 127], [0], [1]], np.float32))


def test_tensorrt_reproduces_every_full_channel() -> None:
    """Rule W1 in arithmetic: whatever the scale, codes that reach +-127 come back, in float32 and float16."""
    rng = np.random.default_rng(0)
    for real in (np.float32, np.float16):
        scale = (10.0 ** rng.uniform(-3.5, 0, (500, 1))).astype(real).astype(np.float32)
        codes = rng.integers(-127, 128, (500, 64)).astype(np.int8)
        codes[:, 0] = rng.choice([-127, 127], 500)
        made, _ = tensorrt_weight_codes((codes * scale).astype(real), (0,))
        np.testing.assert_array_equal(made, codes)


@pytest.mark.parametrize("ratio, several", [(1.0, False), (1.004, False), (1.008, True), (2.0, True)])
def test_several_scales_in_one_row_show_at_any_code(ratio: float, several: bool) -> None:
    """Half precision rounds a step by less than 0.5%; codes below 8 tell as much of it as others, and 0 nothing."""
    codes = np.array([[0, 3, -5], [100, 0, 127], [0, 0, 0]])
    weights = codes * np.float64(0.1)
    weights[0, 2] *= ratio
    assert _several_scales(weights, codes).tolist() == [several, False, False]


@pytest.mark.parametrize("shape", [(7, 5), (3, 40), (64, 1), (1, 64), (9, 2, 3, 4)])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("zero", [0, 3])
def test_a_part_at_a_time_is_the_whole(
    shape: tuple[int, ...], axis: Optional[int], zero: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays beyond 65,536 values are computed in parts; here beyond 16. Each part has its own channels' parameters."""
    rng = np.random.default_rng(len(shape) + zero)
    real = rng.standard_normal(shape).astype(np.float32)
    count = () if axis is None else (shape[axis],)
    scale = (0.01 + rng.random(count) / 50).astype(np.float32)
    zeros = np.asarray(rng.integers(0, zero + 1, count), np.int8)
    p = params(scale, zeros, axis)

    def all_three() -> list[np.ndarray]:
        codes = quantize(real, p)
        return [codes, dequantize(codes, p, np.dtype(np.float32)), *tensorrt_weight_codes(real, (axis or 0,))]

    whole = all_three()
    monkeypatch.setattr(qparams, "_AT_ONCE", 16)
    for expected, found in zip(whole, all_three()):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
