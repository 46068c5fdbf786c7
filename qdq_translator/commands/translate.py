"""`qdq_translator.py` and `qdq-translator translate`."""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from qdq_translator.cli import unexpected
from qdq_translator.errors import UsageError, UserError
from qdq_translator.options import TranslateCommand, parse_shapes

Options = TranslateCommand
EXAMPLE_MODEL = Path(__file__).resolve().parents[1] / "models" / "digits_resnet_qat.onnx"


def run(options: TranslateCommand) -> int:
    """Translates every model; one that fails does not keep the others from being translated."""
    if options.dla_rewrites == "list":
        from qdq_translator.passes.dla import rules_text

        print(rules_text(), end="")
        return 0
    if options.example:
        options.input_onnx_models = [str(EXAMPLE_MODEL), *options.input_onnx_models]
    if not options.input_onnx_models:
        raise UsageError(
            "No model was named.", "Give one or more with -i model.onnx, or --example for the one that ships."
        )
    if options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs} is not a number of models.", "Give 1 or more.")
    if options.fail_on_gpu_fallback and options.target == "gpu":
        raise UsageError("--fail_on_gpu_fallback asks for a DLA.", "Name it with --target orin-dla or xavier-dla.")
    if options.fail_under_int8_macs is not None and not 0 <= options.fail_under_int8_macs <= 100:
        raise UsageError(
            f"--fail_under_int8_macs {options.fail_under_int8_macs:g} is out of range.", "It lies between 0 and 100."
        )
    _refuse_same_names(options.input_onnx_models)
    _check_once(options)
    results = _run_all(options)
    status = 0
    summaries: List[Dict[str, Any]] = []
    for model, (summary, error) in zip(options.input_onnx_models, results):
        if summary is not None:
            summaries.append(summary)
            if not options.json:
                _print_summary(summary, options.verbose)
            error = summary["failed"]
        if error:
            status = 1
            print(f"{model}: {error}", file=sys.stderr)
    if options.json:
        print(json.dumps({"translated": summaries, "status": status}, indent=2))
    return status


def _check_once(options: TranslateCommand) -> None:
    """What is wrong whatever the models are: said once, before the first."""
    from qdq_translator.diagnostics import Diagnostics
    from qdq_translator.translator import resolve_version

    resolve_version(options, Diagnostics())
    parse_shapes(options.shapes)


def _refuse_same_names(models: List[str]) -> None:
    seen: Dict[str, str] = {}
    for model in models:
        name = Path(model).name
        if name in seen:
            raise UsageError(
                f"{seen[name]} and {model} would write the same files.", "Translate them into different folders."
            )
        seen[name] = model


_Result = Tuple[Optional[Dict[str, Any]], str]


def _run_all(options: TranslateCommand) -> List[_Result]:
    tasks = [(model, options) for model in options.input_onnx_models]
    if options.jobs == 1 or len(tasks) == 1:
        return [_translate_one(task) for task in tasks]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    workers = min(options.jobs, len(tasks))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_translate_one, tasks))


def _translate_one(task: Tuple[str, TranslateCommand]) -> _Result:
    """One model to a summary of plain values, or to the sentence that says why not. Runs in worker processes too."""
    from qdq_translator.emit.write import summarize
    from qdq_translator.translator import translate

    model, options = task
    try:
        translation = translate(model, options)
        files = translation.save(options.output_dir)
        return summarize(translation, files, options), ""
    except Exception as error:
        if options.verbose:
            raise
        return None, str(error) if isinstance(error, UserError) else unexpected(error)


def _print_summary(summary: Dict[str, Any], verbose: bool) -> None:
    from qdq_translator.report.terminal import print_short

    print_short(summary, verbose)
