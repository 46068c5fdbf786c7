"""Rule D8: Sum, Max and Mean of several inputs."""

from __future__ import annotations

import pytest

from tests.dla.check import BATCHES, SCALE, graph, pair, same

INPUTS = "float[{N},3,4,4] a, float[{N},3,4,4] b, float[{N},3,4,4] c"
PAIRS = pair("a", "a1") + pair("b", "b1") + pair("c", "c1")
END = pair("m", "p", "s") + "y = Relu (p)"


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("op", "layer", "bits"), [("Sum", "Add", False), ("Max", "Max", True)])
def test_case_1(op: str, layer: str, bits: bool, batch: str) -> None:
    body = PAIRS + f"m = {op} (a1, b1, c1)\n" + END
    found = same(graph(INPUTS, "float[n,k,h,w] y", body, batch), batch, bits=bits)
    assert found.ops == [layer, layer, "Relu"]
    # the tensor between has a name, so that it can have a scale: the output's
    scale = found.rewritten.scales["m_part1"]
    assert (scale.value, scale.origin.rule, scale.origin.source) == (SCALE, "D8", "m")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("count", [2, 3])
def test_case_2(count: int, batch: str) -> None:
    names = ", ".join(["a1", "b1", "c1"][:count])
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + f"m = Mean ({names})\n" + END, batch), batch)
    assert found.ops == ["Add"] * (count - 1) + ["BatchNormalization", "Relu"]
    assert found.gpu() == (["Mean"], [])
    assert found.rewritten.scales[f"m_part{count - 1}"].value == count * SCALE


def test_two_inputs_run_as_they_are() -> None:
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + "m = Sum (a1, b1)\n" + END), bits=True)
    assert found.ops == ["Sum", "Relu"]


def test_not_a_mean_of_three_dimensions() -> None:
    inputs = "float[1,3,4] a, float[1,3,4] b"
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + END
    found = same(graph(inputs, "float[n,k,h] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)
