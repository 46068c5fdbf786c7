"""Rule D26: one-dimensional layers, and the layers between them, work on [N, C, L, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, INFER, both, case, covers, decibels, feed_of, graph, ints, pair, same, weights

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


@covers(1, 2, 3)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_network_is_lifted_once(batch: str) -> None:
    found = same(series(NETWORK, batch=batch, t=weights(4, 16, 5, 2)), batch, bits=True, **INFER)
    assert found.ops.count("Reshape") == 2 and not {"Unsqueeze", "Squeeze"} & set(found.ops)
    assert found.gpu()[1] == ["Reshape", "Reshape"]
    assert {**found.plain.tensor_scales, **found.rewritten.tensor_scales} == found.rewritten.tensor_scales
    assert "D16" in both(series(NETWORK, t=weights(4, 16, 5, 2)), dla_output="4d", dla_rewrites=True, **INFER).rules


def test_int8_and_fp16_lose_nothing() -> None:
    found = same(series(NETWORK, t=weights(4, 16, 5, 2)), **INFER)
    feed = feed_of(found.rewritten, "1", 1)
    for fp16 in (False, True):
        before, after = (decibels(one, feed, fp16=fp16) for one in (found.plain, found.rewritten))
        assert after > before - 0.5


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("layer", "arrays"),
    [
        ("d = Sub (one, c)", {"one": weights(5, 8, 1)}),
        ("d = Mul (c, row)", {"row": weights(5, 20)}),
        ("d = PRelu (c, slope)", {"slope": weights(5, 8, 1)}),
        ("d = InstanceNormalization (c, scale, shift)", {}),
        ("d = Softmax <axis = -2> (c)", {}),
        ("e, f = Split <axis = -2> (c)\nd = Mul (e, f)", {}),
        ("d = Slice (c, from, to, ax)", {"from": ints(1), "to": ints(7), "ax": ints(-2)}),
        ("d = Pad (c, around)", {"around": ints(0, 0, 2, 0, 0, 1)}),
        (
            'd = Resize <mode = "linear"> (c, , factors)',
            {"factors": np.array([1, 1, 2], np.float32)},
        ),
        ("d = ReduceMean <axes = [-1]> (c)", {}),
        ("d = ReduceSum (c, ax)", {"ax": ints(-1)}),
        ("e = GlobalAveragePool (c)\nf = Sigmoid (e)\nd = Mul (c, f)", {}),
        ("d = AveragePool <kernel_shape = [3], pads = [1, 1], count_include_pad = 1> (c)", {}),
    ],
    ids=lambda value: value.split()[2] if isinstance(value, str) else "",
)
def test_case_2(layer: str, arrays: dict[str, np.ndarray], batch: str) -> None:
    found = same(series(CONV + layer + "\ny = Relu (d)", batch=batch, **arrays), batch, relative=1e-4)
    assert found.rules[0] == "D26" and not {"Unsqueeze", "Squeeze"} & set(found.ops)
    left = found.gpu()[1]
    assert left.count("Reshape") == len(left) - ("Instance" in layer) and found.ops.count("Reshape") <= 4


@covers(4)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_case_4_an_image_that_is_flattened(op: str) -> None:
    body = pair("x", "q") + f"f = Reshape (q, to)\ng = {op} <axes = [2], keepdims = 0> (f)\ny = Gemm (g, w)"
    explicit = graph("float[2,4,5,6] x", "float[b,k] y", body, to=ints(0, 0, -1), w=weights(1, 4, 3))
    found = same(explicit)
    assert "D26" in found.rules and found.gpu()[1] == ["Reshape"] and len(found.gpu()[0]) > 1


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
