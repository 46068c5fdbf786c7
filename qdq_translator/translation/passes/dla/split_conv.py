"""Rule D3: a Conv whose output channels are split becomes one Conv per part (the chunk of C2f, C3k2).

1. `Conv -> Split(axis 1)`, `Conv -> Slice, Slice, ... (axis 1, step 1)`: each part gets the Conv with its rows of the
   weight and of the bias.
2. The same with element-wise layers between (`Conv -> Sigmoid, Mul -> Split`): each part gets copies of them; constant
   operands with one value per channel are divided too.

On the DLA a Slice runs only in FP16 (limit S1), and a tensor without scale behind it makes its readers run in FP16 too.
Each part keeps the name of the Slice's or Split's output, and its scale (if it differs from that of the split tensor,
values are now rounded once instead of twice); without one it gets that of the split tensor. Tensors in between (the
Conv's output before the activation) get the scale of the tensor of which they are a part. Weight scales are per output
channel, so every weight keeps its quantized value.
Not: where the split tensor, or one between, is a graph output; where another layer reads it; grouped Conv; weights that
are not constant; another layer than Conv or element-wise ones in front; overlapping parts; parts that are not constant;
a step other than 1; a Split or Slice along another axis; where the Convs of the parts, which read the input once each,
are estimated to take longer in INT8 than the one Conv and the Slices in FP16 (docs/cost.md).
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Mapping, NamedTuple, Sequence

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla.lifting import UNARY
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.passes.editor import Stays, known, stay_if
from qdq_translator.translation.targets.cost.fusing import work_of
from qdq_translator.translation.targets.cost.model import Surface, Work

RULE = "D3"
_BINARY = tuple(op for op in operators.ELEMENTWISE if op != "Sum")  # a Sum may read more than two

_NODE = 2**10
"""Number of values that cost as much as creating a node."""


class _Part(NamedTuple):
    """A Slice or Split, one of its outputs, and the output's first channel and end."""

    cutter: Node
    output: str
    start: int
    end: int


def apply(rewriter: Rewriter) -> None:
    for tensor in dict.fromkeys(node.inputs[0] for node in rewriter.nodes("Split", "Slice")):
        try:
            parts = _parts(rewriter, tensor)
            region = _cone(rewriter, tensor, [part.cutter for part in parts])
            _check_estimate(rewriter, parts, region)
        except Stays as why:
            for reader in rewriter.graph.consumers(tensor):
                if reader.is_op("Split", "Slice"):
                    rewriter.leave(reader, str(why))
        else:
            _divide(rewriter, tensor, parts, region)


def _parts(rewriter: Rewriter, tensor: str) -> list[_Part]:
    """All parts that readers cut from the tensor. Raises Stays."""
    graph = rewriter.graph
    shape = rewriter.types.shape(tensor)
    if shape is None or len(shape) != 4 or not isinstance(shape[1], int):
        raise Stays("the number of channels is not known, or the tensor has not 4 dimensions")
    stay_if(tensor in graph.outputs, f"'{tensor}' is a graph output")
    parts: list[_Part] = []
    for reader in graph.consumers(tensor):
        whole = not reader.is_op("Split", "Slice") or reader.inputs[0] != tensor
        stay_if(whole, f"'{reader.name}' reads all of '{tensor}'")
        parts += _cut_out(rewriter, reader, shape[1])
    ends = sorted((part.start, part.end) for part in parts)
    stay_if(any(a[1] > b[0] for a, b in zip(ends, ends[1:])), "parts overlap")
    stay_if(any(start >= end for start, end in ends), "a part is empty")
    return parts


def _cut_out(rewriter: Rewriter, node: Node, channels: int) -> list[_Part]:
    """The parts that a Split or Slice makes. Raises Stays."""
    array, why = rewriter.graph.array, "not along the channels, not with step 1, or not by constants"
    if node.is_op("Slice"):
        cut = known(operators.slices(node, array), why)
        stay_if(len(cut.starts) != 1 or len(cut.ends) != 1 or cut.axes not in ([1], [-3]) or cut.steps != [1], why)
        start, end, _ = slice(cut.starts[0], cut.ends[0]).indices(channels)
        return [_Part(node, node.outputs[0], start, end)]
    stay_if(operators.axis(node, rewriter.graph.opset()) not in (1, -3), why)
    ends = np.cumsum(known(operators.split_sizes(node, channels, array), why)).tolist()
    return [_Part(node, name, start, end) for name, start, end in zip(node.outputs, [0, *ends], ends) if name]


def _cone(rewriter: Rewriter, tensor: str, readers: Sequence[Node]) -> dict[str, Node]:
    """Output -> node that `tensor` is computed by, back to the Convs. Raises Stays if they cannot be divided."""
    graph, region = rewriter.graph, {}  # type: ignore[var-annotated]
    pending = [tensor]
    while pending:
        name = pending.pop()
        node = known(graph.producer.get(name), f"'{name}' comes from no Conv")
        if node.outputs[0] not in region:
            region[node.outputs[0]] = node
            pending += _activations(rewriter, node, tensor)
    inside = {id(node) for node in region.values()}
    cutters = {id(node) for node in readers}
    for name in region:
        stay_if(name in graph.outputs, f"'{name}' is a graph output")
        for reader in graph.consumers(name):
            divided = id(reader) in inside or (name == tensor and id(reader) in cutters)
            stay_if(not divided, f"'{reader.name}' reads all of '{name}'")
    return region


def _activations(rewriter: Rewriter, node: Node, tensor: str) -> list[str]:
    """Inputs of a layer that are divided like `tensor`; none for a Conv. Raises Stays if it cannot be divided."""
    constants, shape = rewriter.graph.initializers, rewriter.types.shape
    if node.is_op("Conv"):
        stay_if(operators.groups(node) != 1, f"Conv '{node.name}' has groups")
        given = [tuple(constants[name].dims) if name in constants else () for name in node.inputs[1:] if name]
        stay_if(() in given, f"Conv '{node.name}' has no constant weight")
        stay_if(given[1:] not in ([], [given[0][:1]]), f"the bias of Conv '{node.name}' is not one value a channel")
        return []
    known_op = node.is_op(*UNARY, *_BINARY) and not any(node.outputs[1:])
    stay_if(not known_op, f"{node.op_type} '{node.name}' is before it, not a Conv")
    read = node.inputs if node.is_op(*_BINARY) else node.inputs[:1]
    for name in read:
        if name in constants:
            dims = tuple(constants[name].dims)
            one = len(dims) in (3, 4) and dims[-3] in (1, (shape(tensor) or (0, 0))[1])
            stay_if(math.prod(dims) != 1 and not one, f"constant '{name}' cannot be divided by channels")
        else:
            stay_if(shape(name) != shape(tensor), f"'{name}' has another shape")
    return [name for name in read if name not in constants]


def _check_estimate(rewriter: Rewriter, parts: Sequence[_Part], region: Mapping[str, Node]) -> None:
    """Raises Stays if the division is slower by the estimate."""
    model, _ = rewriter.settings.cost
    works = [work_of(node, rewriter.graph, rewriter.types) for node in region.values() if node.is_op("Conv")]
    shape = rewriter.types.static_shape(parts[0].cutter.inputs[0])
    if model is None or shape is None or not all(works):
        return
    convs = list(itertools.chain(*filter(None, works)))
    surfaces = [Surface(part.end - part.start, math.prod(shape) // shape[1]) for part in parts]
    whole = sum(model.estimate(work, False).milliseconds for work in convs)
    whole += sum(model.estimate(Work((part,), (part,)), True).milliseconds for part in surfaces)
    divided = sum(model.estimate(conv.part(part.channels), False).milliseconds for conv in convs for part in surfaces)
    why = f"the Convs of its parts would take longer: {divided:.3g} ms instead of {whole:.3g} (estimate)"
    stay_if(divided > whole, why)


def _divide(rewriter: Rewriter, tensor: str, parts: Sequence[_Part], region: Mapping[str, Node]) -> None:
    graph, cutters = rewriter.graph, list({id(part.cutter): part.cutter for part in parts}.values())
    nodes = _in_order(region, cutters[0])
    for cutter in cutters:
        graph.remove(cutter)
    live = [part for part in parts if graph.is_used(part.output)]
    rewriter.afford(cutters[0].name, len(live), len(nodes), _NODE)
    last = {id(node): node for node in nodes}
    became: dict[str, list[str]] = {name: [] for name in region}
    made: list[Node] = []
    for number, part in enumerate(live):
        names = {}
        for name in region:
            names[name] = part.output if name == tensor else rewriter.tensor(f"{name}_part{number}")
        for node in nodes:
            copy = _copy(rewriter, node, part, number, names)
            last[id(node)] = graph.insert_after(copy, last[id(node)])
            made.append(copy)
            old, new = node.outputs[0], names[node.outputs[0]]
            became[old].append(new)
            note = f"scale of '{old}', channels {part.start} to {part.end - 1} of which it is"
            rewriter.inherit(RULE, new, old, copy, note)
    for node in reversed(nodes):
        graph.remove(node)
        rewriter.scales.drop(node.outputs[0])
    between = [name for old, new in became.items() if old != tensor for name in new]
    rewriter.note(RULE, [*nodes, *cutters], made, became, between)


def _in_order(region: Mapping[str, Node], behind: Node) -> list[Node]:
    """The nodes in graph order; `behind` follows them there."""
    nodes: list[Node] = []
    inside = {id(node) for node in region.values()}
    while len(nodes) < len(inside):
        behind = behind.prev
        if id(behind) in inside:
            nodes.append(behind)
    return nodes[::-1]


def _copy(rewriter: Rewriter, node: Node, part: _Part, number: int, names: Mapping[str, str]) -> Node:
    """The layer for one part. names: tensor -> its part."""
    inputs, name = list(node.inputs), rewriter.node(f"{node.name}_part{number}")
    if node.is_op("Conv"):
        cut = operator.itemgetter(slice(part.start, part.end))
        for index in (1, 2) if node.input(2) else (1,):
            inputs[index] = rewriter.weight(node, index, f"{node.inputs[index]}_part{number}", cut)
    else:
        for index, old in enumerate(inputs):
            values = rewriter.graph.array(old) if old in rewriter.graph.initializers and node.is_op(*_BINARY) else None
            if values is not None and values.ndim > 2 and values.shape[-3] > 1:
                values = np.ascontiguousarray(values[..., part.start : part.end, :, :])
                inputs[index] = rewriter.constant(f"{old}_part{number}", values)
            inputs[index] = names.get(old, inputs[index])
    return Node(node.op_type, inputs, [names[node.outputs[0]]], name, attributes=node.attributes)
