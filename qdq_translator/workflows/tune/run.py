"""Run `tune` on files; return one plain object of results and the corresponding translation."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from pathlib import Path
from typing import Any, Iterator, Optional

import onnx

from qdq_translator._version import __version__
from qdq_translator.core.command_options import TuneOptions
from qdq_translator.core.disk import file_digest, write_json
from qdq_translator.core.formats import tune_rows
from qdq_translator.core.formats.files import model_name
from qdq_translator.core.formats.report_rows import Source
from qdq_translator.core.formats.tune_rows import FP16, Goal
from qdq_translator.core.options import TranslateOptions, effective
from qdq_translator.core.progress import Progress
from qdq_translator.core.words import counted
from qdq_translator.ir.io import load_model
from qdq_translator.simulate.evaluation import Evaluation
from qdq_translator.simulate.inputs import Samples, given_samples, only_finite
from qdq_translator.simulate.run import ExplicitNetwork, folded
from qdq_translator.simulate.user_metric import metric_of
from qdq_translator.workflows.translator import Translation, translate
from qdq_translator.workflows.tune.bench import Bench
from qdq_translator.workflows.tune.journal import Journal
from qdq_translator.workflows.tune.meter import CONFIDENCE, LEAST_SAMPLES, Meter
from qdq_translator.workflows.tune.points import Point, moves, starts
from qdq_translator.workflows.tune.search import Evaluated, Search, pareto
from qdq_translator.workflows.verification import runnable

SCHEMA_VERSION = 1
KIND = "qdq-translator tuning"
JOURNAL_SUFFIX, RESULTS_SUFFIX = "_tune.sqlite", "_tune.json"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """results: of the file. translation: of the best point. note: of the journal."""

    results: tune_rows.Tuning
    translation: Translation
    note: str


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
        bench = Bench(Path(options.model), base, meter, journal, where)

        def tell(found: Evaluated, best: Optional[Evaluated], count: int) -> None:
            held = "no point meets the goal so far" if best is None else f"best so far {_words(best)}"
            progress(f"evaluation {count}: {_words(found)}; {held}", count, options.evaluations)

        progress("measuring the model as given", 0, options.evaluations)
        for key, one in zip(("reference", f"reference {held[0].samples.digest}" if held else ""), (meter, *held)):
            journal[key] = one.set_reference(folded(explicit.model), explicit.ends, journal.get(key))
        goal = Goal(options.max_drop, options.budget_ms)
        search = Search(bench, goal, list(moves(base)), options.seed, options.evaluations, tell)
        search.run(starts(base))
        meter.samples.check_unchanged()
        chosen = search.best or min(search.found.values(), key=goal.rank)
        translation = bench.translation(chosen.point, try_more=True)
        words = ["qdq-translator", "translate", options.model, "-o", options.output_dir, *chosen.point.words(base)]
        results = tune_rows.Tuning(
            schema_version=SCHEMA_VERSION,
            kind=KIND,
            generator=f"qdq-translator {__version__}",
            **_found(search, chosen, bench, meter, held[0] if held else None),
            model=Source(source.file, source.sha256),
            goal=dataclasses.replace(goal, holds=search.best is not None),
            seed=options.seed,
            sensitivity=tuple(bench.rankings()),
            command=shlex.join(words),
            seconds=time.monotonic() - begun,
        )
    return Outcome(results, translation, journal.note)


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


def _found(search: Search, chosen: Evaluated, bench: Bench, meter: Meter, held: Optional[Meter]) -> dict[str, Any]:
    """The part of the results that does not depend on the request. held: measures the front on samples that the search
    did not see."""
    everything = list(search.found.values())
    front = pareto(everything)
    usual = [found for found in everything if found.why == FP16 or found.point == Point()]
    again = {found.point: bench.again(found.point, held) for found in (*usual, *front)} if held is not None else {}

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
        f"a point was given up after 1/8, 1/4 or 1/2 of the samples if the {100 * CONFIDENCE:g}% "
        "interval of its drop was "
        "beyond the limit"
    )


def _words(found: Evaluated) -> str:
    cost, measured = found.cost, found.measured
    words = f"drop {measured.drop:.3g}{'' if measured.complete else ' or more'}"
    if cost.milliseconds is not None:
        words += f" at {cost.milliseconds:.3f} ms"
    return words + (f" and {counted(cost.gpu_layers, 'GPU layer')}" if cost.gpu_layers else "")


def save(outcome: Outcome, options: TuneOptions) -> None:
    """Save the translation and the results. Raises UserError if they cannot be written."""
    outcome.translation.save(options.output_dir)
    write_json(places(options)[1], outcome.results)
