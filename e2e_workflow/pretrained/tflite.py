"""Conversions from TFLite, by a Python with TensorFlow and tf2onnx: an environment of its own in the cache folder (300 MB).

$QDQ_PRETRAINED_TENSORFLOW names another one to use instead.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import onnx

from . import environment
from .packages import Unavailable, cache

PACKAGES = ("tensorflow-cpu==2.21.0", "tf2onnx==1.17.0")


def from_tflite(content: bytes) -> onnx.ModelProto:
    """The network in ONNX, kept in the cache folder. Raises Unavailable if TensorFlow cannot be had or tf2onnx fails."""
    script = Path(__file__).with_name("from_tflite.py")
    kept = cache() / "converted" / f"{hashlib.sha256(content + script.read_bytes()).hexdigest()[:20]}.onnx"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            source, target = Path(scratch) / "source.tflite", Path(scratch) / "network.onnx"
            source.write_bytes(content)
            try:
                interpreter = environment.python("tensorflow", ["--only-binary", ":all:", *PACKAGES])
                environment.run([interpreter, str(script), str(source), str(target)])
            except Unavailable as error:
                raise Unavailable(f"no conversion from TFLite: {error}") from error
            os.replace(target, kept)
    return onnx.load(str(kept))
