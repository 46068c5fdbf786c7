"""Reading scale and zero point of a QuantizeLinear or DequantizeLinear: a `QuantParams`, or the reason why not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence

import numpy as np

from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.words import counted
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.constants import Constants, element_name, is_dequantize, is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node, every_node
from qdq_translator.translation.ir.qparams import RANGES, QuantParams


class Rejected(Exception):
    """Why a quantizer has no implicit INT8 counterpart: the finding, with node and tensor, and how to fix it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Approximated:
    """A quantizer translated by an option: original form, replacement, and loss of resolution. The loss is the ratio of
    its step to the finest step in the model. asymmetric: because of its zero point."""

    node: str
    tensor: str
    option: str
    what: str
    coarser: float
    asymmetric: bool = False


def known_parameters(
    constants: Constants, node: Node, stored_dtype: Optional[str] = None, missing: Optional[str] = None
) -> Optional[QuantParams]:
    """Scale and zero point of a quantizer as `read_parameters` reads them; None if they are rejected."""
    try:
        return read_parameters(constants, node, stored_dtype, missing)
    except Rejected:
        return None


def read_parameters(
    constants: Constants, node: Node, stored_dtype: Optional[str] = None, missing: Optional[str] = None
) -> QuantParams:
    """The parameters of one Q or DQ node. Raises Rejected.

    `stored_dtype`: type of the quantized values that a DQ reads, if known; `missing`: type for a node without zero
    point and without `output_dtype` (default: that of `constants`). Per-channel axes are returned as given by the node
    (default 1), not normalised to the rank; a single value along an axis counts as per tensor.
    """
    without_zero_point = None if node.input(2) else (node.op_type, stored_dtype)
    settings = tuple(map(node.get, ("axis", "block_size", "output_dtype"))) if node.attributes else ()
    key = (*node.inputs[1:3], settings, without_zero_point)
    if key not in constants.parameters:
        constants.parameters[key] = _read(constants, node, stored_dtype, missing or constants.missing_zero_point)
    params: QuantParams = constants.parameters[key]
    return params


def _read(constants: Constants, node: Node, stored: Optional[str], missing: str) -> QuantParams:
    who = f"{node.op_type} {node.label} on tensor '{node.inputs[0]}'"
    if node.get("block_size", 0):
        raise Rejected(
            f"{who} quantizes in blocks.", "Implicit INT8 has no block scales; export per tensor or per channel int8."
        )
    scale, name = constants.value(node.input(1)), node.input(1)
    if scale is None:
        source = f"graph input '{name}'" if name in constants.graph.inputs else f"tensor '{name}', computed at run time"
        raise Rejected(
            f"{who} has a computed scale, from {source}.",
            "Export with calibrated, constant scales (no dynamic quantization).",
        )
    if scale.dtype.kind not in "fV" or scale.ndim > 1 or not scale.size:
        raise Rejected(
            f"{who} has scales of shape {list(scale.shape)} and type {scale.dtype}.",
            "Implicit INT8 needs one float scale, or one a channel for weights.",
        )
    zero_point, dtype = np.zeros((), np.int64), _dtype(constants, node, stored) or missing
    if node.input(2):
        zero = constants.value(node.input(2))
        if zero is None:
            raise Rejected(f"{who} has a zero point that is not constant.", "Export with constant zero points.")
        zero_point = zero.astype(np.int64) if dtype in RANGES else zero_point
    if dtype not in RANGES:
        raise Rejected(f"{who} uses {dtype}.", "TensorRT's implicit mode and the DLA know int8 only; quantize to int8.")
    values = scale.astype(np.float32)
    bad = values[~(np.isfinite(values) & (values > 0))]
    if bad.size:
        raise Rejected(
            f"{who} has the scale {float(bad.flat[0]):g}.",
            "A scale must be finite and above 0; calibrate that tensor again (is it always 0?).",
        )
    if zero_point.size not in (1, values.size):
        raise Rejected(
            f"{who} has {values.size} scales and {zero_point.size} zero points.",
            "Export with as many zero points as scales.",
        )
    if values.size == 1:
        return QuantParams(values.reshape(()), zero_point.reshape(()), dtype, None, scale.dtype)
    points = np.broadcast_to(zero_point.reshape(-1), values.shape)
    return QuantParams(values, points, dtype, int(node.get("axis", 1)), scale.dtype)


def _dtype(constants: Constants, node: Node, stored: Optional[str]) -> Optional[str]:
    """Type of the quantized values: that of the zero point, else as declared (Q) or stored (DQ); None if unknown."""
    if node.input(2):
        return constants.type_name(node.input(2))
    if is_dequantize(node):
        return stored
    declared = node.get("output_dtype", 0)
    return element_name(declared) if declared else None


# ---------------- quantizers that cannot be used: custom operators, and those inside the bodies of control flow


_OTHER_QUANTIZED_OPS = frozenset(
    (
        *("QAttention", "DynamicQuantizeMatMul", "DynamicQuantizeLinear", "DynamicQuantizeLSTM"),
        *("QEmbedLayerNormalization", "TRT_FP4DynamicQuantize", "TRT_FP4QDQ", "FixNeuron", "BFPFixNeuron"),
        *("MXFixNeuron", "MatMulNBits", "QMoE", "BipolarQuant", "Trunc", "FloatQuant"),
    )
)
"""Quantized operators that no dialect converts: refused (fact 8, 8.3)."""
_QUANTIZED = ("quant", "qlinear", "qordered")
"""In the names of operators of other domains, which are refused rather than treated as unknown layers.
"""


def refusal(rejected: list[Rejected], approximated: Sequence[Approximated] = ()) -> UnsupportedQuantizer:
    """The error for a quantizer that implicit INT8 cannot represent. approximated: translatable by an option, at a
    cost."""
    first = rejected[0]
    cost = cost_of(approximated) if "--asymmetric" in first.hint else ""
    more = "" if len(rejected) == 1 else f" ({counted(len(rejected) - 1, 'more quantizer')} cannot be used either)"
    return UnsupportedQuantizer(f"{first.what}{more}", f"{first.hint} For all of them: {cost}." if cost else first.hint)


def cost_of(approximated: Sequence[Approximated]) -> str:
    """Cost of widening asymmetric ranges to symmetric scales, in bits of resolution; '' for none."""
    bits = {note.tensor: math.log2(note.coarser) for note in approximated if note.asymmetric}
    if not bits:
        return ""
    worst = max(bits, key=lambda tensor: bits[tensor])
    return (
        f"the smallest symmetric scales of {counted(len(bits), 'asymmetric activation')} cost "
        f"{np.median([*bits.values()]):.2f} bits of resolution (median), {bits[worst]:.2f} at most ('{worst}')"
    )


def unusable_operators(graph: Graph) -> list[Rejected]:
    """Quantized operators of other forms; then quantizers in the bodies of control flow."""
    rejected = []
    for node in filter(_is_refused, graph.nodes):
        who = f"{node.op_type} {node.label}" + (f" of domain '{node.domain}'" if node.domain else "")
        unusable = Rejected(
            f"{who} is a quantized operator that has no int8 QuantizeLinear/DequantizeLinear form.",
            "Export in QDQ format (int8); docs/dialects.md lists the forms that are converted.",
        )
        rejected.append(unusable)
    for node in graph.nodes:
        inside = (inner for body in node.subgraphs() for inner in every_node(body.node))
        found = next((inner for inner in inside if inner.op_type in operators.QUANTIZERS), None)
        if found is not None:
            what = f"Quantizer '{found.name or found.output[0]}' is inside the body of {node.op_type} {node.label}."
            hint = "Implicit INT8 does not support control flow; export without If/Loop/Scan around quantized layers."
            rejected.append(Rejected(what, hint))
    return rejected


def _is_refused(node: Node) -> bool:
    if is_quantizer(node):
        return False
    name = node.op_type.lower()
    return node.op_type in _OTHER_QUANTIZED_OPS or (bool(node.domain) and any(part in name for part in _QUANTIZED))
