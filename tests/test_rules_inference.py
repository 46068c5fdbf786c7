"""Scales that rules S5 and S8 compute, by the functions themselves; records hold which tensor gets which scale, and which none."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import ExplicitNetwork, Session
from qdq_translator.lab.simulate.verdict import float_twin
from qdq_translator.translation.scales.inference.self_gated import SIGMOID
from tests.small_models import f32, model, pair, same_function, scales_of

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


def test_s8_the_gate_of_a_large_value() -> None:
    """No exponential overflows, of either sign."""
    assert [SIGMOID.value(x) for x in (-1000.0, 0.0, 1000.0)] == [0.0, 0.5, 1.0]


# ------------------------------------------------------------------ P1


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
