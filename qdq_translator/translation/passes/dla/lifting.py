"""Common part of rules D5, D18, D25 and D26: regions of nodes that can work on tensors of another shape."""

from __future__ import annotations

import math
from typing import Callable, Iterable, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import DENSE, ELEMENTWISE
from qdq_translator.translation.passes.dla.rewriter import Rewriter

UNARY = where(alone="lifted")


def regions(
    rewriter: Rewriter,
    fits: Callable[[Rewriter, Node], bool],
    asks: Callable[[Rewriter, Node], bool] = lambda _, node: node.is_op(*DENSE),
) -> list[list[Node]]:
    """Groups of fitting nodes that tensors connect, in graph order; only groups with a node for which `asks` is true.
    Nodes that are not next to such a group are not looked at."""
    given = [node for node in rewriter.graph.nodes if node.inputs and node.outputs]
    order = {id(node): number for number, node in enumerate(given)}
    seen: set[int] = set()
    found: list[list[Node]] = []
    for pending in ([node] for node in given if asks(rewriter, node)):
        region: list[Node] = []
        while pending:
            node = pending.pop()
            if id(node) not in seen and id(node) in order:
                seen.add(id(node))
                if fits(rewriter, node) and rewriter.allows(node):
                    region.append(node)
                    pending += _connected(rewriter, node)
        if region:
            found.append(sorted(region, key=lambda node: order[id(node)]))
    return sorted(found, key=lambda region: order[id(region[0])])


def _connected(rewriter: Rewriter, node: Node) -> list[Node]:
    """Nodes that make or read an activation of this one."""
    graph, reads = rewriter.graph, activations(rewriter, node.inputs)
    readers = [reader for name in (*reads, *node.outputs) for reader in graph.consumers(name)]
    return [graph.producer[name] for name in reads if name in graph.producer] + readers


def activations(rewriter: Rewriter, names: Iterable[str]) -> list[str]:
    return [name for name in names if name and name not in rewriter.graph.initializers]


def entering(rewriter: Rewriter, region: Sequence[Node]) -> list[str]:
    """Activations that the region reads but does not make, each once."""
    made = {name for node in region for name in node.outputs}
    reads = dict.fromkeys(name for node in region for name in activations(rewriter, node.inputs))
    return [name for name in reads if name not in made]


def one_output(rewriter: Rewriter, node: Node) -> bool:
    """True if only its first output is read."""
    graph = rewriter.graph
    return not any(name and (graph.consumer_count(name) or name in graph.outputs) for name in node.outputs[1:])


def value_by_value(
    rewriter: Rewriter,
    node: Node,
    same: Callable[[str], bool],
    constant: Callable[[Sequence[int]], bool],
    unary: Sequence[str] = UNARY,
    nary: Sequence[str] = ELEMENTWISE,
) -> bool:
    """True for `unary` of a tensor for which `same` is true, with numbers as parameters, and for `nary` of such tensors
    and of constants for whose sizes `constant` is true."""
    known = rewriter.graph.initializers
    if node.is_op(*unary):
        return same(node.inputs[0]) and all(n in known and math.prod(known[n].dims) == 1 for n in node.inputs[1:] if n)
    given = [name for name in node.inputs if name not in known]
    fits = all(map(same, given)) and all(constant(known[name].dims) for name in node.inputs if name in known)
    return node.is_op(*nary) and bool(given) and fits


def lift_constants(
    rewriter: Rewriter, inputs: list[str], suffix: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Replace constants in place: those of several values by the result of `change`, under the name with the suffix."""
    graph = rewriter.graph
    for index, name in enumerate(inputs):
        if name in graph.initializers and math.prod(graph.initializers[name].dims) > 1:
            values = graph.array(name)
            assert values is not None
            inputs[index] = rewriter.constant(f"{name}{suffix}", change(values))


class Region:
    """Nodes that are changed to work on tensors of another shape, and the log of one change.

    entries: activations that they read but do not make. names: tensor -> its name in the other shape, which ends in
    `suffix`. before, after, new, gone: as in `Editor.note`, since `begin`.
    """

    def __init__(self, rewriter: Rewriter, rule: str, nodes: Sequence[Node], suffix: str) -> None:
        self.rewriter, self.rule, self.suffix = rewriter, rule, suffix
        self.inside = {id(node) for node in nodes}
        self.entries = dict.fromkeys(entering(rewriter, nodes))
        self.names: dict[str, str] = {}

    def begin(self, *nodes: Node) -> None:
        self.before = [Node(node.op_type, node.inputs, node.outputs, node.name) for node in nodes]
        self.after, self.new = [*nodes], []  # type: list[Node], list[str]
        self.gone: dict[str, list[str]] = {}

    def note(self) -> None:
        self.rewriter.note(self.rule, self.before, self.after, self.gone, self.new)

    def inputs(self, node: Node) -> list[str]:
        return [self.names.get(name, name) for name in node.inputs]

    def insert(self, layers: Sequence[Node], anchor: Optional[Node]) -> None:
        for layer in layers:
            anchor = self.rewriter.graph.insert_after(layer, anchor)
            self.after.append(layer)

    def reshape(self, source: str, target: str, sizes: Sequence[int]) -> list[Node]:
        """A Reshape for `enter` or `exit`."""
        return [self.rewriter.reshape(source, target, sizes, self.rewriter.node(f"{target}_reshape"))]

    def outside(self, tensor: str) -> list[Node]:
        """Readers that keep the old shape."""
        return [reader for reader in self.rewriter.graph.consumers(tensor) if id(reader) not in self.inside]

    def enter(self, name: str, into: Callable[[str, str], list[Node]]) -> None:
        """Put layers behind a tensor that the region reads, once. into: (old name, new name) -> layers."""
        if name in self.entries and name not in self.names:
            self.names[name] = self.rewriter.tensor(f"{name}{self.suffix}")
            layers = into(name, self.names[name])
            self.insert(layers, self.rewriter.graph.producer.get(name))
            self.new += [layer.outputs[0] for layer in layers]

    def exit(self, node: Node, output: str, back: Callable[[str, str], list[Node]], note: str) -> bool:
        """If `output` is needed outside the region, `node` makes another tensor with its scale, and the layers of
        `back` convert it to `output`. back: (its name, `output`) -> layers. False if only the region reads it."""
        rewriter, graph, readers = self.rewriter, self.rewriter.graph, self.outside(output)
        graph.value_info.pop(output, None)
        if output not in graph.outputs and not readers:
            rewriter.types.forget(node)
            return False
        lifted = rewriter.tensor(f"{output}{self.suffix}")
        layers = back(lifted, output)
        graph.rename_output(node, output, lifted)
        self.insert(layers, node)
        for reader in readers:
            graph.replace_use(reader, lifted, output)
        self.new += [layer.inputs[0] for layer in layers]
        if output in graph.outputs:
            rewriter.inherit(self.rule, lifted, output, node, note)
            rewriter.network.withhold(*(layer.inputs[0] for layer in layers))
        else:
            rewriter.derive(self.rule, lifted, output, node, note=note)
        return True


RESHAPED = "the same values as its Reshape's output"
Borders = Tuple[Sequence[int], Sequence[int]]
"""Targets of the Reshapes of a tensor into a region and out of it."""
KEPT: Borders = ((), ())
"""Borders of a tensor that keeps its shape."""


def lift(
    rewriter: Rewriter,
    rule: str,
    nodes: Sequence[Node],
    borders: Callable[[Rewriter, str], Borders],
    convert: Callable[[Rewriter, Node, list[str]], Sequence[Node]],
) -> None:
    """Make a region work on tensors of another shape, with a Reshape (`NAME_4d`) at each border. convert: changes a
    node in place, given its new inputs; returns layers to put in front."""
    region = Region(rewriter, rule, nodes, "_4d")

    def into(name: str, lifted: str) -> list[Node]:
        return region.reshape(name, lifted, borders(rewriter, name)[0])

    def back(lifted: str, name: str) -> list[Node]:
        return region.reshape(lifted, name, borders(rewriter, name)[1])

    for node in nodes:
        region.begin(node)
        for name in node.inputs:
            region.enter(name, into)
        outputs = [name for name in node.outputs if name and borders(rewriter, name) != KEPT]
        front = convert(rewriter, node, region.inputs(node))
        region.after += front
        region.new += [name for layer in front for name in layer.outputs]
        for output in outputs:
            region.exit(node, output, back, RESHAPED)
        region.note()
