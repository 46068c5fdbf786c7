"""Fake quantization written as arithmetic. Mul or Div by a constant, Round, Clip, Mul by a constant, with zero points
added and subtracted, in any order that trainers export (PACT, LSQ, straight-through estimators, decomposed operators).

The structure is matched from the Round outwards. A pattern whose parts do not fit together is refused with its node; a
Round without limits or without scales is arithmetic of the network and stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import FLOAT_TYPES
from qdq_translator.translation.quantizers.dialects.pairs import FakeQuantizer, channels, write_pair
from qdq_translator.translation.quantizers.parameters import Rejected

_EPSILONS = 8
"""Units in the last place by which the factor before the Round may differ from 1 / scale."""
_HINT = "Export with QuantizeLinear/DequantizeLinear."


@dataclass(frozen=True)
class _Step:
    """Effect of a node on `data`: a product (with `factor`, or by division with 1 / `factor`), a sum (`shift`), limits,
    or none."""

    node: Node
    data: str
    factor: Optional[np.ndarray] = None
    divides: bool = False
    shift: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    @property
    def scales(self) -> bool:
        return self.factor is not None

    def product(self) -> tuple[np.ndarray, np.ndarray]:
        """The factor that multiplies `data`, in the network's float type and in float64."""
        assert self.factor is not None
        factor = self.factor.astype(np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            factor = np.asarray(1 / factor if self.divides else factor)
            return factor.astype(self.factor.dtype), factor


@dataclass
class _Pattern:
    """Pattern around one Round. before, after: steps between the two products; low, high, shift: their total, in
    quantized values minus the zero point."""

    node: Node
    first: Optional[_Step]
    before: list[_Step]
    after: list[_Step]
    last: Optional[_Step]
    result: str
    low: float = -math.inf
    high: float = math.inf
    shift: float = 0.0

    def settle(self) -> None:
        for step in (*reversed(self.before), *self.after):
            self.low = max(self.low, float(np.rint(step.low)) - self.shift)
            self.high = min(self.high, float(np.rint(step.high)) - self.shift)
            self.shift += step.shift

    @property
    def is_limited(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def convert(graph: Graph, constants: Constants, node: Node) -> bool:
    found = _quantizer(graph, constants, node) if node.is_standard else None
    if found is not None:
        write_pair(graph, constants, found)
    return found is not None


def stored_weight(graph: Graph, constants: Constants, node: Node) -> bool:
    """INT8 weights that are only stored so, `Cast(int8 constant) * scale`, become a DequantizeLinear. Not those with
    anything but one scale, or one for each index of one axis."""
    if not node.is_standard or len(node.inputs) != 2:
        return False
    for data, factor in (node.inputs, node.inputs[::-1]):
        cast, scale = graph.producer.get(data), constants.value(factor)
        codes = graph.array(cast.inputs[0]) if cast is not None and cast.is_op("Cast") else None
        if cast is None or codes is None or codes.dtype != np.int8 or scale is None or scale.dtype.kind != "f":
            continue
        found = _fitting(codes, scale)
        if found is not None:
            values, axis = found
            name = graph.add_initializer(graph.unique_name(f"{node.outputs[0]}_scale"), values.astype(np.float32))
            graph.set_inputs(node, [cast.inputs[0], name])
            graph.set_operator(node, "DequantizeLinear")
            node.set("axis", axis)
            return True
    return False


def _fitting(codes: np.ndarray, scale: np.ndarray) -> Optional[tuple[np.ndarray, int]]:
    """The scale of a weight, of shape () or (C,), and its axis; None for other scales and for vectors."""
    found = channels(scale) if codes.ndim > 1 else None
    if found is None:
        return None
    values, axis = found
    if axis is None:
        return values, 0
    fits = -axis <= codes.ndim and codes.shape[axis] == values.size
    return (values, codes.ndim + axis) if fits else None


def _quantizer(graph: Graph, constants: Constants, node: Node) -> Optional[FakeQuantizer]:
    """None if the node is not part of a quantizer. Raises Rejected."""
    pattern = _pattern(graph, constants, node)
    if pattern is None:
        return None
    first, last = pattern.first, pattern.last
    if not pattern.is_limited:
        _limit_by_source(graph, constants, pattern)
    if not pattern.is_limited or (first is None and last is None):
        return None
    if first is None or last is None:
        missing = "before" if first is None else "behind"
        raise Rejected(
            f"{node.op_type} {node.label} and the limits {pattern.low:g} and {pattern.high:g} are half a quantizer: "
            f"there is no product with a constant {missing} them.",
            _HINT,
        )
    who = f"{node.op_type} {node.label} quantizes '{first.data}'"
    if pattern.shift:
        raise Rejected(f"{who} and adds {pattern.shift:g} that nothing subtracts again.", _HINT)
    if node.op_type == "Floor":
        raise Rejected(f"{who} rounding half up.", f"INT8 layers round half to even. {_HINT}")
    scale, inverse = last.product()[0], first.product()[1]
    if not _same(scale, inverse):
        raise Rejected(
            f"{who} with the factor {_first(inverse)} and multiplies by {_first(scale)} behind it, which is not its "
            "inverse.",
            f"Such a pair also multiplies, and one scale cannot express that. {_HINT}",
        )
    shape = channels(scale)
    if shape is None:
        raise Rejected(
            f"{who} with scales of shape {list(scale.shape)}.",
            "Implicit INT8 has no block scales; use one scale, or one a channel for weights.",
        )
    values, axis = shape
    factor = None if first.divides else first.factor
    low, high = int(pattern.low), int(pattern.high)
    return FakeQuantizer(first.data, pattern.result, values, low, high, axis, node, factor)


def _pattern(graph: Graph, constants: Constants, node: Node) -> Optional[_Pattern]:
    before: list[_Step] = []
    first = _step(graph, constants, graph.producer.get(node.inputs[0]))
    if node.op_type == "Floor":
        if first is None or first.shift != 0.5:
            return None
        first = _step(graph, constants, graph.producer.get(first.data))
    while first is not None and not first.scales:
        before.append(first)
        first = _step(graph, constants, graph.producer.get(first.data))
    after: list[_Step] = []
    tensor, last = _past_estimator(graph, node.outputs[0]), None
    while last is None:
        step = _step_behind(graph, constants, tensor)
        if step is None:
            break
        tensor = _past_estimator(graph, step.node.outputs[0])
        if step.scales:
            last = step
        else:
            after.append(step)
    if first is None:  # limits before the network's own arithmetic do not belong to a quantizer
        before = []
    pattern = _Pattern(node, first, before, after, last, tensor)
    if any(step.shift != round(step.shift) for step in (*before, *after)):
        return None
    pattern.settle()
    return pattern


def _limit_by_source(graph: Graph, constants: Constants, pattern: _Pattern) -> None:
    """PACT: the limits come before the product (and stay there)."""
    first = pattern.first
    if first is None or pattern.last is None:
        return
    step = _step(graph, constants, graph.producer.get(first.data))
    inverse = first.product()[1]
    if step is None or step.scales or step.shift or inverse.size != 1:
        return
    factor = float(inverse.reshape(()))
    pattern.low = max(pattern.low, float(np.rint(step.low * factor)))
    pattern.high = min(pattern.high, float(np.rint(step.high * factor)))


def _past_estimator(graph: Graph, tensor: str) -> str:
    """A straight-through estimator `x + (q - x)` is q."""
    for difference in graph.consumers(tensor):
        if not difference.is_op("Sub") or difference.inputs[0] != tensor:
            continue
        total = graph.only_consumer(difference.outputs[0])
        if total is not None and total.is_op("Add") and difference.inputs[1] in total.inputs:
            return total.outputs[0]
    return tensor


def _step_behind(graph: Graph, constants: Constants, tensor: str) -> Optional[_Step]:
    readers = [n for n in graph.consumers(tensor) if not n.is_op("Greater", "Less", "GreaterOrEqual", "LessOrEqual")]
    if len(readers) != 1 or tensor in graph.outputs:
        return None
    step = _step(graph, constants, readers[0], rounded=True)
    return step if step is not None and step.data == tensor else None


def _step(graph: Graph, constants: Constants, node: Optional[Node], rounded: bool = False) -> Optional[_Step]:
    """Step of a node; None if it is something else or its operand is not constant. rounded: its data have integer
    values."""
    if node is None or not node.is_standard:
        return None
    if node.is_op("Identity") or (node.is_op("Cast") and (rounded or operators.cast_type(node) in FLOAT_TYPES)):
        return _Step(node, node.inputs[0])
    if node.is_op("Relu"):
        return _Step(node, node.inputs[0], low=0.0)
    if node.is_op("Clip"):
        low, high = operators.clip_bounds(node, constants.value)
        return None if low is None or high is None else _Step(node, node.inputs[0], low=low, high=high)
    if node.is_op("Where"):
        return _limit_by_where(graph, constants, node)
    if not node.is_op("Mul", "Div", "Add", "Sub", "Min", "Max") or len(node.inputs) != 2:
        return None
    return _with_constant(constants, node)


def _with_constant(constants: Constants, node: Node) -> Optional[_Step]:
    """An operator with two inputs, one of which is constant. If both are, the smaller one is the parameter of the
    other, a weight.
    """
    data, other = node.inputs
    if constants.is_constant(data) and not node.is_op("Div", "Sub"):
        first, second = constants.value(data), constants.value(other)
        if first is not None and (second is None or first.size < second.size):
            data, other = other, data
    value = constants.value(other)
    if value is None or value.dtype.kind not in "fiV":
        return None
    if node.is_op("Mul"):
        return _Step(node, data, factor=value)
    if node.is_op("Div"):
        return _Step(node, data, factor=value, divides=True)
    single = np.unique(value.astype(np.float64))
    if single.size != 1:
        return None
    number = float(single[0])
    if node.is_op("Min", "Max"):
        return _Step(node, data, high=number) if node.is_op("Min") else _Step(node, data, low=number)
    return _Step(node, data, shift=number if node.is_op("Add") else -number)


def _limit_by_where(graph: Graph, constants: Constants, node: Node) -> Optional[_Step]:
    """Limit: `Where(x > c, c, x)` or `Where(x < c, c, x)`."""
    condition, limit, data = node.inputs
    compared, value = graph.producer.get(condition), constants.value(limit)
    if compared is None or value is None or value.size != 1 or compared.inputs[:1] != [data]:
        return None
    against = constants.value(compared.inputs[1])
    if against is None or against.size != 1 or float(against.reshape(())) != float(value.reshape(())):
        return None
    number = float(value.reshape(()))
    if compared.is_op("Greater", "GreaterOrEqual"):
        return _Step(node, data, high=number)
    return _Step(node, data, low=number) if compared.is_op("Less", "LessOrEqual") else None


def _same(scale: np.ndarray, inverse: np.ndarray) -> bool:
    """Whether one undoes the other, to the precision of the type."""
    if scale.squeeze().shape != inverse.squeeze().shape:
        return False
    epsilon = float(np.finfo(scale.dtype if scale.dtype.kind == "f" else np.float32).eps)
    with np.errstate(invalid="ignore"):
        off = np.abs(scale.squeeze().astype(np.float64) * inverse.squeeze() - 1)
    return bool(np.all(off <= _EPSILONS * epsilon))


def _first(values: np.ndarray) -> str:
    return f"{float(values.reshape(-1)[0]):.6g}"
