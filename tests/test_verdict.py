"""verify's verdict: the expected rounding against arithmetic by hand, sound translations against spoilt ones."""

from __future__ import annotations

import dataclasses
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import qdq_translator as qt
from benchmarks.verdict import by_chance, campaign, cases, judged, table
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.commands.verify import Options
from qdq_translator.core.formats import verify_rows
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.lab.simulate.evaluation import HERE
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, simulate
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import SlicedComparison
from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.lab.simulate.thresholds import SAME_DB
from qdq_translator.lab.simulate.user_metric import UserMetric
from qdq_translator.lab.simulate.verdict import (
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
from qdq_translator.lab.tune.meter import Meter
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Graph
from tests.small_models import model
from tests.test_verify_faults import COVERED

SAMPLES = EXAMPLE_MODEL.parent / "digits_samples.npz"


@pytest.fixture
def files(tmp_path: Path) -> TranslationFiles:
    return translate(EXAMPLE_MODEL, COVERED).save(tmp_path / "t")


def verdict_of(files: TranslationFiles, explicit: Path = EXAMPLE_MODEL, **options: object) -> str:
    asked = {"data": str(SAMPLES), "samples": 16, **options}
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
    asked = Options(model=str(tmp_path / "m.onnx"), translation=str(made.folder), data=str(tmp_path / "x.npy"))
    results = verify(asked)
    row = results["verdict"]["outputs"]["y"]
    held = results["simulation"]["tensors_held_in_int8"]  # 0: the layer before an output without scale is above INT8
    by_hand = (1 + (held > 0)) * (2 * step) ** 2 / 12
    expected = 10 * math.log10(float(np.mean((2 * inputs) ** 2)) / by_hand)
    assert row["expected_db"] == pytest.approx(expected, abs=0.5)  # steps up to a fifth apart
    parts = 1 + 4 + 32 + 32  # the whole, and the slices along three axes
    assert row["least_db"] == pytest.approx(row["expected_db"] - 10 * math.log10(most_of_usual(8, parts)), abs=1.5)


@pytest.mark.parametrize("samples, tail, quantile", [(8, 0.01, 20.090), (16, 0.001, 39.252), (64, 0.001, 104.716)])
def test_the_quantile_of_chi_square(samples: int, tail: float, quantile: float) -> None:
    """Against the printed table (Abramowitz and Stegun, 26.8)."""
    assert samples * most_of_usual(samples, FALSE_ALARM / tail) == pytest.approx(quantile, rel=5e-3)


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
    assert verdict_of(files, data=None, samples=4) == SUSPICIOUS  # random inputs prove little either way


def test_words_at_the_edges() -> None:
    def compared(reference: np.ndarray, other: np.ndarray) -> SlicedComparison:
        row = SlicedComparison(8)
        row.add(reference.astype(np.float32), other.astype(np.float32))
        return row

    rng = np.random.default_rng(1)
    signal, noise = rng.normal(size=(8, 2, 100)), rng.normal(size=(8, 2, 100))
    usual = compared(signal, signal + 0.1 * noise)
    assert judge(compared(signal, signal), [usual], 8).verdict == EQUAL
    granted = math.sqrt(most_of_usual(8, 3))
    assert judge(compared(signal, signal + 0.1 * 0.98 * granted * noise), [usual], 8).verdict == ROUNDING
    assert judge(compared(signal, signal + 0.1 * 1.02 * granted * noise), [usual], 8).verdict == SUSPICIOUS
    one_slice = signal.copy()
    one_slice[:, 1] = -signal[:, 1] / 2
    one_slice[:, 0] *= 10
    found = judge(compared(np.where([[[True], [False]]], 10 * signal, signal), one_slice), [usual], 8)
    assert found.verdict == BROKEN and found.where == "slice 1 of 2 along axis 1"
    broken = signal.copy()
    broken[0, 0, 0] = np.nan
    assert judge(compared(signal, broken), [usual], 8, random=True).verdict == BROKEN
    overflows = compared(signal, np.full_like(signal, np.inf))  # nothing is expected, so nothing excuses noise
    for share, word in ((1e-3, ROUNDING), (0.1, SUSPICIOUS), (1.1, BROKEN)):
        assert judge(compared(signal, signal + share * noise), [overflows], 8).verdict == word
    assert judge(compared(signal, -signal), [overflows], 8, random=True).verdict == SUSPICIOUS


def test_a_network_that_amplifies_its_own_rounding_is_not_another_function() -> None:
    """x -> 4x(1 - x) doubles an error at each step: the last bit of a constant counts after 10, an error of 1e-3 more."""
    steps = " ".join(f"m{i} = Sub(one, x{i}) p{i} = Mul(x{i}, m{i}) x{i + 1} = Mul(four, p{i})" for i in range(10))
    text = f"g (float[1,64] x0) => (float[1,64] x10) {{ {steps} }}"
    given = ExplicitNetwork.of(model(text, one=np.float32(1), four=np.float32(4)))
    inputs = np.random.default_rng(0).uniform(0.1, 0.9, (1, 64)).astype(np.float32)
    samples = Samples(1, 1, "uniform", lambda run: {"x0": inputs})
    last_bit = model(text, one=np.float32(1), four=np.nextafter(np.float32(4), np.float32(0)))
    assert np.isfinite(apart(given.model, given.ends, last_bit, samples, 1, HERE).outputs["x10"][0].sqnr_db)
    assert other_function(float_twin(given), Graph.from_model(last_bit), samples, least=150) == {}
    wrong = Graph.from_model(model(text, one=np.float32(1), four=np.float32(3.999)))
    found = other_function(float_twin(given), wrong, samples, SAME_DB)
    assert 0 < found["x10"] < 20


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


# ---------------- decisions, floors, metrics, correlated rounding


def seen(reference: np.ndarray, other: np.ndarray) -> SlicedComparison:
    row = SlicedComparison(len(reference))
    row.add(reference.astype(np.float32), other.astype(np.float32))
    return row


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sequences(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 8 sequences of 20 characters, each clear, and which those are; class 0 never occurs."""
    rng = np.random.default_rng(0)
    right = rng.integers(1, classes, (8, 20))
    scores = rng.normal(size=(8, 20, classes))
    np.put_along_axis(scores, right[..., None], 12.0, -1)
    scores[..., 0] -= 9
    return scores, right


def test_a_class_that_never_occurs_decides_nothing_and_wrong_characters_do() -> None:
    scores, right = sequences(300)
    reference = softmax(scores)
    usual = [
        seen(reference, softmax(scores + 0.05 * np.random.default_rng(k).normal(size=scores.shape))) for k in (1, 2)
    ]
    rare = reference.copy()
    rare[..., 0] *= -3  # its slice is lost, and no decision is
    found = judge(seen(reference, rare), usual, 8)
    assert (found.verdict, found.decided, found.changed) == (ROUNDING, 160, 0)
    for share, words in ((0.3, (SUSPICIOUS, BROKEN)), (1.0, (BROKEN,))):
        other = scores.copy()
        swapped = np.where(np.random.default_rng(3).random(right.shape) < share, right % 299 + 1, right)
        np.put_along_axis(other, right[..., None], 0.0, -1)
        np.put_along_axis(other, swapped[..., None], 12.0, -1)
        all_wrong = seen(reference, softmax(other))
        found = judge(all_wrong, [all_wrong], 8)  # whatever was expected
        assert found.verdict in words
        assert found.changed == pytest.approx(160 * share, abs=25)


@pytest.mark.parametrize("db, word", [(1.8, BROKEN), (4.7, SUSPICIOUS), (12.0, ROUNDING)])
def test_floors_hold_whatever_was_expected(db: float, word: str) -> None:
    rng = np.random.default_rng(0)
    signal, noise = rng.normal(size=(8, 3, 40, 40)), rng.normal(size=(8, 3, 40, 40))
    found = seen(signal, signal + 10 ** (-db / 20) * noise)
    assert judge(found, [found, found], 8).verdict == word
    assert judge(found, [found, found], 8).least_db >= 6.0 or word == ROUNDING


def test_probabilities_of_nothing() -> None:
    """A detector of a word that is never said: 0 instead of 0.001 is no loss, a missed word is."""
    quiet = np.full((32, 1), 1e-3)
    assert judge(seen(quiet, quiet * 0), [seen(quiet, quiet * 0)], 32).verdict == ROUNDING
    words = quiet.copy()
    words[::4] = 0.95
    missed = seen(words, quiet)
    found = judge(missed, [missed], 32)
    assert (found.verdict, found.decided, found.changed) == (BROKEN, 8, 8)


def test_integers_are_decisions() -> None:
    classes = np.arange(64).reshape(8, 8)
    row = SlicedComparison(8)
    row.add(classes, np.where(classes % 3 == 0, 5, classes))
    assert (row.decided, row.changed) == (64, 22)


def gap(values: dict[str, np.ndarray]) -> onnx.ModelProto:
    text = """g (float[1,3,12,12] x) => (float[1,4,1,1] y) { c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) a = Add(r, k)
        m = GlobalAveragePool(a) y = Conv(m, v) }"""
    return model(text, **values)


@pytest.mark.parametrize("seed", range(6))
def test_zeros_that_all_round_alike_are_expected(seed: int, tmp_path: Path) -> None:
    """Relu -> Add of a constant -> average: the rounding of the constant does not average out."""
    rng = np.random.default_rng(seed)
    w, k, v = rng.normal(0, 0.3, (8, 3, 3, 3)), rng.normal(0, 1, (1, 8, 1, 1)), rng.normal(size=(4, 8, 1, 1))
    weights = {"w": w, "k": k, "v": v}
    onnx.save(gap({name: array.astype(np.float32) for name, array in weights.items()}), tmp_path / "m.onnx")
    for name in ("cal", "x"):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(-1, 1, (32, 3, 12, 12)).astype(np.float32))
    made = translate(tmp_path / "m.onnx", TranslateOptions(preset="dla", calibrate=str(tmp_path / "cal.npz")))
    files = made.save(tmp_path / "t")
    assert verdict_of(files, tmp_path / "m.onnx", data=str(tmp_path / "x.npz"), samples=32) == ROUNDING


def test_a_metric_decides(files: TranslationFiles) -> None:
    def steady(outputs: Any, labels: Any) -> float:
        assert outputs["logits"].shape == (1, 10)
        return 50.0

    noisy = translate(EXAMPLE_MODEL, dataclasses.replace(COVERED, calibrate=str(SAMPLES), recalibrate=["worst:3"]))
    other = noisy.save(files.folder.parent / "noisy")

    def measured(metric: Any) -> Any:
        data, where = {"data": str(SAMPLES), "samples": 16, "fuse": "on"}, str(other.folder)
        return qt.verify(str(EXAMPLE_MODEL), where, metric=metric, **data).to_dict()["verdict"]

    assert measured(steady)["overall"] == ROUNDING
    calls: list[Any] = []

    def falling(outputs: Any, labels: Any) -> float:
        calls.append(outputs)
        return 90.0 if len(calls) % 2 or len(calls) > 32 else 40.0  # 32: both stages of 16 samples

    judged = measured(falling)
    assert judged["overall"] == BROKEN and "falls from 90 to 40" in judged["reasons"][0]
    assert judged["reason"] and judged["remedy"].startswith("qdq-translator translate ")


def test_networks_by_chance_that_lost_nothing_are_no_alarm(tmp_path: Path) -> None:
    assert by_chance(tmp_path, range(1000, 1024)) == (24, [])


def test_a_metric_gets_the_shapes_of_the_network(tmp_path: Path) -> None:
    """Whatever the preset made of them: in verify, with --sensitivity, and in tune's measurement."""
    rng = np.random.default_rng(0)
    text = """g (float[1,3,16,16] x) => (float[1,8] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        c = Conv(d, w) g = GlobalAveragePool(c) y = Flatten(g) }"""
    weight = rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)
    onnx.save(model(text, s=np.float32(0.03), z=np.int8(0), w=weight), tmp_path / "m.onnx")
    data = rng.normal(size=(4, 3, 16, 16)).astype(np.float32)
    made = translate(tmp_path / "m.onnx", TranslateOptions(preset="dla"))
    assert len(made.model.graph.output[0].type.tensor_type.shape.dim) == 4
    shapes = set()

    def shape(outputs: Any, labels: Any) -> float:
        shapes.add(outputs["y"].shape)
        return 1.0

    qt.verify(str(tmp_path / "m.onnx"), made, data={"x": data}, metric=shape, sensitivity=True)
    meter = Meter(UserMetric("shape", shape), Samples(4, 1, "normal", lambda run: {"x": data[run : run + 1]}), HERE)
    explicit = ExplicitNetwork.of(onnx.load(tmp_path / "m.onnx"))
    meter.set_reference(explicit.model, explicit.ends)
    meter.measure(simulate(ImplicitNetwork.of(made)).model, 0.1)
    assert shapes == {(1, 8)}


def test_another_function_names_the_first_layer(files: TranslationFiles) -> None:
    translation = translate(EXAMPLE_MODEL, COVERED)
    graph = translation.graph
    node = next(n for n in graph.nodes if n.name == "/layer2/conv2/Conv")
    weight = graph.array(node.inputs[1])
    assert weight is not None
    graph.set_input(node, 1, graph.add_initializer("spoilt", np.roll(weight, 1, axis=1)))
    translation.save(files.folder)
    asked = {"model": str(EXAMPLE_MODEL), "translation": str(files.folder), "data": str(SAMPLES), "samples": 4}
    found = verify(Options(**asked))["verdict"]
    assert "from Conv '/layer2/conv2/Conv' (tensor '" in found["reason"] and found["overall"] in (SUSPICIOUS, BROKEN)


def test_the_loss_from_the_float_model_counts(tmp_path: Path) -> None:
    """The quantizer of the model clips nearly everything: it is kept exactly, and the float model is lost."""
    rng = np.random.default_rng(0)
    q = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
    out = "c = Conv(d, w) p = QuantizeLinear(c, s, z) y = DequantizeLinear(p, s, z)"
    head, weight = "g (float[1,4,8,8] x) => (float[1,4,8,8] y)", rng.normal(size=(4, 4, 1, 1)).astype(np.float32)
    onnx.save(model(f"{head} {{ {q} {out} }}", s=np.float32(1e-3), z=np.int8(0), w=weight), tmp_path / "m.onnx")
    onnx.save(model(f"{head} {{ y = Conv(x, w) }}", w=weight), tmp_path / "float.onnx")
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(8, 4, 8, 8)).astype(np.float32))
    files = translate(tmp_path / "m.onnx", TranslateOptions()).save(tmp_path / "t")
    asked = {"data": str(tmp_path / "x.npz"), "samples": 8}
    assert verdict_of(files, tmp_path / "m.onnx", **asked) in (EQUAL, ROUNDING)
    assert verdict_of(files, tmp_path / "m.onnx", float=str(tmp_path / "float.onnx"), **asked) == BROKEN


def test_a_sum_of_roundings_that_means_nothing_is_no_figure() -> None:
    def sentence(remainder: float) -> str:
        return verify_rows.Account(30.0, 20.0, remainder, 8, 8.0, ()).sentence

    assert "exceeds it by 50%" in sentence(-0.5) and "misses 20%" in sentence(0.2)
    assert "%" not in sentence(-5753177.0).replace("dB", "") and "interact so strongly" in sentence(-5753177.0)
