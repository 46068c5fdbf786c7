"""Compare outputs of explicit model, simulated implicit engine and, if given, float model on the same inputs. Results
of a real engine are compared too."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import onnx

from qdq_translator.core.disk import read_file
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import polygraphy
from qdq_translator.core.formats.npz import read_npz
from qdq_translator.core.formats.schemas import DEVICE_RESULTS, read_json
from qdq_translator.core.formats.verify_rows import Outputs, Pair
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import Work
from qdq_translator.lab.simulate.counterparts import Counterparts
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.implicit import (
    STEPS_INPUT,
    ImplicitNetwork,
    Simulated,
    SimulationOptions,
    jittered_steps,
)
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.lab.simulate.metrics import Comparison, SlicedComparison, class_scores
from qdq_translator.lab.simulate.run import CodedEnds, ExplicitNetwork, Session, folded, same_ends
from qdq_translator.lab.simulate.user_metric import Score, UserMetric
from qdq_translator.translation.ir.graph import Graph

EXPLICIT, SIMULATED, FLOAT = "explicit", "simulated", "float"


@dataclasses.dataclass(frozen=True)
class Setup:
    """A translation and the model that it was made from, to be run on the same samples. options: of the simulation.
    random: whether the inputs are. float_model, metric: the user's, if given. where: executes the computation."""

    network: ImplicitNetwork
    options: SimulationOptions
    explicit: ExplicitNetwork
    simulated: Simulated
    samples: Samples
    random: bool = False
    float_model: Optional[onnx.ModelProto] = None
    metric: Optional[UserMetric] = None
    progress: Progress = silent
    where: Evaluation = HERE

    @functools.cached_property
    def reference(self) -> onnx.ModelProto:
        """The explicit model, with its constants computed."""
        return folded(self.explicit.model)

    @functools.cached_property
    def names(self) -> Counterparts:
        return Counterparts(self.network.graph(), self.explicit)


class Drop(NamedTuple):
    """A metric of the float model, or else of the explicit one, and of the simulated engine: the two stages. error:
    standard error of their difference."""

    name: str
    before: float
    after: float
    error: float
    stages: Tuple[str, str]

    @property
    def lost(self) -> float:
        return self.before - self.after


class Measured(NamedTuple):
    """Every pair of stages, compared. simulated: output -> explicit model against simulated engine; against_float: the
    float model against it, {} without one. drop: None without a metric. outputs: everything, for the files."""

    simulated: dict[str, SlicedComparison]
    against_float: dict[str, SlicedComparison]
    drop: Optional[Drop]
    outputs: Outputs


def compare_outputs(setup: Setup, device: Optional[DeviceResults], others: Mapping[str, Simulated]) -> Measured:
    """Runs every stage on every sample and compares, output by output, explicit model with simulated engine and all
    other pairs of stages. others: stage -> the simulation under the opposite assumption of a hypothesis.

    Raises UserError if the models' inputs or outputs do not belong together.
    """
    explicit, simulated, samples, metric = setup.explicit, setup.simulated, setup.samples, setup.metric
    inputs, names = list(simulated.graph.inputs), list(simulated.graph.outputs)
    stages = {EXPLICIT: setup.reference, SIMULATED: simulated.model}
    same_ends("inputs", inputs, explicit.graph.inputs, EXPLICIT)
    same_ends("outputs", names, explicit.graph.outputs, EXPLICIT)
    pairs = [(EXPLICIT, SIMULATED)]
    rename: dict[str, str] = {}
    if setup.float_model is not None:
        stages[FLOAT], rename = _float_stage(setup.float_model, inputs, names)
        pairs += [(FLOAT, EXPLICIT), (FLOAT, SIMULATED)]
    stages.update({stage: other.model for stage, other in others.items()})
    devices = device.stages if device is not None else {}
    pairs += [(stage, engine) for engine in devices for stage in stages]
    pairs += [(EXPLICIT, stage) for stage in others]
    scores = {stage: metric.start(stage) for stage in (*stages, *devices)} if metric is not None else {}
    provider, keep = setup.where.provider, metric is not None
    work = Comparing(stages, explicit.ends, outputs_of(pairs, names), samples, provider, names, rename, device, keep)
    found = setup.where.over(work, samples.runs, setup.progress, "comparing outputs", watch=scoring(scores, samples))
    return _measured(found, scores, pairs, names, len(samples))


def _measured(
    found: Compared, scores: Mapping[str, Score], pairs: Sequence[tuple[str, str]], names: Sequence[str], samples: int
) -> Measured:
    """The result from what the runs gave. scores: stage -> that of the metric, {} without one."""
    outputs = compared_outputs(found, scores, pairs, names, samples)
    rows = [{name: found.rows[a, b, name] for name in names} for a, b in pairs]
    results = outputs.metric
    of_float = rows[pairs.index((FLOAT, SIMULATED))] if (FLOAT, SIMULATED) in pairs else {}
    before, drop = FLOAT if of_float else EXPLICIT, None
    if scores:
        error = scores[before].error_of_difference(scores[SIMULATED], samples)
        drop = Drop(scores[before].metric.name, results[before], results[SIMULATED], error, (before, SIMULATED))
    return Measured(rows[0], of_float, drop, outputs)


def compared_outputs(
    found: Compared, scores: Mapping[str, Score], pairs: Sequence[tuple[str, str]], names: Sequence[str], samples: int
) -> Outputs:
    """What the work found, for the files."""
    accuracy: dict[str, dict[str, float]] = {}
    for (stage, name), count in found.counts.items():
        accuracy.setdefault(stage, {})[name] = 100 * count / samples
    rows = (Pair(a, b, {name: found.rows[a, b, name].row() for name in names}) for a, b in pairs)
    return Outputs(tuple(rows), accuracy, {stage: one.result() for stage, one in scores.items()})


def _float_stage(
    model: onnx.ModelProto, inputs: Sequence[str], names: Sequence[str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy of the model, and its output -> ours: matched by name, else by position if there are equally many."""
    graph = Graph.from_picture((model, {}))
    same_ends("inputs", inputs, graph.inputs, FLOAT)
    given = list(graph.outputs)
    if set(names) <= set(given):
        return graph.to_model(), {name: name for name in names}
    if len(given) == len(names):
        return graph.to_model(), dict(zip(given, names))
    raise UserError(
        f"The float model has the outputs {', '.join(given)}; the translation has {', '.join(names)}.",
        "Give the float model that was quantized.",
    )


_Key = Tuple[str, ...]
Tensors = Dict[_Key, Tuple[str, str, str, str]]
"""Key -> (stage, tensor there, stage compared with, tensor there)."""


def outputs_of(pairs: Iterable[tuple[str, str]], names: Sequence[str]) -> Tensors:
    """(stage, other stage, output) -> the tensors to compare."""
    return {(a, b, name): (a, name, b, name) for a, b in pairs for name in names}


class Compared(NamedTuple):
    """rows: key -> comparisons. counts: (stage, output) -> number of right labels, or tensor -> histogram. outputs: for
    each run, stage or number of a change -> output -> values, if a metric needs them."""

    rows: dict[Any, Any]
    counts: dict[Any, Any]
    outputs: list[dict[Any, dict[str, np.ndarray]]]


def scoring(scores: Mapping[Any, Any], samples: Samples) -> Callable[[Compared], None]:
    """Adds each stage's outputs to its score, in this process and in sample order, whichever worker computed them."""
    runs = iter(range(samples.runs))

    def score(part: Compared) -> None:
        for values in part.outputs:
            run = next(runs)
            for stage, one in scores.items():
                one.add(values[stage], samples, run)
        part.outputs.clear()

    return score


@dataclasses.dataclass
class Comparing(Work):
    """Compare tensors of stages in pairs. ends: of the explicit model. names: outputs of every stage; None for tensors
    inside the networks, which may differ in shape. rename: output of the float model -> ours. keep: return the outputs
    too. seeds: stage of a network with jittered steps -> its seed; stages of one model share a session."""

    stages: dict[str, onnx.ModelProto]
    ends: CodedEnds
    compared: Tensors
    samples: Samples
    provider: str
    names: Optional[list[str]] = None
    rename: dict[str, str] = dataclasses.field(default_factory=dict)
    device: Optional[DeviceResults] = None
    keep: bool = False
    seeds: dict[str, int] = dataclasses.field(default_factory=dict)

    def open(self) -> Callable[[int], Compared]:
        fetch: dict[str, dict[str, None]] = {}
        for a, one, b, other in self.compared.values() if self.names is None else ():
            fetch.setdefault(a, {})[one] = fetch.setdefault(b, {})[other] = None
        made: dict[int, Session] = {}
        for stage, model in self.stages.items():
            wanted = [*fetch[stage]] if fetch else None
            if id(model) not in made:
                made[id(model)] = Session(model, stage, wanted, one_thread=True, provider=self.provider)
        sessions = {stage: made[id(model)] for stage, model in self.stages.items()}
        steps = {stage: jittered_steps(seed) for stage, seed in self.seeds.items()}

        def compared(run: int) -> Compared:
            values = self._values(sessions, steps, run)
            rows = {
                key: self._row(values[a][one], values[b][other], one, a, b)
                for key, (a, one, b, other) in self.compared.items()
            }
            return Compared(rows, self._right(run, values), [values] if self.keep else [])

        return compared

    def _values(
        self, sessions: Mapping[str, Session], steps: Mapping[str, np.ndarray], run: int
    ) -> dict[str, dict[str, np.ndarray]]:
        """Stage -> output -> values, in the shapes that the model as given has: rules D16 and D5 may add axes."""
        feed = self.samples.feed(run)
        coded, values = self.ends.feed(feed), {}
        for stage, session in sessions.items():
            given = coded if stage == EXPLICIT else feed
            more = {STEPS_INPUT: steps[stage]} if stage in steps else {}
            values[stage] = session.run({name: {**given, **more}[name] for name in session.inputs})
        values[EXPLICIT] = self.ends.real(values[EXPLICIT])
        for stage in values.keys() - {EXPLICIT} if self.names is not None else ():
            values[stage] = in_shapes(values[stage], values[EXPLICIT])
        if FLOAT in values:
            values[FLOAT] = {self.rename[n]: v for n, v in values[FLOAT].items() if n in self.rename}
        if self.device is not None:
            for stage, engine in self.device.stages.items():
                values[stage] = self.device.batch(engine, run, values[EXPLICIT])
        return values

    def _row(self, a: np.ndarray, b: np.ndarray, name: str, stage: str, other: str) -> Comparison:
        if self.names is None:
            return _inside(a, b)
        row = SlicedComparison(self.samples.batch)
        compare(row, a, b, name, stage, other)
        return row

    def _right(self, run: int, values: Mapping[str, Mapping[str, np.ndarray]]) -> dict[tuple[str, str], int]:
        """(stage, output) -> number of samples whose largest score is that of their label."""
        labels = self.samples.classes_of(run)
        right: dict[tuple[str, str], int] = {}
        if labels is None:
            return right
        for stage, outputs in values.items():
            for name in self.names or ():
                scores = class_scores(outputs[name])
                if scores is not None and len(scores) == len(labels):
                    right[stage, name] = int(np.count_nonzero(scores.argmax(axis=1) == labels))
        return right


def in_shapes(outputs: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs with the dimensions of `like`, if that has as many values under the name: rules D5 and D16 add axes."""

    def shaped(array: np.ndarray, other: Optional[np.ndarray]) -> np.ndarray:
        differs = other is not None and other.ndim != array.ndim and other.size == array.size
        return array.reshape(other.shape) if differs and other is not None else array

    return {name: shaped(array, like.get(name)) for name, array in outputs.items()}


def _inside(a: np.ndarray, b: np.ndarray) -> Comparison:
    """Not comparable unless float and of the same shape up to trailing ones: a tensor that is rewritten for the DLA
    (rule D5) is [N, C, 1, 1] instead of [N, C]."""
    row, rank = Comparison(), min(a.ndim, b.ndim)
    row.comparable = a.dtype.kind == "f" and a.shape[:rank] == b.shape[:rank] and a.size == b.size
    if row.comparable:
        row.add(a, b.reshape(a.shape))
    return row


def matched_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """For each row of `a` the nearest row of `b`, 0 if there is none, if they are lists of different lengths
    (detections); else `b` itself."""
    if a.ndim != b.ndim or not a.ndim or a.shape[1:] != b.shape[1:] or len(a) == len(b):
        return b
    if not len(b):
        return np.zeros_like(a)
    rows, others = (values.reshape(len(values), -1).astype(np.float64) for values in (a, b))
    return b[[int(np.argmin(((others - one) ** 2).sum(axis=1))) for one in rows]]


def compare(row: Comparison, a: np.ndarray, b: np.ndarray, name: str, stage_a: str, stage_b: str) -> None:
    """Adds an output of two stages to the comparison: of lists whose lengths differ (detections) each row of the first
    with the nearest of the second. Raises UserError if other sizes differ."""
    if (
        a.shape[:1] == b.shape[:1] or a.ndim != b.ndim
    ) and a.size == b.size:  # rule D16: the same values in more dimensions
        b = b.reshape(a.shape)
    matched = matched_rows(a, b)
    if matched is not b:
        row.lengths, b = row.lengths or (len(a), len(b)), matched
    if a.shape != b.shape:
        raise UserError(
            f"Output '{name}' has the shape {a.shape} in the {stage_a} stage and {b.shape} in the {stage_b} stage.",
            "They do not belong together; check which models were given.",
        )
    row.add(a, b)


# ---------------- results from a device


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
        """`files`: 'model', 'cache' and 'inputs' of this verification, refused if they differ from those on the device.

        Raises UserError for files that are not device results or belong to another verification.
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

    @property
    def stages(self) -> dict[str, str]:
        """Stage -> engine."""
        return {f"device {engine}": engine for engine in self.outputs}

    def batch(self, engine: str, run: int, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of one run, in the shapes of `like`. Raises UserError if the device had fewer samples."""
        result = {}
        for name, reference in like.items():
            values = self.outputs[engine][name]
            size = reference.shape[0] if reference.ndim else 1
            part = values[run * size : (run + 1) * size]
            if part.size != reference.size:
                part = values[run : run + 1]  # no batch axis: one entry per run
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
