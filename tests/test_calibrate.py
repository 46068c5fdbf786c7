"""Rule K1, `translate --calibrate`: what is observed, where, and what becomes of it."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.core.workers.work import InProcess
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.evaluation import Evaluation
from qdq_translator.lab.simulate.run import Session
from qdq_translator.translation.translator import Translation
from tests.small_models import model, pair

# a trained input, a Conv whose BatchNormalization is folded, SiLU, and a residual Add with a plain operand
BLOCK = f"""net (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) {{
    {pair("x", "xq")}
    wq = DequantizeLinear(w, ws, wz)
    c = Conv <pads=[1, 1, 1, 1]>(xq, wq)
    n = BatchNormalization(c, g, b, m, v)
    sig = Sigmoid(n)
    a = Mul(n, sig)
    r = Conv(a, u)
    t = Add(r, a)
    p = Relu(t)
    y = Conv(p, u)
}}"""


def block() -> onnx.ModelProto:
    random = np.random.default_rng(5)
    codes = random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    norm = {"g": random.uniform(0.5, 3, 4), "b": random.standard_normal(4), "m": random.standard_normal(4)}
    floats = {**norm, "v": random.uniform(0.5, 2, 4), "u": random.standard_normal((4, 4, 1, 1)), "s": 0.02, "ws": 0.01}
    arrays = {name: np.asarray(values, np.float32) for name, values in floats.items()}
    return model(BLOCK, z=np.int8(0), w=codes, wz=np.int8(0), **arrays)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32))
    return path


def calibrated(explicit: onnx.ModelProto, data: Path, **options: Any) -> Translation:
    return translate(explicit, TranslateOptions(calibrate=str(data), **options))


def k1(translation: Translation) -> dict[str, float]:
    return {name: scale.amax for name, scale in translation.scales.items() if scale.origin.rule == "K1"}


def test_scales_are_what_the_explicit_model_holds(data: Path) -> None:
    """Behind the folded BatchNormalization, too; the input is rounded by its trained scale while the rest is observed."""
    explicit = block()
    translation = calibrated(explicit, data, calibrate_method="max")
    found = k1(translation)
    assert set(found) == {"n", "sig", "a", "r", "p"}  # 't' goes with the Relu behind it
    values = Session(explicit, "explicit", list(found)).run({"x": np.load(data)})
    for name, amax in found.items():
        assert amax == pytest.approx(float(np.abs(values[name]).max()), rel=1e-5), name
    assert (
        translation.scales["t"].origin.rule == "S3" and translation.scales["t"].value == translation.scales["p"].value
    )
    assert translation.scales["x"].value == np.float32(0.02) and translation.scales["x"].origin.rule == "Q1"


def test_every_layer_but_the_output_runs_in_int8(data: Path) -> None:
    before, after = translate(block()), calibrated(block(), data)
    assert sum(layer.precision != "int8" for layer in before.plan) >= 5
    assert [layer.precision for layer in after.plan].count("int8") == len(after.plan) - 1
    assert "y" not in after.scales and "y" in calibrated(block(), data, calibrate_outputs=True).scales


def test_notes_say_method_samples_range_and_share(data: Path) -> None:
    origin = calibrated(block(), data, calibrate_method="percentile", calibrate_samples=20).scales["a"].origin
    assert (origin.rule, origin.node) == ("K1", "Mul_5") or origin.rule == "K1"
    assert origin.note.startswith("percentile of 20 samples, largest ") and origin.note.endswith("% clipped")


def test_the_result_does_not_depend_on_threads_or_files(data: Path, tmp_path: Path) -> None:
    """One thread or three, one file or many of unequal length: the same bytes."""
    values = np.load(data)
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, part in enumerate(np.split(values, [1, 2, 9])):
        np.savez(folder / f"{number}.npz", x=part)
    caches = []
    for threads, source in ((1, data), (3, data), (2, folder)):
        options = TranslateOptions(calibrate=str(source))
        caches.append(translate(block(), options, where=Evaluation(InProcess(threads))).cache.to_text())
    assert caches[0] == caches[1] == caches[2]


def test_data_come_before_guesses(data: Path) -> None:
    """With every rule switched on, what is observed is what the scales are."""
    rules = ("infer_mul_scales", "infer_concat_scales", "infer_average_pool_scales", "add_unary_ew_scales_for_dla")
    with_rules = calibrated(block(), data, **dict.fromkeys(rules, True))
    origins = {scale.origin.rule for _, scale in with_rules.scales.items()}
    assert "K1" in origins and "S9" not in origins


def test_a_tensor_that_is_zero_gets_the_smallest_sensible_scale(tmp_path: Path) -> None:
    some = np.random.default_rng(0).random((8, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "zero.npy", some - 5)
    graph = """net (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) {
        a = Conv(x, w)
        r = Relu(a)
        y = Conv(r, w)
    }"""
    explicit = model(graph, w=np.eye(3, dtype=np.float32)[:, :, None, None])
    translation = calibrated(explicit, tmp_path / "zero.npy")
    assert translation.scales["r"].value == 2.0**-14
    assert any("is 0 in all of the data" in str(d) for d in translation.diagnostics)
    np.save(tmp_path / "denormal.npy", (some * 1e-42).astype(np.float32))
    assert calibrated(explicit, tmp_path / "denormal.npy").scales["x"].value == 2.0**-14


def test_channels_that_never_fire_are_named(data: Path) -> None:
    graph = """net (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) { a = Conv(x, w, b)  r = Relu(a)  y = Conv(r, w) }"""
    bias = np.array([0, -1e6, 0], np.float32)
    made = calibrated(model(graph, w=np.eye(3, dtype=np.float32)[:, :, None, None], b=bias), data)
    (told,) = (d for d in made.diagnostics if "Always 0 in the data" in d.message)
    assert told.data == {"channels": {"r": [1]}} and "of 'r' 1 of 3" in told.message


def test_values_that_are_not_finite(data: Path, tmp_path: Path) -> None:
    values = np.load(data)
    clean = k1(calibrated(block(), data, calibrate_method="max"))
    spoilt = np.concatenate([values, np.full((1, 3, 8, 8), np.nan, np.float32)])
    spoilt[32, 0, 0, 0] = np.inf
    spoilt = np.concatenate([spoilt, values[:1], spoilt[32:33], values[:1]])
    spoilt[33, 0, 0, 0] = np.nan
    np.save(tmp_path / "nan.npy", spoilt)
    said = "385 values in 3 of 36 samples are not finite .* the first of input 'x' in sample 32"
    with pytest.raises(UserError, match=said) as caught:
        calibrated(block(), tmp_path / "nan.npy")
    assert "--ignore_nonfinite" in str(caught.value)
    accepted = calibrated(block(), tmp_path / "nan.npy", calibrate_method="max", ignore_nonfinite=True)
    assert k1(accepted) == clean  # sample 35 is sample 0 again
    assert any("3 of 36 samples" in str(d) for d in accepted.diagnostics.warnings)
    np.save(tmp_path / "nan.npy", np.full((2, 3, 8, 8), np.inf, np.float32))
    with pytest.raises(UserError, match="in 2 of 2 samples are not finite"):
        calibrated(block(), tmp_path / "nan.npy", ignore_nonfinite=True)


def test_few_samples_are_a_risk_that_is_named(data: Path) -> None:
    few = calibrated(block(), data, calibrate_samples=7)
    assert any(d.rule == "K1" and "7 samples" in str(d) for d in few.diagnostics.warnings)
    assert not any(
        "calibrated on" in str(d) for d in calibrated(block(), data, calibrate_samples=8).diagnostics.warnings
    )


@pytest.mark.parametrize("factor", [1.0, 255.0, 1 / 255])
def test_data_unlike_those_of_the_inputs_scale_are_noticed(factor: float, data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", np.load(data) * np.float32(factor * 127 * 0.02 / 4.5))
    if factor > 1:
        with pytest.raises(UserError, match="divide by 255"):
            calibrated(block(), tmp_path / "other.npy")
        return
    warnings = calibrated(block(), tmp_path / "other.npy").diagnostics.warnings
    assert any("preprocessing" in str(d) and "input 'x'" in str(d) for d in warnings) == (factor != 1)


@pytest.mark.parametrize("hot", [0, 12])
def test_a_few_values_far_from_all_others_are_named(hot: int, tmp_path: Path) -> None:
    """One value in 10,000 may be anything; fewer that are more than four times as large are a warning, of a float model's input
    as of one with a scale. 32 * 800 values: two of them are fewer."""
    values = np.random.default_rng(0).standard_normal((32, 3, 16, 17)).astype(np.float32).clip(-3, 3)
    values[4, 1, 2, 3] = values[5, 0, 0, 0] = hot * 1.1
    np.save(tmp_path / "x.npy", values)
    graph = "g (float[n, 3, 16, 17] x) => (float[n, 3, 16, 17] y) { r = Neg (x)  y = Neg (r) }"
    done = translate(model(graph), TranslateOptions(calibrate=str(tmp_path / "x.npy")))
    named = [d.tensor for d in done.diagnostics.of_rule("K1") if "a few values" in d.message]
    assert named == (["x"] if hot else [])


def test_a_model_that_onnxruntime_cannot_run_names_the_operator(data: Path) -> None:
    explicit = block()
    explicit.graph.node[-1].op_type, explicit.graph.node[-1].domain = "Unheard", "nobody"
    explicit.opset_import.append(onnx.helper.make_opsetid("nobody", 1))
    with pytest.raises(UserError, match="Unheard"):
        calibrated(explicit, data)


def test_ctrl_c_stops_the_threads_and_leaves_nothing(data: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        translate(block(), TranslateOptions(calibrate=str(data)), progress=interrupt)
    assert threading.active_count() == before


def test_progress_ends_at_the_total(data: Path) -> None:
    seen: list[tuple[int, int]] = []
    options = TranslateOptions(calibrate=str(data))
    translate(block(), options, progress=lambda what, done, total: seen.append((done, total)))
    assert seen[-1] == (32, 32) and seen == sorted(seen)


def test_without_onnxruntime_a_sentence_says_what_to_install(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match="ONNX Runtime, which is not installed"):
        calibrated(block(), data)


def test_nothing_to_observe_is_said(tmp_path: Path) -> None:
    explicit = model(
        f"net (float[N, 3, 8, 8] x) => (float[N, 3, 8, 8] y) {{ {pair('x', 'q')} y = Conv(q, w) }}",
        s=np.float32(0.1),
        z=np.int8(0),
        w=np.eye(3, dtype=np.float32)[:, :, None, None],
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((8, 3, 8, 8)).astype(np.float32))
    translation = calibrated(explicit, tmp_path / "x.npy")
    assert not k1(translation) and any("nothing to add" in str(d) for d in translation.diagnostics)


def test_no_scale_inside_a_decomposed_normalization(tmp_path: Path) -> None:
    graph = """net (float[N, 4, 8] x) => (float[N, 4, 8] y) {
        mean = ReduceMean <axes=[-1]>(x)
        d = Sub(x, mean)
        sq = Pow(d, two)
        var = ReduceMean <axes=[-1]>(sq)
        e = Add(var, eps)
        root = Sqrt(e)
        n = Div(d, root)
        k = Mul(n, gain)
        y = MatMul(k, w)
    }"""
    arrays = {"gain": np.linspace(0.5, 2, 8, dtype=np.float32), "w": np.eye(8, dtype=np.float32)}
    explicit = model(graph, two=np.float32(2), eps=np.float32(1e-5), **arrays)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((8, 4, 8)).astype(np.float32))
    assert set(k1(calibrated(explicit, tmp_path / "x.npy"))) == {"x", "n", "k"}
    quantized = model(
        graph.replace("mean = R", f"{pair('x', 'xq', 'two')}\nmean = R").replace("(x)", "(xq)"),
        z=np.int8(0),
        **{t.name: onnx.numpy_helper.to_array(t) for t in explicit.graph.initializer},
    )
    cures = {cause.tensor: cause.cure for cause in translate(quantized).causes.causes}
    assert "--calibrate" in cures["n"] and "--calibrate" not in cures["mean"]


@pytest.mark.parametrize("target", ["gpu", "orin-dla"])
def test_tensors_that_the_cures_name_get_their_scale_from_data(data: Path, target: str) -> None:
    """And so do all that are said to follow; their layers then run in INT8."""
    before = translate(block(), TranslateOptions(target=target))
    named = [cause for cause in before.causes.causes if cause.options == ("--calibrate DATA",)]
    assert named and all("--calibrate DATA" in cause.cure for cause in named)
    after = calibrated(block(), data, target=target)
    assert {name for cause in named for name in (cause.tensor, *cause.follows)} <= set(after.tensor_scales)
    gained = {layer for cause in named for layer in cause.layers}
    assert gained and gained <= {layer.name for layer in after.plan if layer.precision == "int8"}
    assert not any("--calibrate" in cause.cure for cause in after.causes.causes)


def test_dla_sets_share_the_range_that_loses_least(tmp_path: Path) -> None:
    """Two parts of a Concat, one ten times as wide with a few outliers: one range for all three, smaller than the largest."""
    graph = """net (float[1, 4, 8, 8] x) => (float[1, 8, 8, 8] y) {
        a = Conv(x, w)
        b = Conv(x, u)
        c = Concat <axis=1>(a, b)
        y = Conv(c, v)
    }"""
    random = np.random.default_rng(2)
    explicit = model(
        graph,
        w=random.standard_normal((4, 4, 1, 1)).astype(np.float32),
        u=random.standard_normal((4, 4, 1, 1)).astype(np.float32) * 10,
        v=random.standard_normal((8, 8, 1, 1)).astype(np.float32),
    )
    np.save(tmp_path / "x.npy", random.standard_t(3, (16, 4, 8, 8)).astype(np.float32))
    gpu = calibrated(explicit, tmp_path / "x.npy", infer_concat_scales=False)
    dla = calibrated(explicit, tmp_path / "x.npy", target="orin-dla", platform="jetpack-6.2")
    apart, together = k1(gpu), k1(dla)
    assert len({together[n] for n in "abc"}) == 1 and len({apart[n] for n in "abc"}) == 3
    assert apart["a"] < together["a"] <= max(apart.values()) * 1.2
    assert not dla.shared_ranges
    sets = next(d for d in dla.diagnostics if d.rule == "K1" and "sets" in d.data).data["sets"]
    assert sets[0]["worst"] == "a" and sets[0]["cost_db"]["a"] > 3
    unequal = dataclasses.replace(
        TranslateOptions(calibrate=str(tmp_path / "x.npy")), target="orin-dla", unify_scales="off"
    )
    assert k1(translate(explicit, unequal)) == apart


def test_a_range_shared_by_data_is_no_longer_that_of_a_rule(tmp_path: Path) -> None:
    """The SiLU's scale follows from its input's (S8) until the Concat behind it asks for one range."""
    graph = f"""net (float[1, 4, 8, 8] x) => (float[1, 8, 8, 8] y) {{
        a = Conv(x, w)
        {pair("a", "d")}
        g = Sigmoid(d)
        m = Mul(d, g)
        b = Conv(x, u)
        c = Concat <axis=1>(m, b)
        y = Conv(c, v)
    }}"""
    random = np.random.default_rng(2)
    arrays = {name: random.standard_normal((4, 4, 1, 1)).astype(np.float32) for name in "wu"}
    arrays.update(v=random.standard_normal((8, 8, 1, 1)).astype(np.float32), s=np.float32(0.1), z=np.int8(0))
    np.save(tmp_path / "x.npy", random.standard_normal((16, 4, 8, 8)).astype(np.float32))
    found = calibrated(model(graph, **arrays), tmp_path / "x.npy", preset="dla", platform="jetpack-6.2").scales
    assert found["a"].origin.rule == "Q1" and found["m"].origin.rule == "K1"
    assert found["m"].value == found["b"].value == found["c"].value


def test_a_silu_on_a_dla_is_one_set(data: Path) -> None:
    """The DLA computes the Sigmoid in FP16 and does not apply its scale: it follows the tensor that it gates at no cost."""
    options = TranslateOptions(
        calibrate=str(data), target="orin-dla", platform="jetpack-6.2", shapes=["x:1x3x8x8"], infer_bounds=True
    )
    translation = translate(block(), options)
    assert translation.scales["sig"].value == translation.scales["n"].value
    assert all("sig" not in ranges.before for ranges in translation.shared_ranges)


def test_milliseconds_that_causes_promise_are_those_that_data_gain(data: Path) -> None:
    before = translate(block(), TranslateOptions(target="orin-dla", shapes=["x:1x3x8x8"]))
    after = calibrated(block(), data, target="orin-dla", shapes=["x:1x3x8x8"])
    promised = sum(group.milliseconds or 0.0 for group in before.causes.groups)
    assert before.costs is not None and after.costs is not None
    gained = (before.costs.milliseconds or 0.0) - (after.costs.milliseconds or 0.0)
    assert promised > 0 and gained == pytest.approx(promised, rel=0.2)


@pytest.mark.parametrize("size", [0.02, 1.0])
def test_a_concat_that_would_swallow_an_input_stays_float(size: float, tmp_path: Path) -> None:
    """The class token of a ViT beside the patches."""
    text = f"""g (float[1,16,8] x) => (float[1,8] y) {{ {pair("x", "q")} c = Concat<axis=1>(token, q)
        t = Transpose<perm=[0,2,1]>(c) a = Add(t, place) b = Transpose<perm=[0,2,1]>(a)
        first = Gather<axis=1>(b, zero) y = MatMul(first, w) }}"""
    random = np.random.default_rng(0)
    token, place, w = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 1, 8), (1, 8, 17), (8, 8)))
    constants = {"token": token * np.float32(size), "place": place, "w": w, "zero": np.int64(0)}
    np.save(tmp_path / "x.npy", random.standard_normal((8, 16, 8)).astype(np.float32))
    made = calibrated(model(text, s=np.float32(3 / 127), z=np.int8(0), **constants), tmp_path / "x.npy")
    plan, told = {row.name: row for row in made.plan}, made.diagnostics.of_rule("C3")
    if size == 1:
        assert plan["Add_a"].precision == "int8" and not told and {"c", "t", "b"} <= made.scales.keys()
        return
    codes = np.round(constants["token"] / made.scales["x"].value)
    assert (
        10
        * np.log10((constants["token"] ** 2).sum() / ((constants["token"] - codes * made.scales["x"].value) ** 2).sum())
        < 10
    )
    assert not {"c", "t"} & made.scales.keys() and "b" in made.scales
    assert [note.tensor for note in told] == ["t"] and plan["Add_a"].precision != "int8"
    assert "'token', an input of the Concat, would have " in plan["Add_a"].reason
