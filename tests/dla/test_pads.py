"""Rule D10: a Pad that folds nowhere becomes a Conv that copies."""

from __future__ import annotations

import numpy as np
import pytest

from qdq_translator.passes import dla
from qdq_translator.passes.dla import pads
from tests.dla.check import BATCHES, SCALE, both, covers, graph, ints, pair, same

X = "float[{N},3,4,5] x"
END = pair("m", "p") + "y = Relu (p)"


def padded(pads: list[int], batch: str = "1", extra: str = "", mode: str = "constant", **more: np.ndarray):  # type: ignore[no-untyped-def]
    body = pair("x", "q") + f'm = Pad <mode = "{mode}"> (q, pads{extra})\n' + END
    return graph(X, "float[b,c,h,w] y", body, batch, pads=ints(*pads), **more)


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 15, 2, 0, 0, 16, 2]])
def test_case_1(pads: list[int], batch: str) -> None:
    found = same(padded(pads, batch), batch, bits=True)
    assert found.ops == ["Conv", "Relu"]
    assert found.gpu() == (["Pad"], [])
    conv = found.rewritten.graph.producer["m"]
    kernel = [pads[2] + pads[6] + 1, pads[3] + pads[7] + 1]
    assert conv.get("kernel_shape") == kernel and conv.get("group") == 3
    assert found.rewritten.tensor_scales == found.plain.tensor_scales


@covers(2, 3)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_2_and_3(batch: str) -> None:
    found = same(padded([0, 2, 0, 0, 0, 1, 0, 0], batch), batch, bits=True)
    assert found.ops == ["Conv", "Relu"]
    found = same(padded([0, 2, 1, 1, 0, 1, 0, 1], batch, ", v", v=np.float32(0)), batch, bits=True)
    assert found.ops == ["Conv", "Conv", "Relu"]
    assert found.gpu()[1] == []
    assert found.rewritten.tensor_scales["m_spatial"] == SCALE


def test_scales_pass_as_before() -> None:
    """Rule S3 took a Pad's scale on; the Conv in its place hands it on too, both ways."""
    body = pair("x", "q") + "m = Pad (q, pads)\nn = Relu (m)\no = Pad (n, pads)\n" + pair("o", "p") + "y = Relu (p)"
    found = same(graph(X, "float[b,c,h,w] y", body, pads=ints(0, 0, 1, 1, 0, 0, 0, 0)), bits=True)
    assert found.rewritten.tensor_scales == found.plain.tensor_scales
    assert found.rewritten.scales["m"].origin.rule == "D10"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        pytest.param(
            padded([0, 0, 1, 1, 0, 0, 1, 1], extra=", v", v=np.float32(0.5)),
            "zeros",
            marks=covers("a value other than 0"),
        ),
        pytest.param(
            padded([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"), "zeros", marks=covers("modes other than constant")
        ),
        pytest.param(padded([0, 0, -1, 1, 0, 0, 1, 1]), "cuts", marks=covers("negative padding")),
        pytest.param(padded([1, 0, 1, 1, 0, 0, 1, 1]), "batch", marks=covers("the batch axis")),
        pytest.param(padded([0, 0, 0, 0, 1, 0, 0, 0]), "batch", marks=covers("the batch axis")),
        pytest.param(padded([0, 0, 16, 1, 0, 0, 16, 1]), "31", marks=covers("more than 31 in one direction together")),
        pytest.param(padded([0, 0, 1, 16, 0, 0, 1, 16]), "31", marks=covers("more than 31 in one direction together")),
    ],
)
def test_not(model, why: str) -> None:  # type: ignore[no-untyped-def]
    found = same(model, bits=True)
    assert "D10" not in found.rules
    assert why in found.reason(found.rewritten.graph.producer["m"].name)


@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        pytest.param("1,c,4,5", [0, 0, 1, 1, 0, 0, 1, 1], marks=covers("unknown channels")),
        pytest.param("1,3,4", [0, 0, 1, 0, 0, 1], marks=covers("tensors that are not four-dimensional")),
    ],
)
def test_not_with_other_inputs(shape: str, pads: list[int]) -> None:
    out = "float[b,c,h,w] y" if len(pads) == 8 else "float[b,c,h] y"
    found = both(graph(f"float[{shape}] x", out, pair("x", "q") + "m = Pad (q, pads)\n" + END, pads=ints(*pads)))
    assert "Pad" in found.ops and "D10" not in found.rules


def test_padding_by_nothing_is_left_whatever_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule D9 makes a Scale of it; without that rule it stays, and those behind it are still looked at."""
    monkeypatch.setattr(dla, "RULES", (pads,))
    body = pair("x", "q") + "m = Pad (q, none)\n" + pair("m", "p", "s2") + "n = Pad (p, some)\n" + pair("n", "o", "s2")
    more = {"none": ints(*[0] * 8), "some": ints(0, 0, 1, 1, 0, 0, 1, 1), "s2": np.float32(SCALE / 2)}
    found = both(graph(X, "float[b,c,h,w] y", body + "y = Relu (o)", **more))
    assert found.rules == ["D10"] and found.ops == ["Pad", "Conv", "Relu"]
    assert found.reason(found.rewritten.graph.producer["m"].name)
