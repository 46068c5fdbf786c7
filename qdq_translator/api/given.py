"""Models, data, metrics and options as Python values, for workflows that read files and options of the command line."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np
import onnx

from qdq_translator.core.disk import VALUES
from qdq_translator.core.errors import ModelError, UsageError, UserError
from qdq_translator.core.formats.files import plain_name
from qdq_translator.core.options import check_values
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.ir.io import load_model

Place = Union[str, "os.PathLike[str]"]
Model = Union[Place, bytes, onnx.ModelProto]
"""An ONNX model: a path, the bytes of a file, or a ModelProto."""
Data = Union[Place, np.ndarray, Mapping[str, Any], Iterable[Any]]
"""Samples: a path as `--inputs` accepts it; an array (one input; first axis = samples); input name -> array; or an iterable of
batches, each an array, a mapping or a tuple (inputs, labels), such as a PyTorch DataLoader."""
Metric = Union[str, Callable[..., Any]]
"""`file.py:name`, or a callable `(outputs, labels) -> float`; higher is better."""
_Options = TypeVar("_Options")


def options_of(kind: Type[_Options], values: Mapping[str, Any], known: Sequence[str], base: Any = None) -> _Options:
    """`values` over `base` as an instance of `kind`. Raises UsageError for a name that is not among `known`, and for a value that
    the option cannot have."""
    for name in values:
        if name not in known:
            raise UsageError(f"There is no option '{name}'.", did_you_mean(name, known))
    made: _Options = kind(**values) if base is None else dataclasses.replace(base, **values)
    check_values(made)
    return made


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
    """Path of the samples; values are written below `folder` as one .npz. Raises UserError if nothing can be made of them.

    labels: one row a sample, stored as the array `labels`.
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
