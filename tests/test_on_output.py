"""`--calibrate_method output`: ranges moved to where the outputs have the least error, and only if other samples agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.lab.simulate.account import Judge
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.translation.translator import Translation
from tests.small_models import model, pair

NETWORK = """net (float[1,8,6,6] x) => (float[1,8,6,6] y) {
    a = Conv(x, w)
    r = Relu(a)
    c = Concat<axis=1>(r, x)
    y = Conv(c, v)
}"""


def network(text: str = NETWORK, **more: np.ndarray) -> onnx.ModelProto:
    """The least squared error of `a` is that of its first channel, which is large and does not count."""
    one = np.eye(8, dtype=np.float32)[:, :, None, None]
    random = 0.1 * np.random.default_rng(3).standard_normal((8, 8, 1, 1)).astype(np.float32)
    large = np.array([6] + 7 * [1], np.float32)[:, None, None, None]
    return model(text, w=(one + random) * large, v=np.concatenate([one / large**2, random], axis=1), **more)


def values(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 8, 6, 6)).astype(np.float32)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", values(32, 0))
    return tmp_path / "x.npy"


def sqnr(translation: Translation, folder: Path) -> float:
    """On samples that nothing was fitted to."""
    np.save(folder / "seen.npy", values(32, 9))
    found = ImplicitNetwork.of(translation)
    samples = load_samples(folder / "seen.npy", input_specs(found.model, {}), None)
    return float(-10 * np.log10(Judge(found, SimulationOptions(), samples).noise))


def told(translation: Translation) -> str:
    (message,) = (row.message for row in translation.diagnostics if "--calibrate_method output" in row.message)
    return message


@pytest.mark.parametrize("target", ["gpu", "orin-dla"])
def test_ranges_move_to_where_the_outputs_lose_less(data: Path, tmp_path: Path, target: str) -> None:
    asked: dict[str, Any] = {"calibrate": str(data), "target": target}
    if target != "gpu":
        asked["platform"] = "jetpack-6.2"
    plain, found = (
        translate(network(), TranslateOptions(**asked, calibrate_method=method)) for method in ("mse", "output")
    )
    assert sqnr(found, tmp_path) > sqnr(plain, tmp_path) + 1
    assert "dB on samples held out" in told(found)
    moved = [name for name in plain.tensor_scales if found.tensor_scales[name] != plain.tensor_scales[name]]
    assert moved and all("on the output's error" in found.scales[name].origin.note for name in moved)
    for one in (("a", "r"),) if target == "gpu" else (("a", "r", "c", "x"),):  # what had one range has one range
        assert len({plain.tensor_scales[name] for name in one}) == len({found.tensor_scales[name] for name in one}) == 1


def test_nothing_moves_that_other_samples_do_not_confirm(data: Path, tmp_path: Path) -> None:
    """Scales of the model's own stay, and so does everything if there is too little to judge by."""
    quantized = network(
        NETWORK.replace("a = Conv(x, w)", f"{pair('x', 'q', 's')} a = Conv(q, w)"), s=np.float32(0.01), z=np.int8(0)
    )
    found = translate(quantized, TranslateOptions(calibrate=str(data), calibrate_method="output"))
    assert found.tensor_scales["x"] == np.float32(0.01)
    for few, message in ((1, "needs 4 samples"), (3, "needs 4 samples")):
        np.save(tmp_path / "few.npy", values(few, 1))
        plain, found = (
            translate(network(), TranslateOptions(calibrate=str(tmp_path / "few.npy"), calibrate_method=method))
            for method in ("mse", "output")
        )
        assert found.cache.to_text() == plain.cache.to_text() and message in told(found)
    np.save(tmp_path / "zero.npy", np.zeros((8, 8, 6, 6), np.float32))
    with pytest.raises(UserError, match="all 8 samples are 0"):
        translate(network(), TranslateOptions(calibrate=str(tmp_path / "zero.npy"), calibrate_method="output"))


@pytest.mark.parametrize("own", [0.004, 0.0265])
def test_a_scale_of_the_model_gives_way_only_if_the_outputs_gain(data: Path, tmp_path: Path, own: float) -> None:
    """One that is 8 times too small goes at once to where the data have it; one that fits stays as it came."""
    text = NETWORK.replace("a = Conv(x, w)", f"{pair('x', 'q', 's')} a = Conv(q, w)")
    quantized = network(text, s=np.float32(own), z=np.int8(0))
    asked: dict[str, Any] = {"calibrate": str(data), "recalibrate": ["x"]}
    kept, plain, found = (
        translate(quantized, TranslateOptions(**{**asked, **more}))
        for more in ({"recalibrate": []}, {}, {"calibrate_method": "output"})
    )
    origin, better = found.scales["x"].origin, sqnr(found, tmp_path) - sqnr(kept, tmp_path)
    told_of = [row.message for row in found.diagnostics if row.rule == "K2"]
    if own < 0.01:
        assert found.tensor_scales["x"] > 0.7 * plain.tensor_scales["x"] > 4 * own and better > 6
        assert origin.rule == "K2" and "was 0.004 (rule Q1)" in origin.note and "1 scale of the model" in told_of[0]
    else:
        assert found.tensor_scales["x"] == np.float32(own) and origin.rule == "Q1"
        assert better >= 0 and not told_of


def test_samples_that_are_not_finite_are_left_out(data: Path, tmp_path: Path) -> None:
    spoilt = np.load(data)
    spoilt[5, 0, 0, 0] = np.inf
    np.save(tmp_path / "spoilt.npy", spoilt)
    np.save(tmp_path / "clean.npy", np.delete(spoilt, 5, axis=0))
    asked = {"calibrate_method": "output", "ignore_nonfinite": True, "equalize": True}
    one, other = (
        translate(network(), TranslateOptions(calibrate=str(tmp_path / f"{name}.npy"), **asked))
        for name in ("spoilt", "clean")
    )
    assert one.cache.to_text() == other.cache.to_text()


def test_it_is_no_method_of_one_operator() -> None:
    with pytest.raises(UsageError, match="'output' is not a method"):
        translate(network(), TranslateOptions(calibrate="x.npy", calibrate_method="mse,Add:output"))


def test_many_sets_cost_few_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are first measured together."""
    from qdq_translator.lab.simulate.calibration import on_output

    tried: list[int] = []
    noise = on_output._Search._noise

    def counted(self: Any, judge: Any, trials: Any, ground: Any) -> Any:
        tried.append(len(trials))
        return noise(self, judge, trials, ground)

    monkeypatch.setattr(on_output, "TRIED", 4)
    monkeypatch.setattr(on_output._Search, "_noise", counted)
    body = "".join(f"t{i} = Conv(t{i - 1}, w) s{i} = Sigmoid(t{i}) " for i in range(1, 12)).replace("t0", "x")
    chain = body.replace("Conv(t", "Conv(s")
    np.save(tmp_path / "x.npy", values(16, 0))
    network_of_many = network(
        f"net (float[1,8,6,6] x) => (float[1,8,6,6] y) {{ {chain} y = Conv(s11, v1) }}",
        v1=np.eye(8, dtype=np.float32)[:, :, None, None],
    )
    options = TranslateOptions(calibrate=str(tmp_path / "x.npy"), calibrate_method="output")
    translate(network_of_many, options)
    assert tried[1] <= 1 + 4 and max(tried[1:3]) <= 1 + 2 * 4
