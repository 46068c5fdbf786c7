"""Rule D9: Neg and Div by a constant become a Scale."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dla.check import BATCHES, SCALE, both, covers, graph, pair, same, weights

X = "float[{N},3,4,5] x"
END = pair("m", "p") + "y = Relu (p)"


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_1(batch: str) -> None:
    found = same(graph(X, "float[b,c,h,w] y", pair("x", "q") + "m = Neg (q)\n" + END, batch), batch, bits=True)
    assert found.ops == ["BatchNormalization", "Relu"]
    assert found.gpu() == (["Neg"], [])
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "divisor",
    [np.float32(6), np.float32([[[[-3]]]]), 2 + np.abs(weights(1, 1, 3, 1, 1)), 2 + np.abs(weights(2, 3, 1, 1))],
)
def test_case_2(divisor: np.ndarray, batch: str) -> None:
    explicit = graph(X, "float[b,c,h,w] y", pair("x", "q") + "m = Div (q, k)\n" + END, batch, k=np.float32(divisor))
    found = same(explicit, batch)
    assert found.ops == ["BatchNormalization", "Relu"]
    # from TensorRT 8.6.12 on the DLA divides by itself
    assert "Div" in same(explicit, batch, platform="drive-os-6.0.9").ops


@pytest.mark.parametrize(
    "op",
    [
        pytest.param("Div (k, q)", marks=covers("c / x")),
        pytest.param("Div (q, wide)", marks=covers("c of another shape")),
        pytest.param("Div (q, zero)", marks=covers("c with a 0")),
    ],
)
def test_case_2_not(op: str) -> None:
    arrays = {"k": np.float32(2), "wide": np.arange(1, 6, dtype=np.float32), "zero": np.zeros((3, 1, 1), np.float32)}
    found = both(graph(X, "float[b,c,h,w] y", pair("x", "q") + f"m = {op}\n" + END, **arrays))
    assert "Div" in found.ops and found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("2,3", marks=covers("tensors that are not four-dimensional")),
        pytest.param("1,c,4,5", marks=covers("an unknown number of channels")),
    ],
)
@pytest.mark.parametrize("op", ["Neg (q)", "Div (q, k)"])
def test_not(op: str, shape: str) -> None:
    more = {"k": np.float32(2)} if "k" in op else {}
    found = both(graph(f"float[{shape}] x", f"float[{shape}] y", pair("x", "q") + f"m = {op}\n" + END, **more))
    assert op.split()[0] in found.ops and "D9" not in found.rules


@covers(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("op", ["Concat <axis = 1> (q)", "Identity (q)"])
def test_case_3_a_requantization(op: str, batch: str) -> None:
    """DenseNet's Concat of one tensor, between two scales."""
    body = pair("x", "q") + f"m = {op}\n" + pair("m", "p", "s2") + "y = Relu (p)"
    found = same(graph(X, "float[b,c,h,w] y", body, batch, s2=np.float32(SCALE * 3 / 4)), batch, bits=True)
    assert found.ops == ["BatchNormalization", "Relu"] and len(found.gpu()[0]) == 1 and not found.gpu()[1]
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


MEANS = "float[{N},3,4,4] a, float[{N},3,4,4] b, float[{N},3,4,4] c"
MEAN_PAIRS = pair("a", "a1") + pair("b", "b1") + pair("c", "c1")
MEAN_END = pair("m", "p", "s") + "y = Relu (p)"
ONE_MEAN = pair("a", "a1") + "m = Mean (a1)\n" + MEAN_END


@covers(4)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("count", [2, 3])
def test_case_4(count: int, batch: str) -> None:
    names = ", ".join(["a1", "b1", "c1"][:count])
    found = same(graph(MEANS, "float[n,k,h,w] y", MEAN_PAIRS + f"m = Mean ({names})\n" + MEAN_END, batch), batch)
    assert found.ops == ["Sum", "BatchNormalization", "Relu"]
    assert found.gpu() == (["Mean"], [])
    assert found.rewritten.scales["m_sum"].value == count * SCALE


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("1,3,4"),
        pytest.param("1,c,4,4"),
    ],
)
def test_not_a_mean(shape: str) -> None:
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + MEAN_END
    found = both(graph(f"float[{shape}] a, float[{shape}] b", f"float[{shape}] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)


@covers("Mean of one input (rule D2)")
def test_not_a_mean_of_one() -> None:
    found = same(graph("float[1,3,4,4] a", "float[n,k,h,w] y", ONE_MEAN), bits=True)
    assert "D9" not in found.rules and found.ops == ["Relu"]
