"""User metric, as `package.module:name` or `file.py:name`: the protocol of docs/accuracy.md.

`name` is one of two things, and higher is better:

- a function `(outputs, labels) -> number`, called for each run of the network; the mean over the samples counts;
- a class that needs no arguments, with `add(outputs, labels)`, called for each run, and `result() -> number`, called
  once: for metrics that are not a mean over samples, such as mAP.

outputs: name of a graph output -> its values as real numbers, shaped as the network makes them. labels: the rows of the
`labels` array that belong to these samples, None if the inputs have no labels.
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
from qdq_translator.simulate.inputs import sample_words

Outputs = Mapping[str, np.ndarray]
_PROTOCOL = "A metric is a function (outputs, labels) -> number, or a class with add(outputs, labels) and result()."
_SHOWN_FRAMES = 3
"""Of a traceback, the last ones."""


@dataclass(frozen=True)
class UserMetric:
    """A loaded metric. name: as the user gave it. make: the function, or the class."""

    name: str
    make: Callable[..., Any]

    def start(self, stage: str) -> Score:
        """A fresh count over one stage ('explicit', 'simulated', ...)."""
        return Score(self, stage)

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)`, of the user's code. Raises UserError with the user's part of the traceback; `what`:
        its context, e.g. 'on sample 3 of the explicit stage'."""
        try:
            return function(*arguments)
        except UserError:  # of `task_metrics`
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
        """`value` as a float. Raises UserError if it is not a number or not finite."""
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
    """One metric over one stage, run by run."""

    def __init__(self, metric: UserMetric, stage: str) -> None:
        self.metric, self.stage = metric, stage
        self._sum, self._samples = 0.0, 0
        self._object: Any = None
        if inspect.isclass(metric.make):
            self._object = metric.call("when it is made", metric.make)
            if not all(callable(getattr(self._object, name, None)) for name in ("add", "result")):
                raise UserError(f"The class '{metric.name}' has no methods add and result.", _PROTOCOL)

    def add(self, outputs: Outputs, labels: Optional[np.ndarray], batch: int = 1) -> None:
        """Add the outputs of one run, of `batch` samples. Raises UserError if the user's code fails."""
        what = f"on {sample_words(self._samples, batch)} of the {self.stage} stage"
        self._samples += batch
        if self._object is not None:
            self.metric.call(what, self._object.add, dict(outputs), labels)
        else:
            value = self.metric.call(what, self.metric.make, dict(outputs), labels)
            self._sum += batch * self.metric.number(what, value)

    def result(self) -> float:
        """Raises UserError if the user's code fails or gives no finite number."""
        if self._object is None:
            return self._sum / self._samples if self._samples else 0.0
        what = f"over all samples of the {self.stage} stage"
        return self.metric.number(what, self.metric.call(what, self._object.result))


def load_metric(spec: str) -> UserMetric:
    """Load `package.module:name` or `path/file.py:name`. Modules are searched for in the working folder too.

    Raises UserError if it does not exist.
    """
    from qdq_translator.core.parsing import did_you_mean

    given = getattr(spec, "function", None)
    if given is not None:  # a callable of the Python API
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
    sys.modules[found.name] = module  # dataclasses look their module up there
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
