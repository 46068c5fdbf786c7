"""Run `tune` on files; return one plain object of results and the corresponding translation."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pickle
import shlex
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import onnx

from qdq_translator._version import __version__
from qdq_translator.core.command_options import TuneOptions
from qdq_translator.core.disk import file_digest, write_json
from qdq_translator.core.formats import tune_rows
from qdq_translator.core.formats.files import model_name
from qdq_translator.core.formats.layer_precisions import is_expressible
from qdq_translator.core.formats.report_rows import Source
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.formats.tune_rows import FP16, Cost, Goal, Measured
from qdq_translator.core.options import TranslateOptions, effective
from qdq_translator.core.progress import Progress
from qdq_translator.core.words import counted
from qdq_translator.core.workers.work import pack
from qdq_translator.ir.io import load_model
from qdq_translator.simulate.account import Account, Candidate, Judge, account
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.finite import only_finite
from qdq_translator.simulate.implicit import SimulationOptions, placement_of, simulate
from qdq_translator.simulate.inputs import Samples, given_samples
from qdq_translator.simulate.run import ExplicitNetwork, folded
from qdq_translator.simulate.user_metric import metric_of
from qdq_translator.targets.precision import INT8
from qdq_translator.workflows.translator import Translation, translate
from qdq_translator.workflows.tune.bench import Bench, Remembering
from qdq_translator.workflows.tune.journal import Journal
from qdq_translator.workflows.tune.meter import CONFIDENCE, LEAST_SAMPLES, Meter
from qdq_translator.workflows.tune.points import Point, moves, starts
from qdq_translator.workflows.tune.search import MOST_UNITS, Evaluated, Search, pareto
from qdq_translator.workflows.verification import runnable

SCHEMA_VERSION = 1
KIND = "qdq-translator tuning"
JOURNAL_SUFFIX, RESULTS_SUFFIX = "_tune.sqlite", "_tune.json"
ACCOUNT_RUNS = 32
"""Of the network: the samples of the noise account."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """results: of the file. translation: of the best point."""

    results: tune_rows.Tuning
    translation: Translation


def places(options: TuneOptions) -> tuple[Path, Path]:
    """(journal, results)."""
    folder, name = Path(options.output_dir), model_name(options.model)
    return folder / f"{name}{JOURNAL_SUFFIX}", folder / f"{name}{RESULTS_SUFFIX}"


def tune(options: TuneOptions, where: Evaluation, progress: Progress) -> Outcome:
    """Raises UserError."""
    begun = time.monotonic()
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(TranslateOptions)}
    base = TranslateOptions(**{**given, "preset": None, "without": []})
    model, source = load_model(options.model)
    explicit = ExplicitNetwork.of(runnable(model, base.scales))
    planned = translate(
        options.model, dataclasses.replace(base, calibrate=None, recalibrate=[], asymmetric="widen"), assume_scales=True
    )
    metric = metric_of(options.metric)
    meter, *held = (
        Meter(metric, only_finite(samples, base.ignore_nonfinite, progress, where), where)
        for samples in _samples(options, planned.model)
    )
    with contextlib.closing(Journal(places(options)[0], _about(options, base, source.sha256, meter, where))) as journal:
        bench = Bench(Path(options.model), base, dataclasses.replace(where, engine=Remembering(where.engine, journal)))
        judge = _Judge(bench, meter, journal, where, options.evaluations, progress)
        progress("measuring the model as given", 0, options.evaluations)
        for key, one in zip(("reference", f"reference {held[0].samples.digest}" if held else ""), (meter, *held)):
            journal[key] = one.set_reference(folded(explicit.model), explicit.ends, journal.get(key))
        goal = Goal(options.max_drop, options.budget_ms)
        search = Search(judge, goal, list(moves(base)), options.seed, options.evaluations, judge.tell)
        search.run(starts(base))
        meter.samples.check_unchanged()
        chosen = search.best or min(search.found.values(), key=goal.rank)
        translation = bench.translation(chosen.point, try_more=True)
        words = ["qdq-translator", "translate", options.model, "-o", options.output_dir, *chosen.point.words(base)]
        results = tune_rows.Tuning(
            schema_version=SCHEMA_VERSION,
            kind=KIND,
            generator=f"qdq-translator {__version__}",
            **_found(search, chosen, judge, meter, held[0] if held else None),
            model=Source(source.file, source.sha256),
            goal=dataclasses.replace(goal, holds=search.best is not None),
            seed=options.seed,
            sensitivity=tuple(judge.rankings()),
            command=shlex.join(words),
            seconds=time.monotonic() - begun,
        )
    return Outcome(results, translation)


def _samples(options: TuneOptions, network: onnx.ModelProto) -> Iterator[Samples]:
    """Of --data and --held_out. Raises UserError."""
    for data, labels in ((options.data, options.labels), (options.held_out, None)):
        if data:
            yield given_samples(data, labels, network, options.sizes, options)


def _about(
    options: TuneOptions, base: TranslateOptions, sha256: str, meter: Meter, where: Evaluation
) -> dict[str, Any]:
    """Scope of the journal."""
    code = Path(options.metric.rpartition(":")[0])
    return {
        "version": __version__,
        "model": sha256,
        "data": meter.samples.digest,
        "samples": len(meter.samples),
        "metric": [options.metric, file_digest(code) if code.suffix == ".py" else ""],
        "options": effective(base),
        "provider": where.provider,
    }


def _found(search: Search, chosen: Evaluated, judge: _Judge, meter: Meter, held: Optional[Meter]) -> dict[str, Any]:
    """The part of the results that does not depend on the request. held: measures the front on samples that the search
    did not see."""
    everything = list(search.found.values())
    front = pareto(everything)
    usual = [found for found in everything if found.why == FP16 or found.point == Point()]
    again = {found.point: judge.again(found.point, held) for found in (*usual, *front)} if held is not None else {}

    def row(found: Evaluated) -> tune_rows.Tuned:
        return found.row(again.get(found.point))

    return {
        "data": _data(meter.samples),
        "held_out": None if held is None else _data(held.samples),
        "metric": tune_rows.Metric(
            meter.metric.name, meter.reference.score, None if held is None else held.reference.score
        ),
        "early_stopping": _stopping(meter),
        "evaluations": search.evaluations,
        "best": row(chosen),
        "front": tuple(map(row, front)),
        "points": tuple(map(row, everything)),
        "additivity": tuple(tune_rows.Sum(*each) for each in search.additivity),
    }


def _data(samples: Samples) -> tune_rows.Data:
    return tune_rows.Data(samples.source, len(samples), samples.digest, tuple(samples.notes))


def _stopping(meter: Meter) -> str:
    if not meter.is_mean or len(meter.samples) < LEAST_SAMPLES:
        return (
            f"none: {f'fewer than {LEAST_SAMPLES} samples' if meter.is_mean else 'the metric is no mean over samples'}"
        )
    return (
        f"a point was given up after 1/8, 1/4 or 1/2 of the samples if the {100 * CONFIDENCE:g}% interval of its drop was "
        "beyond the limit"
    )


class _Judge:
    """Answers to the search, from the journal if available."""

    def __init__(
        self, bench: Bench, meter: Meter, journal: Journal, where: Evaluation, limit: int, progress: Progress
    ) -> None:
        self._bench, self._meter, self._journal, self._where = bench, meter, journal, where
        self._limit, self._progress = limit, progress
        target = bench.base.target
        self._simulation = SimulationOptions(
            rounding="away" if target == "xavier-dla" else "even", fp16=True, sigmoid_fp16=target.endswith("dla")
        )
        self._accounts: dict[Point, Account] = {}
        self._simulated: dict[Point, tuple[onnx.ModelProto, str]] = {}
        """Of the last point that was asked for, with what the model is known by."""

    def tell(self, found: Evaluated, best: Optional[Evaluated], count: int) -> None:
        held = "no point meets the goal so far" if best is None else f"best so far {_words(best)}"
        self._progress(f"evaluation {count}: {_words(found)}; {held}", count, self._limit)

    def plain(self, point: Point) -> Point:
        return point.plain(self._bench.base)

    def cost(self, point: Point) -> Optional[Cost]:
        return self._bench.cost(point)

    def _model(self, point: Point) -> tuple[onnx.ModelProto, str]:
        if point not in self._simulated:
            model = simulate(self._bench.network(point), self._simulation).model
            self._simulated = {point: (model, pack(model).digest)}
        return self._simulated[point]

    def identity(self, point: Point) -> str:
        return self._model(point)[1]

    def measure(self, point: Point, most: float) -> Measured:
        model, key = self._model(point)
        kept = self._journal.get(f"measured {key}")
        known: Optional[tuple[Measured, float]] = pickle.loads(kept) if kept is not None else None
        if known is not None and (known[0].complete or known[1] == most):
            return known[0]
        measured = self._meter.measure(model, most)
        self._journal[f"measured {key}"] = pickle.dumps((measured, most))
        return measured

    def again(self, point: Point, meter: Meter) -> Measured:
        """On all samples of another meter."""
        model, key = self._model(point)
        found: Measured = self._kept(f"{meter.samples.digest} {key}", lambda: meter.measure(model, math.inf))
        return found

    def _judging(self, point: Point) -> Judge:
        few = self._meter.samples.some(ACCOUNT_RUNS)
        return Judge(self._bench.network(point), self._simulation, few, where=self._where)

    def _kept(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self._journal:
            self._journal[key] = pickle.dumps(compute())
        return pickle.loads(self._journal[key])

    def removed(self, base: Point, point: Point) -> float:
        def noise(of: Point) -> float:
            found: float = self._kept(f"noise {self.identity(of)}", lambda: self._judging(of).noise)
            return found

        left, whole = noise(point), noise(base)
        return 1 - left / whole if whole else 0.0

    def units(self, point: Point) -> list[tuple[str, ...]]:
        network = self._bench.network(point)
        layers = [row.name for row in network.plan if row.precision == INT8 and is_expressible(row.name)]
        size = -(-len(layers) // MOST_UNITS) or 1
        return [tuple(layers[first : first + size]) for first in range(0, len(layers), size)]

    def _account(self, point: Point) -> Account:
        if point not in self._accounts:
            key = f"account {self.identity(point)}"
            self._accounts[point] = self._kept(key, lambda: account(self._judging(point), everything=True))
        return self._accounts[point]

    def predicted(self, base: Point, point: Point) -> float:
        return self._account(base).of(placement_of(self._bench.network(point), self._simulation))

    def candidates(self, point: Point) -> list[tuple[Candidate, float]]:
        return self._account(point).candidates(placement_of(self._bench.network(point), self._simulation))

    def rankings(self) -> Iterator[tune_rows.Ranking]:
        """The account of each point that has one, with the share of the noise energy that each candidate adds."""
        for point, found in self._accounts.items():
            placement = placement_of(self._bench.network(point), self._simulation)
            loud = tuple(
                tune_rows.Loud(candidate.label, candidate.layers, share) for candidate, share in self.candidates(point)
            )
            yield tune_rows.Ranking(dict(point.changes), point.kept, loud, found.row(found.of(placement)))


def _words(found: Evaluated) -> str:
    cost, measured = found.cost, found.measured
    words = f"drop {measured.drop:.3g}{'' if measured.complete else ' or more'}"
    if cost.milliseconds is not None:
        words += f" at {cost.milliseconds:.3f} ms"
    return words + (f" and {counted(cost.gpu_layers, 'GPU layer')}" if cost.gpu_layers else "")


def save(outcome: Outcome, options: TuneOptions) -> None:
    """Save the translation and the results. Raises UserError if they cannot be written."""
    outcome.translation.save(options.output_dir)
    write_json(places(options)[1], plain(outcome.results))
