"""Rule D20: Concat over rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, covers, graph, pair, same

END = pair("m", "p") + "y = Relu (p)"


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [2, 3, -2, -1])
def test_case_1(axis: int, batch: str) -> None:
    shapes = ("{N},3,4,5", "{N},3,2,5") if axis in (2, -2) else ("{N},3,4,5", "{N},3,4,1")
    inputs = ", ".join(f"float[{shape}] x{i}" for i, shape in enumerate(shapes))
    body = pair("x0", "q") + pair("x1", "r") + f"m = Concat <axis = {axis}> (q, r, q)\n" + END
    found = same(graph(inputs, "float[b,c,h,w] y", body, batch), batch, bits=True)
    assert found.ops == ["Transpose"] * 3 + ["Concat", "Transpose", "Relu"] and found.gpu() == (["Concat"], [])


@covers("a Concat of constants")
def test_not_with_a_constant() -> None:
    body = pair("x", "q") + "m = Concat <axis = 2> (q, k)\n" + END
    found = both(graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, k=np.ones((1, 3, 1, 5), np.float32)))
    assert "D20" not in found.rules and "activations" in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        pytest.param("1,3,4", 2, marks=covers("tensors that are not four-dimensional")),
        pytest.param("1,3,4,5", 0, marks=covers("the batch axis")),
    ],
)
def test_not(shape: str, axis: int) -> None:
    body = pair("x", "q") + pair("x1", "r") + f"m = Concat <axis = {axis}> (q, r)\n" + END
    found = both(graph(f"float[{shape}] x, float[{shape}] x1", f"float[{shape.replace('1,', 'b,')}] y", body))
    assert "D20" not in found.rules
