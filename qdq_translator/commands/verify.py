"""`qdq-translator verify`: the explicit model and the simulated implicit engine side by side."""

import dataclasses
import sys
from pathlib import Path

from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES, print_json, print_next
from qdq_translator.core.command_options import VerifyOptions as Options
from qdq_translator.core.disk import check_outputs, write_file, write_json
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.options import check_between, check_count, check_metric_drop, check_positive
from qdq_translator.core.progress import progress_bar
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.workflows.verification import verified
from qdq_translator.workflows.verification_words import print_results

MOST_SENTENCES = 20
"""Number of notes that are printed to stderr without --verbose: a model of another translation causes one for every
layer."""


def run(options: Options) -> int:
    """Print the comparison; status 1 if a threshold is missed or files differ from those that were written."""
    if options.example:
        options = dataclasses.replace(
            options, model=options.model or str(EXAMPLE_MODEL), inputs=options.inputs or str(EXAMPLE_SAMPLES)
        )
    check(options)
    _check_places(options)
    with progress_bar(sys.stderr) as progress, evaluation(
        options.workers, options.scheduler, options.provider
    ) as where:
        found = verified(options, progress, where)
    if options.save:
        write_json(Path(options.save), found)
    if options.save_layers and found.sensitivity is not None:
        write_file(Path(options.save_layers), "".join(f"{n}\n" for n in found.sensitivity.layers).encode())
    if options.json:
        print_json(found)
    else:
        print_results(found, options.all or options.verbose)
        print_next(TranslationFiles.locate(options.translation, options.model, only_one=True), options.model, "verify")
    shown = found.failed if options.verbose else found.failed[:MOST_SENTENCES]
    more = [f"and {len(found.failed) - len(shown)} more (--verbose)"] if len(shown) < len(found.failed) else []
    for sentence in (*shown, *more):
        print(f"qdq-translator verify: {sentence}", file=sys.stderr)
    return 1 if found.failed else 0


def _check_places(options: Options) -> None:
    """Raises UsageError or UserError if the results cannot be saved to the requested paths."""
    saved = [Path(path) for path in (options.save, options.save_layers) if path]
    if saved:
        files = TranslationFiles.locate(options.translation, options.model, only_one=True)
        read = (options.model, options.float, options.inputs, options.labels, options.device_results)
        check_outputs(saved, [*files, *(Path(name) for name in read if name)])


def check(options: Options) -> None:
    """Raises UsageError for options that are out of range or do not go together."""
    if not options.model:
        raise UsageError(
            "No model was given.", "Give the explicit model with -i model.onnx, or --example for the one that ships."
        )
    check_between("--min_cosine", options.min_cosine, 1)
    check_between("--min_top1_agreement", options.min_top1_agreement, 100)
    check_count("--samples", options.samples)
    check_positive("--image_std", options.image_std)
    if options.save_layers and not options.sensitivity:
        raise UsageError("--save_layers writes what --sensitivity finds.", "Add --sensitivity.")
    check_metric_drop(options.max_metric_drop, options.metric)
    if (options.labels or options.metric) and not options.inputs:
        flag = "--labels" if options.labels else "--metric"
        raise UsageError(f"{flag} needs --inputs.", "Random inputs have no labels.")
    if options.device_results and not options.inputs:
        raise UsageError("--device_results needs --inputs.", "Give the file that the device ran.")
    if options.device_results and options.ignore_nonfinite:
        raise UsageError(
            "--ignore_nonfinite does not go with --device_results.",
            "The device ran all samples: correct the data, and run it again.",
        )
