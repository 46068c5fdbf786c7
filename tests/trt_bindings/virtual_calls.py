"""Calls a calibrator the way TensorRT does: through the virtual functions of its C++ object.

The bindings' own `read_calibration_cache` and `get_batch` are there for their docstrings only and call nothing. A
pybind11 object holds the pointer to its C++ object right behind the Python object's head; the order of the functions
is that of NvInfer.h (8.6: getBatchSize first; 10.x: behind the four entries of IVersionedInterface).
"""

from __future__ import annotations

import ctypes
from typing import Any

_ORDER = ("get_batch_size", "get_batch", "read_cache", "write_cache", "get_algorithm")


class Calibrator:
    """The C++ side of a calibrator written in Python."""

    def __init__(self, python_object: Any, version: str) -> None:
        self.keep = python_object
        head = ctypes.sizeof(ctypes.c_void_p) * 2
        self.this = ctypes.cast(id(python_object) + head, ctypes.POINTER(ctypes.c_void_p))[0]
        self.table = ctypes.cast(self.this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        self.first = 0 if version.startswith("8.") else 4

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        types = [ctypes.c_void_p, *(type(a) for a in arguments)]
        # PYFUNCTYPE keeps the interpreter's lock, which the trampolines take again
        function = ctypes.PYFUNCTYPE(result, *types)(self.table[self.first + _ORDER.index(name)])
        return function(self.this, *arguments)

    def batch_size(self) -> int:
        return int(self._call("get_batch_size", ctypes.c_int32))

    def algorithm(self) -> int:
        return int(self._call("get_algorithm", ctypes.c_int32))

    def cache(self) -> bytes:
        """The bytes that C++ gets."""
        length = ctypes.c_size_t()
        address = self._call("read_cache", ctypes.c_void_p, ctypes.c_void_p(ctypes.addressof(length)))
        return ctypes.string_at(address, length.value)

    def batch(self, name: bytes) -> bool:
        """Asks for a batch of calibration data; False: there is none."""
        names, bindings = (ctypes.c_char_p * 1)(name), (ctypes.c_void_p * 1)()
        addresses = (ctypes.c_void_p(ctypes.addressof(array)) for array in (bindings, names))
        return bool(self._call("get_batch", ctypes.c_bool, *addresses, ctypes.c_int32(1)))

    def write(self, data: bytes) -> None:
        self._call("write_cache", None, ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
