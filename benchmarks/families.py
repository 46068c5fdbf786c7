"""Networks by family, written down from their papers as ONNX graphs of full size with weights of one value.

They need no framework. Only structure and sizes count: `benchmarks.gpu_cost` fits published times of some of them, and
`benchmarks.regions` plans all of them.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A float network that grows by one node a call; each method takes and returns tensor names. `shape` holds the sizes of
    every tensor, as far as the methods need them."""

    def __init__(self, *shape: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.input = list(shape)
        self.shape: dict[str, tuple[int, ...]] = {"x": shape}
        self.rng = np.random.default_rng(0)

    def const(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) or 1
        return self.const(self.rng.uniform(-1, 1, shape).astype(np.float32) / np.sqrt(fan))

    def op(self, kind: str, *inputs: str, shape: Sequence[int] = (), **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name, **attributes))
        self.shape[f"{name}_out"] = tuple(shape) or self.shape[inputs[0]]
        return f"{name}_out"

    def model(self, *outputs: str) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(self.shape[name])) for name in outputs]
        first = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)
        graph = helper.make_graph(self.nodes, "network", [first], ends, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    # ---------------- images

    def conv(self, x: str, out: int, k: int = 1, s: int = 1, act: str = "", g: int = 1, d: int = 1) -> str:
        n, c, h, w = self.shape[x]
        pad = d * (k // 2)
        shape = (n, out, (h - 1) // s + 1, (w - 1) // s + 1)
        y = self.op("Conv", x, self.weight(out, c // g, k, k), self.const(np.zeros(out)), shape=shape, group=g,
                    kernel_shape=[k, k], strides=[s, s], pads=[pad] * 4, dilations=[d, d])  # fmt: skip
        return self.act(y, act)

    def act(self, x: str, kind: str) -> str:
        if kind == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "Gelu":
            erf = self.op("Erf", self.op("Div", x, self.const(np.sqrt(2))))
            return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.const(1))), self.const(0.5))
        return self.op(kind, x) if kind else x

    def add(self, x: str, y: str) -> str:
        return self.op("Add", x, y)

    def cat(self, *xs: str, axis: int = 1) -> str:
        shape = list(self.shape[xs[0]])
        shape[axis] = sum(self.shape[x][axis] for x in xs)
        return self.op("Concat", *xs, shape=shape, axis=axis)

    def split(self, x: str, *sizes: int, axis: int = 1) -> list[str]:
        y = self.op("Split", x, self.const(sizes, np.int64), axis=axis)
        node, base = self.nodes[-1], list(self.shape[x])
        del node.output[:]
        names = [f"{y}_{i}" for i in range(len(sizes))]
        node.output.extend(names)
        for name, size in zip(names, sizes):
            self.shape[name] = (*base[:axis], size, *base[axis + 1 :])
        return names

    def pool(self, x: str, k: int, s: int, kind: str = "MaxPool") -> str:
        n, c, h, w = self.shape[x]
        shape = (n, c, (h - 1) // s + 1, (w - 1) // s + 1) if k % 2 else (n, c, h // s, w // s)
        return self.op(kind, x, shape=shape, kernel_shape=[k, k], strides=[s, s], pads=[k // 2 if k % 2 else 0] * 4)

    def mean(self, x: str) -> str:
        return self.op("GlobalAveragePool", x, shape=(*self.shape[x][:2], 1, 1))

    def up(self, x: str, factor: int = 2, mode: str = "nearest") -> str:
        n, c, h, w = self.shape[x]
        scales = self.const([1, 1, factor, factor])
        more = {"nearest": {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}}.get(mode, {})
        return self.op("Resize", x, "", scales, shape=(n, c, h * factor, w * factor), mode=mode, **more)

    def gate(self, x: str, squeeze: int, act: str = "Relu") -> str:
        inner = self.conv(self.conv(self.mean(x), squeeze, act=act), self.shape[x][1], act="Sigmoid")
        return self.op("Mul", x, inner)

    # ---------------- sequences

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.const(shape, np.int64), shape=shape)

    def turn(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, shape=[self.shape[x][axis] for axis in perm], perm=list(perm))

    def linear(self, x: str, out: int, act: str = "", bias: bool = True) -> str:
        *rest, size = self.shape[x]
        y = self.op("MatMul", x, self.weight(size, out), shape=(*rest, out))
        return self.act(self.op("Add", y, self.const(np.zeros(out))) if bias else y, act)

    def norm(self, x: str) -> str:
        """LayerNormalization over the last axis, as PyTorch exports it below opset 17."""
        size = self.shape[x][-1]
        mean_of = {"axes": [-1], "keepdims": 1}
        shape = (*self.shape[x][:-1], 1)
        centred = self.op("Sub", x, self.op("ReduceMean", x, shape=shape, **mean_of))
        square = self.op("Pow", centred, self.const(2))
        variance = self.op("ReduceMean", square, shape=shape, **mean_of)
        root = self.op("Sqrt", self.op("Add", variance, self.const(1e-6)))
        scaled = self.op("Mul", self.op("Div", centred, root), self.const(np.ones(size)))
        return self.op("Add", scaled, self.const(np.zeros(size)))

    def heads(self, x: str, heads: int) -> str:
        n, length, size = self.shape[x]
        return self.turn(self.reshape(x, n, length, heads, size // heads), 0, 2, 1, 3)

    def attend(self, q: str, k: str, v: str, heads: int) -> str:
        """Multi-head attention of sequences [N, L, C]."""
        n, length, size = self.shape[q]
        q, k, v = self.heads(q, heads), self.turn(self.heads(k, heads), 0, 1, 3, 2), self.heads(v, heads)
        scores = self.op("MatMul", q, k, shape=(n, heads, length, self.shape[k][-1]))
        scores = self.op("Softmax", self.op("Mul", scores, self.const((size // heads) ** -0.5)), axis=-1)
        y = self.op("MatMul", scores, v, shape=(n, heads, length, self.shape[v][-1]))
        return self.reshape(self.turn(y, 0, 2, 1, 3), n, length, heads * self.shape[v][-1])

    def self_attention(self, x: str, heads: int) -> str:
        size = self.shape[x][-1]
        q, k, v = self.split(self.linear(x, 3 * size), size, size, size, axis=2)
        return self.linear(self.attend(q, k, v, heads), size)

    def block(self, x: str, heads: int, ratio: int = 4, act: str = "Gelu") -> str:
        """Encoder block with normalization first."""
        x = self.add(x, self.self_attention(self.norm(x), heads))
        size = self.shape[x][-1]
        return self.add(x, self.linear(self.linear(self.norm(x), ratio * size, act), size))

    def tokens(self, x: str) -> str:
        """[N, C, H, W] -> [N, H * W, C]."""
        n, c, h, w = self.shape[x]
        return self.turn(self.reshape(x, n, c, h * w), 0, 2, 1)

    def image(self, x: str, h: int, w: int) -> str:
        n, _, c = self.shape[x]
        return self.reshape(self.turn(x, 0, 2, 1), n, c, h, w)

    def classify(self, x: str, classes: int = 1000) -> str:
        n, c = self.shape[x][:2]
        flat = self.op("Flatten", self.mean(x), shape=(n, c))
        return self.op(
            "Gemm", flat, self.weight(classes, c), self.const(np.zeros(classes)), shape=(n, classes), transB=1
        )


# ---------------- detectors of the YOLO family (ultralytics' descriptions of v8 and 11)


def _bottleneck(b: Net, x: str, e: float) -> str:
    c = b.shape[x][1]
    return b.add(x, b.conv(b.conv(x, int(c * e), 3, act="Silu"), c, 3, act="Silu"))


def _c3k(b: Net, x: str) -> str:
    c = b.shape[x][1] // 2
    y = b.conv(x, c, act="Silu")
    for _ in range(2):
        y = _bottleneck(b, y, 1.0)
    return b.conv(b.cat(y, b.conv(x, c, act="Silu")), 2 * c, act="Silu")


def _c2f(b: Net, x: str, out: int, n: int, kind: str, e: float = 0.5) -> str:
    """kind: '8' (full bottlenecks), '11' (half ones) or 'c3k'."""
    c = int(out * e)
    parts = b.split(b.conv(x, 2 * c, act="Silu"), c, c)
    for _ in range(n):
        parts.append(_c3k(b, parts[-1]) if kind == "c3k" else _bottleneck(b, parts[-1], 1.0 if kind == "8" else 0.5))
    return b.conv(b.cat(*parts), out, act="Silu")


def _sppf(b: Net, x: str) -> str:
    c = b.shape[x][1]
    parts = [b.conv(x, c // 2, act="Silu")]
    for _ in range(3):
        parts.append(b.pool(parts[-1], 5, 1))
    return b.conv(b.cat(*parts), c, act="Silu")


def _psa(b: Net, x: str, n: int) -> str:
    """C2PSA: attention over positions in half of the channels."""
    full = b.shape[x][1]
    c = full // 2
    kept, y = b.split(b.conv(x, full, act="Silu"), c, c)
    _, _, h, w = b.shape[y]
    heads = max(1, c // 64)
    key, value = c // heads // 2, c // heads
    for _ in range(n):
        qkv = b.reshape(b.conv(y, c + 2 * heads * key), 1, heads, 2 * key + value, h * w)
        q, k, v = b.split(qkv, key, key, value, axis=2)
        scores = b.op("MatMul", b.turn(q, 0, 1, 3, 2), k, shape=(1, heads, h * w, h * w))
        scores = b.op("Softmax", b.op("Mul", scores, b.const(key**-0.5)), axis=-1)
        z = b.op("MatMul", v, b.turn(scores, 0, 1, 3, 2), shape=(1, heads, value, h * w))
        image = b.conv(b.reshape(v, 1, c, h, w), c, 3, g=c)
        y = b.add(y, b.conv(b.add(b.reshape(z, 1, c, h, w), image), c))
        y = b.add(y, b.conv(b.conv(y, 2 * c, act="Silu"), c))
    return b.conv(b.cat(kept, y), full, act="Silu")


def _detect(b: Net, maps: Sequence[str], version: int, classes: int = 80) -> str:
    boxes, scores, first = [], [], b.shape[maps[0]][1]
    c2, c3 = max(16, first // 4, 64), max(first, min(classes, 100))
    for x in maps:
        c = b.shape[x][1]
        box = b.conv(b.conv(b.conv(x, c2, 3, act="Silu"), c2, 3, act="Silu"), 64)
        if version == 8:
            y = b.conv(b.conv(x, c3, 3, act="Silu"), c3, 3, act="Silu")
        else:
            y = b.conv(b.conv(x, c, 3, act="Silu", g=c), c3, act="Silu")
            y = b.conv(b.conv(y, c3, 3, act="Silu", g=c3), c3, act="Silu")
        _, _, h, w = b.shape[x]
        boxes.append(b.reshape(box, 1, 64, h * w))
        scores.append(b.reshape(b.conv(y, classes), 1, classes, h * w))
    box, score = b.cat(*boxes, axis=2), b.cat(*scores, axis=2)
    places = b.shape[box][2]
    bins = b.op("Softmax", b.turn(b.reshape(box, 1, 4, 16, places), 0, 2, 1, 3), axis=1)
    near = b.op("Conv", bins, b.weight(1, 16, 1, 1), shape=(1, 1, 4, places), kernel_shape=[1, 1])
    left, right = b.split(b.reshape(near, 1, 4, places), 2, 2)
    anchors = b.const(np.zeros((1, 2, places)))
    low, high = b.op("Sub", anchors, left, shape=b.shape[left]), b.op("Add", right, anchors)
    centre = b.op("Div", b.add(low, high), b.const(2))
    whole = b.op("Mul", b.cat(centre, b.op("Sub", high, low)), b.const(np.ones((1, places))))
    return b.cat(whole, b.op("Sigmoid", score))


def yolo(version: int, size: str, side: int = 640) -> onnx.ModelProto:
    """YOLOv8 or YOLO11 with decode tail. size: n, s, m, l or x."""
    table = {
        "n": (0.34, 0.25, 1024),
        "s": (0.34, 0.5, 1024),
        "m": (0.67, 0.75, 768),
        "l": (1, 1, 512),
        "x": (1, 1.25, 512),
    }
    new = {"n": (0.5, 0.25, 1024), "s": (0.5, 0.5, 1024), "m": (0.5, 1, 512), "l": (1, 1, 512), "x": (1, 1.5, 512)}
    depth, width, most = (table if version == 8 else new)[size]
    b, deep = Net(1, 3, side, side), version == 11 and size in "mlx"

    def c(channels: int) -> int:
        return -(-int(min(channels, most) * width) // 8) * 8

    def n(count: int) -> int:
        return max(1, round(count * depth))

    def stage(x: str, out: int, count: int, first: bool) -> str:
        if version == 8:
            return _c2f(b, x, c(out), n(count), "8")
        return _c2f(
            b, x, c(out), n(2), "c3k" if deep or not first else "11", 0.25 if first and out < 1024 and down else 0.5
        )

    down, x = True, b.conv(b.conv("x", c(64), 3, 2, "Silu"), c(128), 3, 2, "Silu")
    outs = (128, 256, 512, 1024) if version == 8 else (256, 512, 512, 1024)
    x = stage(x, outs[0], 3, True)
    p3 = stage(b.conv(x, c(256), 3, 2, "Silu"), outs[1], 6, True)
    p4 = stage(b.conv(p3, c(512), 3, 2, "Silu"), outs[2], 6, False)
    x = stage(b.conv(p4, c(1024), 3, 2, "Silu"), outs[3], 3, False)
    x = _sppf(b, x)
    p5, down = (_psa(b, x, n(2)) if version == 11 else x), False

    def join(x: str, out: int, last: bool = False) -> str:
        return _c2f(b, x, c(out), n(3 if version == 8 else 2), "8" if version == 8 else "c3k" if deep or last else "11")

    up4 = join(b.cat(b.up(p5), p4), 512)
    out3 = join(b.cat(b.up(up4), p3), 256)
    out4 = join(b.cat(b.conv(out3, c(256), 3, 2, "Silu"), up4), 512)
    out5 = join(b.cat(b.conv(out4, c(512), 3, 2, "Silu"), p5), 1024, True)
    return b.model(_detect(b, (out3, out4, out5), version))


# ---------------- classifiers


def resnet(depth: int = 50, side: int = 224) -> onnx.ModelProto:
    b, counts = Net(1, 3, side, side), {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]
    return b.model(b.classify(_resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), counts, depth >= 50)[-1]))


def _resnet(b: Net, x: str, counts: Sequence[int], deep: bool) -> list[str]:
    maps = []
    for stage, count in enumerate(counts):
        width = 64 << stage
        for index in range(count):
            s, out = 2 if stage and not index else 1, width * 4 if deep else width
            short = b.conv(x, out, 1, s) if b.shape[x][1] != out or s > 1 else x
            if deep:
                y = b.conv(b.conv(b.conv(x, width, act="Relu"), width, 3, s, "Relu"), out)
            else:
                y = b.conv(b.conv(x, width, 3, s, "Relu"), out, 3)
            x = b.op("Relu", b.add(y, short))
        maps.append(x)
    return maps


def mobile(gated: bool, act: str = "Silu", side: int = 224) -> onnx.ModelProto:
    """MobileNetV2 (EfficientNet-Lite), or EfficientNet-B0 with gates."""
    b = Net(1, 3, side, side)
    x = b.conv("x", 32, 3, 2, act)
    rows = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    for ratio, out, count, stride, k in rows:
        for index in range(count):
            c, s = b.shape[x][1], stride if not index else 1
            y = b.conv(x, c * ratio, act=act) if ratio > 1 else x
            y = b.conv(y, c * ratio, k, s, act, g=c * ratio)
            y = b.conv(b.gate(y, max(8, c // 4), act) if gated else y, out)
            x = b.add(x, y) if s == 1 and c == out else y
    return b.model(b.classify(b.conv(x, 1280, act=act)))


def densenet() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2)
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            x = b.cat(x, b.conv(b.conv(x, 128, act="Relu"), 32, 3, act="Relu"))
        x = b.pool(b.conv(x, b.shape[x][1] // 2, act="Relu"), 2, 2, "AveragePool") if stage < 3 else x
    return b.model(b.classify(x))


def shufflenet() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = b.pool(b.conv("x", 24, 3, 2, "Relu"), 3, 2)
    for out, count in ((116, 4), (232, 8), (464, 4)):
        half = out // 2
        for index in range(count):
            s = 2 if not index else 1
            kept, y = (x, x) if s == 2 else b.split(x, half, half)
            if s == 2:
                kept = b.conv(b.conv(kept, b.shape[x][1], 3, 2, g=b.shape[x][1]), half, act="Relu")
            y = b.conv(b.conv(b.conv(y, half, act="Relu"), half, 3, s, g=half), half, act="Relu")
            x = b.cat(kept, y)
            n, c, h, w = b.shape[x]
            x = b.reshape(b.turn(b.reshape(x, n, 2, c // 2, h, w), 0, 2, 1, 3, 4), n, c, h, w)
    return b.model(b.classify(b.conv(x, 1024, act="Relu")))


def convnext() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = _patches(b, "x", 96, 4)
    for stage, (c, count) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        x = _patches(b, x, c, 2) if stage else x
        for _ in range(count):
            y = b.norm(b.turn(b.conv(x, c, 7, g=c), 0, 2, 3, 1))
            y = b.linear(b.linear(y, 4 * c, "Gelu"), c)
            x = b.add(x, b.turn(y, 0, 3, 1, 2))
    return b.model(b.classify(x))


def _patches(b: Net, x: str, out: int, k: int) -> str:
    n, c, h, w = b.shape[x]
    return b.op(
        "Conv",
        x,
        b.weight(out, c, k, k),
        b.const(np.zeros(out)),
        shape=(n, out, h // k, w // k),
        kernel_shape=[k, k],
        strides=[k, k],
    )


def repvit() -> onnx.ModelProto:
    """RepViT-M0.9: depthwise token mixers, every second with a gate, and Gelu."""
    b = Net(1, 3, 224, 224)
    x = b.conv(b.conv("x", 24, 3, 2, "Gelu"), 48, 3, 2)
    for stage, (c, count) in enumerate(((48, 3), (96, 4), (192, 16), (384, 3))):
        if stage:
            x = b.conv(b.conv(x, b.shape[x][1], 3, 2, g=b.shape[x][1]), c)
        for index in range(count):
            x = b.conv(x, c, 3, g=c)
            x = x if index % 2 else b.gate(x, c // 4)
            x = b.add(x, b.conv(b.conv(x, 2 * c, act="Gelu"), c))
    return b.model(b.classify(x))


# ---------------- transformers


def vit(size: int = 192, depth: int = 12, heads: int = 3, side: int = 224, patch: int = 16) -> onnx.ModelProto:
    b = Net(1, 3, side, side)
    x = b.tokens(_patches(b, "x", size, patch))
    x = b.add(x, b.const(np.zeros(b.shape[x])))
    for _ in range(depth):
        x = b.block(x, heads)
    x = b.op("ReduceMean", b.norm(x), shape=(1, size), axes=[1], keepdims=0)
    return b.model(b.linear(x, 1000))


def crossvit() -> onnx.ModelProto:
    """Two branches of tokens that exchange a summary by cross attention after every stage."""
    b = Net(1, 3, 240, 240)
    small, large = b.tokens(_patches(b, "x", 96, 12)), b.tokens(_patches(b, "x", 192, 16))
    for _ in range(3):
        small = b.block(small, 3)
        for _ in range(4):
            large = b.block(large, 3)
        for one in ("small", "large"):
            x, y = (small, large) if one == "small" else (large, small)
            c = b.shape[x][2]
            q, k = b.linear(b.norm(x), c), b.linear(b.norm(y), c)
            x = b.add(x, b.linear(b.attend(q, k, b.linear(b.norm(y), c), 3), c))
            small, large = (x, large) if one == "small" else (small, x)
    ends = [b.op("ReduceMean", b.norm(x), shape=(1, b.shape[x][2]), axes=[1], keepdims=0) for x in (small, large)]
    return b.model(b.add(*(b.linear(x, 1000) for x in ends)))


def _windows(b: Net, x: str, k: int, grid: bool = False) -> str:
    """[1, H, W, C] -> [windows, k * k, C]."""
    _, h, w, c = b.shape[x]
    if grid:
        y = b.turn(b.reshape(x, 1, k, h // k, k, w // k, c), 0, 2, 4, 1, 3, 5)
    else:
        y = b.turn(b.reshape(x, 1, h // k, k, w // k, k, c), 0, 1, 3, 2, 4, 5)
    return b.reshape(y, h * w // k // k, k * k, c)


def _unwindow(b: Net, x: str, k: int, h: int, w: int, grid: bool = False) -> str:
    c = b.shape[x][2]
    y = b.reshape(x, 1, h // k, w // k, k, k, c)
    return b.reshape(b.turn(y, 0, 3, 1, 4, 2, 5) if grid else b.turn(y, 0, 1, 3, 2, 4, 5), 1, h, w, c)


def swin() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = b.turn(_patches(b, "x", 96, 4), 0, 2, 3, 1)
    for stage, (count, heads) in enumerate(((2, 3), (2, 6), (6, 12), (2, 24))):
        for _ in range(count):
            _, h, w, c = b.shape[x]
            y = _unwindow(b, b.self_attention(_windows(b, b.norm(x), 7), heads), 7, h, w)
            x = b.add(x, y)
            x = b.add(x, b.linear(b.linear(b.norm(x), 4 * c, "Gelu"), c))
        if stage < 3:
            _, h, w, c = b.shape[x]
            y = b.turn(b.reshape(x, 1, h // 2, 2, w // 2, 2, c), 0, 1, 3, 2, 4, 5)
            x = b.linear(b.norm(b.reshape(y, 1, h // 2, w // 2, 4 * c)), 2 * c, bias=False)
    return b.model(b.classify(b.turn(x, 0, 3, 1, 2)))


def maxvit() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = b.conv(b.conv("x", 64, 3, 2, "Gelu"), 64, 3)
    for c, count in ((64, 2), (128, 2), (256, 5), (512, 2)):
        for index in range(count):
            inner, s = 4 * c, 2 if not index else 1
            y = b.conv(b.conv(x, inner, act="Gelu"), inner, 3, s, "Gelu", g=inner)
            y = b.conv(b.gate(y, c, "Silu"), c)
            short = x if s == 1 else b.conv(b.pool(x, 2, 2, "AveragePool"), c)
            x = b.turn(b.add(short, y), 0, 2, 3, 1)
            _, h, w, _ = b.shape[x]
            for grid in (False, True):
                y = _unwindow(b, b.self_attention(_windows(b, b.norm(x), 7, grid), c // 32), 7, h, w, grid)
                x = b.add(x, y)
                x = b.add(x, b.linear(b.linear(b.norm(x), 4 * c, "Gelu"), c))
            x = b.turn(x, 0, 3, 1, 2)
    return b.model(b.classify(x))


def segformer(side: int = 512) -> onnx.ModelProto:
    b, maps = Net(1, 3, side, side), []
    x = "x"
    for stage, (c, heads, ratio) in enumerate(((32, 1, 8), (64, 2, 4), (160, 5, 2), (256, 8, 1))):
        x = b.conv(x, c, 7 if not stage else 3, 2)
        x = b.pool(x, 2, 2) if not stage else x
        _, _, h, w = b.shape[x]
        x = b.tokens(x)
        for _ in range(2):
            y = b.norm(x)
            few = b.tokens(_patches(b, b.image(y, h, w), c, ratio)) if ratio > 1 else y
            x = b.add(x, b.linear(b.attend(b.linear(y, c), b.linear(few, c), b.linear(few, c), heads), c))
            y = b.linear(b.norm(x), 4 * c)
            y = b.tokens(b.conv(b.image(y, h, w), 4 * c, 3, g=4 * c))
            x = b.add(x, b.linear(b.act(y, "Gelu"), c))
        x = b.image(b.norm(x), h, w)
        maps.append(x)
    ends = []
    for stage, one in enumerate(maps):
        _, _, h, w = b.shape[one]
        y = b.image(b.linear(b.tokens(one), 256), h, w)
        ends.append(b.up(y, 2**stage, "linear") if stage else y)
    return b.model(b.conv(b.conv(b.cat(*ends), 256, act="Relu"), 19))


def mobilevit() -> onnx.ModelProto:
    b = Net(1, 3, 256, 256)
    x = b.conv("x", 16, 3, 2, "Silu")

    def block(x: str, out: int, s: int) -> str:
        c = b.shape[x][1]
        y = b.conv(b.conv(b.conv(x, 4 * c, act="Silu"), 4 * c, 3, s, "Silu", g=4 * c), out)
        return b.add(x, y) if s == 1 and c == out else y

    for out, s in ((32, 1), (64, 2), (64, 1), (64, 1)):
        x = block(x, out, s)
    for out, size, depth in ((96, 144, 2), (128, 192, 4), (160, 240, 3)):
        x = block(x, out, 2)
        y = b.conv(b.conv(x, out, 3, act="Silu"), size)
        _, _, h, w = b.shape[y]
        y = b.turn(b.reshape(y, size * h // 2, 2, w // 2, 2), 0, 2, 1, 3)
        y = b.reshape(b.turn(b.reshape(y, 1, size, h * w // 4, 4), 0, 3, 2, 1), 4, h * w // 4, size)
        for _ in range(depth):
            y = b.block(y, 4, 2, "Silu")
        y = b.turn(b.reshape(b.norm(y), 1, 4, h * w // 4, size), 0, 3, 2, 1)
        y = b.reshape(b.turn(b.reshape(y, size * h // 2, w // 2, 2, 2), 0, 2, 1, 3), 1, size, h, w)
        x = b.conv(b.cat(x, b.conv(y, out, act="Silu")), out, 3, act="Silu")
    return b.model(b.classify(b.conv(x, 640, act="Silu")))


def efficientformer() -> onnx.ModelProto:
    """Pooling as token mixer in images; attention in the last block only."""
    b = Net(1, 3, 224, 224)
    x = b.conv(b.conv("x", 24, 3, 2, "Relu"), 48, 3, 2, "Relu")
    for stage, (c, count) in enumerate(((48, 3), (96, 2), (224, 6), (448, 4))):
        x = b.conv(x, c, 3, 2) if stage else x
        for _ in range(count - (stage == 3)):
            x = b.add(x, b.op("Sub", b.pool(x, 3, 1, "AveragePool"), x))
            x = b.add(x, b.conv(b.conv(x, 4 * c, act="Gelu"), c))
    x = b.block(b.tokens(x), 8)
    x = b.op("ReduceMean", b.norm(x), shape=(1, 448), axes=[1], keepdims=0)
    return b.model(b.linear(x, 1000))


def fastvit() -> onnx.ModelProto:
    b = Net(1, 3, 256, 256)
    x = b.conv(b.conv(b.conv("x", 48, 3, 2, "Gelu"), 48, 3, 2, "Gelu", g=48), 48, act="Gelu")
    for stage, (c, count) in enumerate(((48, 2), (96, 2), (192, 4), (384, 2))):
        x = b.conv(b.conv(x, b.shape[x][1], 7, 2, g=b.shape[x][1]), c, act="Gelu") if stage else x
        _, _, h, w = b.shape[x]
        for _ in range(count):
            x = b.conv(x, c, 3, g=c) if stage < 3 else b.add(x, b.image(b.self_attention(b.tokens(x), 12), h, w))
            x = b.add(x, b.conv(b.conv(b.conv(x, c, 7, g=c), 3 * c, act="Gelu"), c))
    return b.model(b.classify(b.gate(b.conv(x, 768, 3, g=384), 48)))


def mixer() -> onnx.ModelProto:
    b = Net(1, 3, 224, 224)
    x = b.tokens(_patches(b, "x", 512, 16))
    for _ in range(8):
        y = b.linear(b.linear(b.turn(b.norm(x), 0, 2, 1), 256, "Gelu"), 196)
        x = b.add(x, b.turn(y, 0, 2, 1))
        x = b.add(x, b.linear(b.linear(b.norm(x), 2048, "Gelu"), 512))
    x = b.op("ReduceMean", b.norm(x), shape=(1, 512), axes=[1], keepdims=0)
    return b.model(b.linear(x, 1000))


# ---------------- detection, pose, depth, segmentation


def detr(height: int = 480, width: int = 640) -> onnx.ModelProto:
    b = Net(1, 3, height, width)
    x = _resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), (3, 4, 6, 3), True)[-1]
    x = b.tokens(b.conv(x, 256))
    for _ in range(6):
        x = b.norm(b.add(x, b.self_attention(x, 8)))
        x = b.norm(b.add(x, b.linear(b.linear(x, 2048, "Relu"), 256)))
    y = b.const(np.zeros((1, 100, 256)))
    b.shape[y] = (1, 100, 256)
    for _ in range(6):
        y = b.norm(b.add(y, b.self_attention(y, 8)))
        y = b.norm(b.add(y, b.linear(b.attend(b.linear(y, 256), b.linear(x, 256), b.linear(x, 256), 8), 256)))
        y = b.norm(b.add(y, b.linear(b.linear(y, 2048, "Relu"), 256)))
    box = b.op("Sigmoid", b.linear(b.linear(b.linear(y, 256, "Relu"), 256, "Relu"), 4))
    return b.model(b.linear(y, 92), box)


def rtmpose() -> onnx.ModelProto:
    """CSPNeXt backbone, a 7x7 Conv, then a gated attention unit over 17 keypoints and SimCC heads."""
    b = Net(1, 3, 256, 192)
    x = b.conv(b.conv(b.conv("x", 12, 3, 2, "Silu"), 12, 3, act="Silu"), 24, 3, act="Silu")
    for c, count in ((48, 1), (96, 2), (192, 2), (384, 1)):
        x = b.conv(x, c, 3, 2, "Silu")
        y = b.conv(x, c // 2, act="Silu")
        for _ in range(count):
            z = b.conv(b.conv(b.conv(y, c // 2, 3, act="Silu"), c // 2, 5, act="", g=c // 2), c // 2, act="Silu")
            y = b.add(y, z)
        x = b.conv(b.gate(b.cat(y, b.conv(x, c // 2, act="Silu")), c // 4), c, act="Silu")
    x = b.conv(x, 17, 7)
    n, k, h, w = b.shape[x]
    x = b.linear(_scale_norm(b, b.reshape(x, n, k, h * w)), 256, bias=False)
    y = b.linear(_scale_norm(b, x), 2 * 512 + 128, "Silu", bias=False)
    u, v, base = b.split(y, 512, 512, 128, axis=2)
    q, key = (b.add(b.op("Mul", base, b.const(np.ones(128))), b.const(np.zeros(128))) for _ in range(2))
    scores = b.op("MatMul", q, b.turn(key, 0, 2, 1), shape=(1, 17, 17))
    scores = b.op("Relu", b.op("Div", scores, b.const(128**0.5)))
    scores = b.op("Mul", scores, scores)
    y = b.linear(b.op("Mul", u, b.op("MatMul", scores, v, shape=(1, 17, 512))), 256, bias=False)
    x = b.add(b.op("Mul", x, b.const(np.ones(256))), y)
    return b.model(b.linear(x, 384, bias=False), b.linear(x, 512, bias=False))


def _scale_norm(b: Net, x: str) -> str:
    size = b.op("ReduceL2", x, shape=(*b.shape[x][:-1], 1), axes=[-1], keepdims=1)
    size = b.op("Clip", b.op("Mul", size, b.const(0.1)), b.const(1e-5))
    return b.op("Mul", b.op("Div", x, size), b.const(np.ones(1)))


def retinanet(side: int = 512) -> onnx.ModelProto:
    b = Net(1, 3, side, side)
    c3, c4, c5 = _resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), (2, 2, 2, 2), False)[1:]
    p5 = b.conv(c5, 256)
    p4 = b.add(b.conv(c4, 256), b.up(p5))
    p3 = b.add(b.conv(c3, 256), b.up(p4))
    p6 = b.conv(b.conv(p5, 256, 3, act="Relu"), 256, 3, 2)
    ends: list[list[str]] = [[], []]
    for x in (b.conv(p3, 256, 3), b.conv(p4, 256, 3), b.conv(p5, 256, 3), p6):
        for index, out in enumerate((9 * 80, 9 * 4)):
            y = x
            for _ in range(4):
                y = b.conv(y, 256, 3, act="Relu")
            y = b.conv(y, out, 3)
            _, _, h, w = b.shape[y]
            ends[index].append(b.reshape(b.turn(y, 0, 2, 3, 1), 1, h * w * 9, out // 9))
    return b.model(b.op("Sigmoid", b.cat(*ends[0])), b.cat(*ends[1]))


def hourglass() -> onnx.ModelProto:
    b = Net(1, 3, 256, 256)

    def residual(x: str, out: int) -> str:
        y = b.conv(b.conv(b.conv(x, out // 2, act="Relu"), out // 2, 3, act="Relu"), out)
        return b.add(y, x if b.shape[x][1] == out else b.conv(x, out))

    def glass(x: str, depth: int) -> str:
        low = residual(b.pool(x, 2, 2), 256)
        low = residual(glass(low, depth - 1) if depth else low, 256)
        return b.add(residual(x, 256), b.up(low))

    x = residual(b.pool(residual(b.conv("x", 64, 7, 2, "Relu"), 128), 2, 2), 256)
    for _ in range(2):
        x = b.conv(residual(glass(x, 3), 256), 256, act="Relu")
    return b.model(b.conv(x, 16))


def unet(attention: bool) -> onnx.ModelProto:
    """U-Net with deconvolutions; attention: at its bottom, as diffusion models have it."""
    b, skips = Net(1, 3, 256, 256), []
    x = "x"
    for c in (32, 64, 128, 256):
        x = b.conv(b.conv(x, c, 3, act="Silu"), c, 3, act="Silu")
        skips.append(x)
        x = b.pool(x, 2, 2)
    x = b.conv(x, 512, 3, act="Silu")
    if attention:
        _, _, h, w = b.shape[x]
        x = b.add(x, b.image(b.self_attention(b.tokens(x), 8), h, w))
    for c, skip in zip((256, 128, 64, 32), reversed(skips)):
        n, into, h, w = b.shape[x]
        x = b.op(
            "ConvTranspose", x, b.weight(into, c, 2, 2), shape=(n, c, 2 * h, 2 * w), kernel_shape=[2, 2], strides=[2, 2]
        )
        x = b.conv(b.conv(b.cat(x, skip), c, 3, act="Silu"), c, 3, act="Silu")
    return b.model(b.conv(x, 2))


def monodepth() -> onnx.ModelProto:
    """ResNet-18 encoder, decoder with Elu and reflected borders."""
    b = Net(1, 3, 192, 640)
    first = b.conv("x", 64, 7, 2, "Relu")
    maps = [first, *_resnet(b, b.pool(first, 3, 2), (2, 2, 2, 2), False)]

    def step(x: str, out: int, act: str = "Elu") -> str:
        n, c, h, w = b.shape[x]
        x = b.op("Pad", x, b.const([0, 0, 1, 1, 0, 0, 1, 1], np.int64), shape=(n, c, h + 2, w + 2), mode="reflect")
        y = b.op("Conv", x, b.weight(out, c, 3, 3), b.const(np.zeros(out)), shape=(n, out, h, w), kernel_shape=[3, 3])
        return b.act(y, act)

    x = maps[-1]
    for c, skip in zip((256, 128, 64, 32), (*reversed(maps[:-1]), "")):
        x = b.up(step(x, c))
        x = step(b.cat(x, skip) if skip else x, c)
    return b.model(step(b.up(step(x, 16)), 1, "Sigmoid"))


def bisenet() -> onnx.ModelProto:
    b = Net(1, 3, 512, 1024)
    detail = b.conv(b.conv(b.conv("x", 64, 3, 2, "Relu"), 64, 3, 2, "Relu"), 128, 3, 2, "Relu")
    maps = _resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), (2, 2, 2, 2), False)
    gated = [
        b.op("Mul", y, b.op("Sigmoid", b.conv(b.mean(y), 128)))
        for y in (b.conv(x, 128, 3, act="Relu") for x in maps[2:])
    ]
    context = b.up(b.add(gated[0], b.up(gated[1])))
    x = b.conv(b.cat(detail, context), 256, act="Relu")
    x = b.add(x, b.gate(x, 64))
    return b.model(b.up(b.conv(b.conv(x, 64, 3, act="Relu"), 19), 8, "linear"))


def deeplab() -> onnx.ModelProto:
    b = Net(1, 3, 512, 512)
    x = _resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), (2, 2, 2, 2), False)[2]
    parts = [b.conv(x, 128, act="Relu"), *(b.conv(x, 128, 3, d=d, act="Relu") for d in (6, 12, 18))]
    pooled = b.op(
        "Expand", b.conv(b.mean(x), 128, act="Relu"), b.const([1, 128, 32, 32], np.int64), shape=(1, 128, 32, 32)
    )
    return b.model(b.up(b.conv(b.conv(b.cat(*parts, pooled), 128, act="Relu"), 21), 16, "linear"))


def bev() -> onnx.ModelProto:
    """Six cameras on one backbone, features lifted to a grid by a product with constants, then convolutions."""
    b = Net(6, 3, 256, 704)
    x = _resnet(b, b.pool(b.conv("x", 64, 7, 2, "Relu"), 3, 2), (2, 2, 2, 2), False)[2]
    x = b.conv(x, 64 + 59)
    depth, values = b.split(x, 59, 64)
    _, _, h, w = b.shape[values]
    depth = b.reshape(b.op("Softmax", depth, axis=1), 6, 1, 59 * h * w)
    flat = b.reshape(b.op("Mul", values, b.const(np.ones((1, 64, 1, 1)))), 6, 64, h * w)
    tiled = b.op("Tile", flat, b.const([1, 1, 59], np.int64), shape=(6, 64, 59 * h * w))
    lifted = b.op("Mul", tiled, depth)
    cells = b.op("Gather", lifted, b.const(np.zeros(128 * 128), np.int64), shape=(6, 64, 128 * 128), axis=2)
    grid = b.op("ReduceSum", cells, b.const([0], np.int64), shape=(1, 64, 128 * 128), keepdims=1)
    y = b.reshape(grid, 1, 64, 128, 128)
    for _ in range(6):
        y = b.conv(y, 128, 3, act="Relu")
    return b.model(b.conv(y, 16))


# ---------------- points, sequences, generators


def pointnet() -> onnx.ModelProto:
    b = Net(1, 3, 1024, 1)
    x = "x"
    for c in (64, 64, 64, 128, 1024):
        x = b.conv(x, c, act="Relu")
    x = b.op("ReduceMax", x, shape=(1, 1024), axes=[2, 3], keepdims=0)
    for c in (512, 256):
        x = b.op("Relu", b.op("Gemm", x, b.weight(c, b.shape[x][1]), b.const(np.zeros(c)), shape=(1, c), transB=1))
    return b.model(b.op("Gemm", x, b.weight(40, 256), b.const(np.zeros(40)), shape=(1, 40), transB=1))


def tcn() -> onnx.ModelProto:
    """Temporal convolutions; the last time step is classified."""
    b = Net(1, 16, 256)
    x = "x"

    def conv(x: str, out: int, k: int, d: int) -> str:
        n, c, length = b.shape[x]
        y = b.op(
            "Conv",
            x,
            b.weight(out, c, k),
            b.const(np.zeros(out)),
            shape=(n, out, length),
            kernel_shape=[k],
            dilations=[d],
            pads=[(k - 1) * d, 0],
        )
        return b.op("Relu", y)

    for d in (1, 2, 4, 8):
        y = conv(conv(x, 64, 3, d), 64, 3, d)
        x = b.add(y, x if b.shape[x][1] == 64 else conv(x, 64, 1, 1))
    last = b.op("Gather", x, b.const(-1, np.int64), shape=(1, 64), axis=2)
    return b.model(b.op("Gemm", last, b.weight(10, 64), b.const(np.zeros(10)), shape=(1, 10), transB=1))


def conformer() -> onnx.ModelProto:
    """Speech encoder: half feed-forward, attention, gated depthwise convolution over time, half feed-forward."""
    b = Net(1, 1, 80, 256)
    x = b.conv(b.conv("x", 144, 3, 2, "Relu"), 144, 3, 2, "Relu")
    _, c, h, w = b.shape[x]
    x = b.linear(b.reshape(b.turn(x, 0, 3, 1, 2), 1, w, c * h), 144)
    for _ in range(6):
        x = b.add(x, b.op("Mul", b.linear(b.linear(b.norm(x), 576, "Silu"), 144), b.const(0.5)))
        x = b.add(x, b.self_attention(b.norm(x), 4))
        y, gate = b.split(b.linear(b.norm(x), 288), 144, 144, axis=2)
        y = b.turn(b.op("Mul", y, b.op("Sigmoid", gate)), 0, 2, 1)
        y = b.op("Conv", y, b.weight(144, 1, 31), shape=(1, 144, w), kernel_shape=[31], pads=[15, 15], group=144)
        x = b.add(x, b.linear(b.act(b.turn(y, 0, 2, 1), "Silu"), 144))
        x = b.norm(b.add(x, b.op("Mul", b.linear(b.linear(b.norm(x), 576, "Silu"), 144), b.const(0.5))))
    return b.model(b.linear(x, 128))


def dcgan() -> onnx.ModelProto:
    """Noise, a linear layer seen as an image, deconvolutions."""
    b = Net(1, 128)
    x = b.op("Gemm", "x", b.weight(512 * 16, 128), b.const(np.zeros(512 * 16)), shape=(1, 512 * 16), transB=1)
    x = b.op("Relu", b.reshape(x, 1, 512, 4, 4))
    for out in (256, 128, 64, 3):
        n, c, h, w = b.shape[x]
        x = b.op(
            "ConvTranspose",
            x,
            b.weight(c, out, 4, 4),
            shape=(n, out, 2 * h, 2 * w),
            kernel_shape=[4, 4],
            strides=[2, 2],
            pads=[1] * 4,
        )
        x = b.op("Tanh" if out == 3 else "Relu", x)
    return b.model(x)


def style() -> onnx.ModelProto:
    """Image to image with InstanceNormalization."""
    b = Net(1, 3, 256, 256)

    def step(x: str, out: int, k: int, s: int = 1, act: str = "Relu") -> str:
        y = b.conv(x, out, k, s)
        return b.act(b.op("InstanceNormalization", y, b.const(np.ones(out)), b.const(np.zeros(out))), act)

    x = step(step(step("x", 32, 9), 64, 3, 2), 128, 3, 2)
    for _ in range(5):
        x = b.add(x, step(step(x, 128, 3), 128, 3, act=""))
    x = step(b.up(step(b.up(x), 64, 3)), 32, 3)
    return b.model(b.conv(x, 3, 9))


def sr() -> onnx.ModelProto:
    b = Net(1, 3, 180, 320)
    x = b.conv("x", 48, 3)
    y = x
    for _ in range(8):
        y = b.add(y, b.conv(b.conv(y, 48, 3, act="Relu"), 48, 3))
    y = b.conv(b.add(x, y), 48, 3)
    return b.model(b.op("DepthToSpace", y, shape=(1, 3, 720, 1280), blocksize=4, mode="CRD"))


FAMILIES: dict[str, Callable[[], onnx.ModelProto]] = {
    "yolov8n": lambda: yolo(8, "n"),
    "yolo11n": lambda: yolo(11, "n"),
    "resnet50": resnet,
    "mobilenet_v2": lambda: mobile(False, "Relu"),
    "efficientnet_b0": lambda: mobile(True),
    "densenet121": densenet,
    "shufflenet_v2": shufflenet,
    "convnext_tiny": convnext,
    "repvit_m09": repvit,
    "vit_tiny": vit,
    "crossvit": crossvit,
    "swin_tiny": swin,
    "maxvit_tiny": maxvit,
    "segformer_b0": segformer,
    "mobilevit_s": mobilevit,
    "efficientformer": efficientformer,
    "fastvit": fastvit,
    "mixer_s": mixer,
    "detr": detr,
    "rtmpose": rtmpose,
    "retinanet_r18": retinanet,
    "hourglass": hourglass,
    "unet": lambda: unet(False),
    "unet_attention": lambda: unet(True),
    "monodepth": monodepth,
    "bisenet": bisenet,
    "deeplab": deeplab,
    "bev": bev,
    "pointnet": pointnet,
    "tcn": tcn,
    "conformer": conformer,
    "dcgan": dcgan,
    "style_transfer": style,
    "super_resolution": sr,
}
"""Name -> the network."""
