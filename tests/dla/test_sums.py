"""Rule D8: Sum, Max and Mean of several inputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.dla.check import BATCHES, SCALE, engine, graph, pair, same
from tests.explicit_reference import run

INPUTS = "float[{N},3,4,4] a, float[{N},3,4,4] b, float[{N},3,4,4] c"
PAIRS = pair("a", "a1") + pair("b", "b1") + pair("c", "c1")
END = pair("m", "p", "s") + "y = Relu (p)"


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("op", "layer", "bits"), [("Sum", "Add", False), ("Max", "Max", True)])
def test_case_1(op: str, layer: str, bits: bool, batch: str) -> None:
    body = PAIRS + f"m = {op} (a1, b1, c1)\n" + END
    found = same(graph(INPUTS, "float[n,k,h,w] y", body, batch), batch, bits=bits)
    assert found.ops == [layer, layer, "Relu"]
    # the tensor between has a name, so that it can have a scale: the output's for a maximum, that of both summands for a sum
    scale = found.rewritten.scales["m_part1"]
    expected = (2 * SCALE, "D8", "a") if op == "Sum" else (SCALE, "D8", "m")
    assert (scale.value, scale.origin.rule, scale.origin.source) == expected


def test_a_partial_sum_has_a_range_that_holds_it() -> None:
    """a + b reaches 7 where c takes it back below the output's range of 3.97."""
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + "m = Sum (a1, b1, c1)\n" + END))
    feed = {name: np.full((1, 3, 4, 4), value, np.float32) for name, value in (("a", 3.5), ("b", 3.5), ("c", -3.5))}
    simulated = engine(found.rewritten)
    names = [simulated.read["m_part1"], "y"]
    simulated.model.graph.output.extend([onnx.ValueInfoProto(name=names[0])])
    part, y = run(simulated.model, feed, names)
    assert np.all(part == 7.0) and np.all(y == 3.5)


def test_a_summand_without_scale_leaves_the_partial_sum_without() -> None:
    body = pair("a", "a1") + pair("c", "c1") + "m = Sum (a1, b, c1)\n" + END
    assert "m_part1" not in same(graph(INPUTS, "float[n,k,h,w] y", body)).rewritten.scales


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("count", [2, 3])
def test_case_2(count: int, batch: str) -> None:
    names = ", ".join(["a1", "b1", "c1"][:count])
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + f"m = Mean ({names})\n" + END, batch), batch)
    assert found.ops == ["Add"] * (count - 1) + ["BatchNormalization", "Relu"]
    assert found.gpu() == (["Mean"], [])
    assert found.rewritten.scales[f"m_part{count - 1}"].value == count * SCALE
    assert count < 3 or found.rewritten.scales["m_part1"].value == 2 * SCALE


def test_two_inputs_run_as_they_are() -> None:
    found = same(graph(INPUTS, "float[n,k,h,w] y", PAIRS + "m = Sum (a1, b1)\n" + END), bits=True)
    assert found.ops == ["Sum", "Relu"]


def test_not_a_mean_of_three_dimensions() -> None:
    inputs = "float[1,3,4] a, float[1,3,4] b"
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + END
    found = same(graph(inputs, "float[n,k,h] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)
