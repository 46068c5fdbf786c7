"""TensorRT-RTX 1.7 (GPU, no DLA): NVIDIA's ONNX parser and builder, which run without a GPU and without a driver.

It is strongly typed, has no INT8 flag, no calibrator and no dynamic range, and its parser is the one of TensorRT 10.16 and
later. It shows that a file parses, what layers and constants it becomes, and (Q/DQ models) that an engine is built. It shows
nothing about a DLA. Install: `python -m pip install --no-deps tensorrt-rtx-cu12-libs==1.7.1.116
tensorrt-rtx-cu12-bindings==1.7.1.116` (Linux on x86-64).
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import onnx
import pytest

PLATFORM = "tensorrt-10.16.0"
"""The platform whose parser makes the same layers and names."""
REQUIRED = "QDQ_REQUIRE_TENSORRT_RTX"
"""Environment variable: where it is set, a missing TensorRT-RTX is a failure, not a skip."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of the parser's network. kind: its `LayerType`; node: the ONNX node that it was made of; inputs, outputs: tensor names."""

    name: str
    kind: str
    node: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Parsed:
    """errors: the parser's messages, empty if it accepted the model. floats: names of the FLOAT and HALF tensors.
    constants: name of a float constant's tensor -> its largest magnitude."""

    errors: tuple[str, ...]
    layers: tuple[Layer, ...]
    floats: frozenset[str]
    constants: dict[str, float]

    @property
    def tensors(self) -> frozenset[str]:
        """Every tensor that a layer reads or makes."""
        return frozenset(name for layer in self.layers for name in (*layer.inputs, *layer.outputs))


def bindings() -> Any:
    """The module `tensorrt_rtx`. Skips the test where it is not installed, and says so."""
    try:
        from tensorrt_rtx_bindings import tensorrt_rtx
    except ImportError as error:
        message = f"SKIPPED FOR LACK OF TENSORRT-RTX: {error}; tests/rtx.py tells how to install it"
        if os.environ.get(REQUIRED):
            pytest.fail(message)
        pytest.skip(message)
    return tensorrt_rtx


def parse(model: onnx.ModelProto, *flags: str) -> Parsed:
    """What the parser makes of `model` (below 2 GiB). flags: names of `OnnxParserFlag`."""
    return _parse(bindings(), model, flags)[0]


def build(model: onnx.ModelProto, *flags: str) -> tuple[str, ...]:
    """Builds an engine from `model`, which must be strongly typed. The messages of a failure; empty if it was built.

    Dynamic sizes become 1."""
    trt = bindings()
    parsed, builder, network, logger = _parse(trt, model, flags)
    if parsed.errors:
        return parsed.errors
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    for tensor in (network.get_input(i) for i in range(network.num_inputs)):
        shape = [max(size, 1) for size in tensor.shape]
        profile.set_shape(tensor.name, shape, shape, shape)
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    return () if engine is not None else tuple(logger.messages) or ("no engine, and no message",)


def _parse(trt: Any, model: onnx.ModelProto, flags: tuple[str, ...]) -> tuple[Parsed, Any, Any, Any]:
    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.messages.append(message)

    logger = Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    for flag in flags:
        parser.set_flag(getattr(trt.OnnxParserFlag, flag))
    accepted = parser.parse(model.SerializeToString())
    errors = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
    if not accepted and not errors:
        errors = logger.messages or ["refused without a message"]
    makers = {name: node.name for node in model.graph.node for name in node.output}
    return _network(trt, network, makers, () if accepted else tuple(errors)), builder, network, logger


def _network(trt: Any, network: Any, makers: dict[str, str], errors: tuple[str, ...]) -> Parsed:
    """makers: ONNX tensor -> its node."""
    floats: set[str] = set()
    constants: dict[str, float] = {}
    layers: list[Layer] = []
    for layer in (network.get_layer(i) for i in range(network.num_layers)):
        inputs = [t for t in map(layer.get_input, range(layer.num_inputs)) if t is not None]
        outputs = [t for t in map(layer.get_output, range(layer.num_outputs)) if t is not None]
        floats.update(t.name for t in (*inputs, *outputs) if t.dtype in (trt.float32, trt.float16))
        if layer.type == trt.LayerType.CONSTANT and outputs[0].name in floats:
            layer.__class__ = trt.IConstantLayer
            constants[outputs[0].name] = float(np.abs(np.asarray(layer.weights, np.float64)).max(initial=0))
        kind, node = str(layer.type).rpartition(".")[2], layer.metadata.partition("[ONNX Layer: ")[2].rpartition("]")[0]
        layers.append(Layer(layer.name, kind, node, tuple(t.name for t in inputs), tuple(t.name for t in outputs)))
    return Parsed(errors, tuple(_with_nodes(layers, makers)), frozenset(floats), constants)


def _with_nodes(layers: list[Layer], makers: dict[str, str]) -> list[Layer]:
    """A helper layer belongs to the node whose output it makes, else to its reader's."""
    reader = {name: layer for layer in reversed(layers) for name in layer.inputs}

    def node(layer: Layer) -> str:
        made = [makers[name] for name in layer.outputs if name in makers]
        readers = [reader[name] for name in layer.outputs if name in reader]
        return layer.node or "".join(made[:1]) or "".join(map(node, readers[:1]))

    return [dataclasses.replace(layer, node=node(layer)) for layer in layers]
