"""restore: Q/DQ from a cache, and the round trip restore -> translate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, Translation, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import ModelError, UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.rules import STATED
from qdq_translator.translation import translator
from qdq_translator.translation.ir.bounds import value_range
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.dialects import is_unary_marker
from qdq_translator.translation.qdq.pairs import weight_scales
from qdq_translator.translation.qdq.restore import GIVEN, STAYS_FLOAT, UNARY, Restored, restore
from tests.conftest import need_shared
from tests.small_models import model, pair, parse
from tests.test_networks_by_chance import network
from tests.test_zoo_function import MODELS, REFUSED

ort = pytest.importorskip("onnxruntime")
ROOT = Path(__file__).resolve().parents[1]
OPTIONS = TranslateOptions(trt_calib_version="100300", asymmetric="widen", per_channel_activations="max")


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def pairs(restored: Restored) -> list[str]:
    return restored.all(GIVEN)


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Floats: integers are indices, which rule F10 may write under another name."""
    floats = [t for t in model.graph.initializer if t.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)]
    return {t.name: numpy_helper.to_array(t) for t in floats}


def conv_net(opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    """x -> Conv -> Relu -> Conv -> y, weights w0 and w1 (4, 4, 1, 1) unless given."""
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        net (float[1,4,3,3] x) => (float[1,4,3,3] y) {{
            [first] a = Conv<kernel_shape=[1,1]>(x, w0)
            [relu] b = Relu(a)
            [second] y = Conv<kernel_shape=[1,1]>(b, w1)
        }}"""
    )
    rng = np.random.default_rng(0)
    for name in ("w0", "w1"):
        value = weights.get(name, rng.normal(size=(4, 4, 1, 1)).astype(np.float32))
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def ops(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def test_pairs_on_every_tensor_with_a_scale_and_on_the_weights() -> None:
    result = restore(conv_net(), {"x": 0.5, "b": 0.25})
    onnx.checker.check_model(result.model, full_check=True)
    assert pairs(result) == ["x", "b"] and list(result.weights) == ["w0", "w1"]
    assert ops(result.model).count("QuantizeLinear") == ops(result.model).count("DequantizeLinear") == 4
    assert [v.name for v in result.model.graph.input] == ["x"] and [v.name for v in result.model.graph.output] == ["y"]
    weights = weights_of(result.model)
    assert np.array_equal(weights["w0_scale"], np.abs(weights["w0"]).max(axis=(1, 2, 3)) / np.float32(127))
    x = np.random.default_rng(1).normal(size=(1, 4, 3, 3)).astype(np.float32)

    def rounded(v: np.ndarray, scale: object) -> np.ndarray:
        return np.clip(np.rint(v / scale), -128, 127) * scale

    def conv(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        scale = np.abs(w).max(axis=(1, 2, 3), keepdims=True) / np.float32(127)
        return np.einsum("oi,nihw->nohw", rounded(w, scale)[:, :, 0, 0], v)

    hidden = np.maximum(conv(rounded(x, 0.5), weights["w0"]), 0)
    expected = conv(rounded(hidden, 0.25), weights["w1"])
    np.testing.assert_allclose(run(result.model, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


def test_a_graph_output_keeps_its_name_and_is_rounded() -> None:
    result = restore(conv_net(), {"x": 0.5, "b": 0.25, "y": 0.125})
    onnx.checker.check_model(result.model, full_check=True)
    y = run(result.model, {"x": np.ones((1, 4, 3, 3), np.float32)})[0]
    assert np.array_equal(y, np.rint(y / 0.125) * 0.125)
    assert list(translate(result.model, OPTIONS).tensor_scales) == ["x", "a", "b", "y"]


def test_layers_of_the_layer_argument_stay_float() -> None:
    result = restore(conv_net(), {"x": 0.5, "b": 0.25}, {"second": "fp16", "elsewhere": "fp16"})
    assert list(result.weights) == ["w0"] and pairs(result) == ["x"] and result.all(STAYS_FLOAT) == ["b"]
    assert result.unknown_layers == ["elsewhere"]
    by_name = {n.name: n for n in result.model.graph.node}
    assert list(by_name["second"].input) == ["b", "w1"]
    assert restore(conv_net(), {"x": 0.5, "b": 0.25}, {"second": "int8"}).weights.keys() == {"w0", "w1"}


def test_a_shared_tensor_is_rounded_for_float_layers_too() -> None:
    model = conv_net()
    model.graph.node.append(helper.make_node("Conv", ["b", "w1"], ["z"], "third", kernel_shape=[1, 1]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4, 3, 3]))
    result = restore(model, {"x": 0.5, "b": 0.25}, {"third": "fp16"})
    by_name = {n.name: n for n in result.model.graph.node}
    assert by_name["second"].input[0] == by_name["third"].input[0] == "b_dequantized"
    assert by_name["third"].input[1] == "w1" and by_name["second"].input[1] == "w1_dequantized"


def test_a_layer_without_all_input_scales_keeps_its_weights() -> None:
    assert restore(conv_net(), {"x": 0.5}).weights.keys() == {"w0"}


def test_real_caches_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = conv_net()
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == "b":
                    names[index] = "model/act: 0:1"
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "c.cache").write_text(
        "TRT-8510-EntropyCalibration2\r\nx: 3c010a14\r\nmodel/act: 0:1: 3c010204\r\na: 7f800000\r\n"
        "(Unnamed Layer* 8) [Constant]_output: 0\r\ngone: 3c010204\r\nnonsense\r\n"
    )
    args = [
        "explicit", str(tmp_path / "m.onnx"), "-c", str(tmp_path / "c.cache"), "--for", "onnxruntime", "-o",
        str(tmp_path / "q.onnx"),
    ]  # fmt: skip
    assert main([*args, "--json"]) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary["tensors"] == 2 and summary["weights"] == 2
    assert summary["left_out"]["unusable"] == ["a"] and summary["left_out"]["unreadable"] == ["nonsense"]
    assert summary["left_out"]["unknown"] == ["(Unnamed Layer* 8) [Constant]_output", "gone"]
    assert "2 cache entries name no tensor of the model" in err
    restored = onnx.load(tmp_path / "q.onnx")
    assert weights_of(restored)["model/act: 0:1_scale"] == np.float32(1 / 127)
    assert main(args) == 0
    assert "Q/DQ on 2 tensors and 2 weights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scales", "message"),
    [({"other": 0.5}, "has 0 of the names in the calibration cache and lacks 1"), (None, "already has Q/DQ nodes")],
)
def test_what_cannot_be_restored_is_said(scales: dict[str, float] | None, message: str) -> None:
    model = conv_net() if scales else restore(conv_net(), {"x": 0.5}).model
    with pytest.raises(UserError, match=message):
        restore(model, scales or {"x": 0.5})


def test_an_old_opset_is_raised() -> None:
    result = restore(conv_net(opset=9), {"x": 0.5, "b": 0.25})
    assert result.model.opset_import[0].version == 13
    onnx.checker.check_model(result.model, full_check=True)


def test_the_unary_marker_is_no_range() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1,4,3,3] x) => (float[1,4,3,3] y) { a = Conv(x, w0) b = Add(a, x) y = Relu(b) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w0"))
    assert is_unary_marker(Graph.from_model(copy(model)), "a", 1.0)
    assert not is_unary_marker(Graph.from_model(copy(model)), "a", 0.5)
    result = restore(model, {"x": 1.0, "a": 1.0, "b": 1.0})
    assert result.all(UNARY) == ["a"] and pairs(result) == ["x", "b"]


def test_grouped_conv_transpose_shares_scales_between_groups() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1,4,3,3] x) => (float[1,4,6,6] y) {
            y = ConvTranspose<group=2, kernel_shape=[2,2], strides=[2,2]>(x, w)
        }"""
    )
    weight = np.random.default_rng(0).normal(size=(4, 2, 2, 2)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    result = restore(model, {"x": 0.5})
    assert result.weights == {"w": True}
    assert np.array_equal(weights_of(result.model)["w_scale"], np.abs(weight).max(axis=(0, 2, 3)) / np.float32(127))


@given(scale=st.floats(2.0**-60, 2.0**20, width=32), codes=st.lists(st.integers(-127, 127), min_size=1, max_size=20))
@settings(max_examples=400, deadline=None)
def test_weights_on_a_full_grid_come_back_bit_for_bit(scale: float, codes: list[int]) -> None:
    weight = (np.asarray([[*codes, 127]], np.float32) * np.float32(scale)).astype(np.float32)
    found = weight_scales(weight, 0)
    again = np.rint(weight / found[:, None]).astype(np.float32) * found[:, None]
    assert np.array_equal(again, weight)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20))
@settings(max_examples=400, deadline=None)
def test_rounding_any_weight_twice_is_rounding_it_once(values: list[float]) -> None:
    weight = np.asarray([values], np.float32)

    def bake(w: np.ndarray) -> np.ndarray:
        scale = weight_scales(w, 0)[:, None]
        return np.clip(np.rint(w / scale), -127, 127).astype(np.float32) * scale

    once = bake(weight)
    assert np.array_equal(bake(once), once)


def test_some_scales_need_the_neighbour() -> None:
    """Why `max|w| / 127` alone is not enough: near one scale in two hundred it misses the grid by one bit."""
    scale = np.random.default_rng(0).uniform(1, 2, 20000).astype(np.float32)
    weight = scale[:, None] * np.float32(127)
    plain = weight[:, 0] / np.float32(127)
    assert 0 < np.count_nonzero(plain != scale) < 400
    found = weight_scales(weight, 0)
    assert np.array_equal(found * np.float32(127), weight[:, 0])


def saturated_by_pairs(first: Translation, second: Translation) -> set[str]:
    """The outputs of the Clips that only `first` has. The restored pair of the Clip's input saturates at its bounds: rule F12
    leaves the Clip out."""
    kept = {name for node in second.model.graph.node for name in node.output}
    gone = {node.output[0]: node for node in first.model.graph.node if node.output[0] not in kept}
    for name, node in gone.items():
        low, high = (float(first.graph.array(bound)) for bound in node.input[1:])
        scale = first.scales[name].value
        assert node.op_type == "Clip" and first.scales.value(node.input[0]) == scale
        least = min(0.0, value_range(first.graph, node.input[0])[0])
        assert low <= max(-128 * scale, least) * (1 - 1e-6) and high >= 127 * scale * (1 - 1e-6)
    return set(gone)


def round_trip(model: object, options: TranslateOptions, half: bool = False) -> None:
    """The cache byte for byte; every code; the weights bit for bit where no BatchNormalization was folded into them.
    half: the model's weights were rounded to float16, which the restored pairs no longer do (rule F9)."""
    first = translate(model, options)  # type: ignore[arg-type]
    if not first.tensor_scales:  # only weights, or only dead ends, were quantized: there is nothing to restore from
        return
    for precisions in ({}, dict.fromkeys(first.fp16_nodes, "fp16"))[: 1 + bool(first.fp16_nodes)]:
        restored = restore(copy(first.model), first.cache.scales, precisions)
        onnx.checker.check_model(restored.model, full_check=True)
        second = translator.translate(restored.model, options)
        idle = saturated_by_pairs(first, second)
        lines = first.cache.to_text().splitlines()
        assert second.cache.to_text().splitlines() == [line for line in lines if line.split(": ")[0] not in idle]
        left = [n.op_type for n in first.model.graph.node if n.output[0] not in idle]
        assert [n.op_type for n in second.model.graph.node] == left
        exact = {row.weight for row in first.weights if row.exact}
        before, after = weights_of(first.model), weights_of(second.model)
        bounds = {name for n in first.model.graph.node if n.output[0] in idle for name in n.input[1:]}
        assert set(after) <= set(before) and set(before) - set(after) <= bounds
        before = {name: before[name] for name in after}
        for name, value in before.items():
            if name in exact or name not in restored.weights:
                np.testing.assert_allclose(after[name], value, rtol=1e-3 if half else 3e-7, atol=0, err_msg=name)
        if precisions:  # the weights of fewer layers are restored
            continue
        third = translator.translate(restore(copy(second.model), second.cache.scales).model, options)
        for name, value in weights_of(third.model).items():
            assert np.array_equal(value, after[name]), name


@pytest.mark.parametrize("seed", range(30))
def test_round_trip_of_networks_by_chance(seed: int) -> None:
    model, _ = network(seed)
    round_trip(model, OPTIONS)


@pytest.mark.parametrize("path", [p for p in MODELS if p.stem not in REFUSED], ids=lambda p: p.stem)
def test_round_trip_of_the_zoo(path: Path) -> None:
    round_trip(need_shared(path), OPTIONS, half="fp16" in path.stem)


def test_weights_come_back_bit_for_bit_without_folding(zoo: Path) -> None:
    first = translate(zoo / "mini" / "mobilenet_v2__mo_dla_fp32.onnx", OPTIONS)
    restored = restore(copy(first.model), first.cache.scales)
    second = translate(restored.model, OPTIONS)
    before, after = weights_of(first.model), weights_of(second.model)
    assert len(restored.weights) == 53
    assert all(after[name].tobytes() == value.tobytes() for name, value in before.items())


def test_the_restored_model_computes_what_the_explicit_one_does(zoo: Path) -> None:
    path = zoo / "mini" / "mlp__nvpq17.onnx"
    explicit = onnx.load(path)
    first = translate(path, OPTIONS)
    restored = restore(copy(first.model), first.tensor_scales).model
    shape = [d.dim_value or 1 for d in explicit.graph.input[0].type.tensor_type.shape.dim]
    feeds = {explicit.graph.input[0].name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    np.testing.assert_array_equal(run(restored, feeds)[0], run(explicit, feeds)[0])


def test_every_zoo_cache_of_the_other_translator_is_taken(zoo: Path) -> None:
    folder = need_shared(zoo / "reference_outputs" / "yolov5n__nvpq13")
    cache = next(folder.rglob("*.cache"))
    stripped = translate(zoo / "mini" / "yolov5n__nvpq13.onnx", OPTIONS).model
    scales = CalibrationCache.from_text(cache.read_text()).scales
    result = restore(stripped, scales)
    onnx.checker.check_model(result.model, full_check=True)
    assert len(pairs(result)) >= 50 and len(result.weights) > 50


def test_restore_needs_no_onnxruntime() -> None:
    code = "import sys; import qdq_translator.translation.qdq.restore; print('onnxruntime' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        == "False\n"
    )


def test_a_stated_scale_before_a_bias_comes_back(tmp_path: Path) -> None:
    """Between a MatMul and the Add of its bias, through the files and the command line."""
    rng = np.random.default_rng(0)
    text = f"""net (float[2,8] x) => (float[2,8] y) {{ {pair("x", "xq", "s")} a = MatMul(xq, w) {pair("a", "aq", "t")}
        c = Add(aq, b) {pair("c", "cq", "s")} y = Relu(cq) }}"""
    weights = {"w": rng.standard_normal((8, 8)).astype(np.float32), "b": rng.standard_normal(8).astype(np.float32)}
    given = model(text, **weights, s=np.float32(0.03), t=np.float32(0.11), z=np.int8(0))
    first = translate(given, TranslateOptions(), name="net")
    files = first.save(tmp_path)
    out = str(tmp_path / "back.onnx")
    assert main(["explicit", str(files.model), "-c", str(files.cache), "--for", "onnxruntime", "-o", out]) == 0
    second = translate(out, TranslateOptions())
    stated = {n: first.tensor_scales[n] for n, origin in first.scale_origins.items() if origin.rule in STATED}
    assert {"x", "a", "c"} <= set(stated)
    assert {name: second.tensor_scales.get(name) for name in stated} == stated
    assert all(second.scale_origins[name].rule in STATED for name in stated)


def test_a_network_that_would_have_no_pair_is_an_error() -> None:
    text = "net (float[2,8] x) => (float[2,8] y) { [r] y = Relu(x) }"
    with pytest.raises(UserError, match="No tensor of the model would get Q/DQ"):
        restore(model(text), {"x": 0.1}, {"r": "fp16"})


def test_a_damaged_model_is_refused() -> None:
    made = model("net (float[1,2,4,4] x) => (float[1,2,4,4] y) { y = Mul(x, c) }", c=np.ones((1, 2, 1, 1), np.float32))
    made.graph.initializer[0].data_type = 99
    with pytest.raises(ModelError, match="unknown element type 99"):
        restore(made, {"x": 0.1})


def test_a_cache_of_another_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One tensor in common is not enough; names that TensorRT makes up do not count against it."""
    made = translate(EXAMPLE_MODEL)
    made.save(tmp_path / "t")
    scales = {"input": 0.01, **{f"other{i}": 0.1 for i in range(4)}}
    caches = {
        "foreign": scales,
        "automatic": {name if name == "input" else f"{name}_output": scale for name, scale in scales.items()},
    }
    for name, status in (("foreign", 1), ("automatic", 0)):
        (tmp_path / name).write_text(CalibrationCache("8600", caches[name]).to_text())
        output = tmp_path / f"{name}.onnx"
        model = str(tmp_path / "t" / f"{EXAMPLE_MODEL.stem}_noqdq.onnx")
        assert (
            main(["explicit", model, "-c", str(tmp_path / name), "--for", "onnxruntime", "-o", str(output)]) == status
        )
        assert output.exists() == (status == 0)
    assert "another network" in capsys.readouterr().err


MLP = (
    "g (float[1,4] input) => (float[1,4] output) { fc1 = MatMul (input, w) act = Relu (fc1) output = MatMul (act, w) }"
)


@pytest.mark.parametrize("way", ["restore", "scales", "calib_cache"])
@pytest.mark.parametrize(("tensors", "fits"), [
    (("input", "fc1", "act", "output"), True),
    (("act",), True),
    (("input", "fc1", "gone", "gone2"), False),
    (("input", "fc1", "gone"), True),
    (("input", "output"), True),  # nothing else to go by
    (("input", "output", "layer1", "layer2"), False),
    (("input", "(Unnamed Layer* 3) [Constant]_output"), True),
])  # fmt: skip
def test_a_cache_of_another_network_is_refused_however_small(
    tensors: tuple[str, ...], fits: bool, way: str, tmp_path: Path
) -> None:
    """Names of inputs and outputs, alike in all networks, are no evidence; every way in has the same rule."""
    weight = np.eye(4, dtype=np.float32)
    network, scales = model(MLP, w=weight), dict.fromkeys(tensors, 0.05)
    cache = CalibrationCache("8600", scales)
    (tmp_path / "c.cache").write_text(cache.to_text())

    def run_it() -> object:
        if way == "restore":
            return restore(copy(network), scales)
        if way == "scales":
            return translator.translate(network, TranslateOptions(scales=str(tmp_path / "c.cache")))
        return translator.translate(network, TranslateOptions(platform="jetpack-6.2"), given=scales, explicit=True)

    if fits:
        assert run_it() is not None
    else:
        with pytest.raises(UserError, match="the scales were made for another network"):
            run_it()
