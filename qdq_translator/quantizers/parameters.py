"""Reading scale and zero point of a QuantizeLinear or DequantizeLinear: a `QuantParams`, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

import numpy as np

from qdq_translator.ir.constants import Constants, element_name, is_dequantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.qparams import RANGES, QuantParams


@dataclass(frozen=True)
class Rejected:
    """Why a quantizer has no implicit INT8 counterpart: what was found, with node and tensor, and how to fix it."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} {self.hint}"


def read_parameters(
    graph: Graph, constants: Constants, node: Node, missing_zero_point: str, stored_dtype: Optional[str] = None
) -> Union[QuantParams, Rejected]:
    """The parameters of one Q or DQ node.

    `stored_dtype`: type of the codes that a DQ reads, where it is known; `missing_zero_point`: what a node without
    zero point and without `output_dtype` means ('uint8' by the ONNX standard). Per-channel axes come out as given by
    the node (default 1), not normalised to the rank; a single value along an axis counts as per tensor.
    """
    without_zero_point = None if node.input(2) else (node.op_type, stored_dtype)
    settings = tuple(map(node.get, ("axis", "block_size", "output_dtype"))) if node.attributes else ()
    key = (*node.inputs[1:3], settings, without_zero_point)
    if key not in constants.parameters:
        constants.parameters[key] = _read(graph, constants, node, missing_zero_point, stored_dtype)
    found = constants.parameters[key]
    if isinstance(found, QuantParams):
        return found
    kind = "DequantizeLinear" if is_dequantize(node) else "QuantizeLinear"
    return Rejected(f"{kind} {node.label} on tensor '{node.inputs[0]}' {found.what}", found.hint)


def _read(
    graph: Graph, constants: Constants, node: Node, missing_zero_point: str, stored_dtype: Optional[str]
) -> Union[QuantParams, Rejected]:
    """What is rejected lacks the quantizer's name."""
    if node.get("block_size", 0):
        return Rejected(
            "quantizes in blocks.", "Implicit INT8 has no block scales; export per tensor or per channel int8."
        )
    scale, name = constants.value(node.input(1)), node.input(1)
    if scale is None:
        source = f"graph input '{name}'" if name in graph.inputs else f"tensor '{name}', computed at run time"
        return Rejected(
            f"has a computed scale, from {source}.",
            "Export with calibrated, constant scales (no dynamic quantization).",
        )
    if scale.dtype.kind not in "fV" or scale.ndim > 1 or not scale.size:
        return Rejected(
            f"has scales of shape {list(scale.shape)} and type {scale.dtype}.",
            "Implicit INT8 needs one float scale, or one a channel for weights.",
        )
    dtype = stored_dtype
    zero_point = np.zeros((), np.int64)
    if node.input(2):
        zero = constants.value(node.input(2))
        if zero is None:
            return Rejected("has a zero point that is not constant.", "Export with constant zero points.")
        dtype = constants.type_name(node.input(2))
        if dtype in RANGES:
            zero_point = zero.astype(np.int64)
    elif not is_dequantize(node):
        declared = node.get("output_dtype", 0)
        dtype = element_name(declared) if declared else missing_zero_point
    dtype = dtype or missing_zero_point
    if dtype not in RANGES:
        return Rejected(f"uses {dtype}.", "TensorRT's implicit mode and the DLA know int8 only; quantize to int8.")
    values = scale.astype(np.float32)
    bad = values[~(np.isfinite(values) & (values > 0))]
    if bad.size:
        return Rejected(
            f"has the scale {float(bad.flat[0]):g}.",
            "A scale must be finite and above 0; calibrate that tensor again (is it always 0?).",
        )
    if zero_point.size not in (1, values.size):
        return Rejected(
            f"has {values.size} scales and {zero_point.size} zero points.", "Export with as many zero points as scales."
        )
    if values.size == 1:
        return QuantParams(values.reshape(()), zero_point.reshape(()), dtype, None, scale.dtype)
    points = np.broadcast_to(zero_point.reshape(-1), values.shape)
    return QuantParams(values, points, dtype, int(node.get("axis", 1)), scale.dtype)
