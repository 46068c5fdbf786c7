"""Rule D19: Pow, Reciprocal and Where."""

from __future__ import annotations

import re
from typing import Optional

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import BATCHES, ORIN, both, case, covers, decibels, feed_of, graph, pair, same, weights

END = pair("m", "p") + "y = Relu (p)"
X = "float[{N},3,4,5] x"


COMPARES = {"platform": "jetpack-6.2"}
ARRAYS = {
    "half": np.float32(0.5), "two": np.float32(2), "each": np.full((3, 1, 1), 2, np.float32), "c": weights(1, 3, 4, 5) > 0,
    "inf": np.float32(-np.inf), "five": np.array([1, 3, 1, 4, 5]), "four": np.array([1, 3, 4, 5]),
}  # fmt: skip


@pytest.mark.parametrize(("body", "why", "options"), [
    case("other exponents (the DLA has no root)", "m = Pow (q, half)", "no power of 0.5", {}),
    case("an exponent that is not one constant number", "m = Pow (q, each)", "one constant", {}),
    pytest.param("m = Pow (half, q)", "one constant", {}, id="a constant base"),
    case("case 2 where the DLA has no Div", "m = Reciprocal (q)", "quotient", {}),
    case("a condition that is computed other than by a comparison", "n2 = IsNaN (q)\nm = Where (n2, q, half)",
        "computed", {}),
    pytest.param("g2 = Greater (q, half)\nm = Where (g2, q, half)", "8.6.12", {}, id="a DLA that compares nothing"),
    case("cases 6 and 7 of tensors that are not four-dimensional or have no scale of the model's own, of which the DLA"
        " compares none (limit E3)", "r = Exp (q)\ng2 = Greater (r, half)\nm = Where (g2, q, half)", "INT8 only", COMPARES),
    case("branches that are broadcast", "g2 = Greater (q, half)\nm = Where (g2, q, each)", "broadcast", COMPARES),
    case("a constant v that is not finite", "m = Where (c, q, inf)", "finite", {}),
    pytest.param("w = ReduceMax <axes = [3]> (q)\nm = Where (c, q, w)", "broadcast", {}, id="broadcast"),
    case("more than four dimensions", "f = Reshape (q, five)\nn = Pow (f, two)\nm = Reshape (n, four)", "more than four", {}),
])  # fmt: skip
def test_not(body: str, why: str, options: dict[str, str]) -> None:
    used = {name: value for name, value in ARRAYS.items() if name in re.findall(r"\w+", body)}
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", pair("x", "q") + body + "\n" + END, **used), **options)
    assert "D19" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


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
