"""Rule D15: MaxPool with a window above 8 becomes several in a row."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UserError
from qdq_translator.translation.passes.dla.max_pool import _axis
from tests.dla.check import ORIN, SCALE, both, case, covers, graph, pair, same

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
