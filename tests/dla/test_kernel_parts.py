"""Rule D27: a Conv whose kernel is too long, or whose data do not fit the convolution buffer, becomes smaller Convs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, case, covers, decibels, feed_of, graph, pair, same
from tests.dla.test_large_windows import conv


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("shape", "kernel", "attributes", "left"), [
    ("4,33,33", (3, 3), "dilations = [36, 36], pads = [36, 36, 36, 36]", [1, 1]),
    ("4,20,20", (3, 3), "dilations = [12, 24], pads = [12, 24, 12, 24]", [3, 1]),
    ("4,3,9", (7, 1), "pads = [9, 0, 3, 0]", [3, 1]),
    ("4,4,4", (3, 3), "dilations = [9, 9], pads = [9, 9, 9, 9], strides = [3, 2]", [1, 1]),
    ("4,7,7", (3, 3), "dilations = [33, 33], pads = [40, 40, 40, 40]", [1, 1]),
])  # fmt: skip
def test_case_1(shape: str, kernel: Any, attributes: str, left: list[int], batch: str) -> None:
    found = same(conv(shape, (8, 4, *kernel), attributes, batch), batch)
    assert found.rules[0] == "D27" and found.gpu() == (["Conv"], [])
    applied = next(row for row in found.rewritten.rewrites.applied if row.rule == "D27")
    assert [node.op_type for node, _ in applied.after] == ["Conv"]
    if found.rules == ["D27"]:  # rule D13 grows a kernel that its padding needs
        node = found.rewritten.graph.producer["c"]
        assert (node.get("kernel_shape"), node.get("dilations")) == (left, [1, 1])
    feed = feed_of(found.rewritten, batch, 1)
    # the weights that are left have a scale of their own, to which they are rounded
    assert decibels(found.rewritten, feed) > decibels(found.plain, feed) - 2


def test_a_kernel_that_the_dla_has_is_not_trimmed() -> None:
    assert not both(conv("4,3,3", (8, 4, 5, 5), "pads = [4, 4, 4, 4]")).rules


SUMS = [
    ("6,100", (6, 1, 87), "pads = [43, 43], group = 6"),
    ("5,100", (6, 5, 48), "group = 1"),
    ("4,60,20", (4, 1, 51, 5), "pads = [25, 2, 25, 2], group = 4"),
    ("2,5,60", (2, 2, 3, 51), "pads = [2, 25, 2, 25], strides = [1, 2], dilations = [2, 1]"),
    ("3,5,130", (2, 3, 1, 50), "pads = [0, 20, 0, 30], dilations = [1, 2]"),
]


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("shape", "dims", "attributes"), SUMS)
def test_case_2(shape: str, dims: tuple[int, ...], attributes: str, batch: str) -> None:
    found = same(conv(shape, dims, attributes, batch), batch, dla_rewrites="force")
    assert "D27" in found.rules and set(found.gpu()[1]) <= {"Reshape"}
    # the parts of sums have no scale: the layers are FP16, and lose nothing
    assert not [name for name in found.rewritten.tensor_scales if "taps" in name]
    feed = feed_of(found.rewritten, batch, 1)
    assert decibels(found.rewritten, feed) > decibels(found.plain, feed) - 0.5


BUFFER = [
    ("256,7,700", (3, 256, 3, 3), "pads = [1, 1, 1, 1]", [(1, 3), (3, 1)]),
    ("128,11,600", (3, 128, 9, 1), "strides = [2, 1], pads = [4, 0, 4, 0]", [(3, 1), (3, 1)]),
    case(
        3, *("256,14,90", (3, 256, 3, 3), "dilations = [12, 12], pads = [12, 12, 12, 12]"), [(1, 1), (1, 13), (13, 1)]
    ),
    ("128,20,180", (3, 128, 3, 3), "dilations = [15, 9], pads = [15, 9, 15, 9]", [(1, 1), (1, 19), (31, 1)]),
]


@covers(2)
@pytest.mark.parametrize(("shape", "dims", "attributes", "kernels"), BUFFER)
def test_data_that_do_not_fit(shape: str, dims: Any, attributes: str, kernels: Any, tmp_path: Path) -> None:
    """With data, in INT8 as a whole; the rounding of the parts costs 3 to 6 dB of 40."""
    sizes = [int(size) for size in shape.split(",")]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((1, 1, *sizes)).astype(np.float32))
    found = same(conv(shape, dims, attributes), calibrate=str(tmp_path / "x.npy"), infer_bounds=True)
    assert found.gpu() == (["Conv"], [])
    assert [tuple(node.get("kernel_shape")) for node in found.rewritten.graph.of("Conv")] == kernels
    assert {row.verdict for row in found.rewritten.dla.layers if row.op == "Conv"} == {"dla-int8"}  # type: ignore[union-attr]
    times = [made.costs.least[1] for made in (found.plain, found.rewritten)]  # type: ignore[union-attr]
    feed = feed_of(found.rewritten, "1", 1)
    assert times[1] < times[0] and decibels(found.rewritten, feed) > decibels(found.plain, feed) - 6


@pytest.mark.parametrize(("shape", "dims", "attributes", "why"), [
    case("sizes that are not known, in case 1", *("4,h,w", (8, 4, 3, 3), "dilations = [36, 36], pads = [36, 36, 36, 36]", "its padding does not fit")),
    case("kernels above 32 along H and W at once", *("3,48,48", (8, 3, 33, 33), "group = 1", "along H and W")),
    case("more than 8192 parts", *("1,1,40", (4097, 1, 1, 33), "group = 1", "too many for parts")),
    case("padding of a sum above 31", *("2,1,60", (3, 2, 1, 40), "pads = [0, 51, 0, 51]", "too many for parts")),
    case("a sum that would need a dilation above 32", *("1,1,1300", (3, 1, 1, 34), "dilations = [1, 37]", "too many for parts")),
    case("data of one row that do not fit", *("512,2,1000", (2, 512, 1, 1), "group = 1", "one row")),
])  # fmt: skip
def test_not(shape: str, dims: tuple[int, ...], attributes: str, why: str) -> None:
    found = both(conv(shape, dims, attributes))
    assert "D27" not in found.rules and why in found.reason(found.rewritten.graph.producer["c"].name)


@covers("weights that are not constant")
def test_not_with_computed_weights() -> None:
    body = pair("x", "q") + "w = Relu (k)\ny = Conv <kernel_shape = [1, 40]> (q, w)"
    found = both(graph("float[1,3,1,48] x, float[8,3,1,40] k", "float[b,c,h,w] y", body))
    assert "D27" not in found.rules
