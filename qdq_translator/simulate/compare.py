"""Explicit model, simulated implicit engine and, where given, the float model, on the same inputs: what their outputs
have in common; the same for results that a real engine gave."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from pathlib import Path
from typing import Any, Mapping, Optional

import numpy as np
import onnx

from qdq_translator.disk import read_file
from qdq_translator.errors import UserError
from qdq_translator.formats import polygraphy
from qdq_translator.formats.schemas import DEVICE_RESULTS, read_json
from qdq_translator.graph import Graph
from qdq_translator.progress import Progress
from qdq_translator.simulate.implicit import Simulated, copy_model
from qdq_translator.simulate.inputs import Samples
from qdq_translator.simulate.metrics import Comparison, SlicedComparison, class_scores
from qdq_translator.simulate.run import ExplicitNetwork, Session, same_inputs
from qdq_translator.simulate.user_metric import UserMetric

EXPLICIT, SIMULATED, FLOAT, UNFUSED = "explicit", "simulated", "float", "unfused"


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


def compare_outputs(  # noqa: C901 (one pass over the samples for all of the stages that are there)
    explicit: ExplicitNetwork,
    simulated: Simulated,
    samples: Samples,
    float_model: Optional[onnx.ModelProto] = None,
    device: Optional[DeviceResults] = None,
    progress: Progress = lambda what, done, total: None,
    unfused: Optional[Simulated] = None,
    metric: Optional[UserMetric] = None,
) -> OutputComparison:
    """Runs every stage on every sample. `unfused`: the simulation at the other end of what `placement` leaves open. Raises UserError where the models' inputs or outputs do not belong together."""
    names = [v.name for v in simulated.model.graph.output]
    stages: dict[str, Session] = {
        EXPLICIT: Session(explicit.model, EXPLICIT),
        SIMULATED: Session(simulated.model, SIMULATED),
    }
    same_inputs([v.name for v in simulated.model.graph.input], explicit.graph.inputs, EXPLICIT)
    if set(names) != set(stages[EXPLICIT].outputs):
        raise UserError(
            f"The explicit model has the outputs {', '.join(stages[EXPLICIT].outputs)}; the translation has "
            f"{', '.join(names)}.",
            "Give the model that the translation was made from.",
        )
    pairs = [(EXPLICIT, SIMULATED)]
    rename: dict[str, str] = {}
    if float_model is not None:
        graph = Graph.from_model(copy_model(float_model))
        same_inputs([v.name for v in simulated.model.graph.input], graph.inputs, FLOAT)
        stages[FLOAT] = Session(graph.to_model(), FLOAT)
        rename = _match_outputs(stages[FLOAT].outputs, names)
        pairs += [(FLOAT, EXPLICIT), (FLOAT, SIMULATED)]
    if unfused is not None:
        stages[UNFUSED] = Session(unfused.model, UNFUSED)
    engines = list(device.outputs) if device is not None else []
    for engine in engines:
        pairs += [(stage, f"device {engine}") for stage in stages]
    if unfused is not None:
        pairs.append((EXPLICIT, UNFUSED))
    result = OutputComparison(names, {p: {n: SlicedComparison(samples.batch) for n in names} for p in pairs}, {})
    devices = [f"device {engine}" for engine in engines]
    scores_by_metric = {stage: metric.start(stage) for stage in (*stages, *devices)} if metric is not None else {}
    right: dict[tuple[str, str], int] = {}
    for run in range(samples.runs):
        progress("comparing outputs", run, samples.runs)
        feed = samples.feed(run)
        values = {
            stage: session.run(explicit.feed(feed) if stage == EXPLICIT else feed) for stage, session in stages.items()
        }
        values[EXPLICIT] = explicit.real(values[EXPLICIT])
        if FLOAT in values:
            values[FLOAT] = {rename[n]: v for n, v in values[FLOAT].items() if n in rename}
        if device is not None:
            for engine in engines:
                values[f"device {engine}"] = device.batch(engine, run, values[EXPLICIT])
        for (a, b), rows in result.pairs.items():
            for name in names:
                _add(rows[name], values[a][name], values[b][name], name, a, b)
        for stage, score in scores_by_metric.items():
            score.add(values[stage], samples.labels_of(run), samples.batch)
        labels = samples.classes_of(run)
        if labels is not None:
            for stage, outputs in values.items():
                for name in names:
                    scores = class_scores(outputs[name])
                    if scores is not None and len(scores) == len(labels):
                        key = (stage, name)
                        right[key] = right.get(key, 0) + int(np.count_nonzero(scores.argmax(axis=1) == labels))
    progress("comparing outputs", samples.runs, samples.runs)
    result.metric = {stage: score.result() for stage, score in scores_by_metric.items()}
    for (stage, name), count in right.items():
        result.accuracy.setdefault(stage, {})[name] = 100 * count / len(samples)
    return result


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
    """Output of the float model -> ours: by name, else by position where the numbers agree."""
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
    """What `run_on_device.py`, or `polygraphy run`, wrote. outputs: engine -> output -> array, first axis = samples; about: the JSON's content."""

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
            note = (
                f"{path} does not say which model and inputs it was made with; --inputs must be what Polygraphy saved"
            )
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
        """The outputs of one run, in the shapes of `like`. Raises UserError where the device had fewer samples."""
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
    """The arrays of an .npz file in `folder`. Raises UserError where it lies outside or cannot be read."""
    place = Path(os.path.realpath(folder / name)) if "\0" not in name else folder
    if Path(os.path.realpath(folder)) not in place.parents:
        raise UserError(
            f"The outputs of engine '{engine}' are said to lie in '{name}', outside {folder}.", "Copy the folder again."
        )
    try:
        with np.load(io.BytesIO(read_file(place)), allow_pickle=False) as file:
            return {array: file[array] for array in file.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise what they like
        raise UserError(
            f"The outputs of engine '{engine}' cannot be read from {place}: {error}.", "Copy the folder again."
        ) from error
