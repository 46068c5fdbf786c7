"""Rule D11: DepthToSpace and SpaceToDepth become a deconvolution and a convolution that copy."""

from __future__ import annotations

import pytest

from tests.dla.check import both, case, covers, graph, pair, same

END = pair("m", "p") + "y = Relu (p)"


@covers("block sizes above the DLA's limits (stride 8 for the Conv, 22 for the ConvTranspose)")
@pytest.mark.parametrize(("op", "block", "shape", "applies"), [
    ("SpaceToDepth", 8, "1,16,8", True),
    ("SpaceToDepth", 9, "1,18,9", False),
    ("DepthToSpace", 22, "484,1,2", True),
    ("DepthToSpace", 23, "529,1,2", False),
])  # fmt: skip
def test_not_above_the_largest_stride(op: str, block: int, shape: str, applies: bool) -> None:
    body = pair("x", "q") + f"m = {op} <blocksize = {block}> (q)\n" + END
    found = same(graph(f"float[1,{shape}] x", "float[b,c,h,w] y", body), bits=True)
    assert (op not in found.ops) is applies is ("D11" in found.rules)
    assert applies or f"block size {block}" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(("op", "shape", "why"), [
    case("block sizes of 1", "SpaceToDepth <blocksize = 1>", "3,4,4", ""),
    case("unknown channels", "SpaceToDepth <blocksize = 2>", "c,4,4", "known"),
    case("more than 8192 channels", "SpaceToDepth <blocksize = 2>", "2049,2,2", "limits"),
    case("more than 8192 channels", "DepthToSpace <blocksize = 2>", "8196,1,1", "limits"),
])  # fmt: skip
def test_not(op: str, shape: str, why: str) -> None:
    found = both(graph(f"float[1,{shape}] x", "float[b,k,h,w] y", pair("x", "q") + f"m = {op} (q)\n" + END))
    assert "D11" not in found.rules
    assert not why or why in found.reason(found.rewritten.graph.producer["m"].name)
