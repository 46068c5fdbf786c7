"""Rule D14 (Xavier): AveragePool that leaves its padding out of the average."""

from __future__ import annotations

import pytest

from tests.dla.check import BATCHES, SCALE, both, case, covers, graph, pair, same

XAVIER = {"target": "xavier-dla", "platform": "jetpack-5.1"}
END = pair("m", "p") + "y = Relu (p)"


WINDOW = "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"


def pool(attributes: str, batch: str = "1", size: str = "7,6", opset: int = 17):  # type: ignore[no-untyped-def]
    body = pair("x", "q") + f"m = AveragePool <{attributes}> (q)\n" + END
    return graph(f"float[{{N}},3,{size}] x", "float[b,c,h,w] y", body, batch, opset)


@covers(1, "targets that support the layer as it is (Orin)")
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("attributes", [
    "kernel_shape = [3, 3], pads = [1, 1, 1, 1]",
    "kernel_shape = [3, 2], pads = [2, 0, 1, 1], strides = [2, 2]",
    'kernel_shape = [3, 3], auto_pad = "SAME_LOWER", strides = [2, 2]',
])  # fmt: skip
def test_case_1(attributes: str, batch: str) -> None:
    found = same(pool(attributes, batch), batch, **XAVIER)
    assert found.ops == ["AveragePool", "Mul", "Relu"]
    assert found.gpu() == (["AveragePool"], [])
    scale = found.rewritten.scales["m_with_padding"]
    assert (scale.value, scale.origin.rule, scale.origin.source) == (SCALE, "D14", "x")
    # Orin takes the layer as it is
    assert same(pool(attributes, batch), batch, bits=True).ops == ["AveragePool", "Relu"]


@pytest.mark.parametrize(("attributes", "size", "why"), [
    case("ceil_mode", f"{WINDOW}, ceil_mode = 1, strides = [2, 2]", "7,6", "rounds"),
    case("dilation", f"{WINDOW}, dilations = [2, 1]", "7,6", "dilated"),
    case("unknown sizes", WINDOW, "H,W", "known"),
])  # fmt: skip
def test_not(attributes: str, size: str, why: str) -> None:
    opset = 19 if "dilations" in attributes else 17
    found = both(pool(attributes, size=size, opset=opset), **{**XAVIER, **({"platform": None} if opset > 17 else {})})
    assert "Mul" not in found.ops
    assert why in found.reason(found.rewritten.graph.producer["m"].name)
