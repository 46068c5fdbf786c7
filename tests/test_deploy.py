"""deploy: one folder for a board; what each consumer reads is read here by a strict reader of its documented keys."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from e2e_workflow.orin_dla.buffers import pack_values
from qdq_translator.board import consumers
from qdq_translator.board.answer import Answer, Measured, answer, proven
from qdq_translator.board.consumers import Bundle, End, deepstream
from qdq_translator.board.deployment import _continued, _signature
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.verify_rows import Judged, Outputs, Verdict
from qdq_translator.translation.files import buffers
from qdq_translator.translation.targets.platforms import find_platform
from tests.small_models import model
from tests.test_keep_model import float_model, parsed_tensors, samples

ALL = ["--for", *consumers.NAMES]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["deploy", *argv, "--json"]) == 0, capsys.readouterr().err
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example for every consumer."""
    folder = tmp_path_factory.mktemp("deploy") / "bundle"
    argv = ["deploy", str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "--data", str(EXAMPLE_SAMPLES), "-o", str(folder)]
    assert main([*argv, *ALL]) == 0
    return folder


@pytest.fixture()
def float_file(tmp_path: Path) -> Path:
    network = float_model()
    for key, value in {"stride": "32", "task": "classify", "names": "{0: 'a'}"}.items():
        row = network.metadata_props.add()
        row.key, row.value = key, value
    onnx.save(network, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


# ---------------------------------------------------------------- the folder


def test_every_file_of_the_data_decides_whether_a_step_is_done_again(tmp_path: Path) -> None:
    images = tmp_path / "images" / "val"
    images.mkdir(parents=True)
    for place in (tmp_path / "data.yaml", images.parent / "b.png", images / "a.png"):
        place.write_bytes(place.name.encode())
    yaml, folder, one = (_signature(str(path)) for path in (tmp_path / "data.yaml", images.parent, images / "a.png"))
    assert [Path(name).name for name, _, _ in yaml] == ["data.yaml", "b.png", "a.png"]
    assert folder == yaml[1:] and one == yaml[2:] and _signature(None) == _signature(str(tmp_path / "no.npz")) == []
    (images / "a.png").write_bytes(b"another size")
    assert [row[1] for row in _signature(str(images.parent))] == [5, 12]


def test_one_folder_holds_all_and_its_page_is_one_page(made: Path) -> None:
    page = (made / "README.md").read_text()
    assert len(page.splitlines()) <= 100
    named = set(re.findall(r"(?:sh|python3) (\S+\.(?:sh|py))", page))
    assert named == {"collect.sh", "cudla/build_loadable.sh", "onnxruntime/run.py", "triton/build_plan.sh"}
    assert all((made / name).is_file() for name in named)
    text = "".join(p.read_text(errors="replace") for p in made.rglob("*") if p.is_file() and p.suffix != ".onnx")
    assert str(made.parent) not in text, "a path of the machine where it was made"
    assert not [p for p in made.parent.iterdir() if p.name.startswith(".qdq_unfinished")]


def test_again_nothing_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "-o", str(tmp_path / "b"), "--data", str(EXAMPLE_SAMPLES)]
    first = run(capsys, *argv)
    before = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert first["redone"] == ["translation", "verify"]
    assert run(capsys, *argv)["redone"] == []
    assert before == {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert run(capsys, *argv, "--samples", "16")["redone"] == ["translation", "verify"]
    assert run(capsys, *argv, "--samples", "16", "--skip", "verify")["redone"] == ["translation"]
    cache = next((tmp_path / "b").glob("*.cache"))
    cache.write_text("damaged")
    assert run(capsys, *argv, "--samples", "16", "--skip", "verify")["redone"] == ["translation"]
    assert cache.read_text().startswith("TRT-100300")


def seen(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file with its inode, its time and its content."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (s.st_ino, s.st_mtime_ns, path.read_bytes()) for path, s in found}


def test_what_deploy_did_not_write_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes, engines, results of the board, and a script that was edited; files of an earlier consumer go."""
    bundle = tmp_path / "b"
    argv = [str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "-o", str(bundle), "--skip", "verify"]
    run(capsys, *argv, "--for", "trtexec", "onnxruntime")
    stem = EXAMPLE_MODEL.stem
    own = {"notes.txt": "mine", f"{stem}.engine": "engine", f"{stem}_board.json": "{}", "onnxruntime/x": "y"}
    for name, text in own.items():
        (bundle / name).write_text(text)
    script = bundle / "collect.sh"
    script.write_text(script.read_text() + "# edited\n")
    before = seen(bundle)
    run(capsys, *argv, "--for", "trtexec", "onnxruntime")
    assert seen(bundle) == before, "nothing changed, so nothing is written"
    assert main(["deploy", *argv, "--for", "trtexec"]) == 0
    assert "collect.sh: kept as you edited it" in capsys.readouterr().err
    assert {name: (bundle / name).read_text() for name in own} == own and script.read_text().endswith("# edited\n")
    assert not (bundle / "onnxruntime" / "run.py").exists()
    (bundle / "README.md").write_text("edited")
    before = seen(bundle)
    assert main(["deploy", *argv, "--for", "trtexec", "--board", "jetpack-6.0"]) == 1
    assert "README.md is not as deploy wrote it" in capsys.readouterr().err
    assert seen(bundle) == before
    (bundle / "README.md").unlink()
    (bundle / "triton").mkdir()
    (bundle / "triton" / "build_plan.sh").write_text("mine")
    assert main(["deploy", *argv, "--for", "trtexec", "triton"]) == 1
    assert (bundle / "triton" / "build_plan.sh").read_text() == "mine"


def test_a_foreign_manifest_leads_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files that would be outside the bundle, through `..`, an absolute path or a linked folder."""
    bundle = tmp_path / "a" / "b"
    argv = ["deploy", str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "--skip", "verify", "-o"]
    assert main([*argv, str(bundle)]) == 0
    manifest = bundle / "deploy.json"
    good = json.loads(manifest.read_text())
    (tmp_path / "target").write_text("keep")
    (bundle / "up").symlink_to(tmp_path)
    (bundle / "one").symlink_to(tmp_path / "target")
    digest = hashlib.sha256(b"keep").hexdigest()
    for name in ("../../target", str(tmp_path / "target"), "up/target", "", ".."):
        for part in (
            {"steps": {**good["steps"], "translation": {"key": "", "files": {name: digest}}}},
            {"files": {name: digest}},
        ):
            manifest.write_text(json.dumps({**good, **part}))
            assert main([*argv, str(bundle)]) == 1
            assert "deploy.json" in capsys.readouterr().err
    step = good["steps"]["translation"]
    manifest.write_text(json.dumps({**good, "steps": {"translation": {**step, "files": {"one": digest}}}}))
    assert main([*argv, str(bundle)]) == 0  # a link is nothing that was written: the step is repeated
    assert (tmp_path / "target").read_text() == "keep" and (bundle / "one").is_symlink()


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", '{"steps": []}', '{"steps": {"translation": 3}}', '{"steps": {"translation": {"key": 1, "files": {}}}}',
     '{"steps": {"translation": {"key": "", "files": ["x"]}}}', '{"steps": {"verify": {"files": {"x": 1}}}}', '{"steps": {"verify": {}}}',
     "[" * 100_000, '{"steps": {}, "schema_version": 99}'],
)  # fmt: skip
def test_a_damaged_manifest_is_refused_in_a_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "deploy.json").write_text(text)
    assert main(["deploy", str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "-o", str(tmp_path / "b")]) == 1
    said = capsys.readouterr().err
    assert "deploy.json" in said and "unexpected" not in said and len(said) < 400
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["deploy.json"]


def test_a_name_that_shells_and_programs_would_read_otherwise(tmp_path: Path) -> None:
    named = tmp_path / 'a"""b $(x); \'c\n.onnx'
    shutil.copy(EXAMPLE_MODEL, named)
    folder = tmp_path / "bundle"
    skipped = ["--for", "trtexec", "triton", "onnxruntime", "deepstream", "--skip", "verify", "cut"]
    assert main(["deploy", str(named), "--board", "jetpack-6.2", "-o", str(folder), *skipped]) == 0
    assert not any(set(path.name) & set("\"'$;()\n") for path in folder.rglob("*"))
    compile((folder / "onnxruntime" / "run.py").read_text(), "run.py", "exec")
    page = (folder / "README.md").read_text()
    (repository,) = (path for path in (folder / "triton").iterdir() if path.is_dir())
    commands = [line for block in page.split("```sh\n")[1:] for line in block.split("\n```")[0].splitlines()]
    assert ["mkdir", "-p", f"triton/{repository.name}/1"] in [shlex.split(line, comments=True) for line in commands]


def test_the_faster_device_is_chosen_with_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Small layers with a gate, each of which is many on the DLA."""
    weights = np.random.default_rng(0).normal(0, 0.25, (16, 16, 1, 1)).astype(np.float32)
    nodes = " ".join(f"c{i} = Conv (x{i}, w) x{i + 1} = HardSwish (c{i})" for i in range(20))
    text = f"g (float[1,16,16,16] x0) => (float[1,16,16,16] x20) {{ {nodes} }}"
    onnx.save(model(text, 14, w=weights), tmp_path / "gated.onnx")
    np.savez(tmp_path / "data.npz", x0=np.random.default_rng(1).normal(size=(4, 16, 16, 16)).astype(np.float32))
    asked = [str(tmp_path / "gated.onnx"), str(tmp_path / "data.npz"), "--board", "agx-orin", "--skip", "verify"]
    for words, target in (([], "gpu"), (["--on", "dla"], "orin-dla")):
        run(capsys, *asked, *words, "-o", str(tmp_path / target))
        report = json.loads((tmp_path / target / "gated_report.json").read_text())
        assert report["target"] == target
    assert report["cost"]["all_gpu_milliseconds"] < report["cost"]["total_milliseconds"]


# ---------------------------------------------------------------- consumers


def test_the_registry_is_complete() -> None:
    folder = Path(consumers.__file__).parent
    assert {p.stem for p in folder.glob("*.py")} - {"__init__"} == set(consumers.NAMES)
    for name in consumers.NAMES:
        row = consumers.find(name)
        assert row.TITLE and row.SOURCES and callable(row.write)


def bundle(tmp_path: Path, **changes: Any) -> Bundle:
    files = consumers.TranslationFiles(tmp_path, "net")
    files.cache.write_text("TRT-100300-EntropyCalibration2\na:b: 3c010204\n")
    files.layer_arg.write_text("")
    row: dict[str, Any] = {
        "name": "net", "folder": tmp_path, "platform": find_platform("jetpack-6.2"), "target": "gpu", "dla_core": 0,
        "files": files, "loadable": None,
        "gpu_layers": frozenset(), "inputs": (End("x", (1, 3, 8, 8), 0.1),), "outputs": (End("y", (1, 4), None),),
    }  # fmt: skip
    return Bundle(**{**row, **changes})


def test_what_a_consumer_cannot_have(tmp_path: Path) -> None:
    two = (End("x", (1, 3, 8, 8), None), End("y", (1, 3, 8, 8), None))
    assert "has 2" in deepstream.refuse(bundle(tmp_path, inputs=two))
    assert "1x5x8x8" in deepstream.refuse(bundle(tmp_path, inputs=(End("x", (1, 5, 8, 8), None),)))
    assert "differs from channel" in deepstream.refuse(bundle(tmp_path, image_std=(0.2, 0.3, 0.2)))
    assert deepstream.refuse(bundle(tmp_path)) == ""


def test_names_with_colons_are_not_for_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = float_model()
    network.graph.node[0].output[0] = network.graph.node[1].input[0] = "Conv:0"
    onnx.save(network, tmp_path / "net.onnx")
    argv = [str(tmp_path / "net.onnx"), samples(tmp_path), "--board", "jetpack-6.2", "--skip", "verify", "--keep_model"]
    made = run(capsys, *argv, "-o", str(tmp_path / "b"), "--for", "trtexec", "onnxruntime", "--target", "gpu")
    assert "'Conv:0' holds one" in made["refused"]["onnxruntime"] and set(made["consumers"]) == {"trtexec"}
    network = float_model()  # torch.onnx writes equal biases once, behind an Identity: ONNX Runtime folds it
    (conv,) = [node for node in network.graph.node if node.op_type == "Conv"][:1]
    shared = network.graph.node.add(op_type="Identity", name="share", input=[conv.input[1]], output=["onnx::Conv_1"])
    network.graph.node.insert(0, shared)
    del network.graph.node[-1]
    conv = next(node for node in network.graph.node if node.op_type == "Conv")
    conv.input[1] = "onnx::Conv_1"
    onnx.save(network, tmp_path / "net.onnx")
    made = run(capsys, *argv, "-o", str(tmp_path / "c"), "--for", "onnxruntime", "--target", "gpu")
    assert not made["refused"]


def test_pixels_as_deepstream_makes_them(tmp_path: Path) -> None:
    """y = net-scale-factor * (x - offset) is (x / 255 - mean) / std."""
    deepstream.write(bundle(tmp_path, image_mean=(0.5, 0.4, 0.3), image_std=(0.25,)))
    text = (tmp_path / "deepstream" / "config_infer_net.txt").read_text()
    rows = dict(line.split("=") for line in text.splitlines() if "=" in line)
    offsets = np.array([float(v) for v in rows["offsets"].split(";")])
    ours = float(rows["net-scale-factor"]) * (200 - offsets)
    assert ours == pytest.approx((200 / 255 - np.array([0.5, 0.4, 0.3])) / 0.25, rel=1e-6)


def test_onnxruntime_reads_its_options_and_the_program_runs(made: Path) -> None:
    folder = made / "onnxruntime"
    options = json.loads((folder / "provider_options.json").read_text())
    table = folder / options["trt_engine_cache_path"] / options["trt_int8_calibration_table_name"]
    ranges = {}  # as the provider reads a native table: split at the first ':', hexadecimal float32, times 127
    header, *lines = table.read_text().splitlines()
    assert header.startswith("TRT-")
    for line in lines:
        name, digits = line.split(":")
        ranges[name] = struct.unpack(">f", bytes.fromhex(digits.strip()))[0] * 127
    report = json.loads(next(made.glob("*_report.json")).read_text())
    assert {row["tensor"]: row["scale"] for row in report["scales"]} == pytest.approx(
        {name: value / 127 for name, value in ranges.items() if name in {r["tensor"] for r in report["scales"]}}
    )
    done = subprocess.run([sys.executable, "run.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "logits (1, 10, 1, 1) float32" in done.stdout


def test_own_model_consumers_get_a_cache_for_the_file_as_given(
    float_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = float_file.parent / "b"
    result = run(
        capsys, str(float_file), "--board", "jetpack-6.2", "--data", samples(float_file.parent), "-o", str(folder),
        "--for", "ultralytics", "trtexec", "onnxruntime", "triton", "--keep_model", "--skip", "verify",
    )  # fmt: skip
    assert set(result["consumers"]) == {"ultralytics", "trtexec", "onnxruntime", "triton"}
    scripts = [place.read_text() for place in folder.rglob("*.sh")]
    assert len(scripts) == 4 and not any(str(float_file.parent) in text for text in scripts)
    tensors = parsed_tensors(onnx.load(float_file))[1]
    cache = CalibrationCache.from_text((folder / "ultralytics" / "net.cache").read_text())
    assert (folder / "ultralytics" / "net_minmax.cache").read_text().startswith("TRT-100300-MinMaxCalibration\n")
    assert len(cache.scales) >= 9 and [name for name in cache.scales if name not in tensors] == []
    assert parsed_tensors(onnx.load(folder / "own" / "net_noqdq.onnx"))[1] == tensors
    (folder / "ultralytics" / "net_trtexec.engine").write_bytes(b"\x01engine")
    subprocess.run(["python3", str(folder / "ultralytics" / "make_engine.py")], check=True)
    written = (folder / "ultralytics" / "net.engine").read_bytes()
    length = int.from_bytes(written[:4], "little")  # as ultralytics' AutoBackend reads it
    assert json.loads(written[4 : 4 + length]) == {"stride": "32", "task": "classify", "names": "{0: 'a'}"}
    assert written[4 + length :] == b"\x01engine"


# ---------------------------------------------------------------- buffers of a loadable


@pytest.fixture(scope="module")
def loadable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cudla") / "bundle"
    argv = ["deploy", str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "--for", "cudla", "-o", str(folder)]
    assert main([*argv, "--skip", "verify", "--image_mean", "0.1", "--image_std", "0.5"]) == 0
    return folder / "cudla"


def test_the_script_builds_a_loadable_with_the_formats_of_the_buffers(loadable: Path) -> None:
    script = (loadable / "build_loadable.sh").read_text()
    rows = json.loads((loadable / f"{EXAMPLE_MODEL.stem}_io.json").read_text())["tensors"]
    for role, flag in (("input", "--inputIOFormats"), ("output", "--outputIOFormats")):
        given = ",".join(f"{row['type']}:{row['format']}" for row in rows if row["role"] == role)
        assert f"{flag}={given}" in script
    assert "--buildDLAStandalone" in script and "--exportLayerInfo" not in script


FORMATS = [
    *(("int8:dla_linear", 3), ("int8:dla_hwc4", 3), ("int8:dla_hwc4", 1)),
    *(("int8:chw32", 40), ("fp16:chw16", 20), ("fp16:dla_linear", 5)),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("kind, channels", FORMATS)
def test_the_header_says_where_each_element_is(tmp_path: Path, kind: str, channels: int) -> None:
    """Against `pack_values`, which is tested against loops over coordinates (test_orin_dla_workflow)."""
    end = End("x/1", (2, channels, 3, 5), 0.0157)
    (buffer,) = buffers.describe([end], kind, "input")
    (tmp_path / "io.h").write_text(buffers.cpp_header("my net", [buffer], (0.1,), (0.5,)))
    (tmp_path / "main.cpp").write_text(
        '#include "io.h"\n#include <cstdio>\nusing namespace my_net_io::x_1;\nint main() {\n'
        "  for (std::size_t i = 0; i < n; ++i) for (std::size_t j = 0; j < c; ++j) for (std::size_t k = 0; k < h; ++k)\n"
        '    for (std::size_t l = 0; l < w; ++l) std::printf("%zu\\n", offset(i, j, k, l));\n  std::printf("%zu\\n", bytes);\n}\n'
    )
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    *offsets, size = map(
        int, subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    )
    assert size == buffer.size
    marks = np.arange(1, 1 + np.prod(end.shape)).reshape(end.shape)
    for low in range(0, marks.size, 100):  # within what int8 holds
        part = np.where((marks > low) & (marks <= low + 100), marks - low, 0)
        flat = pack_values(buffer, part * np.float32(buffer.scale or 1)).reshape(-1)
        expected = part.reshape(-1)
        assert [int(flat[o]) for o in offsets] == expected.tolist()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_pixels_of_the_header(loadable: Path, tmp_path: Path) -> None:
    header = loadable / f"{EXAMPLE_MODEL.stem}_io.h"
    name = EXAMPLE_MODEL.stem
    (tmp_path / "main.cpp").write_text(
        f'#include "{header}"\n#include <cstdio>\nint main() {{ for (auto v : {name}_io::input::pixels[0]) std::printf("%d ", v);\n'
        f'std::printf("%.9g\\n", {name}_io::input::scale); }}\n'
    )
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    *values, scale = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    row = json.loads((loadable / f"{name}_io.json").read_text())["tensors"][0]
    assert ctypes.c_float(row["scale"]).value == ctypes.c_float(float(scale)).value
    real = (np.arange(256) / 255 - 0.1) / 0.5
    exact = np.clip(np.rint(real / row["scale"]), -128, 127)
    assert np.abs(np.array(values, int) - exact).max() <= 1 and (np.array(values, int) == exact).mean() > 0.98


def test_a_scale_is_needed_for_int8() -> None:
    with pytest.raises(UserError, match="cannot be int8"):
        buffers.describe([End("x", (1, 3, 4, 4), None)], "int8:dla_linear", "input")


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_names_of_any_characters_in_the_header(tmp_path: Path) -> None:
    """Beyond the BMP, control characters, trigraphs, bytes that are no text; two names of one identifier."""
    names = ["\U0001f600", "\U0001f601", 'a"\\?\\?=b', "\x01\n1", "\udcff", "a_b", "a.b"]
    made = buffers.describe([End(name, (1, 3, 4, 4), 0.5) for name in names], "int8:chw32", "input")
    (tmp_path / "io.h").write_text(buffers.cpp_header("net", made, (0.0,), (1.0,)))
    spaces = re.findall(r"^namespace (\w+) \{\nconstexpr const char\* name", (tmp_path / "io.h").read_text(), re.M)
    assert len({*spaces}) == len(names)
    printed = "\n".join(f"    std::fputs(net_io::{space}::name, stdout); std::fputc(0, stdout);" for space in spaces)
    (tmp_path / "main.cpp").write_text(f'#include <cstdio>\n#include "io.h"\nint main() {{\n{printed}\n}}\n')
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [name.encode("utf-8", "surrogateescape") for name in names]


# ---------------------------------------------------------------- the answer


def test_an_agreement_that_was_reached_overrules_suspicion_and_nothing_worse() -> None:
    def told(overall: str, *failed: str, kept: str | None = "99.6%") -> Answer:
        outputs = {"y": Verdict(overall, 24.2, 30.3, 25.3, "slice 3 of 9 along axis 1", 6, 0)}
        found = Measured(Judged(overall, outputs, (), "one slice", "cmd"), failed, Outputs((), {}, {}), None)
        return answer(found, "x.npz", ["m.onnx", "x.npz", "-t", "b"], Path("b"), kept)

    good = told("suspicious", "The verdict is 'suspicious'.")
    assert good.good and good.reason.startswith("it keeps 99.6% of what your model says")
    for worse in (
        told("suspicious", "The verdict is 'suspicious'.", kept=None),
        told("suspicious", "The verdict is 'suspicious'.", "a file was edited"),
        told("broken", "The verdict is 'broken'."),
    ):
        assert worse.good is False and worse.reason == "one slice"
        assert worse.next == "qdq-translator verify m.onnx x.npz -t b --sensitivity"


def test_a_search_that_its_time_ended_is_continued() -> None:
    """By the same command, where the answer is no; a good one is good."""
    no = Answer(False, "broken", "a reason", {}, 0, 0, "qdq-translator verify m.onnx")
    ended, whole = SimpleNamespace(interrupted=True), SimpleNamespace(interrupted=False)
    assert "the same command again" in _continued(no, ended).next  # type: ignore[arg-type]
    assert _continued(no, whole) == _continued(no, None) == no  # type: ignore[arg-type]
    good = dataclasses.replace(no, good=True)
    assert _continued(good, ended) == good  # type: ignore[arg-type]


@pytest.mark.parametrize(("decided", "changed", "few"), [(16, 0, "86%"), (64, 2, "91%"), (300, 0, ""), (5000, 40, "")])
def test_few_decisions_are_said_to_prove_little(decided: int, changed: int, few: str) -> None:
    """The share that is proven would give what was seen, or better, once in 20 times."""
    told = Answer(True, "", "", {}, decided, changed, "").accuracy()
    assert ("so few prove" in told) == bool(few) and few in told
    stays = proven(decided, changed)
    random = np.random.default_rng(0).binomial(decided, 1 - stays, 20_000)
    assert 0.02 < np.mean(random <= changed) < 0.12
