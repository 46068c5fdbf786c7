"""ingest: what collect.sh packs, with a trtexec that writes what a simulation of one end of a hypothesis computes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import onnx
import pytest

from e2e_workflow.on_device.probes.make import PROBES, int64_indices, network
from qdq_translator.cli import main
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.hypotheses import DEVICE_QUESTIONS, HYPOTHESES, DeviceQuestion
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions
from qdq_translator.workflows import board_results

TRTEXEC = r"""#!{python}
import json, shutil, sys
from pathlib import Path
print("&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec")
if "--help" in sys.argv:
    raise SystemExit(0)
flags = dict(a.partition("=")[::2] for a in sys.argv[1:])
print("[01/01/2026-00:00:00] [W] [TRT] Missing scale and zero-point for tensor y, expect fall back to non-int8 implementation for any layer")
if {fails}:
    print("[01/01/2026-00:00:00] [E] Cannot create DLA engine, 0 not available")
    raise SystemExit(1)
assert Path(flags["--loadInputs"].split(":")[-1]).stat().st_size
for flag, name in (("--exportOutput", "outputs"), ("--exportLayerInfo", "layers"), ("--exportProfile", "profile")):
    shutil.copy(Path({stand_in!r}) / name, flags[flag])
Path(flags["--saveEngine"]).write_bytes(b"engine")
"""
"""A stand-in: what it writes was computed on the desk, so nothing here says anything about a DLA."""


def made(folder: Path, name: str) -> TranslationFiles:
    """The bundle of a probe."""
    onnx.save(network(name), folder / f"{name}.onnx")
    assert (
        main(
            [
                "deploy",
                str(folder / f"{name}.onnx"),
                "--board",
                "jetpack-6.2",
                "--skip",
                "verify",
                "-o",
                str(folder / "b"),
            ]
        )
        == 0
    )
    return TranslationFiles.locate(folder / "b")


def end_of(name: str, other: bool, on_dla: bool = True) -> SimulationOptions:
    """The simulation at one end of a hypothesis."""
    changes: dict[str, dict[str, Any]] = {"fusion": {"fuse": not other}, "sigmoid": {"sigmoid_fp16": on_dla != other}}
    planned: dict[str, Any] = {"sigmoid_fp16": on_dla}
    return SimulationOptions(
        **{**planned, **changes.get(name, {"other": frozenset((name,)) if other else frozenset()})}
    )


def board(
    files: TranslationFiles, folder: Path, options: SimulationOptions, fails: bool = False, on_gpu: str = ""
) -> Path:
    """What the stand-in for the board sends back. on_gpu: the operator whose layers are not in a region of the DLA."""
    feed = board_results.stored_feed(files)
    assert feed is not None
    outputs = board_results._simulated(ImplicitNetwork.read(files), options, feed)
    rows = [
        {"name": n, "dimensions": "x".join(map(str, v.shape)), "values": v.reshape(-1).tolist()}
        for n, v in outputs.items()
    ]
    plan = files.read_report("plan")["plan"]
    layers = [{"Name": row["name"], "LayerType": "Convolution", "Inputs": [], "Outputs": []} for row in plan]
    for layer, row in zip(layers, plan):
        if on_gpu and row["op"] != on_gpu:
            layer.update(Name=f"{{ForeignNode[{row['name']}]}}", LayerType="DLA")
    times = [{"count": 10}, *({"name": row["name"], "averageMs": 0.01 * (i + 1)} for i, row in enumerate(plan))]
    for name, content in (("outputs", rows), ("layers", {"Layers": layers, "Bindings": []}), ("profile", times)):
        (folder / name).write_text(json.dumps(content))
    trtexec = folder / "trtexec"
    trtexec.write_text(TRTEXEC.format(python=sys.executable, fails=fails, stand_in=str(folder)))
    trtexec.chmod(0o755)
    done = subprocess.run(
        ["sh", str(files.folder / "collect.sh")],
        env={**os.environ, "TRTEXEC": str(trtexec)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == int(fails), (files.folder / "build.log").read_text()
    return files.folder / f"{files.name}_board.tar.gz"


@pytest.mark.parametrize("other", [False, True], ids=["planned", "other"])
@pytest.mark.parametrize("name", [name for name, probe in PROBES.items() if probe.read_by == "outputs"])
def test_each_end_of_a_hypothesis_is_recognized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, other: bool
) -> None:
    files, hypothesis = made(tmp_path, name), PROBES[name].hypothesis or name
    archive = board(files, tmp_path, end_of(hypothesis, other))
    capsys.readouterr()
    assert main(["ingest", str(archive), "-t", str(files.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = [row for row in found["hypotheses"] if row["hypothesis"] == hypothesis]
    assert row["held"] == ("other" if other else "planned")
    assert row["sentence"] == (HYPOTHESES[hypothesis].other if other else HYPOTHESES[hypothesis].planned)
    assert json.loads((files.folder / f"{name}_board.json").read_text()) == found
    assert [m["id"] for m in found["messages"]] == ["missing-scale"]


def test_times_and_the_cost_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path, "fusion")
    archive = board(files, tmp_path, end_of("fusion", False))
    assert main(["ingest", str(archive), "-t", str(files.folder)]) == 0
    out = capsys.readouterr().out
    assert "0.100 ms in all layers" in out
    assert re.search(r"0\.0\d0 ms Conv_y: planned fp16, runs in a precision that TensorRT does not tell on the", out)
    model = json.loads((files.folder / "fusion_cost_model.json").read_text())
    assert model["fitted"]["rows"] == 3  # the Add is fused into a Conv
    again = ["plan", "-i", str(tmp_path / "fusion.onnx"), "--cost_model", str(files.folder / "fusion_cost_model.json")]
    assert main(again) == 0


def test_a_failed_build_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path, "fusion")
    archive = board(files, tmp_path, SimulationOptions(), fails=True)
    assert main(["ingest", str(archive), "-t", str(files.folder)]) == 1
    said = capsys.readouterr()
    assert "[no-dla]" in said.out and "The engine was not built" in said.err


def test_broken_and_foreign_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path, "fusion")
    archive = board(files, tmp_path, SimulationOptions())

    def refused(path: Path, sentence: str) -> None:
        assert main(["ingest", str(path), "-t", str(files.folder)]) == 1
        assert re.search(sentence, capsys.readouterr().err)

    whole = archive.read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "cut.tar.gz", "is not an archive of collect.sh")
    (tmp_path / "empty.tar.gz").write_bytes(b"")
    refused(tmp_path / "empty.tar.gz", "is not an archive of collect.sh")
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as evil:
        evil.add(files.folder / "build.log", "../build.log")
    refused(tmp_path / "evil.tar.gz", "contains no board_info.txt")
    assert not (tmp_path.parent / "build.log").exists()
    info = files.folder / "board_info.txt"
    for change, sentence in (("schema_version=1", "has schema_version 7"), ("model=", "is of another model")):
        text = info.read_text()
        changed = text.replace(change, "schema_version=7" if change[0] == "s" else "model=0")
        with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as other:
            (tmp_path / "board_info.txt").write_text(changed)
            other.add(tmp_path / "board_info.txt", "board_info.txt")
            other.add(files.folder / "build.log", "build.log")
        refused(tmp_path / "x.tar.gz", sentence)


@pytest.mark.parametrize("name", PROBES)
def test_probes_are_networks(name: str) -> None:
    made_network = network(name)
    onnx.checker.check_model(made_network, full_check=True)
    assert PROBES[name].read_by in ("outputs", "device")
    assert network(name).SerializeToString() == made_network.SerializeToString()


@pytest.mark.parametrize("device", ["DLA", "GPU"])
@pytest.mark.parametrize("question", DEVICE_QUESTIONS, ids=[question.id for question in DEVICE_QUESTIONS])
def test_each_answer_about_a_device_is_recognized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: DeviceQuestion, device: str
) -> None:
    files = made(tmp_path, question.id)
    if question.indices == "INT64":
        int64_indices(str(files.folder))
    (probed,) = [node for node in onnx.load(files.model).graph.node if node.op_type == question.op]
    archive = board(files, tmp_path, SimulationOptions(), on_gpu=question.op if device == "GPU" else "none")
    assert main(["ingest", str(archive), "-t", str(files.folder)]) == 0
    sentence = question.on_dla if device == "DLA" else question.on_gpu
    assert f"{question.id}: {sentence} ({probed.name})" in capsys.readouterr().out
    rows = json.loads((files.folder / f"{question.id}_board.json").read_text())["hypotheses"]
    (row,) = [row for row in rows if row["hypothesis"] == question.id]
    assert row["held"] == ("planned" if device == question.planned else "other")
