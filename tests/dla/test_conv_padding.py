"""Rule D13: a Conv with different or too large padding gets a larger kernel."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator.translation.passes.dla.conv_padding import zeros
from tests.dla.check import both, case, covers, graph, pair, same, weights

END = pair("m", "p") + "y = Relu (p)"


def conv(attributes: str, kernel: tuple[int, int], size: str = "9,8", batch: str = "1"):  # type: ignore[no-untyped-def]
    w = weights(1, 4, 2, *kernel)
    scale = (np.abs(w).reshape(4, -1).max(axis=1) / np.float32(127)).astype(np.float32)
    body = (
        "wq = QuantizeLinear <axis = 0> (w, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\n"
        + pair("x", "q")
        + f"m = Conv <{attributes}> (q, wd, b)\n"
        + END
    )
    arrays = {"w": w, "b": weights(2, 4), "ws": scale, "wz": np.zeros(4, np.int8)}
    return graph(f"float[{{N}},2,{size}] x", "float[b,c,h,w] y", body, batch, **arrays)


def test_zeros_are_the_fewest_that_do_it() -> None:
    """Held against a search over all kernels."""
    for kernel in (*range(1, 6), 29, 30, 31, 32):
        for begin in range(5):
            for end in range(5):
                for dilation in (1, 2, 3):
                    fits = [
                        (a + b, a, b)
                        for a in range(31)
                        for b in range(31)
                        if begin + a * dilation == end + b * dilation
                        and begin + a * dilation < kernel + a + b <= 32
                        and begin + a * dilation <= 31
                    ]
                    expected = min(fits)[1:] if fits else None
                    assert zeros(kernel, begin, end, dilation) == expected


@covers("more than 31 rows or columns in case 4")
@pytest.mark.parametrize("pads", ["[30, 0, 30, 0]", "[16, 0, 16, 0]", "[0, 16, 0, 16]"])
def test_not_above_31(pads: str) -> None:
    found = same(conv(f"pads = {pads}", (1, 1)), bits=True)
    assert "D13" not in found.rules
    assert "one that copies" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(("attributes", "shape", "weight"), [
    case("auto_pad with unknown sizes", 'auto_pad = "SAME_UPPER", strides = [2, 2]', "2,h,w", "b"),
    case("weights that are not constant", "pads = [0, 0, 1, 1]", "2,9,8", "Relu"),
    case("an input whose channels are not known in case 4", "pads = [4, 4, 4, 4], dilations = [4, 4]", "c,9,8", "b"),
])  # fmt: skip
def test_not(attributes: str, shape: str, weight: str) -> None:
    computed = weight == "Relu"
    body = pair("x", "q") + ("w = Relu (v)\n" if computed else "") + f"m = Conv <{attributes}> (q, w)\n" + END
    inputs = f"float[1,{shape}] x" + (", float[4,2,3,3] v" if computed else "")
    found = both(graph(inputs, "float[n,k,h2,w2] y", body, **({} if computed else {"w": weights(1, 4, 2, 3, 3)})))
    assert "D13" not in found.rules and found.ops.count("Conv") == 1
