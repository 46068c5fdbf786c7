"""The metrics that have a name of their own: `top1` and `map`. Any other is the user's (`user_metric`)."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.simulate.metrics import class_scores
from qdq_translator.simulate.user_metric import Outputs, UserMetric, load_metric

TOP1, MAP = "top1", "map"
IOU_LIMITS = np.arange(0.5, 0.96, 0.05)
NMS_IOU = 0.6


def metric_of(spec: str) -> UserMetric:
    """Raises UserError for no metric."""
    named: dict[str, Callable[..., Any]] = {TOP1: top1, MAP: MeanAveragePrecision}
    return UserMetric(spec, named[spec]) if spec in named else load_metric(spec)


def top1(outputs: Outputs, labels: Optional[np.ndarray]) -> float:
    """Percent of samples whose largest score is the label's. Also accepts classes: (samples,) integers."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError("top1 needs one class (an integer) for each sample.", "Give them with --labels.")
    for values in outputs.values():
        scores = class_scores(values)
        best = scores.argmax(axis=1) if scores is not None else values if values.dtype.kind == "i" else None
        if best is not None and best.shape == labels.shape:
            return 100.0 * float(np.mean(best == labels))
    raise UserError("No output contains class scores (samples x classes).", "Use another --metric than top1.")


class MeanAveragePrecision:
    """Mean over classes and the IoU limits 0.5, 0.55 ... 0.95 of the area under the precision-recall curve (made
    monotone, as COCO has it, without its 101 sampled points), in percent.

    outputs: one (samples, boxes, 6) of x1, y1, x2, y2, score, class; or one (samples, boxes, 4) of corners and one
    (samples, boxes, classes) of scores, which non-maximum suppression at IoU 0.6 thins out. labels: (samples, objects,
    5) of class, x1, y1, x2, y2; a class below 0 is no object.
    """

    def __init__(self) -> None:
        self._found: list[np.ndarray] = []
        self._wanted: list[np.ndarray] = []

    def add(self, outputs: Outputs, labels: Optional[np.ndarray]) -> None:
        if labels is None or labels.ndim != 3 or labels.shape[2] != 5:
            raise UserError("map needs labels of the shape (samples, objects, 5).", "See docs/tuning.md.")
        self._found += _detections(outputs)
        self._wanted += [rows[rows[:, 0] >= 0] for rows in np.asarray(labels, np.float64)]

    def result(self) -> float:
        classes = sorted({int(c) for rows in self._wanted for c in rows[:, 0]})
        if not classes:
            raise UserError("The labels contain no object.", "map needs some.")
        return 100.0 * float(np.mean([_average_precision(self._found, self._wanted, c) for c in classes]))


def _detections(outputs: Outputs) -> list[np.ndarray]:
    """(boxes, 6) of each sample."""
    three = {name: values for name, values in outputs.items() if values.ndim == 3}
    for values in three.values():
        if values.shape[2] == 6:
            return list(values.astype(np.float64))
    boxes = next((values for values in three.values() if values.shape[2] == 4), None)
    scores = next(
        (v for v in three.values() if v is not boxes and boxes is not None and v.shape[:2] == boxes.shape[:2]), None
    )
    if boxes is None or scores is None:
        raise UserError(
            "map needs an output (samples, boxes, 6), or (samples, boxes, 4) and (samples, boxes, classes).",
            "Give a metric of your own for other heads: --metric file.py:name.",
        )
    return [_suppressed(b.astype(np.float64), s.astype(np.float64)) for b, s in zip(boxes, scores)]


def _suppressed(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(kept, 6) of boxes (B, 4) and scores (B, classes)."""
    kept = []
    for label in range(scores.shape[1]):
        left = list(np.argsort(-scores[:, label], kind="stable"))
        while left:
            best = left.pop(0)
            kept.append([*boxes[best], scores[best, label], label])
            ious = overlap(boxes[best], boxes[left])
            left = [index for index, iou in zip(left, ious) if iou <= NMS_IOU]
    return np.array(kept).reshape(-1, 6)


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of corners (4,) with (B, 4): (B,)."""
    if not len(others):
        return np.zeros(0)
    corner = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inside = np.clip(corner[1] - corner[0], 0, None).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    return inside / np.maximum(areas - inside, 1e-12)


def _average_precision(found: list[np.ndarray], wanted: list[np.ndarray], label: int) -> float:
    """Of one class, the mean over IOU_LIMITS; 0 to 1."""
    rows = [(-row[4], image, row[:4]) for image, boxes in enumerate(found) for row in boxes if int(row[5]) == label]
    rows.sort(key=lambda row: row[:2])
    truth = [boxes[boxes[:, 0] == label, 1:] for boxes in wanted]
    total = sum(map(len, truth))
    hits = np.zeros((len(IOU_LIMITS), len(rows)), bool)
    for index, limit in enumerate(IOU_LIMITS):
        free = [np.ones(len(boxes), bool) for boxes in truth]
        for place, (_, image, box) in enumerate(rows):
            ious = np.where(free[image], overlap(box, truth[image]), 0.0)
            if len(ious) and ious.max() >= limit:
                free[image][int(ious.argmax())] = False
                hits[index, place] = True
    areas = []
    for row in hits:
        right = np.cumsum(row)
        precision = right / np.arange(1, len(row) + 1)
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        areas.append(float(precision[row].sum()) / total)
    return float(np.mean(areas))
