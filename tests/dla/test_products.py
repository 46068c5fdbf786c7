"""Rule D19: Pow, Reciprocal and Where."""

from __future__ import annotations

from typing import Optional

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import (
    BATCHES,
    ORIN,
    SCALE,
    both,
    case,
    covers,
    decibels,
    feed_of,
    graph,
    outputs,
    pair,
    same,
    weights,
)
from tests.small_models import f32

END = pair("m", "p") + "y = Relu (p)"
X = "float[{N},3,4,5] x"
NEW = {"platform": "jetpack-6.2"}


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2), (4, 2)])
@pytest.mark.parametrize("shape", ["{N},3,4,5", "{N},6,8"])
def test_case_1(shape: str, exponent: int, products: int, batch: str) -> None:
    body = pair("x", "q") + "m = Pow (q, e)\n" + END
    made = "float[b,c,h,w] y" if shape.count(",") == 3 else "float[b,c,h] y"
    explicit = graph(f"float[{shape}] x", made, body, batch, e=np.float32(exponent))
    found = same(explicit, batch, bits=exponent == 2)
    assert found.ops == [*["Mul"] * products, "Relu"] and "Pow" not in found.gpu()[1]
    if exponent > 2:
        assert found.rewritten.scales["m_square"].value == f32(127 * SCALE * SCALE)


def test_gelu_in_parts_by_tanh_has_no_layer_for_the_gpu() -> None:
    """As PyTorch exports gelu(approximate="tanh") below opset 20."""
    body = pair("x", "q") + (
        "t = Pow (q, e)\na = Mul (t, k)\nb = Add (q, a)\nc = Mul (b, r)\nd = Tanh (c)\nf = Add (d, one)\n"
        "h = Mul (q, half)\nm = Mul (h, f)\n"
    )
    numbers = {"e": 3.0, "k": 0.044715, "r": 0.7978846, "one": 1.0, "half": 0.5}
    found = same(graph(X, "float[b,c,h,w] y", body + END, **{k: np.float32(v) for k, v in numbers.items()}))
    assert found.gpu() == (["Pow"], [])


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["Reciprocal (t)", "Pow (t, e)"])
def test_case_2(op: str, batch: str) -> None:
    body = pair("x", "q") + f"t = Add (q, k)\nm = {op}\n" + END
    arrays = {"k": np.float32(9), **({"e": np.float32(-1)} if "Pow" in op else {})}
    found = same(graph(X, "float[b,c,h,w] y", body, batch, **arrays), batch, bits=True, **NEW)
    assert found.ops == ["Add", "Div", "Relu"] and found.gpu()[1] == []


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("order", ["c, q, v", "c, v, q"])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 3, 1, 1), (4, 5), ()])
def test_case_3(shape: tuple[int, ...], order: str, batch: str) -> None:
    body = pair("x", "q") + f"m = Where ({order})\n" + END
    arrays = {"c": weights(1, *shape) > 0, "v": np.float32(2.5)}
    found = same(graph(X, "float[b,c,h,w] y", body, batch, **arrays), batch, bits=True)
    assert found.ops == ["Mul", "Add", "Relu"] and found.gpu() == (["Where"], [])
    made = next(name for name in found.rewritten.tensor_scales if name.startswith("m_"))
    assert found.rewritten.scales[made].value == SCALE and found.rewritten.scales[made].origin.rule == "D19"


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_4(batch: str) -> None:
    body = pair("x", "q") + "r = Sigmoid (q)\n" + pair("r", "t", "s2") + "m = Where (c, q, t)\n" + END
    arrays = {"c": weights(1, 1, 3, 4, 5) > 0, "s2": np.float32(1 / 128)}
    found = same(graph(X, "float[b,c,h,w] y", body, batch, **arrays), batch, bits=True)
    assert found.ops == ["Sigmoid", "Mul", "Mul", "Add", "Relu"] and found.gpu() == (["Where"], [])


@pytest.mark.parametrize(
    ("body", "why", "options"),
    [
        case("other exponents (the DLA has no root)", "m = Pow (q, half)", "no power of 0.5", {}),
        case("an exponent that is not one constant number", "m = Pow (q, each)", "one constant", {}),
        pytest.param("m = Pow (half, q)", "one constant", {}, id="a constant base"),
        case("case 2 where the DLA has no Div", "m = Reciprocal (q)", "quotient", {}),
        case(
            "a condition that is computed other than by a comparison",
            "n2 = IsNaN (q)\nm = Where (n2, q, half)",
            "computed",
            {},
        ),
        pytest.param("g2 = Greater (q, half)\nm = Where (g2, q, half)", "8.6.12", {}, id="a DLA that compares nothing"),
        case(
            "cases 6 and 7 of tensors that are not four-dimensional or have no scale of the model's own, of which the DLA compares"
            " none (limit E3)",
            "r = Exp (q)\ng2 = Greater (r, half)\nm = Where (g2, q, half)",
            "INT8 only",
            {"platform": "jetpack-6.2"},
        ),
        case(
            "branches that are broadcast",
            "g2 = Greater (q, half)\nm = Where (g2, q, each)",
            "broadcast",
            {"platform": "jetpack-6.2"},
        ),
        case("a constant v that is not finite", "m = Where (c, q, inf)", "finite", {}),
        pytest.param("w = ReduceMax <axes = [3]> (q)\nm = Where (c, q, w)", "broadcast", {}, id="broadcast"),
        case(
            "more than four dimensions",
            "f = Reshape (q, five)\nn = Pow (f, two)\nm = Reshape (n, four)",
            "more than four",
            {},
        ),
    ],
)
def test_not(body: str, why: str, options: dict[str, str]) -> None:
    arrays = {
        "half": np.float32(0.5),
        "two": np.float32(2),
        "each": np.full((3, 1, 1), 2, np.float32),
        "c": weights(1, 3, 4, 5) > 0,
        "inf": np.float32(-np.inf),
        "five": np.array([1, 3, 1, 4, 5]),
        "four": np.array([1, 3, 4, 5]),
    }
    used = {
        name: value
        for name, value in arrays.items()
        if name in body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", pair("x", "q") + body + "\n" + END, **used), **options)
    assert "D19" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


@covers(6)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("condition", "branches", "ops"),
    [
        ("Greater (q, zero)", "q, t", "Greater Cast Mul BatchNormalization Mul Add"),
        ("Less (zero, q)", "q, zero", "Greater Cast Mul"),
        ("Equal (q, t)", "zero, t", "Equal Cast BatchNormalization Mul"),
        ("GreaterOrEqual (q, half)", "one, minus", "Less Cast BatchNormalization BatchNormalization Add"),
        ("LessOrEqual (q, t)", "q, t", "Greater Cast BatchNormalization Mul Mul Add"),
        ("Greater (q, zero)", "one, zero", "Greater Cast"),
    ],
)
def test_case_6(condition: str, branches: str, ops: str, batch: str) -> None:
    body = pair("x", "q") + pair("x1", "t") + f"c = {condition}\nm = Where (c, {branches})\n" + END
    values = {"zero": np.float32(0), "half": np.float32(0.5), "one": np.float32(1), "minus": np.float32(-1.5)}
    arrays = {name: value for name, value in values.items() if name in condition + branches}
    if "t" not in (condition + branches).replace("Greater", "").replace("Cast", "").replace("at", ""):
        body = body.replace(pair("x1", "t"), "")
    given = X + (", float[{N},3,4,5] x1" if "x1" in body else "")
    found = same(graph(given, "float[b,c,h,w] y", body, batch, **arrays), batch, bits=True, platform="jetpack-6.2")
    assert found.ops == [*ops.split(), "Relu"] and found.rules == ["D19"] and not found.gpu()[1]
    masks = [found.rewritten.tensor_scales[name] for name in found.rewritten.tensor_scales if "mask" in name]
    assert all(scale == pytest.approx(1 / 127) for scale in masks)


@covers(6)
def test_case_6_of_the_opposite() -> None:
    body = pair("x", "q") + "c = Greater (q, zero)\nn = Not (c)\nm = Where (n, zero, q)\n" + END
    found = same(
        graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, zero=np.float32(0)), bits=True, platform="jetpack-6.2"
    )
    assert found.ops == ["Greater", "Cast", "Mul", "Relu"] and found.gpu() == (["Greater", "Where"], [])
    feed = {"x": np.float32([3e38, -1e-30, 1e-30, 0, -0.0, 40]).reshape(1, 1, 1, 6).repeat(3, 1).repeat(4, 2)[..., :5]}
    np.testing.assert_array_equal(outputs(found.plain, feed)[0], outputs(found.rewritten, feed)[0])


@covers(7)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("op", "ops"), [
    ("ThresholdedRelu", "Greater Cast Mul"),
    ("ThresholdedRelu <alpha = 0.25>", "Greater Cast Mul"),
    ("Sign", "Greater Cast Less Cast BatchNormalization Add"),
    ("Shrink", "Greater Cast Mul Less Cast Mul Add"),
    ("Shrink <lambd = 0.25, bias = 0.125>", "Greater Cast Mul Less Cast Mul BatchNormalization BatchNormalization Add Add Add"),
])  # fmt: skip
def test_case_7(op: str, ops: str, batch: str) -> None:
    """A step saves a transition, and no value changes; between two layers of a network it would need one."""
    body = pair("x", "q") + f"m = {op} (q)\n" + END
    found = same(graph(X, "float[b,c,h,w] y", body, batch), batch, bits=True, platform="jetpack-6.2")
    assert found.ops == [*ops.split(), "Relu"] and found.gpu() == ([op.split()[0]], [])
    before, after = (t.costs for t in (found.plain, found.rewritten))
    if batch != "N":
        assert before is not None and after is not None and after.ends[1] < before.ends[1] - 0.2  # type: ignore[operator]


@covers(5)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_5_a_root_by_pow(batch: str) -> None:
    """The parts of a normalization: 1 / sqrt(v + e) by Pow and Div, all of it on the DLA; in FP16 within its precision."""
    body = pair("x", "q") + "v = Mul (q, q)\ne = Add (v, small)\nr = Sqrt (e)\nm = Div (q, r)\ny = Relu (m)"
    more = {"small": np.full((1, 3, 1, 1), 0.01, np.float32)}
    explicit = graph("float[{N},3,4,5] x", "float[b,c,h,w] y", body, batch, **more)
    found = same(explicit, batch, relative=1e-5, platform="jetpack-6.2", assume="pow")
    assert found.rules == ["D19"] and "Pow" in found.ops and found.gpu() == (["Sqrt"], [])
    assert found.rewritten.costs.transitions < found.plain.costs.transitions  # type: ignore[union-attr]
    feed = feed_of(found.rewritten, batch, 1)
    assert decibels(found.rewritten, feed, fp16=True) > 45


@covers("case 5 without that word, or below TensorRT 10.3")
@pytest.mark.parametrize("options", [{"platform": "jetpack-6.2"}, {"platform": "jetpack-6.0", "assume": "pow"}])
def test_not_case_5(options: dict[str, str]) -> None:
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", pair("x", "q") + "a = Abs (q)\ny = Sqrt (a)"), **options)
    assert not found.rules and "--assume pow" in found.reason("Sqrt_y")


@pytest.mark.parametrize(("assume", "verdict"), [(None, "gpu"), ("pow", "dla-fp16")])
def test_limit_o3_is_an_open_fact(assume: Optional[str], verdict: str) -> None:
    """With one constant operand; two computed ones stay on the GPU."""
    body = pair("x", "q") + "a = Abs (q)\nb = Pow (a, e)\ny = Pow (a, b)"
    explicit = graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, e=np.full((1, 1, 1, 1), 0.7, np.float32))
    made = translate(explicit, TranslateOptions(**{**ORIN, "platform": "jetpack-6.2"}, assume=assume))
    verdicts = {row.name: row.verdict for row in made.dla.layers}  # type: ignore[union-attr]
    assert (verdicts["Pow_b"], verdicts["Pow_y"]) == (verdict, "gpu")
