"""`qdq-translator tune`: options, calibration and FP16 layers within an accuracy budget, for the least estimated time."""

import dataclasses
from typing import Optional

from qdq_translator.core.options import TranslateOptions, option, same_option


@dataclasses.dataclass
class Options(TranslateOptions):
    """Search for the translation that costs the least estimated time while a metric stays within a budget, or that keeps the
    metric best within a budget of milliseconds. Every accepted point is measured on all samples in the simulated engine;
    a search that was ended goes on from its journal. The options of translate that are given hold for every point, as far
    as they are no part of the search."""

    model: str = option(
        "--model", "-i", default="", metavar="MODEL", help="the model, Q/DQ or float", group="Essential"
    )
    data: str = option(
        "--data",
        default="",
        metavar="PATH",
        help="samples to measure on: an .npz, .npy, or a folder of them or of images; an fsspec address works too",
        group="Essential",
    )
    labels: Optional[str] = option(
        "--labels",
        default=None,
        metavar="FILE",
        help="a .npy, or an .npz with the array labels, where the samples carry none",
        group="Essential",
    )
    metric: str = option(
        "--metric",
        default="top1",
        metavar="METRIC",
        help="top1, map, or one of your own: file.py:name or package.module:name (docs/accuracy.md)",
        group="Essential",
    )
    max_drop: Optional[float] = option(
        "--max_drop",
        default=None,
        metavar="X",
        help="how much the metric may fall from that of the model as given, in its own unit",
        group="Essential",
    )
    budget_ms: Optional[float] = option(
        "--budget_ms",
        default=None,
        metavar="MS",
        help="estimated milliseconds on the DLA that may be spent; the metric is what gets better then",
        group="Essential",
    )
    output_dir: str = same_option("output_dir", default="./tuned", help="folder for the files (default: ./tuned)")
    samples: Optional[int] = option(
        "--samples", default=None, metavar="N", help="samples to measure on (default: all)", group="Essential"
    )
    evaluations: int = option(
        "--evaluations", default=60, metavar="N", help="points to measure, at most", group="Automation"
    )
    seed: int = option("--seed", default=0, metavar="N", help="of the local search", group="Automation")
    workers: int = same_option("workers")
    scheduler: Optional[str] = same_option("scheduler")
    provider: str = same_option("provider")
    json: bool = option("--json", default=False, help="the results as one JSON object on stdout", group="Output")
    verbose: bool = option(
        "--verbose", default=False, help="a line for each evaluation; tracebacks of errors", group="Output"
    )


def run(options: Options) -> int:
    """Prints the front; 1 where no point keeps what was asked for (the best one found is written all the same)."""
    import json
    import sys
    from pathlib import Path

    from qdq_translator.core.disk import alone, check_place, refuse_overwriting
    from qdq_translator.core.formats.files import TranslationFiles, model_name
    from qdq_translator.core.options import TranslateOptions
    from qdq_translator.core.progress import progress_bar
    from qdq_translator.simulate.evaluation import evaluation
    from qdq_translator.workflows.tune.run import places, save, tune
    from qdq_translator.workflows.tune.terminal import print_outcome

    _check(options)
    journal, results = places(options)
    read = [path for path in (options.model, options.data, options.labels, options.calibrate) if path]
    outputs = [*TranslationFiles(Path(options.output_dir), model_name(options.model)), journal, results]
    refuse_overwriting(outputs, map(Path, read))
    for place in (journal, results):
        check_place(place)
    fields = (field.name for field in dataclasses.fields(TranslateOptions))
    base = TranslateOptions(**{name: getattr(options, name) for name in fields})
    with alone(journal):
        with progress_bar(sys.stderr, options.verbose) as progress, evaluation(
            options.workers, options.scheduler, options.provider
        ) as where:
            outcome = tune(options, base, where, progress)
        save(outcome, options)
    if options.json:
        print(json.dumps(outcome.results, indent=2))
    else:
        print_outcome(outcome.results)
    if not outcome.holds:
        drop = outcome.results["best"]["measured"]["drop"]
        print(
            f"qdq-translator tune: No point keeps what was asked for; the best one found falls by {drop:.4g}. It was written all "
            "the same; allow more, or give the search more --evaluations or --calibrate data.",
            file=sys.stderr,
        )
    return 0 if outcome.holds else 1


def _check(options: Options) -> None:
    from qdq_translator.core.diagnostics import Diagnostics
    from qdq_translator.core.errors import UsageError
    from qdq_translator.targets.settings import resolve

    for flag, value in (("--model", options.model), ("--data", options.data)):
        if not value:
            raise UsageError(f"{flag} is required.", "For example: tune -i model.onnx --data test.npz --max_drop 0.5.")
    if options.max_drop is None and options.budget_ms is None:
        raise UsageError("Nothing to aim at.", "Give --max_drop, --budget_ms, or both.")
    if options.max_drop is not None and not options.max_drop >= 0:
        raise UsageError(f"--max_drop {options.max_drop:g} is out of range.", "It is 0 or more.")
    if options.budget_ms is not None and not options.budget_ms > 0:
        raise UsageError(f"--budget_ms {options.budget_ms:g} is out of range.", "It is more than 0.")
    if options.budget_ms is not None and options.target == "gpu":
        raise UsageError("--budget_ms is about the time on a DLA.", "Name it with --target orin-dla.")
    for flag, count in (("--evaluations", options.evaluations), ("--samples", options.samples)):
        if count is not None and count < 1:
            raise UsageError(f"{flag} {count} is out of range.", "Give 1 or more.")
    resolve(options, Diagnostics())
