"""Networks run sample by sample in ONNX Runtime without its graph optimizations, and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from e2e_workflow.common.evaluate import session

from .task import Feeds


def samples(feeds: Feeds) -> Iterator[dict[str, np.ndarray]]:
    """One feed a sample, with the batch axis of 1."""
    for index in range(len(next(iter(feeds.values())))):
        yield {name: values[index : index + 1] for name, values in feeds.items()}


def answers(model: Path | onnx.ModelProto, feeds: Feeds) -> list[list[np.ndarray]]:
    """The outputs for each sample. A network that has its inputs in another shape (four dimensions, for a DLA) is fed in that."""
    running = session(model)
    shapes = {value.name: value.shape for value in running.get_inputs()}
    return [
        running.run(None, {name: _in_rank(values, shapes[name]) for name, values in feed.items()})
        for feed in samples(feeds)
    ]


def _in_rank(values: np.ndarray, shape: list) -> np.ndarray:
    return values if values.ndim == len(shape) else values.reshape(shape)


def step_of(model: onnx.ModelProto, name: str) -> tuple[float, int]:
    """Scale and zero point of a quantized input, which may be moved, cut or joined before it is dequantized."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    moved = {name}
    for node in model.graph.node:
        if moved & set(node.input):
            if node.op_type == "DequantizeLinear":
                return float(constants[node.input[1]]), int(constants[node.input[2]])
            moved |= set(node.output)
    raise ValueError(f"the input {name} is never dequantized")
