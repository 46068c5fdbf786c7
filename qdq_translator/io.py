"""Models from disk and back: sizes over 2 GiB, external data, files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Iterator, Union

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, external_data_helper

from qdq_translator.errors import ModelError, UserError

PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that one protobuf file may hold, less a reserve for what the count does not see."""
_ALIGNMENT = 4096
_SMALL = 1024
"""Initializers below this many bytes stay inside the model file."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a model came from: file name, SHA-256 of the .onnx file, whether its weights lay in other files."""

    file: str
    sha256: str
    external_data: bool = False


def load_model(path: Union[str, Path]) -> tuple[onnx.ModelProto, Source]:
    """Reads an ONNX file with its external data.

    Raises ModelError for what is no ONNX model and for external data outside the model's folder.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelError(f"{path} is a folder.", "Name the .onnx file inside it.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.") from error
    if not data:
        raise ModelError(f"{path} is empty.", "Export the model again.")
    digest = hashlib.sha256(data).hexdigest()
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{path} is not an ONNX model, or is cut off.", "Export or copy it again.") from error
    del data
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{path} is not an ONNX model: it holds no graph.", "Export the model again.")
    if not model.opset_import:
        raise ModelError(f"{path} names no opset.", "Export the model again.")
    external = [t for t in _tensors(model.graph) if t.data_location == TensorProto.EXTERNAL]
    for tensor in external:
        _load_external(tensor, path.parent)
    return model, Source(path.name, digest, bool(external))


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _load_external(tensor: TensorProto, folder: Path) -> None:
    info = external_data_helper.ExternalDataInfo(tensor)
    place = (folder / info.location).resolve()
    if Path(info.location).is_absolute() or folder.resolve() not in place.parents:
        raise ModelError(
            f"External data of tensor '{tensor.name}' points to '{info.location}', outside the model's folder.",
            "Move the data file beside the model and save the model again.",
        )
    try:
        with open(place, "rb") as file:
            file.seek(info.offset or 0)
            data = file.read(info.length) if info.length is not None else file.read()
    except OSError as error:
        raise ModelError(
            f"External data '{info.location}' of tensor '{tensor.name}' cannot be read: {error.strerror}.",
            "Copy the data file beside the model.",
        ) from error
    if info.length is not None and len(data) < info.length:
        raise ModelError(f"External data '{info.location}' ends inside tensor '{tensor.name}'.", "Copy it again.")
    tensor.raw_data = data
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def model_bytes(model: onnx.ModelProto) -> int:
    """Bytes of weights in the model, near enough to decide on external data."""
    return sum(len(t.raw_data) if t.HasField("raw_data") else t.ByteSize() for t in model.graph.initializer)


def write_model(model: onnx.ModelProto, path: Path, data_name: str, external: bool) -> list[Path]:
    """Writes `path`, and with `external` the weights to `data_name` beside it. The model is not changed.

    Returns the files written. Deterministic: tensors in graph order, each at a multiple of 4096 bytes.
    """
    if not external and model_bytes(model) < PROTOBUF_LIMIT:
        path.write_bytes(model.SerializeToString(deterministic=True))
        return [path]
    light = onnx.ModelProto()
    kept = list(model.graph.initializer)
    with open(path.parent / data_name, "wb") as file:
        tensors = []
        for tensor in kept:
            if tensor.HasField("raw_data") and len(tensor.raw_data) >= _SMALL:
                file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
                raw = tensor.raw_data
                moved = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                moved.data_location = TensorProto.EXTERNAL
                for key, value in (("location", data_name), ("offset", file.tell()), ("length", len(raw))):
                    moved.external_data.add(key=key, value=str(value))
                file.write(raw)
                tensors.append(moved)
            else:
                tensors.append(tensor)
    for field, value in model.ListFields():
        if field.name != "graph":
            if field.label == field.LABEL_REPEATED:
                getattr(light, field.name).extend(value)
            else:
                setattr(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            if field.label == field.LABEL_REPEATED:
                getattr(light.graph, field.name).extend(value)
            else:
                setattr(light.graph, field.name, value)
    light.graph.initializer.extend(tensors)
    path.write_bytes(light.SerializeToString(deterministic=True))
    return [path, path.parent / data_name]


@contextlib.contextmanager
def appear_together(folder: Path) -> Iterator[Path]:
    """Gives a scratch folder inside `folder`; what stands in it at the end replaces its namesakes in `folder`.

    On any error nothing of it appears and what was there stays. Raises UserError where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".qdq-", dir=folder)
    except OSError as error:
        raise UserError(
            f"Output folder {folder} cannot be written: {error.strerror}.", "Choose another with --output_dir."
        ) from error
    with scratch as name:
        try:
            yield Path(name)
            written = sorted(Path(name).iterdir())
            for path in written:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            for path in written:
                os.replace(path, folder / path.name)
        except OSError as error:
            raise UserError(
                f"Writing to {folder} failed: {error.strerror or error}.",
                "Nothing was changed there; free space or choose another folder.",
            ) from error
