"""Validation of a model before it is used: the parts of ONNX's checker that hold for every exporter.

Operators that ONNX does not know (plugins) pass; known ones must have the inputs and the attribute types of their
schema, and every tensor must have the data of its type and shape.
"""

from __future__ import annotations

import functools
import math
from typing import Iterable, Optional

from onnx import TensorProto, defs, numpy_helper

from qdq_translator.core.budget import MOST_DIMENSIONS
from qdq_translator.core.errors import ModelError
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.weights import Weight

_KNOWN_TYPES = frozenset(v for k, v in TensorProto.DataType.items() if k != "UNDEFINED")
_BITS: dict[int, int] = {
    **{v: 8 for k, v in TensorProto.DataType.items() if k.startswith("FLOAT8")},
    **{v: 4 for k, v in TensorProto.DataType.items() if k.endswith("INT4") or k.startswith("FLOAT4")},
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64), 64),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
}
"""Bits of one element, for the types whose data are packed bits and nothing else."""
_MOST_ELEMENTS = 2**48
"""Also with a 0 among the sizes: NumPy cannot hold such shapes."""
_MOST_OPSET = 1000
_MEND = "The file is damaged or was written by a faulty exporter; export it again."

_AS_IN_ONNX = {("com.microsoft", "QuantizeLinear"), ("com.microsoft", "DequantizeLinear")}
"""ONNX Runtime's own quantizers have the inputs and attributes of ONNX's."""


def validate(graph: Graph) -> None:
    """Raises ModelError with the first node or tensor that violates the ONNX specification."""
    if not 0 < graph.opset() < _MOST_OPSET:
        raise ModelError(f"The model declares opset {graph.opset()}.", _MEND)
    if not graph.outputs:
        raise ModelError("The model has no outputs, so nothing in it is computed.", _MEND)
    for name, value in (*graph.inputs.items(), *graph.outputs.items(), *graph.value_info.items()):
        if len(value.type.tensor_type.shape.dim) > MOST_DIMENSIONS:
            raise ModelError(f"Tensor '{name}' has more than {MOST_DIMENSIONS} dimensions.", _MEND)
    for tensor in graph.initializers.values():
        if not isinstance(tensor, Weight):
            _check_tensor(tensor, f"Initializer '{tensor.name}'")
        else:  # its bytes fit its shape
            _check_shape(tensor.dims, f"Initializer '{tensor.name}'")
    for node in graph.nodes:
        if not any(node.outputs):
            raise ModelError(f"Node {node.label} ({node.op_type}) has no output.", _MEND)
        if not node.domain or (node.domain, node.op_type) in _AS_IN_ONNX:
            _check_node(node, _schema(node.op_type, graph.opset()))


@functools.lru_cache(maxsize=None)
def _schema(op_type: str, opset: int) -> Optional[defs.OpSchema]:
    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None


def _check_node(node: Node, schema: Optional[defs.OpSchema]) -> None:
    who = f"Node {node.label} ({node.op_type})"
    for key, attribute in node.attributes.items():
        if attribute.type == attribute.TENSOR:
            _check_tensor(attribute.t, f"Attribute {key} of node {node.label}")
    # an opset that lacks the operator is no reason to accept what no version takes
    versions = [schema] if schema is not None else _histories().get(node.op_type, [])
    if versions:
        least, most = min(v.min_input for v in versions), max(v.max_input for v in versions)
        if not least <= len(node.inputs) <= most:
            what = f"{who} has {len(node.inputs)} inputs, and ONNX requires {least} to {most}."
            raise ModelError(what, _MEND)
    stated = {} if schema is None else _attributes(schema.name, schema.since_version)
    for key, (_, required) in stated.items():
        if required and key not in node.attributes:
            raise ModelError(f"{who} lacks its attribute '{key}'.", _MEND)
    for key, attribute in node.attributes.items():
        kinds = {stated[key][0]} if key in stated else _ever(node.op_type).get(key)
        if kinds and attribute.type not in kinds:
            raise ModelError(f"{who} has the wrong type in its attribute '{key}'.", _MEND)
    for index in () if schema is None else _needed(schema.name, schema.since_version):
        if not node.input(index):
            raise ModelError(f"{who} lacks its input {index + 1}.", _MEND)
    # as many as any version has: exporters mix versions, as with a BatchNormalization that was trained
    if schema is None or len(node.outputs) > schema.max_output:
        most = max((v.max_output for v in _histories().get(node.op_type, ())), default=len(node.outputs))
        if len(node.outputs) > most:
            raise ModelError(f"{who} has {len(node.outputs)} outputs, and ONNX allows {most}.", _MEND)


_EXPORTED_WITHOUT = ("Resize",)
"""Exporters leave out its region of interest in opsets 11 and 12, which do not allow it, and everybody reads that."""


@functools.lru_cache(maxsize=None)
def _needed(op_type: str, since: int) -> tuple[int, ...]:
    """Which inputs may not be left out."""
    schema = defs.get_schema(op_type, since, "")
    single = defs.OpSchema.FormalParameterOption.Single
    needed = tuple(i for i, parameter in enumerate(schema.inputs) if parameter.option == single)
    return needed[:1] if op_type in _EXPORTED_WITHOUT else needed


@functools.lru_cache(maxsize=None)
def _ever(op_type: str) -> dict[str, set[int]]:
    """The types that the operator's attributes have had in any version: exporters mix versions."""
    found: dict[str, set[int]] = {}
    for schema in _histories().get(op_type, ()):
        for key, (kind, _) in _attributes(op_type, schema.since_version).items():
            found.setdefault(key, set()).add(kind)
    return found


@functools.lru_cache(maxsize=None)
def _histories() -> dict[str, list[defs.OpSchema]]:
    found: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema)
    return found


@functools.lru_cache(maxsize=None)
def _attributes(op_type: str, since: int) -> dict[str, tuple[int, bool]]:
    """Attribute -> its type, and whether it is required."""
    attributes = defs.get_schema(op_type, since, "").attributes
    return {name: (int(a.type.value), a.required) for name, a in attributes.items()}  # type: ignore[attr-defined]


def stored_bytes(tensor: TensorProto, what: str) -> Optional[int]:
    """Required bytes of a tensor's raw data; None for element types without a known size, such as strings.

    Raises ModelError for an impossible shape.
    """
    _check_shape(tensor.dims, what)
    bits = _BITS.get(tensor.data_type)
    return None if bits is None else -(-math.prod(tensor.dims) * bits // 8)


def _check_shape(sizes: Iterable[int], what: str) -> None:
    dims = tuple(sizes)
    if len(dims) > MOST_DIMENSIONS:
        raise ModelError(f"{what} has more than {MOST_DIMENSIONS} dimensions.", _MEND)
    if dims and (min(dims) < 0 or math.prod(dims if 0 not in dims else [d or 1 for d in dims]) > _MOST_ELEMENTS):
        raise ModelError(f"{what} has the shape {list(dims)}.", _MEND)


def _check_tensor(tensor: TensorProto, what: str) -> None:
    if tensor.data_type not in _KNOWN_TYPES:
        raise ModelError(f"{what} has the unknown element type {tensor.data_type}.", _MEND)
    needed = stored_bytes(tensor, what)
    if tensor.data_location == TensorProto.EXTERNAL:
        raise ModelError(f"{what} has its data in another file.", "Load the model with its external data.")
    if tensor.HasField("raw_data") and needed is not None:
        if len(tensor.raw_data) != needed:
            raise ModelError(
                f"{what} of shape {list(tensor.dims)} holds {len(tensor.raw_data)} bytes instead of {needed}.", _MEND
            )
        return
    try:
        numpy_helper.to_array(tensor)
    except Exception as error:  # NumPy and protobuf raise whatever does not fit
        raise ModelError(
            f"{what} does not contain the data that its shape {list(tensor.dims)} needs.", _MEND
        ) from error
