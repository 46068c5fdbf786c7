"""Rules S1 to S10: which tensor gets which scale, and which gets none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import ExplicitNetwork, Session
from qdq_translator.lab.simulate.verdict import float_twin
from qdq_translator.translation.scales.inference.self_gated import SIGMOID
from qdq_translator.translation.translator import Translation
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
    ("Squeeze({}, k)", {"x": "1,2,4,4", "k": np.array([0])}),
    ("Unsqueeze({}, k)", {"k": np.array([0])}),
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
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} r = Relu(d) {pair('r', 'e', scale='t')} f = Relu(e)  y = Exp(f) }}"
    t = same_function(model(text, **S))
    assert scales_of(t) == {"x": SCALE, "r": f32(0.2), "f": f32(0.2)}
    assert [t.scales[n].origin.rule for n in ("x", "r", "f")] == ["Q1", "Q1", "S3"]
    origin = t.scales["f"].origin
    assert (origin.node, origin.source) == ("Relu_f", "r")


def test_s2_graph_outputs_constants_and_integers_get_none() -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y, float[6] v, float[2,3] u) {{ {pair("x", "d")} y = Relu(d)  v = Reshape(d, shape)
        a = Relu(d)  u = Relu(a)  n = Cast<to=7>(d)  m = Identity(n)  w = Cast<to=1>(m) }}"""
    t = same_function(model(text, shape=np.array([6]), **S))
    assert scales_of(t) == {"x": SCALE, "a": SCALE}


@pytest.mark.usefixtures("without_normal_forms")
@pytest.mark.parametrize("call, arrays", PASS, ids=IDS)
def test_s3_forward(call: str, arrays: dict[str, np.ndarray]) -> None:
    t = forward(call.format("d"), **arrays)
    assert scales_of(t) == {"x": SCALE, "o": SCALE} and t.scales["o"].origin.rule == "S3"


@pytest.mark.usefixtures("without_normal_forms")
@pytest.mark.parametrize("call, arrays", PASS, ids=IDS)
def test_s3_backward(call: str, arrays: dict[str, np.ndarray]) -> None:
    t = backward(call.format("i"), **arrays)
    assert scales_of(t) == {"i": SCALE, "o": SCALE} and t.scales["i"].origin.source == "o"


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, 6, 6 / 127),  # Relu6: narrower
        (-10, 6, 0.05),  # one bound is wider than +-6.35: nothing to gain
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


# ------------------------------------------------------------------ S5, S8: Sigmoid, SiLU and Mul


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize(
    "amax, known", [(0.9, True), (0.51, True), (0.5, False), (0.4, False), (1.0, False), (1.5, False)]
)
@pytest.mark.parametrize("flag", [True, False])
def test_s5_backward(amax: float, known: bool, flag: bool) -> None:
    """Only as NVIDIA's translator does it, which needs no flag there. sigmoid(amax_in) is amax_out again."""
    scale = np.float32(amax / 127)
    text = f"g (float[2,3] x) => (float[2,3] y) {{ i = Sin(x)  o = Sigmoid(i) {pair('o', 'd', scale='u')} y = Exp(d) }}"
    explicit = model(text, u=scale, z=np.int8(0))
    assert "i" not in scales_of(same_function(explicit, infer_mul_scales=flag))
    t = same_function(explicit, infer_mul_scales=flag, inference="reference")
    assert ("i" in scales_of(t)) == known
    if known:
        amax_in = 127 * scales_of(t)["i"]
        assert 1 / (1 + math.exp(-amax_in)) == pytest.approx(amax, rel=1e-6)
        (told,) = t.diagnostics.of_rule("S5")
        assert told.code == "W-S5" and told.data == {"tensors": ["i"]}
    assert all(math.isfinite(v) and v > 0 for v in scales_of(t).values())


@pytest.mark.parametrize("unknown", ["a", "b", "m"])
def test_s8_product(unknown: str) -> None:
    """amax_out = amax_a * amax_b, in scales: s_m = 127 * s_a * s_b. Backward it can only clip: in the reference alone."""
    scale = {"a": 0.02, "b": 0.03, "m": 127 * 0.02 * 0.03}
    given = "".join(pair(n, f"{n}d", scale=f"s{n}") if n != unknown else f"{n}d = Neg({n}) " for n in "ab")
    last = pair("m", "md", scale="sm") if unknown != "m" else "md = Neg(m)"
    text = f"g (float[2,3] x) => (float[2,3] y) {{ a = Sin(x)  b = Cos(x) {given} m = Mul(ad, bd) {last} y = Exp(md) }}"
    explicit = model(text, z=np.int8(0), **{f"s{n}": np.float32(v) for n, v in scale.items()})
    tensor = {"a": "ad", "b": "bd", "m": "m"}[unknown]
    for mode in ("sound", "reference"):
        t = same_function(explicit, infer_mul_scales=True, inference=mode)
        if unknown != "m" and mode == "sound":
            assert tensor not in scales_of(t) and not t.diagnostics.of_rule("S8")
            continue
        assert scales_of(t)[tensor] == pytest.approx(scale[unknown], rel=1e-6) and t.scales[tensor].origin.rule == "S8"
        told = [d.data["tensors"] for d in t.diagnostics.of_rule("S8")]
        assert told == ([] if unknown == "m" else [[tensor, unknown]]) or told == [[tensor]]
    assert tensor not in scales_of(translate(explicit, as_is=True))


@pytest.mark.parametrize(
    "constant, factor",
    [([2.0] * 4, 2), ([-4.0] * 4, 4), ([0.5, -0.5, 0.5, 0.5], 0.5), ([0.0] * 4, None), ([1.0, 2.0, 3.0, 0.0], None)],
)
@pytest.mark.parametrize("mode", ["sound", "reference"])
def test_s8_constant_operand(constant: list[float], factor: Any, mode: str) -> None:
    """Of several magnitudes the largest bounds the output, and nothing bounds the input; a Mul by 0 says nothing."""
    k = np.array(constant, np.float32)
    options: dict[str, Any] = {"k": k, "infer_mul_scales": True, "inference": mode}
    largest = float(np.abs(k).max())
    t = forward("Mul(d, k)", **options)
    assert t.scales.value("o") == (pytest.approx(0.05 * largest, rel=1e-6) if largest else None)
    back = backward("Mul(k, i)", **options)
    if mode == "reference" and largest:
        assert back.scales.value("i") == pytest.approx(0.05 / largest, rel=1e-6)
    else:
        assert back.scales.value("i") == (None if factor is None else pytest.approx(0.05 / factor, rel=1e-6))
    assert "k" not in scales_of(t)


@pytest.mark.parametrize("amax", [1e-4, 0.1, 0.2784, 0.5, 0.9997, 1.0, 3.0, 6.35, 40.0])
@pytest.mark.parametrize("order", ["d, g", "g, d"])
def test_s8_silu_backward_is_exact(amax: float, order: str) -> None:
    """silu(amax_x) is amax_y to float32 precision; what saturates below shows in the note."""
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ d = Sin(x)  g = Sigmoid(d)  m = Mul({order}) {pair("m", "q", scale="u")}
        y = Exp(q) }}"""
    explicit = model(text, u=np.float32(amax / 127), z=np.int8(0))
    assert "d" not in scales_of(translate(explicit, as_is=True))
    t = same_function(explicit, infer_mul_scales=True)
    found = t.scales["d"]
    assert silu(found.amax) == pytest.approx(127 * float(np.float32(amax / 127)), rel=3e-7)
    assert (found.origin.rule, found.origin.source) == ("S8", "m") and f"{silu(-found.amax):.3g}" in found.origin.note
    told = t.diagnostics.of_rule("S8")
    share = -silu(-found.amax) / amax
    assert [d.severity for d in told] == (["info"] if share > 0.1 else []) and t.scales.value("g") == f32(1 / 127)


@pytest.mark.parametrize("amax", [0.01, 1.0, 1.278, 1.28, 2.0, 30.0])
def test_s8_silu_forward_is_exact(amax: float) -> None:
    """The largest magnitude of SiLU over the input's range, by trying it; where that is the depth of the minimum, too."""
    scale = np.float32(amax / 127)
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd', scale='u')} g = Sigmoid(d)  m = Mul(d, g)  y = Exp(m) }}"
    t = same_function(model(text, u=scale, z=np.int8(0)), infer_mul_scales=True)
    grid = np.linspace(-127 * float(scale), 127 * float(scale), 200_001)
    assert t.scales["m"].amax == pytest.approx(float(np.abs(grid / (1 + np.exp(-grid))).max()), rel=1e-6)


HARD_SWISH = ["m = HardSwish(d)", "g = HardSigmoid<alpha=0.16666667, beta=0.5>(d)  m = Mul(g, d)"]


@pytest.mark.parametrize("call", HARD_SWISH, ids=["operator", "parts"])
@pytest.mark.parametrize("amax", [0.01, 0.3, 0.5, 1.0, 2.99, 3.0, 20.0])
def test_s8_hard_swish_is_exact_both_ways(call: str, amax: float) -> None:
    def largest(of: float) -> float:
        grid = np.linspace(-of, of, 200_001)
        return float(np.abs(grid * np.clip(grid / 6 + 0.5, 0, 1)).max())

    scales = {"u": np.float32(amax / 127), "z": np.int8(0)}
    text = f"g (float[2,3] x) => (float[2,3] y) {{ d = Sin(x)  {call} {pair('m', 'q', scale='u')} y = Exp(q) }}"
    t = same_function(model(text, **scales), infer_mul_scales=True)
    x = t.scales["d"].amax
    assert x * min(x / 6 + 0.5, 1) == pytest.approx(amax, rel=1e-6) and t.scales["d"].origin.rule == "S8"
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd', scale='u')} {call} y = Exp(m) }}"
    t = same_function(model(text, **scales), infer_mul_scales=True)
    assert t.scales["m"].amax == pytest.approx(largest(amax), rel=1e-6)
    assert "m" not in scales_of(translate(model(text, **scales), as_is=True))


GATED = {
    "GELU": ("h = Div(d, root)  e = Erf(h)  g = Add(e, one)  m = Mul(d, g)", lambda x: x * (1 + math.erf(x / 2**0.5))),
    "by a product": (
        "h = Mul(half, d)  e = Erf(h)  g = Add(one, e)  m = Mul(g, d)",
        lambda x: x * (1 + math.erf(x / 2)),
    ),
    "Swish": ("h = Mul(d, root)  g = Sigmoid(h)  m = Mul(d, g)", lambda x: x / (1 + math.exp(-x * 2**0.5))),
}


@pytest.mark.parametrize("form", GATED)
@pytest.mark.parametrize("amax", [0.01, 0.5, 1.0, 3.0, 20.0])
def test_s8_gelu_and_swish_are_exact_both_ways(form: str, amax: float) -> None:
    """And what lies between, by the rules of products with a constant, sums and bounds."""
    body, value = GATED[form]
    numbers = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5), "u": np.float32(amax / 127)}
    used = {name: number for name, number in numbers.items() if name in body or name == "u"}
    text = f"g (float[2,3] x) => (float[2,3] y) {{ d = Sin(x)  {body} {pair('m', 'q', scale='u')} y = Exp(q) }}"
    options = {"infer_mul_scales": True, "infer_bounds": True, "infer_add_scales": True}
    t = same_function(model(text, z=np.int8(0), **used), **options)
    assert value(t.scales["d"].amax) == pytest.approx(amax, rel=1e-6) and t.scales["d"].origin.rule == "S8"
    assert {"h", "g"} <= set(scales_of(t))
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd', scale='u')} {body} y = Exp(m) }}"
    t = same_function(model(text, z=np.int8(0), **used), **options)
    grid = [value(x) for x in np.linspace(-amax, amax, 20_001)]
    assert t.scales["m"].amax == pytest.approx(max(map(abs, grid)), rel=1e-6)


@pytest.mark.parametrize("divisor", [4.0, -4.0])
def test_s8_division_by_a_constant_is_exact_both_ways(divisor: float) -> None:
    c = {"c": np.float32(divisor)}
    text = f"g (float[2,3] x) => (float[2,3] y) {{ d = Sin(x)  m = Div(d, c) {pair('m', 'q')} y = Exp(q) }}"
    assert scales_of(same_function(model(text, **S, **c), infer_mul_scales=True))["d"] == f32(4 * SCALE)
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {pair('x', 'd')} m = Div(d, c)  v = Div(c, d)  w = Add(m, v)  y = Exp(w) }}"
    assert scales_of(same_function(model(text, **S, **c), infer_mul_scales=True)) == {"x": SCALE, "m": f32(SCALE / 4)}


@pytest.mark.parametrize(
    "body",
    [
        "h = Mul(d, two)  g = Sigmoid(h)  m = Mul(d, g)  v = Abs(h)",  # another reader inside the gate
        "h = Mul(d, minus)  g = Sigmoid(h)  m = Mul(d, g)  v = Abs(x)",  # falls
        "h = Div(two, d)  g = Sigmoid(h)  m = Mul(d, g)  v = Abs(x)",
        "e = Erf(d)  g = Add(e, two)  m = Mul(d, g)  v = Abs(x)",  # never shuts
        "h = Cos(x)  g = Sigmoid(h)  m = Mul(d, g)  v = Abs(h)",  # the gate of another tensor
        "g = Sigmoid(d)  m = Mul(d, g)  v = Abs(d)",  # another reader of x
        "g = Sigmoid(d)  m = Mul(d, g)  v = Abs(g)",  # another reader of the sigmoid
        "g = Tanh(d)  m = Mul(d, g)  v = Abs(x)",
        "g = HardSigmoid<alpha=-0.5, beta=0.5>(d)  m = Mul(d, g)  v = Abs(x)",  # falls
        "g = HardSigmoid<alpha=0.5, beta=0.0>(d)  m = Mul(d, g)  v = Abs(x)",  # shut at 0
        "m = HardSwish(d)  v = Abs(d)",
        "g = Sigmoid(d)  m = Add(d, g)  v = Abs(x)",
    ],
)
def test_s8_what_is_no_silu(body: str) -> None:
    text = f"g (float[2,3] x) => (float[2,3] y, float[2,3] v) {{ d = Sin(x)  {body} {pair('m', 'q')} y = Exp(q) }}"
    factors = {"two": np.float32(2), "minus": np.float32(-1)}
    used = {name: value for name, value in factors.items() if name in body}
    assert "d" not in scales_of(same_function(model(text, **S, **used), infer_mul_scales=True))


# ------------------------------------------------------------------ B1, S11


@pytest.mark.parametrize(
    "call, expected",
    [
        *((f"{op}(i)", 1.0) for op in ("Sigmoid", "HardSigmoid", "Softmax", "Tanh", "Erf")),
        ("Clip(i, zero, six)", 6.0),
        ("Clip(i, low, six)", 8.0),
        ("Clip(i, zero)", None),
        ("Clip(i, , six)", None),
        ("Clip(i, c, six)", None),  # computed
        ("Sin(i)", None),
        ("Softplus(i)", None),
    ],
)
def test_b1_bounds(call: str, expected: Any) -> None:
    text = (
        f"g (float[2,3] x, float c) => (float y) {{ i = Abs(x)  o = {call}  e = Exp(o)  y = ReduceSum<keepdims=0>(e) }}"
    )
    explicit = model(text + "", zero=np.float32(0), six=np.float32(6), low=np.float32(-8))
    quantized = model(
        f"g (float[2,3] x, float c) => (float y, float[2,3] v) {{ {pair('x', 'd')} v = Exp(d)  i = Abs(x)  o = {call}  e = Exp(o)"
        "  y = ReduceSum<keepdims=0>(e) }",
        **S,
    )
    quantized.graph.initializer.extend(explicit.graph.initializer)
    assert "o" not in scales_of(translate(quantized, as_is=True))
    t = translated(quantized, infer_bounds=True)
    assert t.scales.value("o") == (None if expected is None else f32(expected / 127))
    if expected is not None:
        origin = t.scales["o"].origin
        assert (origin.rule, origin.source) == ("B1", "")


def add(call: str, quantized: str, **arrays: Any) -> dict[str, float]:
    """amax of a (10), b (4) and o (12); only those in `quantized` have a scale of the model's."""
    amax = {"a": 10.0, "b": 4.0, "o": 12.0}
    text, name = "g (float[2,3] x) => (float y) { a = Sin(x)  b = Cos(x) ", {n: n for n in amax}
    for tensor in "abo":
        if tensor == "o":
            text += f"o = {call.format(**name)} "
        if tensor in quantized:
            text += pair(tensor, f"{tensor}d", scale=f"s{tensor}")
            name[tensor] = f"{tensor}d"
    text += f"e = Exp({name['o']})  y = ReduceSum<keepdims=0>(e) }}"
    scales = {f"s{n}": np.float32(v / 127) for n, v in amax.items()}
    t = same_function(model(text, z=np.int8(0), **scales, **arrays), infer_add_scales=True)
    given = {n: 127 * v for n, v in scales_of(t).items() if n not in quantized}
    assert {t.scales[n].origin.rule for n in given} <= {"S11"}
    return {n: round(v, 4) for n, v in given.items()}


@pytest.mark.parametrize("op", ["Add", "Sub", "Sum"])
def test_s11_sums_of_ranges(op: str) -> None:
    assert add(op + "({a}, {b})", "ab") == {"o": 14.0}
    assert add(op + "({a}, {b})", "ao") == {"b": 22.0}
    assert add(op + "({a}, {b})", "bo") == {"a": 16.0}
    assert add(op + "({a}, {b})", "a") == {} and add(op + "({a}, {b})", "o") == {}


@pytest.mark.parametrize(
    "value, given", [(-1e4, False), (-1200.0, True), (-1300.0, False), (1e-6, True), (-np.inf, False)]
)
def test_s11_not_where_an_activation_would_vanish(value: float, given: bool) -> None:
    """Beside an attention mask the scale of the sum would make every code 0: 10 is below (10 + 1300) / 127."""
    k = np.array([0.0, value, 0.0], np.float32)
    assert bool(add("Add({a}, k)", "ab", k=k)) == given
    assert bool(add("Add({a}, k)", "o", k=k)) == (given or abs(value) == 1300)


# ------------------------------------------------------------------ the order of the rules


def test_s4_an_exact_rule_comes_before_a_guess() -> None:
    """o could be the product of two ranges (12.7); SiLU behind it says 6.35 exactly, though it comes later in the graph."""
    text = f"""g (float[2,3] x) => (float[2,3] y) {{ a = Sin(x)  b = Cos(x) {pair("a", "ad", "t")} {pair("b", "bd")} o = Mul(ad, bd)
        g = Sigmoid(o)  m = Mul(o, g) {pair("m", "q")} y = Exp(q) }}"""
    t = same_function(model(text, **S), infer_mul_scales=True)
    assert t.scales["o"].origin.source == "m" and silu(t.scales["o"].amax) == pytest.approx(6.35, rel=1e-6)


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
    assert scales_of(backward(call.format("i"), x, infer_average_pool_scales=True)) == {"o": SCALE}
    reference = backward(call.format("i"), x, infer_average_pool_scales=True, inference="reference")
    assert scales_of(reference) == ({"i": SCALE, "o": SCALE} if passes else {"o": SCALE})
    assert [d.code for d in reference.diagnostics.of_rule("S6")] == ["W-S6"] * passes


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
    text = f"""g (float[1,4,4,4] x) => (float[1,4,4,4] y{output}) {{ {pair("x", "d")} dd = Relu(d)  c = Conv(d, w)
        c2 = Conv(d, w)  e = Exp(d)  a = {add} {more} y = Sin(a) }}"""
    explicit = model(text, w=np.full((4, 4, 1, 1), 0.1, np.float32), k=np.float32(1), **S)
    assert "c" not in scales_of(translate(explicit))
    t = same_function(explicit, add_unary_ew_scales_for_dla=True, target="orin-dla")
    assert [n for n, v in scales_of(t).items() if v == 1.0] == unary
    assert [d.data["tensors"] for d in t.diagnostics.of_rule("S9")] == ([unary] if unary else [])


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
        "sm_output": f32(1 / 127),
        "k_output": f32(4 / 127),
    }
    before = t.graph.producer["m"].inputs[0]
    assert t.scales[before].value == pytest.approx((127 * f32(0.2) + 6) / 127, rel=1e-6)
    assert set(t.cache.scales) == {"x", "m", before} | set(t.automatic)
    assert set(t.tensor_scales) == {"x", "m", before}


def test_s8_the_gate_of_a_large_value() -> None:
    """No exponential overflows, of either sign."""
    assert [SIGMOID.value(x) for x in (-1000.0, 0.0, 1000.0)] == [0.0, 0.5, 1.0]


# ------------------------------------------------------------------ C3


def scores_beside_boxes(scale: float) -> Translation:
    text = f"""g (float[2,3] x, float[2,4] b) => (float[2,7] y) {{ d = Sigmoid(x) {pair("d", "q", scale="one")}
        c = Concat<axis=1>(b, q) {pair("c", "y", scale="u")} }}"""
    numbers = {"one": np.float32(1 / 127), "u": np.float32(scale), "z": np.int8(0)}
    return translate(model(text, **numbers))


def test_c3_scores_that_a_concat_of_boxes_makes_0() -> None:
    told = scores_beside_boxes(640 / 127).diagnostics.of_rule("C3")
    assert [(d.severity, d.tensor, d.data) for d in told] == [("warning", "d", {"tensors": {"d": "y"}})]
    for scale in (1 / 127, 1.9):  # a half and more is not 0
        assert not scores_beside_boxes(scale).diagnostics.of_rule("C3")
    codes = np.round(np.linspace(-1, 1, 1001) / np.float32(640 / 127))
    assert not codes.any()


# ------------------------------------------------------------------ S12: LeakyRelu and PRelu


@pytest.mark.parametrize("op", ["LeakyRelu <alpha = 0.1> (c)", "LeakyRelu (c)", "PRelu (c, slope)"])
@pytest.mark.parametrize("known", ["input", "output"])
def test_s12_leaky_activations(op: str, known: str) -> None:
    """As ModelOpt leaves them: a scale on one side. The layer is in INT8 then, and so is the Conv before it."""
    body = pair("x", "q") + "c0 = Conv (q, w)\n" + (pair("c0", "c") if known == "input" else "c = Identity (c0)\n")
    body += f"m = {op}\n" + (pair("m", "p", "t") if known == "output" else "p = Identity (m)\n") + "y = Conv (p, w)"
    arrays = {"slope": np.full((4, 1, 1), 0.25, np.float32)} if "slope" in op else {}
    text = f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) <float s = {{0.05}}, float t = {{0.02}}, int8 z = {{0}}> {{\n{body}\n}}"
    explicit = model(text, w=np.ones((4, 4, 1, 1), np.float32), **arrays)
    assert len(scales_of(translated(explicit))) == 2
    t = translated(explicit, infer_mul_scales=True)
    made, given = ("m", 0.05) if known == "input" else ("c0", 0.02)
    found = next(row for name, row in t.scales.items() if row.origin.rule == "S12")
    assert found.value == f32(given) and len(scales_of(t)) == 3
    assert [layer.precision for layer in t.plan][:2] == ["int8", "int8"], made


# ------------------------------------------------------------------ P1

WHOLE = "n = LayerNormalization<axis=-1>(h, k, b)"
PARTS = """m = ReduceMean<axes=[-1]>(h)  d1 = Sub(h, m)  d2 = Pow(d1, two)  v = ReduceMean<axes=[-1]>(d2)
    v2 = Add(v, eps)  r = Sqrt(v2)  q = Div(d1, r)  u = Mul(q, k)  n = Add(u, b)"""


@pytest.mark.parametrize("norm", [WHOLE, PARTS], ids=["whole", "parts"])
@pytest.mark.parametrize("read_too", [False, True], ids=["alone", "MatMul"])
def test_p1_keeps_what_a_layer_normalization_reads_in_floating_point(norm: str, read_too: bool) -> None:
    """As in a transformer: a product, the residual sum and a view before it. Another product that reads it in INT8 ends the rule."""
    more = "MatMul(h, w2)" if read_too else "Abs(h)"
    text = f"""g (float[4, 8] x) => (float[1, 4, 8] y) {{ {pair("x", "i")} p = MatMul(i, w) {pair("p", "p2")}
        a = Add(i, p2) {pair("a", "a2", "t")} h = Reshape(a2, shape) {norm} {pair("n", "n2")}
        c = MatMul(n2, w2) {pair("c", "c2")} o = {more} {pair("o", "o2")} f = Add(c2, o2)  y = Abs(f) }}"""
    rng = np.random.default_rng(0)
    one, arrays = np.ones(8, np.float32), {name: rng.normal(size=(8, 8)).astype(np.float32) for name in ("w", "w2")}
    constants = {"two": np.float32(2), "eps": np.float32(1e-5), "k": one, "b": one, "shape": np.array([1, 4, 8])}
    given = model(text, **S, **constants, **arrays)
    plain = translate(given, as_is=True)
    kept = translate(given, TranslateOptions(keep_norm_fp16=True))
    before, after = ({row.outputs[0]: row.precision for row in t.plan} for t in (plain, kept))
    changed = {name for name in before if before[name] != after[name]}
    assert changed.issuperset(() if read_too else ("a", "h")) and bool(changed) != read_too
    assert before["p"] == after["p"] == "int8" and changed.isdisjoint({"p", "c"})
    held = simulate(ImplicitNetwork.of(kept)).placement.held
    assert held.keys().isdisjoint(() if read_too else ("a", "h", "p")) and {"x", "n"} <= held.keys()
    assert [d.rule for d in plain.diagnostics if d.rule == "P1"] == [] if read_too else ["P1"]
    assert "P1" not in {d.rule for d in kept.diagnostics}


@pytest.mark.parametrize("assume", [None, "pow"])  # the normalization on the GPU, or in parts by rule D29
def test_p1_small_rows_on_a_dla(assume: str | None) -> None:
    """Tokens without a positional embedding are much smaller than the others: the step of the sum is coarse for them, and the
    LayerNormalization makes all rows equally large. On a DLA, too, the sum stays FP16, and the network as near to its float as the
    Q/DQ model."""
    text = f"""g (float[1, 8, 4, 4] x) => (float[1, 16, 8] y, float[1, 8, 4, 4] u) {{ {pair("x", "i")} p = Conv<kernel_shape=[1, 1]>(i, v)
        {pair("p", "p2")} a = Add(p2, position) r = Reshape(a, shape) h = Transpose<perm=[0, 2, 1]>(r)
        n = LayerNormalization<axis=-1>(h, k, b) {pair("n", "n2")} c = MatMul(n2, w) {pair("c", "c2", "t")} y = Abs(c2)
        e = Transpose<perm=[0, 2, 1]>(c2) f = Reshape(e, image) o = Add(a, f) {pair("o", "o2", "t")} q = Conv<kernel_shape=[1, 1]>(o2, v)
        {pair("q", "q2", "t")} u = Abs(q2) }}"""
    rng = np.random.default_rng(0)
    arrays = {"k": np.ones(8), "b": np.zeros(8), "w": rng.normal(size=(8, 8)), "v": np.eye(8).reshape(8, 8, 1, 1)}
    arrays["position"] = rng.choice([-23.8125, 23.8125], (1, 8, 4, 4)) * [1, 0, 0, 0]  # a: 31.75, as t
    scales = {"s": np.float32(2**-4), "t": np.float32(2**-2), "z": np.int8(0)}
    shapes = {"shape": np.array([1, 8, 16]), "image": np.array([1, 8, 4, 4])}
    floats = {name: values.astype(np.float32) for name, values in arrays.items()}
    given = model(text, **scales, **shapes, **floats)
    explicit = ExplicitNetwork.of(given)
    feed = {"x": rng.normal(0, 0.5, (1, 8, 4, 4)).astype(np.float32)}
    wanted = Session(float_twin(explicit).to_model(), "float").run(feed)["y"]

    def decibels(network: onnx.ModelProto) -> float:
        noise = Session(network, "rounded").run(feed)["y"].reshape(wanted.shape) - wanted
        return float(10 * np.log10(np.sum(wanted**2) / np.sum(noise**2)))

    unequal = model(text.replace(pair("c", "c2", "t"), pair("c", "c2")), **scales, **shapes, **floats)
    found = {}
    for without in ([], ["keep_norm_fp16"]):
        asked = TranslateOptions(
            preset="dla", platform="jetpack-6.2", without=without, assume=assume, dla_rewrites="force"
        )
        made = translate(given, asked)
        found[not without] = decibels(simulate(ImplicitNetwork.of(made), SimulationOptions.on("orin-dla")).model)
        assert next(row for row in made.plan if row.outputs == ("a",)).precision == ("int8" if without else "fp16")
        assert {d.rule for d in made.diagnostics}.issuperset({"P1"} if without else ())
        assert ("U1" in {d.rule for d in translate(unequal, asked).diagnostics}) == bool(
            without
        )  # an Add in FP16 needs no one range
    assert found[True] > decibels(explicit.model) - 0.5 > found[False] + 6, found


def guarded(text: str, constant: float) -> onnx.ModelProto:
    """A quantized Conv, then `text` from `r` to `l`, in floating point; `c` is the constant."""
    whole = f"g (float[1, 4, 4, 4] x) => (float[1, 4, 4, 4] y) {{ {pair('x', 'i')} r = Conv(i, w) {text} y = Mul(l, half) }}"
    weights = np.random.default_rng(0).normal(size=(4, 4, 1, 1)).astype(np.float32)
    return model(whole, **S, w=weights, c=np.float32(constant), half=np.float32(0.5))


@pytest.mark.parametrize(
    ("text", "constant", "wide"),
    [
        ("q = Abs(r) a = Add(q, c) l = Log(a)", 1e-10, {"r", "q", "a", "l"}),
        ("q = Mul(r, half) p = Mul(q, q) a = Add(p, c) l = Log(a)", 1e-10, {"q", "p", "a", "l"}),
        ("q = Abs(r) a = Max(c, q) u = Transpose<perm=[0, 1, 3, 2]>(a) l = Log(u)", 1e-10, {"r", "q", "a", "u", "l"}),
        ("q = Abs(r) a = Add(c, q) l = Div(r, a)", 1e-12, {"r", "q", "a", "l"}),
        ("q = Abs(r) a = Add(q, c) l = Log(a)", 1e-4, set()),
        ("q = Abs(r) a = Add(q, c) l = Div(a, r)", 1e-12, set()),
        ("q = Mul(r, r) a = Add(q, c) d = Sqrt(a) l = Div(r, d)", 1e-12, set()),
        ("a = Mul(r, c) l = Abs(a)", 1e-10, set()),
    ],
)
def test_p2_gives_fp32_to_what_fp16_cannot_hold(text: str, constant: float, wide: set[str]) -> None:
    given = guarded(text, constant)
    made = translate(given, TranslateOptions(preset="gpu"))
    outputs = {row.name: row.outputs[0] for row in made.plan}
    assert {outputs[name] for name, type in made.layer_precisions.items() if type == "fp32"} == wide
    assert {d.code for d in made.diagnostics if d.rule == "P2"} == ({"I-P2"} if wide else set())
    plain = translate(given, as_is=True)
    assert "fp32" not in plain.layer_precisions.values()
    assert {d.code for d in plain.diagnostics if d.rule == "P2"} == ({"W-P2"} if wide else set())
