"""Rules Q1 to Q12, W1 to W3, C1, C2: what is recognised, what it becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from tests.explicit_reference import assert_equal_function, bypassed, random_inputs, run
from tests.record_models import dialects
from tests.small_models import f32, initializer, model, ops, pair, same_function, scales_of, translated

OLD_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 20)
S = {"s": np.float32(0.05), "z": np.int8(0)}
TWO_BY_THREE = {"x": (np.array([[-3, -2, -1], [0, 1, 2]]) * np.float32(0.05)).astype(np.float32)}
"""On the grid of scale 0.05: quantizing changes nothing."""
RNG = np.random.default_rng(5)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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


def test_q1_pair() -> None:
    t = same_function(model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}", **S))
    assert ops(t) == ["Exp"] and t.model.graph.node[0].input[0] == "x"
    assert scales_of(t) == {"x": f32(0.05)} and t.scales["x"].origin.rule == "Q1"


def test_q1_missing_zero_point_is_uint8() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { q = QuantizeLinear(x, s)  d = DequantizeLinear(q, s)  y = Exp(d) }"
    explicit = model(text, s=S["s"])
    message = refusal(explicit)
    assert "uint8" in message and " missing_zero_point int8" in message and "QuantizeLinear_q" in message
    assert scales_of(translated(explicit, missing_zero_point="int8")) == {"x": f32(0.05)}
    widened = same_function(explicit, asymmetric="widen")
    assert ops(widened) == ["Clip", "Exp"]


def test_q1_microsoft_domain() -> None:
    text = """g (float[2,3] x) => (float[2,3] y) { q = com.microsoft.QuantizeLinear(x, s, z)
        d = com.microsoft.DequantizeLinear(q, s, z)  y = Exp(d) }"""
    t = same_function(model(text, domains=("com.microsoft",), **S))
    assert ops(t) == ["Exp"] and [o.domain for o in t.model.opset_import] == [""]


def test_q1_inside_local_functions() -> None:
    """As PyTorch's dynamo exporter writes them: Q/DQ in a function of the model, called twice."""
    explicit = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
        g (float[2,3] x) => (float[2,3] y) <float s = {0.05}, float t = {0.1}, int8 z = {0}> {
            a = pkg.fake(x, s, z)  b = Exp(a)  c = pkg.fake(b, t, z)  y = Sin(c) }
        <domain: "pkg", opset_import: ["" : 17]>
        fake (v, scale, zero) => (w) { q = QuantizeLinear(v, scale, zero)  w = DequantizeLinear(q, scale, zero) }"""
    )
    t = translated(explicit)
    reference = bypassed(onnx.inliner.inline_local_functions(explicit))
    np.testing.assert_array_equal(run(t.model, TWO_BY_THREE)[0], run(reference, TWO_BY_THREE)[0])
    assert ops(t) == ["Exp", "Sin"] and not t.model.functions
    assert scales_of(t) == {"x": f32(0.05), t.model.graph.node[0].output[0]: f32(0.1)}


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


def test_q1_initializers_listed_as_inputs() -> None:
    """IR 3 lists every initializer as a graph input; they are constants, and IR 4 lists them no more."""
    text = f"g (float[2,3] x, float s, int8 z) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}"
    explicit = model(text, opset=13, ir=7, **S)
    reference = run(explicit, TWO_BY_THREE)
    explicit.ir_version = 3
    t = translated(explicit)
    assert [v.name for v in t.model.graph.input] == ["x"] and t.model.ir_version == 4
    np.testing.assert_array_equal(run(t.model, TWO_BY_THREE)[0], reference[0])
    assert scales_of(t) == {"x": f32(0.05)}


# ------------------------------------------------------------------ Q2 to Q5, Q11: constants


@pytest.mark.parametrize("axis", [0, 1, -4])
def test_q2_float_weight_is_baked(axis: int) -> None:
    weight = weights(4, 3, 3, 3)
    channel = axis % 4
    scale = (np.abs(np.moveaxis(weight, channel, 0)).reshape(weight.shape[channel], -1).max(1) / 127).astype(np.float32)
    text = f"""g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair("x", "d")}
        wq = QuantizeLinear<axis={axis}>(w, ws, wz)  wd = DequantizeLinear<axis={axis}>(wq, ws, wz)  y = Conv(d, wd) }}"""
    t = same_function(model(text, w=weight, ws=scale, wz=np.zeros(len(scale), np.int8), **S))
    shape = [-1 if i == channel else 1 for i in range(4)]
    codes = np.clip(np.rint(weight / scale.reshape(shape)), -127, 127).astype(np.float32)
    np.testing.assert_array_equal(initializer(t, "w"), codes * scale.reshape(shape))
    (row,) = t.weights
    assert row.exact == (channel == 0)


def test_q3_int8_weight() -> None:
    codes = full_codes(4, 3, 3, 3)
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} w = DequantizeLinear<axis=0>(wq, ws, wz) y = Conv(d, w) }}"
    scale = np.array([0.1, 0.02, 3.0, 1e-3], np.float32)
    t = same_function(model(text, wq=codes, ws=scale, wz=np.zeros(4, np.int8), **S))
    np.testing.assert_array_equal(initializer(t, "w"), codes.astype(np.float32) * scale.reshape(-1, 1, 1, 1))
    assert t.weights[0].exact and t.weights[0].codes == 108


def test_q3_one_tensor_of_scales_along_two_axes() -> None:
    """Two weights share scales and zero points; the one has them a row, the other a column."""
    text = f"""g (float[2,4] x) => (float[2,4] y) {{ {pair("x", "d")} v = DequantizeLinear<axis=0>(vq, ws, wz)
        w = DequantizeLinear<axis=1>(wq, ws, wz)  e = MatMul(d, v)  y = MatMul(e, w) }}"""
    scale = np.array([0.1, 0.02, 3.0, 1e-3], np.float32)
    rows, columns = full_codes(4, 4), full_codes(4, 4, axis=1)
    t = same_function(model(text, vq=rows, wq=columns, ws=scale, wz=np.zeros(4, np.int8), **S))
    np.testing.assert_array_equal(initializer(t, "v"), rows.astype(np.float32) * scale.reshape(-1, 1))
    np.testing.assert_array_equal(initializer(t, "w"), columns.astype(np.float32) * scale)


def test_q5_layout_nodes_between_dq_and_conv() -> None:
    text = f"""g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair("x", "d")}
        w0 = DequantizeLinear<axis=1>(wq, ws, wz)  w1 = Reshape(w0, shape)  w = Transpose<perm=[3,2,0,1]>(w1)  y = Conv(d, w) }}"""
    codes = full_codes(27, 4, axis=1)
    scale = np.array([0.1, 0.02, 3.0, 1e-3], np.float32)
    t = same_function(model(text, wq=codes, ws=scale, wz=np.zeros(4, np.int8), shape=np.array([3, 3, 3, 4]), **S))
    assert ops(t) == ["Conv"] and t.weights[0].exact
    np.testing.assert_array_equal(initializer(t, "w"), (codes * scale).reshape(3, 3, 3, 4).transpose(3, 2, 0, 1))


def test_q4_int32_bias() -> None:
    text = f"""g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair("x", "d")}
        w = DequantizeLinear(wq, s, z)  b = DequantizeLinear<axis=0>(bq, bs, bz)  y = Conv(d, w, b) }}"""
    codes, scale = np.array([5, -1000, 2**24 + 1, 0], np.int32), np.array([0.1, 0.01, 1e-6, 1], np.float32)
    t = same_function(model(text, wq=full_codes(4, 3, 3, 3), bq=codes, bs=scale, bz=np.zeros(4, np.int32), **S))
    np.testing.assert_array_equal(initializer(t, "b"), codes.astype(np.float32) * scale)
    assert [w.weight for w in t.weights] == ["w"]


def test_q11_constants_that_are_no_weights() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ {pair("x", "d")} {pair("pos", "p")}
        sc = DequantizeLinear(code, s, z)  a = Add(d, p)  y = Mul(a, sc) }}"""
    explicit = model(text, pos=weights(2, 3), code=np.int8(-128), **S)
    t = translated(explicit)
    reference = bypassed(explicit, saturate_weights=False)
    np.testing.assert_array_equal(run(t.model, TWO_BY_THREE)[0], run(reference, TWO_BY_THREE)[0])
    assert ops(t) == ["Add", "Mul"] and t.weights == []
    np.testing.assert_array_equal(initializer(t, "pos"), np.rint(weights(2, 3) / S["s"]) * S["s"])
    assert initializer(t, "sc") == np.float32(-128) * S["s"]  # no weight: nothing saturates
    assert "pos" not in t.tensor_scales and "sc" not in t.tensor_scales


# ------------------------------------------------------------------ Q6, Q7: graph inputs and outputs


def test_q6_int8_graph_input() -> None:
    explicit = model("g (int8[2,3] x) => (float[2,3] y) { d = DequantizeLinear(x, s, z)  y = Exp(d) }", **S)
    t = translated(explicit)
    assert t.model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    assert scales_of(t) == {"x": f32(0.05)} and t.scales["x"].origin.rule == "Q6"
    codes = np.array([[-128, 0, 1], [2, 127, -1]], np.int8)
    np.testing.assert_allclose(run(t.model, {"x": codes * S["s"]})[0], run(explicit, {"x": codes})[0], rtol=1e-6)


def test_q7_dequantized_graph_output() -> None:
    t = same_function(model(f"g (float[2,3] x) => (float[2,3] y) {{ a = Exp(x) {pair('a', 'y')} }}", **S))
    assert list(t.model.graph.node[0].output) == ["y"]
    assert scales_of(t) == {"y": f32(0.05)} and t.scales["y"].origin.source == "y"


def test_q7_int8_graph_output() -> None:
    explicit = model("g (float[2,3] x) => (int8[2,3] y) { a = Sin(x)  y = QuantizeLinear(a, s, z) }", **S)
    t = translated(explicit)
    assert t.model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
    assert ops(t) == ["Sin"] and scales_of(t) == {"y": f32(0.05)}


# ------------------------------------------------------------------ Q8, C1, C2


SERIES = [
    # pairs (source, target, scale), tensors that are read, scales of what stays, conflicts
    ("x a .05  a b .2", "b", {"x": 0.05}, {}),
    ("x a .2  a b .05", "b", {"x": 0.05}, {}),
    ("x a .2  a b .05  b c .1", "c", {"x": 0.05}, {}),
    ("x a .05  a b .2", "a b", {"x": 0.05}, {}),  # whoever reads b sees values within the range of a
    ("x a .2  a b .05", "a b", {"x": 0.2}, {"x": [0.2, 0.05]}),  # another one sees the wider range
    ("x a .2  a b .05  a c .1", "b c", {"x": 0.1}, {"x": [0.1, 0.05]}),  # two series side by side; nobody reads a
    ("x a .1  a b .2  a c .05", "b c", {"x": 0.1}, {"x": [0.1, 0.05]}),
    ("x a .2  x b .05  b c .05", "a c", {"x": 0.2}, {"x": [0.2, 0.05]}),
    ("x a .2  r b .05", "b", {"x": 0.2, "r": 0.05}, {}),  # a Relu between them: two tensors
]


@pytest.mark.parametrize("pairs, read, expected, conflicts", SERIES)
def test_q8_pairs_in_series(
    pairs: str, read: str, expected: dict[str, float], conflicts: dict[str, list[float]]
) -> None:
    body, scales = "", {}
    for step in pairs.split("  "):
        source, target, scale = step.split()
        body += ("r = Relu(a) " if source == "r" else "") + pair(source, target, scale=f"s{target}")
        scales[f"s{target}"] = np.float32(scale)
    readers = read.split()
    body += " ".join(f"e{n} = Exp({n})" for n in readers) + f" y = Sum({', '.join(f'e{n}' for n in readers)})"
    t = same_function(model(f"g (float[2,3] x) => (float[2,3] y) {{ {body} }}", z=np.int8(0), **scales))
    assert scales_of(t) == {n: f32(v) for n, v in expected.items()}
    assert {d.tensor: d.data["scales"] for d in t.diagnostics.of_rule("C1")} == {
        n: [f32(v) for v in values] for n, values in conflicts.items()
    }
    series = t.diagnostics.of_rule("Q8")
    assert [d.code for d in series] == (["I-Q8"] if "r" not in expected and pairs != SERIES[7][0] else [])


@pytest.mark.parametrize("first, second", [(0.2, 0.05), (0.05, 0.2)])
def test_q8_composition_saturates_where_the_explicit_model_does(first: float, second: float) -> None:
    """In numbers: the range of the stripped tensor's scale is where the explicit model's output stops to grow."""
    text = f"g (float[4] x) => (float[4] y) {{ {pair('x', 'a')} {pair('a', 'b', scale='t')} y = Identity(b) }}"
    explicit = model(text, s=np.float32(first), t=np.float32(second), z=np.int8(0))
    feed = {"x": np.array([1e3, 127 * min(first, second), 0.06, -0.31], np.float32)}
    (out,) = run(explicit, feed, ["y"])
    (held,) = set(scales_of(translate(explicit)).values())
    assert out[0] == pytest.approx(127 * held, rel=0.02) and held == f32(min(first, second))


@pytest.mark.parametrize("policy, scale", [("max", 0.2), ("min", 0.05), ("first", 0.05)])
def test_c1_conflicting_scales(policy: str, scale: float) -> None:
    second = pair("x", "b", scale="big")
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'a')} {second} c = Exp(a) d = Sin(b) y = Add(c, d) }}"
    explicit = model(text, big=np.float32(0.2), **S)
    t = same_function(explicit, on_conflict=policy)
    assert scales_of(t) == {"x": f32(scale)}
    (told,) = t.diagnostics.of_rule("C1")
    assert told.code == "W-C1" and told.tensor == "x" and told.data["chosen"] == f32(scale)
    message = refusal(explicit, on_conflict="error")
    assert "'x'" in message and "QuantizeLinear_a_q" in message and "QuantizeLinear_b_q" in message
    with pytest.raises(UserError):
        translate(explicit, TranslateOptions(on_conflict=policy, strict=True))


def test_c2_mixed_readers_are_reported() -> None:
    t = same_function(model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Exp(d) y = Add(a, x) }}", **S))
    (told,) = t.diagnostics.of_rule("C2")
    assert told.tensor == "x" and told.data["float_readers"] == ["Add_y"] and scales_of(t)["x"] == f32(0.05)


# ------------------------------------------------------------------ Q9: clamping pairs


@pytest.mark.parametrize(
    "before, expected",
    [("Relu(x)", ["Clip", "Exp"]), ("Exp(x)", ["Exp", "Clip", "Exp"]), ("Sin(x)", ["Sin", "Relu", "Exp"])],
)
def test_q9_uint8_with_zero_point_0(before: str, expected: list[str]) -> None:
    """Both bounds, but for one that no value exceeds; a Relu that nothing else reads becomes the Clip."""
    text = f"g (float[2,3] x) => (float[2,3] y) {{ a = {before} {pair('a', 'd')} y = Exp(d) }}"
    explicit = model(text, s=np.float32(0.05), z=np.uint8(0))
    assert " asymmetric widen" in refusal(explicit)
    t = same_function(explicit, asymmetric="widen")
    assert ops(t) == expected
    clamped = t.model.graph.node[-1].input[0]
    assert scales_of(t)[clamped] == f32(np.float64(np.float32(0.05)) * 255 / 127)


@pytest.mark.parametrize(
    "low, high, expected",
    [(0, 127, "Relu"), (-8, 7, "Clip"), (10, 127, "Clip"), (-128, -5, "Clip"), (-127, 0, "Clip")],
)
def test_q9_clip_on_codes_stays(low: int, high: int, expected: str) -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd', extra='d_c = Clip(d_q, lo, hi)')} y = Exp(d) }}"
    explicit = model(text, lo=np.int8(low), hi=np.int8(high), **S)
    t = same_function(
        explicit, {"x": (np.array([[-100, -9, -8], [7, 8, 100]]) * S["s"]).astype(np.float32)}, exact=True
    )
    assert ops(t) == [expected, "Exp"]
    assert t.diagnostics.of_rule("Q9")[0].tensor in t.tensor_scales


def test_q9_int8_with_zero_point_at_the_end() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}"
    explicit = model(text, s=np.float32(0.05), z=np.int8(-128))
    t = same_function(explicit, TWO_BY_THREE, exact=True, asymmetric="widen")
    assert ops(t) == ["Clip", "Exp"]


def test_q9_one_scale_repeated_per_channel_clips_too() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd', extra='d_c = Clip(d_q, lo, hi)')} y = Exp(d) }}"
    explicit = model(text, lo=np.int8(0), hi=np.int8(127), s=np.full(3, 0.05, np.float32), z=np.zeros(3, np.int8))
    assert ops(same_function(explicit, TWO_BY_THREE, exact=True)) == ["Relu", "Exp"]


def test_q9_a_clamp_that_a_graph_output_reads_stays() -> None:
    """The next clamp is a node of its own: y is not limited to 7 steps."""
    first, second = pair("x", "y", extra="y_c = Clip(y_q, lo, hi)"), pair("y", "v", extra="v_c = Clip(v_q, low, high)")
    text = f"g (float[2,3] x) => (float[2,3] y, float[2,3] v) {{ {first} {second} }}"
    bounds = {"lo": np.int8(0), "hi": np.int8(127), "low": np.int8(-8), "high": np.int8(7)}
    t = same_function(model(text, **bounds, **S), TWO_BY_THREE, exact=True)
    assert ops(t) == ["Relu", "Clip"]


def test_f12_a_clamp_before_a_graph_output_stays_behind_its_range() -> None:
    """INT8 does not saturate a graph output, so a Clip at the range of the tensor before it is not idle there."""
    moved = "Q = QuantizeLinear(b, s, z) T = Transpose(Q) d = DequantizeLinear(T, s, z)"
    text = f"g (float[2,3] x) => (float[3,2] y) {{ a = Exp(x) {pair('a', 'b', 't', 'u')} {moved} {pair('d', 'y', 'v', 'u')} }}"
    t = same_function(model(text, t=np.float32(0.1), u=np.uint8(0), v=np.float32(0.02), **S), asymmetric="widen")
    assert ops(t) == ["Exp", "Clip", "Transpose", "Clip"]


def test_f12_the_way_to_a_graph_output_may_be_long() -> None:
    steps = "".join(f"t{i + 1} = Transpose<perm=[1,0]>(t{i}) n{i} = Neg(t{i}) " for i in range(2000))
    text = (
        f"g (float[2,2] x) => (float[2,2] y) {{ {pair('x', 'd')} t0 = Clip(d, lo, hi) {steps} y = Transpose(t2000) }}"
    )
    assert ops(translated(model(text, lo=np.float32(-1), hi=np.float32(1), **S)))[0] == "Clip"


# ------------------------------------------------------------------ Q10: movement on codes


@pytest.mark.parametrize(
    "shape, op, arrays",
    [
        ("2,2,2,3", "Transpose<perm=[0,2,3,1]>(q)", {}),
        ("2,2,3,2", "Reshape(q, k)", {"k": [2, 2, 3, 2]}),
        ("2,12", "Squeeze(q, k)", {"k": [1]}),
        ("2,1,12,1", "Unsqueeze(q, k)", {"k": [3]}),
        ("2,12", "Flatten(q)", {}),
        ("2,3,1,1", "MaxPool<kernel_shape=[2,2]>(q)", {}),
        ("2,1,2,2", "Slice(q, k, l, k)", {"k": [1], "l": [2]}),
        ("2,2,2,2", "Gather<axis=1>(q, k)", {"k": [2, 0]}),
        ("3,2,3,2,2", "Expand(q, k)", {"k": [3, 2, 3, 2, 2]}),
        ("2,3,4,2", "Tile(q, k)", {"k": [1, 1, 2, 1]}),
        ("2,3,2,4", "Pad(q, k)", {"k": [0, 0, 0, 1, 0, 0, 0, 1]}),
        ("2,3,2,4", "Pad(q, k, five)", {"k": [0, 0, 0, 1, 0, 0, 0, 1]}),
        ("2,3,2,4", 'Pad<mode="edge">(q, k)', {"k": [0, 0, 0, 1, 0, 0, 0, 1]}),
        ("2,12,1,1", "SpaceToDepth<blocksize=2>(q)", {}),
        ("2,1,4,4", "DepthToSpace<blocksize=2>(q)", {}),
        ("2,3,4,4", 'Resize<mode="nearest">(q, , scale)', {}),
        ("2,3,2,2", "Identity(q)", {}),
        ("2,6,2,2", "Concat<axis=1>(q, q2)", {}),
    ],
    ids=lambda v: v.split("(")[0] if isinstance(v, str) and "(" in v else "",
)
@pytest.mark.parametrize("zero", [0, 7])
def test_q10_movement(shape: str, op: str, arrays: dict[str, list[int]], zero: int) -> None:
    """On grid values the stripped model gives the explicit model's very values, at zero points other than 0 too."""
    if "Space" in op and OLD_RUNTIME:
        pytest.skip("this ONNX Runtime moves no int8 between space and depth")
    given = {"Squeeze": "2,1,12", "Unsqueeze": "2,1,12", "DepthToSpace": "2,4,2,2"}.get(op.split("(")[0].split("<")[0])
    text = f"""g (float[{given or "2,3,2,2"}] x) => (float[{shape}] y) {{ q = QuantizeLinear(x, s, z)  n = Neg(x)
        q2 = QuantizeLinear(n, s, z)  m = {op}  d = DequantizeLinear(m, s, z)  y = Abs(d) }}"""
    more = {k: np.asarray(v, np.int64) for k, v in arrays.items()}
    more["five"], more["scale"] = np.int8(5), np.array([1, 1, 2, 2], np.float32)
    explicit = model(text, s=S["s"], z=np.int8(zero), **more)
    size = [int(d) for d in (given or "2,3,2,2").split(",")]
    feed = {"x": (RNG.integers(-100, 100, size) * S["s"]).astype(np.float32)}
    t = same_function(explicit, feed, exact=True, asymmetric="widen" if zero else "error")
    wanted = f32(0.05) if zero == 0 else f32(np.float64(S["s"]) * 135 / 128)
    scales = scales_of(t)
    assert scales.get("x_clamp", scales.get("x")) == wanted
    if "Identity" not in op:
        assert scales_of(t)["m"] == wanted and t.scales["m"].origin.rule == "Q10"


def test_q10_indices_are_no_codes() -> None:
    text = """g (float[1,1,4,4] x) => (float[1,1,3,3] y, int64[1,1,3,3] i) { q = QuantizeLinear(x, s, z)
        m, i0 = MaxPool<kernel_shape=[2,2]>(q)  i = Identity(i0)  d = DequantizeLinear(m, s, z)  y = Exp(d) }"""
    feed = {"x": (RNG.permutation(16).reshape(1, 1, 4, 4) * S["s"]).astype(np.float32)}
    assert scales_of(same_function(model(text, **S), feed, exact=True)) == {"x": f32(0.05), "m": f32(0.05)}


# ------------------------------------------------------------------ Q12: half precision


def half(text: str, opset: int = 19, **arrays: np.ndarray) -> onnx.ModelProto:
    return model(text, opset=opset, ir=9, s=np.float16(0.05), z=np.int8(0), **arrays)


def test_q12_half_precision_scales() -> None:
    t = translated(half(f"g (float16[2,3] x) => (float16[2,3] y) {{ {pair('x', 'd')} y = Exp(d) }}"))
    assert scales_of(t) == dict.fromkeys(("x", "x_float32"), f32(np.float16(0.05)))


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


def test_uint8_weight_with_zero_point_128_keeps_its_quantized_values() -> None:
    codes = full_codes(4, 3, 3, 3)
    codes[0, 0, 0, 0] = -128
    text = f"g (float[1,3,8,8] x) => (float[1,4,6,6] y) {{ {pair('x', 'd')} w = DequantizeLinear(c, s, u)  y = Conv(d, w) }}"
    t = translated(model(text, c=(codes.astype(np.int16) + 128).astype(np.uint8), u=np.uint8(128), **S))
    np.testing.assert_array_equal(initializer(t, "w"), np.maximum(codes, -127) * np.float32(0.05))
    assert [row.exact for row in t.weights] == [True] and t.diagnostics.of_rule("W1")[0].data == {"saturated": 1}


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


def conv_weight(codes: np.ndarray, scale: np.ndarray, axis: int) -> tuple[str, dict[str, np.ndarray]]:
    text = f"w = DequantizeLinear<axis={axis}>(wq, ws, wz)"
    return text, {"wq": codes, "ws": np.atleast_1d(scale), "wz": np.zeros(np.atleast_1d(scale).shape, np.int8)}


BN = {
    "ga": np.array([1, -1.5, 0.5, -2e-3], np.float32), "be": np.arange(4).astype(np.float32),
    "me": np.full(4, 0.1, np.float32), "va": np.array([0.7, 2, 1e-3, 5], np.float32),
}  # fmt: skip


@pytest.mark.parametrize("bn", [False, True])
@pytest.mark.parametrize(
    "layer, x, y, shape, axis",
    [
        ("Conv(d, w)", "1,3,6,6", "1,4,4,4", (4, 3, 3, 3), 0),
        ("Conv<group=2>(d, w)", "1,6,6,6", "1,4,4,4", (4, 3, 3, 3), 0),
        ("Gemm<transB=1>(d, w)", "5,3", "5,4", (4, 3), 0),
        ("Gemm(d, w)", "5,3", "5,4", (3, 4), 1),
        ("MatMul(d, w)", "5,3", "5,4", (3, 4), 1),
        ("ConvTranspose(d, w)", "1,3,6,6", "1,4,8,8", (3, 4, 3, 3), 1),
    ],
)
def test_w1_full_codes_are_reproduced(layer: str, x: str, y: str, shape: tuple[int, ...], axis: int, bn: bool) -> None:
    """Per output channel, codes that reach +-127: TensorRT's rule gives every one of them, negative gammas included."""
    made, arrays = conv_weight(full_codes(*shape, axis=axis), np.array([0.1, 0.02, 3.0, 1e-3], np.float32), axis)
    after = "y = BatchNormalization(c, ga, be, me, va)" if bn else "y = Exp(c)"
    text = f"g (float[{x}] x) => (float[{y}] y) {{ {pair('x', 'd')} {made}  c = {layer}  {after} }}"
    explicit = model(text, **arrays, **S, **(BN if bn else {}))
    feed = {n: v * 0.01 for n, v in random_inputs(explicit, 1).items()}
    t = same_function(explicit, feed)
    (row,) = t.weights
    assert row.exact and row.reproduced == row.codes == int(np.prod(shape))
    assert row.full_channels == row.channels == 4 and row.full_reproduced == 1.0 and row.largest_code_error == 0
    if bn:
        assert "BatchNormalization" not in ops(t)


def test_w1_grouped_conv_transpose_with_batchnorm() -> None:
    """Output channels are (group, axis 1): one scale an axis-1 index, so both groups' channels have to be full."""
    codes = np.concatenate([full_codes(2, 2, 3, 3, axis=1, seed=g) for g in (0, 1)])
    made, arrays = conv_weight(codes, np.array([0.1, 0.02], np.float32), 1)
    text = f"""g (float[1,4,5,5] x) => (float[1,4,7,7] y) {{ {pair("x", "d")} {made}
        c = ConvTranspose<group=2>(d, w)  y = BatchNormalization(c, ga, be, me, va) }}"""
    t = same_function(model(text, **arrays, **S, **BN))
    assert ops(t) == ["ConvTranspose"] and t.weights[0].exact and t.weights[0].channels == 4


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


def test_w1_minus_128_is_saturated_and_reported() -> None:
    codes = full_codes(4, 3, 3, 3)
    codes[0, 0, 0, :2] = -128
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} w = DequantizeLinear(wq, s, z) y = Conv(d, w) }}"
    t = same_function(model(text, wq=codes, **S))
    assert initializer(t, "w").min() == np.float32(-127) * S["s"] and t.weights[0].exact
    assert t.weights[0].saturated == 2 and "2 codes -128" in t.diagnostics.of_rule("W1")[0].message


def test_w2_float_weights() -> None:
    weight = weights(4, 3, 3, 3)
    text = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} {pair('w', 'wd')} y = Conv(d, wd) }}"
    t = translated(model(text, w=weight, **S), weights="float")
    np.testing.assert_array_equal(initializer(t, "w"), weight)
    int8 = f"g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair('x', 'd')} w = DequantizeLinear(wq, s, z) y = Conv(d, w) }}"
    t = translated(model(int8, wq=full_codes(4, 3, 3, 3), **S), weights="float")  # Q3 has no float weights
    np.testing.assert_array_equal(initializer(t, "w"), full_codes(4, 3, 3, 3) * S["s"])


def test_w3_max_calibration_is_checked_unless_histogram() -> None:
    weight = weights(4, 3, 3, 3)
    amax = np.abs(weight).reshape(4, -1).max(1)
    text = f"""g (float[1,3,6,6] x) => (float[1,4,4,4] y) {{ {pair("x", "d")}
        wq = QuantizeLinear<axis=0>(w, ws, wz)  wd = DequantizeLinear<axis=0>(wq, ws, wz)  y = Conv(d, wd) }}"""
    for factor, off in [(np.ones(4), 0), (np.array([1, 0.8, 1, 1.1]), 2)]:
        scale = (amax / 127 * factor).astype(np.float32)
        explicit = model(text, w=weight, ws=scale, wz=np.zeros(4, np.int8), **S)
        told = translated(explicit).diagnostics.of_rule("W3")
        assert [d.data["channels"] for d in told] == ([off] if off else [])
        assert not translated(explicit, calibration_type="histogram").diagnostics.of_rule("W3")
        if off:
            assert told[0].tensor == "w" and told[0].data["largest_relative"] == pytest.approx(0.2, rel=1e-3)
            assert "W-W3" in refusal(explicit, strict=True)


def test_values_in_initializers_are_float32_arrays() -> None:
    text = f"g (float[5,3] x) => (float[5,4] y) {{ {pair('x', 'd')} w = DequantizeLinear(wq, s, z) y = MatMul(d, w) }}"
    t = translated(model(text, wq=full_codes(3, 4), **S))
    assert {numpy_helper.to_array(i).dtype for i in t.model.graph.initializer} == {np.dtype(np.float32)}


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
