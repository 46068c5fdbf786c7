"""Common part of rules D5, D18, D25 and D26: regions of nodes that can work on tensors of another shape, and their borders."""

from __future__ import annotations

import math
from typing import Callable, Iterable, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import DENSE, Unions
from qdq_translator.passes.dla.rewriter import Rewriter

UNARY = (
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Neg", "Abs", "Identity"),
    *("Dropout", "Softplus", "Erf", "Exp", "Sqrt"),
)


def regions(
    rewriter: Rewriter, fits: Callable[[Node], bool], around: Callable[[Node], bool] = lambda node: node.is_op(*DENSE)
) -> list[list[Node]]:
    """Nodes that fit, as tensors connect them, in graph order; those regions that have a layer that is asked for: a fully connected one."""
    nodes = [node for node in rewriter.graph.nodes if fits(node) and rewriter.allows(node)]
    unions: Unions[int] = Unions()
    owner: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in (*activations(rewriter, node.inputs), *filter(None, node.outputs)):
            unions.join(index, owner.setdefault(name, index))
    found: dict[int, list[Node]] = {}
    for index, node in enumerate(nodes):
        found.setdefault(unions.root(index), []).append(node)
    return [region for region in found.values() if any(map(around, region))]


def activations(rewriter: Rewriter, names: Iterable[str]) -> list[str]:
    return [name for name in names if name and name not in rewriter.graph.initializers]


def entering(rewriter: Rewriter, region: Sequence[Node]) -> list[str]:
    """Activations that the region reads and does not make, each once."""
    made = {name for node in region for name in node.outputs}
    reads = dict.fromkeys(name for node in region for name in activations(rewriter, node.inputs))
    return [name for name in reads if name not in made]


def one_output(rewriter: Rewriter, node: Node) -> bool:
    """Nothing reads its further outputs."""
    graph = rewriter.graph
    return not any(name and (graph.consumer_count(name) or name in graph.outputs) for name in node.outputs[1:])


def scalars(rewriter: Rewriter, names: Iterable[str]) -> bool:
    """All are constants of one value."""
    known = rewriter.graph.initializers
    return all(name in known and math.prod(known[name].dims) == 1 for name in names if name)


def lift_constants(
    rewriter: Rewriter, inputs: list[str], suffix: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """In place: constants of several values in the shape that `change` gives them, under the name with the suffix."""
    graph = rewriter.graph
    for index, name in enumerate(inputs):
        if name in graph.initializers and math.prod(graph.initializers[name].dims) > 1:
            values = graph.array(name)
            assert values is not None
            inputs[index] = rewriter.constant(f"{name}{suffix}", change(values))


def lower(
    rewriter: Rewriter,
    rule: str,
    node: Node,
    output: str,
    lifted: str,
    readers: Iterable[Node],
    back: Callable[[], list[Node]],
    note: str,
) -> list[Node]:
    """`node` makes `lifted`, and the layers of `back`, which it puts behind the node, make `output` of it for graph outputs and the
    `readers` outside; these layers. `lifted` has the scale of the output."""
    graph = rewriter.graph
    graph.rename_output(node, output, lifted)
    made = back()
    for reader in readers:
        graph.replace_use(reader, lifted, output)
    if output in graph.outputs:
        rewriter.inherit(rule, lifted, output, node, note)
        rewriter.network.withhold(*(layer.inputs[0] for layer in made))
    else:
        rewriter.derive(rule, lifted, output, node, note=note)
    return made


def lift(
    rewriter: Rewriter,
    rule: str,
    region: Sequence[Node],
    forms: Callable[[str], Optional[Tuple[Sequence[int], Sequence[int]]]],
    convert: Callable[[Node, list[str]], Optional[list[Node]]],
) -> None:
    """Make a region work on tensors of another shape, with a Reshape (`NAME_4d`) at each border.

    forms: targets of the Reshapes of a tensor into the region and out of it; None for a tensor that keeps its shape.
    convert: changes a node in place, given the inputs that it reads from now on; returns layers that it puts in front.
    """
    graph, inside = rewriter.graph, {id(node) for node in region}
    entries = set(entering(rewriter, region))
    lifted: dict[str, str] = {}
    for node in region:
        before = Node(node.op_type, node.inputs, node.outputs, node.name)
        after, new = [node], []  # type: list[Node], list[str]
        for name in [name for name in dict.fromkeys(node.inputs) if name in entries]:
            entries.remove(name)
            lifted[name] = rewriter.tensor(f"{name}_4d")
            into, _ = forms(name) or ((), ())
            shape = rewriter.reshape(name, lifted[name], into, rewriter.node(f"{lifted[name]}_reshape"))
            after.append(graph.insert_after(shape, graph.producer.get(name)))
            new.append(lifted[name])
        borders = {name: form[1] for name in node.outputs if name and (form := forms(name))}
        front = convert(node, [lifted.get(name, name) for name in node.inputs]) or []
        after += front
        new += [name for layer in front for name in layer.outputs]
        for output, out in borders.items():
            graph.value_info.pop(output, None)
            readers = [reader for reader in graph.consumers(output) if id(reader) not in inside]
            if output in graph.outputs or readers:
                lifted[output] = rewriter.tensor(f"{output}_4d")
                name = rewriter.node(f"{output}_reshape")
                after += reshaped_back(rewriter, rule, node, output, lifted[output], readers, out, name)
                new.append(lifted[output])
        rewriter.note(rule, [before], after, {}, new)


def reshaped_back(
    rewriter: Rewriter,
    rule: str,
    node: Node,
    output: str,
    lifted: str,
    readers: Iterable[Node],
    shape: Sequence[int],
    name: str,
) -> list[Node]:
    """`lower` with a single Reshape to `shape`, called `name`, behind the node."""

    def back() -> list[Node]:
        return [rewriter.graph.insert_after(rewriter.reshape(lifted, output, shape, name), node)]

    return lower(rewriter, rule, node, output, lifted, readers, back, "the same values as its Reshape's output")
