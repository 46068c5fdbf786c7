"""Explicit Q/DQ networks of any size, with random weights, in the style of NVIDIA pytorch-quantization:
a pair before every Conv and on the residual branch, per-channel weight quantizers, BatchNormalization behind each Conv.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qdq_translator import TranslateOptions, translate
from qdq_translator.core.formats.files import TranslationFiles


class Builder:
    """Adds nodes one after the other; each method takes and returns tensor names."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.convs = 0

    def constant(self, name: str, values: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.count += 1
        name = f"{op}_{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def pair(self, tensor: str, scale: float = 0.03) -> str:
        self.count += 1
        s = self.constant(f"scale_{self.count}", np.float32(scale))
        z = self.constant(f"zero_{self.count}", np.int8(0))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", tensor, s, z), s, z)

    def weight(self, *shape: int) -> str:
        self.count += 1
        name = f"weight_{self.count}"
        fan_in = int(np.prod(shape[1:]))
        values = self.rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(fan_in))
        scale = np.abs(values).reshape(shape[0], -1).max(axis=1) / np.float32(127)
        self.constant(name, values)
        s = self.constant(f"{name}_scale", scale)
        z = self.constant(f"{name}_zero", np.zeros(shape[0], np.int8))
        quantized = self.node("QuantizeLinear", name, s, z, axis=0)
        return self.node("DequantizeLinear", quantized, s, z, axis=0)

    def conv_bn(self, tensor: str, cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
        self.convs += 1
        out = self.node(
            "Conv",
            self.pair(tensor),
            self.weight(cout, cin // groups, kernel, kernel),
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            group=groups,
        )
        self.count += 1
        statistics = [
            self.constant(f"bn_{self.count}_{key}", values.astype(np.float32))
            for key, values in (
                ("gamma", self.rng.uniform(0.5, 1.5, cout)),
                ("beta", self.rng.normal(0, 0.1, cout)),
                ("mean", self.rng.normal(0, 0.1, cout)),
                ("variance", self.rng.uniform(0.5, 1.5, cout)),
            )
        ]
        return self.node("BatchNormalization", out, *statistics)

    def model(self, output: str, shape: list[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def chain(convs: int, channels: int = 16) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, one after the other: about ten nodes a Conv."""
    b, x = Builder(), "input"
    for _ in range(convs):
        x = b.node("Relu", b.conv_bn(x, channels, channels))
    return b.model(x, [1, channels, 32, 32])


def residual(convs: int, channels: int = 16) -> onnx.ModelProto:
    """Blocks of two Convs with a quantized shortcut."""
    b, x = Builder(), "input"
    for _ in range(convs // 2):
        y = b.node("Relu", b.conv_bn(x, channels, channels))
        x = b.node("Relu", b.node("Add", b.conv_bn(y, channels, channels), b.pair(x)))
    return b.model(x, [1, channels, 32, 32])


def resnet50(size: int = 224) -> onnx.ModelProto:
    """ResNet-50: 53 Convs and a Gemm, 25.5 million weights, about 100 MB. size: height and width of the input."""
    b = Builder()
    x = b.node("Relu", b.conv_bn("input", 3, 64, 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            y = b.node("Relu", b.conv_bn(x, cin, width, 1))
            y = b.node("Relu", b.conv_bn(y, width, width, 3, stride))
            y = b.conv_bn(y, width, 4 * width, 1)
            shortcut = b.conv_bn(x, cin, 4 * width, 1, stride) if block == 0 else x
            x = b.node("Relu", b.node("Add", y, b.pair(shortcut)))
            cin = 4 * width
    x = b.node("Flatten", b.node("GlobalAveragePool", b.pair(x)))
    bias = b.constant("fc_bias", np.zeros(1000, np.float32))
    return b.model(b.node("Gemm", b.pair(x), b.weight(1000, 2048), bias, transB=1), [1, 3, size, size])


def mobilenet_v2(size: int = 224) -> onnx.ModelProto:
    """MobileNet-v2, 3.4 million weights. size: as of `resnet50`."""
    b, cin = Builder(), 32
    x = b.node("Relu", b.conv_bn("input", 3, 32, 3, 2))
    for expand, cout, repeats, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for repeat in range(repeats):
            stride, wide = (first if repeat == 0 else 1), cin * expand
            y = b.node("Relu", b.conv_bn(x, cin, wide, 1)) if expand > 1 else x
            y = b.node("Relu", b.conv_bn(y, wide, wide, 3, stride, groups=wide))
            y = b.conv_bn(y, wide, cout, 1)
            x = b.node("Add", y, b.pair(x)) if stride == 1 and cin == cout else y
            cin = cout
    x = b.node("Relu", b.conv_bn(x, cin, 1280, 1))
    x = b.node("Flatten", b.node("GlobalAveragePool", b.pair(x)))
    bias = b.constant("fc_bias", np.zeros(1000, np.float32))
    return b.model(b.node("Gemm", b.pair(x), b.weight(1000, 1280), bias, transB=1), [1, 3, size, size])


NETWORKS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `prepared` is asked for."""
    parser.add_argument("--network", default="resnet50", choices=tuple(NETWORKS))
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="height and width of the input")
    parser.add_argument("--repeats", type=int, default=3)


@dataclass(frozen=True)
class Prepared:
    """A network's file, the files of its translation, and random inputs (samples, 3, size, size), float32, with their file."""

    model: Path
    files: TranslationFiles
    data: np.ndarray
    inputs: Path


@contextlib.contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Prepared]:
    """In a folder that goes when it is no longer needed. options: those of `add_arguments`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        path, inputs = work / f"{options.network}.onnx", work / "inputs.npy"
        onnx.save(NETWORKS[options.network](options.size), path)
        files = translate(path, TranslateOptions()).save(work / "t")
        data = np.random.default_rng(0).normal(size=(options.samples, 3, options.size, options.size)).astype(np.float32)
        np.save(inputs, data)
        yield Prepared(path, files, data, inputs)


def huge(gib: float, folder: Path) -> Path:
    """A chain of wide 1x1 Convs with `gib` GiB of weights in an external file; returns the model's path."""
    channels = 4096
    b, x = Builder(), "input"
    for _ in range(max(1, round(gib * 2**30 / (channels * channels * 4)))):
        x = b.node("Relu", b.conv_bn(x, channels, channels, 1))
    path = folder / "huge.onnx"
    onnx.save_model(b.model(x, [1, channels, 1, 1]), path, save_as_external_data=True, location="huge.onnx.data")
    return path
