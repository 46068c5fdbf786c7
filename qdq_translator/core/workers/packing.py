"""A task as bytes, with its large parts (initializers of models, arrays) separate: a worker that already has them needs
only the new ones."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import onnx

LEAST_PART = 16 * 1024
"""Bytes that travel by themselves."""


@dataclass(frozen=True)
class Packed:
    """body: a pickle without its large parts. parts: SHA-256 -> bytes, in the order of the body. digest: of everything."""

    body: bytes
    order: Sequence[str]
    parts: Mapping[str, memoryview]

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"".join([self.body, *map(str.encode, self.order)])).hexdigest()


def pack(value: Any) -> Packed:
    """`unpack` makes an equal value of it. Equal models give equal bytes, in any process."""
    order: list[str] = []
    parts: dict[str, memoryview] = {}

    def apart(buffer: pickle.PickleBuffer) -> bool:
        """False if kept separate."""
        view = buffer.raw()
        if view.nbytes < LEAST_PART:
            return True
        order.append(hashlib.sha256(view).hexdigest())
        parts[order[-1]] = view
        return False

    file = io.BytesIO()
    _Pickler(file, 5, buffer_callback=apart).dump(value)
    return Packed(file.getvalue(), order, parts)


def unpack(body: bytes, parts: Sequence[bytes]) -> Any:
    """parts: in the order of `Packed.order`."""
    return pickle.loads(body, buffers=parts)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, onnx.ModelProto):
            return NotImplemented
        light = onnx.ModelProto()
        light.CopyFrom(value)
        for tensor in light.graph.initializer:
            tensor.ClearField("raw_data")
        held = [pickle.PickleBuffer(tensor.raw_data) for tensor in value.graph.initializer]
        return _model, (light.SerializeToString(deterministic=True), held)


def _model(light: bytes, held: Sequence[Any]) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(light)
    for tensor, data in zip(model.graph.initializer, held):
        if len(data):
            tensor.raw_data = bytes(data)
    return model
