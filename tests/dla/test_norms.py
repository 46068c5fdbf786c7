"""Rule D29: normalizations by Pow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from tests.dla.check import both, case, covers, decibels, graph, pair

X, Y = "float[{N},8,6,5] x", "float[b,c,h,w] y"
POW: dict[str, Any] = {"platform": "jetpack-6.2", "assume": "pow"}
FACTORS = {"g": np.linspace(0.5, 2, 8, dtype=np.float32), "h": np.linspace(-1, 1, 8, dtype=np.float32)}
WHOLE = {key: np.linspace(-1, 1, 240, dtype=np.float32).reshape(8, 6, 5) for key in "gh"}
EPSILON = {"eps": np.float32(1e-5)}


def norm(body: str, batch: str = "1", opset: int = 17, given: str = X, end: bool = True, **arrays: np.ndarray) -> Any:
    return graph(given, Y, pair("x", "q") + body + ("\ny = Relu (t)" if end else ""), batch, opset, **arrays)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize(("scale", "small"), [(2**2, 1), (1 / 32, 0), (2**-14, 1)])
@pytest.mark.parametrize("body", ["InstanceNormalization (q, g, h)", "LayerNormalization <axis = 1> (q, g, h)"])
def test_no_square_overflows_in_fp16(body: str, scale: float, small: int, offset: float) -> None:
    """Ranges of 508, 4 and 0.008: a power of two where the squares or epsilon would be beyond FP16; and zeros."""
    model = norm(f"t = {body}", **(WHOLE if "Layer" in body else FACTORS), s=np.float32(scale))
    found = both(model, **POW)
    names = [node.name for node in found.rewritten.graph.nodes]
    assert sum(name.endswith("_small") for name in names) == small
    reach = np.random.default_rng(1).uniform(-1, 1, (1, 8, 6, 5)) * 127 * scale
    assert decibels(found.rewritten, {"x": (reach * (1 - offset / 2)).astype(np.float32)}, fp16=True) > 50
    if scale <= 1:
        still = {"x": np.full((1, 8, 6, 5), 127 * scale * offset, np.float32)}
        assert decibels(found.rewritten, still, fp16=True) > 40  # no 0 / 0


IN, LN, SIZES = (
    "t = InstanceNormalization (q, g, h)",
    "t = LayerNormalization <axis = 1> (q, g, h)",
    "work over channels",
)


@pytest.mark.parametrize(("body", "why", "given", "options"), [
    case("without that word, or below TensorRT 10.3", IN, "--assume pow", X, {"assume": None}),
    pytest.param(IN, "--assume pow", X, {"platform": "jetpack-6.0"}, id="TensorRT 8.6"),
    case("other axes", "t = ReduceL2 <axes = [1, 2]> (q)", SIZES, X, {}),
    case("sizes that are not known", IN, SIZES, "float[1,8,h,5] x", {}),
    pytest.param(IN, SIZES, "float[1,8,6] x", {}, id="three dimensions"),
    case("`LpNormalization`, which has no epsilon", "t = LpNormalization <axis = 1> (q)", "epsilon", X, {}),
    case("a scale or bias that is computed", "u = Shrink (g)\n" + IN.replace(" g", " u"), "computed", X, {}),
    case("an epsilon that would be 0 in FP16 where no square overflows", LN.replace("= 1", "= 1, epsilon = 1e-12"), "epsilon", X, {}),
    case("more than 8192 channels", LN.replace(", g, h", ", e"), "8192 channels", "float[1,8193,1,2] x", {}),
])  # fmt: skip
def test_not(body: str, why: str, given: str, options: dict[str, Any]) -> None:
    factors = WHOLE if "LayerNormalization" in body else FACTORS
    arrays = {name: values for name, values in factors.items() if f" {name}" in body}
    if " e)" in body:
        arrays = {"e": np.ones((8193, 1, 2), np.float32)}
    if "u = Shrink" in body:
        body, arrays = "u = ReduceMax <axes = [0, 2, 3], keepdims = 0> (q)\n" + body.split("\n")[1], {"h": FACTORS["h"]}
    found = both(norm(body, given=given, **arrays), **{**POW, **options})
    assert "D29" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))


@covers("case 5 of values above 4080, whose squares overflow after a division by 16")
@pytest.mark.parametrize(("scale", "stays"), [(32, False), (33, True)])
def test_not_a_root_of_squares_that_overflow(scale: float, stays: bool) -> None:
    found = both(norm("t = ReduceL2 <axes = [2, 3]> (q)", s=np.float32(scale)), **POW)
    assert ("D29" not in found.rules) == stays
    assert [row.why for row in found.rewritten.rewrites.left(found.rewritten.dla)] == (
        ["its squares would overflow in FP16"] if stays else []
    )


@covers("parts that other layers read")
@pytest.mark.parametrize("read", ["d", "p", "v", "r"])
def test_not_parts_that_others_read(read: str) -> None:
    body = "d = Sub (q, a)\np = Mul (d, d)\nv = ReduceMean <axes = [1]> (p)\ne = Add (v, eps)\nr = Sqrt (e)\n"
    more = f"t0 = Div (d, r)\nf = Relu ({read})\nt = Mul (t0, f)"
    found = both(norm(f"a = ReduceMean <axes = [1]> (q)\n{body}{more}", **EPSILON), **POW)
    assert "D29" not in found.rules


def test_every_norm_names_the_option() -> None:
    """Without it."""
    body = "i = InstanceNormalization (q, g, h)\nl = ReduceL2 <axes = [1]> (i)\nr = Sqrt (l)\nt = Div (i, r)"
    made = translate(
        norm(body, **FACTORS), TranslateOptions(target="orin-dla", platform="jetpack-6.2", dla_rewrites=True)
    )
    left = {row.op: row.why for row in made.rewrites.left(made.dla)}
    assert all("--assume pow" in left[op] for op in ("InstanceNormalization", "ReduceL2", "Sqrt"))
