"""Input and output buffers of a DLA loadable: layout in memory, values to and from them, `NAME_io.json` and a C++
header.

Layouts are those of NvInfer.h's `TensorFormat` on Orin, for a tensor (N, C, H, W) and elements of 1 (int8) or 2 bytes
(fp16):

    dla_linear  [N][C][H][W], each row of W filled up to 64 bytes
    dla_hwc4    [N][H][W][C'], C' = 1 for one channel, 4 for three or four; each row filled up to 64 bytes
    chw16       [N][C / 16][H][W][16], channels filled up; fp16
    chw32       [N][C / 32][H][W][32], channels filled up; int8
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import numpy as np

from qdq_translator.core.errors import UserError

ROW_BYTES = 64
TYPES: dict[str, np.dtype[Any]] = {"int8": np.dtype(np.int8), "fp16": np.dtype(np.float16)}
VECTORS = {"chw16": 16, "chw32": 32}
FORMATS = ("dla_linear", "dla_hwc4", *VECTORS)


@dataclass(frozen=True)
class Buffer:
    """One network input or output. shape: (N, C, H, W). scale: of its int8 values, None for fp16 that needs none. role:
    'input' or 'output'. given: the shape in the network."""

    name: str
    shape: tuple[int, int, int, int]
    dtype: np.dtype[Any]
    format: str
    scale: Optional[float]
    role: str = ""
    given: tuple[int, ...] = ()

    @property
    def padded(self) -> tuple[int, ...]:
        """Shape of the array in memory, padding included."""
        n, c, h, w = self.shape
        in_row = ROW_BYTES // self.dtype.itemsize
        if self.format == "dla_linear":
            return (n, c, h, _up(w, in_row))
        if self.format == "dla_hwc4":
            channels = 1 if c == 1 else 4
            return (n, h, _up(w, in_row // channels), channels)
        vector = VECTORS[self.format]
        return (n, _up(c, vector) // vector, h, w, vector)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.padded)) * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """'int8' or 'fp16'."""
        return next(name for name, dtype in TYPES.items() if dtype == self.dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        """Number of elements between neighbours in N, C (of its block, in chw16 and chw32), H and W."""
        sizes = self.padded
        steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
        if self.format == "dla_hwc4":
            n, h, w, c = steps
            return (n, c, h, w)
        return tuple(steps[:4])

    @property
    def block(self) -> int:
        """Number of adjacent channels: 16, 32, or 1."""
        return VECTORS.get(self.format, 1)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class End:
    """An input or output of the network as the application sees it. scale: of INT8 values, None if all are floats."""

    name: str
    shape: tuple[int, ...]
    scale: Optional[float]


def describe(ends: Sequence[End], formats: str, role: str) -> list[Buffer]:
    """The buffers of graph inputs or outputs. formats: `type:format`, one for all or one for each. Raises UserError if
    a tensor cannot have its format."""
    given = formats.split(",")
    if len(given) not in (1, len(ends)):
        raise UserError(f"'{formats}' has {len(given)} formats for {len(ends)} tensors.", "Give one, or one each.")
    found = []
    for end, text in zip(ends, given * len(ends) if len(given) == 1 else given):
        kind, _, layout = text.partition(":")
        if kind not in TYPES or layout not in FORMATS or (kind, layout) in (("int8", "chw16"), ("fp16", "chw32")):
            raise UserError(f"A loadable has no format '{text}'.", "They are {int8,fp16}:{dla_linear,dla_hwc4}, ...")
        found.append(_buffer(end, kind, layout, role))
    return found


def _buffer(end: End, kind: str, layout: str, role: str) -> Buffer:
    name, sizes = end.name, end.shape
    if not 2 <= len(sizes) <= 4 or not all(isinstance(size, int) for size in sizes):
        raise UserError(
            f"'{name}' has the shape {list(sizes)}.", "Buffers are for batch, channels and up to two more sizes."
        )
    n, c, h, w = (*sizes, 1, 1, 1)[:4]
    if layout == "dla_hwc4" and c not in (1, 3, 4):
        raise UserError(f"'{name}' has {c} channels.", "dla_hwc4 is for 1, 3 or 4; take dla_linear or chw32.")
    if kind == "int8" and end.scale is None:
        raise UserError(f"'{name}' has no scale, so it cannot be int8.", "Quantize it in the model, or take fp16.")
    return Buffer(name, (n, c, h, w), TYPES[kind], layout, end.scale if kind == "int8" else None, role, sizes)


def as_json(name: str, ends: Sequence[Buffer]) -> str:
    """`NAME_io.json`: shapes as the application sees them, and the buffers."""
    rows = [
        {
            "role": end.role,
            "name": end.name,
            "shape": end.given,
            "nchw": end.shape,
            "type": end.kind,
            "format": end.format,
            "scale": end.scale,
            "padded": end.padded,
            "strides": end.strides,
            "block": end.block,
            "bytes": end.size,
        }
        for end in ends
    ]
    whole = {"schema_version": 1, "kind": "qdq-translator io", "network": name, "tensors": rows}
    return json.dumps(whole, indent=2) + "\n"


def cpp_header(network: str, ends: Sequence[Buffer], mean: Sequence[float], std: Sequence[float]) -> str:
    """`NAME_io.h`, C++17: for each tensor a namespace with sizes, strides, `offset(n, c, h, w)`, the scale, and for
    INT8 inputs the 256 quantized values of 8-bit pixels, (pixel / 255 - mean) / std, of each channel."""
    parts = [_HEADER.format(name=network)]
    spaces: list[str] = []
    for end in ends:  # different names may become the same identifier
        name = _identifier(end.name)
        spaces.append(next(s for s in (name, *(f"{name}_{i}" for i in range(2, 2 + len(ends)))) if s not in spaces))
    parts += [_tensor(end, space, mean, std) for end, space in zip(ends, spaces)]
    whole = f"{_identifier(network)}_io"
    return "\n".join([*parts, f"}}  // namespace {whole}", ""]).replace("@SPACE@", whole)


_HEADER = """// Input and output buffers of {name}, written by qdq-translator. C++17, no other header needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace @SPACE@ {{
"""
_TENSOR = """namespace {space} {{
constexpr const char* name = {quoted};
constexpr const char* format = "{kind}:{format}";
constexpr std::size_t n = {n}, c = {c}, h = {h}, w = {w};  // as the application sees it
constexpr std::size_t element_bytes = {element}, bytes = {bytes};
constexpr std::size_t block = {block}, stride_n = {sn}, stride_c = {sc}, stride_h = {sh}, stride_w = {sw};  // elements
constexpr std::size_t offset(std::size_t in, std::size_t ic, std::size_t ih, std::size_t iw) {{
    return in * stride_n + ic / block * stride_c + ih * stride_h + iw * stride_w + ic % block;
}}
static_assert(offset(n - 1, c - 1, h - 1, w - 1) < bytes / element_bytes, "the last element is inside");
static_assert(bytes % element_bytes == 0, "whole elements");
{values}}}  // namespace {space}
"""


def _literal(text: str) -> str:
    """A C++ string: bytes beyond printable ASCII as octal escapes, because no compiler accepts JSON's surrogates."""
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'


def _tensor(buffer: Buffer, space: str, mean: Sequence[float], std: Sequence[float]) -> str:
    values = ""
    if buffer.scale is not None:
        values = f"constexpr float scale = {_float(buffer.scale)};  // real value = quantized value * scale\n"
        if buffer.role == "input":
            values += _pixels(buffer, mean, std)
    sizes = zip(("n", "c", "h", "w", "sn", "sc", "sh", "sw"), (*buffer.shape, *buffer.strides))
    return _TENSOR.format(
        space=space,
        quoted=_literal(buffer.name),
        kind=buffer.kind,
        format=buffer.format,
        element=buffer.dtype.itemsize,
        bytes=buffer.size,
        block=buffer.block,
        values=values,
        **dict(sizes),
    )


def pixel_values(scale: float, channels: int, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """int8 (channels, 256): quantized (p / 255 - mean) / std per pixel value p."""
    shape = (channels, 1)
    pixels = np.arange(256, dtype=np.float32)[None, :] / np.float32(255)
    means, stds = (np.broadcast_to(np.asarray(v, np.float32).reshape(-1, 1), shape) for v in (mean, std))
    return np.clip(np.rint((pixels - means) / stds / np.float32(scale)), -128, 127).astype(np.int8)


def _pixels(buffer: Buffer, mean: Sequence[float], std: Sequence[float]) -> str:
    channels = buffer.shape[1]
    if channels not in (1, 3, 4) or len(mean) not in (1, channels) or len(std) not in (1, channels):
        return ""
    rows = pixel_values(buffer.scale or 1.0, channels, mean, std)
    lines = ",\n".join("    {{" + ", ".join(map(str, row)) + "}}" for row in rows)
    return f"constexpr std::array<std::array<std::int8_t, 256>, {channels}> pixels{{{{\n{lines}\n}}}};\n"


def _float(value: float) -> str:
    digits = str(np.float32(value))
    return f"{digits}f" if "." in digits or "e" in digits else f"{value:.1f}f"


def _identifier(name: str) -> str:
    plain = "".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in name)
    return plain if plain[:1].isalpha() else f"t_{plain}"
