"""deploy: one folder for a board; what each consumer reads is read here by a strict reader of its documented keys."""

from __future__ import annotations

import configparser
import ctypes
import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from e2e_workflow.orin_dla.buffers import pack_values
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.output import buffers, consumers
from qdq_translator.output.consumers import Bundle, End, deepstream
from qdq_translator.targets.platforms import find_platform
from tests.test_keep_model import float_model, parsed_tensors, samples

PROVIDER_OPTIONS = (
    *(
        "device_id",
        "trt_max_partition_iterations",
        "trt_min_subgraph_size",
        "trt_max_workspace_size",
        "trt_fp16_enable",
    ),
    *("trt_int8_enable", "trt_int8_calibration_table_name", "trt_int8_use_native_calibration_table", "trt_dla_enable"),
    *("trt_dla_core", "trt_dump_subgraphs", "trt_engine_cache_enable", "trt_engine_cache_path"),
)
"""Members of OrtTensorRTProviderOptions on ONNX Runtime's page."""
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


def test_one_folder_holds_all_and_its_page_is_one_page(made: Path) -> None:
    page = (made / "README.md").read_text()
    assert len(page.splitlines()) <= 90
    named = set(re.findall(r"(?:sh|python3) (\S+\.(?:sh|py))", page))
    assert named == {"collect.sh", "cudla/build_loadable.sh", "onnxruntime/run.py", "triton/build_plan.sh"}
    assert all((made / name).is_file() for name in named)
    text = "".join(p.read_text(errors="replace") for p in made.rglob("*") if p.is_file() and p.suffix != ".onnx")
    assert str(made.parent) not in text, "a path of the machine where it was made"
    assert not [p for p in made.parent.iterdir() if p.name.startswith(".qdq_unfinished")]


def test_the_bundle_is_a_translation(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trtexec", "-t", str(made)]) == 0
    assert main(["report", "-t", str(made)]) == 0
    verification = json.loads((made / f"{EXAMPLE_MODEL.stem}_verification.json").read_text())
    assert verification["verdict"]["overall"] != "broken"


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


def test_another_board_another_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [str(EXAMPLE_MODEL), "-o", str(tmp_path / "b"), "--skip", "verify", "--board"]
    for board, header, target in (
        ("jetpack-6.0", "TRT-8602", "orin-dla"),
        ("jetpack-7.2", "TRT-101602", "gpu"),
        ("tensorrt-10.3", "TRT-100300", "gpu"),
    ):
        run(capsys, *argv, board)
        (cache,) = (tmp_path / "b").glob("*_calib.cache")
        assert cache.read_text().startswith(header)
        assert json.loads(next((tmp_path / "b").glob("*_report.json")).read_text())["target"] == target


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--board", "jetpack-9"], "Platform 'jetpack-9' is not known"),
        (["--board", "jetpack-7.2", "--target", "orin-dla"], "jetpack-7.2 has no orin-dla"),
        (["--board", "jetpack-6.2", "--for", "toaster"], "There is no consumer 'toaster'"),
        (["--board", "jetpack-6.2", "--skip", "lunch"], "--skip lunch is not a step"),
        (["--board", "jetpack-6.2", "--for", "ultralytics"], "ultralytics cannot have this network"),
        (["--board", "jetpack-6.2", "--target", "gpu", "--for", "cudla"], "cudla cannot have this network"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_appears(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    argv = ["deploy", str(EXAMPLE_MODEL), "-o", str(tmp_path / "b"), "--skip", "verify"]
    assert main([*argv, *words]) in (1, 2)
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_shells_and_programs_would_read_otherwise(tmp_path: Path) -> None:
    model = tmp_path / 'a"""b $(x); \'c\n.onnx'
    shutil.copy(EXAMPLE_MODEL, model)
    folder = tmp_path / "bundle"
    skipped = ["--for", "trtexec", "triton", "onnxruntime", "deepstream", "--skip", "verify", "cut"]
    assert main(["deploy", str(model), "--board", "jetpack-6.2", "-o", str(folder), *skipped]) == 0
    assert not any(set(path.name) & set("\"'$;()\n") for path in folder.rglob("*"))
    compile((folder / "onnxruntime" / "run.py").read_text(), "run.py", "exec")
    page = (folder / "README.md").read_text()
    (repository,) = (path for path in (folder / "triton").iterdir() if path.is_dir())
    commands = [line for block in page.split("```sh\n")[1:] for line in block.split("\n```")[0].splitlines()]
    assert ["mkdir", "-p", f"triton/{repository.name}/1"] in [shlex.split(line, comments=True) for line in commands]


def test_a_foreign_folder_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    assert main(["deploy", str(EXAMPLE_MODEL), "--board", "jetpack-6.2", "-o", str(tmp_path / "b")]) == 1
    assert "is not a bundle of deploy" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["thesis.txt"]


def test_a_float_model_needs_data(float_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", str(float_file), "--board", "jetpack-6.2", "-o", str(float_file.parent / "b")]) == 1
    assert "--data" in capsys.readouterr().err


# ---------------------------------------------------------------- consumers


def test_the_registry_is_complete() -> None:
    folder = Path(consumers.__file__).parent
    assert {p.stem for p in folder.glob("*.py")} - {"__init__"} == set(consumers.NAMES)
    for name in consumers.NAMES:
        row = consumers.find(name)
        assert row.TITLE and row.SOURCES and callable(row.write)


def test_deepstream_reads_its_file(made: Path) -> None:
    (path,) = (made / "deepstream").glob("config_infer_*.txt")
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",), strict=True)
    parser.read(path)
    assert parser.sections() == ["property"]
    rows = dict(parser["property"])
    assert set(rows) <= set(deepstream.KEYS)
    assert (path.parent / rows["onnx-file"]).is_file()
    cache = CalibrationCache.from_text((path.parent / rows["int8-calib-file"]).read_text())
    assert cache.header == "TRT-100300-EntropyCalibration2"
    assert (rows["network-mode"], rows["enable-dla"], rows["infer-dims"]) == ("1", "1", "1;16;16")
    nodes = {node.name for node in onnx.load(path.parent / rows["onnx-file"]).graph.node}
    for entry in filter(None, rows.get("layer-device-precision", "").split(";")):
        name, precision, device = entry.split(":")
        assert name in nodes and precision == "fp16" and device in ("gpu", "dla")


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
    argv = [
        str(tmp_path / "net.onnx"),
        "--board",
        "jetpack-6.2",
        "--data",
        samples(tmp_path),
        "--skip",
        "verify",
        "--keep_model",
    ]
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
    assert set(options) <= set(PROVIDER_OPTIONS) and all(isinstance(v, str) for v in options.values())
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


def test_triton_reads_its_file(made: Path) -> None:
    text = (made / "triton" / EXAMPLE_MODEL.stem / "config.pbtxt").read_text()
    config = read_pbtxt(text)
    assert config["platform"] == ["tensorrt_plan"] and config["max_batch_size"] == [0]
    assert config["input"] == [{"name": ["input"], "data_type": ["TYPE_FP32"], "dims": [1, 1, 16, 16]}]
    (group,) = config["instance_group"]
    assert group["secondary_devices"] == [{"kind": ["KIND_NVDLA"], "device_id": [0]}]
    known = {"name", "platform", "max_batch_size", "input", "output", "instance_group"}
    assert set(config) == known


def read_pbtxt(text: str) -> dict[str, list[Any]]:
    """Protobuf's text format, as far as it is used."""
    tokens = iter(re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|[:{}\[\],]', text))

    def value(token: str) -> Any:
        if token == "{":
            return message("}")
        return json.loads(token) if token[0] == '"' else int(token) if token.isdigit() else token

    def message(end: str) -> dict[str, list[Any]]:
        rows: dict[str, list[Any]] = {}
        for key in tokens:
            if key == end:
                break
            token = next(tokens)
            token = next(tokens) if token == ":" else token
            if token == "[":
                items = []
                for inner in tokens:
                    if inner == "]":
                        break
                    if inner != ",":
                        items.append(value(inner))
                rows.setdefault(key, []).extend(items)
            else:
                rows.setdefault(key, []).append(value(token))
        return rows

    return message("")


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
    argv = [
        "deploy",
        str(EXAMPLE_MODEL),
        "--board",
        "jetpack-6.2",
        "--for",
        "cudla",
        "-o",
        str(folder),
        "--skip",
        "verify",
    ]
    assert main([*argv, "--image_mean", "0.1", "--image_std", "0.5"]) == 0
    return folder / "cudla"


def test_the_script_builds_a_loadable_with_the_formats_of_the_buffers(loadable: Path) -> None:
    script = (loadable / "build_loadable.sh").read_text()
    rows = json.loads((loadable / f"{EXAMPLE_MODEL.stem}_io.json").read_text())["tensors"]
    for role, flag in (("input", "--inputIOFormats"), ("output", "--outputIOFormats")):
        given = ",".join(f"{row['type']}:{row['format']}" for row in rows if row["role"] == role)
        assert f"{flag}={given}" in script
    assert "--buildDLAStandalone" in script and "--exportLayerInfo" not in script


FORMATS = [
    ("int8:dla_linear", 3),
    ("int8:dla_hwc4", 3),
    ("int8:dla_hwc4", 1),
    ("int8:chw32", 40),
    ("fp16:chw16", 20),
    ("fp16:dla_linear", 5),
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
