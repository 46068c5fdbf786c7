"""Damage to the files of a translation and to what the readers get from elsewhere."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from qdq_translator.cli import main
from qdq_translator.commands.located import EXAMPLE_MODEL
from tests.fuzz.mutate import FLOATS, INTEGERS, NAMES

NAME = EXAMPLE_MODEL.stem
SHAPES = ("--opt_shapes", "input:1x1x16x16")
LAYERS: dict[str, Any] = {
    "Layers": [
        {
            "Name": "/conv1/Conv + /relu/Relu",
            "LayerType": "CaskConvolution",
            "Inputs": [
                {
                    "Name": "input",
                    "Location": "Device",
                    "Dimensions": [1, 1, 16, 16],
                    "Format/Datatype": "Row major Int8",
                }
            ],
            "Outputs": [{"Name": "t", "Location": "Device", "Dimensions": [1, 8, 16, 16], "Format/Datatype": "Int8"}],
            "ParameterType": "Convolution",
            "Weights": {"Type": "Int8", "Count": 72},
            "Bias": {"Type": "Float", "Count": 8},
            "TacticName": "sm80_xmma_i8i8",
            "Metadata": "[ONNX Layer: /conv1/Conv]\u001e[ONNX Layer: /relu/Relu]",
        },
        {
            "Name": "{ForeignNode[a...b]}",
            "LayerType": "DLA",
            "Inputs": [],
            "Outputs": [{"Name": "output", "Format/Datatype": "FP16"}],
        },
    ],
    "Bindings": ["input", "output"],
}
LOG = """[I] [TRT] ---------- Layers Running on DLA ----------
[I] [TRT] [DlaLayer] {ForeignNode[a...b]}
[W] [TRT] Missing scale and zero-point for tensor t, expect fall back to non-int8 implementation for any layer consuming it
[W] [TRT] Layer x is not supported on DLA, falling back to GPU
"""


@functools.cache
def original() -> Path:
    """A folder with the example's translation for a DLA, its layer information, a log, and results of verify."""
    folder = Path(tempfile.mkdtemp(prefix="qdq-fuzz-"))
    assert not status_of(
        ["translate", "--example", "--target", "orin-dla", "--platform", "jetpack-6.2", "-o", str(folder)]
    )
    (folder / "layers.json").write_text(json.dumps(LAYERS), encoding="utf-8")
    (folder / "build.log").write_text(LOG, encoding="utf-8")
    verify = ["verify", "-i", str(EXAMPLE_MODEL), "-t", str(folder), "--samples", "4", "--per_layer"]
    assert not status_of([*verify, "--save", str(folder / "results.json")])
    return folder


def status_of(arguments: list[str]) -> int:
    """Runs a command without its output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments)


def damage(rng: random.Random, folder: Path) -> list[str]:
    """Damages one file in `folder`; returns the arguments of a command that reads it."""
    report, config = f"{NAME}_report.json", f"{NAME}_precision_config.json"
    cache, layer_arg, model = (
        f"{NAME}_precision_config_calib.cache",
        f"{NAME}_precision_config_layer_arg.txt",
        f"{NAME}_noqdq.onnx",
    )
    t = ["-t", str(folder)]
    page = ["--html", str(folder / "page.html")]
    commands: dict[str, list[list[str]]] = {
        report: [["report", *t], ["report", *t, "--all"], ["report", *t, "--json"], ["report", *t, *page],
                 ["report", *t, str(folder / "layers.json")], ["build", "--print", *t, *SHAPES]],
        config: [["build", "--print", *t, *SHAPES], ["build", "--print", *t, "--script", str(folder / "run.sh")], ["build", "--print", *t, "--print", "polygraphy"],
                 ["report", *t, str(folder / "layers.json")]],
        cache: [["explicit", str(folder / model), "-c", str(folder / cache), "--for", "onnxruntime", "-o", str(folder / "r.onnx")], ["build", "--print", *t, *SHAPES],
                ["build", "--print", *t, *SHAPES, "--script", str(folder / "run.sh")]],
        layer_arg: [["explicit", str(folder / model), "-c", str(folder / cache), "--for", "onnxruntime", "-o", str(folder / "r.onnx"),
                     "--keep_fp16", "@" + str(folder / layer_arg)], ["build", "--print", *t, *SHAPES],
                    ["report", *t, str(folder / "layers.json"), "--json"]],
        model: [["build", "--print", *t, *SHAPES], ["explicit", str(folder / model), "-c", str(folder / cache), "--for", "onnxruntime", "-o", str(folder / "r.onnx"), "--json"],
                ["report", *t, str(folder / "layers.json")]],
        "layers.json": [["report", *t, str(folder / "layers.json"), "--log", str(folder / "build.log"), *x]
                        for x in ([], ["--json"], ["--all"])],
        "build.log": [["report", *t, str(folder / "layers.json"), "--log", str(folder / "build.log")]],
        "results.json": [["report", *t, *page, "--verify", str(folder / "results.json")]],
    }  # fmt: skip
    name = rng.choice((report, report, report, config, config, "layers.json", "layers.json", "results.json", *commands))
    path = folder / name
    if name.endswith(".json") and rng.random() < 0.8:
        path.write_bytes(_damaged_json(rng, json.loads(path.read_text(encoding="utf-8"))))
        if name == report and rng.random() < 0.2:
            (folder / f"{NAME}_precision_config.json").unlink()
    else:
        path.write_bytes(damaged_bytes(rng, path.read_bytes()))
    if name == config and rng.random() < 0.5:
        (folder / report).unlink(missing_ok=True)
    return rng.choice(commands[name])


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) below `value`."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys:
        found.append((value, key))
        _places(value[key], found)
    return found


def _damaged_json(rng: random.Random, content: Any) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        # levels are chosen one after the other, so that the few fields at the top are met as often as the many below
        container, key = {"": content}, ""
        while isinstance(container[key], (dict, list)) and container[key] and rng.random() < 0.8:
            container = container[key]
            key = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
        kind = rng.randrange(8)
        if container is not content and key == "":
            content = _odd(rng)
        elif kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[rng.choice(NAMES)] = container.pop(key)
        elif kind == 2 and isinstance(container, list):
            container.insert(0, container[key])
        elif kind == 3 and isinstance(container[key], list):
            container[key] = container[key] * 2
        else:
            container[key] = _odd(rng)
        if not isinstance(content, (dict, list)):
            break
    return json.dumps(content).encode()


def _odd(rng: random.Random) -> Any:
    return rng.choice(
        (None, True, False, "", [], {}, [None], [[]], {"a": None}, [1, "a"], {"name": 1}, -1, 0, 1.5, 10**30, 10**400,
         rng.choice(INTEGERS), rng.choice(FLOATS), rng.choice(NAMES), "x" * 10_000, "\ud800", [{}] * 3)
    )  # fmt: skip


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    kind = rng.randrange(8)
    at = rng.randrange(len(out) + 1)
    if kind == 0:
        return b""
    if kind == 1:
        return bytes(out[:at])
    if kind == 2:
        out[at:at] = rng.randbytes(20)
    elif kind == 3:
        return b"[" * 100_000
    elif kind == 4:
        out[at:at] = b"\xff\xfe\0\r\n"
    elif kind == 5:
        out = out[at:] + out[:at]
    else:
        for _ in range(rng.choice((1, 3, 30))):
            if out:
                out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)
