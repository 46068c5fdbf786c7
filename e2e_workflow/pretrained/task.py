"""What is asked of a network: calibration and evaluation samples, the right answers, and the score of one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import onnx

Feeds = Mapping[str, np.ndarray]
"""Input name -> samples along the first axis, each in the shape of the network's input without its batch axis of 1."""
Outputs = Sequence[np.ndarray]
"""The outputs for one sample in the graph's order, with the batch axis of 1."""


@dataclass(frozen=True)
class Task:
    """calibration and evaluation are disjoint. truth: one right answer a sample; None: the float network's outputs are
    the answers, and the figure is an agreement. score: (outputs, answer) -> 0 to 100 for one sample."""

    calibration: Feeds
    evaluation: Feeds
    truth: Sequence[Any] | None
    score: Callable[[Outputs, Any], float]


@dataclass(frozen=True)
class Size:
    """Samples for calibration and for evaluation."""

    calibration: int
    evaluation: int

    @property
    def all(self) -> int:
        return self.calibration + self.evaluation


def inputs_of(model: onnx.ModelProto) -> list[str]:
    """The names of the inputs that are no constants, in the graph's order."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in constants]


def split(size: Size, samples: Sequence[Any], model: onnx.ModelProto) -> tuple[Feeds, Feeds]:
    """The first samples to calibrate, the others to evaluate; a sample is one array, or a tuple in the order of the inputs."""
    rows = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    columns = {name: np.stack([row[index] for row in rows]) for index, name in enumerate(inputs_of(model))}
    return (
        {name: values[: size.calibration] for name, values in columns.items()},
        {name: values[size.calibration :] for name, values in columns.items()},
    )


def mean(scores: Sequence[float]) -> tuple[float, float]:
    """The mean of the samples' scores and half the width of its 95% interval (of 1 in n where all scores are equal)."""
    values = np.asarray(scores, np.float64)
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    least = 100 * (1 - 0.05 ** (1 / len(values)))  # the exact limit of a share when no sample differs
    return float(values.mean()), float(max(1.96 * spread / np.sqrt(len(values)), least if spread == 0 else 0.0))
