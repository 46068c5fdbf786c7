"""Reading scale and zero point of a QuantizeLinear or DequantizeLinear: a `QuantParams`, or the reason why not."""

from __future__ import annotations

from typing import List, Optional, Tuple, Union

import numpy as np
from onnx import TensorProto

from qdq_translator.core.records import record
from qdq_translator.ir.constants import Constants, element_name, is_dequantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.qparams import FLOAT32, RANGES, QuantParams
from qdq_translator.ir.weights import Weight


@record(frozen=True)
class Rejected:
    """Why a quantizer has no implicit INT8 counterpart: what was found, with node and tensor, and how to mend it."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} {self.hint}"


_USUAL: dict[int, str] = {TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
"""Types of zero points that most quantizers have."""
_SETTINGS = ("axis", "block_size", "output_dtype")
"""The attributes that the parameters depend on."""


def read_parameters(
    graph: Graph, constants: Constants, node: Node, missing_zero_point: str, stored_dtype: Optional[str] = None
) -> Union[QuantParams, Rejected]:
    """The parameters of one Q or DQ node, read once.

    `stored_dtype`: type of the codes that a DQ reads, where it is known; `missing_zero_point`: what a node without
    zero point and without `output_dtype` means ('uint8' by the ONNX standard). Per-channel axes come out as given by
    the node (default 1), not normalised to the rank; a single value along an axis counts as per tensor.
    """
    known = constants.read.get(node)
    if known is not None:
        return known
    key = (node, stored_dtype, missing_zero_point)
    known = constants.parameters.get(key)
    if known is not None:
        return known
    read = _read(graph, constants, node, missing_zero_point, stored_dtype)
    if isinstance(read, QuantParams):
        constants.parameters[key] = read
    return read


def read_together(graph: Graph, constants: Constants) -> None:
    """Reads the usual quantizers, whose float32 scales and 8-bit zero points are in the file, and leaves the others, and what
    must be rejected, to `read_parameters`. What a value costs in an array of all of them is little beside a call of NumPy's."""
    alike: dict[tuple[str, str, int], list[Node]] = {}
    axes: dict[int, int] = {}  # of attributes, which many nodes share
    for node in constants.quantizers:
        inputs, attributes = node.inputs, node.attributes
        if len(inputs) == 3 and "block_size" not in attributes:
            if id(attributes) not in axes:
                axes[id(attributes)] = int(node.get("axis", 1))
            key = (inputs[1], inputs[2], axes[id(attributes)])
            if key in alike:
                alike[key].append(node)
            else:
                alike[key] = [node]
    initializers = graph.initializers
    found: dict[int, list[_Stored]] = {data_type: [] for data_type in _USUAL}
    for (of_scale, of_zero, axis), nodes in alike.items():
        scale, zero = initializers.get(of_scale), initializers.get(of_zero)
        if isinstance(scale, Weight) and isinstance(zero, Weight) and scale.data_type == TensorProto.FLOAT:
            values, codes = scale.stored(), zero.stored()
            if len(values) == 4 * len(codes) > 0 and len(scale.dims) <= 1 and zero.data_type in found:
                found[zero.data_type].append((values, codes, axis, nodes))
    for data_type, stored in found.items():
        _share(constants.read, stored, _USUAL[data_type])


_Stored = Tuple[bytes, bytes, int, List[Node]]
"""Scales, zero points and axis of some quantizers, and they."""


def _share(read: dict[Node, QuantParams], stored: list[_Stored], dtype: str) -> None:
    scales = np.frombuffer(b"".join([scale for scale, _, _, _ in stored]), FLOAT32)
    zeros = np.frombuffer(b"".join([zero for _, zero, _, _ in stored]), dtype).astype(np.int64)
    usable = (scales > 0) & (scales < np.inf)
    all_usable, all_centred = bool(usable.all()), not zeros.any()
    behind = 0
    for _, codes, axis, nodes in stored:
        first, behind = behind, behind + len(codes)
        if all_usable or usable[first:behind].all():
            one = len(codes) == 1
            place = (first, ...) if one else slice(first, behind)
            params = QuantParams(scales[place], zeros[place], dtype, None if one else axis)
            if all_centred:  # which everybody asks, and looking costs as much as all of this
                vars(params)["centred"] = True
            for node in nodes:
                read[node] = params


def _read(
    graph: Graph, constants: Constants, node: Node, missing_zero_point: str, stored_dtype: Optional[str]
) -> Union[QuantParams, Rejected]:
    tensor = node.inputs[0]
    kind = "DequantizeLinear" if is_dequantize(node) else "QuantizeLinear"

    def reject(what: str, hint: str) -> Rejected:
        return Rejected(f"{kind} {node.label} on tensor '{tensor}' {what}", hint)

    settings = tuple([(key, node.get(key)) for key in _SETTINGS if key in node.attributes])
    without_zero_point = () if node.input(2) else (kind, stored_dtype, missing_zero_point)
    key = (node.input(1), node.input(2), settings, without_zero_point)
    if key in constants.parameters:
        return constants.parameters[key]
    if node.get("block_size", 0):
        return reject(
            "quantizes in blocks.", "Implicit INT8 has no block scales; export per tensor or per channel int8."
        )
    scale = _constant(constants, node.input(1))
    if scale is None:
        source = (
            f"graph input '{node.input(1)}'"
            if node.input(1) in graph.inputs
            else f"tensor '{node.input(1)}', computed at run time"
        )
        return reject(
            f"takes its scale from {source}.", "Export with calibrated, constant scales (no dynamic quantization)."
        )
    if scale.dtype.kind not in "fV" or scale.ndim > 1 or not scale.size:
        return reject(
            f"has scales of shape {list(scale.shape)} and type {scale.dtype}.",
            "Implicit INT8 needs one float scale, or one a channel for weights.",
        )
    dtype = stored_dtype
    zero_point = np.zeros((), np.int64)
    if node.input(2):
        zero = _constant(constants, node.input(2))
        if zero is None:
            return reject(
                "takes its zero point from a tensor that is not constant.", "Export with constant zero points."
            )
        dtype = constants.type_name(node.input(2))
        if dtype in RANGES:
            zero_point = zero.astype(np.int64)
    elif not is_dequantize(node):
        declared = node.get("output_dtype", 0)
        dtype = element_name(declared) if declared else missing_zero_point
    if dtype is None:
        dtype = missing_zero_point
    if dtype not in RANGES:
        return reject(f"uses {dtype}.", "TensorRT's implicit mode and the DLA know int8 only; quantize to int8.")
    values = scale.astype(np.float32)
    if not (np.minimum.reduce(values, None) > 0 and np.maximum.reduce(values, None) < np.inf):  # NaN neither
        bad = float(values.reshape(-1)[np.argmax(~np.isfinite(values.reshape(-1)) | (values.reshape(-1) <= 0))])
        return reject(
            f"has the scale {bad:g}.",
            "A scale must be finite and above 0; calibrate that tensor again (is it always 0?).",
        )
    axis: Optional[int] = None
    if zero_point.size not in (1, values.size):
        return reject(
            f"has {values.size} scales and {zero_point.size} zero points.", "Export with as many zero points as scales."
        )
    if values.size == 1:
        values, zero_point = values.reshape(()), zero_point.reshape(())
    else:
        axis = int(node.get("axis", 1))
        zero_point = (
            zero_point if zero_point.shape == values.shape else np.broadcast_to(zero_point.reshape(-1), values.shape)
        )
    read = constants.parameters[key] = QuantParams(values, zero_point, dtype, axis, scale.dtype)
    return read


def _constant(constants: Constants, name: str) -> Optional[np.ndarray]:
    return constants.value(name) if name else None
