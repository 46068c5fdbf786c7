"""Rule D3: a Conv whose output channels are split becomes one Conv a part (the chunk of C2f, C3k2).

1. `Conv -> Split(axis 1)`, `Conv -> Slice, Slice, ... (axis 1, step 1)`: each part gets the Conv with its rows of the
   weight and of the bias.
2. The same with element-wise layers between (`Conv -> Sigmoid, Mul -> Split`): each part gets copies of them; constant
   operands with one value a channel are cut too.

A Slice runs in FP16 only on the DLA (limit S1), and a tensor without scale behind it makes its readers run in FP16 too.
Each part keeps the name of the Slice's or Split's output, and its scale (where it differs from that of the tensor that
was split, values were rounded twice and now are once); without one it takes that of the tensor that was split. Tensors
in between (the Conv's output before the activation) get the scale of what they are a part of. Weight scales are per
output channel, so every weight keeps its quantized value.
Not: where the split tensor, or one between, is a graph output; where another layer reads it; grouped Conv; weights that
are not constant; another layer than Conv or element-wise ones in front; overlapping parts; parts that are not constant;
a step other than 1; a Split or Slice along another axis; where the Convs of the parts, which read the input once each,
are estimated to take longer in INT8 than the one Conv and the Slices in FP16 (docs/cost.md).
"""

from __future__ import annotations

import math
import operator
from typing import Optional, Tuple

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.lifting import UNARY
from qdq_translator.passes.dla.rewriter import Rewriter, Stays
from qdq_translator.targets.cost.estimate import work_of
from qdq_translator.targets.cost.model import Surface, Work

RULE = "D3"
_BINARY = tuple(op for op in operators.ELEMENTWISE if op != "Sum")  # which may read more than two

_NODE = 2**10
"""Values that cost as much as making a node."""
_Part = Tuple[Node, str, int, int]
"""The Slice or Split, its output, first channel, one behind the last."""


def apply(rewriter: Rewriter) -> None:
    for tensor in dict.fromkeys(node.inputs[0] for node in rewriter.nodes("Split", "Slice")):
        try:
            parts = _parts(rewriter, tensor)
            region = _cone(rewriter, tensor, {id(part[0]) for part in parts})
            _check_estimate(rewriter, parts, region)
        except Stays as why:
            for reader in rewriter.graph.consumers(tensor):
                if reader.is_op("Split", "Slice"):
                    rewriter.leave(reader, str(why))
        else:
            _divide(rewriter, tensor, parts, region)


# ---------------- matching


def _parts(rewriter: Rewriter, tensor: str) -> list[_Part]:
    """All parts that readers cut out of the tensor. Raises Stays."""
    graph = rewriter.graph
    shape = rewriter.types.shape(tensor)
    if shape is None or len(shape) != 4 or not isinstance(shape[1], int):
        raise Stays("the number of channels is not known, or the tensor has not 4 dimensions")
    if tensor in graph.outputs:
        raise Stays(f"'{tensor}' is a graph output")
    parts: list[_Part] = []
    for reader in graph.consumers(tensor):
        if not reader.is_op("Split", "Slice") or reader.inputs[0] != tensor:
            raise Stays(f"'{reader.name}' reads all of '{tensor}'")
        found = _ends(rewriter, reader, shape[1])
        if found is None:
            raise Stays("not along the channels, not with step 1, or not by constants")
        parts += [(reader, name, start, end) for name, start, end in found]
    ends = sorted((start, end) for _, _, start, end in parts)
    if any(a[1] > b[0] for a, b in zip(ends, ends[1:])):
        raise Stays("parts overlap")
    if any(start >= end for start, end in ends):
        raise Stays("a part is empty")
    return parts


def _ends(rewriter: Rewriter, node: Node, channels: int) -> Optional[list[tuple[str, int, int]]]:
    """First channel and the one behind the last of each part of a Split or Slice; None if it cuts otherwise."""
    if node.is_op("Slice"):
        cut = operators.slices(node, rewriter.graph.array)
        if cut is None or len(cut.starts) != 1 or len(cut.ends) != 1 or cut.axes not in ([1], [-3]) or cut.steps != [1]:
            return None
        start, end, _ = slice(cut.starts[0], cut.ends[0]).indices(channels)
        return [(node.outputs[0], start, end)]
    sizes = operators.split_sizes(node, channels, rewriter.graph.array)
    if sizes is None or operators.axis(node, rewriter.graph.opset()) not in (1, -3):
        return None
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return [(name, int(a), int(b)) for name, a, b in zip(node.outputs, bounds, bounds[1:]) if name]


def _cone(rewriter: Rewriter, tensor: str, readers: set[int]) -> dict[str, Node]:  # noqa: C901 (a branch per "Not:")
    """The nodes that compute `tensor`, back to the Convs, by their outputs. Raises Stays if they cannot be divided."""
    graph, region = rewriter.graph, {}  # type: ignore[var-annotated]
    pending = [tensor]
    while pending:
        name = pending.pop()
        node = graph.producer.get(name)
        if node is None:
            raise Stays(f"'{name}' comes from no Conv")
        if node.outputs[0] in region:
            continue
        region[node.outputs[0]] = node
        if node.is_op("Conv"):
            if operators.groups(node) != 1:
                raise Stays(f"Conv '{node.name}' has groups")
            if any(n not in graph.initializers for n in node.inputs[1:] if n):
                raise Stays(f"Conv '{node.name}' has no constant weight")
            weight, bias = (graph.initializers.get(node.input(index)) for index in (1, 2))
            if weight is None or (bias is not None and list(bias.dims) != list(weight.dims[:1])):
                raise Stays(f"the bias of Conv '{node.name}' is not one value a channel")
            continue
        if not node.is_op(*UNARY, *_BINARY) or len([o for o in node.outputs if o]) != 1:
            raise Stays(f"{node.op_type} '{node.name}' is before it, not a Conv")
        for other in node.inputs if node.is_op(*_BINARY) else node.inputs[:1]:
            if other in graph.initializers:
                if not _cuttable(rewriter, other, tensor):
                    raise Stays(f"constant '{other}' cannot be divided by channels")
            elif rewriter.types.shape(other) == rewriter.types.shape(tensor):
                pending.append(other)
            else:
                raise Stays(f"'{other}' has another shape")
    inside = {id(node) for node in region.values()}
    for name in region:
        if name in graph.outputs:
            raise Stays(f"'{name}' is a graph output")
        allowed = inside | (readers if name == tensor else set())
        for reader in graph.consumers(name):
            if id(reader) not in allowed:
                raise Stays(f"'{reader.name}' reads all of '{name}'")
    return region


def _check_estimate(rewriter: Rewriter, parts: list[_Part], region: dict[str, Node]) -> None:
    """Raises Stays if the division is slower by the estimate."""
    model, _ = rewriter.settings.cost
    before = [work_of(node, rewriter.graph, rewriter.types) for node in region.values() if node.is_op("Conv")]
    shape = rewriter.types.static_shape(parts[0][0].inputs[0])
    if model is None or shape is None or any(not works for works in before):
        return
    convs = [work for works in before for work in works or ()]
    sizes = [end - start for _, _, start, end in parts]
    slices = [Surface(size, math.prod(shape) // shape[1]) for size in sizes]
    whole = sum(model.estimate(work, False).milliseconds for work in convs)
    whole += sum(model.estimate(Work((part,), (part,)), True).milliseconds for part in slices)
    divided = sum(model.estimate(work.part(size), False).milliseconds for work in convs for size in sizes)
    if divided > whole:
        raise Stays(f"the Convs of its parts would take longer: {divided:.3g} ms instead of {whole:.3g} (estimate)")


def _cuttable(rewriter: Rewriter, constant: str, tensor: str) -> bool:
    dims = tuple(rewriter.graph.initializers[constant].dims)
    shape = rewriter.types.shape(tensor) or ()
    return int(np.prod(dims)) == 1 or (len(dims) in (3, 4) and dims[-3] in (1, shape[1]))


# ---------------- dividing


def _divide(rewriter: Rewriter, tensor: str, parts: list[_Part], region: dict[str, Node]) -> None:
    graph = rewriter.graph
    nodes: list[Node] = []
    node, inside = parts[0][0], {id(node) for node in region.values()}
    while len(nodes) < len(inside):  # in graph order, from the first reader back
        node = node.prev
        nodes[:0] = [node] if id(node) in inside else []
    cutters = list({id(reader): reader for reader, _, _, _ in parts}.values())
    channels = (rewriter.types.shape(tensor) or (0, 0))[1]
    for reader in cutters:
        graph.remove(reader)
    live = [p for p in parts if graph.consumer_count(p[1]) or p[1] in graph.outputs]
    last = {id(node): node for node in nodes}
    rewriter.afford(parts[0][0].name, len(live), len(nodes), _NODE)
    became: dict[str, list[str]] = {name: [] for name in region}
    made: list[Node] = []
    for number, (_, output, start, end) in enumerate(live):
        cut = operator.itemgetter(slice(start, end))
        names = {name: output if name == tensor else rewriter.tensor(f"{name}_part{number}") for name in region}
        for node in nodes:
            inputs = list(node.inputs)
            name = graph.node_name(f"{node.name}_part{number}")
            if node.is_op("Conv"):
                inputs[1] = rewriter.weight(node, 1, f"{node.inputs[1]}_part{number}", cut)
                if node.input(2):
                    inputs[2] = rewriter.weight(node, 2, f"{node.inputs[2]}_part{number}", cut)
            else:
                for index, old in enumerate(inputs):
                    if old in names:
                        inputs[index] = names[old]
                    elif old in graph.initializers and node.is_op(*_BINARY):
                        inputs[index] = _cut(rewriter, old, start, end, channels, number)
            part = Node(node.op_type, inputs, [names[node.outputs[0]]], name, attributes=node.attributes)
            graph.insert_after(part, last[id(node)])
            last[id(node)] = part
            made.append(part)
            old, new = node.outputs[0], names[node.outputs[0]]
            became[old].append(new)
            rewriter.inherit(RULE, new, old, part, f"scale of '{old}', channels {start} to {end - 1} of which it is")
    for node in reversed(nodes):
        graph.remove(node)
        rewriter.scales.drop(node.outputs[0])
    rewriter.note(
        RULE, [*nodes, *cutters], made, became, [n for name in became if name != tensor for n in became[name]]
    )


def _cut(rewriter: Rewriter, constant: str, start: int, end: int, channels: object, number: int) -> str:
    dims = rewriter.graph.initializers[constant].dims
    if len(dims) < 3 or dims[-3] != channels or channels == 1:
        return constant
    values = rewriter.graph.array(constant)
    assert values is not None
    return rewriter.constant(f"{constant}_part{number}", np.ascontiguousarray(values[..., start:end, :, :]))
