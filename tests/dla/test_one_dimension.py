"""Rule D26: one-dimensional layers, and the layers between them, work on [N, C, L, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import INFER, both, case, covers, decibels, feed_of, graph, ints, pair, same, weights

W = {"w": weights(1, 8, 4, 3), "v": weights(2, 8, 8, 3), "b": weights(3, 8)}
BN = {
    name: (np.abs(weights(n, 8)) + 0.5).astype(np.float32) for n, name in enumerate(("scale", "shift", "mean", "var"))
}
CONV = pair("x", "q") + "c = Conv <pads = [1, 1]> (q, w, b)\n"


def series(body: str, batch: str = "1", **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    used = {name: values for name, values in {**W, **BN, **arrays}.items() if f"{name})" in body or f"{name}," in body}
    return graph("float[{N},4,20] x", "float[b,c,l] y", body, batch, **used)


NETWORK = (
    CONV
    + "n = BatchNormalization (c, scale, shift, mean, var)\nr = Relu (n)\n"
    + pair("r", "p")
    + "d = Conv <pads = [1, 1], dilations = [1]> (p, v)\na = Add (d, p)\nm = MaxPool <kernel_shape = [2], strides = [2]> (a)\n"
    + "j = Concat <axis = -2> (m, m)\n"
    + pair("j", "k")
    + "u = ConvTranspose <strides = [2]> (k, t)\ny = Sigmoid (u)"
)


def test_int8_and_fp16_lose_nothing() -> None:
    found = same(series(NETWORK, t=weights(4, 16, 5, 2)), **INFER)
    feed = feed_of(found.rewritten, "1", 1)
    for fp16 in (False, True):
        before, after = (decibels(one, feed, fp16=fp16) for one in (found.plain, found.rewritten))
        assert after > before - 0.5


@pytest.mark.parametrize(
    ("body", "arrays"),
    [
        case("an `output_shape`", "y = ConvTranspose <output_shape = [22]> (q, t)", {"t": weights(1, 4, 8, 3)}),
        case("regions without a layer of case 1 or 4", "y = Sigmoid (q)", {}),
    ],
)  # fmt: skip
def test_not(body: str, arrays: dict[str, np.ndarray]) -> None:
    found = both(series(pair("x", "q") + body, **arrays))
    assert "D26" not in found.rules


@covers("a weight that is not constant")
def test_not_with_a_computed_weight() -> None:
    body = pair("x", "q") + "w = Relu (k)\ny = Conv (q, w)"
    found = both(graph("float[1,4,20] x, float[8,4,3] k", "float[b,c,l] y", body))
    assert "D26" not in found.rules


@pytest.mark.parametrize(
    ("layer", "opset"),
    [
        case("Softmax below opset 13", "y = Softmax <axis = 2> (c)", 12),
        case("a Slice, Pad, Resize or Reduce with computed parameters", "h = Cast <to = 7> (n)\ny = Slice (c, h, to, ax)", 17),
        case("a Resize by sizes", "y = Resize <mode = \"nearest\"> (c, , , sizes)", 17),
    ],
)  # fmt: skip
def test_the_layer_is_outside(layer: str, opset: int) -> None:
    arrays = {"to": ints(9), "ax": ints(2), "sizes": ints(1, 8, 40)}
    used = {name: values for name, values in arrays.items() if name in layer}
    more = ", float[1] n" if "Cast" in layer else ""
    body = CONV + layer
    found = both(graph("float[1,4,20] x" + more, "float[b,c,l] y", body, opset=opset, w=W["w"], b=W["b"], **used))
    node = found.rewritten.graph.producer["y"]
    assert "D26" in found.rules and node.op_type == layer.split("y = ")[1].split()[0]
    assert found.rewritten.types.rank(node.inputs[0]) == 3
