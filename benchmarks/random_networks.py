"""Float CNNs by chance, with data: correct translations of them show false alarms of `verify`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Silu", "HardSwish", "Sigmoid", "")
HEADS = ("map", "pool", "classes", "softmax", "shrunk", "sequence")


class _Net:
    """Nodes and weights of a network that grows at its end. Each method takes and returns names of tensors."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], f"n{len(self.nodes)}", **attributes))
        return out

    def conv(self, x: str, cin: int, cout: int, kernel: int = 3, group: int = 1) -> str:
        std = np.sqrt(2 / (cin / group * kernel * kernel))
        w = self.const(self.rng.normal(0, std, (cout, cin // group, kernel, kernel)).astype(np.float32))
        b = self.const(self.rng.normal(0, 0.2, cout).astype(np.float32))
        return self.add("Conv", x, w, b, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=group)

    def act(self, x: str) -> str:
        kind = ACTIVATIONS[self.rng.integers(len(ACTIVATIONS))]
        if kind == "Clip":
            return self.add("Clip", x, self.const(np.float32(0)), self.const(np.float32(6)))
        if kind == "Silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        return self.add(kind, x) if kind else x

    def block(self, x: str, c: int) -> str:
        r = self.rng.integers(9)
        if r == 0:
            return self.add("Add", x, self.act(self.conv(x, c, c)))
        if r == 1:
            y = self.add("Concat", x, self.act(self.conv(x, c, c)), axis=1)
            return self.conv(y, 2 * c, c, 1)
        if r == 2:
            return self.add("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        if r == 3:
            return self.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
        if r == 4:
            return self.act(self.conv(self.act(self.conv(x, c, c, 3, c)), c, c, 1))
        if r == 5:
            shape = [(1,), (1, c, 1, 1)][self.rng.integers(2)]
            return self.add("Add", self.add("Relu", x), self.const(self.rng.normal(0, 0.3, shape).astype(np.float32)))
        if r == 6:
            g = self.add("Sigmoid", self.conv(self.add("GlobalAveragePool", x), c, c, 1))
            return self.add("Mul", x, g)
        return self.act(self.conv(x, c, c, [1, 3, 5][self.rng.integers(3)]))

    def head(self, x: str, c: int) -> str:
        kind = HEADS[self.rng.integers(len(HEADS))]
        if kind == "map":
            return self.conv(x, c, int(self.rng.integers(1, 5)), 1)
        if kind == "shrunk":
            return self.add("Sigmoid", self.conv(x, c, 1, 1))
        if kind == "sequence":
            k = int(self.rng.choice([20, 100]))
            y = self.add("ReduceMean", x, axes=[2], keepdims=0)
            y = self.add("Transpose", y, perm=[0, 2, 1])
            y = self.add("MatMul", y, self.const(self.rng.normal(0, 2 / np.sqrt(c), (c, k)).astype(np.float32)))
            return self.add("Softmax", y, axis=-1)
        y = self.add("GlobalAveragePool", x)
        if kind == "pool":
            return y
        k = int(self.rng.choice([3, 10, 50]))
        y = self.add("Flatten", y)
        y = self.add(
            "Gemm",
            y,
            self.const(self.rng.normal(0, 2 / np.sqrt(c), (c, k)).astype(np.float32)),
            self.const(self.rng.normal(0, 0.1, k).astype(np.float32)),
        )
        return self.add("Softmax", y, axis=-1) if kind == "softmax" else y


def network(seed: int) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """A model, its calibration inputs (32), and other inputs (16) of the same generator."""
    rng = np.random.default_rng(seed)
    net, c, size = _Net(rng), int(rng.choice([4, 8, 16])), int(rng.choice([8, 12, 16]))
    x = net.act(net.conv("x", 3, c))
    for _ in range(int(rng.integers(1, 7))):
        x = net.block(x, c)
    net.head(x, c)
    net.nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        net.nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [onnx.ValueInfoProto(name="y")],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    base, kind = rng.normal(size=(12, 3, 1, 1)), rng.integers(3)

    def data(n: int) -> np.ndarray:
        a = base[rng.integers(12, size=n)] + rng.normal(0, 1, (n, 3, size, size))
        return (a if kind == 0 else np.abs(a) if kind == 1 else 1 / (1 + np.exp(-a))).astype(np.float32)

    return model, data(32), data(16)
