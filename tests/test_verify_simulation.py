"""The simulated implicit engine, number by number against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

import qdq_translator as qt
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.verify import Options
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.simulate.compare import Setup, compare_outputs
from qdq_translator.lab.simulate.implicit import (
    JITTER,
    STEPS_INPUT,
    ImplicitNetwork,
    SimulationOptions,
    copy_model,
    jittered_steps,
    rounded_weight,
    simulate,
)
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.per_layer import LayerComparison, compare_layers
from qdq_translator.lab.simulate.run import ExplicitNetwork, Session, folded
from qdq_translator.lab.verification import verify
from qdq_translator.translation import translator
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.operators import OutputChannels
from qdq_translator.translation.qdq.restore import restore
from qdq_translator.translation.targets.precision import FP16, INT8
from tests.conftest import ZOO, need_shared, zoo_paths
from tests.small_models import rounded_at_inputs

pytest.importorskip("onnxruntime")


def network(
    text: str, scales: dict[str, float], precisions: dict[str, str] | None = None, **arrays: np.ndarray
) -> ImplicitNetwork:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    for name, value in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return ImplicitNetwork(model, scales, precisions or {}, frozenset())


def run(net: ImplicitNetwork, options: SimulationOptions, **feed: np.ndarray) -> dict[str, np.ndarray]:
    """With every scale applied."""
    return Session(simulate(net, options, placement=rounded_at_inputs(net)).model, "simulated").run(feed)


@pytest.mark.parametrize("fetch", [["x"], ["y", "x"]])
def test_an_input_that_is_fetched_is_the_array_that_was_given(fetch: list[str]) -> None:
    """ONNX Runtime 1.19 returned a view of it that did not keep it alive: histograms counted other values."""
    x = np.arange(6, dtype=np.float32)
    model = network("net (float[n] x) => (float[n] y) { y = Neg(x) }", {}).model
    found = Session(model, "float", fetch).run({"x": x})
    assert list(found) == fetch and found["x"] is x
    np.testing.assert_array_equal(found.get("y", -x), -x)


@pytest.mark.parametrize("rounding", ["even", "away"])
def test_rounding_of_ties_and_ends(rounding: str) -> None:
    net = network("net (float[n] x) => (float[n] y) { [neg] y = Neg(x) }", {"x": 0.5})
    codes = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, 400, -127.5, -128.5, -400, 0.49], np.float32)
    expected = {
        "even": [0, 2, 2, -0.0, -2, -2, 126, 127, 127, -128, -128, -128, 0],
        "away": [1, 2, 3, -1, -2, -3, 127, 127, 127, -128, -128, -128, 0],
    }[rounding]
    y = run(net, SimulationOptions(rounding=rounding), x=codes * np.float32(0.5))["y"]
    np.testing.assert_array_equal(y, -np.asarray(expected, np.float32) * np.float32(0.5))


@given(st.floats(2.0**-20, 2.0**10, width=32), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_rounding_is_that_of_quantizelinear(scale: float, seed: int) -> None:
    x = (np.random.default_rng(seed).normal(size=500) * scale * 60).astype(np.float32)
    net = network("net (float[n] x) => (float[n] y) { [neg] y = Neg(x) }", {"x": scale})
    expected = np.clip(np.rint(x / np.float32(scale)), -128, 127) * np.float32(scale)
    np.testing.assert_array_equal(run(net, SimulationOptions(), x=x)["y"], -expected.astype(np.float32))


def test_jittered_steps_round_equal_values_alike_and_each_tensor_and_seed_to_another() -> None:
    net = network("net (float[n] x) => (float[n] a, float[n] b) { a = Abs(x) b = Abs(x) }", {"a": 0.5, "b": 0.25})
    model = simulate(net, SimulationOptions(rounding="jittered"), placement=rounded_at_inputs(net)).model
    session = Session(model, "jittered")
    x = np.array([0, 9.3, 9.3, 1000, -1000], np.float32)  # Abs makes both ends the upper one
    found = [session.run({"x": x, STEPS_INPUT: jittered_steps(seed)}) for seed in (0, 1)]
    for values in found:
        for name, step in (("a", 0.5), ("b", 0.25)):
            zero, one, other, high, low = values[name]
            assert zero == 0 and one == other and abs(one - 9.3) <= 0.6 * step
            assert high == low == 127 * step
    assert len({float(values[name][1]) for values in found for name in "ab"}) == 4
    assert np.abs(np.log2(jittered_steps(3))).max() <= JITTER
    assert np.array_equal(jittered_steps(3), jittered_steps(3))


def test_one_scale_for_every_reader_and_the_output() -> None:
    net = network(
        "net (float[n] x) => (float[n] y, float[n] z, float[n] a) { [relu] a = Relu(x) [neg] y = Neg(a) [abs] z = Abs(a) }",
        {"a": 0.25},
    )
    x = np.array([0.1, 0.13, 7.7, 99], np.float32)
    values = run(net, SimulationOptions(), x=x)
    held = np.array([0, 0.25, 7.75, 31.75], np.float32)
    np.testing.assert_array_equal(values["a"], held)
    np.testing.assert_array_equal(values["y"], -held)
    np.testing.assert_array_equal(values["z"], held)


CONV = "net (float[1,2,2,2] x) => (float[1,2,2,2] y) { [conv] y = Conv<kernel_shape=[1,1]>(x, w) }"
WEIGHT = np.array([[0.3, -1.27], [0.101, 0.002]], np.float32).reshape(2, 2, 1, 1)


def test_weights_of_int8_layers_only() -> None:
    x = np.zeros((1, 2, 2, 2), np.float32)
    x[0, 1] = 1
    int8 = run(network(CONV, {"x": 1.0}, w=WEIGHT), SimulationOptions(), x=x)["y"]
    step = np.float32(0.101) / np.float32(127)
    assert int8[0, 1, 0, 0] == np.rint(np.float32(0.002) / step) * step != np.float32(0.002)
    for net in (network(CONV, {}, w=WEIGHT), network(CONV, {"x": 1.0}, {"conv": "fp16"}, w=WEIGHT)):
        assert run(net, SimulationOptions(), x=x)["y"][0, 1, 0, 0] == np.float32(0.002)
    assert run(network(CONV, {"x": 1.0}, {"*": "fp16"}, w=WEIGHT), SimulationOptions(), x=x / 3)["y"][0, 1, 0, 0] == (
        np.float32(0.002) * (x / np.float32(3))[0, 1, 0, 0]
    )


def test_a_batched_product_has_one_scale_for_its_constant() -> None:
    """Fact 5.2: channels of their own have matrices only."""
    weight = np.array([[[1.0, 0.02], [0.3, 0.004]]], np.float32)
    net = network("net (float[1,1,2] x) => (float[1,1,2] y) { [m] y = MatMul(x, w) }", {"x": 0.5, "y": 0.01}, w=weight)
    x = np.array([[[0.5, 1.0]]], np.float32)
    scale = np.float32(1 / 127)
    rounded = np.rint(weight / scale) * scale
    assert np.abs(rounded[0, :, 1] - weight[0, :, 1]).max() > 0.002
    np.testing.assert_allclose(run(net, SimulationOptions(), x=x)["y"], x @ rounded, atol=0.0051)
    simulated = simulate(net, SimulationOptions(), placement=rounded_at_inputs(net)).model
    stored = {t.name: numpy_helper.to_array(t) for t in simulated.graph.initializer}
    np.testing.assert_allclose(stored["w_int8"], rounded, rtol=1e-6)


def test_float16_above_int8() -> None:
    x = np.full((1, 2, 2, 2), 1 / 3, np.float32)
    net = network(CONV, {}, w=WEIGHT)

    def half(v: np.ndarray) -> np.ndarray:
        return v.astype(np.float16).astype(np.float32)

    expected = half((half(WEIGHT)[:, :, 0, 0] * half(x)[0, :, 0, 0]).sum(axis=1))
    y = run(net, SimulationOptions(fp16=True), x=x)["y"]
    np.testing.assert_array_equal(y[0, :, 0, 0], expected)
    assert not np.array_equal(y, run(net, SimulationOptions(), x=x)["y"])
    int8 = network(CONV, {"x": 1.0}, w=WEIGHT)
    np.testing.assert_array_equal(
        run(int8, SimulationOptions(fp16=True), x=x)["y"], run(int8, SimulationOptions(), x=x)["y"]
    )


def test_sigmoid_in_float16_takes_no_codes() -> None:
    text = "net (float[n] x) => (float[n] y) { [s] a = Sigmoid(x) [m] y = Mul(a, x) }"
    net = network(text, {"x": 0.05, "a": 0.05})
    x = np.array([1.23, -0.77, 3.1], np.float32)
    held = (np.rint(x / np.float32(0.05)) * np.float32(0.05)).astype(np.float32)
    half = x.astype(np.float16).astype(np.float32)
    sigmoid = (1 / (1 + np.exp(-half))).astype(np.float16).astype(np.float32)
    y = run(net, SimulationOptions(sigmoid_fp16=True), x=x)["y"]
    np.testing.assert_allclose(y, sigmoid * held, rtol=1e-3)
    coarse = run(net, SimulationOptions(), x=x)["y"]
    rounded = np.rint(1 / (1 + np.exp(-held)) / 0.05) * 0.05
    np.testing.assert_allclose(coarse, rounded * held, rtol=1e-5)


def test_grouped_transposed_convolution_has_a_scale_per_group_and_channel() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3, 2, 2)).astype(np.float32)
    got = rounded_weight(weight, OutputChannels(1, 2), "even")
    for group in range(2):
        for channel in range(3):
            part = weight[2 * group : 2 * group + 2, channel]
            step = np.abs(part).max() / np.float32(127)
            np.testing.assert_allclose(got[2 * group : 2 * group + 2, channel], np.rint(part / step) * step, rtol=1e-6)
    np.testing.assert_allclose(
        rounded_weight(weight, OutputChannels(1, 1), "even"),
        rounded_weight(weight, OutputChannels(1, 2), "even"),
        atol=0.02,
    )
    flat = weight[:, :, 0, 0]
    np.testing.assert_array_equal(
        rounded_weight(flat, OutputChannels(1, 1), "even"),
        rounded_weight(flat.T.copy(), OutputChannels(0, 1), "even").T,
    )


def test_half_models_are_simulated() -> None:
    text = "net (float16[1,2,2,2] x) => (float16[1,2,2,2] y) { [conv] a = Conv<kernel_shape=[1,1]>(x, w) [relu] y = Relu(a) }"
    net = network(text, {"x": 0.1, "a": 0.03}, w=WEIGHT.astype(np.float16))
    for rounding in ("even", "away"):
        y = run(net, SimulationOptions(rounding=rounding), x=np.full((1, 2, 2, 2), 0.31, np.float16))["y"]
        assert y.dtype == np.float16
        codes = y.astype(np.float32) / np.float32(0.03)
        np.testing.assert_allclose(codes, np.rint(codes), atol=2e-3)


def with_every_scale(path: Path, folder: Path, count: int) -> tuple[dict[str, Comparison], LayerComparison]:
    """The explicit model against the simulation that applies every scale, outputs and layers."""
    network = ImplicitNetwork.read(TranslationFiles.locate(folder))
    explicit = ExplicitNetwork.of(load_model(path)[0])
    simulated = simulate(network, placement=rounded_at_inputs(network))
    samples = random_samples(input_specs(network.model, {}), network.scales, count, 0)
    setup = Setup(network, SimulationOptions(), explicit, simulated, samples)
    return compare_outputs(setup, None, {})[0], compare_layers(setup)


@pytest.mark.parametrize("rounding", ["even", "away"])
def test_half_models_add_up_codes_without_float16(rounding: str) -> None:
    """1024 products of 127 and 127 are far beyond float16; the code that comes out is that of integers."""
    channels = 1024
    text = f"""net (float16[1,{channels},1,2] x) => (float16[1,1,1,2] y) {{
        [conv] a = Conv<kernel_shape=[1,1]>(x, w, b) [relu] r = Relu(a) [neg] y = Neg(r) }}"""
    rng = np.random.default_rng(0)
    codes = rng.integers(100, 128, (1, channels, 1, 2))
    weight = rng.integers(-124, 128, (1, channels, 1, 1))
    weight[0, 0, 0, 0] = 127
    scales = {"x": 2.0**-3, "a": 4.0, "r": 4.0}
    arrays = {"w": (weight * 2.0**-7).astype(np.float16), "b": np.array([0.25], np.float16)}
    x = (codes * scales["x"]).astype(np.float16)
    y = run(network(text, scales, **arrays), SimulationOptions(rounding=rounding), x=x)["y"]
    total = np.abs(np.einsum("nchw,ochw->nohw", codes, weight) * 2.0**-10 + 0.25)
    assert np.all((total > 100) & (total < 500)) and y.dtype == np.float16
    expected = np.floor(total / 4 + 0.5) if rounding == "away" else np.rint(total / 4)
    np.testing.assert_array_equal(y, -expected * 4)


FULLY_QUANTIZED = (
    "ort_s8",
    "ort_s8_qdqw",
    "ort_s8_entropy",
    "ort_s8_dedicated",
    "mo_dla_fp32",
    "nvpq13every",
    "nvpq13bothadd",
)
"""Dialects in which every layer that computes has Q/DQ at its inputs (ResNet, MobileNet, MLP, U-Net, YOLO)."""
REQUANTIZED = ("resnet18__ort_s8", "mobilenet_v2__ort_s8", "yolov5n__ort_s8")
"""Weights whose channels do not all reach +-127 (rule W1): equal by chance only."""


ZOO_MODELS = zoo_paths("mini/*.onnx")


@pytest.mark.parametrize("path", ZOO_MODELS, ids=lambda p: p.stem)
def test_verify_runs_on_the_zoo_as_planned_and_full_quantization_is_exact(path: Path, tmp_path: Path) -> None:
    """Each with every scale, or by the command: every architecture has several dialects."""
    turn, path = ZOO_MODELS.index(path) % 2, need_shared(path)
    name = path.stem
    if name == "mlp__mo_fp32":
        pytest.skip("ModelOpt left this one alone: there is nothing to translate")
    translation = translator.translate(path, TranslateOptions(asymmetric="widen", per_channel_activations="max"))
    files = translation.save(tmp_path)
    plan = {layer.name: layer.precision for layer in translation.plan}
    placement = simulate(ImplicitNetwork.read(files)).placement
    assert placement.int8 == {layer for layer, precision in plan.items() if precision == INT8}
    assert placement.higher == {layer for layer, precision in plan.items() if precision == FP16}
    full = name.partition("__")[2] in FULLY_QUANTIZED
    if full or turn:
        compared, layers = with_every_scale(path, tmp_path, 1)
        assert all(row.cosine > 0.5 or "u8" in name for row in compared.values())
    else:
        results = verify(Options(model=str(path), translation=str(tmp_path), samples=1, per_layer=True))
        assert all(row["non_finite"] == 0 for row in results["outputs"]["pairs"][0]["outputs"].values())
        assert len(results["per_layer"]["layers"]) >= 7
        counts = results["simulation"]["layers_in_int8"], results["simulation"]["layers_above_int8"]
        assert counts == (len(placement.int8), len(placement.higher))
    if full:
        exact = not name.startswith(REQUANTIZED)
        # a BatchNormalization folded into weights (rule F1) can move a code now and then
        assert all(row.identical or row.sqnr_db > (45 if exact else 25) for row in compared.values())
        assert not layers.jumps or not exact


@pytest.mark.parametrize(
    "name", ["mlp__ort_s8", "unet__ort_s8", "vit__ort_s8", "mobilenet_v2__mo_dla_fp32", "yolov8n__mo_dla_fp32"]
)
def test_fully_quantized_models_are_equal_bit_for_bit(zoo: Path, tmp_path: Path, name: str) -> None:
    """No BatchNormalization is left to fold, every weight channel reaches +-127: nothing may differ."""
    path = zoo / "mini" / f"{name}.onnx"
    translation = translate(path, TranslateOptions())
    translation.save(tmp_path)
    assert all(row.exact for row in translation.weights)
    rows, _ = with_every_scale(path, tmp_path, 2)
    assert rows and all(row.identical for row in rows.values())


def test_a_restored_model_is_its_own_simulation(tmp_path: Path) -> None:
    """Stripped model and cache, made explicit again and translated again: equal bit for bit, without BatchNormalization
    or a second rounding in between."""
    from tests.test_verify_faults import DIGITS

    first = translate(DIGITS, TranslateOptions(infer_average_pool_scales=True, infer_concat_scales=True))
    explicit = restore(copy_model(first.model), first.cache.scales).model
    onnx.save(explicit, tmp_path / "explicit.onnx")
    translate(tmp_path / "explicit.onnx", TranslateOptions()).save(tmp_path / "t")
    rows, _ = with_every_scale(tmp_path / "explicit.onnx", tmp_path / "t", 8)
    assert rows["logits"].identical and plain(rows["logits"].row())["sqnr_db"] is None


@pytest.mark.parametrize(
    "stem",
    ["unet__ort_s8", "unet__mo_dla_fp32", "tfdw__tf_pertensor", "brevnet_int8__brevitas", "resnet18__mo_dla_fp16"],
)
def test_constants_computed_once_change_no_output(stem: str) -> None:
    explicit = ExplicitNetwork.of(load_model(need_shared(ZOO / "mini" / f"{stem}.onnx"))[0])
    once = folded(explicit.model)
    dtypes = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in once.graph.input}
    random = np.random.default_rng(0)
    feed = {
        v.name: random.standard_normal([d.dim_value or 1 for d in v.type.tensor_type.shape.dim]).astype(dtypes[v.name])
        for v in once.graph.input
    }
    expected = Session(explicit.model, "explicit", one_thread=True).run(feed)
    found = Session(once, "explicit", one_thread=True).run(feed)
    constants = {t.name for t in once.graph.initializer}
    half = any(t.data_type == onnx.TensorProto.FLOAT16 for t in once.graph.initializer)
    left = [n for n in once.graph.node if n.op_type == "DequantizeLinear" and set(n.input) <= constants]
    assert half or not left
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5 * float(np.abs(values).max()))


_TWICE = {
    8: '<mode = "nearest", scales = [1.0, 1.0, 2.0, 2.0]> (c)',
    9: '<mode = "nearest"> (c, twice)',
    13: '<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (c, none, twice)',
}


@pytest.mark.parametrize("opset", [7, 8, 9, 10])
def test_networks_older_than_quantize_linear_are_simulated(opset: int, tmp_path: Path) -> None:
    """Exports of 2018 and 2019 lose what the same network loses in opset 13, in the simulation and in `explicit`, which keeps names."""
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(4, 3, 3, 3)), "v": rng.normal(size=(4, 5)), "b": rng.normal(size=5)}
    later = {"low": np.zeros(()), "high": np.full((), 6.0), "none": np.zeros(0)}
    data, found = tmp_path / "data.npz", []
    np.savez(data, x=rng.normal(size=(16, 2, 3, 8, 8)).astype(np.float32))
    for number in (opset, 13):
        clipped = "<min = 0.0, max = 6.0> (a)" if number < 11 else "(a, low, high)"
        doubled = ("Upsample " if number < 10 else "Resize ") + _TWICE[8 if number < 9 else 9 if number < 11 else 13]
        given = onnx.parser.parse_model(
            f"""<ir_version: 4, opset_import: ["" : {number}]> old (float[2, 3, 8, 8] x) => (float[2, 5] y) {{
            a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w) c = Clip {clipped} u = {doubled}
            p = AveragePool <kernel_shape = [16, 16]> (u) f = Flatten (p) g = Gemm (f, v, b) y = Softmax <axis = 1> (g) }}"""
        )
        used = {**arrays, **({"twice": np.array([1, 1, 2, 2])} if number > 8 else {}), **(later if number > 10 else {})}
        given.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), name) for name, a in used.items())
        path = tmp_path / f"old{number}.onnx"
        onnx.save(given, path)
        made = qt.translate(str(path), calibrate=str(data))
        told = qt.verify(str(path), made, data=str(data))
        found.append(told.to_dict()["verdict"]["outputs"]["y"]["sqnr_db"])
        explicit = qt.explicit(str(path), calibrate=str(data))
        rounded = {node.input[0] for node in explicit.model.graph.node if node.op_type == "QuantizeLinear"}
        assert {"c", "u"} <= rounded
    assert 15 < found[0] < 80 and abs(found[0] - found[1]) < 0.01
