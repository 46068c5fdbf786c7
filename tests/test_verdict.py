"""verify's verdict: the expected rounding against arithmetic by hand, sound translations against spoilt ones."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.verdict import campaign, cases, judged, table
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.commands.verify import Options
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.ir.graph import Graph
from qdq_translator.simulate.evaluation import HERE
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import SlicedComparison
from qdq_translator.simulate.run import ExplicitNetwork
from qdq_translator.simulate.verdict import (
    BROKEN,
    EQUAL,
    FALSE_ALARM,
    ROUNDING,
    SUSPICIOUS,
    apart,
    float_twin,
    judge,
    most_of_usual,
    other_function,
)
from qdq_translator.workflows.verification import verify
from tests.small_models import model
from tests.test_verify_faults import COVERED

SAMPLES = EXAMPLE_MODEL.parent / "digits_samples.npz"


@pytest.fixture
def files(tmp_path: Path) -> TranslationFiles:
    return translate(EXAMPLE_MODEL, COVERED).save(tmp_path / "t")


def verdict_of(files: TranslationFiles, explicit: Path = EXAMPLE_MODEL, **options: object) -> str:
    asked = {"inputs": str(SAMPLES), "samples": 16, **options}
    return str(verify(Options(model=str(explicit), translation=str(files.folder), **asked))["verdict"]["overall"])


def test_the_expected_noise_of_one_rounding_by_hand(tmp_path: Path) -> None:
    """y = 2x behind one quantizer of step s: two independent roundings, each of variance (2s)^2 / 12."""
    step = np.float32(0.05)
    text = """g (float[1,4,32,32] x) => (float[1,4,32,32] y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) [c] y = Conv<kernel_shape=[1,1]>(d, w) }"""
    weight = 2 * np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    onnx.save(model(text, s=step, z=np.int8(0), w=weight), tmp_path / "m.onnx")
    inputs = np.random.default_rng(0).uniform(-6, 6, (8, 4, 32, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", inputs)
    made = translate(tmp_path / "m.onnx", TranslateOptions(infer_bounds=True)).save(tmp_path / "t")
    asked = Options(model=str(tmp_path / "m.onnx"), translation=str(made.folder), inputs=str(tmp_path / "x.npy"))
    results = verify(asked)
    row = results["verdict"]["outputs"]["y"]
    if (
        results["simulation"]["tensors_held_in_int8"] == 0
    ):  # the layer before a graph output without scale stays above INT8
        by_hand = (2 * step) ** 2 / 12
    else:
        by_hand = 2 * (2 * step) ** 2 / 12
    expected = 10 * math.log10(float(np.mean((2 * inputs) ** 2)) / by_hand)
    assert row["expected_db"] == pytest.approx(expected, abs=0.1)
    parts = 1 + 4 + 32 + 32  # the whole, and the slices along three axes
    assert row["least_db"] == pytest.approx(row["expected_db"] - 10 * math.log10(most_of_usual(8, parts)), abs=1e-6)


@pytest.mark.parametrize("samples, tail, quantile", [(8, 0.01, 20.090), (16, 0.001, 39.252), (64, 0.001, 104.716)])
def test_the_quantile_of_chi_square(samples: int, tail: float, quantile: float) -> None:
    """Against the printed table (Abramowitz and Stegun, 26.8)."""
    assert samples * most_of_usual(samples, FALSE_ALARM / tail) == pytest.approx(quantile, rel=5e-3)


def test_a_sound_translation_rounds(files: TranslationFiles, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict_of(files) == ROUNDING
    argv = ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(files.folder)]
    assert main(argv) == 0 and "Random inputs prove little" in capsys.readouterr().out
    assert main([*argv, "--inputs", str(SAMPLES)]) == 0
    out = capsys.readouterr().out
    assert "Verdict: within expected rounding" in out and "Random inputs" not in out


@pytest.mark.parametrize("factor, expected", [(1.0, ROUNDING), (0.1, BROKEN), (16.0, SUSPICIOUS)])
def test_a_scale_that_is_not_the_model_s(factor: float, expected: str, files: TranslationFiles) -> None:
    """Of the input of a layer in the middle, in the cache that TensorRT would read."""
    cache, stripped = files.read_cache(), onnx.load(files.model)
    name = next(n.input[0] for n in stripped.graph.node if n.name == "/layer2/conv2/Conv")
    lines = files.cache.read_text().splitlines()
    wrong = struct.pack(">f", np.float32(cache.scales[name] * factor)).hex()
    files.cache.write_text("\n".join(f"{name}: {wrong}" if li.startswith(f"{name}:") else li for li in lines) + "\n")
    assert verdict_of(files) == expected


def test_weights_that_are_gone_are_broken(files: TranslationFiles) -> None:
    stripped = onnx.load(files.model)
    for tensor in stripped.graph.initializer:
        if len(tensor.dims) == 4:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(-array, tensor.name))
    onnx.save(stripped, files.model)
    assert verdict_of(files) == BROKEN
    assert verdict_of(files, inputs=None, samples=4) == SUSPICIOUS  # random inputs prove little either way


def test_words_at_the_edges() -> None:
    def compared(reference: np.ndarray, other: np.ndarray) -> SlicedComparison:
        row = SlicedComparison(8)
        row.add(reference.astype(np.float32), other.astype(np.float32))
        return row

    rng = np.random.default_rng(1)
    signal, noise = rng.normal(size=(8, 2, 100)), rng.normal(size=(8, 2, 100))
    usual = compared(signal, signal + 0.1 * noise)
    assert judge(compared(signal, signal), usual, 8).verdict == EQUAL
    granted = math.sqrt(most_of_usual(8, 3))
    assert judge(compared(signal, signal + 0.1 * 0.98 * granted * noise), usual, 8).verdict == ROUNDING
    assert judge(compared(signal, signal + 0.1 * 1.02 * granted * noise), usual, 8).verdict == SUSPICIOUS
    one_slice = signal.copy()
    one_slice[:, 1] = -signal[:, 1] / 2
    found = judge(compared(signal, one_slice), usual, 8)
    assert found.verdict == BROKEN and found.where == "slice 1 of 2 along axis 1"
    broken = signal.copy()
    broken[0, 0, 0] = np.nan
    assert judge(compared(signal, broken), usual, 8, random=True).verdict == BROKEN
    overflows = compared(signal, np.full_like(signal, np.inf))  # nothing is expected, so nothing excuses noise
    for share, word in ((1e-3, ROUNDING), (0.1, SUSPICIOUS), (1.1, BROKEN)):
        assert judge(compared(signal, signal + share * noise), overflows, 8).verdict == word
    assert judge(compared(signal, -signal), overflows, 8, random=True).verdict == SUSPICIOUS


def test_a_network_that_amplifies_its_own_rounding_is_not_another_function() -> None:
    """x -> 4x(1 - x) doubles an error at each step: the last bit of a constant counts after 10, an error of 1e-3 more."""
    steps = " ".join(f"m{i} = Sub(one, x{i}) p{i} = Mul(x{i}, m{i}) x{i + 1} = Mul(four, p{i})" for i in range(10))
    text = f"g (float[1,64] x0) => (float[1,64] x10) {{ {steps} }}"
    given = ExplicitNetwork.of(model(text, one=np.float32(1), four=np.float32(4)))
    inputs = np.random.default_rng(0).uniform(0.1, 0.9, (1, 64)).astype(np.float32)
    samples = Samples(1, 1, "uniform", lambda run: {"x0": inputs})
    last_bit = model(text, one=np.float32(1), four=np.nextafter(np.float32(4), np.float32(0)))
    assert np.isfinite(apart(given.model, given.ends, last_bit, samples, 1, HERE)["x10"].sqnr_db)
    assert other_function(float_twin(given), Graph.from_model(last_bit), samples, least=150) == {}
    wrong = Graph.from_model(model(text, one=np.float32(1), four=np.float32(3.999)))
    found = other_function(float_twin(given), wrong, samples)
    assert 0 < found["x10"] < 20


def test_another_model_than_the_translated_one_is_status_1(
    files: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = onnx.load(EXAMPLE_MODEL)
    other.doc_string = "saved again"
    onnx.save(other, tmp_path / "again.onnx")
    assert main(["verify", "-i", str(tmp_path / "again.onnx"), "-t", str(files.folder), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["stale"] is True and "is not the file that was translated" in captured.err


def test_planted_faults_are_noticed(tmp_path: Path) -> None:
    """A part of `python -m benchmarks.verdict`: the files agree with each other, only the model tells that they are wrong."""
    digits = cases(tmp_path)[0]
    chosen = (
        "scale x2 at 0",
        "scales swapped",
        "scale dropped",
        "weight channels swapped",
        "bias",
        "pad",
        "lost branch",
    )
    rows = campaign([digits], chosen)
    assert [row.fault for row in rows] == list(chosen) and all(row.found.noticed for row in rows)
    changing = sum(row.changes for row in rows)
    assert list(table(rows))[-1] == f"| all | {len(chosen)} | {len(chosen)} | {changing} | {changing} |  |"


def test_ranges_that_do_not_fit_the_data_are_broken(tmp_path: Path) -> None:
    """Calibrated on glyphs that nobody divided by 255."""
    glyphs = cases(tmp_path)[3]
    with np.load(glyphs.options["calibrate"]) as data:
        np.savez(tmp_path / "wrong.npz", input=data["input"] * 255)
    found = judged(dataclasses.replace(glyphs, options={"calibrate": str(tmp_path / "wrong.npz")}))
    right = judged(glyphs)
    assert found is not None and right is not None
    assert right.verdict == ROUNDING and found.verdict == BROKEN and found.metric < right.metric - 40


def test_broken_is_status_1_and_suspicious_with_strict(
    files: TranslationFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the scales of a translation whose files agree with each other."""
    argv = ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(files.folder), "--inputs", str(SAMPLES), "--samples", "16"]
    assert main([*argv, "--strict"]) == 0
    for factor, plain, strict in ((2.0, 0, 1), (0.02, 1, 1)):
        translation = translate(EXAMPLE_MODEL, COVERED)
        name = "/layer2/relu/Relu_output_0"
        translation.tensor_scales[name] *= factor
        translation.save(files.folder)
        assert main(argv) == plain and main([*argv, "--strict"]) == strict
        assert ("broken" if plain else "suspicious") in capsys.readouterr().err
