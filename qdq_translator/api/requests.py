"""What a command and its function share: checked options in, a result out. Nothing is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Optional

from qdq_translator.board.answer import total_of
from qdq_translator.board.deployment import Deployed
from qdq_translator.core.command_options import ExplicitCommand, PlanOptions, TuneOptions, VerifyOptions
from qdq_translator.core.disk import check_place, refuse_overwriting
from qdq_translator.core.errors import UsageError
from qdq_translator.core.formats.files import TranslationFiles, model_name, read_lone_cache
from qdq_translator.core.formats.report_rows import DeploySummary
from qdq_translator.core.options import (
    AS_PLANNED,
    TranslateCommand,
    check_between,
    check_count,
    check_needs_dla,
    check_positive,
)
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.switch import alone
from qdq_translator.lab.laboratory import OnnxRuntime, translate
from qdq_translator.lab.simulate.evaluation import evaluation
from qdq_translator.lab.tune.run import Outcome, places, save, tune
from qdq_translator.translation.explicit import Explicit, explicit
from qdq_translator.translation.targets.settings import resolve
from qdq_translator.translation.translator import Translation


def planned(options: PlanOptions, model: Optional[Any] = None) -> Translation:
    """The plan of `options.model`, or of the ModelProto `model`, as if every tensor had a scale."""
    names = ("board", "on", "platform", "shapes", "power_mode", "dla_clock", "cost_model", "keep_fp16", "dla_rewrites")
    same = {name: getattr(options, name) for name in names if name in options.typed}
    if "target" in options.typed or not {"board", "on"} & options.typed:
        same["target"] = options.target
    asked = TranslateCommand(**same, **AS_PLANNED)
    return translate(model or str(options.model), asked, assume_scales=True)


def explicit_of(options: ExplicitCommand, progress: Progress = silent, model: Optional[Any] = None) -> Explicit:
    """The explicit network of `options.model`, or of the ModelProto `model`; nothing is written. Raises UserError."""
    if options.cache and options.calibrate:
        raise UsageError("--cache and data both give scales.", "Use one of them.")
    scales = None
    if options.cache:
        cache, _ = read_lone_cache(Path(options.cache), Path(options.model) if model is None else None)
        scales = cache.scales
    return explicit(model or options.model, options, options, scales, lab=OnnxRuntime(progress))


def check_verify(options: VerifyOptions) -> None:
    """Raises UsageError for options that are out of range or do not go together."""
    if not options.model:
        raise UsageError(
            "No model was given.", "Give your model (verify model.onnx), or --example for the one that ships."
        )
    check_between("--min_cosine", options.min_cosine, 1)
    check_between("--min_top1_agreement", options.min_top1_agreement, 100)
    check_count("--samples", options.samples)
    check_positive("--image_std", options.image_std)
    if options.save_layers and not options.sensitivity:
        raise UsageError("--save_layers writes what --sensitivity finds.", "Add --sensitivity.")
    if (options.labels or options.metric) and not options.data:
        flag = "--labels" if options.labels else "--metric"
        raise UsageError(f"{flag} needs DATA.", "Random inputs have no labels.")
    if options.device_results and not options.data:
        raise UsageError("--device_results needs DATA.", "Give the file that the device ran.")
    if options.device_results and options.ignore_nonfinite:
        raise UsageError(
            "--ignore_nonfinite does not go with --device_results.",
            "The device ran all samples: correct the data, and run it again.",
        )


def tuned(options: TuneOptions, progress: Progress, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """The search of `tune`, with its files written. Raises UsageError for options that do not go together."""
    _check_tune(options)
    journal, results = places(options.output_dir, options.model)
    read = [path for path in (options.model, options.data, options.labels, options.held_out, options.calibrate) if path]
    outputs = [*TranslationFiles(Path(options.output_dir), model_name(options.model)), journal, results]
    refuse_overwriting(outputs, map(Path, read))
    for place in (journal, results):
        check_place(place)
    with alone(journal):
        with evaluation(options.workers, options.scheduler, options.provider) as where:
            outcome = tune(options, where, progress, say)
        save(outcome, options)
    return outcome


def _check_tune(options: TuneOptions) -> None:
    for flag, value in (("MODEL", options.model), ("DATA", options.data)):
        if not value:
            raise UsageError(f"{flag} is required.", "For example: tune model.onnx test.npz --max_drop 0.5.")
    if options.max_drop is None and options.budget_ms is None:
        raise UsageError("No goal was given.", "Give --max_drop, --budget_ms, or both.")
    if options.max_drop is not None and not options.max_drop >= 0:
        raise UsageError(f"--max_drop {options.max_drop:g} is out of range.", "It is 0 or more.")
    if options.budget_ms is not None and not options.budget_ms > 0:
        raise UsageError(f"--budget_ms {options.budget_ms:g} is out of range.", "It is more than 0.")
    if options.target == "gpu":
        check_needs_dla("--budget_ms", options.budget_ms)
    check_count("--samples", options.samples)
    if options.passes < 1:
        raise UsageError(f"--passes {options.passes} is out of range.", "Give 1 or more.")
    resolve(options)


def summary_of(made: Deployed) -> DeploySummary:
    """The plain values of a deployment."""
    report, told = made.report, made.answer
    verdict = made.verification.verdict if made.verification else None
    return DeploySummary(
        folder=str(made.folder),
        network=made.name,
        good=told.good,
        reason=told.reason,
        next=told.next,
        target=report.target,
        cost=report.cost,
        scores=told.scores,
        coverage=report.coverage,
        dla=report.dla.counts if report.dla else None,
        milliseconds=total_of(report.cost),
        verdict=verdict.overall if verdict else None,
        reasons=verdict.reasons if verdict else (),
        failed=tuple(made.verification.failed) if made.verification else (),
        consumers=made.commands,
        refused=made.refused,
        redone=tuple(made.redone),
        accuracy=tuple(made.accuracy),
    )
