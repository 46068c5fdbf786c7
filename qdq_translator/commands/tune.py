"""`qdq-translator tune`: options, calibration and FP16 layers for the least estimated time in an accuracy budget."""

import sys
from pathlib import Path

from qdq_translator.commands.located import print_json, print_next
from qdq_translator.core.command_options import TuneOptions as Options
from qdq_translator.core.disk import alone, check_place, refuse_overwriting
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles, model_name
from qdq_translator.core.options import check_count, check_needs_dla
from qdq_translator.core.progress import Progress, progress_bar
from qdq_translator.output.report.tuning import print_outcome
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.targets.settings import resolve
from qdq_translator.workflows.tune.run import Outcome, places, save, tune


def run(options: Options) -> int:
    """Print the front; status 1 if no point meets the request (the best one found is written anyway)."""
    with progress_bar(sys.stderr, options.verbose) as progress:
        outcome = searched(options, progress)
    if outcome.note:
        print(f"qdq-translator tune: {outcome.note}", file=sys.stderr)
    if options.json:
        print_json(outcome.results)
    else:
        print_outcome(outcome.results, str(places(options)[1]))
        files = TranslationFiles(Path(options.output_dir), model_name(options.model))
        print_next(files, options.model, "translate")
    if not outcome.results.goal.holds:
        drop = outcome.results.best.measured.drop
        print(
            f"qdq-translator tune: No point meets the goal; the best one loses {drop:.4g}. It was written all "
            "the same; allow more, or give the search more --evaluations or --calibrate data.",
            file=sys.stderr,
        )
    return 0 if outcome.results.goal.holds else 1


def searched(options: Options, progress: Progress) -> Outcome:
    """The search of `tune`, with its files written. Raises UsageError for options that do not go together."""
    _check(options)
    journal, results = places(options)
    read = [path for path in (options.model, options.data, options.labels, options.held_out, options.calibrate) if path]
    outputs = [*TranslationFiles(Path(options.output_dir), model_name(options.model)), journal, results]
    refuse_overwriting(outputs, map(Path, read))
    for place in (journal, results):
        check_place(place)
    with alone(journal):
        with evaluation(options.workers, options.scheduler, options.provider) as where:
            outcome = tune(options, where, progress)
        save(outcome, options)
    return outcome


def _check(options: Options) -> None:
    for flag, value in (("--model", options.model), ("--data", options.data)):
        if not value:
            raise UsageError(f"{flag} is required.", "For example: tune -i model.onnx --data test.npz --max_drop 0.5.")
    if options.max_drop is None and options.budget_ms is None:
        raise UsageError("No goal was given.", "Give --max_drop, --budget_ms, or both.")
    if options.max_drop is not None and not options.max_drop >= 0:
        raise UsageError(f"--max_drop {options.max_drop:g} is out of range.", "It is 0 or more.")
    if options.budget_ms is not None and not options.budget_ms > 0:
        raise UsageError(f"--budget_ms {options.budget_ms:g} is out of range.", "It is more than 0.")
    if options.target == "gpu":
        check_needs_dla("--budget_ms", options.budget_ms)
    check_count("--samples", options.samples)
    if options.evaluations < 1:
        raise UsageError(f"--evaluations {options.evaluations} is out of range.", "Give 1 or more.")
    resolve(options)
