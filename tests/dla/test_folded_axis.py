"""Rule D25: tensors of five dimensions [N, R, C, H, W] between Reshapes work on [N, R * C, H, W]."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import (
    BATCHES,
    Pair,
    both,
    case,
    covers,
    decibels,
    feed_of,
    graph,
    ints,
    outputs,
    pair,
    same,
    weights,
)

SIZES = {"to": ints(0, 2, 4, 6, 5), "small": ints(0, 2, 4, 1, 1), "one": ints(1), "two": ints(2)}


def milliseconds_of(found: Pair) -> tuple[float, float]:
    """With the transitions."""
    return tuple(t.costs.least[1] for t in (found.plain, found.rewritten) if t.costs)  # type: ignore[return-value]


HEAD = pair("x", "q") + "r = Reshape (q, to)\n"
ATTENTION = (
    "f = ReduceSum <keepdims = 0> (r, one)\n"
    + pair("f", "p")
    + "g = GlobalAveragePool (p)\nc = Conv (g, w)\ns2 = Sigmoid (c)\nh = Reshape (s2, small)\nm = Mul (r, h)\n"
    + "t = {op} <keepdims = 0> (m{axes})\ny = Relu (t)"
)


def explicit(body: str, batch: str = "1", shape: str = "8,6,5", out: str = "[b,c,h,w]", **arrays: np.ndarray):  # type: ignore[no-untyped-def]
    known = {**SIZES, "w": weights(1, 8, 4, 1, 1), **arrays}
    used = {name: values for name, values in known.items() if f"{name})" in body or f"{name}," in body}
    return graph(f"float[{{N}},{shape}] x", f"float{out} y", body, batch, **used)


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("axis", [1, -4])
def test_softmax_over_two_branches(axis: int, batch: str) -> None:
    """SKNet."""
    body = HEAD + ATTENTION.replace(
        "s2 = Sigmoid (c)\nh = Reshape (s2, small)\n", "s2 = Reshape (c, small)\nh = SOFT (s2)\n"
    )
    body = body.format(op="ReduceSum", axes=", one").replace("SOFT", f"Softmax <axis = {axis}>")
    found = same(explicit(body, batch), batch)
    assert found.gpu()[1] == [] and "Sigmoid" in found.ops and not {"Softmax", "Reshape"} & set(found.ops)
    (before, after), feed = milliseconds_of(found), feed_of(found.plain, batch, 1)
    assert batch == "N" or after < before - 1.4
    assert decibels(found.rewritten, feed) > decibels(found.plain, feed) - 1
    feed["x"] = feed["x"] * np.float32(1e4)  # one branch only
    np.testing.assert_allclose(outputs(found.plain, feed)[0], outputs(found.rewritten, feed)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        case("unknown sizes other than the batch size", HEAD + "y = ReduceSum <keepdims = 0> (r, one)", "8,h,w"),
        case("reductions over other axes", HEAD + "y = ReduceSum <keepdims = 0> (r, two)", "8,6,5"),
        case(
            "`Softmax` over more or other values, or below opset 13",
            HEAD + "m = Softmax <axis = 2> (r)\ny = ReduceSum <keepdims = 0> (m, two)",
            "8,6,5",
        ),
        case(
            (
                "regions without a layer of case 2",
                "tensors of other forms that are read, or constants of more than one value",
            ),
            HEAD + "m = Mul (r, k)\nt = Relu (m)\ny = Reshape (t, back)",
            "8,6,5",
        ),
    ],
)
def test_not(body: str, shape: str) -> None:
    if "h" in shape:
        body = body.replace("(q, to)", "(q, open)")
    more = {"k": weights(3, 2, 4, 1, 1), "back": ints(0, 8, 6, 5), "open": ints(0, 2, 4, -1, 1)}
    found = both(explicit(body, shape=shape, **more))
    assert "D25" not in found.rules
