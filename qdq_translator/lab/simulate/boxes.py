"""Boxes that the outputs of detectors state, and the decisions that they are."""

from __future__ import annotations

import itertools
import math
from typing import Any, Mapping

import numpy as np

from qdq_translator.core.errors import UserError

NMS_IOU, YOLO_IOU, LEAST_SCORE, MOST_BOXES, MOST_CANDIDATES = 0.6, 0.7, 0.001, 300, 30000
"""IoU above which non-maximum suppression drops a box, in the validation of YOLOv5 and of ultralytics; the score below
which both ignore one, and the most boxes that they keep, and sort, for one image."""
CLEAR_SCORE, LEAST_MATCH, SAME_PLACE = 0.5, 0.25, 0.5
"""Score of a box that counts as a decision; score and IoU of one that repeats it."""
Outputs = Mapping[str, np.ndarray]
OWN = "Give a metric of your own for other outputs: --metric file.py:name."


def detections(outputs: Outputs, classes: int) -> list[np.ndarray]:
    """(boxes, 6) of each sample."""
    three = [values.astype(np.float64) for values in outputs.values() if values.ndim == 3]
    for values in three:
        if values.shape[2] == 6 and _are_final(values):
            return list(values)
    for boxes, scores in itertools.permutations(three, 2):
        if boxes.shape[2] == 4 and scores.shape[:2] == boxes.shape[:2]:
            return [_suppressed(b, s, NMS_IOU) for b, s in zip(boxes, scores)]
    for values in three:
        form = head(values.shape, classes)
        if form:
            return [_of_head(rows, form, classes) for rows in values]
    raise UserError(
        "map needs the output of a YOLO head, (samples, boxes, 6), or (samples, boxes, 4) and (samples, boxes, "
        "classes).",
        OWN,
    )


def _of_head(rows: np.ndarray, form: int, classes: int, least: float = LEAST_SCORE) -> np.ndarray:
    """(kept, 6) of one sample of a head; see `head`. classes: 0 for all channels that there are. least: score."""
    if form == 8:
        return _suppressed(_corners(rows[:4].T), rows[4 : 4 + classes if classes else None].T, YOLO_IOU, least)
    scores = rows[:, 4:5] * rows[:, 5 : 5 + classes if classes else None]
    return _suppressed(_corners(rows[:, :4]), scores, NMS_IOU, least)


def head(shape: Any, classes: int) -> int:
    """8 for (samples, 4 + classes, boxes), 5 for (samples, boxes, 5 + classes), 0 for neither; more channels (masks,
    key points) may follow. Sizes that are no integers are unknown. Where the classes do not decide, there are more
    boxes than channels."""
    first, last = (size if isinstance(size, int) and size > 0 else math.inf for size in shape[1:])
    if classes and (first, last) != (math.inf, math.inf):
        for size, form, more in ((first, 8, 4), (last, 5, 5)):
            if size == more + classes:
                return form
    if min(first, last) < (classes or 1) + 4:
        return 0
    return 8 if first < last else 5 if last >= (classes or 1) + 5 else 0


def _are_final(values: np.ndarray) -> bool:
    """Whether an output of the shape (samples, boxes, 6) holds final boxes: two corners, a score from 0 to 1 and a
    whole number as class. Otherwise it is a head of one class: x, y, w, h, objectness and a score."""
    return bool(
        np.all(values[..., 5] == np.round(values[..., 5]))
        and np.all(values[..., 2:4] >= values[..., :2] - 1e-3)
        and np.all(np.abs(values[..., 4] - 0.5) <= 0.501)
    )


def _corners(boxes: np.ndarray) -> np.ndarray:
    """The first and the last corner, (B, 4) in pixels, of boxes given as centre x, y, width and height, (B, 4)."""
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def _suppressed(boxes: np.ndarray, scores: np.ndarray, limit: float, least: float = LEAST_SCORE) -> np.ndarray:
    """(kept, 6) of corners (B, 4) and scores (B, classes), after non-maximum suppression in each class; the best
    MOST_BOXES."""
    box, label = np.nonzero(scores > least)
    order = np.argsort(-scores[box, label], kind="stable")[:MOST_CANDIDATES]
    box, label = box[order], label[order]
    left = np.arange(len(box))
    kept: list[list[float]] = []
    while len(left) and len(kept) < MOST_BOXES:
        best, left = left[0], left[1:]
        kept.append([*boxes[box[best]], scores[box[best], label[best]], label[best]])
        same = label[left] == label[best]
        left = left[~(same & (overlap(boxes[box[best]], boxes[box[left]]) > limit))]
    return np.array(kept).reshape(-1, 6)


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of corners (4,) with (B, 4): (B,)."""
    if not len(others):
        return np.zeros(0)
    corner = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inside = np.clip(corner[1] - corner[0], 0, None).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    return inside / np.maximum(areas - inside, 1e-12)


def box_decisions(reference: np.ndarray, other: np.ndarray) -> tuple[int, int]:
    """(number of boxes of CLEAR_SCORE in `reference`, number of those that no box of `other` of the same class
    repeats); (0, 0) for what is not the head of a detector by its values: scores from 0 to 1, sizes in pixels above 0.
    Both (samples, 4 + classes, boxes), or (samples, boxes, 5 + classes) with objectness."""
    form = head(reference.shape, 0) if reference.ndim == 3 and reference.dtype.kind == "f" else 0
    channels = reference if form == 8 else reference.swapaxes(1, 2) if form else np.zeros((0, 4, 0))
    sizes, scores = channels[:, 2:4], channels[:, 4:]
    if not scores.size or scores.min() < 0 or scores.max() > 1 or sizes.min() <= 0 or sizes.max() <= 2:
        return 0, 0
    decided = changed = 0
    for rows, others in zip(reference.astype(np.float64), other.astype(np.float64)):
        clear, found = _of_head(rows, form, 0, CLEAR_SCORE), _of_head(others, form, 0, LEAST_MATCH)
        decided += len(clear)
        changed += sum(not (overlap(box[:4], found[found[:, 5] == box[5], :4]) >= SAME_PLACE).any() for box in clear)
    return decided, changed
