"""Quantizer operators of other domains, by their public definitions. QONNX's `Quant`, the quantizers of Sony's MCT, and
AMD's QuantizeLinear and DequantizeLinear (Quark, Vitis AI), which have the inputs of ONNX's."""

from __future__ import annotations

from typing import Callable, Optional, Union

import numpy as np

from qdq_translator.core.words import counted
from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.quantizers.dialects.pairs import FakeQuantizer, bit_range, channels, write_pair
from qdq_translator.translation.quantizers.parameters import Rejected

_HALF_TO_EVEN = ("ROUND", "HALF_EVEN")
_QONNX = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
_AMD = ("com.amd.quark", "com.vai.quantize")
_MCT = "mct_quantizers"
_HINT = "Implicit INT8 has integers of at most 8 bits, one scale a tensor, or one a channel for weights."

_Read = Callable[[Node, Constants], Union[FakeQuantizer, str]]
"""The quantizer that a node represents, or the reason why it is none (text after the node's name)."""


def convert(graph: Graph, constants: Constants, node: Node) -> bool:
    """Convert one operator of QONNX or MCT."""
    read = _READERS.get((node.domain, node.op_type))
    if read is None:
        return False
    found = read(node, constants)
    if isinstance(found, str):
        raise Rejected(f"{node.op_type} {node.label} of domain '{node.domain}' {found}.", _HINT)
    write_pair(graph, constants, found)
    return True


def amd(graph: Graph, constants: Constants, node: Node) -> bool:
    """Scale, zero point and axis are those of ONNX's operators: only names change. Types that INT8 does not have
    (int16, bfloat16, ...) are refused with the others, by the type of the zero point."""
    if node.domain not in _AMD:
        return False
    graph.set_operator(node, "QuantizeLinear" if "DequantizeLinear" not in node.op_type else "DequantizeLinear")
    node.domain = ""
    return True


def _quant(node: Node, constants: Constants) -> Union[FakeQuantizer, str]:
    """QONNX: `Quant(x, scale, zero_point, bit_width)`."""
    scale, zero, bits = (constants.value(node.input(place)) if node.input(place) else None for place in (1, 2, 3))
    if scale is None or zero is None or bits is None:
        return "has a scale, zero point or bit width that is not constant"
    width = np.unique(bits)
    if width.size != 1 or not 2 <= float(width[0]) <= 8 or float(width[0]) != int(width[0]):
        return f"has {', '.join(f'{float(w):g}' for w in width)} bits"
    rounding = str(node.get("rounding_mode", "ROUND")).upper()
    if rounding not in _HALF_TO_EVEN:
        return f"rounds by {rounding}, and INT8 layers round half to even"
    points = np.unique(zero)
    if points.size != 1 or float(points[0]) != round(float(points[0])):
        return "has zero points that differ between channels or are no integers"
    low, high = bit_range(int(width[0]), bool(node.get("signed", 1)), bool(node.get("narrow", 0)))
    point, shape = int(points[0]), channels(scale)
    if shape is None:
        return f"has scales of shape {list(scale.shape)}, in blocks"
    return FakeQuantizer(node.inputs[0], node.outputs[0], shape[0], low - point, high - point, shape[1], node)


def _mct_symmetric(node: Node, constants: Constants) -> Union[FakeQuantizer, str]:
    """`scale = threshold / 2^(bits - signed)`, all values of the type."""
    threshold = _mct_value(node, constants, "threshold", 1)
    bits, signed = int(node.get("num_bits", 8)), bool(node.get("signed", 1)) or node.op_type.startswith("Weights")
    if threshold is None:
        return "has a threshold that is not constant"
    if not 2 <= bits <= 8:
        return f"has {counted(bits, 'bit')}"
    scale = (threshold / 2 ** (bits - signed)).astype(np.float32)
    return _mct_quantizer(node, scale, *bit_range(bits, signed))


def _mct_uniform(node: Node, constants: Constants) -> Union[FakeQuantizer, str]:
    """`2^bits` values from `min_range` to `max_range`, moved so that one of them is 0."""
    least, most = _mct_value(node, constants, "min_range", 1), _mct_value(node, constants, "max_range", 2)
    bits = int(node.get("num_bits", 8))
    if least is None or most is None:
        return "has a range that is not constant"
    if not 2 <= bits <= 8:
        return f"has {counted(bits, 'bit')}"
    least, most = np.minimum(least.astype(np.float64), 0), np.maximum(most.astype(np.float64), 0)
    scale = (most - least) / (2**bits - 1)
    if not np.all(scale > 0):
        return "has an empty range"
    lowest = np.unique(np.rint(least / scale))
    if lowest.size != 1:
        return "has zero points that differ between channels"
    return _mct_quantizer(node, scale.astype(np.float32), int(lowest[0]), int(lowest[0]) + 2**bits - 1)


def _mct_value(node: Node, constants: Constants, key: str, place: int) -> Optional[np.ndarray]:
    """Activation quantizers have attributes, weight quantizers have inputs."""
    given = node.get(key)
    if given is not None:
        return np.asarray(given, np.float32)
    return constants.value(node.input(place)) if node.input(place) else None


def _mct_quantizer(node: Node, scale: np.ndarray, low: int, high: int) -> Union[FakeQuantizer, str]:
    axis = None if scale.size == 1 else int(node.get("channel_axis", 0))
    values = scale.reshape(() if axis is None else -1)
    return FakeQuantizer(node.inputs[0], node.outputs[0], values, low, high, axis, node)


_KINDS = {"Symmetric": _mct_symmetric, "POT": _mct_symmetric, "Uniform": _mct_uniform}
_READERS: dict[tuple[str, str], _Read] = {
    **{(domain, op): _quant for domain in _QONNX for op in ("Quant", "IntQuant")},
    **{(_MCT, f"{what}{kind}Quantizer"): read for what in ("Activation", "Weights") for kind, read in _KINDS.items()},
}
MCT_OPERATORS = frozenset(op for domain, op in _READERS if domain == _MCT)
QONNX_OPERATORS = frozenset(op for domain, op in _READERS if domain != _MCT)
AMD_OPERATORS = frozenset(f"{who}{op}Linear" for who in ("Extended", "Vitis") for op in ("Quantize", "Dequantize"))
