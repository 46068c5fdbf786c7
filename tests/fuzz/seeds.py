"""The models that are mutated: small, and between them every kind of quantizer and every pass."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.small_models import model, pair

_PARAMETERS = "int8 z = {0}, float s = {0.5}, float t = {0.25}"
_CONV = "net (float[1,4,8,8] x) => (float[1,{c},{h},{h}] y)"


def _weight(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 13 - 6).astype(np.float32) / 8


@functools.lru_cache(maxsize=None)
def seeds() -> tuple[tuple[str, onnx.ModelProto], ...]:
    """Name and model."""
    head = f"net (float[1,4,8,8] x) => (float[a,b,c,d] y) <{_PARAMETERS}>"
    flat = f"net (float[1,8] x) => (float[a,b] y) <{_PARAMETERS}>"
    w4, per_channel = _weight(4, 4, 3, 3), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    zeros = np.zeros(4, np.int8)
    a, b = pair("x", "a"), pair("c", "b", "t")
    conv = "c = Conv <pads = [1, 1, 1, 1]> (a, w, bias)"
    codes = (np.arange(144).reshape(4, 4, 3, 3) % 255 - 127).astype(np.int8)
    bias = np.arange(4, dtype=np.float32)
    made = {
        "conv": model(f"{head} {{ {a} {conv} {b} y = Relu(b) }}", w=w4, bias=bias),
        "per_channel": model(
            f"{head} {{ {a} wq = QuantizeLinear <axis = 0> (f, ws, wz) w = DequantizeLinear <axis = 0> (wq, ws, wz) "
            f"{conv} {b} y = Relu(b) }}",
            f=w4,
            ws=per_channel,
            wz=zeros,
            bias=bias,
        ),
        "codes": model(
            f"{head} {{ {a} w = DequantizeLinear <axis = 0> (q, ws, wz) bias = DequantizeLinear(bq, bs) {conv} {b} "
            "y = Relu(b) }",
            q=codes,
            ws=per_channel,
            wz=zeros,
            bq=np.arange(4, dtype=np.int32),
            bs=np.float32(0.01),
        ),
        "qcdq": model(
            f"{head} {{ {pair('x', 'a', extra='a_c = Clip(a_q, low, high)')} {conv} {b} y = Relu(b) }}",
            w=w4,
            bias=bias,
            low=np.int8(-127),
            high=np.int8(127),
        ),
        "batchnorm": model(
            f"{head} {{ {a} {conv} n = BatchNormalization(c, g, bias, bias, g) {pair('n', 'b')} y = Relu(b) }}",
            w=w4,
            bias=bias,
            g=np.ones(4, np.float32),
        ),
        "pad": model(
            f"{head} {{ {a} p = Pad(a, pads) c = Conv(p, w, bias) {b} m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b) "
            "y = Sigmoid(m) }",
            w=w4,
            bias=bias,
            pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        ),
        "split": model(
            f"{head} {{ {a} {conv} e, f = Split <axis = 1> (c) k = Concat <axis = 1> (e, f) {pair('k', 'b')} "
            "g = GlobalAveragePool(b) y = Mul(b, g) }",
            opset=13,
            w=w4,
            bias=bias,
        ),
        "moved": model(
            f"{head} {{ q = QuantizeLinear(x, s, z) r = Transpose <perm = [0, 2, 3, 1]> (q) "
            "v = Reshape(r, shape) b = DequantizeLinear(v, s, z) y = HardSwish(b) }",
            shape=np.array([1, 8, 8, 4]),
        ),
        "matmul": model(
            f"{flat} {{ {a} v = Transpose(f) {pair('v', 'w')} c = MatMul(a, w) d = Add(c, k) {pair('d', 'b')} "
            "y = Softmax(b) }",
            f=_weight(6, 8),
            k=_weight(6),
        ),
        "gemm": model(
            f"{flat} {{ {a} {pair('f', 'w')} c = Gemm <transB = 1, alpha = 0.5> (a, w, k) {b} y = Tanh(b) }}",
            f=_weight(6, 8),
            k=_weight(6),
        ),
        "integer_ends": model(
            "net (int8[1,8] x) => (int8[1,8] y) <int8 z = {0}, float s = {0.5}> "
            "{ a = DequantizeLinear(x, s, z) b = Relu(a) y = QuantizeLinear(b, s, z) }"
        ),
        "made_scale": model(
            f"{flat} {{ k = Constant <value_float = 0.5> () u = Reshape(k, one) v = Mul(u, u) w = Squeeze(v) "
            f"{pair('x', 'a', 'w')} y = Relu(a) }}",
            one=np.array([1]),
        ),
        "shapes": model(
            f"{head} {{ {a} h = Shape(a) g = Gather(h, one) n = Div(g, two) m = Slice(a, zero, n, one) {pair('m', 'b')} "
            "y = Relu(b) }",
            one=np.array([1]),
            two=np.array([2]),
            zero=np.array([0]),
        ),
        "depth": model(
            f'{head} {{ {a} {conv} d = DepthToSpace <blocksize = 2> (c) r = Resize <mode = "nearest"> (d, , scales) '
            f"{pair('r', 'b')} y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (b) }}",
            w=w4,
            bias=bias,
            scales=np.array([1, 1, 2, 2], np.float32),
        ),
        "half": model(
            "net (float16[1,8] x) => (float16[1,8] y) <int8 z = {0}> "
            f"{{ {pair('x', 'a', 's')} {pair('f', 'w', 's')} y = MatMul(a, w) }}",
            opset=19,
            f=_weight(8, 8).astype(np.float16),
            s=np.float16(0.5),
        ),
        "asymmetric": model(
            f"{flat} {{ {pair('x', 'a', 's', 'u')} y = Relu(a) }}",
            u=np.uint8(128),
        ),
    }
    made["body"] = _with_body()
    made["function"] = _with_function()
    made.update(_other_forms())
    return tuple(made.items())


def _with_body() -> onnx.ModelProto:
    """An If whose bodies read a tensor of the graph around them."""
    branch = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["inner"])],
        "g",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1, 8])],
    )
    made = model(f"net (float[1,8] x, bool which) => (float[1,8] y) <{_PARAMETERS}> {{ {pair('x', 'a')} y = Relu(a) }}")
    made.graph.node[-1].CopyFrom(helper.make_node("If", ["which"], ["y"], then_branch=branch, else_branch=branch))
    return made


def _with_function() -> onnx.ModelProto:
    """A local function around a pair."""
    imports = [helper.make_opsetid("", 17)]
    body = [
        helper.make_node("QuantizeLinear", ["f", "fs", "fz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "fs", "fz"], ["g"]),
    ]
    made = model(f"net (float[1,8] x) => (float[1,8] y) <{_PARAMETERS}> {{ a = Relu(x) y = Relu(a) }}")
    made.graph.node[0].CopyFrom(helper.make_node("Pair", ["x", "s", "z"], ["a"], domain="local"))
    made.opset_import.append(helper.make_opsetid("local", 1))
    made.functions.append(helper.make_function("local", "Pair", ["f", "fs", "fz"], ["g"], body, imports))
    return made


def _other_forms() -> dict[str, onnx.ModelProto]:
    """Rule Q13."""
    point = {"low": np.float32(-127), "high": np.float32(127), "k": np.float32(2)}
    fake = "{0}m = Mul({0}, k) {0}r = Round({0}m) {0}c = Clip({0}r, low, high) {0}q = Mul({0}c, s)"
    parameters = "<int8 z = {0}, float s = {0.5}>"
    w4, codes = _weight(4, 4, 3, 3), (np.arange(144).reshape(4, 4, 3, 3) % 255 - 127).astype(np.int8)
    image = f"net (float[1,4,8,8] x) => (float[a,b,c,d] y) {parameters}"
    return {
        "arithmetic": model(f"{image} {{ {fake.format('x')} {fake.format('w')} y = Conv(xq, wq) }}", w=w4, **point),
        "qlinear": model(
            f"{image} {{ q = QuantizeLinear(x, s, z) c = QLinearConv(q, s, z, w, s, z, s, z, bias) "
            "a = com.microsoft.QLinearAdd(c, s, z, c, s, z, s, z) y = DequantizeLinear(a, s, z) }",
            domains=("com.microsoft",),
            w=codes,
            bias=np.arange(4, dtype=np.int32),
        ),
        "integer_product": model(
            f"{image} {{ q = QuantizeLinear(x, s, z) i = ConvInteger(q, w, z) f = Cast <to = 1> (i) y = Mul(f, k) }}",
            w=codes,
            k=np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1),
        ),
        "qonnx": model(
            f"{image} {{ a = qonnx.custom_op.general.Quant <signed = 1, narrow = 1> (x, s, zero, bits) "
            "c = qonnx.custom_op.general.Quant <signed = 1, narrow = 0> (w, ws, zero, bits) y = Conv(a, c) }",
            domains=("qonnx.custom_op.general",),
            w=w4,
            ws=np.full((4, 1, 1, 1), 0.01, np.float32),
            zero=np.float32(0),
            bits=np.float32(8),
        ),
        "mct": model(
            f"{image} {{ a = mct_quantizers.ActivationUniformQuantizer <min_range = -2.0, max_range = 1.5, num_bits = 8> (x) "
            "c = mct_quantizers.WeightsSymmetricQuantizer <num_bits = 8, per_channel = 1, channel_axis = 0> (w, t) y = Conv(a, c) }",
            domains=("mct_quantizers",),
            w=w4,
            t=np.ones(4, np.float32),
        ),
    }
