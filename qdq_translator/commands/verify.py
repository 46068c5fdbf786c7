"""`qdq-translator verify`: the explicit model and the simulated implicit engine side by side."""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Dict

from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES, print_json, print_next
from qdq_translator.core.command_options import VerifyOptions as Options
from qdq_translator.core.disk import check_place, refuse_overwriting, write_file, write_json
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.options import check_count, check_positive
from qdq_translator.core.progress import progress_bar
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.workflows.verification import verified
from qdq_translator.workflows.verification_words import print_results

MOST_SENTENCES = 20
"""That go to stderr without --verbose: a model of another translation makes one for every layer."""


def run(options: Options) -> int:
    """Print the comparison; status 1 if a threshold is missed or files differ from those that were written."""
    if options.example:
        options = dataclasses.replace(
            options, model=options.model or str(EXAMPLE_MODEL), inputs=options.inputs or str(EXAMPLE_SAMPLES)
        )
    check(options)
    saved = [Path(path) for path in (options.save, options.save_layers) if path]
    for path in saved:
        files = TranslationFiles.locate(options.translation, options.model, only_one=True)
        read = (options.model, options.float, options.inputs, options.labels, options.device_results)
        refuse_overwriting([path], [*files, *(Path(name) for name in read if name)])
        check_place(path)
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
    for sentence in shown:
        print(f"qdq-translator verify: {sentence}", file=sys.stderr)
    if len(shown) < len(found.failed):
        print(f"qdq-translator verify: and {len(found.failed) - len(shown)} more (--verbose)", file=sys.stderr)
    return 1 if found.failed else 0


def check(options: Options) -> None:
    """Raises UsageError for options that are out of range or do not go together."""
    if not options.model:
        raise UsageError(
            "No model was given.", "Give the explicit model with -i model.onnx, or --example for the one that ships."
        )
    limits: Dict[str, Any] = {
        "--min_cosine": (options.min_cosine, 1),
        "--min_top1_agreement": (options.min_top1_agreement, 100),
    }
    for flag, (value, top) in limits.items():
        if value is not None and not 0 <= value <= top:
            raise UsageError(f"{flag} {value:g} is out of range.", f"It must be between 0 and {top}.")
    check_count("--samples", options.samples)
    check_positive("--image_std", options.image_std)
    if options.save_layers and not options.sensitivity:
        raise UsageError("--save_layers writes what --sensitivity finds.", "Add --sensitivity.")
    if options.max_metric_drop is not None and not options.metric:
        raise UsageError("--max_metric_drop needs a metric.", "Give one with --metric file.py:name.")
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
