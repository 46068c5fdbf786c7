"""Rule D24: a Conv with a stride above 8 or a kernel above 32 works on blocks of its input."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, case, covers, graph, pair, same, weights


def conv(shape: str, dims: tuple[int, ...], attributes: str, batch: str = "1"):  # type: ignore[no-untyped-def]
    w = weights(1, *dims)
    scale = (np.abs(w).reshape(len(w), -1).max(axis=1) / np.float32(127)).astype(np.float32)
    body = "wq = QuantizeLinear <axis = 0> (w, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\n"
    body += pair("x", "q") + f"c = Conv <{attributes}> (q, wd, b)\n" + pair("c", "p") + "y = Relu (p)"
    rank = "b,c,h,w" if len(dims) == 4 else "b,c,l"
    arrays = {"w": w, "ws": scale, "wz": np.zeros(len(w), np.int8), "b": weights(2, len(w))}
    return graph(f"float[{{N}},{shape}] x", f"float[{rank}] y", body, batch, **arrays)


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("shape", "kernel", "attributes", "windows"), [
    ("3,48,48", (16, 16), "strides = [16, 16]", [([2, 2], [2, 2]), ([8, 8], [8, 8])]),
    ("3,28,29", (14, 14), "strides = [14, 14]", [([2, 3], [2, 2]), ([7, 7], [7, 7])]),
    ("3,49,46", (16, 15), "strides = [16, 12], pads = [3, 2, 5, 1]", [([3, 2], [2, 2]), ([9, 8], [8, 6])]),
    ("3,60,60", (36, 36), "strides = [2, 2], pads = [18, 18, 18, 18]", [([2, 2], [2, 2]), ([18, 18], [1, 1])]),
])  # fmt: skip
def test_case_1(shape: str, kernel: tuple[int, int], attributes: str, windows: list[object], batch: str) -> None:
    few = kernel[0] < 32  # of more products, sums in float32 differ by their order
    found = same(conv(shape, (8, 3, *kernel), attributes, batch), batch, bits=few)
    assert found.gpu() == (["Conv"], [])
    convs = found.rewritten.graph.of("Conv")
    got = [(node.get("kernel_shape"), node.get("strides")) for node in convs]
    assert [[*map(tuple, pair)] for pair in got] == [[*map(tuple, pair)] for pair in windows]  # type: ignore[call-overload]
    assert all(weight.exact for weight in found.rewritten.weights)
    assert found.rewritten.scales[convs[0].outputs[0]].value == found.plain.scales["x"].value


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("shape", "dims", "attributes", "kernel"),
    [
        ("1,1600", (8, 1, 80), "strides = [16]", [20, 4]),
        ("1,8000", (8, 1, 250), "strides = [160], pads = [45, 45]", [14, 20]),
        ("1,16000", (8, 1, 10), "strides = [5]", [2, 5]),
        ("6,100", (6, 1, 48), "strides = [2], pads = [23, 24], group = 6", [25, 2]),
    ],
)
def test_case_2(shape: str, dims: tuple[int, ...], attributes: str, kernel: list[int], batch: str) -> None:
    found = same(conv(shape, dims, attributes, batch), batch, bits=True)
    assert "D24" in found.rules and set(found.gpu()[1]) <= {"Reshape"} and found.ops.count("Conv") == 1
    assert found.rewritten.graph.of("Conv")[0].get("kernel_shape") == kernel
    assert all(weight.exact for weight in found.rewritten.weights)


@pytest.mark.parametrize(("shape", "dims", "attributes", "why"), [
    case("dilation, or sizes that are not known", "3,99,99", (8, 3, 16, 16), "strides = [16, 16], dilations = [2, 2]", "dilated"),
    pytest.param("4,h,w", (8, 4, 16, 16), "strides = [16, 16]", "not known"),
    case("groups in case 1", "4,48,48", (8, 2, 16, 16), "strides = [16, 16], group = 2", "groups"),
    case("a stride without such a divisor, which has to divide L in case 2", "3,48,48", (8, 3, 13, 13), "strides = [13, 13]", "no divisor of stride 13"),
    pytest.param("1,101", (8, 1, 20), "strides = [10]", "no divisor of stride 10"),
])  # fmt: skip
def test_not(shape: str, dims: tuple[int, ...], attributes: str, why: str) -> None:
    found = both(conv(shape, dims, attributes))
    assert "D24" not in found.rules and why in found.reason(found.rewritten.graph.producer["c"].name)


@covers("weights that are not constant")
def test_not_with_computed_weights() -> None:
    body = pair("x", "q") + "w = Relu (k)\ny = Conv <strides = [16, 16]> (q, w)"
    found = both(graph("float[1,3,48,48] x, float[8,3,16,16] k", "float[b,c,h,w] y", body))
    assert "D24" not in found.rules
