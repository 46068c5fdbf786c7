"""Rule D7: HardSigmoid, HardSwish, Clip, Mish and Softsign."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, case, covers, decibels, engine, feed_of, graph, pair, same
from tests.explicit_reference import run
from tests.small_models import f32

END = pair("m", "p") + "y = Relu (p)"
X = "float[{N},3,4,5] x"


@pytest.mark.parametrize("reach", [2.0, 8.0, 32.0, 100.0])
def test_case_2_costs_little_whatever_the_range(reach: float) -> None:
    """The gate keeps 127 steps up to its bound: with the range of the input, of 6 only 24 were left at 32."""
    body = pair("x", "q", "s1") + "m = HardSwish (q)\n" + pair("m", "p", "s1") + "y = Relu (p)"
    found = same(graph("float[{N},3,32,32] x", "float[b,c,h,w] y", body, s1=np.float32(reach / 127)))
    x = np.random.default_rng(0).uniform(-reach, reach, (1, 3, 32, 32)).astype(np.float32)
    exact = np.clip(x * np.clip(x + 3, 0, 6) / 6, 0, None)
    noise = []
    for translation in (found.plain, found.rewritten):
        made = run(engine(translation).model, {"x": x}, ["y"])[0]
        noise.append(float(np.sqrt(np.mean((made - exact) ** 2))) / (reach / 127))
    assert noise[1] < max(2 * noise[0], 0.5), "steps of the output"


@pytest.mark.parametrize("op", ["HardSwish", "HardSigmoid"])
@pytest.mark.parametrize(
    "shape", [case("tensors that are not four-dimensional", "1,3,4"), case("an unknown number of channels", "1,c,4,5")]
)
def test_not(shape: str, op: str) -> None:
    found = both(graph(f"float[{shape}] x", f"float[{shape}] y", pair("x", "q") + f"m = {op} (q)\n" + END))
    assert op in found.ops and not found.rules
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize("reach", [2.0, 30.0])
@pytest.mark.parametrize(
    ("low", "high"),
    [(-1.5, 1), (-100, 1.5), (-3000, 1.5), (-1, 60000), (-0.01, 1.5), (0.5, 1.5), (0.5, 3000), (-9, -0.1)],
)
def test_case_3_makes_no_step_coarser(low: float, high: float, reach: float) -> None:
    """The engine's codes are those of a Clip of codes: the same where the bounds have two signs, within one step else. In FP16
    nothing but roundings is added. Bounds that no value reaches change neither."""
    body = pair("x", "q", "s1") + "m = Clip (q, low, high)\n" + pair("m", "p", "s1") + "y = Add (p, p)"
    step = np.float32(reach / 127)
    arrays = {"s1": step, "low": np.float32(low), "high": np.float32(high)}
    found = same(graph("float[{N},3,32,32] x", "float[b,c,h,w] y", body, **arrays), relative=1e-5)
    x = np.random.default_rng(0).uniform(-reach, reach, (1, 3, 32, 32)).astype(np.float32)
    want = np.round(np.clip(np.round(x / step) * step, low, high) / step)
    got = run(engine(found.rewritten).model, {"x": x}, ["y"])[0] / (2 * step)
    assert np.abs(got - want).max() <= (1e-3 if low < 0 < high else 1.001)
    assert decibels(found.rewritten, {"x": x}, fp16=True) > 60


ORIN_10 = {"platform": "jetpack-6.2"}


@pytest.mark.parametrize("op", ["Elu (q)", "Selu (q)", "Celu <alpha = 0.5> (q)"])
def test_case_6_is_0_at_0_whatever_becomes_of_the_scale_of_a_sigmoid(op: str) -> None:
    """Fact 5.12b leaves open whether the DLA applies it: values above 0 and 0 itself come out equal both ways."""
    found = both(graph("float[1,3,32,32] x", "float[b,c,h,w] y", pair("x", "q") + f"m = {op}\n" + END), **ORIN_10)
    made = {name: row.value for name, row in found.rewritten.scales.items()}
    assert made["m_divisor"] == made["m_rest"] == f32(1 / 126)
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    x[0, 0] = 0
    for held in (False, True):
        assert decibels(found.rewritten, {"x": x}, sigmoid_fp16=held) > 25


@covers("case 7 without approximate (the error function)")
def test_not_the_error_function() -> None:
    found = same(graph(X, "float[b,c,h,w] y", pair("x", "q") + "m = Gelu (q)\n" + END, opset=20), **ORIN_10)
    assert "D7" not in found.rules and "error function" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(("op", "why", "options"), [
    case("bounds that are not constant numbers", "Clip (q, low2)", "bounds", {}, id="computed bound"),
    case("case 6 with factors that are not positive", "Elu <alpha = 0.0> (q)", "positive", ORIN_10, id="no factor"),
    pytest.param("Celu <alpha = 0.0> (q)", "positive", ORIN_10, id="no divisor"),
    case("cases 4 to 6 where the DLA has no Div", "Softsign (q)", "quotient", {}, id="no quotient"),
])  # fmt: skip
def test_not_these(op: str, why: str, options: dict[str, str]) -> None:
    body = pair("x", "q") + ("low2 = ReduceMin <keepdims = 0> (q)\n" if "low2" in op else "") + f"m = {op}\n" + END
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, opset=17), **options)
    assert "D7" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_4_as_exporters_write_it(batch: str) -> None:
    body = pair("x", "q") + "a = Softplus (q)\n" + pair("a", "b", "s4") + "t = Tanh (b)\n" + pair("t", "g", "s2")
    explicit = graph(X, "float[b,c,h,w] y", body + "m = Mul (q, g)\n" + END, batch, s2=f32(1 / 127), s4=f32(1 / 16))
    found = same(explicit, batch, platform="jetpack-6.2")
    assert found.ops == ["Sigmoid", "BatchNormalization", "Mul", "BatchNormalization", "Div", "Mul", "Relu"]
    assert found.gpu() == (["Softplus"], [])
    scales = found.rewritten.tensor_scales
    assert scales["t"] == f32(1 / 127) and scales["t_rest"] == f32(2 / 127) and "a" not in scales
    feed = feed_of(found.rewritten, batch, 1)
    assert decibels(found.rewritten, feed) > decibels(found.plain, feed) - 3  # four tensors more in INT8


@covers("a Softplus that others than one Tanh read")
@pytest.mark.parametrize("more", ["m = Add (a, q)", "t = Tanh (a)\nm = Add (t, a)"])
def test_not_a_softplus_alone(more: str) -> None:
    found = same(
        graph(X, "float[b,c,h,w] y", pair("x", "q") + f"a = Softplus (q)\n{more}\n" + END), platform="jetpack-6.2"
    )
    assert "Softplus" in found.ops and "logarithm" in found.reason(found.rewritten.graph.producer["a"].name)


@covers("Min of more than two inputs or shapes")
@pytest.mark.parametrize("op", ["Min (q, q, k)", "Min (q, k)"])
def test_not_a_min_of_more(op: str) -> None:
    body = pair("x", "q") + pair("u", "k") + f"m = {op}\n" + END
    found = both(graph(f"{X}, float[1,3,1,5] u", "float[b,c,h,w] y", body))
    assert found.gpu()[1] == ["Min"] and "one shape" in found.reason(found.rewritten.graph.producer["m"].name)
