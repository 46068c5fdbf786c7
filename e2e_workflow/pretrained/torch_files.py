"""Weights of a PyTorch file (.pt, .pth; the zipped and the older format) without PyTorch, and without running what it pickles."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from typing import Any

import numpy as np

_TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64, "HalfStorage": np.float16}


class _Reader(pickle.Unpickler):
    """Knows ordered dictionaries and tensors, and refuses every other class."""

    def __init__(
        self, stream: io.BufferedIOBase, storages: dict[str, np.ndarray], members: zipfile.ZipFile | None
    ) -> None:
        super().__init__(stream)
        self.storages, self.members = storages, members

    def find_class(self, module: str, name: str) -> Any:
        known = {"OrderedDict": collections.OrderedDict, "_rebuild_tensor_v2": _Tensor, **_TYPES}
        if name not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not a part of weights")
        return known[name]

    def persistent_load(self, saved: Any) -> str:
        _, kind, key, _, count = saved[:5]
        if key not in self.storages:
            if self.members is not None:
                root = self.members.namelist()[0].split("/")[0]
                self.storages[key] = np.frombuffer(self.members.read(f"{root}/data/{key}"), kind)
            else:
                self.storages[key] = np.zeros(count, kind)  # the older format has the values after the pickle
        return str(key)


class _Tensor:
    def __init__(self, key: str, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> None:
        self.key, self.offset, self.shape, self.stride = key, offset, shape, stride

    def values(self, storages: dict[str, np.ndarray]) -> np.ndarray:
        flat = storages[self.key][self.offset :]
        return np.lib.stride_tricks.as_strided(flat, self.shape, [s * flat.itemsize for s in self.stride]).copy()


def weights(content: bytes) -> dict[str, np.ndarray]:
    """Name -> array of a state dictionary. Raises pickle.UnpicklingError for a file with anything else in it."""
    storages: dict[str, np.ndarray] = {}
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            name = next(n for n in members.namelist() if n.endswith("/data.pkl"))
            found = _Reader(io.BytesIO(members.read(name)), storages, members).load()
    else:
        stream = io.BytesIO(content)
        for _ in range(3):  # magic number, version, sizes of types: plain values
            _Reader(stream, {}, None).load()
        found = _Reader(stream, storages, None).load()
        for key in _Reader(stream, {}, None).load():
            (count,) = np.frombuffer(stream.read(8), np.int64)
            kind = storages[key].dtype
            storages[key] = np.frombuffer(stream.read(int(count) * kind.itemsize), kind)
    return {name: value.values(storages) for name, value in found.items() if isinstance(value, _Tensor)}
