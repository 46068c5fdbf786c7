"""`qdq_translator.py` and `qdq-translator translate`."""

import contextlib
import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from qdq_translator.commands.located import EXAMPLE_MODEL, print_json, print_next
from qdq_translator.core.disk import refuse_overwriting, write_json
from qdq_translator.core.errors import UsageError, UserError, unexpected
from qdq_translator.core.formats.files import MODEL_SUFFIX, TranslationFiles, model_name
from qdq_translator.core.formats.report_rows import CutParts, Metric, Summary
from qdq_translator.core.options import IMAGES, check_between, check_metric_drop, check_needs_dla
from qdq_translator.core.options import TranslateCommand as Options
from qdq_translator.core.progress import progress_bar, silent
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.evaluation import evaluation
from qdq_translator.translation.files.write import replacing, summarize
from qdq_translator.translation.targets.settings import resolve
from qdq_translator.translation.translator import Translation


def run(options: Options) -> int:
    """Translates every model; a failure of one does not stop the others."""
    if options.dla_rewrites == "list":
        from qdq_translator.translation.passes.dla import rules_text

        print(rules_text(), end="")
        return 0
    _check(options)
    models = _models(options)
    if options.parts == "model":
        from qdq_translator.commands.parts import cut

        for model in models:
            cut(model, options)
        return 0
    summaries: List[Summary] = []
    failures: List[Dict[str, str]] = []
    for model, (summary, error) in zip(models, _results(models, options)):
        if summary is not None:
            summaries.append(summary)
            if not options.json:
                _print_summary(summary, options, alone=len(models) == 1)
            error = summary.failed
        if error:
            failures.append({"model": model, "error": error})
            print(error if error.startswith(f"{model} ") else f"{model}: {error}", file=sys.stderr, flush=True)
    status = 1 if failures else 0
    if options.json:
        print_json({"translated": summaries, "failed": failures, "status": status})
    elif len(models) > 1:
        from qdq_translator.translation.report.terminal_summary import print_many

        print_many(summaries, failures)
        if summaries:
            _print_next(summaries[0])
    return status


def _check(options: Options) -> None:
    """Rejects options that are invalid for any model, before the first one."""
    if options.workers < 1:
        raise UsageError(f"--workers {options.workers} is not a number of processes.", "Give 1 or more.")
    if options.metric and not options.calibrate:
        raise UsageError("--metric is measured on data.", "Give the data, or use 'verify --metric'.")
    check_metric_drop(options.max_drop, options.metric)
    if options.fail_on_gpu_fallback and options.target == "gpu":
        raise UsageError("--fail_on_gpu_fallback needs a DLA.", "Select it with --on dla.")
    if options.parts != "off" and options.target == "gpu":
        raise UsageError(f"--parts {options.parts} needs a DLA.", "Select it with --board or --target.")
    if (options.begin or options.end) and options.parts not in ("always", "model"):
        raise UsageError("--begin and --end are about --parts always.", "Add it.")
    if options.target == "gpu":
        check_needs_dla("--fail_over_ms", options.fail_over_ms)
    check_between("--fail_under_int8_macs", options.fail_under_int8_macs, 100)
    resolve(options)


def _models(options: Options) -> List[str]:
    """Every named model, with folders replaced by the ONNX files in them; raises UsageError for none or equal names."""
    models = [str(EXAMPLE_MODEL)] if options.example else []
    for name in [*options.models, *options.input_onnx_models]:
        if not Path(name).is_dir():
            models.append(name)
            continue
        inside = sorted(str(p) for p in Path(name).glob("*.onnx") if not p.name.endswith(MODEL_SUFFIX))
        if not inside:
            raise UsageError(f"{name} contains no .onnx file.", "Give a model, or a folder of models.")
        models += inside
    if not models:
        raise UsageError("No model was given.", "Give one or more (model.onnx), or --example for the one that ships.")
    seen: Dict[str, str] = {}
    for model in models:
        other = seen.setdefault(Path(model).name, model)
        if other is not model:
            raise UsageError(
                f"{other} and {model} would write the same files.", "Translate them into different folders."
            )
    outputs = (path for model in models for path in TranslationFiles(Path(options.output_dir), model_name(model)))
    refuse_overwriting(outputs, (Path(model) for model in models))
    return models


_Result = Tuple[Optional[Summary], str]


def _results(models: List[str], options: Options) -> Iterator[_Result]:
    """One result per model, in the order of `models`, each as soon as it and those before it are available."""
    workers = min(options.workers, len(models))
    if workers == 1:
        yield from (_translate_one((model, options, True)) for model in models)
        return
    from qdq_translator.core.workers.local import in_processes

    yield from in_processes(workers, _translate_one, [(model, options, False) for model in models])


def _translate_one(task: Tuple[str, Options, bool]) -> _Result:
    """Translate one model; return a summary of plain values, or an error sentence. Also runs in worker processes.

    task: model, options, whether to show progress."""
    model, options, shown = task
    try:
        with contextlib.ExitStack() as stack:
            given: Dict[str, Any] = {}
            if options.calibrate:
                given["where"] = stack.enter_context(evaluation(options.workers, options.scheduler, options.provider))
                given["progress"] = stack.enter_context(progress_bar(sys.stderr)) if shown else silent
            translation, accuracy = _translated(model, options, given)
            files = TranslationFiles(Path(options.output_dir), translation.name)
            with replacing(files) as new:
                translation.save(new.folder)
                split, whole = _cut(translation, new, options)
            split = replace(split, folder=str(files.parts)) if split else None
            summary = replace(
                summarize(model, translation, translation.rows, files, options, split), not_cut=whole, accuracy=accuracy
            )
        if options.metric:
            metric, sentences = _measured(model, files, options)
            summary = replace(summary, metric=metric, failed="; ".join(filter(None, [summary.failed, *sentences])))
        return summary, ""
    except Exception as error:
        if options.verbose:
            raise
        return None, str(error) if isinstance(error, UserError) else unexpected(error)


def _translated(model: str, options: Options, given: Dict[str, Any]) -> Tuple[Translation, Tuple[str, ...]]:
    """The translation, and the sentences of --recover. given: progress and place of the computation."""
    if options.recover is False:
        return translate(model, options, **given), ()
    from qdq_translator.lab.tune.run import places, recover

    journal, results = places(options.output_dir, model)
    shown = functools.partial(print, file=sys.stderr, flush=True)
    say = shown if not (options.json) else lambda text: None
    points = options.recover if options.max_drop is None else options.max_drop
    outcome = recover(model, options, float(points), journal, say=say, metric=options.metric, **given)
    write_json(results, outcome.results)
    return outcome.translation, outcome.results.remedies


def _cut(translation: Any, files: TranslationFiles, options: Options) -> Tuple[Optional[CutParts], str]:
    """The manifest of the parts, None if there are none; and the message for that case."""
    always = options.parts == "always"
    if always or (options.parts == "tail" and translation.dla is not None and translation.dla.fallbacks):
        from qdq_translator.lab.parts import cut_tail

        try:
            split = cut_tail(translation, files, always, (options.begin, options.end))
        except UserError as error:
            if always:
                raise
            return None, f"The tail was not cut off: {error}"
        if split is not None:
            return split, ""
    return None, ""


def _measured(model: str, files: TranslationFiles, options: Options) -> Tuple[Metric, List[str]]:
    """The user's metric on the --calibrate data: name, model's value, simulated engine's value; missed thresholds."""
    from qdq_translator.core.command_options import VerifyOptions
    from qdq_translator.lab.simulate.compare import EXPLICIT, SIMULATED
    from qdq_translator.lab.verification import verified

    same = ("shapes", *IMAGES, "ignore_nonfinite", "metric", "max_drop")
    asked = VerifyOptions(
        model=model,
        translation=str(files.model),
        data=options.calibrate,
        samples=options.calibrate_samples,
        fuse="on",
        hypotheses="plan",
        **{name: getattr(options, name) for name in same},
    )
    results = verified(asked)
    stages = results.outputs.metric
    return Metric(str(options.metric), stages[EXPLICIT], stages[SIMULATED]), list(results.failed)


def _print_summary(summary: Summary, options: Options, alone: bool) -> None:
    """Print what a translation made: for one of several models only its first line, because a table of all follows."""
    from qdq_translator.translation.report.terminal_summary import print_file, print_short

    if alone or options.verbose:
        print_short(summary, options.verbose)
    else:
        print_file(summary)
    if alone:
        _print_next(summary)


def _print_next(summary: Summary) -> None:
    files = TranslationFiles.locate(summary.files["model"])
    falls_back = bool(summary.dla and summary.dla.gpu_operators)
    static = not summary.dynamic_inputs
    print_next(files, summary.source, "translate", parts=summary.split, static=static, falls_back=falls_back)
