"""Keras networks that ship for TensorFlow.js (topology and binary weights) in ONNX, channels first inside."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Dict, Sequence

import numpy as np
import onnx

from .build import Builder

Values = Dict[str, np.ndarray]


def weights(manifest: Sequence[Any], content: bytes) -> Values:
    """Name -> float32 array; uint8 weights are dequantized with their step and minimum."""
    found, place = {}, 0
    for row in (row for group in manifest for row in group["weights"]):
        steps = row.get("quantization")
        kind = np.dtype((steps or row)["dtype"])
        count = int(np.prod(row["shape"]))
        values = np.frombuffer(content, kind, count, place).reshape(row["shape"]).astype(np.float32)
        found[row["name"]] = values * np.float32(steps["scale"]) + np.float32(steps["min"]) if steps else values
        place += count * kind.itemsize
    return found


def of_script(text: str) -> Any:
    """The value that a minified module exports: an object literal, or a string of base64."""
    start = text.index("exports=", text.index("{1:[function")) + len("exports=")
    literal = text[start : text.rindex("},{}]},{},[1]")]
    if literal.startswith('"'):
        return base64.b64decode(literal.strip('"'))
    literal = re.sub(r"([{,])([A-Za-z_]\w*):", r'\1"\2":', literal).replace("!1", "false").replace("!0", "true")
    return json.loads(re.sub(r"(?<=[:,\[])(-?)\.(\d)", r"\g<1>0.\2", literal))


class Keras:
    """Writes the layers of a functional Keras model; `at` maps a layer to its tensor, NCHW if it has four dimensions."""

    def __init__(self, topology: Any, values: Values) -> None:
        config = topology["model_config"]["config"]
        self.layers, self.last = config["layers"], config["output_layers"][0][0]
        self.values, self.b, self.at = values, Builder(), {}

    def model(self, name: str, shape: Sequence[int]) -> onnx.ModelProto:
        """The network for NHWC images of one shape; an image that comes out is NHWC, too."""
        for layer in self.layers:
            config = layer["config"]
            inputs = [self.at[node[0]] for node in (layer["inbound_nodes"] or [[]])[0]]
            self.at[config["name"]] = getattr(self, layer["class_name"])(config, *inputs)
        out = self.at[self.last]
        if self.layers[-1]["class_name"] != "Dense":
            out = self.b.op("Transpose", out, perm=[0, 2, 3, 1])
        return self.b.model(name, {"image": shape}, {"output": out})

    def InputLayer(self, config: Any) -> str:
        return self.b.op("Transpose", "image", perm=[0, 3, 1, 2])

    def _conv(self, config: Any, x: str, kernel: np.ndarray, **attributes: Any) -> str:
        name = config["name"]
        parts = [self.b.const(f"{name}/kernel", kernel)]
        if config["use_bias"]:
            parts.append(self.b.const(f"{name}/bias", self.values[f"{name}/bias"]))
        pad = "SAME_UPPER" if config["padding"] == "same" else "VALID"
        size = list(kernel.shape[2:])
        x = self.b.op(
            "Conv", x, *parts, name=name, kernel_shape=size, strides=config["strides"], auto_pad=pad, **attributes
        )
        return self._activated(config, x)

    def _activated(self, config: Any, x: str) -> str:
        kind = {"linear": "", "relu": "Relu", "softmax": "Softmax", "sigmoid": "Sigmoid"}[config["activation"]]
        return self.b.op(kind, x) if kind else x

    def Conv2D(self, config: Any, x: str) -> str:
        return self._conv(config, x, self.values[config["name"] + "/kernel"].transpose(3, 2, 0, 1))

    def DepthwiseConv2D(self, config: Any, x: str) -> str:
        kernel = self.values[config["name"] + "/depthwise_kernel"].transpose(2, 3, 0, 1)
        return self._conv(config, x, kernel.reshape(-1, 1, *kernel.shape[2:]), group=kernel.shape[0])

    def BatchNormalization(self, config: Any, x: str) -> str:
        parts = []
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            key = f"{config['name']}/{part}"
            known = self.values[key] if key in self.values else np.ones_like(self.values[f"{config['name']}/beta"])
            parts.append(self.b.const(key, known))
        return self.b.op("BatchNormalization", x, *parts, name=config["name"], epsilon=config["epsilon"])

    def ReLU(self, config: Any, x: str) -> str:
        limits = [
            self.b.const(f"{config['name']}/{k}", np.float32(v))
            for k, v in (("min", 0), ("max", config["max_value"] or 0))
        ]
        return self.b.op("Clip", x, *limits) if config["max_value"] else self.b.op("Relu", x)

    def Activation(self, config: Any, x: str) -> str:
        return self._activated(config, x)

    def Add(self, config: Any, first: str, second: str) -> str:
        return self.b.op("Add", first, second)

    def Concatenate(self, config: Any, *inputs: str) -> str:
        return self.b.op("Concat", *inputs, axis=1)

    def ZeroPadding2D(self, config: Any, x: str) -> str:
        (top, bottom), (left, right) = config["padding"]
        pads = self.b.const(config["name"] + "/pads", np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
        return self.b.op("Pad", x, pads)

    def UpSampling2D(self, config: Any, x: str) -> str:
        sizes = self.b.const(config["name"] + "/sizes", np.array([1, 1, *config["size"]], np.float32))
        return self.b.op(
            "Resize", x, "", sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )

    def GlobalAveragePooling2D(self, config: Any, x: str) -> str:
        return self.b.op("Flatten", self.b.op("GlobalAveragePool", x))

    def AveragePooling2D(self, config: Any, x: str) -> str:
        pad = "SAME_UPPER" if config["padding"] == "same" else "VALID"
        return self.b.op("AveragePool", x, kernel_shape=config["pool_size"], strides=config["strides"], auto_pad=pad)

    def Flatten(self, config: Any, x: str) -> str:
        return self.b.op("Flatten", self.b.op("Transpose", x, perm=[0, 2, 3, 1]))

    def Dropout(self, config: Any, x: str) -> str:
        return x

    def Dense(self, config: Any, x: str) -> str:
        parts = [
            self.b.const(f"{config['name']}/{part}", self.values[f"{config['name']}/{part}"])
            for part in ("kernel", "bias")
        ]
        return self._activated(config, self.b.op("Gemm", x, *parts, name=config["name"]))
