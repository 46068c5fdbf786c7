"""A COCO-style folder and a YOLO's outputs: images as the network takes them, boxes with scores, mean average precision.

Preparation, candidates and suppression are those that ultralytics validates with: letterbox on grey 114, scores above 0.001, IoU 0.7
within a class, 300 boxes at most. Outputs: [1, 4 + classes, N] (YOLOv8, YOLO11, YOLOv5u), or [1, N, 5 + classes] with an
objectness (YOLOv5).
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np

from e2e_workflow.common.lazy import later
from e2e_workflow.common.shapes import iou

LEAST_SCORE, NMS_IOU, MOST_CANDIDATES, MOST_BOXES, GREY = 0.001, 0.7, 3000, 300, 114
evaluation = later("pycocotools.cocoeval")
annotated = later("pycocotools.coco")
Detector = Callable[[np.ndarray], np.ndarray]


def prepare(path: Path, height: int, width: int) -> tuple[np.ndarray, float, tuple[float, float]]:
    """An image as [1, 3, height, width], float32 in [0, 1], RGB; the factor by which it was scaled, and how far it was moved."""
    from PIL import Image

    image = Image.open(path).convert("RGB")
    factor = min(width / image.width, height / image.height)
    size = (round(image.width * factor), round(image.height * factor))
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    canvas = Image.new("RGB", (width, height), (GREY, GREY, GREY))
    canvas.paste(image.resize(size, Image.Resampling.BILINEAR) if size != image.size else image, (left, top))
    return np.asarray(canvas, np.float32).transpose(2, 0, 1)[None] / 255, factor, (left, top)


def boxes_of(output: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (D, 4) as x1, y1, x2, y2, classes (D,) and scores (D,), best first. Raises ValueError for another output."""
    rows = output[0].T if output.shape[1] == 4 + classes else output[0]
    if rows.shape[1] == 5 + classes:
        scores = rows[:, 5:] * rows[:, 4:5]
    elif rows.shape[1] == 4 + classes:
        scores = rows[:, 4:]
    else:
        raise ValueError(f"An output of {output.shape} does not fit {classes} classes: 4 or 5 more are expected.")
    where, labels = np.nonzero(scores > LEAST_SCORE)
    values = scores[where, labels]
    order = np.argsort(-values, kind="stable")[:MOST_CANDIDATES]
    where, labels, values = where[order], labels[order], values[order]
    half = rows[where, 2:4] / 2
    boxes = np.concatenate([rows[where, :2] - half, rows[where, :2] + half], 1)
    kept: list[int] = []
    for label in np.unique(labels):
        left = np.flatnonzero(labels == label)
        while len(left):
            kept.append(int(left[0]))
            left = left[1:][iou(boxes[left[:1]], boxes[left[1:]])[0] <= NMS_IOU]
    chosen = np.sort(np.array(kept, np.int64))[:MOST_BOXES]
    return boxes[chosen], labels[chosen], values[chosen]


def images(folder: Path, height: int, width: int, most: int) -> Iterator[np.ndarray]:
    """The first `most` images of a folder, as `prepare` makes them."""
    names = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    for name in names[:most]:
        yield prepare(name, height, width)[0]


def mean_average_precision(
    folder: Path, annotations: Path, detector: Detector, height: int, width: int, most: int | None = None
) -> tuple[float, float]:
    """mAP at IoU 0.5 to 0.95, and at 0.5, in percent, of the first `most` images of the annotations (None: of all).

    detector: an image to the network's output.
    """
    data = json.loads(annotations.read_text(encoding="utf-8"))
    categories = sorted(row["id"] for row in data["categories"])
    chosen = data["images"][:most]
    found: list[dict[str, Any]] = []
    for row in chosen:
        image, factor, moved = prepare(folder / row["file_name"], height, width)
        boxes, labels, scores = boxes_of(detector(image), len(categories))
        boxes = (boxes - np.tile(moved, 2)) / factor
        boxes = np.clip(boxes, 0, np.array([row["width"], row["height"]] * 2))
        for box, label, score in zip(boxes.astype(float), labels, scores):
            corner = [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()]
            found.append(
                {"image_id": row["id"], "category_id": categories[label], "bbox": corner, "score": float(score)}
            )
    if not found:
        return 0.0, 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        truth = annotated.COCO(str(annotations))
        judge = evaluation.COCOeval(truth, truth.loadRes(found), "bbox")
        judge.params.imgIds = [row["id"] for row in chosen]
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return 100 * float(judge.stats[0]), 100 * float(judge.stats[1])
