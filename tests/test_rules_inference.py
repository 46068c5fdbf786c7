"""Rules S1 to S10: which tensor gets which scale, and which gets none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translator import Translation
from tests.small_models import f32, model, pair, same_function, scales_of, translated

S = {"s": np.float32(0.05), "t": np.float32(0.2), "z": np.int8(0)}
SCALE = f32(0.05)


def forward(call: str, x: str = "2,4,4,4", **more: Any) -> Translation:
    """`x` is quantized with 0.05, `call` reads it as `d`, and an Exp makes what it gives no graph output."""
    options = {k: more.pop(k) for k in list(more) if k in TranslateOptions.__dataclass_fields__}
    text = f"g (float[{x}] x) => (float y) {{ {pair('x', 'd')} o = {call}  e = Exp(o)  y = ReduceSum<keepdims=0>(e) }}"
    return same_function(model(text, **S, **more), **options)


def backward(call: str, x: str = "2,4,4,4", **more: Any) -> Translation:
    """`i` goes through `call`, whose output `o` is quantized with 0.05."""
    options = {k: more.pop(k) for k in list(more) if k in TranslateOptions.__dataclass_fields__}
    text = f"""g (float[{x}] x) => (float y) {{ i = Sin(x)  o = {call} {pair("o", "d")} e = Exp(d)
        y = ReduceSum<keepdims=0>(e) }}"""
    return same_function(model(text, **S, **more), **options)


PASS = [
    ("MaxPool<kernel_shape=[2,2]>({})", {}),
    ("Flatten({})", {}),
    ("Relu({})", {}),
    ("Pad({}, k)", {"k": np.array([0, 0, 1, 1, 0, 0, 1, 1])}),
    ("Transpose({})", {}),
    ("Reshape({}, k)", {"k": np.array([8, 16])}),
    ("Squeeze({})", {}),
    ("Unsqueeze({}, k)", {"k": np.array([0])}),
    ("Identity({})", {}),
    ("Dropout({})", {}),
    ("Expand({}, k)", {"k": np.array([3, 2, 4, 4, 4])}),
    ("DepthToSpace<blocksize=2>({})", {}),
    ("SpaceToDepth<blocksize=2>({})", {}),
    ('Resize<mode="nearest">({}, , k)', {"k": np.array([1, 1, 2, 2], np.float32)}),
    ("Slice({}, k, l)", {"k": np.array([0]), "l": np.array([1])}),
    ("Gather({}, k)", {"k": np.array([1, 0])}),
    ("Tile({}, k)", {"k": np.array([1, 1, 2, 2])}),
]
IDS = [call.split("(")[0].split("<")[0] for call, _ in PASS]


# ------------------------------------------------------------------ S1 to S4


def test_s1_explicit_scales_stay_and_origins_are_told() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} r = Relu(d) {pair('r', 'e', scale='t')} f = Identity(e)  y = Exp(f) }}"
    t = same_function(model(text, **S))
    assert scales_of(t) == {"x": SCALE, "r": f32(0.2), "f": f32(0.2)}
    assert [t.scales[n].origin.rule for n in ("x", "r", "f")] == ["Q1", "Q1", "S3"]
    origin = t.scales["f"].origin
    assert (origin.node, origin.source) == ("Identity_f", "r")


def test_s1_the_first_rule_wins() -> None:
    """Between two explicit scales the forward sweep comes first."""
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Relu(d)  b = Identity(a)  c = Relu(b) {pair('c', 'e', scale='t')} y = Exp(e) }}"
    t = same_function(model(text, **S))
    assert scales_of(t) == {"x": SCALE, "a": SCALE, "b": SCALE, "c": f32(0.2)}


def test_s2_graph_outputs_constants_and_integers_get_none() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y, float[6] v, float[2,3] u) {{ {pair("x", "d")} y = Relu(d)  v = Reshape(d, shape)
        a = Identity(d)  u = Relu(a)  n = Cast<to=7>(d)  m = Identity(n)  w = Cast<to=1>(m) }}"""
    t = same_function(model(text, shape=np.array([6]), **S))
    assert scales_of(t) == {"x": SCALE, "a": SCALE}


def test_s2_nothing_goes_backward_from_a_graph_output_without_scale() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} a = Exp(d)  y = Relu(a) }}"
    assert scales_of(same_function(model(text, **S))) == {"x": SCALE}


def test_s2_an_explicit_graph_output_hands_its_scale_back() -> None:
    text = f"g (float[2,3] x) => (float[2,3] y) {{ a = Sin(x)  b = Relu(a) {pair('b', 'y')} }}"
    t = same_function(model(text, **S))
    assert scales_of(t) == {"a": SCALE, "y": SCALE} and t.scales["a"].origin.source == "y"


@pytest.mark.parametrize("call, arrays", PASS, ids=IDS)
def test_s3_forward(call: str, arrays: dict[str, np.ndarray]) -> None:
    t = forward(call.format("d"), **arrays)
    assert scales_of(t) == {"x": SCALE, "o": SCALE} and t.scales["o"].origin.rule == "S3"


@pytest.mark.parametrize("call, arrays", PASS, ids=IDS)
def test_s3_backward(call: str, arrays: dict[str, np.ndarray]) -> None:
    t = backward(call.format("i"), **arrays)
    assert scales_of(t) == {"i": SCALE, "o": SCALE} and t.scales["i"].origin.source == "o"


def test_s3_split_both_ways() -> None:
    text = f"""g (float[2,4] x) => (float y) {{ {pair("x", "d")} a, b = Split<axis=1>(d)  c = Add(a, b)  y = ReduceSum<keepdims=0>(c) }}"""
    assert scales_of(same_function(model(text, **S))) == dict.fromkeys("xab", SCALE)
    text = f"""g (float[2,4] x) => (float y) {{ i = Sin(x)  a, b = Split<axis=1>(i) {pair("a", "c")} {pair("b", "e", scale="t")}
        f = Add(c, e)  y = ReduceSum<keepdims=0>(f) }}"""
    t = same_function(model(text, **S))
    assert scales_of(t) == {"i": f32(0.2), "a": SCALE, "b": f32(0.2)}


@pytest.mark.parametrize(
    "second, scale",
    [
        ("b = Slice(i, one, two) {pair}", 0.2),  # the largest of all parts
        ("b = Gather(i, one) {pair}", 0.2),
        ("b = Slice(i, one, two) e = Sin(b)", None),  # one part nobody knows
        ("b = Cos(i) {pair}", None),  # a reader that hands nothing on
        ("b = Gather(table, idx) {pair}", 0.05),  # another tensor's reader does not count
    ],
)
def test_s3_parts_backward_need_every_reader(second: str, scale: Any) -> None:
    text = f"""g (float[2,4] x, int64[1] idx) => (float[a,b] y, float[c,d] v) {{ i = Sin(x)  a = Slice(i, zero, one) {pair("a", "c")}
        y = Exp(c)  {second.replace("{pair}", pair("b", "e", scale="t"))} v = Exp(e) }}"""
    arrays = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "table": np.ones((3, 2), np.float32)}
    t = translate(model(text, **arrays, **S))
    assert t.scales.value("i") == (None if scale is None else f32(scale))


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, 6, 6 / 127),  # Relu6: narrower
        (-10, 10, 0.05),  # wider than +-6.35: nothing to gain
        (-1, 2, 2 / 127),
        (-3, 2, 3 / 127),
        (None, 2, 0.05),  # the low end stays
        (0, None, 0.05),
        (100, 200, 100 / 127),  # lifts everything to 100: the input's range would say 6.35
        (None, -8, 8 / 127),
    ],
)
def test_s3_clip_forward(low: Any, high: Any, expected: float) -> None:
    arrays = {k: np.float32(v) for k, v in (("lo", low), ("hi", high)) if v is not None}
    call = f"Clip(d, {'lo' if low is not None else ''}{', hi' if high is not None else ''})"
    t = translate(
        model(f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} o = {call}  y = Sin(o) }}", **S, **arrays)
    )
    assert t.scales.value("o") == pytest.approx(expected, rel=1e-6)


def test_s3_clip_backward_takes_the_outputs_scale() -> None:
    t = backward("Clip(i, lo, hi)", lo=np.float32(0), hi=np.float32(6))
    assert scales_of(t) == {"i": SCALE, "o": SCALE}


def test_s3_clip_with_computed_bounds_gives_nothing_forward() -> None:
    text = f"g (float[2,3] x, float lo) => (float[2,3] y) {{ {pair('x', 'd')} o = Clip(d, lo)  y = Sin(o) }}"
    assert scales_of(translate(model(text, **S))) == {"x": SCALE}


@pytest.mark.parametrize(
    "value, passes",
    [(0, True), (6.35, True), (-6.4, True), (6.5, False), (-7, False), (-np.inf, False), (np.nan, False)],
)
def test_s3_pad_with_a_value_outside_the_range(value: float, passes: bool) -> None:
    text = f"g (float[2,3] x) => (float[2,5] y) {{ {pair('x', 'd')} o = Pad(d, k, v)  y = Sin(o) }}"
    t = translate(model(text, k=np.array([0, 1, 0, 1]), v=np.float32(value), **S))
    assert ("o" in scales_of(t)) == passes


@pytest.mark.parametrize(
    "call",
    [
        'Resize<mode="linear">(d, , k)',
        'Resize<mode="nearest", coordinate_transformation_mode="tf_crop_and_resize">(d, roi, , size)',
        "Dropout(d, half, yes)",
        "Exp(d)",
        "AveragePool<kernel_shape=[2,2]>(d)",
        "Concat<axis=1>(d, d)",
        "Mul(d, d)",
        "Sigmoid(d)",
        "Add(d, d)",
    ],
)
def test_s3_what_is_no_pass_through(call: str) -> None:
    arrays = {"k": np.array([1, 1, 2, 2], np.float32), "roi": np.array([0] * 4 + [1] * 4, np.float32), "half": np.float32(0.5),
              "size": np.array([2, 4, 8, 8]), "yes": np.array(True)}  # fmt: skip
    text = f"g (float[2,4,4,4] x) => (float[a,b,c,e] y) {{ {pair('x', 'd')} o = {call}  y = Sin(o) }}"
    assert scales_of(translate(model(text, **S, **arrays))) == {"x": SCALE}


@pytest.mark.parametrize("op", ["Abs", "AveragePool", "Concat", "Sigmoid"])
def test_s3_additional_operators(op: str) -> None:
    call = {"AveragePool": "AveragePool<kernel_shape=[2,2]>(d)", "Concat": "Concat<axis=1>(d, d)"}.get(op, f"{op}(d)")
    t = forward(call, addtl_ops_to_infer_adjacent_scales=[op])
    assert scales_of(t) == {"x": SCALE, "o": SCALE}


def test_s4_repeated_until_nothing_changes() -> None:
    """A scale that goes forward through one branch, backward through another and forward again."""
    text = f"""g (float[1,4,4,4] x) => (float[1,4,4,4] y, float[1,4,4,4] v) {{ {pair("x", "d")} a = Identity(d)
        b = Sin(x)  c = Concat<axis=1>(a, b)  e = Relu(b)  f = Identity(e)  y = Exp(f)  g1, g2 = Split<axis=1>(c)  v = Add(g1, g2) }}"""
    t = same_function(model(text, **S), infer_concat_scales=True)
    assert scales_of(t) == dict.fromkeys(["x", "a", "b", "c", "e", "f", "g1", "g2"], SCALE)


# ------------------------------------------------------------------ S5, S8: Sigmoid and Mul


def swish(x: str = "d", **more: Any) -> Translation:
    quantized = pair("x", "d") if x == "d" else "d = Sin(x)"
    after = more.pop("after", "y = Exp(m)")
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {quantized} g = Sigmoid(d)  m = Mul(d, g)  {after} }}"
    return same_function(model(text, **S), **more)


def test_s5_sigmoid_of_a_mul() -> None:
    assert scales_of(swish()) == {"x": SCALE}
    t = swish(infer_mul_scales=True)
    assert scales_of(t) == {"x": SCALE, "g": f32(1 / 127), "m": pytest.approx(SCALE, rel=1e-6)}
    assert [t.scales[n].origin.rule for n in "gm"] == ["S5", "S8"]


def test_s5_sigmoid_without_mul_gets_none() -> None:
    assert scales_of(forward("Sigmoid(d)", infer_mul_scales=True)) == {"x": SCALE}


def test_s5_an_amax_of_1_has_no_inverse() -> None:
    """127 times the float32 nearest to 1/127 is below 1; that must not pass for a range."""
    text = (
        "g (float[2,3] x) => (float[2,3] y) { i = Sin(x)  g = Sigmoid(i)  h = Cos(x)  m = Mul(g, h)  e = Exp(m) "
        + pair("e", "f")
        + " y = Abs(f) }"
    )
    t = same_function(model(text, **S), infer_mul_scales=True)
    assert scales_of(t) == {"g": f32(1 / 127), "e": SCALE}


@pytest.mark.parametrize(
    "amax, known", [(0.9, True), (0.51, True), (0.5, False), (0.4, False), (1.0, False), (1.5, False)]
)
@pytest.mark.parametrize("flag", [True, False])
def test_s5_backward(amax: float, known: bool, flag: bool) -> None:
    """NVIDIA does this without a flag. sigmoid(amax_in) is amax_out again."""
    scale = np.float32(amax / 127)
    text = f"g (float[2,3] x) => (float[2,3] y) {{ i = Sin(x)  o = Sigmoid(i) {pair('o', 'd', scale='u')} y = Exp(d) }}"
    t = same_function(model(text, u=scale, z=np.int8(0)), infer_mul_scales=flag)
    assert ("i" in scales_of(t)) == known
    if known:
        amax_in = 127 * scales_of(t)["i"]
        assert 1 / (1 + math.exp(-amax_in)) == pytest.approx(amax, rel=1e-6)
        (told,) = t.diagnostics.of_rule("S5")
        assert told.tensor == "i" and f"{1 - amax:.4g}" in told.message
    assert all(math.isfinite(v) and v > 0 for v in scales_of(t).values())


@pytest.mark.parametrize("unknown", ["a", "b", "m"])
def test_s8_two_of_three_give_the_third(unknown: str) -> None:
    """amax_out = amax_a * amax_b, in scales: s_m = 127 * s_a * s_b."""
    scale = {"a": 0.02, "b": 0.03, "m": 127 * 0.02 * 0.03}
    given = "".join(pair(n, f"{n}d", scale=f"s{n}") if n != unknown else f"{n}d = Identity({n}) " for n in "ab")
    last = pair("m", "md", scale="sm") if unknown != "m" else "md = Identity(m)"
    text = f"g (float[2,3] x) => (float[2,3] y) {{ a = Sin(x)  b = Cos(x) {given} m = Mul(ad, bd) {last} y = Exp(md) }}"
    explicit = model(text, z=np.int8(0), **{f"s{n}": np.float32(v) for n, v in scale.items()})
    t = same_function(explicit, infer_mul_scales=True)
    tensor = {"a": "ad", "b": "bd", "m": "m"}[unknown]
    assert scales_of(t)[tensor] == pytest.approx(scale[unknown], rel=1e-6) and t.scales[tensor].origin.rule == "S8"
    assert tensor not in scales_of(translate(explicit))


@pytest.mark.parametrize("constant, expected", [(2.0, 0.1), (-4.0, 0.2), (0.0, None)])
def test_s8_constant_operand(constant: float, expected: Any) -> None:
    t = forward("Mul(d, k)", k=np.full(4, constant, np.float32), infer_mul_scales=True)
    assert t.scales.value("o") == (None if expected is None else pytest.approx(expected, rel=1e-6))
    assert "k" not in scales_of(t)


def test_s8_square() -> None:
    t = forward("Mul(d, d)", infer_mul_scales=True)
    assert scales_of(t)["o"] == pytest.approx(127 * 0.05 * 0.05, rel=1e-6)
    assert scales_of(backward("Mul(i, i)", infer_mul_scales=True)) == {"o": SCALE}  # no square root is made up


# ------------------------------------------------------------------ S6, S7


@pytest.mark.parametrize(
    "call, x, passes",
    [
        ("AveragePool<kernel_shape=[2,2]>({})", "2,4,4,4", True),
        ("GlobalAveragePool({})", "2,4,4,4", True),
        ("ReduceMean<axes=[2,3]>({})", "2,4,4,4", True),
        ("ReduceMean<axes=[-1,-2], keepdims=0>({})", "2,4,4,4", True),
        ("ReduceMean<axes=[2,3,4]>({})", "2,4,2,2,2", True),
        ("ReduceMean<axes=[1]>({})", "2,4,4,4", False),
        ("ReduceMean<axes=[-1]>({})", "2,4,4", False),
        ("ReduceMean<axes=[1,2]>({})", "2,4,4", False),
        ("ReduceMean<axes=[3]>({})", "2,4,4,4", False),
        ("ReduceMean({})", "2,4,4,4", False),
    ],
)
def test_s6_averages(call: str, x: str, passes: bool) -> None:
    assert scales_of(forward(call.format("d"), x)) == {"x": SCALE}
    expected = {"x": SCALE, "o": SCALE} if passes else {"x": SCALE}
    assert scales_of(forward(call.format("d"), x, infer_average_pool_scales=True)) == expected
    expected = {"i": SCALE, "o": SCALE} if passes else {"o": SCALE}
    assert scales_of(backward(call.format("i"), x, infer_average_pool_scales=True)) == expected


def test_s6_axes_as_an_input() -> None:
    text = f"g (float[2,4,4,4] x) => (float[a,b,c,e] y) {{ {pair('x', 'd')} o = ReduceMean(d, axes)  y = Exp(o) }}"
    t = same_function(
        model(text, opset=18, axes=np.array([3, 2]), **S), infer_average_pool_scales=True, platform="jetpack-6.2"
    )
    assert scales_of(t) == {"x": SCALE, "o": SCALE}


@pytest.mark.parametrize("square", ["Pow(c, two)", "Mul(c, c)"])
@pytest.mark.parametrize("axes", ["[2,3]", "[-1]"])
def test_s6_never_the_means_of_a_normalization(square: str, axes: str) -> None:
    """Over the last two axes of a 4-D tensor a decomposed LayerNormalization looks like average pooling."""
    text = f"""g (float[2,4,4,4] x) => (float[2,4,4,4] y) {{ {pair("x", "d")} m = ReduceMean<axes={axes}>(d)  c = Sub(d, m)
        p = {square} {pair("p", "q")} v = ReduceMean<axes={axes}>(q)  e = Add(v, two)  r = Sqrt(e)  y = Div(c, r) }}"""
    t = same_function(model(text, two=np.float32(2), **S), infer_average_pool_scales=True)
    assert scales_of(t) == {"x": SCALE, "p": SCALE}


def test_s7_concat_forward_takes_the_largest() -> None:
    text = f"""g (float[1,2] x) => (float[1,6] y) {{ a = Sin(x)  b = Cos(x)  c = Exp(x) {pair("a", "ad")} {pair("b", "bd", scale="t")}
        o = Concat<axis=1>(ad, bd, c)  y = Exp(o) }}"""
    explicit = model(text, **S)
    assert scales_of(same_function(explicit)) == {"a": SCALE, "b": f32(0.2)}
    t = same_function(explicit, infer_concat_scales=True)
    assert scales_of(t) == {"a": SCALE, "b": f32(0.2), "c": f32(0.2), "o": f32(0.2)}
    assert t.scales["o"].origin.source == "b" and {t.scales[n].origin.rule for n in "co"} == {"S7"}


def test_s7_concat_backward_and_constants() -> None:
    text = f"""g (float[1,2] x) => (float[1,5] y) {{ a = Sin(x) {pair("a", "ad")} b = Cos(x)  o = Concat<axis=1>(ad, b, k)
        {pair("o", "od", scale="t")} y = Exp(od) }}"""
    t = same_function(model(text, k=np.ones((1, 1), np.float32), **S), infer_concat_scales=True)
    assert scales_of(t) == {"a": SCALE, "b": f32(0.2), "o": f32(0.2)}


# ------------------------------------------------------------------ S9


@pytest.mark.parametrize(
    "add, more, unary",
    [
        ("Add(c, dd)", "", ["c"]),
        ("Add(dd, c)", "", ["c"]),
        ("Add(c, dd)", "v = Sin(c)", []),  # another consumer
        ("Add(c, k)", "", []),  # a constant is no scale
        ("Add(c, e)", "", []),  # the other has none
        ("Add(c, c2)", "", []),  # two such convolutions: neither is real
        ("Sum(c, dd)", "", []),
        ("Mul(c, dd)", "", []),
    ],
)
def test_s9_unary_scales(add: str, more: str, unary: list[str]) -> None:
    output = ", float[1,4,4,4] v" if more else ""
    text = f"""g (float[1,4,4,4] x) => (float[1,4,4,4] y{output}) {{ {pair("x", "d")} dd = Identity(d)  c = Conv(d, w)
        c2 = Conv(d, w)  e = Exp(d)  a = {add} {more} y = Sin(a) }}"""
    explicit = model(text, w=np.full((4, 4, 1, 1), 0.1, np.float32), k=np.float32(1), **S)
    assert "c" not in scales_of(translate(explicit))
    t = same_function(explicit, add_unary_ew_scales_for_dla=True, target="orin-dla")
    assert [n for n, v in scales_of(t).items() if v == 1.0] == unary
    assert [d.data["tensors"] for d in t.diagnostics.of_rule("S9")] == ([unary] if unary else [])


def test_s9_after_batchnorm_and_with_a_warning_on_gpus() -> None:
    bn = dict.fromkeys(("ga", "be", "me", "va"), np.full(4, 0.5, np.float32))
    text = f"""g (float[1,4,4,4] x) => (float[1,4,4,4] y) {{ {pair("x", "d")} c = Conv(d, w)  b = BatchNormalization(c, ga, be, me, va)
        a = Add(b, d)  y = Sin(a) }}"""
    t = same_function(
        model(text, w=np.full((4, 4, 1, 1), 0.1, np.float32), **bn, **S), add_unary_ew_scales_for_dla=True
    )
    assert scales_of(t) == {"x": SCALE, "b": 1.0}
    (told,) = t.diagnostics.of_rule("S9")
    assert told.severity == "warning" and "127" in told.message


# ------------------------------------------------------------------ S10


def gemm_and_softmax(**options: Any) -> Translation:
    text = f"""g (float[2,3] x) => (float[2,4] y) {{ {pair("x", "d")} [fc] m = Gemm(d, w, b) {pair("m", "e", scale="t")} [sm] p = Softmax(e)
        y = Mul(p, k) }}"""
    arrays = {"w": np.array([[1, -2, 3, 0.5]] * 3, np.float32), "b": np.array([0.5, -6, 1, 0], np.float32),
              "k": np.array([[1, 2, -4, 3]], np.float32)}  # fmt: skip
    return same_function(model(text, **arrays, **S), **options)


def test_s10_formulas() -> None:
    t = gemm_and_softmax(platform="jetpack-6.2")
    assert t.automatic == {
        "w_output": f32(3 / 127),
        "b_output": f32(6 / 127),
        "fc_output": pytest.approx((127 * f32(0.2) + 6) / 127, rel=1e-6),
        "sm_output": f32(1 / 127),
        "k_output": f32(4 / 127),
    }
    assert set(t.cache.scales) == {"x", "m"} | set(t.automatic)
    assert set(t.tensor_scales) == {"x", "m"}


def test_s10_broadcasts_are_counted_by_twos() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ {pair("x", "d")} m = Gemm(d, w, b)  r = Relu(m)  n = Gemm(r, w, c)
        y = Mul(n, k) }}"""
    arrays = {
        "w": np.eye(3, dtype=np.float32),
        "b": np.full(3, -6, np.float32),
        "c": np.full(3, 4, np.float32),
        "k": np.float32(2),
    }
    t = same_function(model(text, **arrays, **S), platform="jetpack-6.2")
    named = {n: v for n, v in t.automatic.items() if n.startswith("ONNXTRT")}
    assert named == {
        "ONNXTRT_Broadcast_output": f32(6 / 127),
        "ONNXTRT_Broadcast_2_output": f32(4 / 127),
        "ONNXTRT_Broadcast_4_output": f32(2 / 127),
    }
    assert "Gemm_m_output" not in t.automatic  # its output has no scale, so nothing is known before the bias either


def test_s10_only_for_tensorrt_10_and_only_if_wanted() -> None:
    assert gemm_and_softmax().automatic == {}
    assert gemm_and_softmax(platform="jetpack-6.0").automatic == {}
    assert gemm_and_softmax(platform="jetpack-6.2", no_auto_names=True).automatic == {}


def test_s3_an_operator_that_the_model_does_not_have_is_told() -> None:
    text = "g (float[1,2] x) => (float[1,2] y) <float s = {0.1}, int8 z = {0}> {" + pair("x", "d") + "y = Relu(d) }"
    notes = translated(model(text), addtl_ops_to_infer_adjacent_scales=["LeakyRelu", "Relu"]).diagnostics.of_rule("S3")
    assert [n.data for n in notes] == [{"operators": ["LeakyRelu"]}]
    assert not translated(model(text), addtl_ops_to_infer_adjacent_scales=["Relu"]).diagnostics.of_rule("S3")
