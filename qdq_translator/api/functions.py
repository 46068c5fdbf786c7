"""The functions of the Python API. Options without a parameter of their own are keyword arguments with the names of the
flags.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
import re
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Optional, Tuple, Type, TypeVar, Union

import numpy as np
import onnx

from qdq_translator.api import explaining, requests
from qdq_translator.api.results import Bundle, Explanation, Report, Tuning, Verification
from qdq_translator.board import deployment
from qdq_translator.core.command_options import DeployOptions, ExplicitCommand, PlanOptions, TuneOptions, VerifyOptions
from qdq_translator.core.disk import VALUES
from qdq_translator.core.errors import ModelError, UsageError, UserError
from qdq_translator.core.formats.files import locate, plain_name
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.options import TranslateCommand, TranslateOptions, check_values, choices_of
from qdq_translator.core.parsing import PARTS, did_you_mean, spread
from qdq_translator.core.progress import Progress, silent
from qdq_translator.lab import laboratory, verification
from qdq_translator.lab.simulate.evaluation import evaluation
from qdq_translator.translation.explicit import Explicit
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.translator import Translation

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from qdq_translator.api import keywords

Place = Union[str, "os.PathLike[str]"]
Model = Union[Place, bytes, onnx.ModelProto]
"""An ONNX model: a path, the bytes of a file, or a ModelProto."""
Data = Union[Place, np.ndarray, Mapping[str, Any], Iterable[Any]]
"""Samples: a path as `--inputs` accepts it; an array (one input; first axis = samples); input name -> array; or an
iterable of batches, each an array, a mapping or a tuple (inputs, labels), such as a PyTorch DataLoader."""
Metric = Union[str, Callable[..., Any]]
"""`file.py:name`, or a callable `(outputs, labels) -> float`; higher is better."""

_LOG = logging.getLogger("qdq_translator")
_LOG.addHandler(logging.NullHandler())
_FIELDS = [field.name for field in dataclasses.fields(TranslateOptions)]
_WORK = ["workers", "scheduler", "provider"]
_TERMINAL = "json verbose all example html save fit save_layers fail_over_ms "
"""Options for the output of a command on the terminal and in files."""


def _names(kind: Type[Any], without: str) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.name not in (_TERMINAL + without).split()]


OPTIONS: Mapping[str, tuple[Type[Any], list[str]]] = {
    "plan": (PlanOptions, _names(PlanOptions, "model")),
    "translate": (TranslateCommand, _FIELDS),
    "calibrate": (TranslateCommand, [name for name in _FIELDS if name != "calibrate"] + _WORK),
    "explicit": (ExplicitCommand, _names(ExplicitCommand, "model output_dir calibrate consumer")),
    "verify": (VerifyOptions, _names(VerifyOptions, "model translation data labels metric")),
    "tune": (TuneOptions, _names(TuneOptions, "model data labels metric calibrate")),
    "deploy": (DeployOptions, _names(DeployOptions, "model board data labels metric")),
}
"""Function -> the options of its command, and the names of those that are keyword arguments."""


_Call = TypeVar("_Call", bound=Callable[..., Any])


def _in_python(function: _Call) -> _Call:
    """`function`, whose errors speak of arguments and functions instead of flags and commands."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except UserError as error:
            error.what, error.hint = map(_as_arguments, (error.what, error.hint))
            error.args = (f"{error.what} {error.hint}".strip(),)
            raise

    called.__doc__ = f"{function.__doc__}{_options_text(function.__name__)}"
    return called  # type: ignore[return-value]


def _options_text(function: str) -> str:
    """The keyword arguments of a function for its help: type, default and meaning."""
    kind, names = OPTIONS.get(function, (TranslateOptions, []))
    fields = {field.name: field for field in dataclasses.fields(kind)}
    lines = []
    for field in (fields[name] for name in names):
        default = field.default if field.default is not dataclasses.MISSING else []
        shown = repr(list(choices_of(field))) if choices_of(field) else str(field.type).replace("typing.", "")
        shown = getattr(field.type, "__name__", shown) if field.type in (bool, int, float, str) else shown
        text = _as_arguments(str(field.metadata["help"]).replace("%%", "%"))
        text = text.replace(f" (default: {default})", "")
        entry = f"{field.name}: {shown} = {default!r}: {text}"
        lines.append(textwrap.fill(entry, 110, initial_indent=" " * 8, subsequent_indent=" " * 12))
    return "\n".join(["\n    Keyword arguments:", *lines, "    "]) if lines else ""


def _as_arguments(text: str) -> str:
    """`--board NAME` -> `board`, DATA -> data; a command -> the function of that name."""
    text = re.sub(r"'qdq-translator (\w+)[^']*'", r"qdq_translator.\1()", text)
    text = re.sub(r"\b(DATA|MODEL)\b", lambda found: found[0].lower(), text)
    return re.sub(r"(?<![\w-])--([A-Za-z]\w*)", r"\1", text)


@_in_python
def plan(model: Model, **options: Unpack[keywords.Plan]) -> Translation:
    """Plan the device of each layer of a float or Q/DQ model on a DLA platform, as if every tensor had a scale. Writes
    nothing.

    Raises UserError for an unreadable model, UsageError (a ValueError) for an invalid option.
    """
    return _said(requests.planned(_asked("plan", options, {}), network_of(model)))


@_in_python
def translate(
    model: Model,
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    *,
    data: Optional[Data] = None,
    progress: Optional[Progress] = None,
    assume_scales: bool = False,
    **changes: Unpack[keywords.Translate],
) -> Translation:
    """Remove Q/DQ from `model` and collect one scale per tensor. Writes nothing before `save`.

    Without `options`: the best result that costs no accuracy by the rules, on the DLA of `board` if that is faster;
    as_is=True adds nothing. data: gives scales to tensors that have none, see `calibrate`. options: changed by the
    keyword arguments. name: of the files (default: the file's stem, else the graph's name). progress: called with
    (step, done, total). assume_scales: deprecated, see `plan`. Raises UserError with a remedy; UsageError (a
    ValueError) for a wrong option.
    """
    if assume_scales:
        text = "translate(assume_scales=True) is deprecated since 0.3: use plan()."
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    if data is not None:
        return calibrate(model, data, options, name, progress=progress, **changes)  # type: ignore[misc]
    asked = _asked("translate", changes, {}, options)
    return _said(laboratory.translate(network_of(model), asked, name, progress or silent, assume_scales=assume_scales))


@_in_python
def calibrate(
    model: Model,
    data: Data,
    options: Optional[TranslateOptions] = None,
    name: Optional[str] = None,
    *,
    progress: Optional[Progress] = None,
    **changes: Unpack[keywords.Calibrate],
) -> Translation:
    """`translate` with scales from the ranges in `data` for every tensor that has none (rule K1); `model` may be a
    float one.

    data: see `Data`. Needs ONNX Runtime. Raises UserError and UsageError as `translate`.
    """
    before = {} if options is None else {name: getattr(options, name) for name in options.typed}
    as_is = {"as_is": True} if options is not None and options.preset is None else {}
    given: Mapping[str, Any] = {**as_is, **before, **changes}
    with tempfile.TemporaryDirectory() as scratch:
        asked = _asked("calibrate", given, {"calibrate": data_path(data, model, Path(scratch))})
        with evaluation(asked.workers, asked.scheduler, asked.provider) as where:
            told: dict[str, Any] = {"progress": progress or silent, "where": where}
            made = laboratory.translate(network_of(model), asked, name, **told)
        return _said(made)


@_in_python
def explicit(
    model: Model,
    *,
    calibrate: Optional[Data] = None,
    progress: Optional[Progress] = None,
    **options: Unpack[keywords.Explicit],
) -> Explicit:
    """A strongly typed Q/DQ network for TensorRT 11: of a Q/DQ model, or of a float one with data or a calibration
    cache.

    calibrate: see `Data`. Raises UserError for a network that cannot be written, UsageError for a wrong option.
    """
    with tempfile.TemporaryDirectory() as scratch:
        own = _samples("calibrate", calibrate, model, None, Path(scratch))
        asked = _asked("explicit", options, own)
        return requests.explicit_of(asked, progress or silent, network_of(model))


@_in_python
def verify(
    model: Model,
    translation: Union[Translation, Place],
    *,
    data: Optional[Data] = None,
    labels: Any = None,
    metric: Optional[Metric] = None,
    progress: Optional[Progress] = None,
    **options: Unpack[keywords.Verify],
) -> Verification:
    """Runs `model` and the simulated engine of `translation` side by side in ONNX Runtime.

    translation: a `Translation`, or the folder of one. data: samples (default: random ones). labels: one row per
    sample, or a path. metric: see `Metric`. A missed threshold raises no exception: see `Verification.ok`. Raises
    UserError and UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if isinstance(translation, Translation):
            translation = translation.save(folder / "translation").model
        own = {**_samples("data", data, model, labels, folder), **_metric(metric)}
        own.update(model=model_path(model, folder), translation=os.fspath(translation))
        asked = _asked("verify", options, own)
        requests.check_verify(asked)
        with evaluation(asked.workers, asked.scheduler, asked.provider) as where:
            return Verification(verification.verify(asked, progress or silent, where))


@_in_python
def tune(
    model: Model,
    data: Data,
    *,
    labels: Any = None,
    metric: Optional[Metric] = None,
    calibrate: Optional[Data] = None,
    progress: Optional[Progress] = None,
    **options: Unpack[keywords.Tune],
) -> Tuning:
    """The translation of least estimated time whose metric falls by at most `max_drop`, or the best within `budget_ms`.

    labels: one row per sample, or a path. metric: see `Metric` (default: top1). calibrate: see `Data`. Writes the
    translation, a journal and the results to `output_dir`; an interrupted search continues from there. Raises UserError
    and UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        own = {**_samples("data", data, model, labels, folder), **_metric(metric), "model": model_path(model, folder)}
        own.update(_samples("calibrate", calibrate, model, None, folder))
        asked = _asked("tune", options, own)
        outcome = requests.tuned(asked, progress or silent)
        return Tuning(plain(outcome.results), outcome.translation, outcome.results.goal.holds)


@_in_python
def deploy(
    model: Model,
    data: Optional[Data] = None,
    *,
    board: str,
    labels: Any = None,
    metric: Optional[Metric] = None,
    progress: Optional[Progress] = None,
    **options: Unpack[keywords.Deploy],
) -> Bundle:
    """One folder with everything that `board` needs to run `model`: translation, scripts, configurations, a page.

    data: to calibrate and to verify on. progress: called with (step, 0, 0). When called again, only changed steps run,
    if model and data are paths. Raises UserError and UsageError.
    """
    told = progress or silent
    with tempfile.TemporaryDirectory() as scratch:
        own = {**_samples("data", data, model, labels, Path(scratch)), **_metric(metric)}
        own.update(model=model_path(model, Path(scratch)), board=board)
        asked = _asked("deploy", options, own)
        made = deployment.deploy(asked, lambda text: told(text, 0, 0))
    return Bundle(plain(requests.summary_of(made)), made.folder, made.report)


@_in_python
def report(
    translation: Union[Translation, Place],
    *,
    html: Optional[Place] = None,
    against: Union[Translation, Place, None] = None,
) -> Report:
    """The report of a `Translation` or of a folder. html: also writes the page there, of the comparison with `against`
    if given.

    Raises UserError if the folder contains no translation or the page cannot be written.
    """
    found = Report(_report_of(translation))
    if html is not None:
        from qdq_translator.translation.report.html import write_page

        write_page(found._rows, Path(html), None if against is None else Report(_report_of(against))._rows)
    return found


@_in_python
def explain(name: Place) -> Explanation:
    """A rule ('S7'), a limit of the DLA ('H1'), a platform ('jetpack-6.2'), a diagnostic ('W-U1'), a message of a log,
    or a log file.

    Raises UserError for a name that is none of these.
    """
    title, paragraphs = explaining.explanation(os.fspath(name))
    return Explanation({"title": title, "paragraphs": list(paragraphs)})


def _asked(
    function: str, given: Mapping[str, Any], own: Mapping[str, Any], base: Optional[TranslateOptions] = None
) -> Any:
    """The options of the command of `function`, over those of `base`. own: the options that are parameters with names
    of their own.

    Raises UsageError for an unknown option, and for a value that an option cannot have.
    """
    kind, known = OPTIONS[function]
    values = {**given, **own}
    if isinstance(values.get("shapes"), Mapping):
        values["shapes"] = [f"{name}:{'x'.join(map(str, sizes))}" for name, sizes in values["shapes"].items()]
    for part in PARTS.keys() & values.keys() & {*known, "infer"}:
        values.update(spread(kind, part, values.pop(part)))
    for name in values:
        if name not in (*known, *own):
            raise UsageError(f"There is no option '{name}'.", did_you_mean(name, [*known, *own]))
    made = kind(**values) if base is None else base.changed(**values)
    check_values(made)
    return made


def _metric(metric: Optional[Metric]) -> dict[str, str]:
    return {} if metric is None else {"metric": NamedMetric(metric)}


def _samples(key: str, data: Optional[Data], model: Model, labels: Any, folder: Path) -> dict[str, str]:
    """The options `key` and `labels`; those that are values are written below `folder`."""
    if isinstance(labels, (str, os.PathLike)):
        return {"labels": os.fspath(labels), **_samples(key, data, model, None, folder)}
    return {} if data is None else {key: data_path(data, model, folder, labels)}


def _said(made: Translation) -> Translation:
    """`made`, once its warnings are logged."""
    for warning in made.diagnostics.warnings:
        _LOG.warning("%s", warning)
    return made


def _report_of(translation: Union[Translation, Place]) -> dict[str, Any]:
    return (
        translation.report if isinstance(translation, Translation) else locate(os.fspath(translation), "").read_report()
    )


def network_of(model: Model) -> Union[str, onnx.ModelProto]:
    """A path or a ModelProto. Raises UsageError for any other type, ModelError for bytes that are no model."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if not isinstance(model, bytes):
        raise UsageError(
            f"The model is of the type {type(model).__name__}.", "Give a path, an onnx.ModelProto or bytes."
        )
    try:
        return onnx.load_from_string(model)
    except Exception as error:  # protobuf's DecodeError, which has moved between its versions
        raise ModelError(f"The bytes hold no ONNX model: {error}.", "Give those of an .onnx file.") from error


def model_path(model: Model, folder: Path) -> str:
    """Path of `model`; one that is not a file yet is written below `folder`, with external data if it is over 2 GiB."""
    network = network_of(model)
    if isinstance(network, str):
        return network
    path = folder / f"{plain_name(network.graph.name)}.onnx"
    onnx.save(network, str(path), save_as_external_data=network.ByteSize() >= 2**31)
    return str(path)


def data_path(data: Data, model: Model, folder: Path, labels: Any = None) -> str:
    """Path of the samples; values are written below `folder` as one .npz. Raises UserError if they cannot be converted.

    labels: one row per sample, stored as the array `labels`.
    """
    if isinstance(data, (str, os.PathLike)):
        if labels is not None:
            raise UsageError("Labels are for data in memory.", "Store them in the .npz as the array 'labels'.")
        return os.fspath(data)
    only = functools.lru_cache(maxsize=None)(lambda: _only_input(model))
    if isinstance(data, (np.ndarray, Mapping)) or hasattr(data, "detach"):
        arrays = _named(data, only)
    elif isinstance(data, Iterable):
        arrays = _batches(data, only)
    else:
        raise UsageError(f"The data are of the type {type(data).__name__}.", "Give a path, arrays, or batches of them.")
    if labels is not None:
        arrays["labels"] = _array(labels)
    if not arrays:
        raise UserError("The data contain no samples.", "Give at least one batch.")
    values = folder / VALUES
    values.mkdir(exist_ok=True)
    save: Any = np.savez  # its stub wants a bool for every name
    save(values / "new.npz", **arrays)
    path = values / f"{hashlib.sha256((values / 'new.npz').read_bytes()).hexdigest()}.npz"
    os.replace(values / "new.npz", path)
    return str(path)


def _batches(batches: Iterable[Any], only: Callable[[], str]) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        values, labels = batch if isinstance(batch, (tuple, list)) and len(batch) == 2 else (batch, None)
        named = _named(values, only)
        if labels is not None:
            named["labels"] = _array(labels)
        for name, array in named.items():
            found.setdefault(name, []).append(np.atleast_1d(array))
    lengths = {name: sum(map(len, parts)) for name, parts in found.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"The batches have different numbers of samples: {lengths}.", "Give every name in every batch.")
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _named(values: Any, only: Callable[[], str]) -> dict[str, np.ndarray]:
    """Input name -> array; a bare array is for the `only` input of the model."""
    if isinstance(values, Mapping):
        return {str(name): _array(value) for name, value in values.items()}
    return {only(): _array(values)}


def _only_input(model: Model) -> str:
    network = network_of(model)
    graph = load_model(network, weights=False)[0].graph if isinstance(network, str) else network.graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    if len(names) != 1:
        raise UserError(f"The model has the inputs {', '.join(names)}.", "Give a mapping from input names to arrays.")
    return names[0]


def _array(value: Any) -> np.ndarray:
    """An array of an array, a list, or a tensor of PyTorch (any device)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


class NamedMetric(str):
    """A metric as the options hold it: `file.py:name`, or a callable under its name."""

    function: Optional[Callable[..., Any]]

    def __new__(cls, metric: Metric) -> NamedMetric:
        is_text = isinstance(metric, str)
        made = super().__new__(cls, metric if is_text else getattr(metric, "__qualname__", type(metric).__name__))
        made.function = None if is_text else metric  # type: ignore[assignment]
        return made

    def __reduce__(self) -> Tuple[Any, ...]:
        return NamedMetric, (self.function or str(self),)
