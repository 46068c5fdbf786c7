"""Dialects of quantizers, one part after the other, for the records: what stands for a zero point, what between Q and DQ, how a
weight is quantized, and what reads it."""

from __future__ import annotations

import functools
import re
from typing import Any, Iterator

import numpy as np
import onnx

from tests.small_models import model, pair

_ZEROS: dict[str, Any] = {
    "int8": np.int8(0),
    "shifted": np.int8(-5),
    "low": np.int8(-128),
    "uint8": np.uint8(128),
    "uint8_0": np.uint8(0),
    "uint8_3": np.uint8(3),
}
_BETWEEN: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {}),
    "clip": ("d_c = Clip(d_q, low, high)", {"low": -127, "high": 127}),
    "clip_above_0": ("d_c = Clip(d_q, low, high)", {"low": 0, "high": 127}),
    "clip_above": ("d_c = Clip(d_q, low, high)", {"low": 3, "high": 90}),
    "clip_below": ("d_c = Clip(d_q, low, high)", {"low": -100, "high": -1}),
    "clips": ("d_1 = Clip(d_q, low, high)  d_c = Clip(d_1, more, high)", {"low": 0, "more": -9, "high": 60}),
    "transpose": ("d_c = Transpose<perm=[0,1,3,2]>(d_q)", {}),
    "pad": ("d_c = Pad(d_q, pads, code)", {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]), "code": 7}),
    "pad_0": ("d_c = Pad(d_q, pads)", {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])}),
    "edge": ('d_c = Pad<mode="edge">(d_q, pads)', {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])}),
    "pool": ("d_c = MaxPool<kernel_shape=[2,2]>(d_q)", {}),
    "concat": ("d_c = Concat<axis=1>(d_q, d_q)", {}),
    "split": ("d_c, d_e = Split<axis=1>(d_q, sizes)", {"sizes": np.array([1, 3])}),
    "gather": ("d_c = Gather<axis=1>(d_q, places)", {"places": np.array([3, 1])}),
    "resize": ('d_c = Resize<mode="nearest">(d_q, , factors)', {"factors": np.array([1, 1, 2, 2], np.float32)}),
    "linear": ('d_c = Resize<mode="linear">(d_q, , factors)', {"factors": np.array([1, 1, 2, 2], np.float32)}),
    "depth": ("d_c = DepthToSpace<blocksize=2>(d_q)", {}),
    "relu": ("d_c = Relu(d_q)", {}),
    "add": ("d_c = Add(d_q, d_q)", {}),
}
_AROUND = {
    "plain": "{x_d} y = Sin(d)",
    "behind_relu": "r = Relu(x)  {r_d} y = Sin(d)",
    "output": "{x_d} y = Identity(d)",
    "two_readers": "{x_d} e = DequantizeLinear(d_q, s, z)  f = Sin(e)  y = Cos(d)  v = Abs(f)",
}


def _activations() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    for zero, point in _ZEROS.items():
        for name, (middle, arrays) in _BETWEEN.items():
            if point.dtype == np.uint8 and any(isinstance(v, int) and v < 0 for v in arrays.values()):
                continue
            codes = {k: np.asarray(v, point.dtype) if isinstance(v, int) else v for k, v in arrays.items()}
            for around, text in _AROUND.items():
                if around != "plain" and name not in ("nothing", "clip_above_0", "pad", "split"):
                    continue
                body = text.format(x_d=pair("x", "d", extra=middle), r_d=pair("r", "d", extra=middle))
                more = ", float v" if "v = " in body else ""
                made = model(
                    f"g (float[1,4,6,6] x) => (float y{more}) {{ {body} }}", s=np.float32(0.05), z=point, **codes
                )
                yield f"{zero}-{name}-{around}", made, {"asymmetric": "widen"}


_CODES = (np.arange(4 * 4 * 3 * 3).reshape(4, 4, 3, 3) * 37 % 255 - 127).astype(np.int8)
_STEPS = np.array([0.01, 0.02, 0.03, 0.004], np.float32)
_FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "pair": (pair("f", "w"), {}),
    "rows": ("q = QuantizeLinear<axis=0>(f, steps, zs)  w = DequantizeLinear<axis=0>(q, steps, zs)", {}),
    "columns": ("q = QuantizeLinear<axis=1>(f, steps, zs)  w = DequantizeLinear<axis=1>(q, steps, zs)", {}),
    "codes": ("w = DequantizeLinear<axis=0>(codes, steps, zs)", {}),
    "codes_128": ("w = DequantizeLinear(low, s, z)", {"low": np.minimum(_CODES, 0) - np.int8(1)}),
    "uint8": ("w = DequantizeLinear(u, s, u128)", {"u": (_CODES.astype(np.int16) + 128).astype(np.uint8), "u128": np.uint8(128)}),
    "clip": (pair("f", "w", extra="w_c = Clip(w_q, a, b)"), {"a": np.int8(-90), "b": np.int8(80)}),
    "float_clip": ("v = Clip(f, m, n)" + pair("v", "w"), {"m": np.float32(-0.3), "n": np.float32(0.4)}),
    "clip_behind": (pair("f", "v") + "w = Clip(v, m, n)", {"m": np.float32(-0.3), "n": np.float32(0.4)}),
    "moved": ("v = DequantizeLinear<axis=0>(codes, steps, zs)  w = Transpose<perm=[1,0,2,3]>(v)", {}),
    "twice": (pair("f", "v") + pair("v", "w", "t"), {"t": np.float32(0.07)}),
    "no_zero": ("q = QuantizeLinear(f, s, z)  w = DequantizeLinear(q, s)", {}),
    "again": ("v = DequantizeLinear(codes, s, z)" + pair("v", "w"), {}),
    "coarser": ("v = DequantizeLinear(codes, s, z)" + pair("v", "w", "t"), {"t": np.float32(0.07)}),
    "negated": (pair("f", "v") + "w = Neg(v)", {}),
    "shared": (pair("f", "w") + "o = Conv<pads=[1,1,1,1]>(d, w)", {}),
}  # fmt: skip
_READERS = {
    "conv": "y = Conv<pads=[1,1,1,1]>(d, w)",
    "normalized": "c = Conv<pads=[1,1,1,1]>(d, w)  y = BatchNormalization(c, g, bb, bb, var)",
    "transposed": "y = ConvTranspose(d, w)",
    "matmul": "v2 = Reshape(w, square)  y = MatMul(e, v2)",
    "gemm": "v2 = Reshape(w, square)  y = Gemm<transB=1, alpha=0.5>(e, v2, bb12)",
    "add": "v2 = Reshape(w, four)  y = Add(d, v2)",
}


def _weights() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    arrays = {
        "f": (_CODES * np.float32(0.0041)).astype(np.float32), "codes": _CODES, "steps": _STEPS, "zs": np.zeros(4, np.int8),
        "s": np.float32(0.05), "z": np.int8(0), "g": np.array([1, -2, 3, 0.5], np.float32), "bb": np.array([0.1, 0.2, 0.5, 1], np.float32),
        "var": np.array([1, 0.5, 2, 3], np.float32), "square": np.array([12, 12]), "four": np.array([1, 4, 6, 6]), "bb12": np.arange(12, dtype=np.float32),
    }  # fmt: skip
    for form, (quantized, more) in _FORMS.items():
        for reader, read in _READERS.items():
            for weights in ("baked", "float"):
                if weights == "float" and (form.startswith(("codes", "uint8")) or reader not in ("conv", "gemm")):
                    continue
                flat = "e = Reshape(d, square)" if "(e" in read else ""
                body = f"{pair('x', 'd')} {quantized} {flat} {read}"
                outputs = "float y, float o" if form == "shared" else "float y"
                read_names = set(re.findall(r"\w+", body))
                used = {k: v for k, v in {**arrays, **more}.items() if k in read_names}
                made = model(f"g (float[1,4,6,6] x) => ({outputs}) {{ {body} }}", **used)
                yield f"{form}-{reader}-{weights}", made, {"weights": weights, "asymmetric": "widen"}


@functools.lru_cache(maxsize=None)
def dialects() -> dict[str, tuple[onnx.ModelProto, dict[str, Any]]]:
    """Name -> model and options."""
    return {name: (made, options) for name, made, options in (*_activations(), *_weights())}
