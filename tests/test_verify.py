"""verify from the command line: figures, thresholds, stages, device results, sensitivity."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.verify import Options
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.lab.simulate import compare, per_layer
from qdq_translator.lab.simulate.compare import Setup
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.metrics import Comparison, SlicedComparison
from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.io import load_model
from tests.small_models import model as small
from tests.small_models import pair
from tests.test_verify_faults import COVERED, DIGITS, SAMPLES

pytest.importorskip("onnxruntime")
DETECTOR = Path(__file__).resolve().parents[1] / "e2e_workflow" / "detector" / "detector_qat.onnx"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TranslationFiles:
    return translate(DIGITS, COVERED).save(tmp_path_factory.mktemp("t"))


def args(files: TranslationFiles, *more: str) -> list[str]:
    return ["verify", "-i", str(DIGITS), "-t", str(files.folder), "--inputs", str(SAMPLES), *more]


# -------------------------------------------------------------------- figures


def test_figures_by_hand() -> None:
    row = Comparison()
    row.add(np.array([[3.0, 4.0]]), np.array([[3.0, 5.0]]))
    row.add(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]))
    assert row.mse == 3 / 4 and row.max_abs == 1 and row.count == 4
    assert row.sqnr_db == pytest.approx(10 * math.log10(26 / 3))
    assert row.cosine == pytest.approx(29 / math.sqrt(26 * 35))
    assert row.top1_agreement == 50 and row.top1_samples == 2 and not row.identical


def test_figures_at_the_edges() -> None:
    same = Comparison()
    same.add(np.array([0.0, np.inf, np.nan]), np.array([-0.0, np.inf, np.nan]))
    assert same.identical and same.cosine == 1 and plain(same.row())["sqnr_db"] is None
    lost = Comparison()
    lost.add(np.array([1.0, 2.0]), np.array([1.0, np.inf]))
    assert lost.non_finite == 1 and lost.sqnr_db == -math.inf and not lost.identical
    silent = Comparison()
    silent.add(np.zeros(3), np.ones(3))
    assert silent.cosine == 0 and silent.sqnr_db == -math.inf


def test_the_worst_slice_by_hand() -> None:
    """Boxes around 300 beside scores below 1: the scores' error is nothing in the whole."""
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(100, 600, (1, 4, 80)), rng.uniform(0, 1, (1, 2, 80))
    reference = np.concatenate([boxes, scores], axis=1)
    other = reference.copy()
    other[0, 5] = scores[0, 1, ::-1]
    row = SlicedComparison(1)
    row.add(reference.astype(np.float32), other.astype(np.float32))
    assert row.cosine > 0.999999
    by_axis = {found.axis: found for found in row.slices}
    assert set(by_axis) == {1}  # six values are too few along axis 2, axis 0 holds the samples
    a, b = scores[0, 1], scores[0, 1, ::-1]
    worst = by_axis[1]
    assert (worst.index, worst.size, worst.silent) == (5, 6, 0)
    assert worst.cosine == pytest.approx(a @ b / (a @ a), rel=1e-6) and row.row().worst_slice == worst
    assert worst.sqnr_db == pytest.approx(10 * math.log10((a @ a) / ((a - b) @ (a - b))), rel=1e-6)


def test_slices_at_the_edges() -> None:
    def compared(reference: np.ndarray, other: np.ndarray, batch: int = 1, times: int = 1) -> SlicedComparison:
        row = SlicedComparison(batch)
        for _ in range(times):
            row.add(reference, other)
        return row

    zero, one = np.zeros((2, 64)), np.ones((2, 64))
    assert compared(zero, one).slices == []  # no slice has a signal, so none has a cosine
    half = np.concatenate([zero[:1], one[:1]])
    assert [(s.index, s.silent, s.cosine) for s in compared(half, one).slices] == [(1, 1, 1.0)]
    assert [(s.index, s.cosine) for s in compared(one, half).slices] == [(0, 0.0)]  # lost altogether
    assert compared(one, half, batch=2).slices == []  # two samples, not two slices
    level = compared(one, 2 * one).row().worst_slice
    assert level is not None and level.cosine == pytest.approx(1) and level.sqnr_db == pytest.approx(0, abs=1e-9)
    logits = np.arange(40.0).reshape(4, 10)
    assert compared(logits, -logits, batch=4).slices == [] and len(compared(logits, -logits, 4, times=16).slices) == 1
    broken = one.copy()
    broken[0, 0] = np.inf
    row = compared(one, broken)
    worst = row.row().worst_slice
    assert row.non_finite == 1 and worst is not None and worst.cosine == 1


def test_the_threshold_holds_for_the_worst_slice(tmp_path: Path) -> None:
    text = """g (float[1,2,8,8] x) => (float[1,4,8,8] y) {
        [qx] xq = QuantizeLinear(x, sx, z) [dx] xd = DequantizeLinear(xq, sx, z)
        [box] b = Mul(xd, large) [score] s = Neg(xd) [cat] c = Concat<axis=1>(b, s)
        [qc] cq = QuantizeLinear(c, sc, z) [dc] cd = DequantizeLinear(cq, sc, z)
        [end] e = Relu(cd) [qe] eq = QuantizeLinear(e, se, z) [de] y = DequantizeLinear(eq, se, z) }"""
    constants = {"sx": np.float32(0.03), "sc": np.float32(4.0), "se": np.float32(4.0), "z": np.int8(0)}
    onnx.save(small(text, large=np.float32(150.0), **constants), tmp_path / "m.onnx")
    # the scale of the scores' Concat stands for pixels: the model knows no better, but the float model does
    files = translate(tmp_path / "m.onnx", TranslateOptions(infer_concat_scales=True)).save(tmp_path / "t")
    plain = onnx.load(tmp_path / "m.onnx")
    for node in plain.graph.node:
        if node.name in ("qc", "qe", "qx") or node.name in ("dc", "de", "dx"):
            node.op_type, node.input[:] = "Identity", node.input[:1]
    onnx.save(plain, tmp_path / "float.onnx")
    options = {"model": str(tmp_path / "float.onnx"), "translation": str(files.folder), "samples": 2}
    results = verify(Options(**options, min_cosine=0.99))
    row = results["outputs"]["pairs"][0]["outputs"]["y"]
    worst = next(found for found in row["slices"] if found["axis"] == 1)
    assert row["cosine"] > 0.99 > worst["cosine"] and worst["index"] in (2, 3)
    assert [s for s in results["failed"] if f"slice {worst['index']} of 4 along axis 1" in s]
    assert [s for s in verify(Options(**options))["failed"] if "SHA-256" not in s] == []


@pytest.mark.parametrize(
    ("shape", "scores"),
    [((2, 10), True), ((2, 10, 1, 1), True), ((2, 1), False), ((2, 84, 100), False), ((10,), False)],
)
def test_what_looks_like_class_scores(shape: tuple[int, ...], scores: bool) -> None:
    row = Comparison()
    row.add(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    assert (row.top1_agreement is not None) == scores


# -------------------------------------------------------------------- item 5: passes what is right


def test_the_trained_network_agrees_on_every_test_image(files: TranslationFiles, tmp_path: Path) -> None:
    digits = pytest.importorskip("e2e_workflow.common.digits").load()
    np.savez(tmp_path / "test.npz", input=digits.test_images, labels=digits.test_labels)
    results = verify(Options(model=str(DIGITS), translation=str(files.folder), data=str(tmp_path / "test.npz")))
    row = results["outputs"]["pairs"][0]["outputs"]["logits"]
    assert row["top1_samples"] == 450 and row["top1_agreement"] >= 99.5
    assert row["sqnr_db"] > 40  # the input of the last layer, which the plan leaves above INT8, stays float
    accuracy = results["outputs"]["accuracy"]
    assert accuracy["simulated"]["logits"] == accuracy["explicit"]["logits"] > 99


@pytest.mark.parametrize("more", [{"higher": "fp32"}, {"rounding": "away"}, {"higher": "fp32", "sigmoid": "fp16"}])
def test_other_hardware_agrees_too(files: TranslationFiles, more: dict[str, Any]) -> None:
    results = verify(Options(model=str(DIGITS), translation=str(files.folder), data=str(SAMPLES), **more))
    row = results["outputs"]["pairs"][0]["outputs"]["logits"]
    assert row["top1_agreement"] >= 99.5 and row["cosine"] > 0.999


# -------------------------------------------------------------------- command line


def test_a_row_of_an_output_goes_before_worst_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three outputs, each with a slice worse than the whole, on 80 columns and at most 15 lines."""
    monkeypatch.setenv("COLUMNS", "80")
    argv = [str(DETECTOR), "--shapes", "input:1x3x96x96"]
    assert main(["translate", *argv, "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["verify", *argv, "-t", str(tmp_path), "--samples", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["output", "cosine"])
    assert re.match(r" \S+ +0\.\d{6} ", lines[head + 2]) and len(lines) <= 15
    assert sum("worst slice" in line for line in lines) == 1


def test_without_onnxruntime(
    files: TranslationFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(args(files)) == 1
    assert "pip install '.[verify]'" in capsys.readouterr().err


@pytest.mark.skipif(
    sys.version_info < (3, 9), reason="single codes of this network fall on the other side in ONNX Runtime 1.19"
)
def test_an_output_that_no_sample_changes_is_named(tmp_path: Path) -> None:
    text = f"""g (float[1,4,2,2] x) => (float[1,4,2,2] y, float[1,4,2,2] dead) {{
        {pair("x", "d")} y = Relu(d) low = Sub(d, far) dead = Relu(low) }}"""
    onnx.save(small(text, s=np.float32(0.05), z=np.int8(0), far=np.float32(1e4)), tmp_path / "m.onnx")
    files = translate(tmp_path / "m.onnx").save(tmp_path / "t")
    for samples in (1, 2):
        asked = Options(model=str(tmp_path / "m.onnx"), translation=str(files.folder), samples=samples)
        named = [note for note in verify(asked)["notes"] if "shows nothing" in note]
        assert len(named) == samples - 1 and all("'dead'" in note for note in named)


def test_renamed_outputs_are_matched_by_node(tmp_path: Path) -> None:
    found = {}
    for rename in (True, False):
        saved = translate(DIGITS, dataclasses.replace(COVERED, rename_node_outputs=rename)).save(tmp_path / str(rename))
        options = Options(model=str(DIGITS), translation=str(saved.folder), data=str(SAMPLES), samples=4)
        found[rename] = verify(dataclasses.replace(options, per_layer=True))
    assert found[True]["outputs"]["pairs"][0]["outputs"]["logits"]["sqnr_db"] > 30
    renamed, named = (found[rename]["per_layer"] for rename in (True, False))
    assert len(renamed["layers"]) >= 19
    assert [(row["node"], row["made"]) for row in renamed["layers"]] == [
        (row["node"], row["made"]) for row in named["layers"]
    ]
    # ONNX Runtime 1.19 on some processors rounds one value to the next step: 49.8 dB there, no jump elsewhere
    jump = renamed["first_jump"]
    assert jump is None or (jump["where"] == "read" and jump["sqnr_db"] > 45)


def test_layers_rewritten_for_the_dla_are_compared(tmp_path: Path) -> None:
    """The classifier works on [N, C, 1, 1] (rule D5). The tensor in front of its last Reshape is in no Q/DQ model, so the
    Reshape inherits the noise of what the classifier reads: it is no jump."""
    options = TranslateOptions(target="orin-dla", platform="jetpack-6.0", dla_rewrites="on")
    translation = translate(DIGITS, options)
    gemm = next(n for n in translation.model.graph.node if n.output[0] == "logits_4d")
    reshape = next(n for n in translation.model.graph.node if n.output[0] == "logits")
    assert reshape.op_type == "Reshape" and gemm.op_type == "Conv"
    files = translation.save(tmp_path)
    lines = files.cache.read_text().splitlines()
    coarse = struct.pack(">f", 1.0).hex()
    files.cache.write_text(
        "\n".join(x if x != f"{gemm.input[0]}: {x[-8:]}" else f"{x[:-8]}{coarse}" for x in lines) + "\n"
    )
    results = verify(
        Options(model=str(DIGITS), translation=str(files.folder), data=str(SAMPLES), samples=4, per_layer=True)
    )
    rows = {row["tensor"]: row for row in results["per_layer"]["layers"]}
    assert "logits_4d" not in rows and gemm.input[0] in rows
    assert rows[gemm.input[0]]["read"]["sqnr_db"] < 40  # inherited by what it makes, which is no jump
    assert [j["tensor"] for j in results["per_layer"]["jumps"]][-1:] != ["logits"]


def test_other_translators_files_are_taken(files: TranslationFiles, tmp_path: Path) -> None:
    """Model and cache alone, without config and report."""
    for path in (files.model, files.cache):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    options = {"model": str(DIGITS), "data": str(SAMPLES), "samples": 4}
    results = verify(Options(translation=str(tmp_path), **options))
    assert results["outputs"] == verify(Options(translation=str(files.folder), **options))["outputs"]


def test_int8_ends_are_fed_and_read(zoo: Path, tmp_path: Path) -> None:
    for name in ("int8_graph_input", "q_at_output"):
        path = zoo / "edge" / f"{name}.onnx"
        translate(path, TranslateOptions()).save(tmp_path / name)
        results = verify(Options(model=str(path), translation=str(tmp_path / name), per_layer=True))
        assert all(row["cosine"] > 0.9999 for row in results["outputs"]["pairs"][0]["outputs"].values()), name


def test_groups_bound_the_memory_and_change_nothing(files: TranslationFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    network = ImplicitNetwork.read(files)
    explicit = ExplicitNetwork.of(load_model(DIGITS)[0])
    simulated = simulate(network)
    samples = random_samples(input_specs(network.model, {}), network.scales, 2, 0)
    made: list[int] = []
    original = compare.Session

    def counting(model: onnx.ModelProto, what: str, fetch: Any, **given: Any) -> Any:
        made.append(len(fetch))
        return original(model, what, fetch, **given)

    monkeypatch.setattr(compare, "Session", counting)
    setup = Setup(network, SimulationOptions(), explicit, simulated, samples)
    whole = per_layer.compare_layers(setup)
    assert len(made) == 2
    small = per_layer.compare_layers(setup, group_bytes=4 * 4 * 16 * 16 * 16)
    assert len(made) > 10 and max(made[2:]) < max(made[:2])
    assert small.row() == whole.row()


def test_large_weights_do_not_become_part_of_a_message(
    files: TranslationFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qdq_translator.lab.simulate import run

    options = {"model": str(DIGITS), "translation": str(files.folder), "data": str(SAMPLES)}
    beside = verify(Options(**options, samples=2, per_layer=True))
    network = simulate(ImplicitNetwork.read(files)).model
    light, weights = run._apart(network, None)
    assert len(weights) > 5 and light.ByteSize() + sum(v.nbytes for v in weights.values()) > network.ByteSize() - 4096
    assert max(map(len, (t.raw_data for t in light.graph.initializer))) < run.LARGE
    monkeypatch.setattr(run, "LARGE", 2**40)
    assert run._apart(network, None)[1] == {}
    assert verify(Options(**options, samples=2, per_layer=True)) == beside


def test_at_most_40_lines_without_all(
    files: TranslationFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is asked for; each section keeps a row, and says how many lines it lacks."""
    monkeypatch.setenv("COLUMNS", "100")
    command = args(files, "--samples", "4", "--per_layer", "--audit", "--sensitivity", "--time_limit", "5")
    assert main(command) == 0
    short = capsys.readouterr().out.splitlines()
    assert len(short) <= 40 and max(map(len, short)) <= 300
    assert main([*command, "--all"]) == 0
    whole = capsys.readouterr().out.splitlines()
    cut = [int(line.split()[1]) for line in short if line.endswith("more lines: --all")]
    assert cut and len(whole) >= len(short) - len(cut) + sum(cut)


# -------------------------------------------------------------------- sensitivity


def test_sensitivity_finds_the_costly_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three Convs; the input of the second is quantized far too coarsely. The last is above INT8."""
    rng = np.random.default_rng(0)
    text, tensors, name = "", {"z": np.int8(0), "wz": np.zeros(4, np.int8)}, "x"
    for layer, scale in (("fine", 0.02), ("coarse", 1.0), ("last", 0.1)):
        weight = rng.normal(size=(4, 4, 1, 1)).astype(np.float32)
        steps = np.abs(weight).max(axis=(1, 2, 3)) / np.float32(127)
        tensors.update({f"{layer}_s": np.float32(scale), f"{layer}_w": weight, f"{layer}_ws": steps})
        text += f"""{pair(name, f"{layer}_in", f"{layer}_s")} {layer}_q = QuantizeLinear <axis = 0> ({layer}_w, {layer}_ws, wz)
            {layer}_d = DequantizeLinear <axis = 0> ({layer}_q, {layer}_ws, wz) {layer} = Conv ({layer}_in, {layer}_d) """
        name = layer
    made = small(f"two (float[1,4,8,8] x) => (float[1,4,8,8] last) {{ {text} }}", **tensors)
    for node in made.graph.node:
        node.name = node.output[0]
    onnx.save(made, tmp_path / "m.onnx")
    translate(tmp_path / "m.onnx", TranslateOptions()).save(tmp_path / "t")
    command = ["verify", "-i", str(tmp_path / "m.onnx"), "-t", str(tmp_path / "t"), "--samples", "2", "--sensitivity"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sensitivity"]
    assert [row["layers"] for row in found["ranking"]] == [["coarse"], ["fine"]]
    assert found["ranking"][0]["gain_db"] > 10 > 1 > found["ranking"][1]["gain_db"]
    assert found["candidates_left_out"] == 0
    assert found["keep_fp16"] == ["coarse"] and found["layer_argument"] == "coarse:fp16"
    again = translate(tmp_path / "m.onnx", TranslateOptions(keep_fp16=found["keep_fp16"])).save(tmp_path / "again")
    asked = Options(model=str(tmp_path / "m.onnx"), translation=str(again.folder), samples=2)
    repaired, of = verify(asked), {"translation": str(tmp_path / "t"), "layer_arg": found["layer_argument"]}
    tried = verify(dataclasses.replace(asked, **of))
    assert repaired["outputs"] == tried["outputs"] and tried["simulation"]["layer_arg"] is True
    assert main([*command, "--time_limit", "0"]) == 0
    assert "2 tensors left out by --time_limit" in capsys.readouterr().out


def test_the_stripped_graph_is_left_alone(files: TranslationFiles) -> None:
    network = ImplicitNetwork.read(files)
    before = network.model.SerializeToString(deterministic=True)
    simulate(network)
    assert network.model.SerializeToString(deterministic=True) == before
    assert len(Graph.from_model(network.model)) == 23
