"""Models, data and metrics as Python values, for workflows that read files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Tuple, Union

import numpy as np
import onnx

from qdq_translator.core.errors import UserError

Model = Union[str, "os.PathLike[str]", bytes, onnx.ModelProto]
"""An ONNX model: a path, the bytes of a file, or a ModelProto."""
Data = Union[str, "os.PathLike[str]", np.ndarray, Mapping[str, Any], Iterable[Any]]
"""Samples: a path as `--inputs` accepts it; an array (one input; first axis = samples); input name -> array; or an iterable of
batches, each an array, a mapping or a tuple (inputs, labels), such as a PyTorch DataLoader."""
Metric = Union[str, Callable[..., Any]]
"""`file.py:name`, or a callable `(outputs, labels) -> float`; higher is better."""


def model_path(model: Model, folder: Path) -> str:
    """Path of `model`; one that is not a file yet is written below `folder`, with external data if it is over 2 GiB."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, bytes):
        path = folder / "model.onnx"
        path.write_bytes(model)
        return str(path)
    path = folder / f"{model.graph.name if model.graph.name.isidentifier() else 'model'}.onnx"
    large = model.ByteSize() >= 2**31
    onnx.save(model, str(path), save_as_external_data=large)
    return str(path)


def data_path(data: Data, model: str, folder: Path, labels: Any = None) -> str:
    """Path of the samples; values are written below `folder` as one .npz. Raises UserError if nothing can be made of them.

    labels: one row a sample, stored as the array `labels`.
    """
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    if isinstance(data, (np.ndarray, Mapping)) or hasattr(data, "detach"):
        arrays = _named(data, model)
    else:
        arrays = _batches(data, model)
    if labels is not None:
        arrays["labels"] = _array(labels)
    if not arrays:
        raise UserError("The data hold no samples.", "Give at least one batch.")
    path = folder / "data.npz"
    save: Any = np.savez  # its stub wants a bool for every name
    save(path, **arrays)
    return str(path)


def _batches(batches: Iterable[Any], model: str) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        values, labels = batch if isinstance(batch, (tuple, list)) and len(batch) == 2 else (batch, None)
        named = _named(values, model)
        if labels is not None:
            named["labels"] = _array(labels)
        for name, array in named.items():
            found.setdefault(name, []).append(np.atleast_1d(array))
    lengths = {name: sum(map(len, parts)) for name, parts in found.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"The batches hold different numbers of samples: {lengths}.", "Give every name in every batch.")
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _named(values: Any, model: str) -> dict[str, np.ndarray]:
    """Input name -> array; a bare array is the only input of the model."""
    if isinstance(values, Mapping):
        return {str(name): _array(value) for name, value in values.items()}
    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    if len(names) != 1:
        raise UserError(f"The model has the inputs {', '.join(names)}.", "Give a mapping from input names to arrays.")
    return {names[0]: _array(values)}


def _array(value: Any) -> np.ndarray:
    """An array of an array, a list, or a tensor of PyTorch (any device)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


class NamedMetric(str):
    """A callable in the place of `file.py:name`; as text it is the callable's name."""

    function: Callable[..., Any]

    def __new__(cls, function: Callable[..., Any]) -> NamedMetric:
        made = super().__new__(cls, getattr(function, "__qualname__", type(function).__name__))
        made.function = function
        return made

    def __reduce__(self) -> Tuple[Any, ...]:
        return NamedMetric, (self.function,)


def metric_of(metric: Metric) -> str:
    """`metric` as the options hold it."""
    return metric if isinstance(metric, str) else NamedMetric(metric)
