"""ingest: what collect.sh packs, with a trtexec that writes what a simulation of one end of a hypothesis computes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import onnx
import pytest

from e2e_workflow.on_device.probes.make import PROBES, int64_indices, network
from qdq_translator.board import results as board_results
from qdq_translator.cli import main
from qdq_translator.core.formats import archive as archives
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.hypotheses import DEVICE_QUESTIONS, HYPOTHESES, DeviceQuestion
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions

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
print("[01/01/2026-00:00:00] [I] GPU Compute Time: min = 0.1 ms, max = 9 ms, mean = 0.5 ms, median = {median} ms, percentile(90%) = 1 ms")
"""
"""A stand-in: what it writes was computed on the desk, so nothing here says anything about a DLA."""


def made(folder: Path, name: str) -> TranslationFiles:
    """The bundle of a probe."""
    onnx.save(network(name), folder / f"{name}.onnx")
    asked = ["deploy", str(folder / f"{name}.onnx"), "--board", "jetpack-6.2", "-o", str(folder / "b")]
    assert main([*asked, "--skip", "verify"]) == 0
    return TranslationFiles.locate(folder / "b")


def end_of(name: str, other: bool, on_dla: bool = True) -> SimulationOptions:
    """The simulation at one end of a hypothesis."""
    changes: dict[str, dict[str, Any]] = {"fusion": {"fuse": not other}, "sigmoid": {"sigmoid_fp16": on_dla != other}}
    planned: dict[str, Any] = {"sigmoid_fp16": on_dla}
    return SimulationOptions(
        **{**planned, **changes.get(name, {"other": frozenset((name,)) if other else frozenset()})}
    )


def board(
    files: TranslationFiles,
    folder: Path,
    options: SimulationOptions,
    fails: bool = False,
    on_gpu: str = "",
    median: float = 0.5,
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
    trtexec.write_text(TRTEXEC.format(python=sys.executable, fails=fails, stand_in=str(folder), median=median))
    trtexec.chmod(0o755)
    words, env = ["sh", str(files.folder / "collect.sh")], {**os.environ, "TRTEXEC": str(trtexec)}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
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
    assert main(["report", str(archive), "-t", str(files.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = [row for row in found["hypotheses"] if row["hypothesis"] == hypothesis]
    assert row["held"] == ("other" if other else "planned")
    assert row["sentence"] == (HYPOTHESES[hypothesis].other if other else HYPOTHESES[hypothesis].planned)
    assert json.loads((files.folder / f"{name}_board.json").read_text()) == found
    assert [m["id"] for m in found["messages"]] == ["missing-scale"]


@pytest.mark.parametrize("end", ["low", "high", "neither"])
def test_the_time_of_an_engine_decides_what_transitions_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    files = made(tmp_path, "transitions")
    (cost,) = files.report_parts("cost")
    low, high = cost.total_milliseconds, cost.total_high_milliseconds
    assert high > low + 0.2
    median = {"low": 1.02 * low, "high": 0.98 * high, "neither": (low * high) ** 0.5}[end]
    archive = board(files, tmp_path, SimulationOptions(), median=round(median, 6))
    capsys.readouterr()
    assert main(["report", str(archive), "-t", str(files.folder), "--json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)["hypotheses"] if row["hypothesis"] == "transitions"]
    assert row["held"] == {"low": "planned", "high": "other", "neither": ""}[end]


def test_a_failed_build_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path, "fusion")
    archive = board(files, tmp_path, SimulationOptions(), fails=True)
    assert main(["report", str(archive), "-t", str(files.folder)]) == 1
    said = capsys.readouterr()
    assert "[no-dla]" in said.out and "The engine was not built" in said.err


@pytest.mark.parametrize("name", PROBES)
def test_probes_are_networks(name: str) -> None:
    made_network = network(name)
    onnx.checker.check_model(made_network, full_check=True)
    assert PROBES[name].read_by in ("outputs", "device", "time")
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
    assert main(["report", str(archive), "-t", str(files.folder)]) == 0
    sentence = question.on_dla if device == "DLA" else question.on_gpu
    assert f"{question.id}: {sentence} ({probed.name})" in capsys.readouterr().out
    rows = json.loads((files.folder / f"{question.id}_board.json").read_text())["hypotheses"]
    (row,) = [row for row in rows if row["hypothesis"] == question.id]
    assert row["held"] == ("planned" if device == question.planned else "other")


# ---------------------------------------------------------------- archives of somebody else

LOG = ("build.log", b"[E] Error Code 4: Internal Error (x)\n")


def info(files: TranslationFiles, **more: str) -> tuple[str, bytes]:
    digests = {
        key: hashlib.sha256(path.read_bytes()).hexdigest()
        for key, path in (("model", files.model), ("cache", files.cache))
    }
    return "board_info.txt", "".join(
        f"{k}={v}\n" for k, v in {"schema_version": "1", "status": "0", **digests, **more}.items()
    ).encode()


def packed(place: Path, *members: tuple[Any, bytes]) -> Path:
    with tarfile.open(place, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return place


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> TranslationFiles:
    return made(tmp_path_factory.mktemp("bundle"), "fusion")


def ingested(archive: Path, files: TranslationFiles, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["report", str(archive), "-t", str(files.folder)])
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err
    assert not set(said.out + said.err) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    return status, said.out + said.err


@pytest.mark.parametrize(("more", "status", "said"), [
    ({"engine": "3"}, 0, "status 0"),
    ({"messages": "2", "status": "1"}, 1, "status 1"),
    ({"board": "\x1b]0;PWNED\x07\x1b[8m\x9b2J\u202e"}, 0, "\\u001b]0;PWNED\\u0007\\u001b[8m\\u009b2J\\u202e"),
    ({"board": "x" * 10_000}, 1, "more than 200 characters in 'board'"),
    ({"model": ""}, 1, "is of another model"),
    ({"schema_version": "7"}, 1, "has schema_version 7"),
])  # fmt: skip
def test_what_board_info_says_is_checked_and_printed_escaped(
    more: dict[str, str],
    status: int,
    said: str,
    bundle: TranslationFiles,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, text = ingested(packed(tmp_path / "a.tgz", info(bundle, **more), LOG), bundle, capsys)
    assert (found, said in text) == (status, True), text
    if not status:
        assert main(["report", "-t", str(bundle.folder), "--layer_info", str(bundle.folder / "fusion_board.json")]) == 1
        assert "holds no layers" in capsys.readouterr().err


NUL = tarfile.TarInfo("x")
NUL.pax_headers = {"path": "a\0b_layer_info.json"}
LINK = tarfile.TarInfo("x_layer_info.json")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"


@pytest.mark.parametrize(("member", "status"), [
    (("board_outputs.json", b'[{"name":"y","values":[' + b"9" * 400 + b'],"dimensions":"1"}]'), 1),
    (("board_outputs.json", b'[{"name":"y","values":[1],"dimensions":"-1"}]'), 1),
    (("board_outputs.json", b'[{"name":"y","values":[1],"dimensions":"99999999999999999999"}]'), 1),
    (("board_outputs.json", b'[{"name":"y","values":[[1],[2,3]],"dimensions":"3"}]'), 1),
    (("board_outputs.json", b'[{"name":{},"values":[1],"dimensions":"1"}]'), 1),
    (("board_outputs.json", b"[" * 100_000), 1),
    (("x_profile.json", b'[{"name":"c","averageMs":' + b"9" * 400 + b"}]"), 1),
    (("x_profile.json", b'[{"name":"c","averageMs":Infinity}]'), 1),
    (("x_profile.json", b'[{"name":"c","averageMs":1e12}]'), 1),
    (("x_profile.json", b'[{"name":["c"],"averageMs":1}]'), 1),
    (("x_profile.json", b"layer_name,start_ms,end_ms\n" + b"y" * 200_000 + b",1,2\n"), 1),
    (("x_layer_info.json", b'{"Layers": [{"Name": 3, "Inputs": 7}]}'), 1),
    ((NUL, b"{}"), 0),
    (("../x_layer_info.json", b"{}"), 0),
    (("/tmp/x_layer_info.json", b"{}"), 0),
    ((LINK, b""), 0),
    (LOG, 1),  # twice
])  # fmt: skip
def test_damaged_members_are_refused_or_skipped(
    member: tuple[Any, bytes], status: int, bundle: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in bundle.folder.rglob("*") if path.is_file()}
    found, text = ingested(packed(tmp_path / "a.tgz", info(bundle), LOG, member), bundle, capsys)
    assert found == status, text
    after = {path: path.read_bytes() for path in bundle.folder.rglob("*") if path.is_file()}
    assert not status or before == after


@pytest.mark.parametrize("key", ["model", "cache"])
def test_answers_for_another_bundle_are_refused(
    key: str, bundle: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By ingest, and by the report that is given NAME_board.json."""
    status, text = ingested(packed(tmp_path / "a.tgz", info(bundle, **{key: "0" * 64}), LOG), bundle, capsys)
    assert status == 1 and f"is of another {key}" in text
    (tmp_path / "board.json").write_text(json.dumps({"kind": "qdq-translator board", key: "0" * 64}))
    assert main(["report", "-t", str(bundle.folder), "--layer_info", str(tmp_path / "board.json")]) == 1
    assert f"is of another {key}" in capsys.readouterr().err


def test_an_archive_that_unpacks_to_far_more_than_it_holds(
    bundle: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bytes, of wanted and of other members, and by members; nothing like that much is unpacked."""
    monkeypatch.setattr(archives, "_FREE", 2**20)
    zeros = bytes(3 << 20)
    for members in (
        [(f"k{k}_layer_info.json", zeros) for k in range(3)],
        [("other", bytes(9 << 20))],
        [(f"{k}", b"") for k in range(1001)],
    ):
        status, text = ingested(packed(tmp_path / "a.tgz", info(bundle), LOG, *members), bundle, capsys)
        assert status == 1 and ("unpacks to far more" in text or "more than 1000 files" in text)


def test_an_error_inside_an_archive_names_the_archive(
    bundle: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no temporary folder."""
    layers = ("k_layer_info.json", b'{"Layers": [{"Name": "a", "LayerType": "b"}]}')
    archive = packed(tmp_path / "a.tgz", info(bundle), LOG, layers, ("k_profile.json", b"[1"))
    status, text = ingested(archive, bundle, capsys)
    assert status == 1 and f"{archive}: k_profile.json" in text and text.count("/tmp") == str(archive).count("/tmp")


def test_what_is_no_archive(bundle: TranslationFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A FIFO does not block."""
    os.mkfifo(tmp_path / "fifo")
    good = packed(tmp_path / "good.tgz", info(bundle), LOG).read_bytes()
    for number, content in enumerate(
        (b"", b"x", good[:100], good[:-30], good[:50] + b"\xff" * 40 + good[90:], gzip.compress(b"x" * 5000))
    ):
        (tmp_path / str(number)).write_bytes(content)
    for name in ("fifo", "/dev/zero", *map(str, range(6))):
        status, text = ingested(tmp_path / name, bundle, capsys)
        assert (status == 1 and "is not an archive of collect.sh" in text) or "contains no board_info" in text
