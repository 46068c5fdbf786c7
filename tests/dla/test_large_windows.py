"""Rule D24: a Conv with a stride above 8 or a kernel above 32 works on blocks of its input."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import both, case, covers, graph, pair, weights


def conv(shape: str, dims: tuple[int, ...], attributes: str, batch: str = "1"):  # type: ignore[no-untyped-def]
    w = weights(1, *dims)
    scale = (np.abs(w).reshape(len(w), -1).max(axis=1) / np.float32(127)).astype(np.float32)
    body = "wq = QuantizeLinear <axis = 0> (w, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\n"
    body += pair("x", "q") + f"c = Conv <{attributes}> (q, wd, b)\n" + pair("c", "p") + "y = Relu (p)"
    rank = "b,c,h,w" if len(dims) == 4 else "b,c,l"
    arrays = {"w": w, "ws": scale, "wz": np.zeros(len(w), np.int8), "b": weights(2, len(w))}
    return graph(f"float[{{N}},{shape}] x", f"float[{rank}] y", body, batch, **arrays)


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
