"""Metrics: built in, or the user's, as `package.module:name` or `file.py:name`. docs/accuracy.md describes the
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
import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.named_metrics import METRICS, MeanAveragePrecision, takes

Outputs = Mapping[str, np.ndarray]
_PROTOCOL = "A metric is a function (outputs, labels) -> number, or a class with add(outputs, labels) and result()."
_SHOWN_FRAMES = 3
"""The last frames of a traceback."""


@dataclass(frozen=True)
class UserMetric:
    """A loaded metric. name: as the user gave it. make: the function, or the class, which is called with the
    arguments."""

    name: str
    make: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    def start(self, stage: str) -> Score:
        """A new score for one stage ('explicit', 'simulated', ...)."""
        return Score(self, stage)

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)` of the user's code. Raises UserError with the user's part of the traceback; `what`:
        its context, e.g. 'on sample 3 of the explicit stage'."""
        try:
            return function(*arguments)
        except UserError:  # raised by built-in ones
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
            self._object = metric.call("when it is made", metric.make, *metric.arguments)
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

    def error_of_difference(self, other: Score, samples: int) -> float:
        """Standard error of the difference of two scores on the same samples. Of a class, whose result is no mean, what
        one sample is worth."""
        differences = np.subtract(self.values, other.values)
        if len(differences) > 1:
            return float(differences.std(ddof=1) / math.sqrt(len(differences)))
        return abs(self.result()) / max(samples, 1)

    def result(self) -> float:
        """Raises UserError if the user's code fails or does not return a finite number."""
        if self._object is None:
            return sum(self.values) / len(self.values) if self.values else 0.0
        what = f"over all samples of the {self.stage} stage"
        return self.metric.number(what, self.metric.call(what, self._object.result))


def metric_for(asked: Optional[str], samples: Samples, model: onnx.ModelProto) -> Optional[UserMetric]:
    """The metric that was asked for, else the one that the labels of a data set decide for the outputs of `model`."""
    name = asked or (samples.metric if takes(samples.metric, model, samples.classes) else "")
    return metric_of(name, samples.classes) if name else None


def metric_of(spec: str, classes: int = 0) -> UserMetric:
    """Load a built-in metric, `package.module:name` or `path/file.py:name`. Modules in the working folder are found
    too. classes: of a detector, 0 if unknown. Raises UserError if it does not exist.
    """
    given = getattr(spec, "function", None)
    if given is not None:  # a callable of the Python API
        return UserMetric(str(spec), given)
    key = spec.lower().replace("-", "_")
    if key in METRICS:
        made = METRICS[key]
        return UserMetric(key, made, (classes,) if made is MeanAveragePrecision else ())
    place, _, name = spec.rpartition(":")
    if not place or not name.isidentifier():
        known = did_you_mean(spec, METRICS) or f"Built in are {', '.join(METRICS)}; or write file.py:name. {_PROTOCOL}"
        raise UserError(f"'{spec}' does not name a metric.", known)
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
