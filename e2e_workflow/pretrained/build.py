"""Networks written operator by operator, for weights that ship without a graph ONNX knows."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Weights = Mapping[str, np.ndarray]


class Builder:
    """Collects nodes and constants; tensors are named after their operator and number."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, name: str, values: Any) -> str:
        """The constant `values` under `name`."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def op(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, **attributes: Any) -> str:
        """A node with one output (the first of several), which is returned."""
        name = name or f"{kind}_{len(self.nodes)}"
        made = [f"{name}_out" if index == 0 else f"{name}_out{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name, **attributes))
        return made[0]

    def layer(self, kind: str, x: str, weights: Weights, name: str, **attributes: Any) -> str:
        """Conv or Gemm with `name`.weight and `name`.bias."""
        parts = [self.const(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return self.op(kind, x, *parts, name=name, **attributes)

    def model(
        self, name: str, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, str], opset: int = 17
    ) -> onnx.ModelProto:
        """The network; outputs: name -> tensor. Raises onnx's errors for a graph that is not valid."""
        for wanted, tensor in outputs.items():
            self.nodes.append(helper.make_node("Identity", [tensor], [wanted], f"out_{wanted}"))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        made = onnx.shape_inference.infer_shapes(_without_identities(made), strict_mode=True, data_prop=True)
        onnx.checker.check_model(made)
        return made


def _without_identities(model: onnx.ModelProto) -> onnx.ModelProto:
    """The Identity nodes at the outputs renamed away: an output is its layer's tensor."""
    names = {n.input[0]: n.output[0] for n in model.graph.node if n.name.startswith("out_")}
    for node in list(model.graph.node):
        if node.name.startswith("out_"):
            model.graph.node.remove(node)
            continue
        for field in (node.input, node.output):
            field[:] = [names.get(tensor, tensor) for tensor in field]
    return model


def crepe(weights: Weights) -> onnx.ModelProto:
    """CREPE: a pitch in 360 bins of 20 cents, of 1024 normalized samples at 16 kHz; written along the width as audio is."""
    b = Builder()
    x = b.op("Reshape", "audio", b.const("shape", np.array([1, 1, 1, 1024], np.int64)))
    for index in range(1, 7):
        weight = weights[f"conv{index}.weight"].transpose(0, 1, 3, 2)
        kernel = weight.shape[3]
        pads = [0, 254, 0, 254] if index == 1 else [0, 31, 0, 32]
        w, bias = b.const(f"conv{index}.w", weight), b.const(f"conv{index}.b", weights[f"conv{index}.bias"])
        x = b.op("Conv", x, w, bias, kernel_shape=[1, kernel], strides=[1, 4 if index == 1 else 1], pads=pads)
        x = b.op("Relu", x)
        norm = [
            b.const(f"bn{index}.{p}", weights[f"conv{index}_BN.{p}"])
            for p in ("weight", "bias", "running_mean", "running_var")
        ]
        x = b.op("BatchNormalization", x, *norm, epsilon=0.0010000000474974513)
        x = b.op("MaxPool", x, kernel_shape=[1, 2], strides=[1, 2])
    x = b.op("Transpose", x, perm=[0, 3, 2, 1])
    x = b.op("Reshape", x, b.const("flat", np.array([1, -1], np.int64)))
    x = b.op("Sigmoid", b.layer("Gemm", x, weights, "classifier", transB=1))
    return b.model("crepe", {"audio": [1, 1024]}, {"pitch": x})


def mtcnn(weights: Weights, side: int, pools: Sequence[int], first: int, heads: Mapping[str, str]) -> onnx.ModelProto:
    """The refining (24x24) or the output network (48x48) of MTCNN: box, landmarks, and no face / face.

    pools: size of the pooling after each Conv, 0 for none; first: number of its first dense layer, whose values are ordered as
    in Caffe; heads: output -> layer.
    """
    b = Builder()
    x = "image"
    for index, pool in enumerate(pools, 1):
        x = b.layer("Conv", x, weights, f"conv{index}", kernel_shape=list(weights[f"conv{index}.weight"].shape[2:]))
        x = b.op("PRelu", x, b.const(f"slope{index}", weights[f"prelu{index}.weight"][:, None, None]))
        if pool:
            x = b.op("MaxPool", x, kernel_shape=[pool, pool], strides=[2, 2], ceil_mode=1)
    x = b.op("Flatten", b.op("Transpose", x, perm=[0, 3, 2, 1]))
    x = b.layer("Gemm", x, weights, f"dense{first}", transB=1)
    x = b.op("PRelu", x, b.const(f"slope{first}", weights[f"prelu{first}.weight"]))
    found = {name: b.layer("Gemm", x, weights, layer, transB=1) for name, layer in heads.items()}
    found["face"] = b.op("Softmax", found["face"], axis=1)
    return b.model("mtcnn", {"image": [1, 3, side, side]}, found)
