"""Types of a Q/DQ network for strong typing: three forms for TensorRT 11, with float16 for everything but INT8.

| form | opset | scales | zero points | tried |
| --- | --- | --- | --- | --- |
| fp16 | 19 to 22 | float16 | int8 | ONNX Runtime 1.32, TensorRT-RTX 1.7 (GPU, no DLA) |
| fp16-fp32scales | 23 | float32 | none; `output_dtype` | TensorRT-RTX 1.7; ONNX Runtime without its optimizations |
| fp32 | 13 and later | float32 | int8 | ONNX Runtime 1.32, TensorRT-RTX 1.7 |

Each node computes in float16, or in float32 if required: if ONNX does not support it in float16, if one of its
constants or scaled tensors exceeds the range of float16 or is so small that float16's steps are as coarse as INT8's, or
if the caller requests it. Casts are inserted between the two types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from qdq_translator.translation.ir.constants import is_dequantize, is_quantize, is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import FLOAT16_MAX, along
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Initializer, to_array
from qdq_translator.translation.qdq.explicit import Placed
from qdq_translator.translation.qdq.pairs import SMALLEST_FLOAT16

FLOAT, HALF, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8
_NO_BOUND = 1e30
"""Constants beyond it mean 'no bound' or 'never' (limits of Clip, masks), as does the largest number of float16."""
_MUCH = 8
_LEAST_STEP = 2.0**-22
"""Of INT8 values in float16, whose steps are 2**-24 at least: with steps a quarter as large it costs 0.3 dB."""
_FACTORS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul", "Div", "BatchNormalization")
"""Operators whose constants are factors, so that their relative error is the output's."""
_WIDE = "tensor(float)"
_NARROW = "tensor(float16)"


@dataclass(frozen=True)
class Form:
    """The types of an explicit network. opset: the minimum. half: float16 unless INT8. half_scales: float16 scales
    too."""

    name: str
    opset: int
    half: bool
    half_scales: bool

    @property
    def least(self) -> float:
        """Smallest scale of a tensor in float16. A float16 scale may be raised to the smallest normal number, which
        costs less than 3 bits then."""
        return SMALLEST_FLOAT16 / _MUCH if self.half_scales else _LEAST_STEP


FP32 = Form("fp32", 13, False, False)
FP16 = Form("fp16", 20, True, True)
FP16_FP32_SCALES = Form("fp16-fp32scales", 23, True, False)


def below_float16(placed: Placed) -> list[str]:
    """Initializers with a scale that is no normal float16 number."""
    found = placed.scales.items()
    return [name for name, values in found if values.min() < SMALLEST_FLOAT16 or values.max() > FLOAT16_MAX]


def needs_float32(placed: Placed) -> list[str]:
    """Those of them that cannot be raised to the minimum: of an activation, and of a weight whose largest channel is
    small too. Otherwise the errors of a channel are at most 3.1e-05, as large as float16's for a weight of 0.06."""
    rows = ((name, placed.scales[name]) for name in below_float16(placed))
    return [name for name, values in rows if values.max() > FLOAT16_MAX or values.max() < _MUCH * SMALLEST_FLOAT16]


def floor_scales(placed: Placed, least: float) -> int:
    """Scales below the smallest normal float16 number become that number, with new weights; returns how many. Not those
    of activations below `least`, which stay float32."""
    graph, count = placed.graph, 0
    for name in below_float16(placed):
        old = placed.scales[name]
        new = np.clip(old, SMALLEST_FLOAT16, FLOAT16_MAX).astype(np.float32)
        readers = graph.consumers(name)
        if old.max() < least and not any(one.inputs[0] in graph.initializers for one in readers):
            continue
        count += int((new != old).sum())
        graph.add_initializer(name, new)
        for node in readers:
            values = graph.array(node.inputs[0])
            if values is not None:
                changed = np.rint(values * along(old / new, node.get("axis", 0), values.ndim))
                graph.add_initializer(node.inputs[0], np.clip(changed, -127, 127).astype(np.int8))
        placed.scales[name] = new
    return count


def beyond_float16(graph: Graph, scales: Mapping[str, float], least: float) -> dict[str, str]:
    """Node -> why it cannot compute in float16: a constant that overflows, becomes 0 or is a factor with few digits, or
    a tensor whose range (127 times its scale) is beyond 65504 or whose scale is below `least`. Nodes that read nothing
    but the results of such small tensors, whose own range is not known, are small too."""
    found: dict[str, str] = {}
    reach, small = _ranges(graph, scales, least)
    unfit = {name: _unfit(tensor) for name, tensor in graph.initializers.items()}
    bad = {name: why for name, why in unfit.items() if why}
    for node in graph.nodes:
        if is_quantizer(node):
            continue
        read = [name for name in node.inputs if name and name not in graph.initializers]
        if read and all(name in small for name in read):
            small.update((name, small[read[0]]) for name in node.outputs if name not in reach)
        for why in _reasons(node, reach, small, bad)[:1]:
            found[node.name] = why
    return found


def _ranges(graph: Graph, scales: Mapping[str, float], least: float) -> tuple[dict[str, float], dict[str, str]]:
    """Largest magnitude of tensors with a scale and of what pairs make of them, and those of them below `least`, with
    the name that has the scale."""
    reach = {name: 127 * scale for name, scale in scales.items()}
    small = {name: name for name, scale in scales.items() if 0 < scale < least}
    for node in graph.nodes:  # a pair does not change the range
        if is_quantizer(node) and node.inputs[0] in reach:
            reach.setdefault(node.outputs[0], reach[node.inputs[0]])
            small.update({node.outputs[0]: small[node.inputs[0]]} if node.inputs[0] in small else {})
    return reach, small


def _reasons(node: Node, reach: Mapping[str, float], small: Mapping[str, str], bad: Mapping[str, str]) -> list[str]:
    """Why a node cannot compute in float16. reach: tensor -> largest magnitude; small: tensor -> the small tensor that
    it follows from; bad: constant -> what becomes of it."""
    found = []
    for name in (*node.inputs, *node.outputs):
        if reach.get(name, 0) > FLOAT16_MAX:
            found.append(f"'{name}' reaches {reach[name]:.4g}, and float16 ends at 65504")
        elif name in small:
            found.append(_SMALL.format(small[name], reach[small[name]]))
        elif name in bad and (bad[name] != _FEW or node.is_op(*_FACTORS)):
            found.append(f"the constant '{name}' {bad[name]} in float16")
    return found


_SMALL = "'{}' reaches only {:.3g}, and float16's steps there are as coarse as those of INT8"
_FEW = "has few digits"


def _unfit(tensor: Initializer) -> str:
    if tensor.data_type != FLOAT:
        return ""
    size = np.abs(to_array(tensor))
    size = size[size < _NO_BOUND]
    if size.max(initial=0) > FLOAT16_MAX:
        return "is infinite"
    if size.any() and not size.astype(np.float16).any():
        return "becomes 0"
    return _FEW if 0 < size.max(initial=0) < SMALLEST_FLOAT16 / _MUCH else ""


class Typing:
    """Gives every float tensor of a float32 network with pairs its type, in graph order.

    single: nodes that compute in float32. casts: inserted Casts, tensor -> how it was cast."""

    def __init__(self, graph: Graph, form: Form, single: frozenset[str]) -> None:
        self.graph, self.form, self.single = graph, form, single
        self.types = TensorTypes(graph)
        self.kind: dict[str, int] = {name: v.type.tensor_type.elem_type for name, v in graph.inputs.items()}
        self.casts: dict[tuple[str, int], str] = {}
        self._halves: dict[str, str] = {}

    def run(self) -> None:
        """Control flow and its bodies stay float32."""
        graph = self.graph
        graph.value_info.clear()
        for node in list(graph.nodes):
            if is_quantizer(node):
                self._quantizer(node)
            else:
                self._node(node)
        for name, value in graph.outputs.items():
            self._output(name, value.type.tensor_type.elem_type)
        graph.drop_initializer(*[name for name in graph.initializers if not graph.is_used(name)])

    def _node(self, node: Node) -> None:
        for name in node.captured:
            if self._is_float(name) and self._as(name, FLOAT) != name:
                self.graph.replace_use(node, name, self._as(name, FLOAT))
        schema = self._in_half(node)
        for index, name in enumerate(node.inputs):
            if name and self._is_float(name):
                wanted = FLOAT if schema is None or _only_wide(schema.inputs, index) else HALF
                self.graph.set_input(node, index, self._as(name, wanted))
        for index, name in enumerate(node.outputs):
            if name and self.types.elem_type(name) == FLOAT:
                self.kind[name] = FLOAT if schema is None or _only_wide(schema.outputs, index) else HALF
        if schema is not None:
            _narrow_attributes(node)

    def _in_half(self, node: Node) -> Optional[onnx.defs.OpSchema]:
        """The schema of a node that computes in float16; None if it stays float32."""
        if node.name in self.single or any(True for _ in node.subgraphs()):
            return None
        try:
            schema = onnx.defs.get_schema(node.op_type, self.graph.opset(), node.domain)
        except onnx.defs.SchemaError:
            return None
        # each of its types that may be float32 may be float16
        rows = [set(row.allowed_type_strs) for row in schema.type_constraints]
        return schema if all(_NARROW in row or _WIDE not in row for row in rows) else None

    def _quantizer(self, node: Node) -> None:
        """A pair has the type of its readers, so that no Cast is between them."""
        graph, name = self.graph, node.inputs[0]
        read: list[Node] = []
        for reader in graph.consumers(node.outputs[0]):
            read += graph.consumers(reader.outputs[0]) if is_dequantize(reader) else [reader]
        wide = all(reader.name in self.single for reader in read) if read else self._is_small(node)
        kind: int = FLOAT if wide else HALF
        if is_dequantize(node) and name in graph.producer:
            kind = self.kind[name]
        elif is_quantize(node):
            self.kind.setdefault(name, FLOAT)  # of a node whose type cannot be inferred
            graph.set_input(node, 0, self._as(name, kind))
        self.kind[node.outputs[0]] = kind
        if self.form.half_scales:
            graph.set_input(node, 1, self._constant(node.inputs[1], kind))
            return
        zero = graph.initializers[node.inputs[2]].data_type
        graph.set_inputs(node, node.inputs[: 3 if zero == UINT8 else 2])  # no zero point: 0, in int8
        node.set("output_dtype", zero if is_quantize(node) else kind)

    def _is_small(self, node: Node) -> bool:
        """Whether the scale of a pair is below the limit of the form."""
        scale = self.graph.array(node.inputs[1])
        return scale is not None and float(scale.max(initial=0)) < self.form.least

    def _is_float(self, name: str) -> bool:
        tensor = self.graph.initializers.get(name)
        return tensor.data_type == FLOAT if tensor is not None else self.kind.get(name) in (FLOAT, HALF)

    def _as(self, name: str, wanted: int) -> str:
        """The tensor of that type which holds the values of `name`."""
        if name in self.graph.initializers:
            return self._constant(name, wanted)
        if self.kind[name] == wanted:
            return name
        key = (name, wanted)
        if key not in self.casts:
            graph = self.graph
            made = graph.unique_name(f"{name}_{_WORD[wanted]}")
            cast = Node("Cast", [name], [made], graph.node_name(f"{made}_Cast"), to=wanted)
            graph.insert_after(cast, graph.producer.get(name))
            self.casts[key] = made
        return self.casts[key]

    def _constant(self, name: str, wanted: int) -> str:
        if wanted == FLOAT:
            return name
        if name not in self._halves:
            values = to_array(self.graph.initializers[name]).astype(np.float32)
            values = np.clip(values, -FLOAT16_MAX, FLOAT16_MAX)
            self._halves[name] = self.graph.constant(f"{name}_{_WORD[HALF]}", values.astype(np.float16))
        return self._halves[name]

    def _output(self, name: str, wanted: int) -> None:
        graph = self.graph
        if wanted not in (FLOAT, HALF) or self.kind.get(name, wanted) == wanted:
            return
        source = graph.before_output(name, _WORD[self.kind[name]])
        graph.insert_behind(source, [Node("Cast", [source], [name], graph.node_name(f"{name}_Cast"), to=wanted)])
        self.casts[source, wanted] = name


_WORD: dict[int, str] = {FLOAT: "float32", HALF: "float16"}


def _only_wide(formals: Sequence[onnx.defs.OpSchema.FormalParameter], index: int) -> bool:
    """Whether that input or output cannot be float16 (scales of Resize, scores of NonMaxSuppression)."""
    types = formals[min(index, len(formals) - 1)].types
    return _WIDE in types and _NARROW not in types


def _narrow_attributes(node: Node) -> None:
    """Types in a node's attributes, and constants that it holds."""
    for key in ("to", "dtype"):
        if node.get(key) == FLOAT and key in node.attributes:
            node.set(key, HALF)
    for key, attribute in node.attributes.items():
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == FLOAT:
            values = np.clip(to_array(attribute.t), -FLOAT16_MAX, FLOAT16_MAX)
            node.set(key, onnx.numpy_helper.from_array(values.astype(np.float16)))
