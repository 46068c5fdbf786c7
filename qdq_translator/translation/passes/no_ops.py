"""Rule F7: remove nodes that change nothing, on every target: each is a layer in TensorRT that the DLA does not
support.

`_WHEN` specifies for every operator when it changes nothing. Such a node is removed as follows:
1. its readers read its input; the input keeps its name, unless only the node's output has a scale (or is a graph
   output), which keeps its name then
2. if it computes a graph output, the node before it computes that instead
Not: between two tensors with different scales, which it requantizes; a graph output that is a graph input, a
constant, or has other readers (it would lose its scale by rule S2, fact 4.2); a Dropout whose mask is in use.
"""

from __future__ import annotations

from collections import Counter
from typing import Callable

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import value_range
from qdq_translator.translation.ir.graph import Graph, Node, finish_order
from qdq_translator.translation.ir.operators import VIEWS
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.passes.editor import Stays
from qdq_translator.translation.scales.network import Network, followed

RULE = "F7"
_Condition = Callable[[Network, Node], bool]


def remove_no_ops(network: Network) -> None:
    """Remove all such nodes and report them once: operators, nodes, and the tensors that contain their values."""
    nodes: list[Node] = []
    tensors: dict[str, list[str]] = {}
    for node in network.graph.nodes:
        if changes_nothing(network, node):
            try:
                tensors.update(take_out(network, node))
                nodes.append(node)
            except Stays as why:
                network.leave(node, str(why))
    if nodes:
        _report(network, nodes, tensors)


def _report(network: Network, nodes: list[Node], tensors: dict[str, list[str]]) -> None:
    counts = Counter(node.op_type for node in nodes)
    counted = ", ".join(f"{count} {op}" for op, count in counts.most_common())
    # integers are shape arithmetic, which later passes fold
    kept = {old: new for old, new in followed(tensors).items() if network.types.is_float(old)}
    network.diagnostics.info(
        RULE,
        f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} without effect {'were' if len(nodes) > 1 else 'was'} "
        f"removed: {counted}.",
        data={"operators": dict(counts), "nodes": {n.name: [] for n in nodes}, "tensors": kept},
    )


def changes_nothing(network: Network, node: Node) -> bool:
    """Whether the first output holds the values of `kept_input` for every input of the network."""
    condition = _WHEN.get(node.op_type) if node.is_standard else None
    return condition is not None and condition(network, node)


def take_out(network: Network, node: Node) -> dict[str, list[str]]:
    """Remove a node that changes nothing: removed tensor -> tensors with its values. Raises Stays."""
    graph, scales = network.graph, network.scales
    source, target = node.inputs[kept_input(graph, node)], node.outputs[0]
    own, before = scales.value(target), scales.value(source)
    if any(map(graph.is_used, filter(None, node.outputs[1:]))):
        raise Stays("its mask is in use")
    if None not in (own, before) and own != before:  # it requantizes
        raise Stays("its input and its output have different scales of their own")
    producer = graph.producer.get(source)
    only_own = own is not None and before is None and not graph.is_constant(source)
    if target in graph.outputs:
        # a graph output without a scale gets none (rule S2); one that is a graph input is renamed (fact 4.2)
        if producer is None or graph.only_consumer(source) is not node or (own is None and before is not None):
            raise Stays("it makes a graph output from a tensor that others read, or that no node makes")
    elif only_own and source in graph.outputs:
        raise Stays("its input is a graph output without scale, its output has one")
    elif not only_own or producer is None:
        graph.remove(node)
        network.merge_tensor(target, source)
        return {target: [source]}
    graph.remove(node)
    graph.replace_uses(target, source)
    graph.value_info.pop(source, None)
    network.rename_tensor(source, target)
    return {source: [target]}


def kept_input(graph: Graph, node: Node) -> int:
    """Index of the input that the output equals: of Mul and Add the one that is not the neutral constant."""
    return 1 if node.is_op("Mul", "Add") and graph.is_constant(node.inputs[0]) else 0


# ---------------- conditions


def _same_type(network: Network, node: Node) -> bool:
    wanted = operators.cast_type(node) if node.is_op("Cast") else network.types.elem_type(node.inputs[1])
    return bool(wanted) and network.types.elem_type(node.inputs[0]) == wanted


def _same_shape(network: Network, node: Node) -> bool:
    """Equal shapes mean equal elements in equal order; one unknown size follows from the others."""
    before, after = (network.types.shape(name) for name in (node.inputs[0], node.outputs[0]))
    if before is None or after is None or len(before) != len(after) or 0 in after:
        return False
    unknown = [(a, b) for a, b in zip(before, after) if not (isinstance(a, int) and a == b)]
    return not unknown or (len(unknown) == 1 and not any(isinstance(size, int) for size in unknown[0]))


def _same_order(network: Network, node: Node) -> bool:
    order = operators.permutation(node)
    return order is not None and order == sorted(order)


def _never_cuts(network: Network, node: Node) -> bool:
    """Rule F12: a Clip whose input stays within its bounds by the operators before it, or by the saturation of the
    model's own quantizer (rule Q9), unless the plan has tensors that INT8 does not saturate, as a graph output is; what
    calibration data reach is no bound."""
    low, high = operators.clip_bounds(node, network.graph.array)
    if low is None or high is None:
        return False
    values, own = value_range(network.graph, node.inputs[0]), network.scales.get(node.inputs[0])
    if own is not None and own.explicit and not network.unsaturated and not _ends(network.graph, node.outputs[0]):
        values = max(values[0], -128 * own.value), min(values[1], INT8_MAX * own.value)
    return low <= values[0] and values[1] <= high


def _ends(graph: Graph, name: str) -> bool:
    """True if the tensor `name`, or one that data movement alone makes of it, is a graph output."""

    def moved(tensor: str) -> list[str]:
        return [out for node in graph.consumers(tensor) if node.is_op(*operators.REARRANGES) for out in node.outputs]

    return not graph.outputs.keys().isdisjoint(finish_order([name], moved))


def _keeps_all(network: Network, node: Node) -> bool:
    """A Slice from the first to the last element of every axis that it names, in steps of 1."""
    found = operators.slices(node, network.graph.array)
    if found is None:
        return False
    shape = network.types.shape(node.inputs[0])
    for start, end, axis, step in zip(found.starts, found.ends, found.axes, found.steps):
        size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        last = end >= (size if isinstance(size, int) else _BEHIND_EVERYTHING)
        if step != 1 or not last or not (start == 0 or (isinstance(size, int) and start <= -size)):
            return False
    return True


_BEHIND_EVERYTHING = 2**31 - 1
"""The value that exporters write for an unknown end."""


def _to_itself(network: Network, node: Node) -> bool:
    """Expand to the shape of the tensor, or to ones only."""
    before = network.types.static_shape(node.inputs[0])
    if before is not None and before == network.types.static_shape(node.outputs[0]):
        return True
    shape, rank = network.graph.array(node.inputs[1]), network.types.rank(node.inputs[0])
    return shape is not None and rank is not None and shape.size <= rank and bool((shape == 1).all())


def _nothing_is_padded(network: Network, node: Node) -> bool:
    pads = operators.integers(node, "pads", 1, network.graph.array)
    return pads is not None and not any(pads)


def _neutral(value: int, commutes: bool) -> _Condition:
    """Condition: one operand is constant with all elements equal to `value` and does not enlarge the other by
    broadcasting."""

    def condition(network: Network, node: Node) -> bool:
        graph = network.graph
        kept = kept_input(graph, node)
        constant = node.inputs[1 - kept]
        dims = graph.initializers[constant].dims if constant in graph.initializers else None
        if (kept == 1 and not commutes) or dims is None or graph.is_constant(node.inputs[kept]):
            return False
        sizes = list(dims)
        if sizes:
            shape = network.types.shape(node.inputs[kept])
            if shape is None or len(sizes) > len(shape):
                return False
            if any(size not in (1, other) for size, other in zip(sizes[::-1], shape[::-1])):
                return False
        values = graph.array(constant)
        return values is not None and bool((values == value).all())

    return condition


_WHEN: dict[str, _Condition] = {
    "Identity": lambda network, node: True,
    "Dropout": lambda network, node: not operators.in_training(node, network.graph.array),
    **dict.fromkeys(("Cast", "CastLike"), _same_type),
    **dict.fromkeys(VIEWS, _same_shape),
    "Transpose": _same_order,
    "Slice": _keeps_all,
    "Clip": _never_cuts,
    "Expand": _to_itself,
    "Pad": _nothing_is_padded,
    "Tile": lambda network, node: set(operators.integers(node, "repeats", 1, network.graph.array) or [0]) == {1},
    "Split": lambda network, node: len(node.outputs) == 1,
    **dict.fromkeys(("Concat", "Sum", "Mean", "Max", "Min"), lambda network, node: len(node.inputs) == 1),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), lambda network, node: operators.block_size(node) == 1),
    "Mul": _neutral(1, commutes=True),
    "Div": _neutral(1, commutes=False),
    "Add": _neutral(0, commutes=True),
    "Sub": _neutral(0, commutes=False),
}
NO_OPS = tuple(_WHEN)
"""Operators that may change nothing."""
