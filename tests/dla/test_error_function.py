"""Rule D22: the error function as a Tanh, which is no longer the same function."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.passes.dla.error_function import ERROR
from qdq_translator.translation.scales.inference.self_gated import ERF_CUBIC, ERF_LINEAR
from tests.dla.check import BATCHES, INFER, ORIN, SCALE, Pair, covers, engine, feed_of, graph, outputs, pair
from tests.explicit_reference import run

X = "float[{N},3,4,5] x"
GELU = "d = Div (q, root)\ne = Erf (d)\na = Add (e, one)\nm = Mul (q, a)\nh = Mul (m, half)\n"
ARRAYS = {"root": np.float32(math.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}


def approximated(explicit: onnx.ModelProto, **options: object) -> Pair:
    """Rewritten without D22, and with it."""
    sound = TranslateOptions(**{**ORIN, "dla_rewrites": True, **options})  # type: ignore[arg-type]
    found = Pair(translate(explicit, sound), translate(explicit, sound.changed(dla_rewrites="approximate")))
    assert not [told for told in found.rewritten.diagnostics.warnings if told.rule == "D22"]
    onnx.checker.check_model(found.rewritten.model, full_check=True)
    return found


def test_the_largest_error_is_what_is_said() -> None:
    """Everywhere: it is odd, and beyond 4 both are 1 within 2e-8."""
    x = np.linspace(0, 6, 60001)
    error = np.abs(np.tanh(ERF_LINEAR * x + ERF_CUBIC * x**3) - np.array([math.erf(value) for value in x]))
    assert 0.99 * ERROR < error.max() < ERROR


@covers(1)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_1(batch: str) -> None:
    found = approximated(
        graph(X, "float[b,c,h,w] y", pair("x", "q") + "e = Erf (q)\n" + pair("e", "p") + "y = Relu (p)", batch)
    )
    assert found.ops == ["Mul", "BatchNormalization", "Mul", "Tanh", "Relu"]
    assert found.gpu() == (["Erf"], [])
    assert found.rewritten.tensor_scales == found.plain.tensor_scales  # none for the new tensors, which is meant
    rows = found.rewritten.plan
    assert [(row.precision, row.by_design) for row in rows] == [("fp16", True)] * 5
    for seed in (1, 2):
        feed = feed_of(found.rewritten, batch, seed)
        (exact,), (near,) = outputs(found.plain, feed), outputs(found.rewritten, feed)
        assert np.abs(exact - near).max() < ERROR
        codes = [run(engine(one).model, feed, ["y"])[0] / SCALE for one in (found.plain, found.rewritten)]
        assert np.abs(codes[0] - codes[1]).max() <= 1  # at the border between two codes
        assert np.mean(codes[0] != codes[1]) < 0.05


@pytest.mark.parametrize("value", [0.0, 1e-30, -1e-30, 1e4, -1e4, 1e20, -1e20, np.float32(3.4e38)])
def test_extreme_values(value: float) -> None:
    body = "e = Erf (x)\n" + pair("e", "p") + "y = Neg (p)"
    found = approximated(graph("float[1,1,1,1] x", "float[1,1,1,1] y", body))
    (made,) = outputs(found.rewritten, {"x": np.full((1, 1, 1, 1), value, np.float32)})
    assert "Erf" not in found.ops and abs(float(made.item()) + math.erf(value)) <= 1e-6 * (value != 0)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_gelu_stays_on_the_dla_and_gets_the_scale_of_a_gelu(batch: str) -> None:
    """Rule S8 finds the gate in the new layers as it did in the old ones, forward and backward."""
    forward = pair("x", "q") + GELU + "y = MaxPool <kernel_shape = [2, 2]> (h)"
    backward = "q = Relu (x)\n" + GELU + pair("h", "p") + "y = MaxPool <kernel_shape = [2, 2]> (p)"
    for body in (forward, backward):
        found = approximated(graph(X, "float[b,c,h,w] y", body, batch, **ARRAYS), **INFER)
        assert found.gpu() == (["Erf"], []) and found.rewritten.dla is not None and found.rewritten.dla.subgraphs == 1
        before, after = found.plain.scales, found.rewritten.scales
        gelu = "m" if body is forward else "q"
        assert before[gelu].origin.rule == "S8" and after[gelu].value == before[gelu].value
        feed = feed_of(found.rewritten, batch, 3)
        (exact,), (near,) = outputs(found.plain, feed), outputs(found.rewritten, feed)
        assert 0 < np.abs(exact - near).max() < 5e-4


@pytest.mark.parametrize("other", ["e2 = Neg (e)", "e2 = Neg (e_square)", "e2 = Neg (d)"])
def test_another_reader_of_the_gate_sees_clipped_values(other: str) -> None:
    """So that nothing is handed backward, rewritten or not."""
    rewritten = (
        "e_square = Mul (d, d)\nf = BatchNormalization <epsilon = 0.0> (e_square, k, l, zeros, ones)\n"
        "g = Mul (f, d)\ne = Tanh (g)\n"
    )
    ones = np.ones(3, np.float32)
    arrays = {"k": ones * np.float32(ERF_CUBIC), "l": ones * np.float32(ERF_LINEAR), "zeros": 0 * ones, "ones": ones}
    body = "q = Relu (x)\n" + GELU.replace("e = Erf (d)\n", rewritten) + pair("h", "p") + "y = Neg (p)\n"
    outs = "float[b,c,h,w] y, float[b,c,h,w] e2"
    options = TranslateOptions(target="orin-dla", **INFER)
    alone = translate(graph(X, "float[b,c,h,w] y", body, "1", **ARRAYS, **arrays), options)
    assert alone.scales["q"].origin.rule == "S8"
    assert "q" not in translate(graph(X, outs, body + other, "1", **ARRAYS, **arrays), options).tensor_scales


@covers("without that word", "tensors that are not four-dimensional", "an unknown number of channels")
def test_not() -> None:
    plain = graph(X, "float[b,c,h,w] y", pair("x", "q") + "y = Erf (q)")
    exact = translate(plain, TranslateOptions(**ORIN, dla_rewrites=True))
    assert [node.op_type for node in exact.graph.nodes] == ["Erf"]
    assert "approximate" in exact.rewrites.left(exact.dla)[0].why
    flat = approximated(graph("float[2,3,4] x", "float[b,c,h] y", pair("x", "q") + "y = Erf (q)"))
    unknown = approximated(graph("float[2,c,4,4] x", "float[b,c,h,w] y", pair("x", "q") + "y = Erf (q)"))
    for found in (flat, unknown):
        assert found.ops == ["Erf"] and "channels" in found.rewritten.rewrites.left(found.rewritten.dla)[0].why


@covers(2)
@pytest.mark.parametrize("batch", BATCHES)
def test_case_2(batch: str) -> None:
    body = pair("x", "q") + "m = Gelu (q)\n" + pair("m", "p") + "y = Relu (p)"
    found = approximated(graph(X, "float[b,c,h,w] y", body, batch, opset=20), platform="jetpack-6.2")
    assert found.ops == ["Mul", "BatchNormalization", "Mul", "Tanh", "BatchNormalization", "Mul", "Relu"]
    assert found.gpu() == (["Gelu"], [])
    (exact,), (near,) = (outputs(one, feed_of(found.rewritten, batch, 1)) for one in (found.plain, found.rewritten))
    assert 0 < np.abs(exact - near).max() < 5e-4
    assert {
        name: scale * 127 for name, scale in found.rewritten.tensor_scales.items() if name[:2] == "m_"
    } == pytest.approx({"m_tanh": 1, "m_gate": 1})
