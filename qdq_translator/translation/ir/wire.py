"""An ONNX file as protobuf's bytes: large initializers stay in the file, the rest becomes a message.

Parsing a file copies every byte of it, and parsed data is freed as a whole. A weight needs neither: the file contains
its raw data. So one pass over the graph's fields cuts them out, and protobuf parses the rest, which decides whether the
file is a model: unrecognized bytes are all passed to it.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

import onnx

LARGE = 4096
"""Bytes of raw data from which on a tensor is cut out."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_OTHER_VALUES = frozenset(
    field.number
    for field in onnx.TensorProto.DESCRIPTOR.fields
    if field.name not in ("dims", "data_type", "name", "doc_string", "raw_data", "metadata_props")
)
"""A tensor with one of these fields has its values in another form or another file too."""

Span = Tuple[int, int]
"""First byte and the byte behind the last."""


class _NotUnderstood(Exception):
    """Damaged, or written in a way that no exporter of ONNX uses."""


class Cut(NamedTuple):
    """A model in two parts. rest: its bytes without the raw data of its large initializers. weights: those data (parts
    of the input, not copied) by the index of the initializer in the graph."""

    rest: bytes
    weights: dict[int, memoryview]


def cut_weights(data: memoryview) -> Cut:
    """Bytes that are not understood come back whole, without weights."""
    try:
        return _Cutter(data).cut()
    except (_NotUnderstood, IndexError):
        return Cut(bytes(data), {})


class _Cutter:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.weights: dict[int, memoryview] = {}
        self.initializers = 0

    def cut(self) -> Cut:
        data, pieces, copied = self.data, [], 0  # type: memoryview, List[memoryview], int
        for number, at, (first, behind) in fields(data, 0, len(data)):
            if number == _GRAPH:
                pieces += [data[copied:at], *_field(_GRAPH, self._graph(first, behind))]
                copied = behind
        return Cut(b"".join([*pieces, data[copied:]]) if self.weights else bytes(data), self.weights)

    def _graph(self, start: int, end: int) -> List[memoryview]:
        """The bytes of a graph, with each large initializer as `_initializer` leaves it."""
        data, copied = self.data, start
        pieces: List[memoryview] = []
        for number, at, (first, behind) in fields(data, start, end):
            if number == _INITIALIZER:
                left = self._initializer(first, behind) if behind - first >= LARGE else None
                if left is not None:
                    pieces += [data[copied:at], *_field(_INITIALIZER, left)]
                    copied = behind
                self.initializers += 1
        return [*pieces, data[copied:end]]

    def _initializer(self, start: int, end: int) -> Optional[List[memoryview]]:
        """None if the tensor stays unchanged."""
        raw: List[Tuple[int, Span]] = []
        for number, at, span in fields(self.data, start, end):
            if number in _OTHER_VALUES:
                return None
            if number == _RAW_DATA:
                raw.append((at, span))
        if len(raw) != 1 or raw[0][1][1] - raw[0][1][0] < LARGE:
            return None
        at, (first, behind) = raw[0]
        self.weights[self.initializers] = self.data[first:behind]
        return [self.data[start:at], self.data[behind:end]]


def _field(number: int, content: List[memoryview]) -> List[memoryview]:
    """A length-delimited field."""
    length = varint(sum(map(len, content)))
    return [memoryview(varint(number << 3 | _LENGTH) + length), *content]


def fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, Span]]:
    """The fields of the message in data[start:end]: number, start of the tag, range of the content."""
    at = start
    while at < end:
        tag, content = _read_varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH:
            length, content = _read_varint(data, content, end)
            behind = content + length
        elif kind == _VARINT:
            behind = _read_varint(data, content, end)[1]
        elif kind in (_FIXED64, _FIXED32):
            behind = content + (8 if kind == _FIXED64 else 4)
        else:
            raise _NotUnderstood
        if behind > end:
            raise _NotUnderstood
        yield number, at, (content, behind)
        at = behind


def _read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number and the next byte's index."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _NotUnderstood


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag_of(message: type, field: str) -> bytes:
    """The wire tag of a length-delimited field."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH)  # type: ignore[attr-defined]
