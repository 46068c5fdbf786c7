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
from qdq_translator.lab.verification import runnable
from qdq_translator.translation.quantizers.sidecars import read_scales
from tests.explicit_reference import random_inputs, run
from tests.record_models import AIMET, NO_SCALES, SCALE_FILES, floats
from tests.small_models import f32, scales_of, translated

DATA = Path(__file__).parent / "data" / "dialects"


def load(name: str) -> onnx.ModelProto:
    return onnx.load(DATA / name)


def sqnr(reference: np.ndarray, other: np.ndarray) -> float:
    error = float(np.square(reference - other).sum())
    return np.inf if not error else 10 * np.log10(float(np.square(reference).sum()) / error)


# ------------------------------------------------------------------ what exporters wrote


@pytest.mark.parametrize(("name", "dialect", "count", "weights"), [
    ("qoperator__ort", "QOperator", 12, 5),
    ("qonnx__brevitas", "QONNX", 5, 2),
    ("arithmetic__brevitas", "arithmetic", 5, 2),
    ("arithmetic__torch", "arithmetic", 2, 0),
    ("mct__quantizers", "MCT quantizers", 5, 2),
    ("default__ort", "", 0, 5),
    ("tflite__tf2onnx", "", 0, 4),
])  # fmt: skip
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


@pytest.mark.parametrize("name", [
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
])  # fmt: skip
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


def with_scales(tmp_path: Path, content: Any, name: str = "given", **options: Any) -> Any:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return translated(floats(), scales=str(path), **options)


@pytest.mark.parametrize("content", SCALE_FILES)
def test_q14_formats(content: Any, tmp_path: Path) -> None:
    t = with_scales(tmp_path, content)
    assert scales_of(t) == {"x": 0.25} and t.scales["x"].origin.rule == "Q1"
    assert "1 of 3 float tensors (33%)" in t.diagnostics.of_rule("Q14")[0].message
    assert [row.exact for row in t.weights] == ([True] if content is AIMET else [])


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


def test_q14_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = DATA / "aimet_1.0.0.encodings", tmp_path / "out"
    assert main(["translate", str(DATA / "float.onnx"), "--scales", str(path), "--preset", "gpu", "-o", str(out)]) == 0
    assert (
        main(["verify", "-i", str(DATA / "float.onnx"), "-t", str(out), "--samples", "2", "--min_cosine", "0.99"]) == 0
    )
    assert main(["translate", str(DATA / "default__ort.onnx"), "--scales", str(path), "-o", str(tmp_path / "no")]) == 1
    assert "scales for a float model" in capsys.readouterr().err and not (tmp_path / "no").exists()


@pytest.mark.parametrize("content", NO_SCALES)
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
