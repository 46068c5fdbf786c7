"""Rule D9: Neg and Div by a constant become a Scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.core.errors import UsageError
from qdq_translator.lab.simulate.account import Judge, account
from qdq_translator.lab.simulate.calibration import trial
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.scales.inference.unify import OTHER_READERS
from tests.dla.check import both, case, covers, graph, pair, same
from tests.small_models import model

END = pair("m", "p") + "y = Relu (p)"


@pytest.mark.parametrize(
    "shape", [case("tensors that are not four-dimensional", "2,3"), case("an unknown number of channels", "1,c,4,5")]
)
@pytest.mark.parametrize("op", ["Neg (q)", "Div (q, k)"])
def test_not(op: str, shape: str) -> None:
    more = {"k": np.float32(2)} if "k" in op else {}
    found = both(graph(f"float[{shape}] x", f"float[{shape}] y", pair("x", "q") + f"m = {op}\n" + END, **more))
    assert op.split()[0] in found.ops and "D9" not in found.rules


MEAN_END = pair("m", "p", "s") + "y = Relu (p)"
ONE_MEAN = pair("a", "a1") + "m = Mean (a1)\n" + MEAN_END


@pytest.mark.parametrize("shape", [pytest.param("1,3,4"), pytest.param("1,c,4,4")])
def test_not_a_mean(shape: str) -> None:
    body = pair("a", "a1") + pair("b", "b1") + "m = Mean (a1, b1)\n" + MEAN_END
    found = both(graph(f"float[{shape}] a, float[{shape}] b", f"float[{shape}] y", body))
    assert "Mean" in found.ops
    assert "four dimensions" in found.reason(found.rewritten.graph.producer["m"].name)


@covers("Mean of one input (rule D2)")
def test_not_a_mean_of_one() -> None:
    found = same(graph("float[1,3,4,4] a", "float[n,k,h,w] y", ONE_MEAN), bits=True)
    assert "D9" not in found.rules and found.ops == ["Relu"]


def residual(folder: Path, seed: int, wide: float = 1.0) -> tuple[Path, Path]:
    """A small tensor r, which a Conv and an Add read; the Add's other input is `wide` times as large, and the Conv's output more so."""
    random = np.random.default_rng(seed)
    w, v = (random.normal(0, 0.2, shape).astype(np.float32) for shape in ((8, 4, 3, 3), (8, 8, 1, 1)))
    text = "g (float[1,4,8,8] x) => (float[1,8,8,8] y) { a = Conv <pads=[1,1,1,1]> (x, w) r = Relu (a) c = Conv (r, v)"
    text += "l = Conv (x, u) s = Add (l, r) t = Conv (s, q) b = Add (t, c) y = Conv (b, v) }"
    u = (wide * random.normal(0, 0.2, (8, 4, 1, 1))).astype(np.float32)
    onnx.save(model(text, w=w, v=v * 20, u=u, q=(v * 0.01).astype(np.float32)), folder / "net.onnx")
    np.save(folder / f"x{seed}.npy", random.normal(0, 1, (16, 4, 8, 8)).astype(np.float32))
    return folder / "net.onnx", folder / f"x{seed}.npy"


def judge(made: Translation, data: Path) -> Judge:
    network = ImplicitNetwork.of(made)
    return Judge(network, SimulationOptions(), load_samples(data, input_specs(network.model, {}), None))


def sqnr(made: Translation, data: Path) -> float:
    return -10 * np.log10(judge(made, data).noise)


@covers(5)
def test_a_tensor_with_other_readers_keeps_its_range_behind_a_scale(tmp_path: Path) -> None:
    path, data = residual(tmp_path, 0, wide=100.0)
    np.save(tmp_path / "other.npy", np.random.default_rng(9).normal(0, 1, (16, 4, 8, 8)).astype(np.float32))
    options = {"calibrate": str(data), "target": "orin-dla", "platform": "jetpack-6.2", "max_bits_lost": 8}
    shared = translate(path, TranslateOptions(**options))
    made = translate(path, TranslateOptions(**options, unify_scales="requantize", dla_rewrites=True))
    assert sqnr(made, tmp_path / "other.npy") > 6 + sqnr(shared, tmp_path / "other.npy")
    (one,) = [a for a in made.rewrites.applied if a.rule == "D9"]
    (own,) = one.new
    offered = [
        [e.candidate.tensor for e in account(judge(t, data)).entries if OTHER_READERS in " ".join(e.causes)]
        for t in (shared, made)
    ]
    assert offered == [["r"], []]
    scales = made.tensor_scales
    assert scales[own] == scales["l"]
    assert shared.tensor_scales["r"] == shared.tensor_scales["l"] > 10 * scales["r"]
    (layer,) = made.graph.of("BatchNormalization")
    row = next(row for row in made.plan if row.name == layer.name)
    assert row.precision == "int8" and "dla" in row.device.lower()
    (said,) = [d for d in made.diagnostics.of_rule("U1") if "requantize" in d.message]
    assert said.data["tensors"] == ["r"] and "1 Scale, of 'r'" in said.message
    ends = [Session(one.model, "float") for one in (shared, made)]
    for feed in load_samples(data, input_specs(shared.model, {}), None):
        np.testing.assert_array_equal(*(end.run(feed)["y"] for end in ends))


def test_a_scale_that_gains_nothing_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = residual(tmp_path, 0, wide=100.0)
    monkeypatch.setattr(trial, "LEAST_DB", 60.0)
    options = {"calibrate": str(data), "target": "orin-dla", "platform": "jetpack-6.2", "max_bits_lost": 8}
    shared, made = (translate(path, TranslateOptions(**options, unify_scales=how)) for how in ("warn", "requantize"))
    assert made.model == shared.model and made.tensor_scales == shared.tensor_scales and not made.rewrites.applied
    (said,) = [d for d in made.diagnostics.of_rule("U1") if "requantize" in d.message]
    assert "changed nothing; tried: 1 Scale, of 'r'" in said.message


def test_requantize_asks_for_data_and_layers(tmp_path: Path) -> None:
    path, data = residual(tmp_path, 0)
    options = {"calibrate": str(data), "target": "orin-dla", "unify_scales": "requantize"}
    made = translate(path, TranslateOptions(**{**options, "calibrate_samples": 1}))
    assert any("needs 2 samples" in d.message for d in made.diagnostics.warnings)
    with pytest.raises(UsageError, match="unify_scales requantize computes ranges from inputs"):
        translate(path, TranslateOptions(**{**options, "calibrate": None}))
    with pytest.raises(UsageError, match="keep_model adds no layers"):
        translate(path, TranslateOptions(**options, keep_model=True))


X = "float[{N},3,4,5] x"


@pytest.mark.parametrize(
    "op",
    [case("c / x", "Div (k, q)"), case("c of another shape", "Div (q, wide)"), case("c with a 0", "Div (q, zero)")],
)
def test_case_2_not(op: str) -> None:
    arrays = {"k": np.float32(2), "wide": np.arange(1, 6, dtype=np.float32), "zero": np.zeros((3, 1, 1), np.float32)}
    found = both(graph(X, "float[b,c,h,w] y", pair("x", "q") + f"m = {op}\n" + END, **arrays))
    assert "Div" in found.ops and found.reason(found.rewritten.graph.producer["m"].name)
