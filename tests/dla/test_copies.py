"""Rule D20: Expand and Tile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, both, covers, graph, ints, pair, same

END = pair("m", "p") + "y = Relu (p)"


@covers(1, 2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["Expand", "Tile"])
@pytest.mark.parametrize(
    ("sizes", "made", "ops"),
    [
        ("5,1,1", (5, 7, 20), ["Resize"]),
        ("5,1,4", (5, 40, 4), ["Resize", "Resize"]),
        ("1,4,3", (6, 4, 3), ["Conv"]),
        ("1,1,1", (6, 4, 3), ["Conv", "Resize"]),
    ],
)
def test_cases(sizes: str, made: tuple[int, ...], ops: list[str], op: str, batch: str) -> None:
    before = [int(size) for size in sizes.split(",")]
    wanted = [1, *made] if op == "Expand" else [1, *(m // b for m, b in zip(made, before))]
    body = pair("x", "q") + f"m = {op} (q, sizes)\n" + END
    found = same(
        graph(f"float[{{N}},{sizes}] x", "float[b,c,h,w] y", body, batch, sizes=ints(*wanted)), batch, bits=True
    )
    assert found.ops == [*ops, "Relu"] and found.gpu() == ([op], [])


@covers(2)
def test_channels_repeat_in_their_order() -> None:
    body = pair("x", "q") + "m = Tile (q, times)\n" + END
    found = same(graph("float[1,3,4,5] x", "float[b,c,h,w] y", body, times=ints(1, 4, 1, 1)), bits=True)
    assert found.ops == ["Conv", "Relu"] and found.gpu()[1] == []


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [2, 3, -2, -1])
def test_case_3(axis: int, batch: str) -> None:
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
    ("op", "sizes", "count", "why", "opset"),
    [
        pytest.param(
            "Expand", "1,1,4", (1, 3, 4), "four dimensions", 17, marks=covers("tensors that are not four-dimensional")
        ),
        pytest.param("Tile", "1,c,1,1", (1, 1, 2, 2), "known sizes", 17, marks=covers("sizes that are not known")),
        pytest.param("Expand", "1,2,1,1", (3, 2, 1, 1), "the batch", 17, marks=covers("the batch axis")),
        pytest.param("Tile", "1,2,3,3", (1, 1, 2, 1), "as a whole", 17, marks=covers("Tile of an H or W above 1")),
        pytest.param(
            "Expand",
            "1,2,1,1",
            (1, 2, 3, 3),
            "opset below 11",
            10,
            marks=covers("cases 1 and 2 with opset below 11 (which has no such Resize)"),
        ),
        pytest.param(
            "Expand", "1,1,1,1", (1, 8193, 1, 1), "8192 channels", 17, marks=covers("more than 8192 channels")
        ),
        pytest.param(
            "Expand", "1,2,1,1", (1, 2, 37, 1), "prime number", 17, marks=covers("sizes with a prime factor above 32")
        ),
    ],
)
def test_not(op: str, sizes: str, count: tuple[int, ...], why: str, opset: int) -> None:
    body = pair("x", "q") + f"m = {op} (q, sizes)\n" + END
    made = "float[b,c,h,w] y" if len(count) == 4 else "float[b,c,h] y"
    found = both(graph(f"float[{sizes}] x", made, body, opset=opset, sizes=np.array(count)))
    assert "D20" not in found.rules and why in found.reason(found.rewritten.graph.producer["m"].name)
