"""Element types and shapes of every tensor, by ONNX's own shape inference from the graph's inputs.

What the file itself says of a tensor (value_info, shapes of graph outputs) counts only where inference knows less: a file
whose claims contradict its network would decide rewrites otherwise.
"""

from __future__ import annotations

import math
from typing import Mapping, Optional, Sequence, Union

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto

from qdq_translator.budget import MOST_DIMENSIONS
from qdq_translator.errors import UserError
from qdq_translator.graph import Graph
from qdq_translator.operators import COMPARISONS
from qdq_translator.shape_arithmetic import complete_shapes, computed_integers, hide_slices

FLOAT_TYPES = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))
MAKE_INTEGERS = frozenset((*COMPARISONS, "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "Not", "And", "Or"))
_KEPT_VALUES = 64
"""Initializers up to this many elements keep their values: shapes and axes that inference needs."""

Dim = Union[int, str, None]


class TensorTypes:
    """What is known of every tensor. Unknown element types count as float unless their operator makes integers."""

    def __init__(self, graph: Graph, input_shapes: Optional[Mapping[str, Sequence[int]]] = None) -> None:
        """`input_shapes`: sizes for dynamic dimensions of graph inputs. Raises UserError where they do not fit."""
        self._graph = graph
        self._weights = {name: (tensor.data_type, tuple(tensor.dims)) for name, tensor in graph.initializers.items()}
        small = {name for name, (_, dims) in self._weights.items() if math.prod(dims) <= _KEPT_VALUES}
        model = graph.to_model(initializers=(graph.initializers[name] for name in graph.initializers if name in small))
        hide_slices(model)
        for name, (data_type, dims) in self._weights.items():
            if name not in small:
                model.graph.input.append(onnx.helper.make_tensor_value_info(name, data_type, list(dims)))
        self._declared: dict[str, ValueInfoProto] = {}
        if input_shapes:  # for which the file's claims may not hold
            _fix_inputs(model, input_shapes)
        else:
            self._declared = {**graph.value_info, **graph.outputs}
        del model.graph.value_info[:]
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        try:
            inferred = onnx.shape_inference.infer_shapes(model)
        except Exception:  # unknown operators or contradictory shapes: what the file says must do
            inferred = model
        self._values: dict[str, ValueInfoProto] = {
            v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)
        }
        complete_shapes(graph, self._values, self._declared)
        self._kinds = {name: data_type for name, (data_type, _) in self._weights.items()}
        self._shapes: dict[str, Optional[tuple[Dim, ...]]] = {}

    def contradictions(self) -> dict[str, tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
        """Tensors of which the file says another rank or other sizes than follow from the inputs: what it says, and what
        follows."""
        found = {}
        for name, value in self._declared.items():
            declared, shape = _sizes(value), self.shape(name)
            if declared is None or shape is None:
                continue
            pairs = zip(declared, shape)
            if len(declared) != len(shape) or any(
                isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
            ):
                found[name] = (declared, shape)
        return found

    def integers(self) -> dict[str, np.ndarray]:
        """Node outputs that hold integers or booleans which follow from known shapes."""
        return computed_integers(self._graph, self._values)

    def elem_type(self, name: str) -> int:
        """ONNX element type, 0 where unknown."""
        kind = self._kinds.get(name)
        if kind is None:
            value = self._values.get(name)
            kind = self._kinds[name] = int(value.type.tensor_type.elem_type) if value is not None else 0
        return kind

    def is_float(self, name: str) -> bool:
        elem = self.elem_type(name)
        if elem:
            return elem in FLOAT_TYPES
        producer = self._graph.producer.get(name)
        return producer is None or producer.op_type not in MAKE_INTEGERS

    def shape(self, name: str) -> Optional[tuple[Dim, ...]]:
        """Sizes; a dynamic dimension is its name or None. None where not even the rank is known."""
        if name not in self._shapes:
            self._shapes[name] = self._read_shape(name)
        return self._shapes[name]

    def _read_shape(self, name: str) -> Optional[tuple[Dim, ...]]:
        if name in self._weights:
            return self._weights[name][1]
        value = self._values.get(name)
        return None if value is None else _sizes(value)

    def rank(self, name: str) -> Optional[int]:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def static_shape(self, name: str) -> Optional[tuple[int, ...]]:
        """The shape where every dimension is a number."""
        shape = self.shape(name)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        return tuple(int(d) for d in shape if isinstance(d, int))


def _sizes(value: ValueInfoProto) -> Optional[tuple[Dim, ...]]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) > MOST_DIMENSIONS:
        return None
    # ONNX infers sizes below 0 where a kernel is larger than what it moves over
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None) for d in tensor.shape.dim
    )


def _fix_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    inputs = {v.name: v for v in model.graph.input}
    for name, wanted in shapes.items():
        value = inputs.get(name)
        if value is None:
            raise UserError(
                f"--shapes names '{name}', which is not a graph input.", "Inputs are: " + ", ".join(inputs) + "."
            )
        dims = value.type.tensor_type.shape.dim
        if len(dims) != len(wanted) or any(d.HasField("dim_value") and d.dim_value != w for d, w in zip(dims, wanted)):
            has = "x".join(str(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)
            raise UserError(f"--shapes gives '{name}' {'x'.join(map(str, wanted))}, but the model says {has}.", "")
        for dim, size in zip(dims, wanted):
            dim.Clear()
            dim.dim_value = size
