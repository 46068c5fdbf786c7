"""Models from disk and back: sizes over 2 GiB, external data."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, external_data_helper

from qdq_translator.core.disk import open_file, size_of
from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir.graph import Graph, every_body, every_node
from qdq_translator.translation.ir.validate import stored_bytes
from qdq_translator.translation.ir.weights import Initializer, Weight, stored_weight
from qdq_translator.translation.ir.wire import LARGE, cut_weights, tag_of, varint

PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that one protobuf file may hold, less a reserve for bytes that are not counted."""
_ALIGNMENT = 4096
_TFLITE = b"TFL3"
"""File identifier of TensorFlow Lite's FlatBuffers, from their fifth byte on."""
_SMALL = 1024
"""Initializers below this many bytes stay inside the model file."""
_SHARED = 4
"""Most reads of a file of external data: a few tensors may share their data, a thousand are a trap.
"""


@dataclass(frozen=True)
class Source:
    """Origin of a model: file name, SHA-256 of the .onnx file ('' if there is none), whether its weights were in other
    files."""

    file: str
    sha256: str
    external_data: bool = False


def load_model(path: Union[str, Path], weights: bool = True) -> tuple[onnx.ModelProto, Source]:
    """Reads an ONNX file; without `weights` external ones are not loaded.

    Raises ModelError for other files and for external data outside the model's folder.
    """
    path = Path(path)
    data = _read(path)
    model, digest = _parse(path, bytes(data)), hashlib.sha256(data).hexdigest()
    del data
    files, external = _DataFiles(path.parent), _external(model)
    for tensor in external if weights else ():
        tensor.raw_data = bytes(files.read(tensor))
    return model, Source(path.name, digest, bool(external))


class Opened(NamedTuple):
    """A model as read. weights: large initializers by name, in whose place the model has empty tensors."""

    model: onnx.ModelProto
    weights: dict[str, Weight]
    source: Source

    def graph(self) -> Graph:
        """The graph, with the large weights in their places."""
        graph = Graph.from_model(self.model)
        graph.initializers.update(self.weights)
        return graph


def open_model(path: Union[str, Path]) -> Opened:
    """The model in a file, with large weights left in it. Raises UserError if it cannot be read."""
    path = Path(path)
    data = _read(path)
    rest, values = cut_weights(data)
    model = _parse(path, rest)
    # a tensor in another file has an entry of this name
    source = Source(path.name, hashlib.sha256(data).hexdigest(), b"location" in rest and bool(_external(model)))
    weights: dict[str, Weight] = {}

    def take_in(tensor: TensorProto, data: memoryview) -> None:
        weight = stored_weight(tensor, data) if len(data) >= LARGE else None
        if weight is None:  # small, or invalid, which `validate` reports
            tensor.raw_data = bytes(data)
        else:
            weights[tensor.name] = weight

    for place, stored in values.items():
        take_in(model.graph.initializer[place], stored)
    if source.external_data:
        files = _DataFiles(path.parent)
        for tensor in model.graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                take_in(tensor, files.read(tensor))
        for tensor in _external(model):
            tensor.raw_data = bytes(files.read(tensor))
    return Opened(model, weights, source)


def open_graph(path: Path) -> tuple[Graph, Source]:
    """The graph of the model in a file. Raises UserError if it cannot be read."""
    opened = open_model(path)
    return opened.graph(), opened.source


def _read(path: Path) -> memoryview:
    """The whole file, in an array: NumPy asks the system for large pages, which come several times faster."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder.", "Name the .onnx file inside it.")
    try:
        with open_file(path) as file:
            data = np.empty(size_of(file), np.uint8)
            if file.readinto(data.data) < data.size:
                raise ModelError(f"{path} was cut while it was read.", "Translate it again.")
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.") from error
    if path.suffix.lower() == ".tflite" or bytes(data[4:8]) == _TFLITE:
        raise ModelError(
            f"{path} is a TensorFlow Lite model, not an ONNX model.",
            f"Convert it first: pip install tf2onnx; python -m tf2onnx.convert --opset 17 --tflite {path} --output "
            f"{path.stem}.onnx.",
        )
    if not data.size:
        raise ModelError(f"{path} is empty.", "Export the model again.")
    return data.data


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{path} is not an ONNX model, or is cut off.", "Export or copy it again.") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{path} is not an ONNX model: it has no graph.", "Export the model again.")
    if not model.opset_import:
        raise ModelError(f"{path} names no opset.", "Export the model again.")
    check_text(model)
    return model


def with_own_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Weight]]:
    """The model with empty tensors instead of large initializers, and those by name. `model` must not be used
    afterwards.

    A protobuf message is freed as a whole: separated, a replaced weight is freed at once.
    """
    weights: dict[str, Weight] = {}
    for tensor in model.graph.initializer:
        values = tensor.raw_data
        own = stored_weight(tensor, memoryview(values)) if len(values) >= LARGE else None
        if own is not None:
            weights[tensor.name] = own
            tensor.ClearField("raw_data")
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    return rest, weights


def check_text(model: onnx.ModelProto) -> None:
    """Raises ModelError for a name that is not UTF-8: protobuf reads such a file, and gives bytes for the name."""
    text = next((text for text in _texts(model) if isinstance(text, bytes)), None)
    if text is not None:
        raise ModelError(f"The name {text[:60]!r} in the model is not UTF-8 text.", "Export the model again.")


def _texts(model: onnx.ModelProto) -> list[Union[str, bytes]]:
    found: list[Union[str, bytes]] = []

    def of_metadata(owner: Any) -> None:
        found.extend(text for entry in owner.metadata_props for text in (entry.key, entry.value))

    of_metadata(model)
    found.extend(entry.domain for entry in model.opset_import)
    for function in model.functions:
        found.extend((function.name, function.domain, *function.input, *function.output))
    inner = [*every_body(_nodes(model))]
    for node in (*_nodes(model), *(node for body in inner for node in body.node)):
        found.extend((node.name, node.op_type, node.domain, node.doc_string))
        found.extend(node.input)
        found.extend(node.output)
        of_metadata(node)
        found.extend([attribute.name for attribute in node.attribute])
    for graph in (model.graph, *inner):
        found.extend((graph.name, graph.doc_string))
        for value in (*graph.input, *graph.output, *graph.value_info):
            found.extend((value.name, value.doc_string))
            found.extend(dim.dim_param for dim in value.type.tensor_type.shape.dim)
            of_metadata(value)
        found.extend([tensor.name for tensor in graph.initializer])
    return found


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the graph and of the local functions, without those of bodies."""
    return [*model.graph.node, *(node for function in model.functions for node in function.node)]


def _external(model: onnx.ModelProto) -> list[TensorProto]:
    """Every tensor whose data are in another file."""
    nodes = _nodes(model)
    tensors = [tensor for graph in (model.graph, *every_body(nodes)) for tensor in graph.initializer]
    tensors += [a.t for node in every_node(nodes) for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
    return [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]


def _entry(tensor: TensorProto) -> tuple[str, int, Optional[int]]:
    """File, first byte and number of bytes (None if not given) of a tensor's external data. Raises ModelError."""
    with contextlib.suppress(TypeError, ValueError):
        info = external_data_helper.ExternalDataInfo(tensor)
        offset, length = int(info.offset or 0), None if info.length is None else int(info.length)
        if offset >= 0 and (length or 0) >= 0 and isinstance(info.location, str) and "\0" not in info.location:
            return info.location, offset, length
    raise ModelError(f"Tensor '{tensor.name}' has no location of its external data.", "Save or export the model again.")


class _DataFiles:
    """The files in `folder` that contain a model's external data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given: dict[Path, int] = {}
        """Bytes that each file has given so far."""

    def read(self, tensor: TensorProto) -> memoryview:
        """The data of a tensor, which no longer points to them. Raises ModelError, naming the tensor."""
        who = f"tensor '{tensor.name}'"
        location, offset, length = _entry(tensor)
        place = (self._folder / location).resolve()
        if Path(location).is_absolute() or self._folder.resolve() not in place.parents:
            raise ModelError(
                f"External data of {who} points to '{location}', outside the model's folder.",
                "Move the data file to the model's folder and save the model again.",
            )
        needed = stored_bytes(tensor, f"Tensor '{tensor.name}'")
        if needed is None:
            needed = length or 0
        elif length is not None and length != needed:
            raise ModelError(
                f"External data of {who} have {length} bytes instead of the {needed} of its type and shape.",
                "Export the model again.",
            )
        try:
            given = self._given[place] = self._given.get(place, 0) + needed
            with open_file(place) as file:
                if given > _SHARED * size_of(file):
                    raise ModelError(
                        f"External data of {who} overlap those of many other tensors.", "Export the model again."
                    )
                file.seek(offset)
                data = np.empty(min(needed, size_of(file)), np.uint8).data
                if len(data) < needed or file.readinto(data) < needed:
                    raise ModelError(f"External data '{location}' ends inside {who}.", "Copy it again.")
        except OSError as error:
            raise ModelError(
                f"External data '{location}' of {who} cannot be read: {error.strerror}.",
                "Copy the data file to the model's folder again.",
            ) from error
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
        return data


def write_graph(
    graph: Graph,
    path: Path,
    data_name: str,
    external: bool,
    metadata: Optional[Mapping[str, str]] = None,
    seal: Optional[Callable[[], Mapping[str, str]]] = None,
) -> None:
    """Write a graph to `path`; with `external`, or if it exceeds protobuf's 2 GiB, the weights to `data_name` next to
    it. `metadata`: of the model, in addition to the graph's own; it precedes the graph. `seal`: returns it again, with
    values of the same lengths, after all else is written and every weight has its checksum. Deterministic: tensors in
    graph order, external ones each at a multiple of 4096 bytes.

    Weights are written one at a time, so that memory never contains a second copy of them.
    """
    tensors = list(graph.initializers.values())
    if external or sum(tensor.ByteSize() for tensor in tensors) >= PROTOBUF_LIMIT:
        tensors = _write_data(tensors, path.parent / data_name, data_name)
    model = graph.to_model(initializers=())
    body = model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    own = {entry.key: entry.value for entry in model.metadata_props}

    def front(metadata: Mapping[str, str]) -> bytes:
        del model.metadata_props[:]
        for key, value in {**own, **metadata}.items():
            model.metadata_props.add(key=key, value=value)
        return model.SerializeToString(deterministic=True)

    heads, length = _heads(tensors)
    total = len(body) + length
    with open(path, "wb") as file:
        file.write(front(metadata or {}))
        file.write(_GRAPH_TAG + varint(total) + body)
        for tensor, head in zip(tensors, heads):
            file.write(head)
            if isinstance(tensor, Weight):
                file.write(tensor.raw())
    if seal is not None:
        with open(path, "r+b") as written:
            written.write(front(seal()))


def _heads(tensors: Iterable[Initializer]) -> tuple[list[bytes], int]:
    """Tensors as fields of a graph, weights without their values, which follow; and the length with these."""
    heads, length = [], 0
    for tensor in tensors:
        if isinstance(tensor, Weight):
            size = tensor.ByteSize()
            head = tensor.header().SerializeToString(deterministic=True) + _RAW_DATA_TAG + varint(size)
        else:
            head, size = tensor.SerializeToString(deterministic=True), 0
        heads.append(_INITIALIZER_TAG + varint(len(head) + size) + head)
        length += len(heads[-1]) + size
    return heads, length


_GRAPH_TAG = tag_of(onnx.ModelProto, "graph")
_INITIALIZER_TAG = tag_of(onnx.GraphProto, "initializer")
_RAW_DATA_TAG = tag_of(onnx.TensorProto, "raw_data")


def _write_data(tensors: list[Initializer], path: Path, location: str) -> list[Initializer]:
    """Writes the bytes of all but small tensors to `path`; returns tensors that point there."""
    pointers: list[Initializer] = []
    with open(path, "wb") as file:
        for tensor in tensors:
            length = tensor.ByteSize() if isinstance(tensor, Weight) else len(tensor.raw_data)
            if length < _SMALL:
                pointers.append(tensor)
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT))
            pointer = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            pointer.data_location = TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", file.tell()), ("length", length)):
                pointer.external_data.add(key=key, value=str(value))
            file.write(tensor.raw() if isinstance(tensor, Weight) else tensor.raw_data)
            pointers.append(pointer)
    return pointers
