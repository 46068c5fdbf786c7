"""Rule D4: means over H and W become AveragePool of at most 8 x 8."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qdq_translator.passes.dla.spatial_mean import factors
from tests.dla.check import BATCHES, SCALE, both, covers, engine, feed_of, graph, ints, pair, same
from tests.explicit_reference import run

END = pair("m", "p") + "y = Relu (p)"
PRIME = covers("another prime factor above 8")
STRIDE = covers("windows above 32, or strides above 8, in case 5")


def mean(op: str, size: str, batch: str, opset: int = 17, **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    body = pair("x", "q") + f"m = {op}\n" + END
    return graph(f"float[{{N}},4,{size}] x", "float[b,c,h,w] y", body, batch, opset, **arrays)


def window(kernel: int, stride: int) -> str:
    return f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}]"


@pytest.mark.parametrize("size", range(1, 600))
def test_factors(size: int) -> None:
    found = factors(size)
    smooth = size
    for prime in (2, 3, 5, 7):
        while smooth % prime == 0:
            smooth //= prime
    assert (found is None) == (smooth != 1)
    if found is not None:
        assert math.prod(found) == size and all(1 < f <= 8 for f in found)
        assert len(found) >= math.log(size, 8) - 1e-9


@covers(1, 2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "op",
    [
        "GlobalAveragePool (q)",
        "ReduceMean <axes = [2, 3]> (q)",
        "ReduceMean <axes = [-1, -2]> (q)",
        "ReduceMean <axes = [3]> (q)",
    ],
)
def test_cases_1_and_2_within_one_window(op: str, batch: str) -> None:
    found = same(mean(op, "7,5", batch), batch, bits=True)
    assert found.ops == ["AveragePool", "Relu"]
    assert not found.gpu()[1] and found.gpu()[0]
    assert found.rewritten.tensor_scales == found.plain.tensor_scales  # nothing new


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("size", "windows"),
    [
        ("20,40", [[5, 8], [4, 5]]),
        ("64,9", [[8, 3], [8, 3]]),
        ("12,1", [[6, 1], [2, 1]]),
        ("128,8", [[8, 8], [8, 1], [2, 1]]),
    ],
)
def test_several_in_a_row(size: str, windows: list[list[int]], batch: str) -> None:
    found = same(mean("GlobalAveragePool (q)", size, batch), batch)
    pools = [n for n in found.rewritten.graph.nodes if n.op_type == "AveragePool"]
    assert [n.get("kernel_shape") for n in pools] == windows
    assert pools[-1].outputs == ["m"]
    assert not found.gpu()[1]
    # new tensors have the scale of the pooling's input, and the report says so
    for pool in pools[:-1]:
        scale = found.rewritten.scales[pool.outputs[0]]
        assert scale.value == found.plain.tensor_scales["x"]
        assert (scale.origin.rule, scale.origin.source) == ("D4", "x")
        assert any(row["tensor"] == pool.outputs[0] for row in found.rewritten.report["scales"])


@pytest.mark.parametrize("batch", BATCHES)
def test_case_2_without_keepdims(batch: str) -> None:
    body = pair("x", "q") + "m = ReduceMean <axes = [2, 3], keepdims = 0> (q)\n" + END
    found = same(graph("float[{N},4,6,6] x", "float[b,c] y", body, batch), batch, bits=True)
    assert found.ops == ["AveragePool", "Reshape", "Relu"]
    made = next(n.outputs[0] for n in found.rewritten.graph.nodes if n.op_type == "AveragePool")
    assert found.rewritten.tensor_scales[made] == found.plain.tensor_scales["m"]


def test_axes_as_an_input() -> None:
    found = same(mean("ReduceMean (q, axes)", "6,6", "1", 18, axes=ints(2, 3)), bits=True)
    assert found.ops == ["AveragePool", "Relu"]


@covers(3)
def test_case_3_large_average_pool() -> None:
    found = same(mean("AveragePool <kernel_shape = [16, 10], strides = [16, 10]> (q)", "32,20", "1"))
    assert [n.get("kernel_shape") for n in found.rewritten.graph.nodes][:2] == [[8, 5], [2, 2]]
    assert not found.gpu()[1]


def test_no_scale_for_the_tensors_between_where_the_result_has_none() -> None:
    explicit = graph("float[1,4,16,16] x", "float[b,c,h,w] m", pair("x", "q") + "m = GlobalAveragePool (q)")
    found = same(explicit)
    assert found.ops == ["AveragePool", "AveragePool"]
    assert list(found.rewritten.tensor_scales) == ["x"]


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("size", "kernels"),
    [
        ("13,13", [("Conv", [13, 13])]),
        ("26,8", [("AveragePool", [2, 8]), ("Conv", [13, 1])]),
        ("22,26", [("AveragePool", [2, 2]), ("Conv", [11, 13])]),
        ("31,1", [("Conv", [31, 1])]),
    ],
)
def test_case_4_a_prime_window(size: str, kernels: list[tuple[str, list[int]]], batch: str) -> None:
    """All codes of the weights are 127, and the engine's means are those of the pooling within one step."""
    found = same(mean("GlobalAveragePool (q)", size, batch), batch)
    nodes = [n for n in found.rewritten.graph.nodes if n.op_type != "Relu"]
    assert [(n.op_type, n.get("kernel_shape")) for n in nodes] == kernels and not found.gpu()[1]
    weight = found.rewritten.graph.array(nodes[-1].inputs[1])
    assert weight is not None and weight.shape[0] == 4 and np.ptp(weight) == 0
    feed = feed_of(found.rewritten, batch, 3)
    want, got = (run(engine(t).model, feed, ["y"])[0] for t in (found.plain, found.rewritten))
    assert np.abs(want - got).max() <= SCALE * (len(kernels) + 1e-6)


@pytest.mark.parametrize("prime", [11, 13, 17, 19, 23, 29, 31])
def test_case_4_every_prime_up_to_31(prime: int) -> None:
    found = same(mean("GlobalAveragePool (q)", f"{prime},{2 * prime}", "1"))
    kernels = [n.get("kernel_shape") for n in found.rewritten.graph.nodes if n.op_type != "Relu"]
    assert kernels == [[1, 2], [prime, prime]]


@pytest.mark.parametrize(
    ("op", "size", "why"),
    [
        pytest.param("GlobalAveragePool (q)", "37,26", "prime factor", marks=PRIME),
        pytest.param("GlobalAveragePool (q)", "143,8", "prime factor", marks=PRIME),
        pytest.param(f"AveragePool <{window(13, 13)}> (q)", "26,26", "prime factor", marks=PRIME),
        pytest.param("GlobalAveragePool (q)", "h,w", "known", marks=covers("where H or W is unknown")),
        pytest.param(
            "ReduceMean <axes = [1, 2]> (q)", "4,4", "H and W only", marks=covers("reductions over other axes")
        ),
        pytest.param(
            f"AveragePool <{window(10, 10)}, pads = [1, 1, 1, 1]> (q)",
            "20,20",
            "padding does not count",
            marks=covers("padded windows whose padding does not count"),
        ),
        pytest.param(f"AveragePool <{window(10, 10)}> (q)", "25,20", "strides", marks=STRIDE),
        pytest.param(f"AveragePool <{window(33, 1)}> (q)", "34,34", "strides", marks=STRIDE),
        pytest.param(
            f"AveragePool <{window(10, 8)}, ceil_mode = 1> (q)",
            "20,25",
            "rounds",
            marks=covers("ceil_mode where windows do not divide H or W"),
        ),
    ],
)
def test_not(op: str, size: str, why: str) -> None:
    body = pair("x", "q") + f"m = {op}\n" + END
    explicit = graph(f"float[1,4,{size}] x", "float[b,c,h2,w2] y", body)
    found = both(explicit) if "h" in size else same(explicit)
    assert "D4" not in found.rules
    node = next(n.name for n in found.rewritten.graph.nodes if n.op_type in op)
    assert why in found.reason(node)


@pytest.mark.parametrize(
    "attributes, size, out",
    [
        pytest.param(
            'kernel_shape = [16, 16], auto_pad = "SAME_UPPER"',
            16,
            16,
            marks=covers("padded windows whose padding does not count"),
        ),
        pytest.param(f"{window(10, 10)}, dilations = [2, 2]", 20, 1, marks=covers("dilated windows")),
    ],
)
def test_not_where_windows_are_padded_by_auto_pad_or_dilated(attributes: str, size: int, out: int) -> None:
    body = pair("x", "q") + f"m = AveragePool <{attributes}> (q)\n" + pair("m", "p") + "y = Relu (p)"
    found = same(
        graph(f"float[1,2,{size},{size}] x", f"float[1,2,{out},{out}] y", body, opset=19), platform="jetpack-6.2"
    )
    assert found.ops == ["AveragePool", "Relu"] and not found.rules


@covers(5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        (window(9, 1), "12,11"),
        (window(10, 8), "25,20"),
        (f"{window(9, 2)}, pads = [4, 3, 4, 3], count_include_pad = 1", "20,21"),
        ("kernel_shape = [11, 2], strides = [1, 1], pads = [5, 0, 5, 0], count_include_pad = 1", "20,21"),
        ("kernel_shape = [32, 9], strides = [3, 3]", "33,20"),
    ],
)
def test_case_5_windows_that_overlap(attributes: str, size: str, batch: str) -> None:
    explicit = mean(f"AveragePool <{attributes}> (q)", size, batch)
    found = same(explicit, batch)
    assert found.ops == ["Conv", "Relu"] and found.gpu() == (["AveragePool"], [])
    conv = next(iter(found.rewritten.graph.nodes))
    codes = found.rewritten.graph.array(conv.inputs[1])
    assert codes is not None and len(np.unique(codes)) == 1 and conv.get("group") == 4


@covers(6)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["ReduceMean <axes = [1]> (q)", "ReduceMean <axes = [-3]> (q)", "ReduceSum (q, one)"])
def test_case_6_over_channels(op: str, batch: str) -> None:
    found = same(mean(op, "5,3", batch, **({"one": ints(1)} if "one" in op else {})), batch, bits="Sum" in op)
    assert found.ops == ["Conv", "Relu"] and len(found.gpu()[0]) == 1 and not found.gpu()[1]
    assert found.rewritten.types.shape("m")[1:] == (1, 5, 3)  # type: ignore[index]


@covers(7)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("axes", "count"), [([2, 3], 96), ([2], 12), ([-1], 8)])
def test_case_7_sums(axes: list[int], count: int, batch: str) -> None:
    found = same(mean("ReduceSum (q, axes)", "12,8", batch, axes=ints(*axes)), batch)
    assert found.ops[-2:] == ["BatchNormalization", "Relu"] and set(found.ops[:-2]) == {"AveragePool"}
    assert found.gpu() == (["ReduceSum"], [])
    scale = next(n for n in found.rewritten.graph.nodes if n.op_type == "BatchNormalization").inputs[1]
    assert found.rewritten.graph.array(scale).tolist() == [count] * 4  # type: ignore[union-attr]


def test_case_7_without_keepdims() -> None:
    body = pair("x", "q") + "m = ReduceSum <keepdims = 0> (q, axes)\n" + pair("m", "p") + "y = Relu (p)"
    found = same(graph("float[3,4,6,8] x", "float[b,c] y", body, axes=ints(2, 3)), "3")
    assert found.ops == ["AveragePool", "BatchNormalization", "Reshape", "Relu"]
