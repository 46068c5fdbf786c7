"""Rule D3: a Conv before a channel Split becomes one Conv a part."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.dla.check import both, case, covers, graph, ints, pair, same, weights

QUANTIZED = "wq = QuantizeLinear <axis = 0> (w, ws, wz)\nwd = DequantizeLinear <axis = 0> (wq, ws, wz)\n"
W = weights(1, 6, 3, 3, 3)
ARRAYS = {
    "w": W,
    "ws": (np.abs(W).reshape(6, -1).max(axis=1) / np.float32(127)).astype(np.float32),
    "wz": np.zeros(6, np.int8),
    "b": weights(2, 6),
    "sizes": ints(2, 4),
    "zero": ints(0),
    "two": ints(2),
    "six": ints(6),
    "one": ints(1),
}
CONV = QUANTIZED + pair("x", "q") + "c = Conv <pads = [1, 1, 1, 1]> (q, wd, b)\n"
ENDS = pair("a0", "a1") + pair("a2", "a3", "s2") + "y0 = Relu (a1)\ny1 = Relu (a3)"


def explicit(middle: str, batch: str = "1", ends: str = ENDS, **more: np.ndarray):  # type: ignore[no-untyped-def]
    arrays = {**ARRAYS, "s2": np.float32(0.02), **more}
    return graph(
        "float[{N},3,5,5] x", "float[{N},2,5,5] y0, float[{N},4,5,5] y1", CONV + middle + ends, batch, **arrays
    )


SPLIT = "a0, a2 = Split <axis = 1> ({}, sizes)\n"


@pytest.mark.parametrize(("middle", "why"), [
    case("where another layer reads it", SPLIT.format("c") + "all = Sigmoid (c)\n", "reads all of 'c'"),
    case("another layer than Conv or element-wise ones in front", "r = MaxPool <kernel_shape = [1, 1]> (c)\n" + SPLIT.format("r"), "MaxPool"),
    case("overlapping parts", "a0 = Slice (c, zero, two, one)\na2 = Slice (c, one, five, one)\n", "overlap"),
    case("a step other than 1", "a0 = Slice (c, zero, three, one, two)\na2 = Slice (c, two, six, one)\n", "step 1"),
])  # fmt: skip
def test_not(middle: str, why: str) -> None:
    ends = ENDS.replace("Relu (a3)", "Add (a3, all)") if "all" in middle else ENDS
    middle = middle.replace("all = Sigmoid (c)", "big = Sigmoid (c)\nall = ReduceMax <axes = [1]> (big)")
    found = same(explicit(middle, ends=ends, five=ints(5), three=ints(3)), bits=True)
    assert "D3" not in found.rules
    assert any(why in reason for reason in found.rewritten.rewrites.reasons.values())


@covers("where the split tensor, or one between, is a graph output")
@pytest.mark.parametrize(("middle", "out"), [(SPLIT.format("c"), "c"), ("m = Sigmoid (c)\n" + SPLIT.format("m"), "c")])
def test_not_a_graph_output(middle: str, out: str) -> None:
    made = explicit(middle)
    made.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info(out, 1, [1, 6, 5, 5]))
    found = same(made)
    assert "D3" not in found.rules and f"'{out}' is a graph output" in found.rewritten.rewrites.reasons.values()


@covers("weights that are not constant")
def test_not_with_a_computed_weight() -> None:
    body = pair("x", "q") + "w = Relu (v)\nc = Conv (q, w)\n" + SPLIT.format("c") + ENDS
    arrays = {"sizes": ints(2, 4), "s2": np.float32(0.02)}
    inputs = "float[1,3,5,5] x, float[6,3,1,1] v"
    found = both(graph(inputs, "float[1,2,5,5] y0, float[1,4,5,5] y1", body, **arrays))
    assert "Split" in found.ops and "D3" not in found.rules


@covers("grouped Conv")
def test_not_a_grouped_conv() -> None:
    body = pair("x", "q") + "c = Conv <group = 3> (q, v)\n" + SPLIT.format("c") + ENDS
    arrays = {"v": weights(5, 6, 1, 1, 1), "sizes": ints(2, 4), "s2": np.float32(0.02)}
    found = same(graph("float[1,3,5,5] x", "float[1,2,5,5] y0, float[1,4,5,5] y1", body, **arrays))
    assert "Split" in found.ops
    assert "groups" in next(iter(found.rewritten.rewrites.reasons.values()))


@covers(
    "where the Convs of the parts, which read the input once each, are estimated to take longer in INT8 than the one Conv and "
    "the Slices in FP16 (docs/cost.md)"
)
@pytest.mark.parametrize(("channels", "divided"), [(64, True), (8192, False)])
def test_what_the_estimate_calls_slower_is_left(channels: int, divided: bool) -> None:
    """Each part reads the whole input: more than 4 + 4 channels of Slices are worth, where the input is wide."""
    body = pair("x", "q") + "c = Conv (q, v)\n" + SPLIT.format("c") + ENDS
    arrays = {"v": weights(5, 6, channels, 1, 1), "sizes": ints(2, 4), "s2": np.float32(0.02)}
    ends = ("float[1,2,8,8] y0, float[1,4,8,8] y1", body)
    found = same(graph(f"float[1,{channels},8,8] x", *ends, **arrays))
    assert ("D3" in found.rules) is divided
    if not divided:
        assert "ms instead of" in next(iter(found.rewritten.rewrites.reasons.values()))


SLICES = "a0 = Slice ({0}, zero, two, one)\na2 = Slice ({0}, two, six, one)\n"


@pytest.mark.parametrize(
    ("cut", "out"),
    [
        case("a Split or Slice along another axis", "a0, a2 = Split <axis = 2> (c, sizes)", "[1,6,2,6] y0, float[1,6,4,6] y1"),
        case("parts that are not constant", "e = Cast <to = 7> (k)\na0 = Slice (c, zero, e, one)\na2 = Slice (c, two, six, one)", "[1,n,6,6] y0, float[1,4,6,6] y1"),
    ],
)  # fmt: skip
def test_not_other_parts(cut: str, out: str) -> None:
    body = pair("x", "q") + f"c = Conv (q, v)\n{cut}\n" + "y0 = Relu (a0)\ny1 = Relu (a2)"
    inputs = "float[1,3,6,6] x" + (", float[1] k" if "Cast" in cut else "")
    numbers = {name: ARRAYS[name] for name in ("sizes", "zero", "one", "two", "six") if name in cut}
    found = both(graph(inputs, f"float{out}", body, v=weights(5, 6, 3, 1, 1), **numbers))
    assert "D3" not in found.rules and found.ops.count("Conv") == 1
