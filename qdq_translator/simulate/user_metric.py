"""Metrics: `top1`, `map`, or the user's, as `package.module:name` or `file.py:name`. docs/accuracy.md describes the
protocol: a function, whose values are averaged over the runs, or a class, for metrics that are not a mean over samples.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np

from qdq_translator.core.errors import UserError
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import class_scores

Outputs = Mapping[str, np.ndarray]
_PROTOCOL = "A metric is a function (outputs, labels) -> number, or a class with add(outputs, labels) and result()."
_SHOWN_FRAMES = 3
"""The last frames of a traceback."""


@dataclass(frozen=True)
class UserMetric:
    """A loaded metric. name: as the user gave it. make: the function, or the class."""

    name: str
    make: Callable[..., Any]

    def start(self, stage: str) -> Score:
        """A new score for one stage ('explicit', 'simulated', ...)."""
        return Score(self, stage)

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)` of the user's code. Raises UserError with the user's part of the traceback; `what`:
        its context, e.g. 'on sample 3 of the explicit stage'."""
        try:
            return function(*arguments)
        except UserError:  # raised by `top1` and `map`
            raise
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)[1:][-_SHOWN_FRAMES:]
            where = " > ".join(f"{Path(f.filename).name}, line {f.lineno}, in {f.name}: {f.line}" for f in frames)
            raise UserError(
                f"The metric '{self.name}' fails {what}: {type(error).__name__}: {error}"
                + (f" ({where})." if where else "."),
                "--verbose shows the whole traceback.",
            ) from error

    def number(self, what: str, value: Any) -> float:
        """`value` as a float. Raises UserError unless it is a finite number."""
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        except (TypeError, ValueError):
            raise UserError(
                f"The metric '{self.name}' returns {type(value).__name__} {what}, which is not a number.", _PROTOCOL
            ) from None
        if not math.isfinite(number):
            raise UserError(
                f"The metric '{self.name}' returns {number} {what}.",
                "It must be a finite number: define the metric for a sample without objects.",
            )
        return number


class Score:
    """One metric over one stage, run by run. values: one for each run, if the metric is a function."""

    def __init__(self, metric: UserMetric, stage: str) -> None:
        self.metric, self.stage = metric, stage
        self.values: list[float] = []
        self._object: Any = None
        if inspect.isclass(metric.make):
            self._object = metric.call("when it is made", metric.make)
            if not all(callable(getattr(self._object, name, None)) for name in ("add", "result")):
                raise UserError(f"The class '{metric.name}' has no methods add and result.", _PROTOCOL)

    def add(self, outputs: Outputs, samples: Samples, run: int) -> None:
        """Add the outputs of one run. Raises UserError if the user's code fails."""
        what, labels = f"on {samples.words(run)} of the {self.stage} stage", samples.labels_of(run)
        if self._object is not None:
            self.metric.call(what, self._object.add, dict(outputs), labels)
        else:
            value = self.metric.call(what, self.metric.make, dict(outputs), labels)
            self.values.append(self.metric.number(what, value))

    def result(self) -> float:
        """Raises UserError if the user's code fails or does not return a finite number."""
        if self._object is None:
            return sum(self.values) / len(self.values) if self.values else 0.0
        what = f"over all samples of the {self.stage} stage"
        return self.metric.number(what, self.metric.call(what, self._object.result))


def metric_of(spec: str) -> UserMetric:
    """Load `top1`, `map`, `package.module:name` or `path/file.py:name`. Modules in the working folder are found too.

    Raises UserError if it does not exist.
    """
    named: dict[str, Callable[..., Any]] = {TOP1: top1, MAP: MeanAveragePrecision}
    given = getattr(spec, "function", None) or named.get(spec)
    if given is not None:  # from this module, or a callable of the Python API
        return UserMetric(str(spec), given)
    place, _, name = spec.rpartition(":")
    if not place or not name.isidentifier():
        raise UserError(f"'{spec}' does not name a metric.", "Write file.py:name or package.module:name. " + _PROTOCOL)
    module = _module(place, spec)
    found = getattr(module, name, None)
    if not callable(found):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"{place} has no function or class '{name}'.", did_you_mean(name, public) or _PROTOCOL)
    return UserMetric(spec, found)


def _module(place: str, spec: str) -> Any:
    loading = UserMetric(spec, object)
    if not place.endswith(".py"):
        with _working_folder():
            return loading.call("while its module is imported", importlib.import_module, place)
    path = Path(place)
    if not path.is_file():
        raise UserError(f"{place} does not exist.", "Check the path of the metric.")
    found = importlib.util.spec_from_file_location(f"metric_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look up their module there
    with _working_folder(str(path.parent)):
        loading.call("while its file is loaded", found.loader.exec_module, module)
    return module


@contextlib.contextmanager
def _working_folder(folder: str = "") -> Iterator[None]:
    """Search `folder` (default: the working folder at program start) first for imports."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


TOP1, MAP = "top1", "map"
IOU_LIMITS = np.arange(0.5, 0.96, 0.05)
NMS_IOU = 0.6


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
    (samples, boxes, classes) of scores, reduced by non-maximum suppression at IoU 0.6. labels: (samples, objects, 5) of
    class, x1, y1, x2, y2; a class below 0 is no object.
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
    """Mean over IOU_LIMITS for one class; 0 to 1."""
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
