"""Dialects of quantizers, one part after the other, for the records: what stands for a zero point, what between Q and DQ, how a
weight is quantized, and what reads it."""

from __future__ import annotations

import functools
import itertools
import json
import re
from typing import Any, Callable, Iterator

import numpy as np
import onnx

from tests.fuzz.seeds import seeds
from tests.small_models import model, pair

_ZEROS: dict[str, Any] = {
    "int8": np.int8(0), "shifted": np.int8(-5), "low": np.int8(-128), "uint8": np.uint8(128), "uint8_0": np.uint8(0),
    "uint8_3": np.uint8(3),
}  # fmt: skip
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
    return {name: (made, options) for name, made, options in (*_activations(), *_weights(), *_other_forms())}


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
        "wanted": np.int64(4), "far": np.float32(6), "wanted1": np.int64(1), "s": np.float32(0.05), "z": np.int8(0),
    }  # fmt: skip
    found = {}
    for (name, choice), (way, inside) in itertools.product(_CHOICES.items(), _INSIDE.items()):
        body = f"{choice} {pair('x', 'xd')} a = Relu(xd)  y0 = If(i) <then_branch = t () => (float[1,4] o) {{ {inside} }}, else_branch = e () => (float[1,4] o) {{ c = Abs(a)  o = Add(c, a) }}>  y = Sin(y0)"
        used = {k: v for k, v in arrays.items() if k in re.findall(r"\w+", body)}
        found[f"{name}_{way}"] = model(f"g (float[1,4] x, int64 rate) => (float[1,4] y) {{ {body} }}", **used)
    return found, ["rate=4", "rate=1", "x=1", "sr=4", "x:2x4"]


# ---------------------------------------------------------------- scales in a file beside a float model

WEIGHT = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
AIMET = {
    "activation_encodings": {
        "x": [{"bitwidth": 8, "dtype": "int", "offset": -128, "scale": 0.25, "is_symmetric": "True"}]
    },
    "param_encodings": {
        "w": [
            {"bitwidth": 8, "dtype": "int", "offset": -128, "scale": float(np.float32(s))}
            for s in np.abs(WEIGHT).max((1, 2, 3)) / 127
        ]
    },
}
PPQ = {
    "configs": {"Conv": {"x": {"bit_width": 8, "state": "ACTIVATED", "quant_min": -128, "quant_max": 127, "hash": 1, "dominator": 7},
                         "c": {"bit_width": 8, "state": "FP32", "quant_min": -128, "quant_max": 127, "hash": 2, "dominator": 2}}},
    "dispatchings": {}, "values": {"7": {"scale": 0.25, "zero_point": 0}},
}  # fmt: skip
TABLE = {
    "CLS": "TensorsData",
    "data": {"x": {"CLS": "TensorData", "lowest": {"data": [-31.75]}, "highest": {"data": [12.0]}}},
}
SCALE_FILES: list[Any] = [
        *(AIMET, PPQ, TABLE, "x 31.75\n", "TRT-8602-EntropyCalibration2\nx: 3e800000\n"),
        *("TRT-8XXX-EntropyCalibration2\nx: 3e800000\n", {"x": {"min": -31.75, "max": 20}}, {"x": {"amax": 31.75}}),
        *({"ranges": {"x": 31.75}}, {"scales": {"x": 0.25}}, {"x": {"scale": 0.25}}, {"int8_tensor_scales": {"x": 0.25}, "fp16_nodes": []}),
        *("x: 31.75\n", "x:31.750000\n", "x: 31.750000\nconv2d_0.w_0\n", "TRT-8XXX-EntropyCalibration2 \nx: 3e800000\n", "name;max\nx;31.75\n", {"x": [-31.75, 3]}, [{"name": "x", "scale": 0.25}], "name,max\nx,31.75\n", "tensor,scale\nx,0.25\n", "name,min,max\nx,-31.75,3\n"),
]  # fmt: skip
"""Each says that x has the scale 0.25."""


def aimet(**changed: Any) -> dict[str, Any]:
    row = {"bitwidth": 8, "dtype": "int", "scale": 0.1, "offset": -128, **changed}
    return {"activation_encodings": {"x": [row]}, "param_encodings": {}}


NO_SCALES: list[Any] = [
        *(aimet(bitwidth=bits) for bits in (10**12, 10**400, -3, 0, 1e300, "8" * 5000, None, [8])),
        *(aimet(offset=offset) for offset in (10**400, 1e308, "x", None, {})),
        *(aimet(scale=scale) for scale in (10**400, -1, "1e999", None, {}, [[0.1], [0.2, 0.3]])),
        {"activation_encodings": [{"name": 3, "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"activation_encodings": [{"name": None, "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"activation_encodings": [{"name": ["x"], "bw": 8, "scale": [0.1], "offset": [-128]}]},
        {"encodings": [{"name": 7, "output_dtype": "int8", "y_scale": [0.1]}]},
        {"encodings": [{"name": {}, "output_dtype": "int8", "y_scale": [0.1]}]},
        {"encodings": [{"name": "x", "output_dtype": "int1000000000000", "y_scale": [0.1]}]},
        {"encodings": [{"name": "x", "output_dtype": "int8", "y_scale": [0.1], "y_zero_point": 10**400}]},
        {"configs": {"a": {"x": {"bit_width": 8, "hash": 1, "quant_min": -(10**400), "quant_max": 1}}}, "values": {"1": {"scale": 1}}},
        *({"x": value} for value in (0, "NaN", 10**400, None, True, [], {}, {"max": None}, {"min": 0, "max": 0}, {"scale": -1}, {"scale": []})),
        *('{"x": NaN}', '{"x": Infinity}', '{"x": 1e999}', "x: nan\n", "x,inf\n", "x: 1e999.\n", "name,max\n", ",1.0\n", ":1.0\n", "[" * 100_000),
        '{"x": ' * 50_000,
]  # fmt: skip
_OTHERS: list[Any] = [
    "x 31.75\ny 12.7\n", "x 31.75\nc 25.4\nother 3\n",
    "other 3.0\n", "x nan\n", '{"activation_encodings": {"x": [{"bitwidth": 8, "offset": 0, "scale": NaN}]}}', '{"activation_encodings": {"x": [{"bitwidth": 8}]}}', '{"activation_encodings": {"c1": {"input": {"0": {"bitwidth": 8}}}}}', '{"activation_encodings": {"x": [{"bitwidth": 16, "offset": -32768, "scale": 0.1}]}}', '{"param_encodings": {}, "activation_encodings": {"x": [{"bitwidth": 8, "offset": -128, "scale": 0.1}, {"bitwidth": 8, "offset": -128, "scale": 0.2}]}}', '{"something": "1"}', '{"activation_', '{"x": 31.75}', '{"data": {"x": 31.75}}', "x, 31.75\n", "c_param_0 12.5 33.1\nc 4.0\n", "\x89HDF\r\n\x1a\n", "hello\n", "TRT-8602-EntropyCalibration2\nx: 3e800000\nbroken\n",
    ("t02_ranges.json", {"x": 31.75}), ("net-scales.json", {"x": 0.25}), ("amax.csv", "x,31.75\n"),
    {"encodings": [{"name": "w", "output_dtype": "int8", "y_scale": [[0.1], [0.2]], "axis": 0, "block_size": 2}]},
    {"encodings": [{"name": "x", "output_dtype": "uint8", "y_scale": 0.05, "y_zero_point": 3}, {"name": "w", "output_dtype": "int8", "y_scale": [0.1, 0.2, 0.3, 0.4], "axis": 0}, {"name": "c", "output_dtype": "int16", "y_scale": 0.1}]},
    {"encodings": [{"name": "w", "output_dtype": "int8", "y_scale": [0.1, 0.2, 0.3], "axis": 1, "y_zero_point": [0, 1, 0]}]},
    {"activation_encodings": [{"name": "x", "bw": 8, "is_sym": False, "enc_type": "PER_TENSOR", "scale": [0.1], "offset": [-100]}], "param_encodings": [{"name": "w", "bw": 8, "is_sym": True, "enc_type": "PER_BLOCK", "block_size": 2, "scale": [0.1], "offset": [-128]}]},
    {"activation_encodings": {"y": [{"bitwidth": 8, "offset": 0, "scale": 0.1}], "w": [{"bitwidth": 8, "offset": -128, "scale": 0.1}] * 3}, "param_encodings": {}},
    {"int8_tensor_scales": {"x": 0.25, "c": 0.5, "y": 0.125}, "fp16_nodes": ["r"]}, {"x": [0.5, 3], "c": [-2, -1]}, [{"tensor": "x", "scale": 0.25}, {"name": "y", "scale": 0.1}],
]  # fmt: skip


def floats() -> onnx.ModelProto:
    return model("g (float[1,3,8,8] x) => (float[1,4,6,6] y) { c = Conv(x, w)  y = Relu(c) }", w=WEIGHT)


def sidecars() -> dict[str, tuple[str, str]]:
    """Name -> name and content of a file of scales for `floats`; those that begin with `q` meet a model with Q/DQ."""
    found: dict[str, tuple[str, str]] = {}
    for name, rows in (("taken", SCALE_FILES), ("other", _OTHERS), ("none", NO_SCALES), ("q", SCALE_FILES[:2])):
        for number, row in enumerate(rows):
            file, content = row if isinstance(row, tuple) else ("given", row)
            text = content if isinstance(content, str) else json.dumps(content)
            if len(text) < 5000:
                found[f"{name}{number}"] = file, text
    return found


# ---------------------------------------------------------------- other quantized forms (rule Q13)

FOREIGN = ("qonnx.custom_op.general", "com.amd.quark", "mct_quantizers")
ARITHMETIC = {
    "div": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  d = Mul(c, s)",
    "mul": "a = Mul(x, k)  r = Round(a)  c = Clip(r, lo, hi)  d = Mul(c, s)",
    "div behind": "a = Mul(x, k)  r = Round(a)  c = Clip(r, lo, hi)  d = Div(c, k)",
    "clip first": "a = Div(x, s)  b = Clip(a, lo, hi)  r = Round(b)  d = Mul(r, s)",
    "min and max": "a = Div(x, s)  r = Round(a)  b = Max(lo, r)  c = Min(b, hi)  d = Mul(s, c)",
    "where": "a = Div(x, s)  r = Round(a)  g = Greater(r, hi)  b = Where(g, hi, r)  l = Less(b, lo)  c = Where(l, lo, b)  d = Mul(c, s)",
    "zero point": "a = Div(x, s)  r = Round(a)  b = Add(r, z)  c = Clip(b, zero, top)  e = Sub(c, z)  d = Mul(e, s)",
    "zero point before": "a = Div(x, s)  b = Add(a, z)  r = Round(b)  c = Clip(r, zero, top)  e = Sub(c, z)  d = Mul(e, s)",
    "estimator": "a = Div(x, s)  b = Clip(a, lo, hi)  r = Round(b)  u = Sub(r, b)  v = Add(b, u)  d = Mul(v, s)",
    "estimator behind": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  e = Mul(c, s)  u = Sub(e, x)  d = Add(x, u)",
    "pact": "p = Clip(x, zero, alpha)  a = Mul(p, k)  r = Round(a)  d = Div(r, k)",
    "casts": "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  i = Cast<to=3>(c)  f = Cast<to=1>(i)  d = Mul(f, s)",
}  # fmt: skip
CONSTANTS = {"s": 2.0**-5, "k": 2.0**5, "lo": -127, "hi": 127, "z": 128, "zero": 0, "top": 255, "alpha": 3.96875}


def arithmetic(body: str, **more: Any) -> onnx.ModelProto:
    used = {
        name: np.float32(value)
        for name, value in {**CONSTANTS, **more}.items()
        if name in body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    return model(f"g (float[2,3,8,8] x) => (float[2,3,8,8] y) {{ {body} y = Abs(d) }}", **used)


POINTS = {"s": np.float32(2**-6), "z": np.int8(0), "u": np.float32(2**-4), "h": np.int8(-3)}
QUANTIZED = {
    "Conv": "b = QLinearConv<pads=[1,1,1,1]>(a, s, z, w, ws, wz, u, h, bias)",
    "MatMul": "f = Reshape(a, flat)  b = QLinearMatMul(f, s, z, m, ms, mz, u, z)",
    "Add": "b = com.microsoft.QLinearAdd(a, s, z, a, s, z, u, z)",
    "Mul": "b = com.microsoft.QLinearMul(a, s, z, a, s, z, u, z)",
    "Sigmoid": "b = com.microsoft.QLinearSigmoid(a, s, z, u, h)",
    "LeakyRelu": "b = com.microsoft.QLinearLeakyRelu<alpha=0.25>(a, s, z, u, z)",
    "Concat": "b = com.microsoft.QLinearConcat<axis=1>(u, z, a, s, z, a, s, z)",
    "GlobalAveragePool": "b = com.microsoft.QLinearGlobalAveragePool(a, s, z, u, z)",
    "AveragePool": "b = com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(a, s, z, u, z)",
    "Gemm": "f = Reshape(a, flat)  b = com.microsoft.QGemm<transB=1>(f, s, z, g, ms, mz, gb, u, z)",
    "Gemm, weights by rows": "f = Reshape(a, flat)  b = com.microsoft.QGemm(f, s, z, m, ms, mz, gb, u, z)",
    "pool between": "p = MaxPool<kernel_shape=[2,2]>(a)  b = com.microsoft.QLinearAdd(p, s, z, p, s, z, u, z)",
}


def quantized(body: str) -> onnx.ModelProto:
    weight = np.random.default_rng(3).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    arrays = {
        **POINTS, "w": weight, "ws": np.array([1, 2, 4, 8], np.float32) * 2**-9, "wz": np.zeros(4, np.int8), "bias": np.array([5, -900, 44, 7], np.int32),
        "flat": np.array([24, 16]), "m": np.random.default_rng(3).integers(-127, 128, (16, 5)).astype(np.int8), "g": np.random.default_rng(3).integers(-127, 128, (5, 16)).astype(np.int8),
        "ms": np.array([1, 2, 4, 8, 1], np.float32) * 2**-9, "mz": np.zeros(5, np.int8), "gb": np.arange(5, dtype=np.int32) * 100,
        "product": np.array([1, 2, 4, 8], np.float32).reshape(4, 1, 1) * 2**-15,
    }  # fmt: skip
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split()) | {"s", "z", "u", "h"}
    sizes = "A,B" if "flat" in body else "A,B,C,D"
    if "b = " not in body:
        text = f"g (float[2,3,8,8] x) => (float[{sizes}] y) {{ a = QuantizeLinear(x, s, z)  {body} }}"
    else:
        point = "h" if body.rstrip(", bias)").endswith("h") else "z"
        text = f"g (float[2,3,8,8] x) => (float[{sizes}] y) {{ a = QuantizeLinear(x, s, z)  {body}  y = DequantizeLinear(b, u, {point}) }}"
    return model(text, domains=("com.microsoft",), **{k: v for k, v in arrays.items() if k in words})


INTEGER_PRODUCTS = [
    ("i = ConvInteger<pads=[1,1,1,1]>(a, w, z)  c = Cast<to=1>(i)  y = Mul(c, product)", "Conv"),
    (
        "f = Reshape(x, flat)  k = QuantizeLinear(f, s, z)  i = MatMulInteger(k, m, z)  c = Cast<to=1>(i)  y = Mul(c, s)",
        "MatMul",
    ),
]


def foreign(node: str, **arrays: Any) -> onnx.ModelProto:
    return model(f"g (float[2,3,8,8] x) => (float[2,3,8,8] y) {{ {node}  y = Abs(d) }}", domains=FOREIGN, **arrays)


_MORE_ARITHMETIC = [
    "a = Div(x, s)  r = Round(a)  g = Less(r, hi)  b = Where(g, hi, r)  d = Mul(b, s)", "a = Div(x, s)  r = Round(a)  c = Min(hi, r)  d = Mul(c, s)",
    "a = Div(x, s)  r = Round(a)  g = Greater(r, hi)  b = Where(g, r, hi)  d = Mul(b, s)", "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  d = Mul(c, k)",
    "a = Div(x, s)  r = Round(a)  b = Sub(r, z)  c = Clip(b, lo, hi)  e = Add(c, z)  d = Mul(e, s)", "a = Div(x, s)  r = Floor(a)  c = Clip(r, lo, hi)  d = Mul(c, s)",
    "a = Div(x, s)  r = Round(a)  u = Relu(r)  c = Min(u, top)  d = Mul(c, s)", "a = Div(x, s)  r = Round(a)  c = Clip(r, lo, hi)  e = Mul(c, s)  d = Add(e, r)",
    "p = Clip(x, zero, alpha)  a = Mul(p, k)  r = Round(a)  c = Clip(r, zero, top)  d = Div(c, k)", "a = Mul(k, x)  r = Round(a)  c = Clip(r, zero, hi)  d = Mul(s, c)",
]  # fmt: skip
_QONNX = (
    (1, 0, "ROUND", "z", 8), (1, 1, "ROUND", "z", 8), (0, 0, "ROUND", "z", 8), (1, 0, "FLOOR", "z", 8), (1, 0, "ROUND", "z", 4), (1, 0, "ROUND", "z", 16),
    (0, 1, "ROUND", "z3", 8), (1, 0, "ROUND", "z", 0),
)  # fmt: skip
_MCT = (
    "SymmetricQuantizer<threshold = 3.0, signed = 1, num_bits = 8>", "SymmetricQuantizer<threshold = 3.0, signed = 0, num_bits = 8>", "POTQuantizer<threshold = 4.0, signed = 0, num_bits = 7>",
    "UniformQuantizer<min_range = -2.0, max_range = 1.984375, num_bits = 8>", "UniformQuantizer<min_range = 1.0, max_range = 1.0, num_bits = 8>", "LutQuantizer<num_bits = 8>",
    "SymmetricQuantizer<threshold = 3.0, signed = 1, num_bits = 16>", "UniformQuantizer<min_range = 0.5, max_range = 2.0, num_bits = 4>",
)  # fmt: skip
_NODES = [
    *(f'd = qonnx.custom_op.general.Quant<signed = {a}, narrow = {b}, rounding_mode = "{mode}">(x, s, {z}, b{bits})' for a, b, mode, z, bits in _QONNX),
    "d = qonnx.custom_op.general.Quant(x, s3, z, b8)", "d = qonnx.custom_op.general.Quant(x, s, z8, b8)", "n = Abs(s)  d = qonnx.custom_op.general.Quant(x, n, z, b8)",
    "d = qonnx.custom_op.general.BipolarQuant(x, s)", "d = qonnx.custom_op.general.Trunc(x, s, z, b8, b4)", *(f"d = mct_quantizers.Activation{kind}(x)" for kind in _MCT),
]  # fmt: skip
_MORE_QUANTIZED = [
    "b = com.microsoft.QLinearSoftmax<axis=1, opset=13>(a, s, z, u, h)", "b = com.microsoft.QLinearSoftmax<axis=1, opset=11>(a, s, z, u, h)", "b = com.microsoft.QLinearGlobalAveragePool<channels_last=1>(a, s, z, u, z)",
    "b = com.microsoft.QLinearReduceMean<axes=[2,3], keepdims=1>(a, s, z, u, z)", "b = com.microsoft.QLinearAdd(a, s, z, a, s, , u, z)", "f = Reshape(a, flat)  b = com.microsoft.QGemm<alpha=0.5>(f, s, z, m, ms, mz, , u, z)",
    "b = QLinearConv<pads=[1,1,1,1]>(a, s, z, w, ws, wz, u, h)", "b = com.microsoft.QLinearLeakyRelu(a, s, z, u, h)", "k = Abs(s)  b = com.microsoft.QLinearAdd(a, k, z, a, s, z, u, z)",
]  # fmt: skip


def _other_forms() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    changes: list[dict[str, Any]] = [{}, {"s": 0.03, "k": 1 / 0.03}, {"hi": 126, "z": 120}]
    forms = [arithmetic(body, **more) for body in (*ARITHMETIC.values(), *_MORE_ARITHMETIC) for more in changes]
    points = {"s": np.float32(0.0371), "z": np.float32(0), "z3": np.float32(3), "z8": np.zeros(8, np.float32)}
    points["s3"] = np.array([0.1, 0.2, 0.3], np.float32).reshape(3, 1, 1)
    points.update({f"b{bits}": np.float32(bits) for bits in (0, 4, 8, 16)})
    for node in _NODES:
        forms.append(foreign(node, **{k: v for k, v in points.items() if k in re.findall(r"\w+", node)}))
    forms += map(quantized, (*QUANTIZED.values(), *(body for body, _ in INTEGER_PRODUCTS), *_MORE_QUANTIZED))
    for number, made in enumerate(forms):
        yield f"form{number}", made, {"asymmetric": "widen"}


# ---------------------------------------------------------------- damaged models


def _edit(change: Callable[[onnx.GraphProto], object]) -> onnx.ModelProto:
    text = f"g (float[1,4,6,6] x) => (float[a,b,c] y) {{ {pair('x', 'd')} c = Conv<pads=[0,0,0,0]>(d, w)  t = Transpose<perm=[0,1,3,2]>(c)  y = Reshape(t, r) }}"
    made = model(text, s=np.float32(0.05), z=np.int8(0), w=np.ones((4, 4, 1, 1), np.float32), r=np.array([1, 4, 36]))
    change(made.graph)
    return made


def _more(op: str, **attributes: Any) -> Callable[[onnx.GraphProto], object]:
    return lambda g: g.node.append(onnx.helper.make_node(op, ["c"], ["more"], **attributes))


def _array(index: int, values: Any, name: str) -> Callable[[onnx.GraphProto], object]:
    return lambda g: g.initializer[index].CopyFrom(onnx.numpy_helper.from_array(np.array(values), name))


def _open(g: onnx.GraphProto) -> None:
    g.input[0].type.tensor_type.shape.dim[0].dim_param = "n"


_PER_CHANNEL = _array(0, np.full(4, 0.05, np.float32), "s")
DAMAGES: list[Callable[[onnx.GraphProto], object]] = [
    lambda g: g.ClearField("output"),
    lambda g: [g.output[0].type.tensor_type.shape.dim.add() for _ in range(100)],
    lambda g: g.node[2].ClearField("output"),
    lambda g: g.node[2].input.extend(["w", "w", "w"]),
    lambda g: g.node[2].input.pop(),
    lambda g: g.node[2].input.__setitem__(1, ""),
    lambda g: g.node[2].output.extend(["more", "most"]),
    lambda g: g.node[2].attribute.append(onnx.helper.make_attribute("group", "one")),
    lambda g: setattr(g.node[3].attribute[0], "name", "order"),
    lambda g: g.initializer[2].dims.__setitem__(0, -4),
    lambda g: g.initializer[2].dims.__setitem__(0, 2**50),
    lambda g: g.initializer[2].dims.extend([1] * 100),
    lambda g: setattr(g.initializer[2], "data_type", 99),
    lambda g: setattr(g.initializer[2], "data_location", 1),
    lambda g: setattr(g.initializer[2], "raw_data", g.initializer[2].raw_data[:-1]),
    lambda g: (g.initializer[2].ClearField("raw_data"), g.initializer[2].float_data.extend([1.0] * 3)),
    lambda g: g.node[0].output.__setitem__(0, "d"),
    lambda g: g.node[0].input.__setitem__(0, "nothing"),
    lambda g: g.output.append(onnx.ValueInfoProto(name="nothing")),
    lambda g: (_open(g), _array(3, [3, 4, 36], "r")(g)),
    *(_open, _PER_CHANNEL, _array(3, [1, 4, 35], "r"), _more("Concat"), _more("DepthToSpace", blocksize=4)),
    *(_more("SpaceToDepth", blocksize=5), _more("SpaceToDepth", blocksize=0), _more("DepthToSpace", name="n", blocksize=2), _array(3, [3, 4, 36], "r")),
]  # fmt: skip


@functools.lru_cache(maxsize=None)
def damaged() -> dict[str, onnx.ModelProto]:
    """One thing wrong with each (or nothing), and opsets that are too old or too new for a scale per channel."""
    found = {f"damage{number}": _edit(change) for number, change in enumerate(DAMAGES)}
    for version in (0, 9, 12, 1001):
        found[f"opset{version}"] = _edit(_PER_CHANNEL)
        found[f"opset{version}"].opset_import[0].version = version
    return found
