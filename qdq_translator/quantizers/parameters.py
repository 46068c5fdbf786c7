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


_SETTINGS = ("axis", "block_size", "output_dtype")
"""The attributes that the parameters depend on."""


def read_parameters(
    graph: Graph, constants: Constants, node: Node, missing_zero_point: str, stored_dtype: Optional[str] = None
) -> Union[QuantParams, Rejected]:
    """The parameters of one Q or DQ node; those of the same tensors are read once.

    `stored_dtype`: type of the codes that a DQ reads, where it is known; `missing_zero_point`: what a node without
    zero point and without `output_dtype` means ('uint8' by the ONNX standard). Per-channel axes come out as given by
    the node (default 1), not normalised to the rank; a single value along an axis counts as per tensor.
    """
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
    scale = constants.value(node.input(1))
    if scale is None:
        source = (
            f"graph input '{node.input(1)}'"
            if node.input(1) in graph.inputs
            else f"tensor '{node.input(1)}', computed at run time"
        )
        return reject(
            f"has a computed scale, from {source}.",
            "Export with calibrated, constant scales (no dynamic quantization).",
        )
    if scale.dtype.kind not in "fV" or scale.ndim > 1 or not scale.size:
        return reject(
            f"has scales of shape {list(scale.shape)} and type {scale.dtype}.",
            "Implicit INT8 needs one float scale, or one a channel for weights.",
        )
    dtype = stored_dtype
    zero_point = np.zeros((), np.int64)
    if node.input(2):
        zero = constants.value(node.input(2))
        if zero is None:
            return reject("has a zero point that is not constant.", "Export with constant zero points.")
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
