"""Dialects of quantizers, one part after the other, for the records: what stands for a zero point, what between Q and DQ, how a
weight is quantized, and what reads it."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any, Iterator

import numpy as np
import onnx

from tests.fuzz.seeds import seeds
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


# ---------------------------------------------------------------- explicit networks

_CONV = pair("x", "xd") + pair("w", "wd", "sw") + "c = Conv(xd, wd)\n"
RESIDUAL = f"""{pair("x", "xd")} {pair("w1", "w1d", "sw")} c1 = Conv(xd, w1d, b)  r1 = Relu(c1) {pair("r1", "r1d", "u")}
    {pair("w2", "w2d", "sw")} c2 = Conv(r1d, w2d) {pair("c2", "c2d", "t")} a = Add(c2d, xd)  r2 = Relu(a) {pair("r2", "r2d", "t")}
    m = Transpose<perm = [0, 1, 3, 2]>(r2d) {pair("m", "md", "t")} {pair("w3", "w3d", "sw")} y = Conv(md, w3d)"""
ZERO_POINTS = f"""q = QuantizeLinear(x, s, zu)  xd = DequantizeLinear(q, s, zu) {pair("w", "wd", "sw")} c = Conv(xd, wd)  r = Relu(c)
    rq = QuantizeLinear(r, s, zi)  rd = DequantizeLinear(rq, s, zi)  m = MaxPool<kernel_shape=[1, 1]>(rd) {pair("v", "vd", "sw")} y = Conv(m, vd)"""
CONCAT = f"""{_CONV} {pair("c", "cd", "u")} d = Conv(cd, wd) {pair("d", "dd")} k = Concat<axis = 1>(cd, dd) {pair("k", "kd", "t")}
    {pair("v8", "vd", "sw")} y = Conv(kd, vd)"""
_BODIES: dict[str, str] = {
    "residual": RESIDUAL,
    "zero_points": ZERO_POINTS,
    "concat": CONCAT,
    "ends": _CONV + pair("c", "y", "u"),
    "constants": pair("x", "xd") + "a = Add(xd, tiny)  i = Min(a, big)  j = Div(i, k3)  y = Mul(j, k3)",
    "depthwise": f"{pair('x', 'xd')} {pair('wg', 'wd', 'sw')} c = Conv<group=4>(xd, wd, b)  h = HardSwish(c) {pair('h', 'hd', 'u')} y = GlobalAveragePool(hd)",
    "transposed": f"{pair('x', 'xd')} {pair('w', 'wd', 'sw')} c = ConvTranspose(xd, wd)  y = Sigmoid(c)",
    "attention": f"{pair('x', 'xd')} q = MatMul(xd, m6) {pair('q', 'qd', 'u')} k = Transpose<perm=[0,1,3,2]>(qd)  a = MatMul(qd, k)  p = Softmax(a) {pair('p', 'pd', 'u')} o = MatMul(pd, qd)  "
    f"h = Add(o, x)  n = LayerNormalization(h, n6) {pair('n', 'nd', 't')} y = MatMul(nd, m6)",
    "wide": _CONV + "e = Exp(c)  f = Exp(e)  g = Log(f)  i = Pow(g, k3)  n = ReduceSum(i, last)  y = Div(i, n)",
    "kept": _CONV + "z1 = Shape(c)  k = ConstantOfShape<value = float[1] {0.5}>(z1)  h = Cast<to = 10>(c)  f = Cast<to = 1>(h)  a = Add(f, k)  v1, i = TopK(a, last1)  y = Resize<mode=\"nearest\">(v1, , factors)",
    "branches": _CONV + "o1 = If(yes) <then_branch = t () => (float[1,4,6,6] o) { o = Relu(c) }, else_branch = e () => (float[1,4,6,6] o) { o = Neg(c) }>  y = Conv(o1, wd)",
}  # fmt: skip
_SCALES = {"": {}, "_tiny": {"u": 2e-8}, "_small": {"u": 2e-5}, "_large": {"u": 1000.0}}


@functools.lru_cache(maxsize=None)
def explicit_models() -> dict[str, onnx.ModelProto]:
    random = np.random.default_rng(1)
    shapes = {"w": (4, 4, 1, 1), "w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1), "w3": (4, 4, 1, 1), "v": (4, 4, 1, 1), "v8": (4, 8, 1, 1), "wg": (4, 1, 3, 3), "m6": (6, 6), "b": (4,)}  # fmt: skip
    arrays: dict[str, Any] = {name: random.uniform(-1, 1, size).astype(np.float32) for name, size in shapes.items()}
    numbers = {"s": 0.03, "t": 0.05, "u": 0.02, "sw": 0.01, "tiny": 1e-9, "big": 3e38, "k3": 3.0}
    arrays.update(z=np.int8(0), zu=np.uint8(100), zi=np.int8(-128), n6=np.ones(6, np.float32), yes=np.array([True]))
    arrays.update(last=np.array([3]), last1=np.array([6]), factors=np.array([1, 1, 2, 1], np.float32))
    found = dict(seeds())
    for name, body in _BODIES.items():
        for key, changed in _SCALES.items() if name in ("residual", "ends", "attention") else [("", {})]:
            given = {**arrays, **{k: np.float32(v) for k, v in {**numbers, **changed}.items()}}
            used = {k: v for k, v in given.items() if k in re.findall(r"\w+", body)}
            text = f"g (float[1,4,6,6] x) => (float[{'1,4,1,1' if 'Global' in body else 'a,b,c,d'}] y) {{ {body} }}"
            found[name + key] = model(text, opset=16 if "If(" in body else 17, **used)
    return found


# ---------------------------------------------------------------- inputs with one value


_CHOICES = {
    "once": "i = Equal(rate, wanted)",
    "computed": "r2 = Add(rate, wanted)  r3 = Cast<to = 1>(r2)  i = Greater(r3, far)",
    "of_sizes": "n = Shape(x)  n0 = Gather(n, wanted1)  i = Equal(n0, rate)",
}
_INSIDE = {
    "plain": "c = Neg(a)  o = Mul(c, far)",
    "outer": "o = Identity(a)",
    "nested": "i2 = Less(rate, wanted)  o = If(i2) <then_branch = t2 () => (float[1,4] o2) { c = Sin(a)  o2 = Abs(c) }, else_branch = e2 () => (float[1,4] o2) { o2 = Sqrt(a) }>",
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def fixed() -> tuple[dict[str, onnx.ModelProto], list[str]]:
    """Models with an If that an input selects, and what --shapes says about the input."""
    arrays = {
        "wanted": np.int64(4),
        "far": np.float32(6),
        "wanted1": np.int64(1),
        "s": np.float32(0.05),
        "z": np.int8(0),
    }
    found = {}
    for (name, choice), (way, inside) in itertools.product(_CHOICES.items(), _INSIDE.items()):
        body = f"{choice} {pair('x', 'xd')} a = Relu(xd)  y0 = If(i) <then_branch = t () => (float[1,4] o) {{ {inside} }}, else_branch = e () => (float[1,4] o) {{ c = Abs(a)  o = Add(c, a) }}>  y = Sin(y0)"
        used = {k: v for k, v in arrays.items() if k in re.findall(r"\w+", body)}
        found[f"{name}_{way}"] = model(f"g (float[1,4] x, int64 rate) => (float[1,4] y) {{ {body} }}", **used)
    return found, ["rate=4", "rate=1", "x=1", "sr=4", "x:2x4"]
