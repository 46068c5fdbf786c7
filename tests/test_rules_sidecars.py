"""Rule Q14: scales in a file beside a float model; and rule Q13 on what real exporters wrote (tests/data/dialects)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.core.errors import UserError
from qdq_translator.lab.verification import runnable
from qdq_translator.translation.quantizers.sidecars import read_scales
from tests.explicit_reference import random_inputs, run
from tests.small_models import f32, model, scales_of, translated

DATA = Path(__file__).parent / "data" / "dialects"
WEIGHT = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)


def load(name: str) -> onnx.ModelProto:
    return onnx.load(DATA / name)


def sqnr(reference: np.ndarray, other: np.ndarray) -> float:
    error = float(np.square(reference - other).sum())
    return np.inf if not error else 10 * np.log10(float(np.square(reference).sum()) / error)


# ------------------------------------------------------------------ what exporters wrote


@pytest.mark.parametrize(
    ("name", "dialect", "count", "weights"),
    [
        ("qoperator__ort", "QOperator", 12, 5),
        ("qonnx__brevitas", "QONNX", 5, 2),
        ("arithmetic__brevitas", "arithmetic", 5, 2),
        ("arithmetic__torch", "arithmetic", 2, 0),
        ("mct__quantizers", "MCT quantizers", 5, 2),
        ("default__ort", "", 0, 5),
        ("tflite__tf2onnx", "", 0, 4),
    ],
)
@pytest.mark.skipif(
    sys.version_info < (3, 10),
    reason="SKIPPED FOR LACK OF A RECENT ONNX: with onnx 1.17 fewer quantizers of one model are recognised",
)
def test_q13_exported_models(name: str, dialect: str, count: int, weights: int) -> None:
    t = translated(load(f"{name}.onnx"), preset="gpu")
    assert [(d.data["dialect"], d.data["operators"]) for d in t.diagnostics.of_rule("Q13")] == [
        (dialect, count)
    ] * bool(count)
    assert len(t.weights) >= weights and not any(node.domain for node in t.model.graph.node)
    convolutions = [row for row in t.plan if row.op == "Conv"]
    assert convolutions and all(row.precision == "int8" for row in convolutions)


@pytest.mark.parametrize("name", ["qonnx__brevitas", "mct__quantizers", "mct__toolkit"])
def test_q13_pairs_compute_what_the_exporters_own_operators_do(name: str) -> None:
    """Against the outputs that PyTorch, and ONNX Runtime with the package's operators, gave: at most one step apart, where real
    arithmetic in another order rounds a tie, in less than one of 500 values."""
    ends = np.load(DATA / f"{name}.npz")
    pairs = runnable(load(f"{name}.onnx"))
    made = run(pairs, {pairs.graph.input[0].name: ends["x"]}, [pairs.graph.output[0].name])[0]
    step = np.diff(np.unique(ends["y"])).min()
    assert np.abs(made - ends["y"]).max() <= 1.01 * step and np.mean(np.abs(made - ends["y"]) > step / 2) < 0.002


@pytest.mark.parametrize(
    "name",
    [
        "qoperator__ort",
        "qonnx__brevitas",
        "arithmetic__brevitas",
        "arithmetic__torch",
        "mct__quantizers",
        "mct__toolkit",
        "default__ort",
        "nncf__onnx",
        "pt2e__torch",
        "quark__xint8",
    ],
)
def test_q13_exported_models_on_the_command_line(name: str, tmp_path: Path) -> None:
    """`verify` compares with the pairs that stand for the other form."""
    asked = ["translate", str(DATA / f"{name}.onnx"), "--preset", "gpu", "-o", str(tmp_path)]
    assert main(asked) == 0
    assert (
        main(
            ["verify", "-i", str(DATA / f"{name}.onnx"), "-t", str(tmp_path), "--samples", "2", "--min_cosine", "0.99"]
        )
        == 0
    )


def test_scales_from_data_in_place_of_zero_points_are_not_suspicious(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(DATA / "default__ort.onnx"), str(tmp_path / "out")
    (given,) = load("default__ort.onnx").graph.input
    shape = [8, *(d.dim_value for d in given.type.tensor_type.shape.dim[1:])]
    np.savez(tmp_path / "x.npz", **{given.name: np.random.default_rng(0).random(shape, np.float32)})
    data = str(tmp_path / "x.npz")
    assert main(["translate", path, "--preset", "gpu", "--calibrate", data, "-o", out]) == 0
    capsys.readouterr()
    assert main(["verify", "-i", path, "-t", out, "--inputs", data, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert not [why for why in verdict["reasons"] if "the model states" in why], verdict


@pytest.mark.parametrize("name", ["arithmetic__brevitas", "arithmetic__torch", "qoperator__ort"])
def test_q13_pairs_compute_what_onnx_runtime_does(name: str) -> None:
    from tests.test_rules_dialects import as_pairs

    explicit = load(f"{name}.onnx")
    pairs, feed = as_pairs(explicit)[0], random_inputs(explicit, 5)
    names = [value.name for value in explicit.graph.output]
    expected, made = run(explicit, feed, names)[0], run(pairs, feed, names)[0]
    assert sqnr(expected, made) > 38  # of 8 bits; ties in between round either way


# ------------------------------------------------------------------ scales in a file


def floats() -> onnx.ModelProto:
    text = "g (float[1,3,8,8] x) => (float[1,4,6,6] y) { c = Conv(x, w)  y = Relu(c) }"
    return model(text, w=WEIGHT)


def with_scales(tmp_path: Path, content: Any, name: str = "given", **options: Any) -> Any:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return translated(floats(), scales=str(path), **options)


AIMET_0 = {
    "activation_encodings": {
        "x": [{"bitwidth": 8, "dtype": "int", "offset": -128, "scale": 0.25, "is_symmetric": "True"}]
    },
    "param_encodings": {
        "w": [
            {"bitwidth": 8, "dtype": "int", "offset": -128, "scale": float(np.float32(s))}
            for s in np.abs(WEIGHT).max((1, 2, 3)) / 127
        ]
    },
}
PPQ = {
    "configs": {"Conv": {"x": {"bit_width": 8, "state": "ACTIVATED", "quant_min": -128, "quant_max": 127, "hash": 1, "dominator": 7},
                         "c": {"bit_width": 8, "state": "FP32", "quant_min": -128, "quant_max": 127, "hash": 2, "dominator": 2}}},
    "dispatchings": {}, "values": {"7": {"scale": 0.25, "zero_point": 0}},
}  # fmt: skip
TABLE = {
    "CLS": "TensorsData",
    "data": {"x": {"CLS": "TensorData", "lowest": {"data": [-31.75]}, "highest": {"data": [12.0]}}},
}


@pytest.mark.parametrize(
    "content",
    [
        *(AIMET_0, PPQ, TABLE, "x 31.75\n", "TRT-8602-EntropyCalibration2\nx: 3e800000\n"),
        *("TRT-8XXX-EntropyCalibration2\nx: 3e800000\n", {"x": {"min": -31.75, "max": 20}}, {"x": {"amax": 31.75}}),
        *({"ranges": {"x": 31.75}}, {"scales": {"x": 0.25}}, {"x": {"scale": 0.25}}, {"int8_tensor_scales": {"x": 0.25}, "fp16_nodes": []}),
        *("x: 31.75\n", "x:31.750000\n", "x: 31.750000\nconv2d_0.w_0\n", "TRT-8XXX-EntropyCalibration2 \nx: 3e800000\n", "name;max\nx;31.75\n", {"x": [-31.75, 3]}, [{"name": "x", "scale": 0.25}], "name,max\nx,31.75\n", "tensor,scale\nx,0.25\n", "name,min,max\nx,-31.75,3\n"),
    ],
)  # fmt: skip
def test_q14_formats(content: Any, tmp_path: Path) -> None:
    t = with_scales(tmp_path, content)
    assert scales_of(t) == {"x": 0.25} and t.scales["x"].origin.rule == "Q1"
    assert "1 of 3 float tensors (33%)" in t.diagnostics.of_rule("Q14")[0].message
    assert [row.exact for row in t.weights] == ([True] if content is AIMET_0 else [])


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_q14_aimet_encodings_compute_what_its_simulation_does(version: str) -> None:
    """The three versions that one run of AIMET wrote. Its simulation also quantizes two tensors that 0.6 and 1.0 leave out."""
    ends, path = np.load(DATA / "aimet.npz"), str(DATA / f"aimet_{version}.encodings")
    pairs = runnable(load("float.onnx"), path)
    made = run(pairs, {"x": np.repeat(ends["x"], 4, 0)}, ["y"])[0][:1]
    plain = run(load("float.onnx"), {"x": np.repeat(ends["x"], 4, 0)}, ["y"])[0][:1]
    assert sqnr(ends["y"], made) > sqnr(ends["y"], plain) and sqnr(ends["y"], made) > 45
    t = translate(load("float.onnx"), TranslateOptions(scales=path, asymmetric="widen"))
    assert [row.exact for row in t.weights] == [True] * 5


@pytest.mark.parametrize("name", ["calibration.json", "calibration.txt"])
def test_q14_calibration_tables_of_onnx_runtime(name: str) -> None:
    found = {row.tensor: row.scales[0] for row in read_scales(str(DATA / name))[1]}
    t = translated(load("float.onnx"), scales=str(DATA / name))
    assert len(found) == 17 and "17 of 17 float tensors (100%)" in t.diagnostics.of_rule("Q14")[0].message
    assert {tensor: scales_of(t)[tensor] for tensor in ("x", "/Add_output_0")} == {
        tensor: f32(found[tensor]) for tensor in ("x", "/Add_output_0")
    }


def test_q14_graph_outputs_keep_their_names_and_get_the_scale(tmp_path: Path) -> None:
    t = with_scales(tmp_path, "x 31.75\ny 12.7\n")
    assert scales_of(t) == {"x": 0.25, "y": f32(0.1), "c": f32(0.1)}


def test_q14_names_without_a_tensor_are_listed(tmp_path: Path) -> None:
    t = with_scales(tmp_path, "x 31.75\nc 25.4\nother 3\n")
    assert [d.data["unknown"] for d in t.diagnostics.warnings if d.rule == "Q14"] == [["other"]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("other 3.0\n", "and lacks 1"),
        ("x nan\n", "line 1: 'x' reaches nan"),
        ('{"activation_encodings": {"x": [{"bitwidth": 8, "offset": 0, "scale": NaN}]}}', "NaN is no number"),
        ('{"activation_encodings": {"x": [{"bitwidth": 8}]}}', "does not follow its format"),
        ('{"activation_encodings": {"c1": {"input": {"0": {"bitwidth": 8}}}}}', "names modules of PyTorch ('c1')"),
        ('{"activation_encodings": {"x": [{"bitwidth": 16, "offset": -32768, "scale": 0.1}]}}', "to the values -32768 to 32767"),
        ('{"param_encodings": {}, "activation_encodings": {"x": [{"bitwidth": 8, "offset": -128, "scale": 0.1}, {"bitwidth": 8, "offset": -128, "scale": 0.2}]}}', "2 scales for 'x'"),
        ('{"something": "1"}', "not a scale file of a known format"),
        ('{"activation_', "is not JSON"),
        ('{"x": 31.75}', "does not say whether it is the largest magnitude or the scale"),
        ('{"data": {"x": 31.75}}', "does not say whether"),
        ("x, 31.75\n", "does not say whether"),
        ("c_param_0 12.5 33.1\nc 4.0\n", "is a table for ncnn, as mmdeploy writes it: it names layers"),
        ("\x89HDF\r\n\x1a\n", "holds samples, not scales"),
        ("hello\n", "not a TensorRT calibration cache"),
        ("TRT-8602-EntropyCalibration2\nx: 3e800000\nbroken\n", "line 3 is no scale"),
    ],
)  # fmt: skip
def test_q14_refusals(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        with_scales(tmp_path, content)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("t02_ranges.json", 31.75), ("net-scales.json", 0.25), ("amax.csv", 31.75)]
)
def test_q14_the_name_of_the_file_tells_what_its_numbers_are(name: str, value: float, tmp_path: Path) -> None:
    content = f"x,{value}\n" if name.endswith("csv") else {"x": value}
    assert scales_of(with_scales(tmp_path, content, name)) == {"x": 0.25}


def test_q14_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = DATA / "aimet_1.0.0.encodings", tmp_path / "out"
    assert main(["translate", str(DATA / "float.onnx"), "--scales", str(path), "--preset", "gpu", "-o", str(out)]) == 0
    assert (
        main(["verify", "-i", str(DATA / "float.onnx"), "-t", str(out), "--samples", "2", "--min_cosine", "0.99"]) == 0
    )
    assert main(["translate", str(DATA / "default__ort.onnx"), "--scales", str(path), "-o", str(tmp_path / "no")]) == 1
    assert "scales for a float model" in capsys.readouterr().err and not (tmp_path / "no").exists()


def aimet(**changed: Any) -> dict[str, Any]:
    row = {"bitwidth": 8, "dtype": "int", "scale": 0.1, "offset": -128, **changed}
    return {"activation_encodings": {"x": [row]}, "param_encodings": {}}


@pytest.mark.parametrize(
    "content",
    [
        *(aimet(bitwidth=bits) for bits in (10**12, 10**400, -3, 0, 1e300, "8" * 5000, None, [8])),
        *(aimet(offset=offset) for offset in (10**400, 1e308, "x", None, {})),
        *(aimet(scale=scale) for scale in (10**400, -1, "1e999", None, {}, [[0.1], [0.2, 0.3]])),
        {"activation_encodings": [{"name": 3, "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"activation_encodings": [{"name": None, "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"activation_encodings": [{"name": ["x"], "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"encodings": [{"name": 7, "output_dtype": "int8", "y_scale": [0.1]}]},
        {"encodings": [{"name": {}, "output_dtype": "int8", "y_scale": [0.1]}]},
        {"encodings": [{"name": "x", "output_dtype": "int1000000000000", "y_scale": [0.1]}]},
        {"encodings": [{"name": "x", "output_dtype": "int8", "y_scale": [0.1], "y_zero_point": 10**400}]},
        {"configs": {"a": {"x": {"bit_width": 8, "hash": 1, "quant_min": -(10**400), "quant_max": 1}}}, "values": {"1": {"scale": 1}}},
        *({"x": value} for value in (0, "NaN", 10**400, None, True, [], {}, {"max": None}, {"min": 0, "max": 0}, {"scale": -1}, {"scale": []})),
        *('{"x": NaN}', '{"x": Infinity}', '{"x": 1e999}', "x: nan\n", "x,inf\n", "x: 1e999.\n", "name,max\n", ",1.0\n", ":1.0\n", "[" * 100_000),
        '{"x": ' * 50_000,
    ],
)  # fmt: skip
def test_numbers_and_names_that_are_none_are_refused_in_a_sentence(
    content: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once: no width of a million bits is computed."""
    (tmp_path / "scales").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    onnx.save(floats(), tmp_path / "m.onnx")
    assert (
        main(["translate", str(tmp_path / "m.onnx"), "--scales", str(tmp_path / "scales"), "-o", str(tmp_path / "o")])
        == 1
    )
    said = capsys.readouterr().err
    assert "unexpected" not in said and said.strip().endswith(".") and len(said) < 1000
    assert not (tmp_path / "o").exists()
