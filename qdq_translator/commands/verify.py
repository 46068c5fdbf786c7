"""`qdq-translator verify`: your model and the simulated implicit engine side by side."""

import dataclasses
import sys
from pathlib import Path
from typing import Sequence

from qdq_translator.api.requests import check_verify
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES, print_commands, print_json, print_next
from qdq_translator.core.command_options import VerifyOptions as Options
from qdq_translator.core.disk import check_outputs, write_file, write_json
from qdq_translator.core.formats.files import TranslationFiles, model_name
from qdq_translator.core.formats.verify_rows import Verification
from qdq_translator.core.progress import progress_bar
from qdq_translator.lab.migrated import Migrated, migrated
from qdq_translator.lab.simulate.evaluation import evaluation
from qdq_translator.lab.verification import verified
from qdq_translator.lab.verification_words import print_results

MOST_SENTENCES = 20
"""Number of notes that are printed to stderr without --verbose: a model of another translation causes one for every
layer."""
TRANSLATED = Path("translated")
"""The default of `--translation`."""
MOST_LETTERS = 600
"""Length of the command of a cure that is printed with the remedy."""


def run(options: Options) -> int:
    """Print the comparison; status 1 if the verdict is not good, a threshold is missed, or files differ from those that
    were written."""
    if options.example:
        options = dataclasses.replace(
            options, model=options.model or str(EXAMPLE_MODEL), data=options.data or str(EXAMPLE_SAMPLES)
        )
    check_verify(options)
    _check_places(options)
    with progress_bar(sys.stderr) as progress, evaluation(
        options.workers, options.scheduler, options.provider
    ) as where:
        if options.explicit_network and not _is_translated(options):
            return _told(options, migrated(options, options.explicit_network, progress, where))
        found = verified(options, progress, where)
    if options.save_layers and found.sensitivity is not None:
        write_file(Path(options.save_layers), "".join(f"{n}\n" for n in found.sensitivity.layers).encode())
    _save(options, found)
    if not options.json:
        print_results(found, options.all or options.verbose)
        _print_next(options, found)
    return _complain(found.failed, options.verbose)


def _save(options: Options, found: object) -> None:
    """Write the results to the file of --save, and with --json to stdout."""
    if options.save:
        write_json(Path(options.save), found)
    if options.json:
        print_json(found)


def _complain(failed: Sequence[str], verbose: bool) -> int:
    """Print what failed; the exit status."""
    shown = failed if verbose else failed[:MOST_SENTENCES]
    more = [f"and {len(failed) - len(shown)} more (--verbose)"] if len(shown) < len(failed) else []
    for sentence in (*shown, *more):
        print(f"qdq-translator verify: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _is_translated(options: Options) -> bool:
    """Whether the folder holds a translation of the model: the default one need not exist for a network of
    `explicit`."""
    folder = Path(options.translation)
    return folder != TRANSLATED or (folder.is_dir() and model_name(options.model) in TranslationFiles.names_in(folder))


def _told(options: Options, found: Migrated) -> int:
    """Print the comparison of network and model; the exit status."""
    _save(options, found._asdict())
    if not options.json:
        print(*found.lines(), sep="\n")
    return _complain(found.failed, options.verbose)


def _print_next(options: Options, found: Verification) -> None:
    """The remedy and the last cure whose command is not too long to read; the usual next commands without a remedy."""
    if found.verdict.remedy:
        short = [cure.command for cure in found.verdict.cures if len(cure.command) <= MOST_LETTERS]
        print_commands(*dict.fromkeys([found.verdict.remedy, *short[-1:]]))
    else:
        files = TranslationFiles.locate(options.translation, options.model, only_one=True)
        print_next(files, options.model, "verify", parts=files.manifest(), unmeasured=found.inputs.random)


def _check_places(options: Options) -> None:
    """Raises UsageError or UserError if the results cannot be saved to the requested paths."""
    saved = [Path(path) for path in (options.save, options.save_layers) if path]
    if saved and _is_translated(options):
        files = TranslationFiles.locate(options.translation, options.model, only_one=True)
        read = (options.model, options.float, options.data, options.labels, options.device_results)
        check_outputs(saved, [*files, *(Path(name) for name in read if name)])
