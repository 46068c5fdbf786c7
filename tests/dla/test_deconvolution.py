"""Rule D21: ConvTranspose with padding, groups or dilation."""

from __future__ import annotations

import pytest

from tests.dla.check import both, case, graph, pair, weights

END = pair("m", "p") + "y = Relu (p)"


@pytest.mark.parametrize(("attributes", "shape", "dims", "why"), [
    case("sizes that are not known", "pads = [1, 1, 1, 1]", "1,4,5,h", (4, 3, 3, 3), "sizes"),
    case("auto_pad and output_shape", 'strides = [2, 2], group = 2, auto_pad = "SAME_UPPER"', "1,4,5,6", (4, 3, 3, 3), "stated"),
    pytest.param("group = 2, strides = [2, 2], output_shape = [11, 13]", "1,4,5,6", (4, 3, 3, 3), "stated", id="output_shape"),
    case("parameters that do not fit them, or are negative", "pads = [-1, 0, 0, 0]", "1,4,5,6", (4, 3, 3, 3), "negative"),
    case("other than two spatial dimensions", "pads = [1, 1, 1, 1, 1, 1]", "1,4,5,5,5", (4, 3, 3, 3, 3), "two spatial"),
    case("a kernel that comes out above 32 (a square one above 22)", "dilations = [11, 11], pads = [1, 1, 1, 1]", "1,4,5,6", (4, 3, 3, 3), "23x23"),
    case("weights that are not constant", "pads = [1, 1, 1, 1]", "1,4,5,6", None, "not constant"),
])  # fmt: skip
def test_not(attributes: str, shape: str, dims: tuple[int, ...] | None, why: str) -> None:
    weight, more = ("w", "") if dims else ("k", ", float[4,3,3,3] k")
    body = pair("x", "q") + f"m = ConvTranspose <{attributes}> (q, {weight})\n" + END
    target = "float[n,c,h,w] y" if shape.count(",") == 3 else "float[n,c,d,h,w] y"
    arrays = {"w": weights(1, *dims)} if dims else {}
    found = both(graph(f"float[{shape}] x{more}", target, body, **arrays))
    assert "D21" not in found.rules
    assert any(why in row.why for row in found.rewritten.rewrites.left(found.rewritten.dla))
