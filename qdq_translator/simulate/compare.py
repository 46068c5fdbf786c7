"""Compare outputs of explicit model, simulated implicit engine and, if given, float model on the same inputs. Results
of a real engine are compared too."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

import numpy as np
import onnx

from qdq_translator.core.disk import read_file
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import polygraphy
from qdq_translator.core.formats.npz import read_npz
from qdq_translator.core.formats.schemas import DEVICE_RESULTS, read_json
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import Work, shards
from qdq_translator.ir.graph import Graph
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import Simulated, copy_model
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, SlicedComparison, class_scores
from qdq_translator.simulate.run import CodedEnds, ExplicitNetwork, Session, folded, same_inputs
from qdq_translator.simulate.user_metric import UserMetric

EXPLICIT, SIMULATED, FLOAT = "explicit", "simulated", "float"


@dataclasses.dataclass
class OutputComparison:
    """pairs: (reference, other) -> output -> Comparison. accuracy: stage -> output -> percent of right labels. metric: stage ->
    the user's own metric, {} without one."""

    outputs: list[str]
    pairs: dict[tuple[str, str], dict[str, SlicedComparison]]
    accuracy: dict[str, dict[str, float]]
    metric: dict[str, float] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "pairs": [
                {"reference": a, "other": b, "outputs": {name: c.as_dict() for name, c in rows.items()}}
                for (a, b), rows in self.pairs.items()
            ],
            "accuracy": self.accuracy,
            "metric": self.metric,
        }


def compare_outputs(
    explicit: ExplicitNetwork,
    simulated: Simulated,
    samples: Samples,
    float_model: Optional[onnx.ModelProto] = None,
    device: Optional[DeviceResults] = None,
    progress: Progress = silent,
    others: Mapping[str, Simulated] = {},
    metric: Optional[UserMetric] = None,
    where: Evaluation = HERE,
) -> OutputComparison:
    """Runs every stage on every sample. others: stage -> the simulation at the other end of a hypothesis.

    Raises UserError if the models' inputs or outputs do not belong together.
    """
    names = [v.name for v in simulated.model.graph.output]
    stages = {EXPLICIT: folded(explicit.model), SIMULATED: simulated.model}
    same_inputs([v.name for v in simulated.model.graph.input], explicit.graph.inputs, EXPLICIT)
    given = [v.name for v in explicit.model.graph.output]
    if set(names) != set(given):
        raise UserError(
            f"The explicit model has the outputs {', '.join(given)}; the translation has {', '.join(names)}.",
            "Give the model that the translation was made from.",
        )
    pairs = [(EXPLICIT, SIMULATED)]
    rename: dict[str, str] = {}
    if float_model is not None:
        graph = Graph.from_model(copy_model(float_model))
        same_inputs([v.name for v in simulated.model.graph.input], graph.inputs, FLOAT)
        stages[FLOAT] = graph.to_model()
        rename = _match_outputs(list(graph.outputs), names)
        pairs += [(FLOAT, EXPLICIT), (FLOAT, SIMULATED)]
    stages.update({stage: other.model for stage, other in others.items()})
    for engine in device.outputs if device is not None else ():
        pairs += [(stage, f"device {engine}") for stage in stages]
    pairs += [(EXPLICIT, stage) for stage in others]
    devices = [f"device {engine}" for engine in (device.outputs if device is not None else ())]
    scores = {stage: metric.start(stage) for stage in (*stages, *devices)} if metric is not None else {}
    work = _Comparing(stages, explicit.ends, rename, names, pairs, samples, device, where.provider, metric is not None)
    scored = 0

    def score(part: _Compared) -> None:
        """Score in this process in sample order, for any worker."""
        nonlocal scored
        for values in part.outputs:
            for stage, one in scores.items():
                one.add(values[stage], samples.labels_of(scored), samples.batch)
            scored += 1
        part.outputs.clear()

    found = where.engine.run(
        work, shards(samples.runs), lambda done: progress("comparing outputs", done, samples.runs), score
    )
    result = OutputComparison(names, found.rows, {})
    result.metric = {stage: one.result() for stage, one in scores.items()}
    for (stage, name), count in found.right.items():
        result.accuracy.setdefault(stage, {})[name] = 100 * count / len(samples)
    return result


@dataclasses.dataclass
class _Compared:
    """rows: pair -> output -> comparison. right: (stage, output) -> right labels. outputs: of each run, stage -> output
    -> values, if a metric needs them."""

    rows: dict[tuple[str, str], dict[str, SlicedComparison]]
    right: dict[tuple[str, str], int]
    outputs: list[dict[str, dict[str, np.ndarray]]]


@dataclasses.dataclass
class _Comparing(Work):
    """All pairs of stages. keep: the outputs too."""

    stages: dict[str, onnx.ModelProto]
    ends: CodedEnds
    rename: dict[str, str]
    names: list[str]
    pairs: list[tuple[str, str]]
    samples: Samples
    device: Optional[DeviceResults]
    provider: str
    keep: bool

    def open(self) -> Callable[[int], _Compared]:
        samples, device = self.samples, self.device
        sessions = {
            stage: Session(model, stage, one_thread=True, provider=self.provider)
            for stage, model in self.stages.items()
        }

        def compared(run: int) -> _Compared:
            feed = samples.feed(run)
            values = {
                stage: session.run(self.ends.feed(feed) if stage == EXPLICIT else feed)
                for stage, session in sessions.items()
            }
            values[EXPLICIT] = self.ends.real(values[EXPLICIT])
            if FLOAT in values:
                values[FLOAT] = {self.rename[n]: v for n, v in values[FLOAT].items() if n in self.rename}
            if device is not None:
                for engine in device.outputs:
                    values[f"device {engine}"] = device.batch(engine, run, values[EXPLICIT])
            rows: dict[tuple[str, str], dict[str, SlicedComparison]] = {}
            for a, b in self.pairs:
                rows[a, b] = {name: SlicedComparison(samples.batch) for name in self.names}
                for name, row in rows[a, b].items():
                    _add(row, values[a][name], values[b][name], name, a, b)
            return _Compared(rows, self._right(run, values), [values] if self.keep else [])

        return compared

    def _right(self, run: int, values: Mapping[str, Mapping[str, np.ndarray]]) -> dict[tuple[str, str], int]:
        right: dict[tuple[str, str], int] = {}
        labels = self.samples.classes_of(run)
        if labels is None:
            return right
        for stage, outputs in values.items():
            for name in self.names:
                scores = class_scores(outputs[name])
                if scores is not None and len(scores) == len(labels):
                    right[stage, name] = int(np.count_nonzero(scores.argmax(axis=1) == labels))
        return right

    def merge(self, total: _Compared, part: _Compared) -> _Compared:
        for pair, outputs in part.rows.items():
            for name, row in outputs.items():
                total.rows[pair][name].merge(row)
        for key, count in part.right.items():
            total.right[key] = total.right.get(key, 0) + count
        total.outputs += part.outputs
        return total


def _add(row: Comparison, a: np.ndarray, b: np.ndarray, name: str, stage_a: str, stage_b: str) -> None:
    if a.shape[:1] == b.shape[:1] and a.size == b.size:  # rule D16: the same values in more dimensions
        b = b.reshape(a.shape)
    if a.shape != b.shape:
        raise UserError(
            f"Output '{name}' has the shape {a.shape} in the {stage_a} stage and {b.shape} in the {stage_b} stage.",
            "They do not belong together; check which models were given.",
        )
    row.add(a, b)


def _match_outputs(given: list[str], wanted: list[str]) -> dict[str, str]:
    """Output of the float model -> ours: by name, else by position if there are equally many."""
    if set(wanted) <= set(given):
        return {n: n for n in wanted}
    if len(given) == len(wanted):
        return dict(zip(given, wanted))
    raise UserError(
        f"The float model has the outputs {', '.join(given)}; the translation has {', '.join(wanted)}.",
        "Give the float model that was quantized.",
    )


# -------------------------------------------------------------------- results from a device


_RESULTS_HINT = "Name the device_results.json that run_on_device.py wrote, or what 'polygraphy run --save-outputs' did."


@dataclasses.dataclass
class DeviceResults:
    """Results of `run_on_device.py` or `polygraphy run`. outputs: engine -> output -> array, first axis = samples;
    about: the JSON's content."""

    about: dict[str, Any]
    outputs: dict[str, dict[str, np.ndarray]]
    notes: list[str]

    @classmethod
    def read(cls, path: Path, files: Mapping[str, Path], outputs: list[str]) -> DeviceResults:
        """`files`: 'model', 'cache' and 'inputs' of this verification; others than the device had are refused.

        Raises UserError for files that are no device results or belong to something else.
        """
        if polygraphy.is_results(read_json(path, {}, _RESULTS_HINT)):
            engines = polygraphy.read_results(path)
            for name, loaded in engines.items():
                _has_all(name, loaded, outputs)
            note = f"{path} does not record its model and inputs; --inputs must be what Polygraphy saved"
            return cls({"engines": sorted(engines)}, engines, [note])
        about = read_json(path, DEVICE_RESULTS, _RESULTS_HINT)
        for key, file in files.items():
            if about[key]["sha256"] != hashlib.sha256(read_file(file)).hexdigest():
                raise UserError(
                    f"The device ran with another {key} ({about[key]['file']}) than {file}.",
                    "Give the same files here and there.",
                )
        arrays: dict[str, dict[str, np.ndarray]] = {}
        notes = []
        for name, engine in about["engines"].items():
            if engine["status"] != "ok":
                notes.append(f"engine '{name}' failed on the device: {engine.get('error', 'no reason given')}")
                continue
            loaded = _outputs_of(name, path.parent, engine["outputs"])
            _has_all(name, loaded, outputs)
            arrays[name] = loaded
        return cls(about, arrays, notes)

    def batch(self, engine: str, run: int, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of one run, in the shapes of `like`. Raises UserError if the device had fewer samples."""
        result = {}
        for name, reference in like.items():
            values = self.outputs[engine][name]
            size = reference.shape[0] if reference.ndim else 1
            part = values[run * size : (run + 1) * size]
            if part.size != reference.size:
                part = values[run : run + 1]  # no batch axis: one entry a run
            if part.size != reference.size:
                raise UserError(
                    f"Engine '{engine}' has no output '{name}' for sample {run * size}.", "Give the inputs that it had."
                )
            result[name] = part.reshape(reference.shape)
        return result


def _has_all(engine: str, loaded: Mapping[str, np.ndarray], outputs: list[str]) -> None:
    missing = [n for n in outputs if n not in loaded]
    if missing:
        raise UserError(f"Engine '{engine}' has no output '{missing[0]}'.", "Was another model built?")


def _outputs_of(engine: str, folder: Path, name: str) -> dict[str, np.ndarray]:
    """Arrays of an .npz file in `folder`. Raises UserError if it is outside or cannot be read."""
    place = Path(os.path.realpath(folder / name)) if "\0" not in name else folder
    if Path(os.path.realpath(folder)) not in place.parents:
        raise UserError(
            f"The outputs of engine '{engine}' are declared in '{name}', outside {folder}.", "Copy the folder again."
        )
    try:
        return read_npz(io.BytesIO(read_file(place)))
    except (ValueError, OSError, EOFError) as error:
        raise UserError(
            f"The outputs of engine '{engine}' cannot be read from {place}: {error}.", "Copy the folder again."
        ) from error
