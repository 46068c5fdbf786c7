"""A Python with TensorFlow and tf2onnx for conversions from TFLite: an environment of its own in the cache folder.

$QDQ_PRETRAINED_TENSORFLOW names another one to use instead.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from .packages import Unavailable, cache

PYTHON = "QDQ_PRETRAINED_TENSORFLOW"
PACKAGES = ("tensorflow-cpu==2.21.0", "tf2onnx==1.17.0")


def python() -> str:
    """The interpreter, installed when it is first asked for (about 300 MB). Raises Unavailable."""
    if os.environ.get(PYTHON):
        return os.environ[PYTHON]
    folder = cache() / "tensorflow"
    done = folder / "installed"
    if not done.is_file():
        print(f"Installing {' and '.join(PACKAGES)} into {folder}", file=sys.stderr, flush=True)
        program = str(folder / "bin" / "python")
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([program, "-m", "pip", "install", "-q", "--only-binary", ":all:", *PACKAGES])
        done.touch()
    return str(folder / "bin" / "python")


def from_tflite(content: bytes) -> onnx.ModelProto:
    """The network in ONNX, kept in the cache folder. Raises Unavailable if TensorFlow cannot be had or tf2onnx fails."""
    script = Path(__file__).with_name("from_tflite.py")
    kept = cache() / "converted" / f"{hashlib.sha256(content + script.read_bytes()).hexdigest()[:20]}.onnx"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            source, target = Path(scratch) / "source.tflite", Path(scratch) / "network.onnx"
            source.write_bytes(content)
            _run([python(), str(script), str(source), str(target)])
            os.replace(target, kept)
    return onnx.load(str(kept))


def _run(command: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200, env=clean)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Unavailable(f"no conversion from TFLite: {lines[-1] if lines else error}") from error
