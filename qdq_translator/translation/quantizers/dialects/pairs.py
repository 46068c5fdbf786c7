"""Convert one fake quantizer of any dialect to `QuantizeLinear [-> Clip] -> DequantizeLinear`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import numpy as np

from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import RANGES
from qdq_translator.translation.quantizers.parameters import Rejected


@dataclass(frozen=True)
class FakeQuantizer:
    """`result = clip(round_half_even(source / scale), low, high) * scale`.

    scale: the step, of the tensor's float type, shape () or (C,) along `axis`. low, high: quantized values minus the
    zero point, so that 0 represents 0.0. factor: the multiplier before the rounding, shape as broadcast, if the dialect
    multiplies instead of dividing: constants are rounded with it, so that their quantized values match the dialect at
    ties too. node: names it in messages.
    """

    source: str
    result: str
    scale: np.ndarray
    low: int
    high: int
    axis: Optional[int]
    node: Node
    factor: Optional[np.ndarray] = None


def channels(values: np.ndarray) -> Optional[tuple[np.ndarray, Optional[int]]]:
    """Values that broadcast over a tensor -> shape () or (C,) and its axis, counted from the back; None for blocks."""
    if values.size == 1:
        return values.reshape(()), None
    wide = [axis for axis, size in enumerate(values.shape) if size > 1]
    return (values.reshape(-1), wide[0] - values.ndim) if len(wide) == 1 else None


def bit_range(bits: int, signed: bool, narrow: bool = False) -> tuple[int, int]:
    """The integers of so many bits; narrow: without the lowest (signed) or the highest (unsigned)."""
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def write_pair(graph: Graph, constants: Constants, found: FakeQuantizer) -> None:
    """Replace the producer of `found.result` with the pair. Raises Rejected, without any change, if INT8 cannot hold
    it."""
    stored = _storage(found.low, found.high)
    if stored is None:
        who = f"{found.node.op_type} {found.node.label}"
        raise Rejected(
            f"{who} quantizes '{found.source}' to the values {found.low} to {found.high}.",
            "Implicit INT8 has 8 bits that include 0; quantize to int8.",
        )
    kind, zero = stored
    scale = graph.constant(f"{found.result}_scale", found.scale)
    point = graph.constant(f"{found.result}_zero_point", np.full(found.scale.shape, zero, kind))
    before = graph.producer[found.result].prev
    graph.detach(found.result)
    weight = constants.value(found.source) if found.factor is not None and constants.is_constant(found.source) else None
    if weight is not None and found.factor is not None:
        codes = np.clip(np.rint(weight * found.factor), found.low, found.high) + zero
        made = graph.constant(f"{found.result}_quantized", codes.astype(kind))
    else:
        made = graph.unique_name(f"{found.result}_quantized")
        quantize = linear(graph, "QuantizeLinear", [found.source, scale, point], made, found.node.name, found.axis)
        before = graph.insert_after(quantize, before)
        if (found.low + zero, found.high + zero) != RANGES[kind]:
            low = graph.constant(f"{made}_low", np.array(found.low + zero, kind))
            high = graph.constant(f"{made}_high", np.array(found.high + zero, kind))
            clipped = graph.unique_name(f"{made}_clip")
            clip = Node("Clip", [made, low, high], [clipped], graph.node_name(f"{found.node.name}_Clip"))
            before, made = graph.insert_after(clip, before), clipped
    ends = [made, scale, point]
    graph.insert_after(linear(graph, "DequantizeLinear", ends, found.result, found.node.name, found.axis), before)


def linear(graph: Graph, op: str, inputs: list[str], output: str, whose: str, axis: Optional[int] = None) -> Node:
    """A QuantizeLinear or DequantizeLinear, named after its owner; an omitted zero point is ''."""
    node = Node(op, [name for name in inputs if name], [output], graph.node_name(f"{whose}_{op}"))
    if axis is not None:
        node.set("axis", axis)
    return node


def _storage(low: int, high: int) -> Optional[tuple[str, int]]:
    """Type and zero point that hold the quantized values; symmetric int8 wherever they fit."""
    if not low < high:
        return None
    if low >= -128 and high <= 127:
        return "int8", 0
    return ("uint8", -low) if -255 <= low <= 0 and high - low <= 255 else None
