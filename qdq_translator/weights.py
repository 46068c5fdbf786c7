"""Initializers whose values lie outside ONNX's messages: in an array, in a file, or made each time somebody asks.

A message holds a copy of all its bytes until it is freed as a whole. A `Weight` is a name, a type and a shape, and its values
are read, used and let go one tensor at a time.
"""

from __future__ import annotations

import functools
import math
import zlib
from typing import Callable, Iterator, Optional, Sequence, Tuple, Union

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from qdq_translator.qparams import row_blocks

ELEMENTS: dict[int, np.dtype] = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.INT8: np.dtype("<i1"),
    TensorProto.INT16: np.dtype("<i2"),
    TensorProto.INT32: np.dtype("<i4"),
    TensorProto.INT64: np.dtype("<i8"),
    TensorProto.UINT8: np.dtype("<u1"),
    TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.UINT32: np.dtype("<u4"),
    TensorProto.UINT64: np.dtype("<u8"),
}
"""ONNX's element types whose raw data are NumPy's, byte for byte."""
MADE_LATER = 2**14
"""Elements from which on an array is not worth its memory, if it can be made again."""
ALL = slice(None)
Maker = Callable[[slice], np.ndarray]
"""Makes some rows of an array anew, a slice of the first axis or `ALL`."""
_TYPES = {dtype: kind for kind, dtype in ELEMENTS.items()}


class Weight:
    """An initializer, with the fields of a TensorProto that passes ask for. `values`: an array, which nobody may write to from
    now on, or what makes it anew. by_rows: making some rows costs no more than their share."""

    __slots__ = ("_checksum", "by_rows", "data_type", "dims", "name", "values")

    def __init__(
        self,
        name: str,
        data_type: int,
        dims: Sequence[int],
        values: Union[np.ndarray, Maker],
        by_rows: bool = True,
    ) -> None:
        self.name, self.data_type, self.dims, self.values = name, data_type, dims, values
        self.by_rows = by_rows
        self._checksum: Optional[int] = None
        if isinstance(values, np.ndarray):
            values.flags.writeable = False

    @property
    def dtype(self) -> np.dtype:
        return ELEMENTS[self.data_type]

    def array(self) -> np.ndarray:
        """The values; they may be written to where their `flags` say so, because they were made for the caller."""
        return self.values(ALL) if callable(self.values) else self.values

    def part(self, rows: slice) -> np.ndarray:
        """The same for some rows of the first axis."""
        return self.values(rows) if callable(self.values) else _some(self.values, rows)

    def parts(self) -> Iterator[Tuple[slice, np.ndarray]]:
        """Which rows, and they: a few at a time where they are made for whoever asks."""
        in_blocks = callable(self.values) and self.by_rows and self.dims
        for rows in row_blocks(self.dims) if in_blocks else (ALL,):
            yield rows, self.part(rows)

    def seen_parts(self) -> Iterator[Tuple[slice, np.ndarray]]:
        """The same; whoever takes all of them need not ask for the checksum again. A part must not be written to."""
        checksum = 0
        for rows, part in self.parts():
            checksum = zlib.crc32(_raw(part, self.dtype), checksum)
            yield rows, part
        self._checksum = checksum

    def raw(self) -> Iterator[memoryview]:
        """The values as ONNX's `raw_data`, part by part: flat bytes, little-endian."""
        return (_raw(part, self.dtype) for _, part in self.parts())

    def checksum(self, values: Optional[np.ndarray] = None) -> int:
        """CRC-32 of the raw data, computed once. `values`: what `array` gives, where it is at hand."""
        if self._checksum is None and values is not None:
            self._checksum = zlib.crc32(_raw(values, self.dtype))
        if self._checksum is None:
            for _ in self.seen_parts():
                pass
        assert self._checksum is not None
        return self._checksum

    def ByteSize(self) -> int:
        return math.prod(self.dims) * self.dtype.itemsize

    def changed(self, name: str, change: Callable[[np.ndarray, slice], np.ndarray], by_rows: bool) -> Weight:
        """What `change` makes of some rows, in the same type and shape; made when somebody asks where these are. by_rows: it can
        do so with some, else it gets `ALL` of them."""
        if not callable(self.values):
            return Weight(name, self.data_type, self.dims, change(self.values, ALL))
        make: Maker = lambda rows: change(self.part(rows), rows)  # noqa: E731
        if not by_rows:
            make = lambda rows: _some(change(self.array(), ALL), rows)  # noqa: E731
        return Weight(name, self.data_type, self.dims, make, by_rows and self.by_rows)

    def header(self) -> TensorProto:
        """The tensor without its values."""
        return TensorProto(name=self.name, data_type=self.data_type, dims=self.dims)


def _some(values: np.ndarray, rows: slice) -> np.ndarray:
    """Rows of the first axis; all of a single value, which has none."""
    return values if rows == ALL else values[rows]


def _raw(values: np.ndarray, dtype: np.dtype) -> memoryview:
    return np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data


Initializer = Union[TensorProto, Weight]


def weight_of(name: str, values: np.ndarray) -> Initializer:
    """An array as an initializer; a message where NumPy has the element type from elsewhere. The array must not change."""
    data_type = _TYPES.get(values.dtype)
    if data_type is None:
        return message_of(values, name)
    return Weight(name, data_type, values.shape, values)


def made_weight(name: str, dtype: np.dtype, dims: Sequence[int], make: Maker) -> Initializer:
    """What `make` makes, an array of that type and shape: now where it is small, else each time that somebody asks."""
    data_type = _TYPES.get(dtype)
    if data_type is None or math.prod(dims) < MADE_LATER:
        return weight_of(name, make(ALL))
    return Weight(name, data_type, dims, make)


def as_weight(tensor: Initializer) -> Optional[Weight]:
    """The initializer as a `Weight`; None where NumPy does not have its element type."""
    if isinstance(tensor, Weight) or tensor.data_type not in ELEMENTS:
        return tensor if isinstance(tensor, Weight) else None
    return Weight(tensor.name, tensor.data_type, tuple(tensor.dims), to_array(tensor))


def stored_weight(tensor: TensorProto, values: memoryview) -> Optional[Weight]:
    """A tensor whose raw data are `values`; None where they do not fit its type and shape."""
    dtype = ELEMENTS.get(tensor.data_type)
    dims = tuple(tensor.dims)
    if dtype is None or min(dims, default=0) < 0 or math.prod(dims) * dtype.itemsize != len(values):
        return None
    return Weight(tensor.name, tensor.data_type, dims, np.frombuffer(values, dtype).reshape(dims))


class Keeper:
    """Arrays that can be made again are kept as long as all of them have at most `most` bytes; of the others the one that was
    made last, which is often asked for twice."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._last: tuple[Optional[Weight], Optional[np.ndarray]] = (None, None)

    def weight(self, name: str, values: np.ndarray, again: Optional[Callable[[], np.ndarray]]) -> Weight:
        """`values`, of a type of NumPy's own, as a weight. again: makes them anew; None where nothing can."""
        weight = Weight(name, _TYPES[values.dtype], values.shape, values)
        if again is not None and values.nbytes > self._left:
            weight.values = functools.partial(self._made, weight, again)
        else:
            self._left -= values.nbytes
        return weight

    def _made(self, weight: Weight, again: Callable[[], np.ndarray], rows: slice) -> np.ndarray:
        if self._last[0] is not weight:
            self._last = (None, None)  # goes before the next is there
            values = again()
            values.flags.writeable = False
            self._last = (weight, values)
        assert self._last[1] is not None
        return _some(self._last[1], rows)


def message_of(values: np.ndarray, name: str) -> TensorProto:
    """A TensorProto with raw data. Floats and integers of NumPy's own types."""
    tensor = TensorProto(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
    tensor.raw_data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return tensor


def to_message(tensor: Initializer) -> TensorProto:
    """The tensor as ONNX has it, values and all."""
    if not isinstance(tensor, Weight):
        return tensor
    message = tensor.header()
    message.raw_data = b"".join(tensor.raw())
    return message


def to_array(tensor: Initializer) -> np.ndarray:
    """The values; bfloat16 as float32 where this version of onnx has no NumPy type for it (before 1.19). Do not write to them."""
    if isinstance(tensor, Weight):
        return tensor.array()
    if tensor.data_type in ELEMENTS and tensor.HasField("raw_data"):  # as ONNX does it, less what it checks
        return np.frombuffer(tensor.raw_data, ELEMENTS[tensor.data_type]).reshape(tuple(tensor.dims))
    values = numpy_helper.to_array(tensor)
    if values.dtype.names == ("bfloat16",):
        values = np.left_shift(values["bfloat16"], 16, dtype=np.uint32).view(np.float32)
    return values
