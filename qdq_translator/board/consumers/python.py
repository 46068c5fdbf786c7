"""This program's own builder on the board, with TensorRT's Python package."""

from __future__ import annotations

from qdq_translator.board.consumers import Bundle
from qdq_translator.board.wheel import NAME
from qdq_translator.translation.files.trtexec.request import Network

TITLE = "qdq-translator build (TensorRT's Python package)"
SOURCES = ("docs.nvidia.com/deeplearning/tensorrt (Python API)",)


def write(bundle: Bundle) -> list[str]:
    given = Network.read(bundle.files.model).inputs
    dynamic = [end for end in bundle.inputs if -1 in given.get(end.name, ())]
    shapes = "".join(f" {end.name}:{'x'.join(map(str, end.shape))}" for end in dynamic)
    dla = f" --target {bundle.target} --dla_core {bundle.dla_core} --allow_gpu_fallback" if bundle.on_dla else ""
    return [
        f"python3 -m pip install ./{NAME}    # once",
        f"qdq-translator build -t .{' --opt_shapes' + shapes if shapes else ''}{dla}",
    ]
