"""An INT8 network made from the written files alone, without a line of the package: the independent check of its simulation.

One Q/DQ pair behind every tensor of the calibration cache that a layer in INT8 reads, weights of these layers rounded per
output channel to max|w|/127; everything else stays float. Which layers are in INT8 is read from the written report. ONNX
Runtime runs it without graph optimizations.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNEL = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}
"""Operator -> axis of the output channels of its second input; ConvTranspose: of one group; Gemm: without transB."""
FUSED = ("Add", "Relu", "Clip")
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Pad", "Relu")


def scales_of(cache: Path) -> dict[str, float]:
    """Tensor -> step size, from the lines `name: float32 in big-endian hexadecimal` after the header."""
    rows = [line.rsplit(": ", 1) for line in cache.read_text(encoding="utf-8").splitlines()[1:] if line]
    return {name: struct.unpack(">f", bytes.fromhex(value))[0] for name, value in rows}


def omitted(network: Path, cache: Path, above: Collection[str]) -> set[str]:
    """Tensors that an engine may hold unrounded: between a layer with weights and the Add, Relu or Clip that alone reads it,
    and before a layer that only moves values, with one scale, to layers `above` INT8."""
    graph, scales = onnx.load(str(network), load_external_data=False).graph, scales_of(cache)
    readers, outputs = _readers(graph), {value.name for value in graph.output}
    fused = {
        node.output[0]
        for node in graph.node
        if node.op_type in CHANNEL and [n.op_type in FUSED for n in readers.get(node.output[0], ())] == [True]
    }
    passing: set[str] = set()

    def passes(node: onnx.NodeProto, tensor: str) -> bool:
        out = node.output[0]
        same = scales.get(out) == scales.get(tensor) and out not in outputs
        return node.name in above or (node.op_type in MOVES and same and out in passing)

    for node in reversed(graph.node):
        passing.update(name for name in node.input if all(passes(reader, name) for reader in readers[name]))
    return fused | passing


def _readers(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for tensor in node.input:
            readers.setdefault(tensor, []).append(node)
    return readers


def fake_quantized(
    network: Path, cache: Path, above: Collection[str], unrounded: Collection[str] = ()
) -> onnx.ModelProto:
    """The network with its scales applied. above: layers above INT8, whose weights stay as they are, and so do tensors that
    only they read; unrounded: more tensors that stay."""
    model = onnx.load(str(network))
    graph, kept = model.graph, set(above)
    passed = {tensor for tensor, nodes in _readers(graph).items() if all(node.name in kept for node in nodes)}
    scales = {n: s for n, s in scales_of(cache).items() if n not in passed and n not in unrounded}
    made = {tensor for node in graph.node for tensor in node.output} | {value.name for value in graph.input}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made -= constants.keys()
    outputs = {value.name for value in graph.output}
    rounded = {name for name in scales if name in made and name not in outputs}
    for node in graph.node:
        if node.op_type in CHANNEL and node.name not in kept and len(node.input) > 1 and node.input[1] in constants:
            weight = numpy_helper.to_array(constants[node.input[1]])
            if weight.dtype == np.float32:
                name = f"{node.input[1]}_of_{node.output[0]}"
                graph.initializer.append(numpy_helper.from_array(_on_the_grid(weight, node), name))
                node.input[1] = name
        node.input[:] = [f"{tensor}_rounded" if tensor in rounded else tensor for tensor in node.input]
    pairs = {name: _pair(graph, name, scales[name]) for name in sorted(rounded)}
    nodes = [part for value in graph.input for part in pairs.get(value.name, ())]
    for node in graph.node:
        nodes += [node, *(part for tensor in node.output for part in pairs.get(tensor, ()))]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return model


def _pair(graph: onnx.GraphProto, name: str, scale: float) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """QuantizeLinear and DequantizeLinear behind a tensor; the symmetric range, ties to even."""
    graph.initializer.append(numpy_helper.from_array(np.float32(scale), f"{name}_step"))
    graph.initializer.append(numpy_helper.from_array(np.int8(0), f"{name}_zero"))
    constants = [f"{name}_step", f"{name}_zero"]
    return (
        helper.make_node("QuantizeLinear", [name, *constants], [f"{name}_code"], f"{name}_q"),
        helper.make_node("DequantizeLinear", [f"{name}_code", *constants], [f"{name}_rounded"], f"{name}_dq"),
    )


def _on_the_grid(weight: np.ndarray, node: onnx.NodeProto) -> np.ndarray:
    """Weights rounded to 255 steps of each output channel."""
    attributes = {a.name: a.i for a in node.attribute}
    axis = CHANNEL[node.op_type]
    if node.op_type == "Gemm" and attributes.get("transB"):
        axis = 0
    values = weight
    groups = attributes.get("group", 1) if node.op_type == "ConvTranspose" else 1
    if groups > 1:  # (input channels, output channels of a group, ...): one channel a group and output
        values = weight.reshape(groups, -1, *weight.shape[1:])
    keep = {axis % weight.ndim} if groups == 1 else {0, 2}
    others = tuple(i for i in range(values.ndim) if i not in keep)
    amax = np.abs(values).max(axis=others, keepdims=True)
    step = np.where(amax > 0, amax / 127, 1).astype(np.float32)
    return (np.clip(np.rint(values / step), -127, 127) * step).astype(np.float32).reshape(weight.shape)
