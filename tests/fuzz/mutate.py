"""Mutations of ONNX models: at protobuf level, so that most results are models, and at byte level."""

from __future__ import annotations

import random
from typing import Any, Callable

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.fuzz.seeds import seeds

INTEGERS = (0, 1, -1, 2, 3, 4, 7, 31, 64, 255, 10**5, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, float("inf"), float("-inf"), float("nan"), 127.0)
NAMES = ("", " ", "a", "x", "y", "w", "a,b", "*", "'", '"', "\n", "a\nb: 3f800000", "\r", "\0", "é", "../../x", "/x", "x" * 900,
         "TRT-8600-EntropyCalibration2", "a:fp16", "\u202e", "$(id)", "`id`", "<script>", "y_output", "a_1", "\ud7ff", "%s")  # fmt: skip
OPERATORS = (
    *(
        "QuantizeLinear",
        "DequantizeLinear",
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "BatchNormalization",
        "Pad",
        "Relu",
    ),
    *(
        "Clip",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "ReduceMean",
        "Concat",
        "Split",
        "Slice",
        "Reshape",
        "Add",
    ),
    *(
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Identity",
        "Cast",
        "Constant",
        "ConstantOfShape",
        "Expand",
        "Tile",
    ),
    *(
        "Range",
        "Shape",
        "Gather",
        "Mul",
        "Div",
        "Sub",
        "Softmax",
        "Sigmoid",
        "Tanh",
        "HardSwish",
        "HardSigmoid",
        "Resize",
    ),
    *("DepthToSpace", "SpaceToDepth", "Where", "Pow", "Sqrt", "Exp", "Erf", "LayerNormalization", "Sum", "Max", "Min"),
    *(
        "Dropout",
        "If",
        "Loop",
        "NonZero",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "Einsum",
        "NoSuchOperator",
        "Mish",
        "Celu",
    ),
)
TYPES = tuple(TensorProto.DataType.values())

Rng = random.Random


def mutated(rng: Rng, base: onnx.ModelProto) -> bytes:
    """One to four mutations of a copy, serialized."""
    made = onnx.ModelProto()
    made.CopyFrom(base)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        rng.choices(_MODEL, _WEIGHTS)[0](rng, made)
    data = made.SerializeToString()
    return _damaged(rng, data) if rng.random() < 0.12 else data


def model_case(rng: Rng) -> bytes:
    return mutated(rng, rng.choice(seeds())[1])


# ---------------------------------------------------------------- bytes


def _damaged(rng: Rng, data: bytes) -> bytes:
    out = bytearray(data)
    kind = rng.randrange(5)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(max(1, len(out)))
        if kind == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.randrange(1, 10))
        elif kind == 3:
            out[at:at] = out[at : at + 30]
        elif out:  # names that are no UTF-8
            letters = [i for i, byte in enumerate(out) if 97 <= byte <= 122]
            if letters:
                out[rng.choice(letters)] = rng.choice((0xFF, 0xC0, 0xED, 0x80))
    return bytes(out[: rng.randrange(len(out))]) if rng.random() < 0.1 and out else bytes(out)


# ---------------------------------------------------------------- parts of a model


def _tensors(made: onnx.ModelProto) -> list[str]:
    graph = made.graph
    names = [v.name for v in (*graph.input, *graph.output)] + [t.name for t in graph.initializer]
    return names + [o for n in graph.node for o in n.output]


def _node(rng: Rng, made: onnx.ModelProto) -> Any:
    """A node of the graph, a body or a function; a new one where there is none."""
    nodes = list(made.graph.node) + [n for f in made.functions for n in f.node]
    nodes += [n for node in made.graph.node for a in node.attribute if a.HasField("g") for n in a.g.node]
    return rng.choice(nodes) if nodes else made.graph.node.add(op_type="Relu", input=["x"], output=["y"])


def nodes(rng: Rng, made: onnx.ModelProto) -> None:
    listed = made.graph.node
    kind = rng.randrange(7)
    if not listed or kind == 0:
        outputs = [rng.choice((*NAMES, "new", "new2")) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        inputs = [rng.choice((*_tensors(made), "", "nowhere")) for _ in range(rng.randrange(4))]
        listed.insert(rng.randrange(len(listed) + 1), helper.make_node(rng.choice(OPERATORS), inputs, outputs))
    elif kind == 1:
        del listed[rng.randrange(len(listed))]
    elif kind == 2:
        listed.add().CopyFrom(rng.choice(listed))
    elif kind == 3:
        order = list(listed)
        rng.shuffle(order)
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del listed[:]
        listed.extend(copies)
    elif kind == 4:
        _node(rng, made).op_type = rng.choice(OPERATORS)
    elif kind == 5:
        _node(rng, made).domain = rng.choice(("", "ai.onnx", "com.microsoft", "local", "x.y", "\0"))
    else:
        _node(rng, made).name = rng.choice(NAMES)


def wires(rng: Rng, made: onnx.ModelProto) -> None:
    node = _node(rng, made)
    names = node.input if rng.random() < 0.7 else node.output
    new = rng.choice((*_tensors(made), *NAMES[:6], "nowhere"))
    kind = rng.randrange(4)
    if not names or kind == 0:
        names.append(new)
    elif kind == 1:
        del names[rng.randrange(len(names))]
    elif kind == 2:
        names[rng.randrange(len(names))] = new
    else:
        names.extend([new] * rng.choice((1, 2, 40)))


def attributes(rng: Rng, made: onnx.ModelProto) -> None:
    node = _node(rng, made)
    listed = node.attribute
    kind = rng.randrange(6)
    if not listed or kind == 0:
        key = rng.choice(("axis", "axes", "pads", "strides", "kernel_shape", "group", "perm", "to", "value", "mode", "block_size",
                          "blocksize", "alpha", "keepdims", "dilations", "auto_pad", "output_dtype", "num_outputs", "split"))  # fmt: skip
        del_at = [i for i, a in enumerate(listed) if a.name == key]
        for i in reversed(del_at):
            del listed[i]
        listed.append(helper.make_attribute(key, _value(rng)))
    elif kind == 1:
        del listed[rng.randrange(len(listed))]
    elif kind == 2:
        rng.choice(listed).type = rng.choice(AttributeProto.AttributeType.values())
    elif kind == 3:
        listed.add().CopyFrom(rng.choice(listed))
    else:
        attribute = rng.choice(listed)
        _change_value(rng, attribute)


def _value(rng: Rng) -> Any:
    return rng.choice(
        (
            rng.choice(INTEGERS),
            rng.choice(FLOATS),
            rng.choice(NAMES),
            [rng.choice(INTEGERS) for _ in range(rng.choice((1, 2, 4, 8, 50)))],
            [rng.choice(FLOATS)],
            ["a", "b"],
            numpy_helper.from_array(np.array(rng.choice((0, 1, 5)), rng.choice(("int64", "float32", "int8")))),
        )
    )


def _change_value(rng: Rng, attribute: AttributeProto) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(INTEGERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice((b"", b"\xff\xfe", b"reflect", b"edge", b"SAME_UPPER", b"nearest", b"linear", b"CRD"))
    elif attribute.type == AttributeProto.INTS:
        kind = rng.randrange(3)
        if kind == 0:
            del attribute.ints[rng.randrange(len(attribute.ints) + 1) :]
        elif kind == 1 or not attribute.ints:
            attribute.ints.append(rng.choice(INTEGERS))
        else:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(INTEGERS)
    elif attribute.type == AttributeProto.TENSOR:
        _tensor(rng, attribute.t)


def tensors(rng: Rng, made: onnx.ModelProto) -> None:
    listed = made.graph.initializer
    kind = rng.randrange(10)
    if not listed or kind == 0:
        listed.append(
            numpy_helper.from_array(np.array([rng.choice(FLOATS)], np.float32), rng.choice((*_tensors(made), "new")))
        )
    elif kind == 1:
        del listed[rng.randrange(len(listed))]
    elif kind == 2:
        rng.choice(listed).name = rng.choice((*_tensors(made), *NAMES))
    else:
        _tensor(rng, rng.choice(listed))


def _tensor(rng: Rng, tensor: TensorProto) -> None:
    kind = rng.randrange(9)
    if kind == 0:
        tensor.data_type = rng.choice(TYPES)
    elif kind == 1:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 2:
        dims = list(tensor.dims)
        rng.choice((dims.clear, dims.sort, lambda: dims.append(1), lambda: dims.append(rng.choice(INTEGERS))))()
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif kind == 3:
        tensor.data_location = TensorProto.EXTERNAL
        for key in ("location", "offset", "length"):
            if rng.random() < 0.7:
                tensor.external_data.add(key=key, value=str(rng.choice((*NAMES, *INTEGERS))))
    else:
        shape = rng.choice(
            ((), (0,), (1,), (2,), (4,), (8,), (4, 4), (0, 4), (4, 1, 3, 3), (4, 4, 3), (4, 4, 3, 3), (6, 8), (1,) * 6)
        )
        dtype = rng.choice(
            ("float32", "float32", "float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool", "uint16")
        )
        if kind < 6:
            dtype = (
                helper.tensor_dtype_to_np_dtype(tensor.data_type)
                if tensor.data_type in (1, 2, 3, 6, 7, 10, 11)
                else dtype
            )
        if kind == 6:
            shape = tuple(d for d in tensor.dims if 0 <= d < 100)[:6]
        with np.errstate(all="ignore"):
            values = np.full(shape, rng.choice((*FLOATS, *INTEGERS[:9])), np.float64).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def ends(rng: Rng, made: onnx.ModelProto) -> None:
    """Graph inputs, outputs and value infos."""
    listed = rng.choice((made.graph.input, made.graph.output, made.graph.value_info))
    kind = rng.randrange(6)
    if not listed or kind == 0:
        shape = [rng.choice((*INTEGERS, "n", "")) for _ in range(rng.randrange(6))]
        listed.append(helper.make_tensor_value_info(rng.choice((*_tensors(made), "new")), rng.choice(TYPES), shape))
    elif kind == 1:
        del listed[rng.randrange(len(listed))]
    elif kind == 2:
        rng.choice(listed).name = rng.choice((*_tensors(made), *NAMES))
    elif kind == 3:
        rng.choice(listed).type.tensor_type.elem_type = rng.choice(TYPES)
    elif kind == 4:
        rng.choice(listed).type.Clear()
    else:
        dims = rng.choice(listed).type.tensor_type.shape.dim
        if dims:
            rng.choice(dims).dim_value = rng.choice(INTEGERS)
        else:
            dims.add().dim_param = "n"


def whole(rng: Rng, made: onnx.ModelProto) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        for imported in made.opset_import:
            imported.version = rng.choice((*range(1, 27), *INTEGERS))
    elif kind == 1:
        made.ir_version = rng.choice((*range(1, 14), *INTEGERS))
    elif kind == 2:
        del made.opset_import[:]
    elif kind == 3:
        made.graph.name = rng.choice(NAMES)
    elif kind == 4:
        made.metadata_props.add(key=rng.choice(NAMES), value=rng.choice(NAMES))
    else:
        made.opset_import.add(domain=rng.choice(("", "ai.onnx", "x")), version=rng.choice((1, 13, 17, 21)))


def quantizers(rng: Rng, made: onnx.ModelProto) -> None:
    """Scales, zero points and axes of Q and DQ."""
    found = [n for n in made.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear") and len(n.input) > 1]
    if not found:
        return
    node = rng.choice(found)
    kind = rng.randrange(5)
    if kind == 0:
        for attribute in [a for a in node.attribute if a.name == "axis"]:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute("axis", rng.choice(INTEGERS)))
    elif kind == 1:
        del node.input[2:]
    elif kind == 2:
        node.input[1], node.input[0] = node.input[0], node.input[1]
    else:
        for tensor in made.graph.initializer:
            if tensor.name in node.input[kind - 2 :]:
                _tensor(rng, tensor)


def casts(rng: Rng, made: onnx.ModelProto) -> None:
    """Puts an operator between a tensor and one of its readers, or wraps a node into a body."""
    node = _node(rng, made)
    if not node.input:
        return
    index = rng.randrange(len(node.input))
    position = next((i for i, n in enumerate(made.graph.node) if n is node), 0)
    if rng.random() < 0.2 and node.output:
        body = helper.make_graph(
            [onnx.NodeProto.FromString(node.SerializeToString())],
            "g",
            [],
            [helper.make_empty_tensor_value_info(node.output[0])],
        )
        node.CopyFrom(helper.make_node("If", ["which"], list(node.output), then_branch=body, else_branch=body))
        return
    operator = rng.choice(
        ("Cast", "Identity", "Reshape", "Transpose", "Clip", "Relu", "Neg", "Mul", "Unsqueeze", "Pad", "Add")
    )
    extra = [rng.choice(_tensors(made))] if operator in ("Reshape", "Clip", "Mul", "Unsqueeze", "Pad", "Add") else []
    kwargs: dict[str, Any] = {"to": rng.choice(TYPES)} if operator == "Cast" else {}
    new = f"between{rng.randrange(1000)}"
    made.graph.node.insert(position, helper.make_node(operator, [node.input[index], *extra], [new], **kwargs))
    made.graph.node[min(position + 1, len(made.graph.node) - 1)].input[index : index + 1] = [new]


_MODEL: tuple[Callable[[Rng, onnx.ModelProto], None], ...] = (
    nodes,
    wires,
    attributes,
    tensors,
    ends,
    whole,
    quantizers,
    casts,
)
_WEIGHTS = (3, 3, 4, 5, 2, 1, 4, 3)
