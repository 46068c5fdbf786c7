"""A TFLite network in ONNX, by tf2onnx: run by a Python with TensorFlow (`tflite.py` makes one), not by this workflow's own.

python from_tflite.py NETWORK.tflite NETWORK.onnx

What tf2onnx does not know is rewritten first, in the flatbuffer: MediaPipe's transposed convolution with bias becomes
TRANSPOSE_CONV and ADD, and each state variable an input `state_N` and an output `next_state_N`.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

MEDIAPIPE_TRANSPOSED = b"Convolution2DTransposeBias"


class Editor:
    """The first subgraph of a TFLite model as objects."""

    def __init__(self, content: bytes) -> None:
        from tensorflow.lite.python import schema_py_generated as schema

        self.schema: Any = schema
        self.model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        self.graph = self.model.subgraphs[0]

    def kind(self, operator: Any) -> int:
        """Its builtin code."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return max(code.builtinCode, code.deprecatedBuiltinCode)

    def custom(self, operator: Any) -> bytes:
        """The name of a custom operator."""
        return self.model.operatorCodes[operator.opcodeIndex].customCode or b""

    def opcode(self, name: str, version: int = 1) -> int:
        """Index of a builtin operator's code, which is added."""
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def tensor(self, name: bytes, kind: int, shape: list[int], values: bytes | None = None) -> int:
        """Index of a new tensor; values: of a constant."""
        made = self.schema.TensorT()
        made.name, made.type, made.shape, made.buffer = name, kind, shape, 0
        if values is not None:
            buffer = self.schema.BufferT()
            buffer.data = list(values)
            self.model.buffers.append(buffer)
            made.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def operator(self, opcode: int, inputs: list[int], output: int, options: Any, kind: str) -> Any:
        """A new operator with builtin options of the type `kind`."""
        made = self.schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = opcode, inputs, [output]
        made.builtinOptions, made.builtinOptionsType = options, getattr(self.schema.BuiltinOptions, kind)
        return made

    def content(self) -> bytes:
        """The model as a file."""
        import flatbuffers

        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def without_custom_operators(edit: Editor) -> None:
    """MediaPipe's transposed convolution with bias as two builtin operators."""
    found = []
    for operator in edit.graph.operators:
        if edit.custom(operator) != MEDIAPIPE_TRANSPOSED:
            found.append(operator)
            continue
        data, weights, bias = operator.inputs
        padding, width, height = struct.unpack("<iii", bytes(operator.customOptions)[:12])
        out = edit.graph.tensors[operator.outputs[0]]
        sizes = edit.tensor(out.name + b"_size", edit.schema.TensorType.INT32, [4], struct.pack("<4i", *out.shape))
        between = edit.tensor(out.name + b"_unbiased", out.type, list(out.shape))
        options = edit.schema.TransposeConvOptionsT()
        options.padding, options.strideW, options.strideH = (0 if padding == 1 else 1), width, height
        code = edit.opcode("TRANSPOSE_CONV")
        found.append(edit.operator(code, [sizes, weights, data], between, options, "TransposeConvOptions"))
        added = edit.operator(
            edit.opcode("ADD"), [between, bias], operator.outputs[0], edit.schema.AddOptionsT(), "AddOptions"
        )
        found.append(added)
    edit.graph.operators = found


def without_variables(edit: Editor) -> None:
    """State variables as inputs and outputs, numbered in the order in which they are read."""
    code = edit.schema.BuiltinOperator
    dropped = {code.VAR_HANDLE, code.READ_VARIABLE, code.ASSIGN_VARIABLE, code.CALL_ONCE}
    names = {
        operator.outputs[0]: (operator.builtinOptions.container, operator.builtinOptions.sharedName)
        for operator in edit.graph.operators
        if edit.kind(operator) == code.VAR_HANDLE
    }
    reads = [operator for operator in edit.graph.operators if edit.kind(operator) == code.READ_VARIABLE]
    numbers = {names[operator.inputs[0]]: index for index, operator in enumerate(reads)}
    inputs, outputs = list(edit.graph.inputs), list(edit.graph.outputs)
    for operator in edit.graph.operators:
        if edit.kind(operator) == code.READ_VARIABLE:
            tensor = edit.graph.tensors[operator.outputs[0]]
            tensor.name = b"state_%d" % numbers[names[operator.inputs[0]]]
            inputs.append(operator.outputs[0])
        if edit.kind(operator) == code.ASSIGN_VARIABLE:
            edit.graph.tensors[operator.inputs[1]].name = b"next_state_%d" % numbers[names[operator.inputs[0]]]
            outputs.append(operator.inputs[1])
    edit.graph.inputs, edit.graph.outputs = inputs, outputs
    edit.graph.operators = [operator for operator in edit.graph.operators if edit.kind(operator) not in dropped]
    del edit.model.subgraphs[1:]


def convert(source: Path, target: Path) -> None:
    """Writes the network as ONNX of opset 17."""
    import tf2onnx

    edit = Editor(source.read_bytes())
    without_custom_operators(edit)
    without_variables(edit)
    edit.model.signatureDefs = None
    edited = target.with_suffix(".tflite")
    edited.write_bytes(edit.content())
    tf2onnx.convert.from_tflite(str(edited), opset=17, output_path=str(target))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
