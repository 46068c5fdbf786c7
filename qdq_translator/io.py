"""Models from disk and back: sizes over 2 GiB, external data."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Union

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, external_data_helper

from qdq_translator.disk import read_file
from qdq_translator.errors import ModelError
from qdq_translator.graph import Graph
from qdq_translator.validate import stored_bytes

PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that one protobuf file may hold, less a reserve for what the count does not see."""
_ALIGNMENT = 4096
_SMALL = 1024
"""Initializers below this many bytes stay inside the model file, those below this many elements inside its message."""
_SHARED = 4
"""How often a file of external data may be read in all: a few tensors may share their data, a thousand would be a trap."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a model came from: file name, SHA-256 of the .onnx file, whether its weights lay in other files."""

    file: str
    sha256: str
    external_data: bool = False


def load_model(path: Union[str, Path], weights: bool = True) -> tuple[onnx.ModelProto, Source]:
    """Reads an ONNX file; without `weights` those that lie in other files stay there.

    Raises ModelError for what is no ONNX model and for external data outside the model's folder.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelError(f"{path} is a folder.", "Name the .onnx file inside it.")
    try:
        data = read_file(path)
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
    check_text(model)
    tensors = [*_tensors(model.graph), *(t for function in model.functions for t in _tensors_of(function.node))]
    external = [t for t in tensors if t.data_location == TensorProto.EXTERNAL]
    given: dict[Path, int] = {}
    for tensor in external if weights else ():
        _load_external(tensor, path.parent, given)
    return model, Source(path.name, digest, bool(external))


def with_own_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, TensorProto]]:
    """The model with empty tensors in the place of large initializers, and those by name. `model` must not be used afterwards.

    A protobuf message is freed as a whole: apart, a weight that is replaced goes at once, and not with its file.
    """
    weights: dict[str, TensorProto] = {}
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data") and math.prod(tensor.dims) >= _SMALL:
            own = weights[tensor.name] = TensorProto()
            own.CopyFrom(tensor)
            tensor.ClearField("raw_data")
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    return rest, weights


def check_text(model: onnx.ModelProto) -> None:
    """Raises ModelError for a name that is not UTF-8: protobuf reads such a file, and gives bytes for the name."""
    texts = _texts(model)
    if bytes in set(map(type, texts)):
        text = next(text for text in texts if isinstance(text, bytes))
        raise ModelError(f"The name {text[:60]!r} in the model is not UTF-8 text.", "Export the model again.")


def _texts(model: onnx.ModelProto) -> list[Union[str, bytes]]:
    found: list[Union[str, bytes]] = []

    def of_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            found.extend((node.name, node.op_type, node.domain, node.doc_string))
            found.extend(node.input)
            found.extend(node.output)
            of_metadata(node)
            for attribute in node.attribute:
                found.append(attribute.name)
                for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                    of_graph(graph)

    def of_graph(graph: onnx.GraphProto) -> None:
        found.extend((graph.name, graph.doc_string))
        for value in (*graph.input, *graph.output, *graph.value_info):
            found.extend((value.name, value.doc_string))
            found.extend(dim.dim_param for dim in value.type.tensor_type.shape.dim)
            of_metadata(value)
        found.extend([tensor.name for tensor in graph.initializer])
        of_nodes(graph.node)

    def of_metadata(owner: Any) -> None:
        for entry in getattr(owner, "metadata_props", ()):
            found.extend((entry.key, entry.value))

    of_metadata(model)
    found.extend(entry.domain for entry in model.opset_import)
    of_graph(model.graph)
    for function in model.functions:
        found.extend((function.name, function.domain, *function.input, *function.output))
        of_nodes(function.node)
    return found


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _tensors_of(graph.node)


def _tensors_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            for subgraph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                yield from _tensors(subgraph)


def _load_external(tensor: TensorProto, folder: Path, given: dict[Path, int]) -> None:
    """Moves the data of a tensor into it; `given`: bytes that each file has given so far.

    Raises ModelError, naming the tensor, where that cannot be.
    """
    who = f"tensor '{tensor.name}'"
    try:
        info = external_data_helper.ExternalDataInfo(tensor)
        offset, length = int(info.offset or 0), int(info.length or 0)
    except (TypeError, ValueError):
        offset = -1
    if offset < 0 or length < 0 or "\0" in info.location:
        raise ModelError(
            f"Tensor '{tensor.name}' does not say where its external data lie.", "Save or export the model again."
        )
    place = (folder / info.location).resolve()
    if Path(info.location).is_absolute() or folder.resolve() not in place.parents:
        raise ModelError(
            f"External data of {who} points to '{info.location}', outside the model's folder.",
            "Move the data file beside the model and save the model again.",
        )
    needed = stored_bytes(tensor)
    if needed is None:
        needed = length
    elif info.length is not None and length != needed:
        raise ModelError(
            f"External data of {who} have {length} bytes instead of the {needed} of its type and shape.",
            "Export the model again.",
        )
    try:
        given[place] = given.get(place, 0) + needed
        if given[place] > _SHARED * place.stat().st_size:
            raise ModelError(f"External data of {who} lie where those of many others do.", "Export the model again.")
        tensor.raw_data = read_file(place, offset, needed)
    except EOFError as error:
        raise ModelError(f"External data '{info.location}' ends inside {who}.", "Copy it again.") from error
    except OSError as error:
        raise ModelError(
            f"External data '{info.location}' of {who} cannot be read: {error.strerror}.",
            "Copy the data file beside the model again.",
        ) from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def write_graph(
    graph: Graph, path: Path, data_name: str, external: bool, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Writes a graph to `path`; with `external`, or where protobuf's 2 GiB do not hold it, the weights to `data_name`
    beside it. `metadata`: of the model, besides the graph's own; it stands in front of the graph. Deterministic: tensors in graph order, external ones each at a multiple of 4096 bytes.

    Weights are written one after the other, so that no second copy of them is ever in memory.
    """
    tensors = list(graph.initializers.values())
    sizes = [tensor.ByteSize() for tensor in tensors]
    if external or sum(sizes) >= PROTOBUF_LIMIT:
        tensors = _write_data(tensors, path.parent / data_name, data_name)
        sizes = [tensor.ByteSize() for tensor in tensors]
    model = graph.to_model(initializers=())
    body = model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    entries = {**{entry.key: entry.value for entry in model.metadata_props}, **(metadata or {})}
    del model.metadata_props[:]
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)
    total = len(body) + sum(len(_INITIALIZER_TAG) + len(_varint(size)) + size for size in sizes)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
        file.write(_GRAPH_TAG + _varint(total) + body)
        for tensor, size in zip(tensors, sizes):
            file.write(_INITIALIZER_TAG + _varint(size))
            file.write(tensor.SerializeToString(deterministic=True))


def write_model(model: onnx.ModelProto, path: Path, data_name: str, external: bool) -> None:
    """The same for a ModelProto, which must not be used afterwards."""
    write_graph(Graph.from_model(model), path, data_name, external)


def _field_tag(message: type, field: str) -> bytes:
    """The wire tag of a length-delimited protobuf field."""
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)  # type: ignore[attr-defined]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_GRAPH_TAG = _field_tag(onnx.ModelProto, "graph")
_INITIALIZER_TAG = _field_tag(onnx.GraphProto, "initializer")


def _write_data(tensors: list[TensorProto], path: Path, location: str) -> list[TensorProto]:
    """Writes the bytes of all but small tensors to `path`; returns tensors that point there."""
    pointers = []
    with open(path, "wb") as file:
        for tensor in tensors:
            if not tensor.HasField("raw_data") or len(tensor.raw_data) < _SMALL:
                pointers.append(tensor)
                continue
            file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
            pointer = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            pointer.data_location = TensorProto.EXTERNAL
            length = math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            for key, value in (("location", location), ("offset", file.tell()), ("length", length)):
                pointer.external_data.add(key=key, value=str(value))
            file.write(tensor.raw_data)
            pointers.append(pointer)
    return pointers
