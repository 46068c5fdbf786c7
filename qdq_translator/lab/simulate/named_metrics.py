"""Built-in metrics, for `--metric NAME`: of classes, boxes, masks, pictures and texts. Higher is better."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Optional

import numpy as np
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.lab.simulate.boxes import OWN, detections, head, overlap
from qdq_translator.lab.simulate.datasets import MAP, TOP1
from qdq_translator.lab.simulate.metrics import class_scores

Outputs = Mapping[str, np.ndarray]
IOU_LIMITS = np.arange(0.5, 0.96, 0.05)
RECALLS = np.linspace(0, 1, 101)
MOST_PSNR = 100.0


def top1(outputs: Outputs, labels: Optional[np.ndarray]) -> float:
    """Percent of samples whose largest score is the label's. Also accepts classes: (samples,) integers."""
    return _top(outputs, labels, 1)


def top5(outputs: Outputs, labels: Optional[np.ndarray]) -> float:
    """Percent of samples with the label among the five largest scores."""
    return _top(outputs, labels, 5)


def _top(outputs: Outputs, labels: Optional[np.ndarray], most: int) -> float:
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"top{most} needs one class (an integer) for each sample.", "Give them with --labels.")
    for values in outputs.values():
        scores = class_scores(values)
        if scores is not None and len(scores) == len(labels):
            best = np.argsort(-scores, axis=1, kind="stable")[:, :most]
            return 100.0 * float(np.mean((best == labels[:, None]).any(axis=1)))
        if values.dtype.kind == "i" and values.shape == labels.shape and most == 1:
            return 100.0 * float(np.mean(values == labels))
    raise UserError("No output contains class scores (samples x classes).", f"Use another --metric than top{most}.")


class MeanAveragePrecision:
    """COCO's mean average precision in percent: the mean over classes and the IoU limits 0.5, 0.55 ... 0.95 of the
    precision at 101 recalls.

    outputs: a YOLO head of version 5 to 7, (samples, boxes, 5 + classes) of x, y, w, h, objectness and scores; of 8 to
    12, (samples, 4 + classes, boxes); (samples, boxes, 6) of corners, score and class (10, or with suppression in the
    network); or corners (samples, boxes, 4) and scores (samples, boxes, classes). labels: (samples, objects, 5) of
    class and corners; a class below 0 is no object. classes: of the head, 0 if unknown.
    """

    def __init__(self, classes: int = 0) -> None:
        self._classes = classes
        self._found: list[np.ndarray] = []
        self._wanted: list[np.ndarray] = []

    def add(self, outputs: Outputs, labels: Optional[np.ndarray]) -> None:
        if labels is None or labels.ndim != 3 or labels.shape[2] != 5:
            raise UserError("map needs labels of the shape (samples, objects, 5).", "See docs/accuracy.md.")
        self._found += detections(outputs, self._classes)
        self._wanted += [rows[rows[:, 0] >= 0] for rows in np.asarray(labels, np.float64)]

    def result(self) -> float:
        classes = sorted({int(c) for rows in self._wanted for c in rows[:, 0]})
        if not classes:
            raise UserError("The labels contain no object.", "map needs some.")
        return 100.0 * float(np.mean([_average_precision(self._found, self._wanted, c) for c in classes]))


def _average_precision(found: list[np.ndarray], wanted: list[np.ndarray], label: int) -> float:
    """Mean over IOU_LIMITS for one class; 0 to 1."""
    rows = [(-row[4], image, row[:4]) for image, boxes in enumerate(found) for row in boxes if int(row[5]) == label]
    rows.sort(key=lambda row: row[:2])
    truth = [boxes[boxes[:, 0] == label, 1:] for boxes in wanted]
    total = sum(map(len, truth))
    ious = [overlap(box, truth[image]) for _, image, box in rows]
    hits = np.zeros((len(IOU_LIMITS), len(rows)), bool)
    for index, limit in enumerate(IOU_LIMITS):
        free = [np.ones(len(boxes), bool) for boxes in truth]
        for place, (_, image, _) in enumerate(rows):
            open_ones = np.where(free[image], ious[place], 0.0)
            if len(open_ones) and open_ones.max() >= limit:
                free[image][int(open_ones.argmax())] = False
                hits[index, place] = True
    areas = []
    for row in hits:
        right = np.cumsum(row)
        precision = np.maximum.accumulate((right / np.arange(1, len(row) + 1))[::-1])[::-1]
        places = np.searchsorted(right / total, RECALLS)
        areas.append(float(np.append(precision, 0.0)[np.minimum(places, len(row))].mean()))
    return float(np.mean(areas))


class MeanIou:
    """Mean over the classes of the labels of intersection over union, in percent. outputs: scores (samples, classes,
    height, width), of one class also probabilities or logits, or classes (samples, height, width). labels: (samples,
    height, width) of classes; below 0 and 255 are left out."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        self._either: dict[int, int] = {}

    def add(self, outputs: Outputs, labels: Optional[np.ndarray]) -> None:
        if labels is None or labels.ndim != 3:
            raise UserError("miou needs labels of the shape (samples, height, width).", OWN)
        found = next((mask for mask in map(_mask, outputs.values()) if mask is not None), None)
        if found is None:
            raise UserError("miou needs an output (samples, classes, height, width).", OWN)
        rows, columns = (np.arange(size) * has // size for size, has in zip(labels.shape[1:], found.shape[1:]))
        found, counts = found[:, rows][:, :, columns], (labels >= 0) & (labels != 255)
        for label in map(int, np.unique(labels[counts])):
            one, other = (found == label) & counts, labels == label
            self._inside[label] = self._inside.get(label, 0) + int((one & other).sum())
        for label in map(int, np.unique(np.append(labels[counts], found[counts]))):
            either = ((found == label) & counts) | (labels == label)
            self._either[label] = self._either.get(label, 0) + int(either.sum())

    def result(self) -> float:
        if not self._inside:
            raise UserError("The labels contain no class.", "miou needs some.")
        return 100.0 * float(np.mean([inside / self._either[label] for label, inside in self._inside.items()]))


def _mask(values: np.ndarray) -> Optional[np.ndarray]:
    """(samples, height, width) of classes; None for another output."""
    if values.ndim == 3 and values.dtype.kind in "iu":
        return values
    if values.ndim != 4 or values.dtype.kind != "f":
        return None
    if values.shape[1] == 1:
        return (values[:, 0] > (0.5 if values.min() >= 0 and values.max() <= 1 else 0.0)).astype(np.int64)
    return values.argmax(axis=1)


def psnr(outputs: Outputs, labels: Optional[np.ndarray]) -> float:
    """Peak signal-to-noise ratio in dB, at most MOST_PSNR. labels: the wanted output, up to 1, or up to 255."""
    values = None if labels is None else next((v for v in outputs.values() if v.size == labels.size), None)
    if labels is None or values is None:
        raise UserError("psnr needs labels of the shape of an output.", OWN)
    wanted = np.asarray(labels, np.float64)
    peak = 255.0 if wanted.max() > 2 else 1.0
    error = float(np.mean((values.reshape(wanted.shape).astype(np.float64) - wanted) ** 2))
    return min(MOST_PSNR, 10 * math.log10(peak**2 / error)) if error else MOST_PSNR


class CharacterAccuracy:
    """Percent of characters that are right, 100 minus the edit distance, of a CTC output (samples, steps, symbols) or
    (steps, samples, symbols), decoded greedily. labels: (samples, most) of symbols, filled up with -1. The blank is
    symbol 0, or the last one if the labels use 0."""

    def __init__(self) -> None:
        self._steps: list[np.ndarray] = []
        self._wanted: list[list[int]] = []
        self._last = 0

    def add(self, outputs: Outputs, labels: Optional[np.ndarray]) -> None:
        if labels is None or labels.ndim != 2 or labels.dtype.kind not in "iu":
            raise UserError("Texts need labels of the shape (samples, symbols), filled up with -1.", OWN)
        values = next((v for v in outputs.values() if v.ndim == 3 and len(labels) in v.shape[:2]), None)
        if values is None:
            raise UserError("No output is that of a CTC (samples, steps, symbols).", OWN)
        first = len(values) == len(labels) and not (len(labels) == 1 and values.shape[1] == 1)
        self._steps += list((values if first else values.swapaxes(0, 1)).argmax(axis=2))
        self._wanted += [[int(one) for one in row if one >= 0] for row in labels]
        self._last = values.shape[2] - 1

    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """(characters that were read, those that were wanted) of each sample."""
        blank = self._last if any(0 in row for row in self._wanted) else 0
        kept = [[s for s, before in zip(row, [-1, *row]) if s not in (before, blank)] for row in self._steps]
        return list(zip(kept, self._wanted))

    def result(self) -> float:
        wrong = sum(_edits(read, wanted) for read, wanted in self.pairs())
        return 100.0 * (1 - wrong / max(1, sum(map(len, self._wanted))))


class WordAccuracy(CharacterAccuracy):
    """Percent of samples whose whole text is right; see `CharacterAccuracy`."""

    def result(self) -> float:
        return 100.0 * float(np.mean([read == wanted for read, wanted in self.pairs()]))


def _edits(read: list[int], wanted: list[int]) -> int:
    """The least number of insertions, deletions and replacements."""
    row = list(range(len(wanted) + 1))
    for number, one in enumerate(read, 1):
        before, row = row, [number]
        for place, other in enumerate(wanted, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (one != other)))
    return row[-1]


METRICS: dict[str, Callable[..., Any]] = {
    TOP1: top1,
    "top5": top5,
    MAP: MeanAveragePrecision,
    "miou": MeanIou,
    "psnr": psnr,
    "word_accuracy": WordAccuracy,
    "character_accuracy": CharacterAccuracy,
}


def _sizes(value: onnx.ValueInfoProto) -> list[Optional[int]]:
    return [dim.dim_value or None for dim in value.type.tensor_type.shape.dim]


def takes(name: str, model: onnx.ModelProto, classes: int = 0) -> bool:
    """Whether the outputs of `model` are such that `top1` or `map` of a data set can be measured. classes: 0 if
    unknown."""
    shapes = [_sizes(value) for value in model.graph.output]
    if name == TOP1:
        return any(len(shape) >= 2 and shape[1] != 1 and {*shape[2:]} <= {1} for shape in shapes)
    three = [shape for shape in shapes if len(shape) == 3]
    one = any(shape[2] == 6 or head(shape, classes) for shape in three)
    return name == MAP and (one or (len(three) > 1 and any(shape[2] == 4 for shape in three)))
