"""The functions of the Python API. Options that a function does not name are keyword arguments with the names of the flags."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any, Optional, Sequence, Type, TypeVar, Union

from qdq_translator.api.given import Data, Metric, Model, data_path, metric_of, model_path
from qdq_translator.api.results import Bundle, Explanation, Report, Tuning, Verification
from qdq_translator.commands import deploy as deploy_command
from qdq_translator.commands import explain as explain_command
from qdq_translator.commands import explicit as explicit_command
from qdq_translator.commands import plan as plan_command
from qdq_translator.commands import tune as tune_command
from qdq_translator.commands import verify as verify_command
from qdq_translator.core.errors import UsageError
from qdq_translator.core.options import TranslateOptions
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.progress import Progress, silent
from qdq_translator.simulate.evaluation import evaluation
from qdq_translator.workflows import translator, verification
from qdq_translator.workflows.explicit import Explicit
from qdq_translator.workflows.translator import Translation

_Options = TypeVar("_Options")
Place = Union[str, "os.PathLike[str]"]


def plan(model: Model, **options: Any) -> Translation:
    """What any ONNX model, float or Q/DQ, would run where on a DLA if every tensor had a scale.

    options: those of `qdq-translator plan` (target="orin-dla", platform, shapes, power_mode, no_rewrites ...). Nothing is
    written. Raises UserError for a model that cannot be read, UsageError (a ValueError) for a wrong option.
    """
    asked = _options(plan_command.Options, options)
    with tempfile.TemporaryDirectory() as scratch:
        return plan_command.planned(dataclasses.replace(asked, input_onnx_model=model_path(model, Path(scratch))))


def translate(
    model: Model,
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    *,
    progress: Optional[Progress] = None,
    **changes: Any,
) -> Translation:
    """Removes Q/DQ from `model` and collects one scale per tensor; nothing is written before `save`.

    options, changes: `TranslateOptions`, or its fields as keyword arguments (preset="dla", platform="jetpack-6.2", ...).
    name: of the files (default: the file's stem, else the graph's name). progress: called with (what, done, total).
    Raises UserError, always with a remedy; UsageError (a ValueError) for a wrong option.
    """
    asked = _options(TranslateOptions, changes, options)
    if isinstance(model, bytes):
        import onnx

        model = onnx.load_from_string(model)
    return translator.translate(
        model if not isinstance(model, os.PathLike) else Path(model), asked, name, progress or silent
    )


def calibrate(model: Model, data: Data, *, progress: Optional[Progress] = None, **options: Any) -> Translation:
    """`translate` with the ranges of `data` for every tensor that has no scale (rule K1); `model` may be a float one.

    data: see `Data`. options: fields of `TranslateOptions`; `calibrate_method` is max, percentile, entropy or mse (default).
    Needs ONNX Runtime. Raises UserError and UsageError as `translate`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = model_path(model, Path(scratch))
        options["calibrate"] = data_path(data, path, Path(scratch))
        made = translate(path if isinstance(model, bytes) else model, progress=progress, **options)
        made.report  # noqa: B018  (made while the data are there)
        return made


def explicit(model: Model, **options: Any) -> Explicit:
    """A strongly typed Q/DQ network for TensorRT 11, of a Q/DQ model, or of a float one with `calibrate=` or `cache=`.

    options: those of `qdq-translator explicit`. Raises UserError for what cannot be written, UsageError for a wrong option.
    """
    asked = _options(explicit_command.Options, options)
    with tempfile.TemporaryDirectory() as scratch:
        return explicit_command.made(dataclasses.replace(asked, input_model=model_path(model, Path(scratch))))


def verify(
    model: Model,
    translation: Union[Translation, Place],
    *,
    data: Optional[Data] = None,
    labels: Any = None,
    metric: Optional[Metric] = None,
    progress: Optional[Progress] = None,
    **options: Any,
) -> Verification:
    """Runs `model` and the simulated engine of `translation` side by side in ONNX Runtime.

    translation: a `Translation`, or the folder of one. data: samples (default: random ones). labels: one row a sample.
    metric: see `Metric`. options: those of `qdq-translator verify` (per_layer, audit, sensitivity, min_cosine, ...).
    A missed threshold is no exception: see `Verification.ok`. Raises UserError and UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = model_path(model, folder)
        if isinstance(translation, Translation):
            translation = translation.save(folder / "translation").model
        if data is not None:
            options["inputs"] = data_path(data, path, folder, labels)
        asked = _options(verify_command.Options, options)
        asked = dataclasses.replace(
            asked, model=path, translation=os.fspath(translation), metric=metric and metric_of(metric)
        )
        verify_command.check(asked)
        with evaluation(asked.workers, asked.scheduler, asked.provider) as where:
            return Verification(verification.verify(asked, progress or silent, where))


def tune(
    model: Model,
    data: Data,
    *,
    labels: Any = None,
    metric: Metric = "top1",
    calibrate: Optional[Data] = None,
    output_dir: Place = "./tuned",
    progress: Optional[Progress] = None,
    **options: Any,
) -> Tuning:
    """The translation of least estimated time whose metric falls by at most `max_drop`, or the best within `budget_ms`.

    Writes the translation, a journal and the results to `output_dir`; a search that was ended goes on from there if model
    and data are paths. options: those of `qdq-translator tune` and `translate`. Raises UserError and UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = model_path(model, folder)
        if calibrate is not None:
            (folder / "calibration").mkdir()
            options["calibrate"] = data_path(calibrate, path, folder / "calibration")
        options.update(model=path, data=data_path(data, path, folder, labels), output_dir=os.fspath(output_dir))
        asked = dataclasses.replace(_options(tune_command.Options, options), metric=metric_of(metric))
        outcome = tune_command.searched(asked, progress or silent)
    return Tuning(outcome.results, outcome.translation, outcome.holds)


def deploy(
    model: Place,
    board: str,
    *,
    consumers: Sequence[str] = ("trtexec",),
    data: Optional[Data] = None,
    progress: Optional[Progress] = None,
    **options: Any,
) -> Bundle:
    """One folder with everything that `board` needs to run `model`: translation, scripts, configurations, a page.

    consumers: trtexec, python, cudla, deepstream, ultralytics, onnxruntime, triton. data: to calibrate and to verify on. options:
    those of `qdq-translator deploy` (output_dir, keep_model, skip, ...). Done again, only changed steps run. Raises UserError.
    """
    told = progress or silent
    with tempfile.TemporaryDirectory() as scratch:
        if data is not None:
            options["data"] = data_path(data, os.fspath(model), Path(scratch))
        asked = _options(
            deploy_command.Options, {"model": model, "board": board, "consumers": list(consumers), **options}
        )
        made = deploy_command.deployed(asked, lambda text: told(text, 0, 0))
    return Bundle(deploy_command.summary_of(made), made.folder)


def report(
    translation: Union[Translation, Place],
    *,
    html: Optional[Place] = None,
    against: Union[Translation, Place, None] = None,
) -> Report:
    """The report of a `Translation` or of a folder. html: also writes the page there, of the comparison with `against` if given.

    Raises UserError if the folder holds no translation or the page cannot be written.
    """
    found = _report_of(translation)
    if html is not None:
        from qdq_translator.output.report.html import write_page

        write_page(found, Path(html), None if against is None else _report_of(against))
    return Report(found)


def explain(name: str) -> Explanation:
    """A rule ('S7'), a limit of the DLA ('H1'), a platform ('jetpack-6.2') or a diagnostic ('W-U1') in words.

    Raises UserError for a name that is none of these.
    """
    title, paragraphs = explain_command.explanation(name)
    return Explanation(title, list(paragraphs))


def _report_of(translation: Union[Translation, Place]) -> dict[str, Any]:
    if isinstance(translation, Translation):
        return translation.report
    from qdq_translator.commands.located import locate

    return locate(os.fspath(translation), "").read_report()


def _options(kind: Type[_Options], values: dict[str, Any], base: Optional[_Options] = None) -> _Options:
    """`values` over `base` as an instance of `kind`. Raises UsageError for a name or a value that `kind` does not have."""
    known: Sequence[str] = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise UsageError(f"There is no option '{name}'.", did_you_mean(name, known))
    if base is not None:
        return dataclasses.replace(base, **values)  # type: ignore[type-var]
    return kind(**values)
