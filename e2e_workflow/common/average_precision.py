"""What the detector's outputs mean, and their mean average precision: NumPy alone.

`MeanAveragePrecision` is a metric for the program too:

    qdq-translator verify ... --metric e2e_workflow.common.average_precision:MeanAveragePrecision
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .shapes import CLASS_NAMES, Objects, iou

STRIDES = (8, 16, 32)
LEAST_SCORE = 0.02
NMS_IOU = 0.6
MOST_DETECTIONS = 30


class MeanAveragePrecision:
    """mAP at IoU 0.5 to 0.95 in percent, over all samples: no mean of what each sample gives, so it is a class.

    labels: (samples, objects, 5), class, x1, y1, x2, y2 in pixels; the class is -1 where there is no object.
    """

    def __init__(self) -> None:
        self.outputs: list[list[np.ndarray]] = []
        self.objects: list[Objects] = []

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        # the finest head first, whatever the outputs are called
        self.outputs.append(sorted(outputs.values(), key=lambda values: -values.shape[2]))
        for rows in labels:
            held = rows[rows[:, 0] >= 0]
            self.objects.append(Objects(held[:, 1:], held[:, 0].astype(np.int64)))

    def result(self) -> float:
        heads = [np.concatenate(values) for values in zip(*self.outputs)]
        return mean_average_precision(heads, self.objects)[1]


def detections(outputs: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Boxes (D, 4), labels (D,) and scores (D,) of each image, best first, after non-maximum suppression."""
    parts = [_decode(output, stride) for output, stride in zip(outputs, STRIDES)]
    boxes, scores = (np.concatenate(group, 1) for group in zip(*parts))
    return [_suppress(boxes[i], scores[i]) for i in range(len(boxes))]


def mean_average_precision(outputs: list[np.ndarray], objects: list[Objects]) -> tuple[float, float]:
    """mAP at IoU 0.5 and mean of mAP at IoU 0.5, 0.55 ... 0.95, both in percent; area under the monotone curve."""
    found = detections(outputs)
    limits = np.arange(0.5, 0.96, 0.05)
    precisions = np.array([_average_precision(found, objects, c, limits) for c in range(len(CLASS_NAMES))])
    return 100 * float(precisions[:, 0].mean()), 100 * float(precisions.mean())


def _decode(output: np.ndarray, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (N, cells, 4) and class scores (N, cells, classes) of one head."""
    rows, columns = output.shape[2:]
    y, x = np.meshgrid(np.arange(rows) + 0.5, np.arange(columns) + 0.5, indexing="ij")
    centre = (np.stack([x, y]) + output[:, :2]) * stride
    half = np.exp(np.clip(output[:, 2:4], -4, 4)) * (stride / 2)
    boxes = np.concatenate([centre - half, centre + half], 1).reshape(len(output), 4, -1)
    scores = 1 / (1 + np.exp(-output[:, 4:])).reshape(len(output), output.shape[1] - 4, -1)
    return boxes.transpose(0, 2, 1), scores.transpose(0, 2, 1)


def _suppress(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cells, labels = np.nonzero(scores > LEAST_SCORE)
    values = scores[cells, labels]
    order = np.argsort(-values, kind="stable")[:300]
    boxes, labels, values = boxes[cells[order]], labels[order], values[order]
    same = (labels[:, None] == labels[None]) & (iou(boxes, boxes) > NMS_IOU)
    alive = np.ones(len(order), bool)
    for i in range(len(order)):
        if alive[i]:
            alive[i + 1 :] &= ~same[i, i + 1 :]
    kept = np.flatnonzero(alive)[:MOST_DETECTIONS]
    return boxes[kept], labels[kept], values[kept]


def _average_precision(
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], objects: list[Objects], label: int, limits: np.ndarray
) -> np.ndarray:
    """Average precision of one class at each IoU limit: greedy matching by score, each object matched once."""
    scores: list[float] = []
    hits: list[np.ndarray] = []
    total = 0
    for (boxes, labels, values), truth in zip(found, objects):
        wanted = truth.boxes[truth.labels == label]
        total += len(wanted)
        mine = labels == label
        overlaps = iou(boxes[mine], wanted)
        free = np.ones((len(limits), len(wanted)), bool)
        for row, value in zip(overlaps, values[mine]):
            candidates = np.where(free, row, -1.0) if len(wanted) else np.full((len(limits), 1), -1.0)
            best = candidates.argmax(1)
            hit = candidates.max(1) >= limits
            for i in np.flatnonzero(hit):
                free[i, best[i]] = False
            scores.append(float(value))
            hits.append(hit)
    if not hits or not total:
        return np.zeros(len(limits))
    ranked = np.array(hits)[np.argsort(-np.array(scores), kind="stable")]
    true = ranked.cumsum(0)
    recall = true / total
    precision = true / np.arange(1, len(ranked) + 1)[:, None]
    envelope = np.maximum.accumulate(precision[::-1], 0)[::-1]
    steps = np.diff(recall, axis=0, prepend=0)
    return (steps * envelope).sum(0)
