"""Makes the real binding modules of several TensorRT versions importable: downloads the wheel, compiles the stub library.

The binding wheels hold TensorRT's Python module without TensorRT. With `stub.c` in place of its libraries the module
imports; each version needs a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

WHEELS = {
    "8.6.1": "tensorrt-bindings==8.6.1",
    "10.3.0": "tensorrt-cu12-bindings==10.3.0",
    "10.16.1": "tensorrt-cu12-bindings==10.16.1.11",
    "11.4.0": "tensorrt-cu12-bindings==11.4.0.106",
}
NEWEST_PYTHON = {"8.6.1": (3, 11)}
"""Versions that were never published for later Pythons."""
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser", "nvparsers")
HERE = Path(__file__).resolve().parent


class NotHere(Exception):
    """This machine cannot import the bindings; the text says why."""


def prepare(version: str, cache: Path) -> Path:
    """A folder that holds the package `tensorrt` and, in `lib`, the stubs. Made once. Raises NotHere."""
    tag = f"{version}-cp{sys.version_info[0]}{sys.version_info[1]}"
    place = cache / tag
    if (place / "lib").is_dir():
        return place
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotHere("the binding wheels are for Linux on x86-64")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotHere("there is no C compiler")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch_name:
        scratch = Path(scratch_name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch_name]
        done = subprocess.run([*command, WHEELS[version]], capture_output=True, text=True)
        wheels = list(scratch.glob("*.whl"))
        if done.returncode or not wheels:
            said = (done.stderr.strip().splitlines() or ["no words"])[-1]
            raise NotHere(f"pip cannot download {WHEELS[version]} for this Python: {said}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(scratch / "out")
        made = scratch / "made"
        (made / "lib").mkdir(parents=True)
        (scratch / "out" / "tensorrt_bindings").rename(made / "tensorrt")
        major = version.split(".")[0]
        first = made / "lib" / f"lib{LIBRARIES[0]}.so.{major}"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(first), str(HERE / "stub.c")], check=True)
        for name in LIBRARIES[1:]:
            shutil.copy(first, made / "lib" / f"lib{name}.so.{major}")
        made.rename(place)
    return place


def run_scenarios(place: Path, work: Path) -> dict[str, Any]:
    """Runs `scenarios.py` in a process that has this TensorRT; returns what it found."""
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(place / "lib"),
        "PYTHONPATH": os.pathsep.join(map(str, (place, HERE.parents[1]))),
    }
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.trt_bindings.scenarios", str(work)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(f"scenarios ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads((work / "found.json").read_text())
    return found
