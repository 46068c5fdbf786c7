"""`translate --equalize`: channels rescaled so that one scale fits them, the function unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from e2e_workflow.denoiser import images
from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.lab.simulate.account import Judge
from qdq_translator.lab.simulate.calibration.equalize import LARGEST, _factors, equal_sets
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, copy_model
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from tests.small_models import model, pair

DENOISER = Path(images.__file__).with_name("denoiser_float.onnx")
SHAPES = ["input:1x3x32x32"]


def weights(**spread: float) -> dict[str, np.ndarray]:
    """1x1 and 3x3 weights of 8 channels; `spread`: the ratio of the largest to the smallest output channel."""
    rng, made = np.random.default_rng(4), {}
    for name, shape in {"w": (8, 8, 1, 1), "v": (8, 8, 3, 3), "d": (8, 1, 3, 3), "u": (8, 8, 1, 1)}.items():
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        ratio = np.geomspace(1, 1 / spread.get(name, 1.0), 8).reshape(8, 1, 1, 1)
        made[name] = (values * ratio).astype(np.float32)
        made[f"{name}b"] = (0.1 * ratio.reshape(8)).astype(np.float32)
    return made


NETWORK = """net (float[1,8,8,8] x) => (float[1,8,8,8] y) {
    a = Conv(x, w, wb)
    r = Relu(a)
    e = Conv<pads=[1,1,1,1], group=8>(r, d, db)
    l = LeakyRelu(e)
    b = Conv<pads=[1,1,1,1]>(l, v, vb)
    s = Add(b, a)
    m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(s)
    y = Conv(m, u, ub)
}"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((16, 8, 8, 8)).astype(np.float32))
    return tmp_path / "x.npy"


def sqnr(translation: object, data: Path) -> float:
    network = ImplicitNetwork.of(translation)  # type: ignore[arg-type]
    samples = load_samples(data, input_specs(network.model, {}), None)
    return float(-10 * np.log10(Judge(network, SimulationOptions(), samples).noise))


def equalized(given: onnx.ModelProto, data: Path, least: float) -> Translation:
    """SQNR gains more than `least` dB on other data, and the float function stays."""
    plain, equal = (translate(given, TranslateOptions(calibrate=str(data), equalize=on)) for on in (False, True))
    seen = data.parent / "seen.npy"
    np.save(seen, np.random.default_rng(9).standard_normal((16, 8, 8, 8)).astype(np.float32))
    assert sqnr(equal, seen) > sqnr(plain, seen) + least
    feed = {"x": np.load(seen)[:1]}
    wanted, found = (Session(t.model, "float").run(feed)["y"] for t in (plain, equal))
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    return equal


def test_small_channels_gain_and_the_function_stays(data: Path) -> None:
    equal = equalized(model(NETWORK, **weights(w=50, d=20, v=50)), data, 2.4)
    assert any("--equalize rescaled the channels" in row.message for row in equal.diagnostics)


def test_nothing_changes_if_nothing_gains(data: Path) -> None:
    """Channels of one size: the files are those without the option."""
    ones = model(
        "net (float[1,8,8,8] x) => (float[1,8,8,8] y) { a = Conv(x, w) r = Tanh(a) y = Conv(r, u) }", **weights()
    )
    plain = translate(ones, TranslateOptions(calibrate=str(data)))
    equal = translate(ones, TranslateOptions(calibrate=str(data), equalize=True))
    assert equal.model == plain.model and equal.cache.to_text() == plain.cache.to_text()
    assert any("--equalize changed nothing" in row.message for row in equal.diagnostics)


@pytest.mark.parametrize(
    ("body", "sets"),
    [
        ("a = Conv(x, w) r = Relu(a) y = Conv(r, u)", [["a", "r"]]),
        ("a = Conv(x, w) r = Sigmoid(a) y = Conv(r, u)", []),
        ("a = Conv(x, w) r = Clip(a, zero) y = Conv(r, u)", [["a", "r"]]),
        ("a = Conv(x, w) r = Clip(a, zero, six) y = Conv(r, u)", []),
        ("a = Conv(x, w) b = Conv(a, u) c = Conv(b, w) s = Add(a, b) y = Conv(s, u)", [["a", "b", "s"]]),
        ("a = Conv(x, w) r = Relu(a) s = Add(r, x) y = Conv(s, u)", []),
        ("a = Conv(x, w) e = Conv<pads=[1,1,1,1], group=8>(a, d) y = Conv(e, u)", [["a"], ["e"]]),
        ("a = Conv(x, w) y = Concat<axis=1>(a, a)", []),
        ("a = Conv(x, w) y = Relu(a)", []),
        ("a = Conv(x, w) b = Conv(x, u) c = Concat<axis=1>(a, b) y = Conv(c, k)", [["a", "b", "c"]]),
        ("a = Conv(x, w) c = Concat<axis=2>(a, a) y = Conv(c, u)", []),
        ('a = Conv(x, w) z = Resize<mode="nearest">(a, none, by) y = Conv(z, u)', [["a", "z"]]),
        ("a = Conv(x, w) p = GlobalAveragePool(a) f = Flatten(p) y = Gemm(f, g)", [["a", "p", "f"]]),
        ("a = Conv(x, w) f = Flatten(a) y = Gemm(f, h)", []),
    ],
)
def test_what_may_be_rescaled(body: str, sets: list[list[str]]) -> None:
    """A fork whose other reader is no Conv, the graph's ends and what is not homogeneous leave their tensors as they are."""
    made = {
        **weights(),
        "k": np.ones((8, 16, 1, 1), np.float32),
        "by": np.array([1, 1, 2, 2], np.float32),
        "none": np.zeros(0, np.float32),
        "g": np.ones((8, 3), np.float32),
        "h": np.ones((512, 3), np.float32),
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    graph = Graph.from_model(
        copy_model(
            model(
                f"net (float[1,8,8,8] x) => (float[1,a{'' if 'Flatten' in body else ',b,c'}] y) {{ {body} }}",
                **{
                    name: values for name, values in made.items() if re.search(rf"\b{name}\b", body.replace(" = ", "="))
                },
            )
        )
    )
    found = equal_sets(graph, TensorTypes(graph))
    if "c = Conv" in body:  # c is read by nobody
        found = [names for names in found if list(names) != ["c"]]
    assert [list(names) for names in found] == sets


def test_branches_of_a_concat_and_a_classifier(data: Path) -> None:
    """Small channels in one branch, and behind a mean: SQNR gains, the function stays. A factor is one of the branch's channel."""
    made = weights(w=50, u=400)
    text = """net (float[1,8,8,8] x) => (float[1,3] y) {
        a = Conv(x, w, wb)  r = Relu(a)  b = Conv(x, u, ub)  l = Relu(b)  c = Concat<axis=1>(l, r)
        s = Relu(c)  e = Conv(s, k)  p = GlobalAveragePool(e)  f = Flatten(p)  y = Gemm<transB=1>(f, g, gb)
    }"""
    rng = np.random.default_rng(7)
    more = {"k": (16, 16, 1, 1), "g": (3, 16), "gb": (3,)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in more.items()}
    arrays["k"] *= np.geomspace(1, 0.02, 16, dtype=np.float32).reshape(16, 1, 1, 1)
    used = {name: made[name] for name in ("w", "wb", "u", "ub")}
    given = model(text, **used, **arrays)
    graph = Graph.from_model(copy_model(given))
    (found, last) = equal_sets(graph, TensorTypes(graph))
    assert list(found) == ["a", "r", "b", "l", "c", "s"] and list(last) == ["e", "p", "f"]
    assert np.array_equal(found["c"], [*found["l"], *found["r"]]) and len({*found["c"]}) == 16
    equalized(given, data, 0.7)


def test_a_channel_that_never_fires_keeps_its_weights() -> None:
    found = _factors(np.array([0, 1, 4, 1e-30], np.float32), 1.0)
    assert found is not None and found.tolist() == [1, 4, 1, LARGEST] and _factors(np.zeros(3, np.float32), 1.0) is None


def test_it_saves_the_denoiser(tmp_path: Path) -> None:
    """Which no calibration saves: 4.5 dB of SQNR on pictures that it was not fitted to."""
    np.savez(tmp_path / "train.npz", input=images.pairs(32, images.TRAINING)[0])
    noisy = images.pairs(24, images.VALIDATION)[0]
    np.savez(tmp_path / "seen.npz", input=noisy)
    asked = {"calibrate": str(tmp_path / "train.npz"), "shapes": SHAPES, "calibrate_method": "mse"}
    plain, equal = (translate(DENOISER, TranslateOptions(**asked, equalize=on)) for on in (False, True))
    assert sqnr(equal, tmp_path / "seen.npz") > sqnr(plain, tmp_path / "seen.npz") + 4.5
    comparison = Comparison()
    feed = {"input": noisy[:1]}
    wanted, found = (Session(t.model, "float").run(feed) for t in (plain, equal))
    comparison.add(*(next(iter(values.values())) for values in (wanted, found)))
    assert comparison.sqnr_db > 100


def test_bad_input(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"net (float[1,8,8,8] x) => (float[1,8,8,8] y) {{ {pair('x', 'q', 's')} y = Conv(q, w) }}"
    quantized = model(text, w=weights()["w"], s=np.float32(0.1), z=np.int8(0))
    with pytest.raises(UserError, match="equalize rescales weights"):
        translate(quantized, TranslateOptions(calibrate=str(data), equalize=True))
    with pytest.raises(UsageError, match="calibrate"):
        translate(model(NETWORK, **weights()), TranslateOptions(equalize=True))
    onnx.save(model(NETWORK, **weights(w=50)), tmp_path / "net.onnx")
    np.save(tmp_path / "one.npy", np.load(data)[:1])
    np.save(tmp_path / "zero.npy", np.zeros((4, 8, 8, 8), np.float32))
    np.save(tmp_path / "inf.npy", np.full((2, 8, 8, 8), np.inf, np.float32))
    for name, status in (("one", 0), ("zero", 1), ("inf", 1)):
        argv = ["translate", "-i", str(tmp_path / "net.onnx"), "-o", str(tmp_path / name), "--equalize"]
        assert main([*argv, "--calibrate", str(tmp_path / f"{name}.npy")]) == status
        assert (tmp_path / name / "net_noqdq.onnx").is_file() == (status == 0)
    said = capsys.readouterr()
    assert (
        "all 4 samples are 0" in said.err
        and "not finite" in said.err
        and "needs 2 samples or more" in said.out + said.err
    )
