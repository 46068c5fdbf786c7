"""The detector's mAP as a metric of `verify` and `tune`: `e2e_workflow/tuning/metrics.py:DetectorMAP`."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from e2e_workflow.common import detector
from e2e_workflow.common.shapes import Objects


class DetectorMAP:
    """mAP at IoU 0.5 to 0.95 in percent. labels: (samples, objects, 5) of class, x1, y1, x2, y2; a class of -1 is no object."""

    def __init__(self) -> None:
        self._outputs: list[list[np.ndarray]] = []
        self._objects: list[Objects] = []

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        self._outputs.append([outputs[name] for name in detector.OUTPUT_NAMES])
        for rows in labels:
            rows = rows[rows[:, 0] >= 0]
            self._objects.append(Objects(rows[:, 1:].astype(np.float32), rows[:, 0].astype(np.int64)))

    def result(self) -> float:
        heads = [np.concatenate(parts) for parts in zip(*self._outputs)]
        return detector.mean_average_precision(heads, self._objects)[1]
