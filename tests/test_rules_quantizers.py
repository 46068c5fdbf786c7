"""Rules Q1 to Q12, W1, C1: what no record shows, and what is refused. Records hold what is recognised and what it becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from tests.explicit_reference import assert_equal_function, bypassed, random_inputs, run
from tests.record_models import dialects
from tests.small_models import f32, model, ops, pair, same_function, scales_of, translated

OLD_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 20)
S = {"s": np.float32(0.05), "z": np.int8(0)}
TWO_BY_THREE = {"x": (np.array([[-3, -2, -1], [0, 1, 2]]) * np.float32(0.05)).astype(np.float32)}
"""On the grid of scale 0.05: quantizing changes nothing."""


def full_codes(*shape: int, axis: int = 0, seed: int = 0) -> np.ndarray:
    """int8 codes that reach +-127 in every channel along `axis`."""
    rng = np.random.default_rng(seed)
    codes = np.moveaxis(rng.integers(-127, 128, shape).astype(np.int8), axis, 0)
    for index, channel in enumerate(codes):
        channel.flat[index % channel.size] = 127 if index % 2 else -127
    return np.ascontiguousarray(np.moveaxis(codes, 0, axis))


def refusal(explicit: onnx.ModelProto, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        translate(explicit, TranslateOptions(**options))
    return str(caught.value)


# ------------------------------------------------------------------ Q1: the pair


def test_q1_dq_that_only_a_body_reads() -> None:
    """A body that captures a dequantized tensor reads the float tensor afterwards, and its own names stay."""
    then = onnx.parser.parse_graph("t () => (float[2,3] to) { inner = Relu(d)  to = Exp(inner) }")
    other = onnx.parser.parse_graph("e () => (float[2,3] eo) { eo = Sin(d) }")
    explicit = model(f"g (float[2,3] x, bool c) => (float[2,3] y) {{ {pair('x', 'd')} y = Abs(b) }}", **S)
    explicit.graph.node.insert(2, helper.make_node("If", ["c"], ["b"], "inner", then_branch=then, else_branch=other))
    for renamed in (False, True):
        for condition in (True, False):
            feed = {**TWO_BY_THREE, "c": np.array(condition)}
            t = same_function(explicit, feed, exact=True, rename_node_outputs=renamed)
        assert scales_of(t) == {"x": f32(0.05)}
        bodies = {a.name: [n.input[0] for n in a.g.node] for a in t.model.graph.node[0].attribute}
        assert bodies == {"then_branch": ["x", "inner"], "else_branch": ["x"]}
        if renamed:  # the node is called like a tensor inside its body: the new tensor name must not be
            assert t.model.graph.node[0].output[0] != "inner"


# ------------------------------------------------------------------ Q8, C1, C2


@pytest.mark.parametrize("first, second", [(0.2, 0.05), (0.05, 0.2)])
def test_q8_composition_saturates_where_the_explicit_model_does(first: float, second: float) -> None:
    """In numbers: the range of the stripped tensor's scale is where the explicit model's output stops to grow."""
    text = f"g (float[4] x) => (float[4] y) {{ {pair('x', 'a')} {pair('a', 'b', scale='t')} y = Identity(b) }}"
    explicit = model(text, s=np.float32(first), t=np.float32(second), z=np.int8(0))
    feed = {"x": np.array([1e3, 127 * min(first, second), 0.06, -0.31], np.float32)}
    (out,) = run(explicit, feed, ["y"])
    (held,) = set(scales_of(translate(explicit)).values())
    assert out[0] == pytest.approx(127 * held, rel=0.02) and held == f32(min(first, second))


# ------------------------------------------------------------------ Q9: clamping pairs


def test_f12_the_way_to_a_graph_output_may_be_long() -> None:
    steps = "".join(f"t{i + 1} = Transpose<perm=[1,0]>(t{i}) n{i} = Neg(t{i}) " for i in range(2000))
    text = (
        f"g (float[2,2] x) => (float[2,2] y) {{ {pair('x', 'd')} t0 = Clip(d, lo, hi) {steps} y = Transpose(t2000) }}"
    )
    assert ops(translated(model(text, lo=np.float32(-1), hi=np.float32(1), **S)))[0] == "Clip"


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "text, arrays, words",
    [
        ("{pair}", {"s": np.array([0.1, 0.2, 0.3], np.float32), "z": np.zeros(3, np.int8)}, ["3 scales", " per_channel_activations max"]),
        ("{pair}", {"s": np.float32(0.1), "z": np.int8(3)}, ["zero point 3", " asymmetric widen"]),
        ("{pair}", {"s": np.float32(0), "z": np.int8(0)}, ["scale 0", "above 0"]),
        ("{pair}", {"s": np.float32(-0.1), "z": np.int8(0)}, ["scale -0.1"]),
        ("{pair}", {"s": np.float32("nan"), "z": np.int8(0)}, ["scale nan"]),
        ("{pair}", {"s": np.float32("inf"), "z": np.int8(0)}, ["scale inf"]),
        ("s = Abs(x0) {pair}", {"z": np.int8(0)}, ["computed at run time", "dynamic"]),
        ("d_q = QuantizeLinear(x, s, z) d = DequantizeLinear(d_q, t, z)", {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.int8(0)}, ["0.2", "0.1", "equal"]),
        ("c = Cast<to=3>(x) d = DequantizeLinear(c, s, z)", {"s": np.float32(0.1), "z": np.int8(0)}, ["Cast", "not from a quantizer"]),
        ("d_q = QuantizeLinear(x, s, z) r = Cast<to=1>(d_q) d = Exp(r)", {"s": np.float32(0.1), "z": np.int8(0)}, ["Cast_r", "data movement"]),
    ],
)  # fmt: skip
def test_refusals_name_node_tensor_and_remedy(text: str, arrays: dict[str, np.ndarray], words: list[str]) -> None:
    body = text.replace("{pair}", pair("x", "d"))
    message = refusal(model(f"g (float[2,3] x, float x0) => (float[2,3] y) {{ {body} y = Exp(d) }}", **arrays))
    for word in [*words, "Linear"]:
        assert word in message


ASYMMETRIC = f"""g (float[1,3,8,8] x) => (float[1,3,8,8] y) {{ {pair("x", "d", "s", "h")} e = Sin(d)
    {pair("e", "f", "t", "low")} p = Abs(f)  {pair("p", "k", "t", "low")} y = Cos(k) }}"""
POINTS = {"s": np.float32(0.05), "h": np.int8(-28), "t": np.float32(0.01), "low": np.uint8(28)}


def test_asymmetric_data_takes_the_range_of_the_data(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).uniform(-2, 2, (8, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", samples)
    data = {"calibrate": str(tmp_path / "x.npy"), "calibrate_method": "max", "asymmetric": "data"}
    t = translated(model(ASYMMETRIC, **POINTS), **data)
    assert (
        t.scales["x"].value == pytest.approx(np.abs(samples).max() / 127, rel=0.02)
        and t.scales["x_clamp" if "x_clamp" in t.scales else "x"].origin.rule == "K1"
    )
    assert t.scales["x"].value < translated(model(ASYMMETRIC, **POINTS), asymmetric="widen").scales["x"].value / 3
    with pytest.raises(UserError, match="Give them with calibrate"):
        translate(model(ASYMMETRIC, **POINTS), TranslateOptions(asymmetric="data"))


def test_presets_choose_what_becomes_of_asymmetric_activations() -> None:
    t = translated(model(ASYMMETRIC, **POINTS), preset="gpu")
    assert t.options.asymmetric == "widen" and t.diagnostics.of_rule("Q1")[-1].severity == "warning"
    assert TranslateOptions(preset="dla", calibrate="data").asymmetric == "data"
    assert TranslateOptions(preset="gpu", without=["asymmetric"]).asymmetric == "error"


# ------------------------------------------------------------------ W1 to W3


def test_w1_per_tensor_weight_is_reported_with_its_deviation() -> None:
    codes = full_codes(4, 3, 3, 3)
    codes[1:] //= 3  # only the first channel reaches 127
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} w = DequantizeLinear(wq, s, z) y = Conv(d, w) }}"
    t = same_function(model(text, wq=codes, **S))
    (row,) = t.weights
    assert not row.exact and row.full_channels == 1 and row.full_reproduced == 1.0
    rescaled = np.rint(codes / (np.abs(codes).reshape(4, -1).max(1) / 127).reshape(4, 1, 1, 1))
    assert row.reproduced == int((rescaled == codes).sum())
    assert row.largest_code_error == int(np.abs(rescaled - codes).max())
    assert 0 < row.largest_error <= 0.5 / 127 + 1e-6
    (told,) = t.diagnostics.of_rule("W1")
    assert told.tensor == "w" and told.severity == "info" and "3 of 4 channels" in told.message


# ------------------------------------------------------------------ every part with every other


@pytest.mark.parametrize(
    "name", [name for name in dialects() if name.endswith(("-plain", "relu", "output", "readers"))]
)
def test_dialects_of_activations_compute_the_same_on_their_grid(name: str) -> None:
    """Bit for bit what the quantized model computes, for every code but -128, which symmetric int8 does not have."""
    explicit, options = dialects()[name]
    if name.split("-")[1] in ("linear", "relu", "add"):
        assert "Only Clip and data movement" in refusal(explicit, **options)
        return
    if OLD_RUNTIME and "depth" in name:
        pytest.skip("this ONNX Runtime has no DepthToSpace of integers")
    zero = next(numpy_helper.to_array(t) for t in explicit.graph.initializer if t.name == "z")
    low, high = (0, 255) if zero.dtype == np.uint8 else (-127, 127)
    codes = np.random.default_rng(3).integers(low, high + 1, (1, 4, 6, 6)) - int(zero)
    same_function(explicit, {"x": (codes * np.float32(0.05)).astype(np.float32)}, exact=True, **options)


@pytest.mark.parametrize("name", [name for name in dialects() if name.endswith("-baked")])
def test_dialects_of_weights_compute_the_same(name: str) -> None:
    """With a code of -128 as -127 in weights; other constants keep it (rule Q11)."""
    explicit, options = dialects()[name]
    t = translated(explicit, **options)
    feed = random_inputs(t.model, 3)
    names = [v.name for v in explicit.graph.output]
    expected = run(bypassed(explicit, saturate_weights="-add-" not in name), feed, names)
    assert_equal_function(expected, run(t.model, feed, names), 1e-5)


def test_q9_a_clamp_that_a_narrower_one_replaces_is_not_shared() -> None:
    """Two equal quantizers of one tensor, the codes of the first clamped to [0, 127]; the second keeps negative values."""
    codes = {"low": np.int8(0), "high": np.int8(127), "s": np.float32(0.02), "z": np.int8(0)}
    text = """g (float[1, 4] x) => (float[1, 4] y, float[1, 4] u) { q = QuantizeLinear(x, s, z) c = Clip(q, low, high)
        d = DequantizeLinear(c, s, z) u = Sin(d) p = QuantizeLinear(x, s, z) e = DequantizeLinear(p, s, z) y = Cos(e) }"""
    made = translate(model(text, **codes), TranslateOptions(preset="gpu"))
    y, u = run(made.model, {"x": np.array([[-9, -1, 1, 9]], np.float32)}, ["y", "u"])
    assert y.ravel() == pytest.approx(np.cos([-2.56, -1, 1, 2.54])) and u.ravel() == pytest.approx(
        np.sin([0, 0, 1, 2.54])
    )
