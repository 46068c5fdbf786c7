"""Initializers whose values are not part of ONNX messages: in an array, or computed on each access.

A message holds a copy of all its bytes until it is freed as a whole. A `Weight` is a name, a type and a shape, and its
values are read, used and let go one tensor at a time.
"""

from __future__ import annotations

import math
import zlib
from typing import Callable, Optional, Sequence, Union

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from qdq_translator.core.errors import ModelError

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
Maker = Callable[[], np.ndarray]
Change = Callable[[np.ndarray], np.ndarray]
_TYPES = {dtype: kind for kind, dtype in ELEMENTS.items()}


class Weight:
    """An initializer, with the fields of a TensorProto that passes ask for. `values`: an array, which must not be
    written to from now on, or a function that makes it on every access."""

    __slots__ = ("_checksum", "data_type", "dims", "name", "values")

    def __init__(self, name: str, data_type: int, dims: Sequence[int], values: Union[np.ndarray, Maker]) -> None:
        self.name, self.data_type, self.dims, self.values = name, data_type, dims, values
        self._checksum: Optional[int] = None
        if isinstance(values, np.ndarray):
            values.setflags(write=False)

    @property
    def dtype(self) -> np.dtype:
        return ELEMENTS[self.data_type]

    def array(self) -> np.ndarray:
        """The values. Do not write to them."""
        return self.values() if callable(self.values) else self.values

    def raw(self) -> memoryview:
        """The values as ONNX's `raw_data`: flat bytes, little-endian."""
        data = np.ascontiguousarray(self.array(), self.dtype).reshape(-1).view(np.uint8).data
        if self._checksum is None:
            self._checksum = zlib.crc32(data)
        return data

    def checksum(self) -> int:
        """CRC-32 of the raw data, computed once."""
        if self._checksum is None:
            self.raw()
        assert self._checksum is not None
        return self._checksum

    def ByteSize(self) -> int:
        return math.prod(self.dims) * self.dtype.itemsize

    def remade(self, name: str, change: Change, dims: Optional[Sequence[int]] = None) -> Weight:
        """The result of `change`, of the same type; computed on demand if these values are. dims: its shape; None if
        `change` only moves values."""
        if not callable(self.values):
            made = np.asarray(change(self.values))
            return Weight(name, self.data_type, made.shape, made)
        if dims is None:
            dims = change(np.broadcast_to(np.int8(0), tuple(self.dims))).shape
        return Weight(name, self.data_type, dims, lambda: change(self.array()))

    def copy(self) -> Weight:
        """An initializer with the same values, to be renamed."""
        return Weight(self.name, self.data_type, self.dims, self.values)

    def header(self) -> TensorProto:
        """The tensor without its values."""
        return TensorProto(name=self.name, data_type=self.data_type, dims=self.dims)


Initializer = Union[TensorProto, Weight]


def weight_of(name: str, values: np.ndarray) -> Initializer:
    """An array as an initializer; a message if its element type is an extension of NumPy. The array must not change."""
    data_type = _TYPES.get(values.dtype)
    if data_type is None:
        return message_of(values, name)
    return Weight(name, data_type, values.shape, values)


def made_weight(name: str, dtype: np.dtype, source: Weight, change: Change) -> Initializer:
    """The result of `change`, of that type and the same shape: computed at once if small, else on demand."""
    data_type = _TYPES.get(dtype)
    if data_type is None or math.prod(source.dims) < MADE_LATER:
        return weight_of(name, change(source.array()))
    return Weight(name, data_type, source.dims, lambda: change(source.array()))


def as_weight(tensor: Initializer) -> Optional[Weight]:
    """The initializer as a `Weight`; None if NumPy lacks its element type."""
    if isinstance(tensor, Weight) or tensor.data_type not in ELEMENTS:
        return tensor if isinstance(tensor, Weight) else None
    return Weight(tensor.name, tensor.data_type, tuple(tensor.dims), to_array(tensor))


def stored_weight(tensor: TensorProto, values: memoryview) -> Optional[Weight]:
    """A tensor with the raw data `values`; None if they do not fit its type and shape."""
    dtype = ELEMENTS.get(tensor.data_type)
    dims = tuple(tensor.dims)
    if dtype is None or min(dims, default=0) < 0 or math.prod(dims) * dtype.itemsize != len(values):
        return None
    return Weight(tensor.name, tensor.data_type, dims, np.frombuffer(values, dtype).reshape(dims))


def message_of(values: np.ndarray, name: str) -> TensorProto:
    """A TensorProto with raw data. Floats and integers of NumPy's own types."""
    tensor = TensorProto(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
    tensor.raw_data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return tensor


def to_message(tensor: Initializer) -> TensorProto:
    """The tensor as an ONNX message that contains its values."""
    if not isinstance(tensor, Weight):
        return tensor
    message = tensor.header()
    message.raw_data = bytes(tensor.raw())
    return message


def to_array(tensor: Initializer) -> np.ndarray:
    """The values; bfloat16 as float32 if this version of onnx has no NumPy type for it (before 1.19). Read-only."""
    if isinstance(tensor, Weight):
        return tensor.array()
    try:
        if tensor.data_type in ELEMENTS and tensor.HasField("raw_data"):  # as onnx.numpy_helper, without its checks
            return np.frombuffer(tensor.raw_data, ELEMENTS[tensor.data_type]).reshape(tuple(tensor.dims))
        values = numpy_helper.to_array(tensor)
    except ValueError as error:
        raise ModelError(
            f"The values of '{tensor.name}' do not fill its shape: {error}.", "Export it again."
        ) from error
    if values.dtype.names == ("bfloat16",):
        values = np.left_shift(values["bfloat16"], 16, dtype=np.uint32).view(np.float32)
    return values
