"""Our trtexec commands, read by the model of trtexec's grammar, say what was asked for; the script runs them."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from qdq_translator import cli
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.calibration_cache import CalibrationCache, scale_to_hex
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.layer_precisions import format_layer_precisions, fp16_layers
from qdq_translator.translation.files import trtexec
from qdq_translator.translation.files.trtexec import checks, polygraphy
from qdq_translator.translation.files.trtexec import request as requests
from tests import trtexec_grammar as grammar
from tests.conftest import DATA, SHARED, need_shared

HOSTILE = [
    "/conv1/Conv", "conv1/convolution:0", "a:b:c", ":x", "x:", "aten::conv2d", "my layer 1", " lead and trail ",
    "$(rm -rf $HOME)", "`id`", "a;b&c|d>e<f", 'say "x"', "back\\slash\\", "(Unnamed Layer 8) [Constant]", "a + b", "x=y",
    "--flag", "слой/卷积/größe", "!history ~ # {a} ?", "fp16",
]  # fmt: skip
VERSION_TEXT = {"8.6": "8.6.2", "10.3": "10.3.0", "10.16": "10.16.2"}
HEADER = {"8.6": "8602", "10.3": "100300", "10.16": "101602"}


def translation(
    folder: Path,
    layers: list[str],
    *,
    name: str = "net",
    nodes: list[str] | None = None,
    inputs: dict[str, list[Any]] | None = None,
    outputs: tuple[str, ...] = ("out",),
    version: str = "8600",
    extra_scales: dict[str, float] | None = None,
) -> TranslationFiles:
    """The files of a translation, written by hand: a chain of Relu nodes, all inputs added at the start."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = inputs or {"images": [1, 3, 8, 8]}
    names = nodes if nodes is not None else layers
    chain, previous = [], next(iter(inputs))
    for index, node in enumerate(names):
        chain.append(helper.make_node("Relu", [previous], [f"t{index}"], name=node))
        previous = f"t{index}"
    for out in outputs:
        chain.append(helper.make_node("Relu", [previous], [out], name=f"end of {out}"))
    graph = helper.make_graph(
        chain,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
    )
    files = TranslationFiles(folder, name)
    onnx.save(helper.make_model(graph), str(files.model))
    scales = {**dict.fromkeys(inputs, 1 / 127), "t0": 0.25, **dict.fromkeys(outputs, 0.5), **(extra_scales or {})}
    files.cache.write_text(CalibrationCache(version, scales).to_text(), encoding="utf-8")
    files.layer_arg.write_text(format_layer_precisions(fp16_layers(layers)), encoding="utf-8")
    return files


def command(capsys: pytest.CaptureFixture[str], files: TranslationFiles, *arguments: str) -> list[str]:
    """argv that a POSIX shell makes of what we print (run through a real `sh`), and no word on what is not asked."""
    status = cli.main(["build", "--print", "-t", str(files.model), *arguments])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert printed.out.startswith("trtexec \\\n  ")
    dump = 'trtexec() { for a in "$@"; do printf "%s\\0" "$a"; done; }\n'
    run = subprocess.run(["sh", "-eu", "-c", dump + printed.out], capture_output=True, check=True)
    assert run.stderr == b""
    return run.stdout.decode().split("\0")[:-1]


def read(argv: list[str], version: str) -> dict[str, Any]:
    result = grammar.parse(argv, version)
    assert result["status"] == "ok", result
    assert all(len(a.encode()) <= grammar.ARGUMENT_LIMIT for a in argv)
    return result["fields"]


def network(inputs: dict[str, list[int]], outputs: tuple[str, ...] = ("out",), layers: Iterable[str] = ()) -> Any:
    """As the grammar's `setup` takes it."""
    plain = {"kind": "conv", "precision": "fp32", "tensorType": "fp32", "outputs": 1, "shapeTensor": False}
    return {
        "inputs": [{"name": name, "dims": dims, "type": "fp32"} for name, dims in inputs.items()],
        "outputs": [{"name": name, "dims": [1], "type": "fp32"} for name in outputs],
        "layers": [{"name": name, **plain} for name in layers],
    }


@pytest.mark.parametrize("version", grammar.VERSIONS)
def test_hostile_names_reach_trtexec_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    files = translation(tmp_path / "it's a $(folder); & `x`", HOSTILE, name="net v1", version=HEADER[version])
    argv = command(capsys, files, "--platform", f"tensorrt-{VERSION_TEXT[version]}")
    fields = read(argv, version)
    assert fields == {
        "model": str(files.model),
        "int8": True,
        "fp16": True,
        "calibration": str(files.cache),
        "precisionConstraints": "obey",
        "layerPrecisions": dict.fromkeys(HOSTILE, "fp16"),
        "save": True,
        "engine": str(files.folder / "net v1_int8.engine"),
        "profilingVerbosity": "detailed",
        "exportLayerInfo": str(files.folder / "net v1_int8_layer_info.json"),
    }
    parsed = network({"images": [1, 3, 8, 8]}, layers=[*HOSTILE, "another", "fp1", "x"])
    done = grammar.setup(argv, parsed, files.cache.read_text(encoding="utf-8"), version)
    assert done["layers"] == {name: {"precision": "fp16"} for name in HOSTILE}
    assert done["flags"] == ["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS"]
    assert done["calibrator"] is True


@pytest.mark.parametrize("version", grammar.VERSIONS)
def test_dla_standalone_sets_ranges_from_our_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    files = translation(tmp_path, ["/a/Conv"], outputs=("out0", "out1"), version=HEADER[version])
    argv = command(
        capsys,
        files,
        *("--target", "orin-dla", "--dla_core", "1", "--dla_standalone"),
        *("--input_io_formats", "int8:hwc4", "--output_io_formats", "fp16:chw16,fp16:chw16"),
        *("--mem_pools", "dlaSRAM:0.5", "workspace:2048", "dlaGlobalDRAM:512"),
        *("--platform", f"tensorrt-{VERSION_TEXT[version]}"),
    )
    fields = read(argv, version)
    assert fields["precisionConstraints"] == "prefer"
    assert fields["engine"].endswith("net_int8_orin-dla.loadable")
    assert "exportLayerInfo" not in fields
    parsed = network({"images": [1, 3, 8, 8]}, ("out0", "out1"))
    done = grammar.setup(argv, parsed, files.cache.read_text(encoding="utf-8"), version)
    assert done["status"] == "ok", done
    assert done["inputs"]["images"] == {"type": "int8", "allowedFormats": ["kDLA_HWC4"], "dynamicRange": [-1, 1]}
    assert done["outputs"]["out1"]["allowedFormats"] == ["kCHW16"]
    assert (done["defaultDevice"], done["DLACore"], done["engineCapability"]) == ("DLA", 1, "DLA_STANDALONE")
    assert done["flags"] == ["DIRECT_IO", "FP16", "INT8", "PREFER_PRECISION_CONSTRAINTS"]
    assert done["memoryPoolBytes"] == {"DLA_MANAGED_SRAM": 1 << 19, "WORKSPACE": 1 << 31, "DLA_GLOBAL_DRAM": 1 << 29}


@pytest.mark.parametrize("version", grammar.VERSIONS)
def test_shapes_cover_every_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str) -> None:
    """With --calib trtexec of 10.x throws, and 8.6 crashes, where the static input has no shape (fact 3.19)."""
    inputs: dict[str, list[Any]] = {"input_1:0": ["N", 3, 8, 8], "scale": [1, 4]}
    files = translation(tmp_path, ["/a/Conv"], inputs=inputs, version=HEADER[version])
    argv = command(
        capsys,
        files,
        *("--min_shapes", "input_1:0:1x3x8x8", "--opt_shapes", "input_1:0:2x3x8x8"),
        *("--max_shapes", "input_1:0:4x3x8x8"),
        *("--platform", f"tensorrt-{VERSION_TEXT[version]}"),
    )
    fields = read(argv, version)
    static = {"min": [1, 4], "opt": [1, 4], "max": [1, 4]}
    assert fields["optProfiles"] == [
        {"input_1:0": {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}, "scale": static}
    ]
    parsed = network({"input_1:0": [-1, 3, 8, 8], "scale": [1, 4]})
    done = grammar.setup(argv, parsed, files.cache.read_text(encoding="utf-8"), version)
    assert (done["status"], done["profilesAdded"]) == ("ok", 1)


def test_every_command_of_the_transcripts_is_read() -> None:
    """By one version of trtexec at least. The model of its grammar lacks profiles and sparsity."""
    text = "".join(path.read_text(encoding="utf-8") for path in (DATA / "transcripts").rglob("*.txt"))
    commands = re.findall(r"^trtexec ((?:.*\\\n)+.*)", text, re.M)
    assert len(commands) > 30
    for command_ in commands:
        argv = shlex.split(
            re.sub(r"--(exportProfile|separateProfileRun|sparsity)\S*", "", command_.replace("\\\n", " "))
        )
        found = [grammar.parse(argv, version) for version in grammar.VERSIONS]
        assert "ok" in {result["status"] for result in found}, (argv, found)


def test_our_caches_are_read_back_to_the_same_bits() -> None:
    random.seed(7)
    names = [*HOSTILE, "größe/层", "a: 3c010204", "TRT-8600-EntropyCalibration2", "  two  blanks  "]
    scales = {name: random.random() * 10 ** random.randint(-30, 30) for name in names}
    text = CalibrationCache("8602", scales).to_text()
    bits = grammar.read_cache(text)
    assert bits == {name: scale_to_hex(scale) for name, scale in scales.items()}
    assert all(grammar.bits_to_float(bits[n]) == pytest.approx(s, rel=1e-7) for n, s in scales.items())


def long_layers(blocks: int) -> tuple[list[str], list[str]]:
    """(selected layers, all nodes): whole blocks, and single layers of mixed blocks."""
    selected, nodes = [], []
    for block in range(blocks):
        for layer in range(4):
            name = f"/backbone/stage{block % 7}/a_rather_long_block_name_{block}/conv{layer}/Conv"
            nodes += [name, name.replace("/Conv", "/Relu")]
            if block % 3:
                selected += nodes[-2:]
            elif layer == 1:
                selected.append(nodes[-2])
    return selected, nodes


@pytest.mark.parametrize("version", ["10.3", "10.16"])
def test_a_long_list_is_shortened_to_the_same_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    selected, nodes = long_layers(400)
    files = translation(tmp_path, selected, nodes=nodes, version=HEADER[version])
    full = len(files.layer_arg.read_bytes())
    assert full > 131071
    argv = command(capsys, files)
    argument = next(a for a in argv if a.startswith("--layerPrecisions="))
    assert len(argument) < 60_000
    keys = read(argv, version)["layerPrecisions"]
    chosen = [n for n in nodes if grammar.find(keys, n, version) is not None]  # find() raises where it is ambiguous
    assert chosen == selected
    assert {keys[grammar.find(keys, n, version)] for n in selected} == {"fp16"}


def test_wildcards_keep_away_from_constants_and_automatic_names() -> None:
    network = requests.Network(
        {}, (), ("/a/x", "/a/y", "/b/x", "/b/y", "m.0", "m.0.c1", "m.0.c2", "n.1", "n.2", "/p", "/q"), ("/b/weight",)
    )
    chosen = ["/a/x", "/a/y", "/b/x", "/b/y", "m.0.c1", "m.0.c2", "n.1", "n.2", "/p", "/q", "gone", "z.gone"]
    short = trtexec.shorten(fp16_layers(chosen), network)
    # '/b/*' would hit the Constant layer, 'm.*' the layer m.0
    assert short == "/a/*:fp16,/b/x:fp16,/b/y:fp16,m.0.*:fp16,n.*:fp16,/p:fp16,/q:fp16,gone:fp16,z.gone:fp16"
    assert trtexec.shorten(fp16_layers(["/a/x", "/b/x"]), requests.Network({}, (), ("/a/x", "/b/x"))) == "/*:fp16"
    precisions = {"/a/x": "fp16", "/a/y": "fp32"}
    assert trtexec.shorten(precisions, network) == "/a/x:fp16,/a/y:fp32"


PARSED = sorted((SHARED / "zoo" / "parsed_network").glob("*.json"))


@pytest.mark.skipif(not PARSED, reason="SKIPPED FOR LACK OF DATA: zoo/parsed_network does not lie beside the project")
def test_wildcards_select_the_same_layers_of_real_networks() -> None:
    """The layers that TensorRT's own parser makes, automatic ones included: list and patterns hit the same."""
    patterns = 0
    for path in PARSED:
        layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
        constants = [layer["name"] for layer in layers if layer["type"] == "CONSTANT"]
        nodes = dict.fromkeys(layer.get("node") or layer["name"] for layer in layers if layer.get("op"))
        network = requests.Network({}, (), tuple(n for n in nodes if n not in constants), tuple(constants))
        scopes = sorted({"/".join(n.split("/")[:depth]) + "/" for n in network.nodes for depth in (2, 3, 4)})
        for seed in range(3):
            rng = random.Random(f"{path.name} {seed}")
            chosen = tuple(rng.sample(scopes, max(1, len(scopes) // 3)))
            selected = {n for n in network.nodes if n.startswith(chosen) or rng.random() < 0.1}
            short = trtexec.shorten(fp16_layers(n for n in network.nodes if n in selected), network)
            keys = grammar.parse(["--onnx=m", f"--layerPrecisions={short}"], "10.3")["fields"].get(
                "layerPrecisions", {}
            )
            patterns += sum("*" in key for key in keys)
            hit = [layer["name"] for layer in layers if grammar.find(keys, layer["name"], "10.3") is not None]
            assert hit == [layer["name"] for layer in layers if layer["name"] in selected], path.name
    assert patterns > 500


@pytest.mark.parametrize("version", grammar.VERSIONS)
def test_a_real_translation_sets_every_layer_of_its_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    model = need_shared(SHARED / "zoo" / "mini" / "yolov5n__nvpq13.onnx")
    asked = ["translate", "-i", str(model), "-o", str(tmp_path), "--trt_calib_version", HEADER[version], "--as_is"]
    assert cli.main(asked) == 0
    capsys.readouterr()
    files = TranslationFiles.locate(tmp_path)
    wanted = files.read_config()["fp16_nodes"]
    assert len(wanted) > 100
    argv = command(capsys, files, "--input_io_formats", "int8:hwc4")
    parsed = json.loads((SHARED / "zoo" / "parsed_network" / "yolov5n__nvpq13.json").read_text(encoding="utf-8"))
    layers = [layer["name"] for layer in parsed["layers"]]
    real = network({name: [1, 3, 8, 8] for name in parsed["inputs"]}, tuple(parsed["outputs"]), layers)
    done = grammar.setup(argv, real, files.cache.read_text(encoding="utf-8"), version)
    assert done["status"] == "ok"
    assert done["layers"].keys() == set(wanted)
    (entry,) = done["inputs"].values()
    scale = files.read_cache().scales[parsed["inputs"][0]]
    assert entry["dynamicRange"] == pytest.approx([-127 * scale, 127 * scale], rel=1e-6)


def test_a_long_list_goes_through_the_file_on_8_6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selected = [f"/backbone/stage{i}/a_rather_long_block_name/conv/Conv" for i in range(2100)]
    files = translation(tmp_path / "a b", selected, version="8602")
    assert 100 * 1024 < len(files.layer_arg.read_bytes()) < 131000
    argv = command(capsys, files)
    cli.main(["build", "--print", "-t", str(files.model)])
    assert len(capsys.readouterr().out) < 2000
    assert read(argv, "8.6")["layerPrecisions"] == dict.fromkeys(selected, "fp16")


def test_a_list_no_argument_can_hold_is_refused_on_8_6(tmp_path: Path) -> None:
    selected, nodes = long_layers(400)
    files = translation(tmp_path, selected, nodes=nodes, version="8602")
    settings = checks.prepare(files, requests.BuildRequest())
    with pytest.raises(UserError, match=r"argument of \d{6} bytes.*131071.*8.x has no wildcards"):
        trtexec.trtexec_arguments(settings)


def test_the_limit_counts_the_option_name(tmp_path: Path) -> None:
    """131071 bytes run, 131072 do not (fact 3.19)."""
    room = 131071 - len("--layerPrecisions=") - len(":fp16")
    for spare, fits in ((0, True), (1, False)):
        files = translation(tmp_path / str(spare), ["x" * (room + spare)], version="8602")
        settings = checks.prepare(files, requests.BuildRequest())
        if not fits:
            with pytest.raises(UserError):
                trtexec.layer_argument(settings)
        else:
            argument = trtexec.layer_argument(settings)
            assert argument is not None
            assert argument.kind == "content"
            assert subprocess.run(["true", argument.plain()]).returncode == 0
            with pytest.raises(OSError, match="Argument list too long"):
                subprocess.run(["true", argument.plain() + "x"])


def test_different_output_formats_with_int8_io_are_refused_on_8_6_only(tmp_path: Path) -> None:
    files = translation(tmp_path, [], outputs=("a", "b"))
    request = requests.BuildRequest(input_io_formats="int8:chw32", output_io_formats="fp16:chw16,fp16:chw")
    with pytest.raises(UserError, match=r"number of INPUTS \(2 against 1\)"):
        checks.prepare(files, request, (8, 6, 1))
    assert checks.prepare(files, request, (10, 3, 0)).output_formats == ["fp16:chw16", "fp16:chw"]


STUB = """#!/bin/sh
echo '&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec'
[ "${{1-}}" = --help ] && exit 0
for a in "$@"; do printf '%s\\0' "$a"; done >"$RECORD"
"""


def run_script(script: Path, stub: Path, record: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}", "RECORD": str(record)}
    return subprocess.run([str(script), *arguments], env=environment, capture_output=True, text=True, cwd="/")


def make_stub(folder: Path, version: str) -> Path:
    folder.mkdir(exist_ok=True)
    stub = folder / "trtexec"
    stub.write_text(STUB.format(version=version))
    stub.chmod(0o755)
    return stub


def script_of(files: TranslationFiles, script: Path, *more: str) -> Path:
    assert cli.main(["build", "--print", "-t", str(files.model), "--script", str(script), *more]) == 0
    return script


@pytest.mark.parametrize(
    ("installed", "version"), [("8602", "8.6"), ("100300", "10.3"), ("101602", "10.16"), ("8600", "8.6")]
)
def test_the_script_runs_trtexec_with_the_right_header(tmp_path: Path, installed: str, version: str) -> None:
    built = tmp_path / "it's built $(here)"
    files = translation(built / "out put", HOSTILE, name="net é")
    script = script_of(files, built / "build it.sh", "--timing_cache", str(built / "t c"))
    moved = tmp_path / "on the board"
    built.rename(moved)  # script and files travel together
    before = (moved / "out put" / files.cache.name).read_text(encoding="utf-8")
    run = run_script(
        moved / script.name, make_stub(tmp_path / "bin dir", installed), tmp_path / "argv", "--noDataTransfers"
    )
    assert run.returncode == 0, run.stderr
    argv = (tmp_path / "argv").read_bytes().decode().split("\0")[:-1]
    assert argv.pop() == "--noDataTransfers"
    fields = read(argv, version)
    assert fields["layerPrecisions"] == dict.fromkeys(HOSTILE, "fp16")
    assert Path(fields["model"]).resolve() == (moved / "out put" / files.model.name).resolve()
    assert Path(fields["engine"]).parent.resolve() == (moved / "out put").resolve()
    assert Path(fields["timingCacheFile"]).resolve() == (moved / "t c").resolve()
    used = Path(fields["calibration"]).read_text(encoding="utf-8")
    assert used.splitlines()[0] == f"TRT-{installed}-EntropyCalibration2"
    assert used.splitlines()[1:] == before.splitlines()[1:]
    assert (moved / "out put" / files.cache.name).read_text(encoding="utf-8") == before
    copied = installed != "8600"
    assert (f"another version than {installed}" in run.stderr) == copied
    assert (Path(fields["calibration"]).name == files.cache.name) != copied


def test_the_script_finds_the_version_elsewhere(tmp_path: Path) -> None:
    """Without a banner: the package of the library, then Python, then the cache as it is."""
    script = script_of(translation(tmp_path / "t", []), tmp_path / "s.sh")
    stub = make_stub(tmp_path / "bin", "x")
    answers = {
        "dpkg-query": 'case $* in *libnvinfer10*) echo "10.3.0.30-1+cuda12.5" ;; *) exit 1 ;; esac',
        "python3": "echo 8.6.2.3",
    }
    for name, body in answers.items():
        (stub.parent / name).write_text(f"#!/bin/sh\n{body}\n")
        (stub.parent / name).chmod(0o755)

    def header() -> str:
        run = run_script(script, stub, tmp_path / "argv")
        assert run.returncode == 0, run.stderr
        cache = next(a for a in (tmp_path / "argv").read_text().split("\0") if a.startswith("--calib="))
        return Path(cache[len("--calib=") :]).read_text().splitlines()[0]

    assert header() == "TRT-100300-EntropyCalibration2"
    (stub.parent / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    assert header() == "TRT-8602-EntropyCalibration2"
    (stub.parent / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert header() == "TRT-8600-EntropyCalibration2"


def test_the_script_stops_where_it_cannot_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selected, nodes = long_layers(400)
    files = translation(tmp_path / "t", selected, nodes=nodes, version="100300")
    script = script_of(files, tmp_path / "s.sh")
    assert "shortened with wildcards" in capsys.readouterr().err
    record = tmp_path / "argv"
    for version, said in (
        ("8602", "wildcards, which TensorRT 8 ignores"),
        ("110401", "TensorRT 11 has no implicit quantization"),
        ("101602", ""),
        ("100300", f"{files.cache.name} is missing"),
    ):
        run = run_script(script, make_stub(tmp_path / "bin", version), record)
        assert run.returncode == bool(said) and said in run.stderr, run.stderr
        assert record.exists() == (not said)
        if not said:
            record.unlink()
            files.cache.unlink()


def test_the_script_says_where_it_looked_for_trtexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of(translation(tmp_path / "t", []), tmp_path / "s.sh")
    stub = make_stub(tmp_path / "bin", "8600")
    named = stub.rename(tmp_path / "my trtexec")
    monkeypatch.setenv("TRTEXEC", str(named))
    assert run_script(script, stub, tmp_path / "argv").returncode == 0
    monkeypatch.setenv("TRTEXEC", "/nowhere/trtexec")
    run = run_script(script, stub, tmp_path / "argv")
    assert run.returncode == 1
    assert "/nowhere/trtexec cannot be run" in run.stderr


def test_polygraphy_itself_understands_the_command(tmp_path: Path) -> None:
    """Its real option parser, where the package is installed (it needs no TensorRT for that)."""
    pytest.importorskip("polygraphy", reason="SKIPPED: polygraphy is not installed")
    names = [n for n in HOSTILE if not n.startswith("-")]
    files = translation(tmp_path, names)
    request = requests.BuildRequest(
        "orin-dla", dla_standalone=True, input_io_formats="int8:hwc4", output_io_formats="fp16:chw16"
    )
    words = polygraphy.polygraphy_arguments(checks.prepare(files, request))
    code = (
        "import json, sys\n"
        "from polygraphy.tools.convert import Convert\n"
        "from polygraphy.tools.args.util import parse_arglist_to_dict\n"
        "import argparse\n"
        "p = argparse.ArgumentParser(); s = p.add_subparsers(); Convert().setup_parser(s)\n"
        "a = p.parse_args(sys.argv[1:])\n"
        "print(json.dumps([parse_arglist_to_dict(a.layer_precisions), a.tensor_formats, a.use_dla, a.direct_io,"
        " a.engine_capability, a.precision_constraints]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    layers, formats, dla, direct, capability, constraints = json.loads(run.stdout.splitlines()[-1])
    assert layers == dict.fromkeys(names, "float16")
    assert formats == ["images:[dla_hwc4]", "out:[chw16]"]
    assert (dla, direct, capability.lower(), constraints) == (True, True, "dla_standalone", "prefer")


def test_the_script_template_is_shell() -> None:
    template = Path(trtexec.__file__).with_name("build.sh")
    assert subprocess.run(["sh", "-n", str(template)]).returncode == 0
    if shutil.which("shellcheck"):  # SC2034: the arguments that are filled in read $here
        assert subprocess.run(["shellcheck", "--severity=warning", "-e", "SC2034", str(template)]).returncode == 0


def test_the_example_in_a_message_is_quoted_for_the_shell() -> None:
    network = requests.Network({"$(id)": (-1, 3)}, ("o",), ())
    with pytest.raises(UserError) as refusal:
        checks.complete_shapes(requests.BuildRequest(), network)
    words = shlex.split(refusal.value.hint.partition("for example ")[2].rstrip("."))
    assert words == ["--opt_shapes", "$(id):1x3"] and "'$(id):1x3'" in refusal.value.hint
