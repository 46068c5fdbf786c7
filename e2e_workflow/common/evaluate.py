"""Run an ONNX model in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import onnx

if TYPE_CHECKING:
    import onnxruntime

Model = Union[str, Path, onnx.ModelProto]


def session(model: Model) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one CPU thread, graph optimizations off: the Q/DQ model is computed as it is written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def outputs(model: Model, images: np.ndarray, batch: int = 50) -> list[np.ndarray]:
    """All graph outputs for images (N, C, H, W), in the graph's order, float32."""
    running = session(model)
    name = running.get_inputs()[0].name
    parts = [running.run(None, {name: images[i : i + batch]}) for i in range(0, len(images), batch)]
    return [np.concatenate(group) for group in zip(*parts)]


def top1_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """Percentage of rows whose largest logit is the label's."""
    return 100.0 * float(np.mean(logits.argmax(1) == labels))
