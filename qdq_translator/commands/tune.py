"""`qdq-translator tune`: options, calibration and FP16 layers for the least estimated time in an accuracy budget."""

import sys
from pathlib import Path

from qdq_translator.api.requests import tuned
from qdq_translator.commands.located import print_json, print_next
from qdq_translator.core.command_options import TuneOptions as Options
from qdq_translator.core.formats.files import TranslationFiles, model_name
from qdq_translator.core.progress import progress_bar
from qdq_translator.lab.tune.run import places
from qdq_translator.translation.report.tuning import print_outcome


def run(options: Options) -> int:
    """Print the front; status 1 if no point meets the request (the best one found is written anyway)."""
    with progress_bar(sys.stderr, options.verbose) as progress:
        outcome = tuned(options, progress, lambda text: print(text, file=sys.stderr, flush=True))
    if outcome.note:
        print(f"qdq-translator tune: {outcome.note}", file=sys.stderr)
    if options.json:
        print_json(outcome.results)
    else:
        print_outcome(outcome.results, str(places(options.output_dir, options.model)[1]))
        files = TranslationFiles(Path(options.output_dir), model_name(options.model))
        print_next(files, options.model, "translate")
    if not outcome.results.goal.holds:
        drop = outcome.results.best.measured.drop
        print(
            f"qdq-translator tune: No point meets the goal; the best one loses {drop:.4g}. It was written all "
            "the same; allow more, or give the search more --passes or --calibrate data.",
            file=sys.stderr,
        )
    return 0 if outcome.results.goal.holds else 1
