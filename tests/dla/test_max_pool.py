"""Rule D15: MaxPool with a window above 8 becomes several in a row."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes.dla.max_pool import _axis
from tests.dla.check import BATCHES, ORIN, SCALE, both, case, covers, graph, pair, same

END = pair("m", "p") + "y = Relu (p)"


def pool(op: str, batch: str = "1", size: str = "20,23"):  # type: ignore[no-untyped-def]
    return graph(f"float[{{N}},3,{size}] x", "float[b,c,h,w] y", pair("x", "q") + f"m = {op}\n" + END, batch)


@pytest.mark.parametrize("kernel", range(9, 60))
def test_shares_add_up(kernel: int) -> None:
    for begin, end in ((0, 0), (kernel // 2, kernel // 2), (kernel - 1, 0), (3, kernel - 1)):
        count = -(-(kernel - 1) // 7)
        steps = _axis(kernel, begin, end, count)
        assert 1 + sum(k - 1 for k, _, _ in steps) == kernel and len(steps) == count
        assert all(2 <= k <= 8 and max(b, e) <= min(7, k - 1) for k, b, e in steps)
        assert (sum(b for _, b, _ in steps), sum(e for _, _, e in steps)) == (begin, end)


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("attributes", "windows"),
    [
        ("kernel_shape = [9, 9], pads = [4, 4, 4, 4]", [[5, 5], [5, 5]]),
        ("kernel_shape = [13, 13], pads = [6, 6, 6, 6]", [[7, 7], [7, 7]]),
        ("kernel_shape = [17, 5], pads = [16, 0, 2, 4]", [[6, 2], [6, 2], [7, 3]]),
        ("kernel_shape = [9, 12], strides = [2, 3], pads = [0, 5, 8, 1]", [[5, 6], [5, 7]]),
        ('kernel_shape = [10, 10], strides = [3, 3], auto_pad = "SAME_UPPER"', [[5, 5], [6, 6]]),
        ("kernel_shape = [11, 11], strides = [11, 11]", [[6, 6], [6, 6]]),
        ("kernel_shape = [9, 9], strides = [11, 7], ceil_mode = 1", [[5, 5], [5, 5]]),
    ],
)
def test_case_1(attributes: str, windows: list[list[int]], batch: str) -> None:
    found = same(pool(f"MaxPool <{attributes}> (q)", batch), batch, bits=True, relative=0)
    pools = [n for n in found.rewritten.graph.nodes if n.op_type == "MaxPool"]
    assert [n.get("kernel_shape") for n in pools] == windows and pools[-1].outputs == ["m"]
    assert found.gpu() == (["MaxPool"], [])
    for node in pools[:-1]:
        scale = found.rewritten.scales[node.outputs[0]]
        assert (scale.value, scale.origin.rule, scale.origin.source) == (SCALE, "D15", "x")


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("op", "size", "windows"),
    [
        ("MaxPool <kernel_shape = [16, 10], strides = [16, 10]> (q)", "32,27", [[8, 5], [2, 2]]),
        ("GlobalMaxPool (q)", "20,20", [[5, 5], [4, 4]]),
        ("GlobalMaxPool (q)", "7,6", [[7, 6]]),
        ("GlobalMaxPool (q)", "11,3", [[6, 2], [6, 2]]),
        ("GlobalMaxPool (q)", "23,3", [[6, 1], [6, 1], [7, 2], [7, 2]]),
    ],
)
def test_case_2(op: str, size: str, windows: list[list[int]], batch: str) -> None:
    found = same(pool(op, batch, size), batch, bits=True, relative=0)
    pools = [n for n in found.rewritten.graph.nodes if n.op_type == "MaxPool"]
    assert [n.get("kernel_shape") for n in pools] == windows and not found.gpu()[1]


def spp(scale: str) -> object:
    """Spatial pyramid pooling as YOLOv3 to v7 have it; `scale`: of the smallest pool's output."""
    sizes = (5, 9, 13)
    pools = "".join(
        f"m{k} = MaxPool <kernel_shape = [{k}, {k}], pads = [{k // 2}, {k // 2}, {k // 2}, {k // 2}]> (q)\n"
        for k in sizes
    )
    body = pair("x", "q") + pools + pair("m5", "p5", scale) + "y = Concat <axis = 1> (q, p5, m9, m13)"
    return graph("float[1,4,20,20] x", "float[b,c,h,w] y", body, s2=np.float32(SCALE / 2))


@covers(3, "case 3 where the smaller one's output has a scale of its own")
def test_case_3_each_step_once() -> None:
    found = same(spp("s"), bits=True, relative=0, infer_concat_scales=True)  # type: ignore[arg-type]
    pools = [n for n in found.rewritten.graph.nodes if n.op_type == "MaxPool"]
    assert [(n.inputs, n.get("kernel_shape"), n.get("pads")) for n in pools] == [
        (["x"], [5, 5], [2] * 4),
        (["m5"], [5, 5], [2] * 4),
        (["m9"], [5, 5], [2] * 4),
    ]
    apart = same(spp("s2"), bits=True, relative=0)  # type: ignore[arg-type]
    read = [n.inputs for n in apart.rewritten.graph.nodes if n.op_type == "MaxPool"]
    assert read == [["x"], ["x"], ["m9_max0"], ["m9"]] and not apart.gpu()[1]


@covers(4, 5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(
    ("attributes", "shape", "windows"),
    [
        ("axes = [2, 3]", "{N},3,20,16", [[5, 8], [4, 2]]),
        ("axes = [3]", "{N},3,20,7", [[1, 7]]),
        ("axes = [-2]", "{N},3,11,7", [[6, 1], [6, 1]]),
        ("axes = [2, 3], keepdims = 0", "{N},3,6,4", [[6, 4]]),
        ("axes = [1]", "{N},24,5,6", [[8, 1], [3, 1]]),
    ],
)
def test_cases_4_and_5(attributes: str, shape: str, windows: list[list[int]], op: str, batch: str) -> None:
    wide = {"s2": np.float32(4 * SCALE)}  # no code of -128
    body = pair("x", "q", "s2") + f"m = {op} <{attributes}> (q)\n" + pair("m", "p", "s2") + "y = Relu (p)"
    target = "float[b,c] y" if "keepdims" in attributes else "float[b,c,h,w] y"
    found = same(graph(f"float[{shape}] x", target, body, batch, opset=17, **wide), batch, bits=True, relative=0)
    pools = [n.get("kernel_shape") for n in found.rewritten.graph.nodes if n.op_type == "MaxPool"]
    assert sorted(pools) == sorted(windows)
    left = ["Reshape", "Relu"] if "keepdims" in attributes else []  # of two dimensions
    assert found.gpu()[0][0] == op and found.gpu()[1] == left
    assert found.ops.count("BatchNormalization") == (2 if op == "ReduceMin" else 0)
    assert found.ops.count("Transpose") == (2 if "axes = [1]" in attributes else 0)


@covers("cases 4 and 5 over the batch, over channels and space at once, or over channels that go")
@pytest.mark.parametrize("attributes", ["axes = [0]", "axes = [1, 2]", "axes = [1], keepdims = 0"])
def test_not_over_these(attributes: str) -> None:
    body = pair("x", "q") + f"m = ReduceMax <{attributes}> (q)\n" + END
    found = both(graph("float[1,4,5,6] x", "float[b,c,h,w] y" if "keep" not in attributes else "float[b,h,w] y", body))
    assert "D15" not in found.rules and "reduces other axes" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(("op", "size", "why"), [
    case("ceil_mode where sizes are not whole multiples", "MaxPool <kernel_shape = [9, 9], strides = [2, 2], ceil_mode = 1> (q)", "20,20", "rounds"),
    case("unknown sizes", "MaxPool <kernel_shape = [9, 9]> (q)", "h,w", "known"),
])  # fmt: skip
def test_not(op: str, size: str, why: str) -> None:
    found = both(pool(op, size=size))
    assert "D15" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


@covers("dilation")
def test_not_with_dilation() -> None:
    """TensorRT's parser refuses it: no rewrite may leave the dilation out and so get it past the parser."""
    for rewrites in (False, True):
        with pytest.raises(UserError, match="dilations"):
            translate(
                pool("MaxPool <kernel_shape = [9, 9], dilations = [1, 2]> (q)"),
                TranslateOptions(dla_rewrites=rewrites, **ORIN),
            )


@covers("an output of indices")
def test_not_with_indices() -> None:
    body = pair("x", "q") + "m, i = MaxPool <kernel_shape = [9, 9]> (q)\n" + END
    with pytest.raises(UserError, match="a MaxPool whose indices are read"):
        both(graph("float[1,3,20,20] x", "float[b,c,h,w] y, int64[b,c,h,w] i", body))
