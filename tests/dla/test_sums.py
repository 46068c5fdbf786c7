"""Rule D8: Mean of several inputs."""

from __future__ import annotations

import pytest

from tests.dla.check import BATCHES, SCALE, graph, pair, same

INPUTS = "float[{N},3,4,4] a, float[{N},3,4,4] b, float[{N},3,4,4] c"
PAIRS = pair("a", "a1") + pair("b", "b1") + pair("c", "c1")
END = pair("m", "p", "s") + "y = Relu (p)"


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("count", [2, 3])
def test_case_1(count: int, batch: str) -> None:
    names = ", ".join(["a1", "b1", "c1"][:count])
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + f"m = Mean ({names})\n" + END, batch), batch)
    assert found.ops == ["Sum", "BatchNormalization", "Relu"]
    assert found.gpu() == (["Mean"], [])
    assert found.rewritten.scales["m_sum"].value == count * SCALE


def test_not_a_mean_of_three_dimensions() -> None:
    inputs = "float[1,3,4] a, float[1,3,4] b"
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + END
    found = same(graph(inputs, "float[n,k,h] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)
