"""Validation of a model before it is used: the parts of ONNX's checker that hold for every exporter.

Operators that ONNX does not know (plugins) pass; known ones must have the inputs and the attribute types of their
schema, and every tensor must have the data of its type and shape.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from onnx import TensorProto, defs, numpy_helper

from qdq_translator.core.budget import MOST_DIMENSIONS
from qdq_translator.core.errors import ModelError
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Weight

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
_MOST_OPSET, _MOST_BATCH = 1000, 16
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
            _check_tensor(tensor, f"Initializer '{tensor.name}'", lambda tensor: graph.array(tensor.name))
        else:  # its bytes fit its shape
            _check_shape(tensor.dims, f"Initializer '{tensor.name}'")
    for node in graph.nodes:
        if not any(node.outputs):
            raise ModelError(f"Node {node.label} ({node.op_type}) has no output.", _MEND)
        if not node.domain or (node.domain, node.op_type) in _AS_IN_ONNX:
            _check_node(node, _operator(node.op_type, graph.opset()))
        if graph.opset() < _AXIS_SINCE and node.is_op("QuantizeLinear", "DequantizeLinear"):
            _check_per_tensor(graph, node)


def check_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]], batch_of_one: bool) -> TensorTypes:
    """The types. Raises ModelError with the first layer that cannot be computed from tensors of these sizes. shapes: of
    graph inputs. batch_of_one: an open batch is 1 for this check."""
    types = TensorTypes(graph, shapes)
    batches = types.open_batches() if batch_of_one else {}
    what = _impossible(graph, TensorTypes(graph, {**shapes, **batches}) if batches else types)
    if what:
        fitting = _fitting_batch(graph, {**shapes, **batches})
        other = f"With a batch of {fitting} they would fit: give" if fitting else "Give"
        name = next(iter(graph.inputs), "NAME")
        size = f"{name}:{fitting}x..." if fitting else "NAME:DIMS"
        raise ModelError(f"{what}.", f"{other} such sizes with --shapes {size}, or export the network again.")
    return types


def _impossible(graph: Graph, types: TensorTypes) -> str:
    """What is wrong with the sizes of the first layer that cannot have them, '' if every layer can."""
    if types.impossible:
        return types.impossible
    for node in graph.nodes:
        check = _SIZES.get(node.op_type) if node.is_standard else None
        read, made = (types.static_shape(name) for name in (node.input(0), node.outputs[0]))
        why = check(node, read, made) if check is not None and read is not None else ""
        if why:
            return f"{node.op_type + ' ' if node.name else ''}{node.label} cannot have this input ({why})"
    return ""


def _fitting_batch(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> int:
    """The smallest batch with which all shapes fit, 0 if there is none up to `_MOST_BATCH`."""
    picture = graph.picture()
    for batch in range(1, _MOST_BATCH + 1):
        other = Graph.from_picture(picture)
        for name, value in other.inputs.items():
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(name, ())):
                dim.dim_value = size
            for dim in value.type.tensor_type.shape.dim[:1]:
                dim.dim_value = batch
        if not _impossible(other, TensorTypes(other)):
            return batch
    return 0


def _elements(node: Node, read: Sequence[int], made: Optional[Sequence[int]]) -> str:
    """ONNX's inference accepts any shape that a Reshape names."""
    count = math.prod(read)
    return "" if made is None or math.prod(made) == count else f"{count} values become {math.prod(made)}"


def _blocks(node: Node, read: Sequence[int], made: Optional[Sequence[int]]) -> str:
    block = operators.block_size(node)
    if len(read) != 4 or block < 1:
        return f"{len(read)} dimensions, block size {block}"
    divided = [(read[1], block * block)] if node.is_op("DepthToSpace") else [(size, block) for size in read[2:]]
    return next((f"{size} is no multiple of {by}" for size, by in divided if size % by), "")


_SIZES: Dict[str, Callable[[Node, Sequence[int], Optional[Sequence[int]]], str]] = {
    "Reshape": _elements,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}
"""What ONNX's inference does not check: operator -> what is wrong with its sizes, '' if nothing is."""

_AXIS_SINCE = 13
"""Opset from which on QuantizeLinear and DequantizeLinear have an axis."""


def _check_per_tensor(graph: Graph, node: Node) -> None:
    """Raises ModelError for a quantizer per channel below opset 13: ONNX Runtime's quantizer writes such models, and
    neither ONNX nor ONNX Runtime itself reads them."""
    scale = graph.array(node.input(1))
    if scale is not None and scale.size > 1:
        raise ModelError(
            f"Node {node.label} ({node.op_type}) quantizes {scale.size} channels, and in opset {graph.opset()} ONNX "
            f"has one scale for each quantizer only; quantizers have an axis from opset {_AXIS_SINCE} on.",
            f"Convert the float model to opset {_AXIS_SINCE} or later with onnx.version_converter.convert_version, and "
            "quantize it again.",
        )


_EXPORTED_WITHOUT = ("Resize",)
"""In opsets 11 and 12, exporters omit its region of interest, which ONNX does not allow and all readers accept."""


class _Operator(NamedTuple):
    """The schema of an operator in an opset. Exporters mix versions, so outputs, types of attributes, and inputs in
    an opset that lacks it are those of any version. inputs: least and most; needed: those that may not be left out;
    types: by attribute."""

    inputs: Tuple[float, float]
    needed: Tuple[int, ...]
    outputs: float
    required: Tuple[str, ...]
    types: Dict[str, Set[int]]


def _versions(op_type: str) -> List[defs.OpSchema]:
    """Every version of an operator, newest first."""
    history, version = [], _MOST_OPSET
    while version:
        try:
            history.append(defs.get_schema(op_type, version, ""))
        except defs.SchemaError:
            break
        version = history[-1].since_version - 1
    return history


def _types(versions: Iterable[defs.OpSchema]) -> Dict[str, Set[int]]:
    """Types of each attribute in any of the versions."""
    types: Dict[str, Set[int]] = {}
    for version in versions:
        for name, attribute in version.attributes.items():
            types.setdefault(name, set()).add(int(attribute.type.value))  # type: ignore[attr-defined]
    return types


@functools.lru_cache(maxsize=None)
def _operator(op_type: str, opset: int) -> _Operator:
    """Nothing is known of a plugin, and nothing is required."""
    history = _versions(op_type)
    schema = next((one for one in history if one.since_version <= opset), None)
    versions, own = history if schema is None else [schema], {}
    needed: Tuple[int, ...] = ()
    if schema is not None:
        single, own = defs.OpSchema.FormalParameterOption.Single, schema.attributes
        needed = tuple(i for i, parameter in enumerate(schema.inputs) if parameter.option == single)
    required = tuple(name for name, attribute in own.items() if attribute.required)
    return _Operator(
        (min((v.min_input for v in versions), default=0), max((v.max_input for v in versions), default=math.inf)),
        needed[:1] if op_type in _EXPORTED_WITHOUT else needed,
        max((v.max_output for v in history), default=math.inf),
        required,
        {**_types(history), **_types(versions)},
    )


def _check_node(node: Node, known: _Operator) -> None:
    who = f"Node {node.label} ({node.op_type})"
    for key, attribute in node.attributes.items():
        if attribute.type == attribute.TENSOR:
            _check_tensor(attribute.t, f"Attribute {key} of node {node.label}")
    least, most = known.inputs
    if not least <= len(node.inputs) <= most:
        what = f"{who} has {len(node.inputs)} inputs, and ONNX requires {least} to {most}."
        raise ModelError(what, _MEND)
    for key in known.required:
        if key not in node.attributes:
            raise ModelError(f"{who} lacks its attribute '{key}'.", _MEND)
    for key, attribute in node.attributes.items():
        if attribute.type not in known.types.get(key, (attribute.type,)):
            raise ModelError(f"{who} has the wrong type in its attribute '{key}'.", _MEND)
    for index in known.needed:
        if not node.input(index):
            raise ModelError(f"{who} lacks its input {index + 1}.", _MEND)
    most = known.outputs
    if len(node.outputs) > most:
        raise ModelError(f"{who} has {len(node.outputs)} outputs, and ONNX allows {most}.", _MEND)


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


def _check_tensor(
    tensor: TensorProto, what: str, read: Callable[[TensorProto], object] = numpy_helper.to_array
) -> None:
    """Raises UserError for a tensor that cannot be read. read: the function that decodes its values."""
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
        read(tensor)
    except Exception as error:  # NumPy and protobuf raise different errors
        raise ModelError(
            f"{what} does not contain the data that its shape {list(tensor.dims)} needs.", _MEND
        ) from error
