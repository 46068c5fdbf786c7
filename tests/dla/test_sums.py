"""Rule D8: Mean of several inputs."""

from __future__ import annotations

import pytest

from tests.dla.check import BATCHES, SCALE, both, covers, graph, pair, same

INPUTS = "float[{N},3,4,4] a, float[{N},3,4,4] b, float[{N},3,4,4] c"
PAIRS = pair("a", "a1") + pair("b", "b1") + pair("c", "c1")
END = pair("m", "p", "s") + "y = Relu (p)"
ONE = pair("a", "a1") + "m = Mean (a1)\n" + END


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("count", [2, 3])
def test_case_1(count: int, batch: str) -> None:
    names = ", ".join(["a1", "b1", "c1"][:count])
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + f"m = Mean ({names})\n" + END, batch), batch)
    assert found.ops == ["Sum", "BatchNormalization", "Relu"]
    assert found.gpu() == (["Mean"], [])
    assert found.rewritten.scales["m_sum"].value == count * SCALE


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("1,3,4", marks=covers("tensors that are not four-dimensional")),
        pytest.param("1,c,4,4", marks=covers("an unknown number of channels")),
    ],
)
def test_not(shape: str) -> None:
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + END
    found = both(graph(f"float[{shape}] a, float[{shape}] b", f"float[{shape}] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)


@covers("Mean of one input (rule D2)")
def test_not_a_mean_of_one() -> None:
    found = same(graph("float[1,3,4,4] a", "float[n,k,h,w] y", ONE), bits=True)
    assert "D8" not in found.rules and found.ops == ["Relu"]
