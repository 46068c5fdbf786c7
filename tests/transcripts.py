"""Transcripts: commands on small models, with all that they print and every file that they write, as text.

    python -m tests.transcripts --write [WORD ...]      write them anew (a minute), or those whose name holds a word

A record (tests/records.py) holds what is made of a model; a transcript holds how it is shown and written: terminal, page, JSON,
commands for TensorRT and Polygraphy. It is compared as records are: numbers with a tolerance, all else exactly.

The commands of a session are the lines of its file in `tests/data/transcripts/` that begin with `$ ` or `>>> ` (Python): what is
added there is run by `--write`. The sessions of `_FILES` show every file that a command writes. Those of `desk/` are run in a folder
with what `desk` puts there, and show what is printed (`! `: on stderr). Beside `qdq-translator` there
are `cat` (contents of files), `ls`, `py` (an expression, with `qt` and `np`), `engine FOLDER FILE [WORD]` (layer information as
TensorRT would write it), `archive FOLDER FILE [WORD]` (as from a board), `unpack FILE FOLDER` (files of tests/data, from one of it). In those whose name begins with `lab_` numbers are compared with 3%.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import html
import io
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import qdq_translator as qt
from benchmarks.networks import residual
from qdq_translator._version import __version__
from qdq_translator.board.engine import machine, messages
from qdq_translator.board.results import stored_feed
from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.core.formats.calibration_cache import CalibrationCache
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.tune_rows import FP16, Cost, Data, Goal, Measured, Metric, Tuned
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.simulate.run import Session as Session_
from tests import records
from tests.conftest import DATA, OWN_MODELS
from tests.small_models import model, pair
from tests.test_equalize import NETWORK, weights
from tests.trt_bindings import scenarios, surface
from tests.tuning_rows import tuned

FOLDER = DATA / "transcripts"
_SHORT = "/tmp" if os.path.isdir("/tmp") else None  # lines with a longer folder would be wrapped elsewhere
_ONE = {"s": np.float32(0.05), "t": np.float32(0.1), "v": np.float32(0.02), "z": np.int8(0), "zu": np.uint8(100)}
_WEIGHTS = {"w": np.ones((4, 4, 1, 1), np.float32), "w3": np.linspace(-1, 1, 144, dtype=np.float32).reshape(4, 4, 3, 3)}


def _mixed() -> onnx.ModelProto:
    """A network with two inputs and two outputs, a Concat and an Add whose inputs have unequal ranges, a tensor with two
    scales, and layers that run on the GPU."""
    text = "g (float[1,4,8,8] images, float[1,4,8,8] more) => (float[1,8,1,1] y, float[1,4,8,8] e) {"
    text += pair("images", "xq") + pair("images", "xt", "t") + "a = Conv (xq, w) b = Relu (xt)" + pair("a", "aq")
    text += pair("more", "mq", "v") + "k = Concat <axis=1> (aq, b) r = Relu (k)" + pair("r", "rq", "t")
    text += "u = Relu (rq)" + pair("u", "uq") + "d = Add (rq, uq)" + pair("d", "dq") + "y = GlobalAveragePool (dq)"
    text += "f = Conv (mq, w) i = Elu (f) j = Sin (i)" + pair("j", "jq") + "e = Conv (jq, w) }"
    return model(text, **_ONE, **_WEIGHTS)


def _dynamic() -> onnx.ModelProto:
    """Open sizes, uint8 with a zero point, an Elu that is not quantized, names of modules."""
    text = "g (float[n,4,h,w] x) => (float[n,4,i,j] y) {" + pair("x", "xq", zero="zu") + "c = Conv (xq, w3) e = Elu (c)"
    made = model(text + pair("e", "eq") + "y = Conv (eq, w) }", **_ONE, **_WEIGHTS)
    called = {"c": "/stage/stage.0/conv/Conv", "e": "/stage/stage.0/act/Elu", "y": "/head/Conv"}
    tensors = {tensor: f"{name}_output_0" for tensor, name in called.items() if tensor != "y"}
    for node in made.graph.node:
        node.name = called.get(node.output[0], "")
        for names in (node.input, node.output):
            names[:] = [tensors.get(name, name) for name in names]
    return made


def _attention() -> onnx.ModelProto:
    """MatMul, Softmax, LayerNormalization, Gemm: tensors that only TensorRT's network has, weights that are inexact."""
    text = "g (float[1,4,8] x) => (float[1,4,6] y) {" + pair("x", "xq") + "q = MatMul (xq, wq) k = MatMul (xq, wk)"
    text += (
        pair("q", "qq")
        + pair("k", "kq")
        + "kt = Transpose <perm=[0,2,1]> (kq) a = MatMul (qq, kt)"
        + pair("a", "aq", "t")
    )
    text += "m = Softmax <axis=2> (aq)" + pair("m", "mq", "v") + "o = MatMul (mq, qq)" + pair("o", "oq")
    text += (
        "n = LayerNormalization <axis=-1> (oq, one, nil)" + pair("n", "nq") + "g = HardSwish (nq) y = MatMul (g, wy) }"
    )
    random = np.random.default_rng(7)
    arrays = {"wq": (8, 8), "wk": (8, 8), "wy": (8, 6)}
    made = {name: random.normal(size=shape).astype(np.float32) for name, shape in arrays.items()}
    return model(text, **_ONE, **made, one=np.ones(8, np.float32), nil=np.zeros(8, np.float32))


_MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mixed": _mixed,
    "dynamic": _dynamic,
    "attention": _attention,
    "tail": lambda: model(
        "g (float[1,4,8,8] x, float[1,4,8,8] m) => (float[1,4,8,8] y) {"
        + f"{pair('x', 'xq')} c = Conv (xq, w) {pair('c', 'cq')} f = Round (cq) y = Mul (f, m) }}",
        **_ONE,
        **_WEIGHTS,
    ),
    "residual": lambda: residual(4),
    "plain": lambda: model("g (float[1,4,8,8] x) => (float[1,4,8,8] y) { c = Conv (x, w3) y = Relu (c) }", **_WEIGHTS),
    "brevnet": lambda: onnx.load(OWN_MODELS / "brevnet_int8__brevitas.onnx"),
}


def _engine(*chosen: tuple[str, bool]) -> str:
    """Layer information of an engine of `residual`: each layer, and whether it runs in INT8."""
    rows = []
    for name, int8 in chosen:
        end = {"Name": name, "Dimensions": [1], "Format/Datatype": "Int8 format" if int8 else "FP16 format"}
        rows.append({"Name": name, "LayerType": "CaskConvolution", "Inputs": [end], "Outputs": [end]})
    return json.dumps({"Layers": rows, "Bindings": ["input", "Relu_48_out"]})


def _profile(**times: float) -> str:
    return json.dumps(
        [{"count": 9}, *({"name": name.replace("__", " + "), "averageMs": ms} for name, ms in times.items())]
    )


def _tuning() -> str:
    """Points of a search: some on the front, one given up early, one beyond the limit, one as given."""

    def point(ms: float, score: float, complete: bool = True, kept: tuple[str, ...] = (), **changes: Any) -> Tuned:
        drop = Measured(score, 8, complete, 0.95 - score, (0.93 - score, 0.97 - score))
        return Tuned("start", changes, kept, Cost(ms, int(ms), 1 - ms, 1), drop, replace(drop, score=score + 0.01))

    points = [
        point(0.4, 0.93, infer_add_scales=True, infer_mul_scales=True, equalize=True),
        point(0.2, 0.80, calibrate_method="mse", kept=("Conv_7", "Add_23")),
        point(0.3, 0.70, complete=False, unify_scales="data"),
        point(0.5, 0.94),
        Tuned(FP16, {}, ("Conv_7",), Cost(None, 0, 0.0, 1), Measured(0.95, 8, True, 0.0)),
        point(0.35, 0.84, equalize=False),
        point(0.41, 0.94, kept=("Conv_7", "Add_23", "Conv_31"), equalize=True, calibrate_method="mse"),
    ]
    front, held_out = (points[1], points[5], points[0], points[6]), Data("y.npz", 9, "", ())
    more: Any = {"held_out": held_out, "metric": Metric("module:psnr", 0.95, 0.96), "seconds": 0.0}
    return json.dumps(plain(tuned(points, front, goal=Goal(0.1, 0.45, True), **more)))


def unpacked(file: str) -> list[tuple[str, str]]:
    """(name, text) of the files that a file of tests/data holds, each behind a line `== NAME`."""
    parts = (DATA / file).read_text(encoding="utf-8").split("== ")[1:]
    return [(name, text) for name, _, text in (part.partition("\n") for part in parts)]


_SCALES = dict(unpacked("scale_files.txt"))
"""Files of scales for the model `plain`: each format, and what is refused."""
_TEXTS: Mapping[str, Callable[[], str]] = {
    **{name: functools.partial(str, text) for name, text in _SCALES.items()},
    "a.json": lambda: _engine(("Conv_7 + Relu_10", True), ("Conv_17 + Add_23 + Relu_24", False), ("Conv_31", True)),
    "b.json": lambda: _engine(("Conv_7 + Relu_10", False), ("Conv_17 + Add_23 + Relu_24", True), ("Conv_41", True)),
    "times_a.json": lambda: _profile(Conv_7__Relu_10=0.25, Conv_31=0.5),
    "times_b.json": lambda: _profile(Conv_7__Relu_10=0.5, Conv_41=0.125),
    "tune.json": _tuning,
    "verified.json": lambda: (FOLDER / "verified.json").read_text(encoding="utf-8"),
    "float.cache": lambda: CalibrationCache("TRT-8602-EntropyCalibration2", {"x": 0.05, "c": 0.25}).to_text(),
}
"""Other files -> their content."""
_READ = (".onnx", ".json", ".txt", ".cache", ".sh", ".html", ".h", ".md", ".py", ".pbtxt")
"""Files that are texts, or read as such."""


class Session(NamedTuple):
    """files: names in `_MODELS` or `_TEXTS`, which the commands find in their folder; none for a session at the desk."""

    name: str
    files: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def tolerance(self) -> float:
        return 0.03 if self.name.startswith("desk/lab_") else 1e-5


def _commands(name: str) -> tuple[str, ...]:
    """Those of a transcript, without the exit status behind them."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    lines = (re.sub(r"  # \d+$", "", line) for line in text.split("\n") if line.startswith(("$ ", ">>> ")))
    return tuple(line[2:] if line[0] == "$" else line for line in lines)


_FILES = {
    **dict.fromkeys(("builds", "gpu", "dla"), ("mixed",)),
    **{name: (name,) for name in ("dynamic", "attention", "residual")},
    "options": ("mixed", "tune.json"),
    "python": ("mixed", "residual"),
    "explicit": ("mixed", "dynamic"),
    "engines": ("residual", "a.json", "b.json", "times_a.json", "times_b.json", "tune.json", "verified.json"),
    "explicit_cache": ("plain", "dynamic", "float.cache"),
    "deploy": ("mixed", "tail"),
    "scales": ("plain", *_SCALES),
    "several": ("brevnet", "dynamic"),
}
"""Session -> its files."""
SESSIONS = tuple(Session(name, files, _commands(name)) for name, files in _FILES.items())
SESSIONS += tuple(
    Session(name, (), _commands(name))
    for name in sorted(f"desk/{path.stem}" for path in (FOLDER / "desk").glob("*.txt"))
)
SESSIONS += tuple(Session(f"builder-{version}", (), ("build builder versions",)) for version in surface.recorded())
"""Builds with what the Python bindings of a version have (tests/trt_bindings): what is asked of TensorRT, and what is said."""


# ---------------------------------------------------------------- the desk


def desk(folder: Path) -> None:
    """A trained network with Q/DQ and its samples; a float network with data; one that only a GPU runs whole."""
    for source, name in ((EXAMPLE_MODEL, "digits.onnx"), (DATA / "ordinary_log.txt", "build.log")):
        shutil.copy(source, folder / name)
    with np.load(EXAMPLE_SAMPLES) as data:
        np.savez(folder / "digits.npz", input=data["input"][:24], labels=data["labels"][:24])
        np.save(folder / "images.npy", data["input"][:24])
        np.save(folder / "labels.npy", data["labels"][:24])
    random = np.random.RandomState(0)
    text = """g (float[N,3,16,16] x) => (float[N,8,1,1] y) { [stem] a = Conv <pads = [1,1,1,1]> (x, w) [act] b = Relu (a)
        [gate] c = HardSwish (b) [wide] d = Conv (c, v) [sum] e = Add (d, c) [norm] f = Erf (e) [head] h = Conv (f, u)
        [pool] y = GlobalAveragePool (h) }"""
    shapes = {"w": (8, 3, 3, 3), "v": (8, 8, 1, 1), "u": (8, 8, 1, 1)}
    arrays = {name: (random.randn(*shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    onnx.save(model(text, **arrays), folder / "float.onnx")
    np.savez(folder / "float.npz", x=random.randn(12, 3, 16, 16).astype(np.float32))
    onnx.save(model(NETWORK, **weights(w=100.0, v=50.0)), folder / "wide.onnx")
    np.savez(folder / "wide.npz", x=random.randn(16, 8, 8, 8).astype(np.float32))
    text = f"""g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{ {pair("x", "p")} [conv] c = Conv (p, w) [elu] e = Elu (c)
        {pair("e", "q")} [last] y = Conv (q, w) }}"""
    scales = {"s": np.float32(0.05), "z": np.int8(0)}
    onnx.save(model(text, w=random.randn(4, 4, 1, 1).astype(np.float32), **scales), folder / "elu.onnx")
    (folder / "nets").mkdir()
    (folder / "empty").mkdir()
    for name in ("a", "b"):
        shutil.copy(folder / "elu.onnx", folder / "nets" / f"{name}.onnx")
    (folder / "nets" / "c.onnx").write_bytes(b"no model")
    _pictures(folder, random)


def _pictures(folder: Path, random: np.random.RandomState) -> None:
    """Class folders, and a YOLO data set with a network whose head is one of version 8 with two classes."""
    image = pytest.importorskip("PIL.Image")
    for number in range(4):
        pixels = random.randint(0, 255, (20 + number, 24, 3)).astype(np.uint8)
        for place in (f"photos/{'ab'[number % 2]}/{number}.png", f"yolo/images/val/{number}.png"):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels).save(folder / place)
        (folder / "yolo/labels/val").mkdir(parents=True, exist_ok=True)
        (folder / f"yolo/labels/val/{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.4 0.3\n1 0.2 0.3 0.1 0.2\n")
    (folder / "yolo/data.yaml").write_text("path: .\nval: images/val\nnames:\n  0: cat\n  1: dog\n")
    text = """g (float[1,3,32,32] x) => (float[1,6,16] y) { [grid] a = Conv <kernel_shape = [8,8], strides = [8,8]> (x, w, b)
        [flat] f = Reshape (a, shape) [boxes] l = Slice (f, from, to, axis) [scores] h = Slice (f, to, end, axis)
        [size] m = Abs (l) [prob] p = Sigmoid (h) [y] y = Concat <axis = 1> (m, p) }"""
    ends = {"from": [0], "to": [4], "end": [6], "axis": [1], "shape": [1, 6, 16]}
    arrays = {name: np.array(value, np.int64) for name, value in ends.items()}
    kernel = {"w": random.randn(6, 3, 8, 8).astype(np.float32), "b": np.array([16, 16, 9, 9, 0, 0], np.float32)}
    onnx.save(model(text, **arrays, **kernel), folder / "yolo.onnx")


def engine(folder: str, file: str, word: str = "") -> None:
    """The layers of a translation as an engine has them: as planned, or with `word` otherwise. Of a network with Q/DQ: each node."""
    words = {"int8": "Thirty-two wide channel vectorized row major Int8 format", "fp16": "Row major linear FP16 format"}
    rows: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = [{"count": 10}]
    if folder.endswith(".onnx"):
        nodes = onnx.load(folder).graph.node
        plan = [
            {"name": n.name, "device": "gpu", "precision": "int8" if "Linear" in n.op_type else "fp16"} for n in nodes
        ]
    else:
        plan = TranslationFiles.locate(folder).read_report("plan")["plan"]
    for index, row in enumerate(plan):
        kind = words[
            "fp16" if word == "half" and index % 2 else row["precision"] if row["precision"] in words else "fp16"
        ]
        name = f"{{ForeignNode[{row['name']}]}}" if word == "regions" and row["device"] == "dla" else row["name"]
        if word == "moved" and index == 1:
            rows.append(
                _layer(f"Reformatting CopyNode for Input Tensor 0 to {name}", "Reformat", words["fp16"], kind, index)
            )
        if word == "half" and index == 3:
            continue
        rows.append(_layer(name, "DLA" if name != row["name"] else "CaskConvolution", kind, kind, index))
        rows[-1].update({"Origin": "QDQ"} if "uantizeLinear" in name else {})
        times.append({"name": rows[-1]["Name"], "averageMs": 0.001 * (1 + index % 5)})
    Path(file).write_text(json.dumps({"Layers": rows, "Bindings": []}))
    Path(file).with_suffix(".profile").write_text(json.dumps(times))


def archive(folder: str, file: str, word: str = "") -> None:
    """What collect.sh of a bundle packs; the board's outputs are those of the simulation, times two with `word`."""
    files, place = TranslationFiles.locate(folder), Path(file)
    engine(folder, "board_layer_info.json", "regions")
    Path("board_layer_info.profile").rename("board_profile.json")
    feed, network = stored_feed(files), ImplicitNetwork.read(files)
    assert feed is not None
    outputs = Session_(simulate(network, SimulationOptions.on("orin-dla")).model, "board").run(feed)
    rows = [
        {"name": n, "dimensions": "x".join(map(str, v.shape)), "values": (v * (1 + bool(word))).reshape(-1).tolist()}
        for n, v in outputs.items()
    ]
    Path("board_outputs.json").write_text(json.dumps(rows))
    digests = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (files.model, files.cache))
    lines = ("schema_version=1", "status=0", "model={}", "cache={}", "machine=aarch64", "board=AGX Orin")
    Path("board_info.txt").write_text("\n".join(lines).format(*digests))
    Path("build.log").write_text(
        "[01/01/2026-00:00:00] [I] [TRT] Detected 1 inputs and 1 output network tensors.\n[I] GPU Compute Time: min = 0.1 ms, max = 9 ms, mean = 0.5 ms, median = 0.12 ms, percentile\n"
    )
    with tarfile.open(place, "w:gz") as packed:
        for name in (
            "board_info.txt",
            "build.log",
            "board_layer_info.json",
            "board_profile.json",
            "board_outputs.json",
        ):
            packed.add(name)


def unpack(file: str, folder: str) -> None:
    for name, text in unpacked(file):
        place = Path(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def _layer(name: str, kind: str, before: str, after: str, index: int) -> dict[str, Any]:
    ends = ([{"Name": f"t{index + n}", "Format/Datatype": form}] for n, form in enumerate((before, after)))
    return {"Name": name, "LayerType": kind, **dict(zip(("Inputs", "Outputs"), ends))}


def _contents(patterns: list[str]) -> Iterator[str]:
    for path in sorted(found for pattern in patterns for found in glob.glob(pattern, recursive=True)):
        if os.path.isfile(path):
            yield f"== {path}\n{Path(path).read_text(encoding='utf-8', errors='replace')}"


def _at_the_desk(line: str) -> Iterator[str]:
    """A line of a session at the desk with what it prints."""
    yield f"$ {line}"
    command, _, rest = line.partition(" ")
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if command == "cat":
            print("\n".join(_contents(shlex.split(rest))))
        elif command == "ls":
            print("\n".join(path for path in _files() if path.startswith(f"{rest}/")))
        elif command in ("engine", "archive", "unpack"):
            {"engine": engine, "archive": archive, "unpack": unpack}[command](*shlex.split(rest))
        elif command == "py":
            try:
                value = eval(
                    rest,
                    {
                        "qt": qt,
                        "np": np,
                        "Path": Path,
                        "json": json,
                        "machine": machine,
                        "messages": messages,
                        "DATA": DATA,
                    },
                )
                print(json.dumps(value, indent=1) if isinstance(value, (dict, list)) else value)
            except (qt.UserError, TypeError) as error:
                print(f"{type(error).__name__}: {error}")
        else:
            status = main(shlex.split(rest))
    yield from _lines(out.getvalue())
    yield from (f"! {text}" for text in _lines(err.getvalue()))
    yield from [f"[status {status}]"] * bool(status)


# ---------------------------------------------------------------- what a session prints and writes


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """It cannot be imported. All that is imported meanwhile stays, which it does not with mock.patch.dict."""
    missing = object()
    before: Any = sys.modules.get(module, missing)
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
        if before is not missing:
            sys.modules[module] = before


def transcript(session: Session) -> list[str]:
    """Its lines: each command with its exit status, what it printed, and the files that it wrote or changed."""
    before, terminal = Path.cwd(), mock.patch.dict(os.environ, {"COLUMNS": "110", "NO_COLOR": "1"})
    machine, absent = mock.patch("platform.machine", lambda: "x86_64"), (_without("tensorrt"), _without("distributed"))
    with tempfile.TemporaryDirectory(dir=_SHORT) as folder, terminal, records.WITHOUT_TENSORRT, machine, absent[
        0
    ], absent[1]:
        os.chdir(folder)
        try:
            if session.name.startswith("builder-"):
                found = scenarios.run_all(surface.module(session.name[len("builder-") :]), Path(folder))
                return shown(scenarios.lines(found))
            if not session.files:
                desk(Path())
                return [line for command in session.commands for line in _at_the_desk(command)]
            for name in session.files:
                if name in _MODELS:
                    apart = {"save_as_external_data": name == "residual", "location": f"{name}.data"}
                    onnx.save(_MODELS[name](), f"{name}.onnx", size_threshold=0, **apart)
                else:
                    Path(name).write_text(_TEXTS[name](), encoding="utf-8")
            return [line for command in session.commands for line in _run(command)]
        finally:
            os.chdir(before)


def _run(command: str) -> Iterator[str]:
    out, err, old = io.StringIO(), io.StringIO(), _files()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if command.startswith(">>> "):
            value = eval(command[4:], {name: getattr(qt, name) for name in qt.__all__})
            print(value, html.unescape(value._repr_html_()), sep="\n")
            yield command
        else:
            yield f"$ {command}  # {main(shlex.split(command))}"
    for text in (out.getvalue(), err.getvalue()):
        yield from _lines(text)
    for path, data in _files().items():
        if old.get(path) != data and not path.endswith(".whl"):
            yield f"=> {path}"
            yield from _content(path, data) if path.endswith(_READ) else (f"{len(data)} bytes",)


def _files() -> dict[str, bytes]:
    found = sorted(path for path in Path().rglob("*") if path.is_file())
    return {path.as_posix(): path.read_bytes() for path in found}


def _content(path: str, data: bytes) -> Iterator[str]:
    if path.endswith(".onnx"):
        graph = onnx.load(path).graph
        for node in graph.node:
            yield records.node_line(node)
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield records.typed(value)
        for tensor in sorted(graph.initializer, key=lambda t: t.name):
            yield f"const {tensor.name} {records.values(numpy_helper.to_array(tensor))}"
        return
    text = data.decode("utf-8", "surrogateescape")
    if path.endswith(".html"):
        text = re.sub(r"(?<=[\]}]),(?=[\[{\"])", ",\n", text)
    yield from _lines(text)


def _lines(text: str) -> Iterator[str]:
    """Without digests, versions, folders, options (which would change with every new one), and spaces of layout."""
    text = text.replace(os.path.realpath(os.getcwd()), "HERE")
    text = re.sub(rf"\s+{re.escape(str(DATA.parents[1]))}(?=/)", " CHECKOUT", text)
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<meta http-equiv.*?>", "", text, flags=re.S)
    text = re.sub(r'"options": \{.*?\}', '"options": {}', text, flags=re.S).replace("\0", "\\0")
    text = re.sub(r"(?<![.\w])[0-9a-f]{16,}\b", "DIGEST", text)
    text = re.sub(rf"(?<![.\d]){re.escape(__version__)}(?![.\d])", "VERSION", text)
    text = re.sub(r'("(?:build_)?seconds": )[\d.e-]+|\b\d+\.\d+ s\b', r"\1SECONDS", text)
    for line in text.split("\n"):
        line = re.sub(r"[ \t─]+", " ", line).strip()
        if line:
            yield line


def shown(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in _lines(text)]


def kept(session: Session) -> list[str]:
    path = FOLDER / f"{session.name}.txt"
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


def write(words: list[str]) -> int:
    """Returns how many transcripts changed."""
    changed = 0
    for session in SESSIONS:
        if not words or any(word in session.name for word in words):
            lines = transcript(session)
            if records.differences(kept(session), lines, session.tolerance):
                (FOLDER / f"{session.name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
                changed += 1
    return changed


if __name__ == "__main__":
    print(f"{write(sys.argv[2:])} of {len(SESSIONS)} transcripts changed")
