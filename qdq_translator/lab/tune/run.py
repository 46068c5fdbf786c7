"""The search for lost accuracy on files: `tune`, `translate --recover` and `deploy` are requests of one procedure, with
one plain object of results and the corresponding translation."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional, Sequence

import onnx

from qdq_translator._version import __version__
from qdq_translator.core.command_options import PASSES, TuneOptions
from qdq_translator.core.disk import file_digest, write_json
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats import tune_rows
from qdq_translator.core.formats.files import TranslationFiles, model_name
from qdq_translator.core.formats.report_rows import Source
from qdq_translator.core.formats.schemas import read_json, tuning_schema
from qdq_translator.core.formats.tune_rows import FP16, Goal
from qdq_translator.core.options import TranslateOptions, effective
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.words import counted
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.datasets import TOP1
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.inputs import Samples, given_samples, usable
from qdq_translator.lab.simulate.run import ExplicitNetwork, folded
from qdq_translator.lab.simulate.user_metric import UserMetric, metric_for, metric_of
from qdq_translator.lab.tune.bench import Bench, Fitted, Remembering, cost_of, everything
from qdq_translator.lab.tune.journal import Journal
from qdq_translator.lab.tune.meter import CONFIDENCE, LEAST_SAMPLES, Meter
from qdq_translator.lab.tune.points import Point, Proposal, proposals
from qdq_translator.lab.tune.search import Evaluated, Search, pareto
from qdq_translator.lab.verification import runnable
from qdq_translator.translation.files.write import replacing
from qdq_translator.translation.ir.constants import is_quantize
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.qparams import QuantParams
from qdq_translator.translation.translator import Translation

JUDGED_RUNS = 64
"""Samples that decide in `recover`, at most."""
LEAST_SECONDS = 120.0
"""Time that every search has, so that the speed of a machine decides nothing about small networks."""
SILENT_SECONDS = 30.0
"""A search that takes longer says again what it has found and how much time is left."""
NOT_AS_MEASURED = (
    "Measured on all samples and with the ranges of all, the best point loses more than with those of every second "
    "one: layers in FP16 are searched again, and all samples give ranges and decide."
)
SAME_MACS = 0.02
"""Difference of the shares of MACs in INT8 up to which a translation has the plan that was measured."""
SCHEMA_VERSION = 1
KIND = "qdq-translator tuning"
JOURNAL_SUFFIX, RESULTS_SUFFIX = "_tune.sqlite", "_tune.json"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a search. results: of the file. translation: of the best point. note: of the journal."""

    results: tune_rows.Tuning
    translation: Translation
    note: str


def places(output_dir: str, model: str) -> tuple[Path, Path]:
    """(journal, results)."""
    folder, name = Path(output_dir), model_name(model)
    return folder / f"{name}{JOURNAL_SUFFIX}", folder / f"{name}{RESULTS_SUFFIX}"


@dataclasses.dataclass(frozen=True)
class Request:
    """A search. base: options that points change. judged: samples that decide; held: others, for the table; whole: all,
    on which the translation is measured again. metric: None for the agreement with the outputs of the model as given.
    fitted: the calibration data that ranges come from during the search. limit: passes over `judged`, at most. journal:
    its file. command: words before those of the point."""

    model: str
    base: TranslateOptions
    judged: Samples
    metric: Optional[UserMetric]
    goal: Goal
    limit: float
    journal: Path
    command: Sequence[str]
    held: Optional[Samples] = None
    fitted: Fitted = everything
    whole: Optional[Samples] = None
    name: Optional[str] = None


Say = Callable[[str], None]


def tune(options: TuneOptions, where: Evaluation, progress: Progress, say: Say = lambda text: None) -> Outcome:
    """Raises UserError."""
    on_dla = options.budget_ms is not None  # the budget is for the DLA
    base, network, coded = _planned(options.model, options.changed(on="dla") if on_dla else options)
    ignore = base.ignore_nonfinite
    samples = [
        usable(given_samples(data, labels, network, base.sizes, options, coded), ignore, progress, where)
        for data, labels in ((options.data, options.labels), (options.held_out, None))
        if data
    ]
    goal = Goal(options.max_drop, options.budget_ms)
    words = ["qdq-translator", "translate", options.model, "-o", options.output_dir]
    journal, held = places(options.output_dir, options.model)[0], samples[1] if options.held_out else None
    metric = metric_for(options.metric, samples[0], network) or metric_of(TOP1)
    request = Request(options.model, base, samples[0], metric, goal, options.passes, journal, words, held)
    return searched(request, where, progress, say)


def recover(
    model: str,
    options: TranslateOptions,
    points: float,
    journal: Path,
    where: Evaluation = HERE,
    progress: Progress = silent,
    say: Say = lambda text: None,
    limit: float = PASSES,
    name: Optional[str] = None,
    metric: Optional[str] = None,
    labels: Optional[str] = None,
) -> Outcome:
    """The search of `tune` for a translation with --calibrate: every second sample gives ranges, the others decide, and
    the translation that is returned has the ranges of all. points: of the metric that may be lost. journal: file of the
    measurements, from which an interrupted search continues. name: base name of the files. metric: None for the
    agreement with the outputs of the model as given. labels: of the samples, if the data have none. Raises
    UserError."""
    if options.calibrate is None:
        raise UsageError("Accuracy is measured on data.", "Give inputs with --calibrate.")
    base, network, coded = _planned(model, options)
    asked = SimpleNamespace(**{**vars(base), "samples": base.calibrate_samples})
    samples = given_samples(options.calibrate, labels, network, base.sizes, asked, coded)
    samples = usable(samples, base.ignore_nonfinite, progress, where)
    judged = samples.chosen(list(range(min(1, samples.runs - 1), samples.runs, 2))).some(JUDGED_RUNS)
    words, goal = ["qdq-translator", "translate", model, "-o", str(journal.parent)], Goal(points, None)

    def fitted(data: Samples) -> Samples:
        return data.chosen(list(range(0, data.runs, 2)))

    judge = metric_for(metric, samples, network)
    request = Request(
        model, base, judged, judge, goal, limit, journal, words, None, fitted, samples.some(2 * JUDGED_RUNS), name
    )
    return searched(request, where, progress, say)


def _planned(model: str, given: TranslateOptions) -> tuple[TranslateOptions, onnx.ModelProto, dict[str, QuantParams]]:
    """The options with every value set, for the faster device of the board where none was named; the stripped network,
    for the names and sizes of its inputs; and the grids of those that were quantized."""
    names = {field.name for field in dataclasses.fields(TranslateOptions)}
    names = names if given.board is None else names & given.typed  # a board leaves the device and its preset open
    options = TranslateOptions(**{name: getattr(given, name) for name in names})
    plain = options.changed(calibrate=None, recalibrate=[], equalize=False, asymmetric="widen")
    made = translate(model, plain, assume_scales=True, try_more=False)
    if made.rows.target != options.target:
        options = options.changed(on="gpu")
    return dataclasses.replace(options, preset=None, without=[]), made.model, made.graph.coded


def searched(asked: Request, where: Evaluation, progress: Progress, say: Say) -> Outcome:
    """Raises UserError. say: told what the search will cost before it starts."""
    begun = time.monotonic()
    model, source = load_model(asked.model)
    explicit = ExplicitNetwork.of(runnable(model, asked.base.scales))
    asked.journal.parent.mkdir(parents=True, exist_ok=True)
    about = _about(asked, source.sha256, where)
    with contextlib.closing(Journal(asked.journal, about)) as journal:
        remembering = Remembering(where.engine, journal)
        counted_where = dataclasses.replace(where, engine=remembering.fresh())
        reference = folded(explicit.model)

        def meter_of(samples: Samples, where: Evaluation) -> Meter:
            made = Meter(asked.metric, samples, where)
            made.set_reference(reference, explicit.ends)
            return made

        def bench_of(fitted: Fitted, samples: Samples) -> Bench:
            meter = meter_of(samples, counted_where)
            return Bench(Path(asked.model), asked.base, meter, journal, remembering, where, fitted)

        progress("measuring the model as given", 0, round(asked.limit))
        first = bench_of(asked.fitted, asked.judged)
        meter, held = first.meter, None if asked.held is None else meter_of(asked.held, where)
        most = max(LEAST_SECONDS, (time.monotonic() - begun) * asked.limit)
        say(
            f"{counted(len(meter.samples), 'sample')} decide; at most {asked.limit:g} passes of the network over them, "
            f"and at most {_duration(most)}. Ctrl-C writes the best result so far."
        )
        clock = _Clock(most, say)

        def tell(found: Evaluated, best: Optional[Evaluated]) -> None:
            remembering.until = clock.until  # the first point is always measured
            held = "none meets the goal so far" if best is None else f"best so far {_words(best)}"
            progress(f"{_words(found)}; {held}", round(remembering.runs / meter.samples.runs), round(asked.limit))
            clock.tell(held)

        search, bench, translation, notes = _settled(asked, first, bench_of, _is_float(explicit), tell, clock.again)
        if search.interrupted:
            say("The search ended early, with the best result so far; the same command again continues it.")
        meter.samples.check_unchanged()
        found = _found(search, bench, held, notes)
    results = _results(
        asked, Source(source.file, source.sha256), search, {**found, "seconds": time.monotonic() - begun}
    )
    return Outcome(results, translation, journal.note)


class _Clock:
    """The time of a search, in seconds, of which it tells from time to time. until: its end, as of `time.monotonic`."""

    def __init__(self, most: float, say: Say) -> None:
        self._most, self._say = most, say
        self._told, self.until = most, time.monotonic() + most

    def tell(self, held: str) -> None:
        """held: the best result so far, in words."""
        left = self.until - time.monotonic()
        if self._told - left > SILENT_SECONDS:
            self._told = left
            self._say(f"{held}; {_duration(max(left, 0))} left at most")

    def again(self, why: str) -> None:
        """Begin again: a second search has as much time as the first."""
        self._told, self.until = self._most, time.monotonic() + self._most
        self._say(why)
        self._say(f"At most {_duration(self._most)} more.")


def _results(asked: Request, model: Source, search: Search, found: dict[str, Any]) -> tune_rows.Tuning:
    """NAME_tune.json. found: what does not depend on the request, and the seconds."""
    goal = dataclasses.replace(asked.goal, holds=search.best is not None)
    words = shlex.join([*asked.command, *search.chosen.point.words(asked.base)])
    about = {"schema_version": SCHEMA_VERSION, "kind": KIND, "generator": f"qdq-translator {__version__}"}
    more: dict[str, Any] = {**about, **found, "limit": asked.limit, "model": model, "goal": goal, "command": words}
    return tune_rows.Tuning(**more)


def _settled(
    asked: Request,
    first: Bench,
    bench_of: Callable[[Fitted, Samples], Bench],
    is_float: bool,
    report: Callable[[Evaluated, Optional[Evaluated]], None],
    say: Say,
) -> tuple[Search, Bench, Translation, list[str]]:
    """The search; its bench; its best point, translated with the ranges of all samples; notes. If that translation
    is not what was measured, or loses more on all samples than it may, its point is the only proposal of a search with
    all. bench_of: makes a bench with these samples."""
    search = Search(first, asked.goal, asked.limit, report)
    search.run(proposals(asked.base, is_float))
    translation = first.translation(search.chosen.point, asked.name)
    if asked.whole is None or search.best is None:
        return search, first, translation, []
    bench, cost = bench_of(everything, asked.whole), cost_of(translation)
    measured = bench.measured(translation)
    if abs(cost.int8_macs - search.chosen.cost.int8_macs) <= SAME_MACS and measured.drop <= asked.goal.most:
        return search, first, translation, []
    say(NOT_AS_MEASURED)
    again = Search(bench, asked.goal, asked.limit + bench.passes, report)
    known = dataclasses.replace(search.chosen, cost=cost, measured=measured)
    again.found[known.point] = known  # the answer, if time ends before a better one is found
    again.run([Proposal(dict(search.chosen.point.changes))])
    return again, bench, bench.translation(again.chosen.point, asked.name), [NOT_AS_MEASURED]


def _is_float(explicit: ExplicitNetwork) -> bool:
    return not any(map(is_quantize, explicit.graph.nodes))


def _duration(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 100 else f"{round(seconds / 60)} minutes"


def _about(asked: Request, sha256: str, where: Evaluation) -> dict[str, Any]:
    """Scope of the journal."""
    metric = "" if asked.metric is None else asked.metric.name
    code = Path(metric.rpartition(":")[0])
    return {
        "version": __version__,
        "model": sha256,
        "data": asked.judged.digest,
        "samples": len(asked.judged),
        "metric": [metric, file_digest(code) if code.suffix == ".py" else ""],
        "options": effective(asked.base),
        "provider": where.provider,
    }


def _found(search: Search, bench: Bench, held: Optional[Meter], notes: Sequence[str]) -> dict[str, Any]:
    """The part of the results that does not depend on the request. held: measures the front on samples that the search
    did not see. notes: on the ranges."""
    meter, evaluated = bench.meter, list(search.found.values())
    front = pareto(evaluated)
    usual = [found for found in evaluated if found.why == FP16 or found.point == Point()]
    again = {found.point: bench.again(found.point, held) for found in (*usual, *front)} if held is not None else {}

    def row(found: Evaluated) -> tune_rows.Tuned:
        return found.row(again.get(found.point))

    return {
        "data": _data(meter.samples, notes),
        "held_out": None if held is None else _data(held.samples),
        "metric": tune_rows.Metric(
            meter.metric.name, meter.reference.score, None if held is None else held.reference.score
        ),
        "early_stopping": _stopping(meter),
        "evaluations": search.evaluations,
        "passes": round(bench.passes, 2),
        "interrupted": search.interrupted,
        "cures": tuple(search.cures()),
        "sensitivity": tuple(bench.rankings()),
        "best": row(search.chosen),
        "front": tuple(map(row, front)),
        "points": tuple(map(row, evaluated)),
    }


def _data(samples: Samples, notes: Sequence[str] = ()) -> tune_rows.Data:
    return tune_rows.Data(samples.source, len(samples), samples.digest, (*samples.doubts, *samples.notes, *notes))


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
    results = places(options.output_dir, options.model)[1]
    with replacing(TranslationFiles(results.parent, outcome.translation.name)) as new:
        outcome.translation.save(new.folder)
        write_json(new.folder / results.name, outcome.results)
        read_json(new.folder / results.name, tuning_schema(), "Check the metric.")
