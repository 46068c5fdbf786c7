"""Rule D3: a Conv before a channel Split becomes one Conv a part."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.dla.check import BATCHES, INFER, SCALE, both, case, covers, graph, ints, pair, same, weights

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
SLICES = "a0 = Slice ({0}, zero, two, one)\na2 = Slice ({0}, two, six, one)\n"
SILU = "g0 = Sigmoid (c)\nm = Mul (c, g0)\n"


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("cut", [SPLIT, SLICES], ids=["split", "slices"])
def test_case_1(cut: str, batch: str) -> None:
    for second in (SCALE, 0.02):
        # with two scales the plain engine rounds twice: the Conv's output to the larger, then each part
        found = same(explicit(cut.format("c"), batch, s2=np.float32(second)), batch, bits=second == SCALE)
        assert found.ops == ["Conv", "Conv", "Relu", "Relu"]
    assert found.rewritten.rewrites.tensors == {"c": ["a0", "a2"]}
    scales = found.rewritten.tensor_scales
    assert (scales["a0"], scales["a2"]) == (SCALE, np.float32(0.02))
    # every code as trained: the rows of the weight keep their scales
    assert [(w.codes, w.exact) for w in found.rewritten.weights] == [(2 * 27, True), (4 * 27, True)]


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("cut", [SPLIT, SLICES], ids=["split", "slices"])
def test_case_2_through_silu_with_a_scale_on_every_tensor(cut: str, batch: str) -> None:
    quantized = pair("c", "cp", "s3") + "g0 = Sigmoid (cp)\n" + pair("g0", "gp", "s4") + "m = Mul (cp, gp)\n"
    quantized += pair("m", "mp")
    ends = "y0 = Relu (a0)\ny1 = Relu (a2)"
    more = {"s3": np.float32(0.05), "s4": np.float32(1 / 127)}
    found = same(explicit(quantized + cut.format("mp"), batch, ends, **more), batch, bits=True)
    assert found.ops.count("Conv") == found.ops.count("Sigmoid") == found.ops.count("Mul") == 2
    assert "Split" not in found.ops and "Slice" not in found.ops
    table = found.rewritten.scales
    # parts that have no scale of their own take that of what was split; so do the tensors between
    assert {table[n].value for n in ("a0", "a2")} == {SCALE}
    assert table["a0"].origin.rule == "D3" and "channels 0 to 1" in table["a0"].origin.note
    assert {table[n].value for n in found.rewritten.rewrites.tensors["c"]} == {np.float32(0.05)}
    assert {table[n].value for n in found.rewritten.rewrites.tensors["g0"]} == {np.float32(1 / 127)}
    assert found.rewritten.rewrites.tensors["m"] == ["a0", "a2"]


def test_case_2_more_layers_reach_int8() -> None:
    """YOLOv8's C2f: the Slices run in FP16 only, and so do their neighbours for want of scales."""
    found = same(explicit(SILU + SLICES.format("m")), **INFER)
    assert found.plain.dla is not None and found.rewritten.dla is not None
    assert found.plain.dla.count("dla-int8") < found.rewritten.dla.count("dla-int8")


def test_a_part_may_be_a_graph_output() -> None:
    body = CONV + "y0, a2 = Split <axis = 1> (c, sizes)\n" + pair("a2", "a3", "s2") + "y1 = Relu (a3)"
    arrays = {**ARRAYS, "s2": np.float32(0.02)}
    found = same(graph("float[1,3,5,5] x", "float[1,2,5,5] y0, float[1,4,5,5] y1", body, **arrays), bits=True)
    assert found.ops == ["Conv", "Conv", "Relu"]
    assert "y0" not in found.rewritten.tensor_scales  # rule S2


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
