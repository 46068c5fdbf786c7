"""Shapes behind shape arithmetic, which ONNX's own inference cannot resolve.

Exporters write `x.chunk(2, 1)` as Shape, Gather, Add, Div, Mul, Slice. ONNX's inference does not follow a Div, so every
tensor behind such a Slice has unknown sizes in a network whose inputs are all known. Here the integers are computed
node by node, and ONNX's inference of one node is repeated with them if a shape was unknown. Linear in the number of
nodes behind the first unknown shape.

ONNX's own data propagation is not used: it creates an object for every element of every one-dimensional tensor read by
a Cast, Unsqueeze, Slice ..., gigabytes for a model of a few hundred bytes.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Union

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, ValueInfoProto, defs, numpy_helper, shape_inference

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.weights import to_message

HIDDEN = "qdq_translator.hidden"
"""A domain without operators."""
_MOST = 64
"""Elements of the largest value that counts as shape arithmetic."""

Array = np.ndarray
"""Integers as objects; None or a `_Named` for an element that is not known."""


class _Named:
    """A size that has a name and no number. No arithmetic: every operator raises TypeError, as it does with None."""

    def __init__(self, name: str) -> None:
        self.name = name


def shown_domain(node: Node) -> str:
    """The node's domain as shown to ONNX's inference of a whole model.

    A Slice is hidden from it, because it aborts the process if the size to be cut is negative. `complete_shapes` infers
    Slices one by one, after checking their sizes."""
    return HIDDEN if node.is_op("Slice") else node.domain


def complete_shapes(
    graph: Graph,
    values: dict[str, ValueInfoProto],
    declared: Mapping[str, ValueInfoProto],
    nodes: Optional[Iterable[Node]] = None,
) -> dict[str, np.ndarray]:
    """Fills unknown sizes of node outputs into `values`, tensor name -> known sizes. `declared`: shapes in the file,
    for sizes that do not follow from the inputs. nodes: only these. Returns every node output of integers or booleans
    that follow from known shapes: arrays of Python integers."""
    completion = _Completion(graph, values, declared)
    completion.run(graph.nodes if nodes is None else nodes)
    return {name: array for name, array in completion.known.items() if _is_known(array)}


def _is_static(value: Optional[ValueInfoProto]) -> bool:
    if value is None or not value.type.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


class _Completion:
    def __init__(self, graph: Graph, values: dict[str, ValueInfoProto], declared: Mapping[str, ValueInfoProto]) -> None:
        self.graph, self.values, self.declared = graph, values, declared
        self.known: dict[str, Array] = {}
        self.changed: set[str] = set()
        self.opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]

    def run(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.is_standard:
                self._compute(node)
            unknown = [name for name in node.outputs if name and not _is_static(self.values.get(name))]
            if not unknown:
                continue
            again = any(name in self.changed or name in self.known for name in node.inputs)
            hidden = shown_domain(node) == HIDDEN
            if node.is_standard and (again or hidden or not any(name in self.values for name in node.outputs)):
                self._infer(node)
            for name in unknown:
                self._adopt(name)

    def _adopt(self, name: str) -> None:
        """Uses the file's shape of a tensor for sizes that inference does not know."""
        declared, value = self.declared.get(name), self.values.get(name)
        if declared is None or not declared.type.HasField("tensor_type"):
            return
        if value is None or not value.type.tensor_type.HasField("shape"):
            self.values[name] = declared
            self.changed.add(name)
            return
        given, dims = declared.type.tensor_type.shape.dim, value.type.tensor_type.shape.dim
        if len(given) != len(dims):
            return
        for dim, said in zip(dims, given):
            if not dim.HasField("dim_value") and (said.HasField("dim_value") or not dim.dim_param):
                dim.CopyFrom(said)
                self.changed.add(name)

    # ------------------------------------------------------------ values

    def value(self, name: str) -> Optional[Array]:
        """The integers of a constant or of computed shape arithmetic."""
        if name in self.known:
            return self.known[name]
        tensor = self.graph.initializers.get(name)
        if tensor is not None and math.prod(tensor.dims) > _MOST:
            return None
        array = self.graph.array(name)
        if array is None or array.size > _MOST or array.dtype.kind not in "iub":
            return None
        return array.astype(object)

    def _compute(self, node: Node) -> None:
        rule = _RULES.get(node.op_type)
        if node.is_op("Shape"):
            result = self._shape(node)
        elif rule is None:
            return
        else:
            inputs = []
            for name in filter(None, node.inputs):
                value = self.value(name)
                if value is None:
                    return
                inputs.append(value)
            try:
                result = rule(node, inputs)
            except (TypeError, ValueError, IndexError, ArithmeticError):  # an element is unknown, or shapes do not fit
                return
        if result is None:
            return
        result = np.asarray(result, dtype=object)  # of objects, NumPy gives a scalar as the object itself
        if result.size <= _MOST:
            self.known[node.outputs[0]] = _wrapped(result)

    def _shape(self, node: Node) -> Optional[Array]:
        name = node.inputs[0]
        value = self.values.get(name)
        if name in self.graph.initializers:
            sizes: list[Union[int, _Named]] = list(self.graph.initializers[name].dims)
        elif value is not None and value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            sizes = [d.dim_value if d.HasField("dim_value") else _Named(d.dim_param) for d in dims]
        else:
            return None
        return np.array(sizes, dtype=object)[node.get("start", 0) : node.get("end")]

    # ------------------------------------------------------------ types

    def _type(self, name: str) -> Optional[TypeProto]:
        tensor, value = self.graph.initializers.get(name), self.values.get(name)
        if tensor is not None:
            return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        return None if value is None else value.type

    def _data(self, name: str, elem_type: int) -> Optional[onnx.TensorProto]:
        """The elements of a small constant, or of computed shape arithmetic."""
        tensor, value = self.graph.initializers.get(name), self.known.get(name)
        if tensor is not None:
            return to_message(tensor) if math.prod(tensor.dims) <= _MOST else None
        dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type) if elem_type else np.dtype(np.int64)
        # an element type that NumPy holds as objects: the file calls numbers a string
        if value is None or not _is_known(value) or dtype.kind == "O":
            return None
        return numpy_helper.from_array(value.astype(np.int64).astype(dtype), name)

    def _infer(self, node: Node) -> None:
        types: dict[str, TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for name in filter(None, node.inputs):
            known = self._type(name)
            if known is None or any(dim.dim_value < 0 for dim in known.tensor_type.shape.dim):
                return
            types[name] = known
        for name in filter(None, node.inputs[1:]):
            elements = self._data(name, types[name].tensor_type.elem_type)
            if elements is not None:
                data[name] = elements
        try:
            schema = defs.get_schema(node.op_type, self.graph.opset(), "")
            found = shape_inference.infer_node_outputs(schema, node.to_proto(), types, data, None, self.opsets)
        except Exception:  # unknown operators, contradictory shapes: then the shape stays unknown
            return
        if node.is_op("Reshape", "ConstantOfShape") and node.outputs[0] in found:
            self._named(node, found[node.outputs[0]])
        for name, inferred in found.items():
            if name and inferred.tensor_type.HasField("shape"):
                self.values[name] = ValueInfoProto(name=name, type=inferred)
                self.changed.add(name)

    def _named(self, node: Node, made: TypeProto) -> None:
        """Set the output sizes of a Reshape or ConstantOfShape whose size list is partly known."""
        sizes = self.known.get(node.inputs[-1])
        if sizes is None or _is_known(sizes) or sizes.ndim != 1 or len(node.inputs) != 1 + node.is_op("Reshape"):
            return
        del made.tensor_type.shape.dim[:]
        made.tensor_type.shape.SetInParent()
        for size in sizes:
            dim = made.tensor_type.shape.dim.add()
            if isinstance(size, _Named):
                dim.dim_param = size.name
            elif size is not None and size > 0:
                dim.dim_value = size


# ---------------- integer operators


def _is_known(values: Array) -> bool:
    return all(v is not None and not isinstance(v, _Named) for v in values.flat)


def _given(node: Node, values: list[Array]) -> operators.LookUp:
    """The computed inputs by name; an omitted one has no place among `values`."""
    return dict(zip((name for name in node.inputs if name), values)).get


def _axes(node: Node, values: list[Array], more: int = 0) -> tuple[int, ...]:
    """The node's axes, none negative. more: dimensions that the node adds to those of its input."""
    axes = operators.axes(node, _given(node, values)) or []
    return tuple(operators.non_negative(axes, values[0].ndim + more * len(axes)) or ())


def _squeeze(node: Node, values: list[Array]) -> Array:
    if not operators.is_given(node, "axes", 1):
        return values[0].reshape([d for d in values[0].shape if d != 1])
    return np.squeeze(values[0], _axes(node, values))


def _slice(node: Node, values: list[Array]) -> Optional[Array]:
    data, cut = values[0], operators.slices(node, _given(node, values))
    if cut is None:
        return None
    for start, end, axis, step in zip(cut.starts, cut.ends, cut.axes, cut.steps):
        index: list[slice] = [slice(None)] * data.ndim
        index[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
        data = data[tuple(index)]
    return data


def _divide(node: Node, values: list[Array]) -> Array:
    """ONNX divides integers towards zero."""
    pairs = np.broadcast_arrays(*values)
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(pairs[0].flat, pairs[1].flat)]
    return np.array(quotients, dtype=object).reshape(pairs[0].shape)


def _remainder(node: Node, values: list[Array]) -> Array:
    """Remainders of Mod: with the sign of the divisor, or with fmod that of the dividend."""
    if operators.truncates(node):
        return values[0] - values[1] * _divide(node, values)
    return values[0] % values[1]


def _reshape(node: Node, values: list[Array]) -> Array:
    wanted = [int(v) for v in values[1].reshape(-1)]
    return values[0].reshape(operators.reshaped(node, values[0].shape, wanted))


def _few(shape: Array) -> list[int]:
    """The sizes in `shape`. Raises ValueError, before any allocation, if they are too many for shape arithmetic."""
    sizes = [int(v) for v in shape.reshape(-1)]
    if math.prod(sizes) > _MOST:
        raise ValueError
    return sizes


def _constant_of_shape(node: Node, values: list[Array]) -> Optional[Array]:
    value = node.get("value")
    fill = numpy_helper.to_array(value).reshape(-1)[0] if value is not None else np.float32(0)
    if fill.dtype.kind not in "iub":
        return None
    return np.full(_few(values[0]), int(fill), dtype=object)


def _wrapped(values: Array) -> Array:
    """Integers that do not fit into int64 wrap around, as they do in ONNX."""
    unknown = (type(None), _Named)
    if all(isinstance(v, unknown) or -(2**63) <= int(v) < 2**63 for v in values.flat):
        return values
    wrapped = [v if isinstance(v, unknown) else (int(v) + 2**63) % 2**64 - 2**63 for v in values.flat]
    return np.array(wrapped, dtype=object).reshape(values.shape)


def _known(values: list[Array]) -> list[Array]:
    if not all(map(_is_known, values)):
        raise TypeError
    return values


_INTEGERS = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
_Rules = Dict[str, Callable[[Node, List[Array]], Optional[Array]]]
MOVES: _Rules = {
    "Identity": lambda node, v: v[0],
    "Concat": lambda node, v: np.concatenate(v, axis=node.get("axis", 0)),
    "Gather": lambda node, v: np.take(v[0], v[1].astype(np.int64), axis=node.get("axis", 0)),
    "Squeeze": _squeeze,
    "Unsqueeze": lambda node, v: np.expand_dims(v[0], _axes(node, v, 1)),
    "Slice": _slice,
    "Reshape": _reshape,
    "Transpose": lambda node, v: np.transpose(v[0], operators.permutation(node)),
    "Expand": lambda node, v: np.broadcast_to(v[0], np.broadcast_shapes(v[0].shape, tuple(int(d) for d in v[1]))),
}
"""Operators that move elements of any type."""
_RULES: _Rules = {
    **MOVES,
    "Add": lambda node, v: v[0] + v[1],
    "Sub": lambda node, v: v[0] - v[1],
    "Mul": lambda node, v: v[0] * v[1],
    "Div": _divide,
    "Mod": _remainder,
    "Equal": lambda node, v: np.equal(*_known(v)),
    "Where": lambda node, v: np.where(v[0].astype(bool), v[1], v[2]),
    "Cast": lambda node, v: v[0] if operators.cast_type(node) in _INTEGERS else None,
    "ConstantOfShape": _constant_of_shape,
    "ReduceProd": lambda node, v: np.array([np.prod(v[0])], dtype=object) if len(v) == 1 else None,
    "Min": lambda node, v: np.minimum.reduce(_known(v)),
    "Max": lambda node, v: np.maximum.reduce(_known(v)),
}
