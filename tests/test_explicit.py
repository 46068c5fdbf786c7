"""`explicit`: where the pairs are, the three forms, completeness, function, round trip, and what TensorRT-RTX makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.symmetric import quantize_symmetric
from e2e_workflow.glyphs import sensitive
from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.errors import UserError
from qdq_translator.translation.explicit import ExplicitOptions, explicit
from qdq_translator.translation.qdq.explicit import quantized_weight
from tests import rtx
from tests.conftest import OWN_MODELS, SHARED, need_shared
from tests.explicit_reference import random_inputs
from tests.record_models import explicit_models
from tests.small_models import model, pair

ort = pytest.importorskip("onnxruntime")

RESIDUAL = explicit_models()["residual"]


def run(network: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """In ONNX Runtime, without its fusions of Q/DQ: they do not know float16 scales."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    """In dB. With `--dla_output 4d` an output has further dimensions of size 1."""
    got = got.reshape(wanted.shape)
    error = float(np.square(wanted.astype(np.float64) - got.astype(np.float64)).sum())
    return 10 * np.log10(float(np.square(wanted.astype(np.float64)).sum()) / max(error, 1e-30))


FP32 = ExplicitOptions(float_type="fp32")


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_weight_without_trained_values_gets_tensorrts_own(axis: Any) -> None:
    values = np.random.default_rng(3).normal(size=(6, 5)).astype(np.float32)
    values[2] = 0
    stored, scale = quantized_weight(values, axis)
    others = None if axis is None else 1 - axis
    wanted = np.abs(values).max(axis=others) / 127
    np.testing.assert_allclose(scale, np.where(wanted > 0, wanted, 1), rtol=2e-7)
    spread = scale if axis is None else np.expand_dims(scale, others)
    assert np.abs(stored * spread - values).max() <= 0.5001 * scale[wanted > 0].max() if axis is not None else True
    assert stored.shape == values.shape and np.abs(stored.astype(int)).max() == 127


def test_the_function_is_that_of_the_input_model() -> None:
    """Where pairs were left out (behind c2) the rounding of one tensor is gone; else the same values."""
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)}
    wanted = run(RESIDUAL, feeds)[0]
    for how in (FP32, ExplicitOptions(), ExplicitOptions(scale_type="fp32")):
        made = explicit(RESIDUAL, how=how).model
        onnx.checker.check_model(made, full_check=True)
        if how.scale_type != "fp32":  # ONNX Runtime's optimizer gives a Conv behind such a DQ a bias in float32
            assert sqnr(wanted, run(made, feeds)[0]) > 30


def without_pair(name: str) -> onnx.ModelProto:
    """RESIDUAL with that tensor read as float."""
    bare = onnx.ModelProto()
    bare.CopyFrom(RESIDUAL)
    for node in bare.graph.node:
        node.input[:] = [name if tensor == f"{name}d" else tensor for tensor in node.input]
    for made in (f"{name}d_q", f"{name}d"):
        bare.graph.node.remove(next(n for n in bare.graph.node if n.output[0] == made))
    return bare


def test_a_network_for_a_dla_is_complete_or_refused() -> None:
    dla = TranslateOptions(target="orin-dla")
    with pytest.raises(UserError, match=r"for the DLA without a scale .*'Conv_c2' \('r1'\).*--calibrate"):
        explicit(without_pair("r1"), dla)


def test_zero_points_stay_for_orins_dla() -> None:
    """uint8 with a zero point and float32 scales, as the parser's flag asks for; the finer steps of the model are kept."""
    text = f"""
g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y)
<float s = {{0.03}}, float sw = {{0.01}}, int8 z = {{0}}, uint8 u = {{100}}, int8 i = {{-128}}>
{{
  q = QuantizeLinear(x, s, u)
  xd = DequantizeLinear(q, s, u)
  {pair("w", "wd", "sw")}
  c = Conv(xd, wd)
  r = Relu(c)
  rq = QuantizeLinear(r, s, i)
  rd = DequantizeLinear(rq, s, i)
  m = MaxPool<kernel_shape=[1, 1]>(rd)
  {pair("v", "vd", "sw")}
  y = Conv(m, vd)
}}"""
    arrays = {n: np.random.default_rng(i).uniform(-1, 1, (4, 4, 1, 1)).astype(np.float32) for i, n in enumerate("wv")}
    given = model(text, opset=13, **arrays)
    options = TranslateOptions(target="orin-dla", asymmetric="keep")
    feeds = {"x": np.random.default_rng(3).normal(size=(1, 4, 6, 6)).astype(np.float32)}
    wanted = run(given, feeds)[0]
    made = explicit(given, options, ExplicitOptions("fp32"))
    assert made.to_dict()["zero_points"] == {"x": 100, "r": 0, "m": 0}
    assert made.to_dict()["parser_flags"][1] == "enable_uint8_and_asymmetric_quantization_dla"
    np.testing.assert_allclose(run(made.model, feeds)[0], wanted, atol=1e-5)
    half = explicit(given, options)
    assert half.to_dict()["form"] == "fp16-fp32scales"
    onnx.checker.check_model(half.model, full_check=True)
    scales = [half.graph.initializers[n.inputs[1]] for n in half.graph.of("QuantizeLinear")]
    assert {tensor.data_type for tensor in scales} == {TensorProto.FLOAT}
    widened = explicit(given, TranslateOptions(target="orin-dla", asymmetric="widen"), ExplicitOptions("fp32"))
    assert widened.to_dict()["zero_points"] == {} and sqnr(wanted, run(widened.model, feeds)[0]) < 60
    for refused in (lambda: explicit(given, TranslateOptions(asymmetric="keep")), lambda: translate(given, options)):
        with pytest.raises(UserError, match="asymmetric keep is for explicit networks on Orin's DLA"):
            refused()


def test_control_flow_stays_float32() -> None:
    """What a body reads from outside is cast for it."""
    text = f"""
g (float[1, 4, 6, 6] x, bool[1] c) => (float[1, 4, 6, 6] y)
<float s = {{0.03}}, float sw = {{0.01}}, int8 z = {{0}}>
{{
  {pair("x", "xd")}
  {pair("w", "wd", "sw")}
  a = Conv(xd, wd)
  b = If (c) <
    then_branch = t () => (float[1, 4, 6, 6] o) {{ o = Relu(a) }},
    else_branch = e () => (float[1, 4, 6, 6] o) {{ o = Neg(a) }}
  >
  y = Conv(b, wd)
}}"""
    given = model(text, opset=16, w=np.random.default_rng(1).uniform(-1, 1, (4, 4, 1, 1)).astype(np.float32))
    made = explicit(given)
    onnx.checker.check_model(made.model, full_check=True)
    feeds = {"x": np.random.default_rng(3).normal(size=(1, 4, 6, 6)).astype(np.float32)}
    for condition in (True, False):
        feeds["c"] = np.array([condition])
        assert sqnr(run(given, feeds)[0], run(made.model, feeds)[0]) > 40


def test_int8_inputs_and_outputs_compute_the_same() -> None:
    text = f"""
g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y)
<float s = {{0.03}}, float u = {{0.02}}, float sw = {{0.01}}, int8 z = {{0}}>
{{
  {pair("x", "xd")}
  {pair("w", "wd", "sw")}
  c = Conv(xd, wd)
  {pair("c", "y", "u")}
}}"""
    given = model(text, opset=13, w=np.random.default_rng(1).uniform(-1, 1, (4, 4, 1, 1)).astype(np.float32))
    made = explicit(given, how=ExplicitOptions("fp32", io_types="int8")).model
    assert {v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output)} == {TensorProto.INT8}
    stored = np.random.default_rng(2).integers(-128, 128, (1, 4, 6, 6)).astype(np.int8)
    wanted = run(given, {"x": stored * np.float32(0.03)})[0]
    np.testing.assert_allclose(run(made, {"x": stored})[0] * np.float32(0.02), wanted, atol=1e-6)


def test_a_cache_and_a_float_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(RESIDUAL, tmp_path / "m.onnx")
    translation = translate(tmp_path / "m.onnx", TranslateOptions(platform="jetpack-6.2"))
    files = translation.save(tmp_path)
    words = ["explicit", "-i", str(files.model), "-c", str(files.cache), "-o", str(tmp_path / "o"), "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["pairs"] == explicit(RESIDUAL).to_dict()["pairs"]
    files.cache.write_text("TRT-100300-EntropyCalibration2\nother: 3c010204\nnames: 3c010204\n")
    files.config.unlink()  # which knows another cache
    assert main(words) == 1
    assert "has 0 of the names in the calibration cache" in capsys.readouterr().err
    files.cache.write_text("TRT-100300-EntropyCalibration2\nx: 7f800000\nr1: 3c010204\n")
    assert main(words) == 1
    assert "has the scale inf for tensor 'x'" in capsys.readouterr().err


@pytest.mark.parametrize("words, said", [
    (["--platform", "jetpack-6.0"], "TensorRT 8 is not strongly typed"),
    (["--target", "xavier-dla"], "Xavier's DLA has no TensorRT 11"),
    (["--io_types", "int8"], "output 'y' cannot be INT8"),
])  # fmt: skip
def test_what_cannot_be_written_is_a_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(RESIDUAL, tmp_path / "m.onnx")
    assert main(["explicit", "-i", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o"), *words]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "o").exists()


def test_dynamic_sizes_and_foreign_operators(tmp_path: Path) -> None:
    free = onnx.ModelProto()
    free.CopyFrom(RESIDUAL)
    free.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    free.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    dla = TranslateOptions(preset="dla")
    with pytest.raises(UserError, match=r"'x' has dynamic sizes, and a DLA needs static ones.*--shapes x:"):
        explicit(free, dla)
    made = explicit(free, TranslateOptions(preset="dla", shapes=["x:2x4x6x6"]))
    assert [d.dim_value for d in made.model.graph.input[0].type.tensor_type.shape.dim] == [2, 4, 6, 6]
    foreign = onnx.ModelProto()
    foreign.CopyFrom(RESIDUAL)
    foreign.graph.node[-1].output[0] = "before"
    foreign.graph.node.append(helper.make_node("Special", ["before"], ["y"], "special", domain="my.ops"))
    foreign.opset_import.append(helper.make_opsetid("my.ops", 1))
    with pytest.raises(UserError, match=r"Special .*of domain 'my.ops' is not an ONNX operator"):
        explicit(foreign)


def test_a_trained_network_keeps_its_accuracy() -> None:
    """Top-1 of the network that ships, on its 64 labelled samples: within 0.1 points of the input model."""
    data = np.load(EXAMPLE_SAMPLES)

    def accuracy(network: onnx.ModelProto) -> float:
        scores = run(network, {"input": data["input"]})[0].reshape(64, -1)
        return 100 * float((scores.argmax(axis=1) == data["labels"]).mean())

    wanted = accuracy(onnx.load(EXAMPLE_MODEL))
    assert wanted > 90
    for options in (TranslateOptions(), TranslateOptions(preset="gpu")):
        for how in (FP32, ExplicitOptions()):
            assert abs(accuracy(explicit(EXAMPLE_MODEL, options, how).model) - wanted) <= 0.1
    dla = TranslateOptions(preset="dla", infer_average_pool_scales=True, shapes=["input:64x1x16x16"])
    assert abs(accuracy(explicit(EXAMPLE_MODEL, dla).model) - wanted) <= 0.1


def test_a_network_that_onnx_runtime_quantized_keeps_its_accuracy(tmp_path: Path) -> None:
    """Top-1 of the glyph network on its 240 stored images."""
    train, seen = sensitive.parts(sensitive.few(), smoke=True)
    quantize_symmetric(
        sensitive.FLOAT_MODEL, tmp_path / "q.onnx", iter([{"input": i[None]} for i in train.images[:32]])
    )

    def accuracy(network: onnx.ModelProto) -> float:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        session = ort.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = [session.run(None, {"input": image[None]})[0].argmax() for image in seen.images]
        return 100 * float(np.mean(found == seen.labels))

    wanted = accuracy(onnx.load(tmp_path / "q.onnx"))
    assert wanted > 80
    assert abs(accuracy(explicit(tmp_path / "q.onnx", how=FP32).model) - wanted) <= 0.1


def test_the_parser_makes_no_integer_arithmetic() -> None:
    """Of a Slice: its indices are INT32 (rule F10), so that TensorRT-RTX's parser makes one layer and constants of it."""
    text = f"""
g (float[1, 4, 6, 6] x) => (float[1, 2, 6, 6] y)
<float s = {{0.03}}, float sw = {{0.01}}, int8 z = {{0}}, int64[1] b = {{0}}, int64[1] e = {{2}}, int64[1] a = {{1}}>
{{
  {pair("x", "xd")}
  {pair("w", "wd", "sw")}
  c = Conv(xd, wd)
  y = Slice(c, b, e, a)
}}"""
    given = model(text, opset=13, w=np.ones((4, 4, 1, 1), np.float32))
    kinds = [layer.kind for layer in rtx.parse(explicit(given, how=FP32).model).layers]
    assert kinds.count("SLICE") == 1 and "ELEMENTWISE" not in kinds and "GATHER" not in kinds


NETWORKS = ["resnet18__ort_s8", "unet__mo_dla_fp32", "vit__ort_u8", "mlp__nvpq13", "brevnet_int8__brevitas"]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["fp32", "fp16", "dla"])
def test_networks_are_built_by_tensorrt_rtx(name: str, kind: str) -> None:
    """Parsed and built strongly typed by TensorRT-RTX 1.7 (GPU, no DLA); `benchmarks/explicit.py` builds the whole zoo.

    The function is that of the Q/DQ model, or nearer to the float network (rule P1 rounds less of a transformer)."""
    path = need_shared(OWN_MODELS / f"{name}.onnx")
    options = TranslateOptions(
        asymmetric="widen", preset="dla" if kind == "dla" else "gpu", infer_average_pool_scales=True
    )
    made = explicit(path, options, ExplicitOptions("fp32" if kind == "fp32" else "fp16"))
    assert made.to_dict()["layers"]["not_int8_though_planned"] == []
    assert rtx.build(made.model) == ()
    feeds = random_inputs(made.model, 1)
    wanted, got = run(onnx.load(path), feeds)[0], run(made.model, feeds)[0]
    exact = run(translate(path, TranslateOptions(asymmetric="widen")).model, feeds)[0]
    assert sqnr(wanted, got) > 15 or sqnr(exact, got) > sqnr(exact, wanted) + 3


@pytest.mark.parametrize("name", NETWORKS)
def test_a_round_trip_gives_the_same_scales(name: str) -> None:
    """Of every tensor that has a pair; those inside a fusion have none."""
    path = need_shared(OWN_MODELS / f"{name}.onnx")
    made = explicit(path, TranslateOptions(asymmetric="widen"), FP32)
    again = translate(made.model, TranslateOptions(platform="jetpack-6.2"))
    pairs = made.to_dict()["pairs"]
    assert pairs and {n: again.tensor_scales[n] for n in pairs} == pairs
    added = {n: o.rule for n, o in again.scale_origins.items() if n not in pairs}
    assert set(added.values()) <= {"S3", "F8"} and again.graph.outputs.keys() == made.translated.graph.outputs.keys()
    second = explicit(made.model, how=FP32)
    assert second.to_dict()["pairs"] == pairs and second.to_dict()["weights"].keys() == made.to_dict()["weights"].keys()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """NAME_explicit.onnx of the residual network, with its model beside it."""
    onnx.save(RESIDUAL, tmp_path / "m.onnx")
    return explicit(tmp_path / "m.onnx").save(tmp_path)


def test_trtexec_11_knows_every_flag(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against what the option parser of trtexec 11.1 accepts of 156 command lines."""
    vectors = json.loads(need_shared(SHARED / "trtexec" / "trtexec_11.1_vectors.json").read_text())
    answers = [(row["argv"], row["result"]["11.1"]) for row in vectors if "11.1" in row["result"]]
    refused = {flag for _, found in answers for flag in found["left"].split(" | ")}
    known = {word.split("=")[0] for argv, found in answers if found["status"] != "error" for word in argv} - refused
    assert {"--int8", "--calib", "--layerPrecisions"} <= refused
    onnx.save(explicit(RESIDUAL, TranslateOptions(preset="dla")).model, dla := written.with_name("d_explicit.onnx"))
    dla.with_name("d_explicit_report.json").write_text(
        json.dumps(explicit(RESIDUAL, TranslateOptions(preset="dla")).to_dict())
    )
    for words in (["-t", str(written)], ["-t", str(dla), "--dla_standalone"], ["-t", str(dla), "--allow_gpu_fallback"]):
        assert main(["build", "--print", *words]) == 0
        flags = {word.split("=")[0] for word in capsys.readouterr().out.split() if word.startswith("--")}
        assert flags <= known and not flags & refused
        if "--dla_standalone" in words:  # a standalone build without formats is refused
            assert {"--buildDLAStandalone", "--inputIOFormats", "--outputIOFormats", "--adjustForDLA"} <= flags
    assert main(["build", "--print", "-t", str(written), "--input_io_formats", "int8:dla_hwc4"]) == 2
    assert "carry no type" in capsys.readouterr().err
    assert main(["build", "--print", "-t", str(written), "--platform", "tensorrt-10.16.0"]) == 0
    assert "--stronglyTyped" in capsys.readouterr().out


def test_build_with_tensorrt_rtx(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rtx.bindings()
    assert main(["build", "-t", str(written), "--engine", "rtx"]) == 0
    assert "built by TensorRT-RTX 1.7" in capsys.readouterr().out
    assert (written.parent / "m_explicit.engine").stat().st_size > 1000


def test_verify_compares_the_network(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(written.parent / "t")
    assert main(["translate", "-i", str(written.parent / "m.onnx"), "-o", folder]) == 0
    capsys.readouterr()
    words = ["verify", "-i", str(written.parent / "m.onnx"), "-t", folder, "--explicit_network", str(written), "--json"]
    assert main(words) == 0
    pairs = json.loads(capsys.readouterr().out)["outputs"]["pairs"]
    row = next(p for p in pairs if p["other"] == "explicit network")
    assert row["reference"] == "explicit" and row["outputs"]["y"]["cosine"] > 0.999


def test_verify_needs_no_translation_for_a_network(
    written: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migrated network and its model, in one command."""
    monkeypatch.chdir(written.parent)
    words = ["verify", "m.onnx", "--explicit_network", written.name]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert f"{written.name} against m.onnx" in told and " dB, cosine 0.99" in told
    assert "Random inputs prove little" in told
    assert main([*words, "--json", "--save", "v.json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("v.json").read_text(encoding="utf-8"))
    assert main([*words, "--min_cosine", "0.9999999"]) == 1
    assert "--min_cosine requires" in capsys.readouterr().err
    other = onnx.load("m.onnx")
    other.graph.output[0].name = other.graph.node[-1].output[0] = "z"
    onnx.save(other, "other.onnx")
    assert main(["verify", "m.onnx", "--explicit_network", "other.onnx"]) == 1
    assert "differ from those of the model" in capsys.readouterr().err


@pytest.mark.parametrize("factor, same, status", [(100.0, True, 0), (100.0, False, 0), (1.0, True, 0), (1.0, False, 1)])
def test_a_model_that_amplifies_its_own_rounding(
    factor: float, same: bool, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the model's own quantizers change as much is no fault of the network, and is said; another function is one."""
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[2, 512] x) => (float[2, 512] y)
        <float s = {%s}, int8 z = {0}, float k = {%s}> { q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z) m = Mul (d, k) y = Sin (m) }"""
    onnx.save(onnx.parser.parse_model(text % (0.05, factor)), tmp_path / "m.onnx")
    other = text % (0.037, factor)
    onnx.save(onnx.parser.parse_model(other if same else other.replace("Sin", "Cos")), tmp_path / "other.onnx")
    assert main(["verify", str(tmp_path / "m.onnx"), "--explicit_network", str(tmp_path / "other.onnx")]) == status
    told = capsys.readouterr()
    assert ("The model's own rounding changes 'y' as much" in told.out) is (factor == 100)
    assert ("is not that of the model" in told.err) is (status == 1)


def test_random_inputs_that_saturate_the_model_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They tell nothing about another network; data of the user do."""
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[2, 512] x) => (float[2, 512] y)
        <float s = {%s}, int8 z = {0}, float k = {100}, float c = {40}> { m = Mul (x, k) q = QuantizeLinear (m, s, z)
        d = DequantizeLinear (q, s, z) n = Mul (d, c) y = Sin (n) }"""
    for name, scale in (("m", 0.01), ("other", 0.0098)):
        onnx.save(onnx.parser.parse_model(text % scale), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(0, 1, (8, 512)).astype(np.float32))
    given, network = str(tmp_path / "m.onnx"), ["--explicit_network", str(tmp_path / "other.onnx")]
    assert main(["verify", given, *network]) == 0
    assert "Random inputs exceed the model's ranges, which changes 'y' as much" in capsys.readouterr().out
    assert main(["verify", given, str(tmp_path / "data.npz"), *network]) == 1
    assert "is not that of the model" in capsys.readouterr().err


def layer_info(*layers: tuple[str, str, str]) -> str:
    """name, type of the inputs, type of the outputs."""
    rows = [
        {
            "Name": name,
            "LayerType": "Reformat" if "Linear" in name else "CaskConvolution",
            "Inputs": [{"Name": "i", "Format/Datatype": read}],
            "Outputs": [{"Name": "o", "Format/Datatype": made}],
        }
        for name, read, made in layers
    ]
    return json.dumps({"Layers": rows, "Bindings": ["x", "y"]})


@pytest.mark.parametrize("layer, pattern, cure", [
    ("QuantizeLinear_c2d_q", "", ""),
    ("DequantizeLinear_w + DequantizeLinear_r2d", "in front of Transpose 'Transpose_m'",
        "Put the pair behind 'Transpose_m'"),
    ("QuantizeLinear_xd_q", "graph input 'x'", "--io_types int8"),
])  # fmt: skip
def test_why_a_pair_did_not_fuse(layer: str, pattern: str, cure: str, tmp_path: Path, capsys: Any) -> None:
    """Of the network as exported, which has a pair in front of the Transpose."""
    named = onnx.ModelProto()
    named.CopyFrom(RESIDUAL)
    for node in named.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    onnx.save(named, tmp_path / "m.onnx")
    int8, half = "Row major Int8 format", "Row major linear FP16 format"
    info = layer_info((layer, half, int8), ("Conv_c1 + Relu_r1", int8, int8), ("Conv_c2 + Add_a + Relu_r2", int8, int8))
    (tmp_path / "info.json").write_text(info)
    words = ["report", "-t", str(tmp_path / "m.onnx"), str(tmp_path / "info.json"), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["unfused_qdq"]
    assert [row["layer"] for row in found] == [layer]
    assert pattern in found[0]["pattern"] and cure in found[0]["cure"]
