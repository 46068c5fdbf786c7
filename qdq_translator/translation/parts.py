"""Split one network into parts that run one after the other: those for the DLA, and what is before, between and after.

`choose` finds the cuts: the DLA regions of the plan; none of their layers has to wait for the GPU. `cut` makes the
parts, at any tensors; constants are copied into each part that reads them. `lab.parts` writes them as files and proves
that they compute the whole.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Container, Iterable, Sequence, Tuple

import onnx

from qdq_translator.core.errors import UserError
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import PARTS, RANDOM, REARRANGES
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.network import Applied
from qdq_translator.translation.targets.dla.verdicts import MAX_LOADABLES

_LARGE = 0.01
"""Share of the multiply-accumulates on the DLA below which a subgraph is a remnant of the decode tail."""
Borders = Tuple[Sequence[str], Sequence[str]]
"""Tensors at which a part for the DLA begins, and those at which it ends."""
_AGAIN = "Name other tensors with --begin and --end."


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the parts. role: 'before', 'dla', 'between' or 'after'. inputs, outputs: tensors at its borders, in graph
    order."""

    role: str
    graph: Graph
    inputs: list[str]
    outputs: list[str]

    @property
    def layers(self) -> list[str]:
        return [node.name for node in self.graph.nodes]


@dataclasses.dataclass(frozen=True)
class Planned:
    """The network that a report describes. applied: rewrites of the network to be cut that led to it."""

    graph: Graph
    applied: Sequence[Applied] = ()

    def own(self, graph: Graph, names: Sequence[str], forward: bool, stop: Container[str] = ()) -> list[str]:
        """The tensors of `graph` that correspond to these; for a tensor that a rewrite added, the next ones, after it
        if `forward`, else before it. stop: layers that the search does not pass."""
        was = {new: old for a in self.applied for old, made in a.tensors.items() for new in made}
        found: dict[str, None] = {}
        pending, seen = list(names), set(names)
        for name in pending:
            old = name if name in graph.producer else was.get(name, "")
            if old in graph.producer:
                found[_behind_pair(graph, old)] = None
                continue
            nodes = self.graph.consumers(name) if forward else filter(None, [self.graph.producer.get(name)])
            tensors = [(n.outputs if forward else n.reads()) for n in nodes if n.name not in stop]
            following = [other for other in dict.fromkeys(itertools.chain(*tensors)) if other not in seen]
            pending += following
            seen.update(following)
        return list(found)


def choose(graph: Graph, report: rows.Report) -> list[Borders]:
    """The borders of the DLA regions with at least 1% of the multiply-accumulates there, in order of execution; of more
    than a core has loadables those with the longest estimated time. Raises UserError without a DLA layer."""
    if report.dla is None:
        raise UserError(
            "This translation is for a GPU, so it has no DLA part to cut out.",
            "Translate it with --on dla, or name tensors with --begin and --end.",
        )
    milliseconds = {row.name: (row.cost and row.cost.milliseconds) or 0.0 for row in report.plan}
    subgraph, large = _subgraphs(report.dla), _in_large_subgraphs(report.dla, report.plan)
    inside: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.name in large:
            inside.setdefault(subgraph[node.name], []).append(node)
    if not inside:
        raise UserError("No layer of this network runs on the DLA, so there is nothing to cut out for it.", _AGAIN)
    longest = sorted(inside.values(), key=lambda nodes: -sum(milliseconds.get(node.name, 0.0) for node in nodes))
    borders = [
        ([name for name in _read_from_outside(graph, nodes) if name in graph.producer], _read_outside(graph, nodes))
        for nodes in longest[:MAX_LOADABLES]
    ]
    return sorted(borders, key=lambda pair: len(_needed(graph, pair[1])))  # more than what it depends on


def _subgraphs(dla: rows.Dla) -> dict[str, int]:
    """Layer of the DLA -> its subgraph."""
    return {row.name: row.subgraph for row in dla.layers if row.subgraph >= 0}


def _read_from_outside(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Graph inputs and outputs of other nodes that these nodes read."""
    made = {name for node in nodes for name in node.outputs}
    reads = dict.fromkeys(name for node in nodes for name in node.reads())
    return [name for name in reads if name not in made and name not in graph.initializers]


def _read_outside(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Outputs of these nodes that are graph outputs or that other nodes read."""
    own = {id(node) for node in nodes}
    return [
        name
        for node in nodes
        for name in node.outputs
        if name in graph.outputs or any(id(reader) not in own for reader in graph.consumers(name))
    ]


def cut(graph: Graph, types: TensorTypes, borders: Sequence[Borders]) -> list[Part]:
    """The parts that have nodes. Everything that a part for the DLA depends on is in the parts before it; all else that
    its end depends on (without an end, all else) is the part; the remainder is the part after. Raises UserError for
    tensors that no node makes, and if nothing is between them."""
    at = list(itertools.chain(*itertools.chain(*borders)))
    _check_made(graph, at)
    constant = _constant(graph)
    left = [node for node in graph.nodes if id(node) not in constant]
    sections: list[tuple[str, list[Node]]] = []
    for begin, end in borders:
        before, left = _apart(left, _needed(graph, begin))
        inside, left = _apart(left, _needed(graph, end)) if end else (left, [])
        if not inside:
            raise UserError("There is no node between the tensors at which the DLA part begins and ends.", _AGAIN)
        sections += [("between" if sections else "before", before), ("dla", inside)]
    sections.append(("after", left))
    return [_part(graph, types, role, nodes, constant, at) for role, nodes in sections if nodes]


def _check_made(graph: Graph, tensors: Iterable[str]) -> None:
    """Raises UserError for tensors that no node makes."""
    for name in tensors:
        if name not in graph.producer:
            known = "a graph input" if name in graph.inputs else "not a tensor that a node of the network makes"
            raise UserError(f"Tensor '{name}' is {known}, so the network cannot be cut there.", _AGAIN)


def _apart(nodes: Sequence[Node], wanted: Container[int]) -> tuple[list[Node], list[Node]]:
    """The nodes whose ids are wanted, and the others."""
    return [node for node in nodes if id(node) in wanted], [node for node in nodes if id(node) not in wanted]


def tail(graph: Graph, planned: Planned, report: rows.Report) -> list[str]:
    """Layers on which no DLA subgraph with at least 1% of the multiply-accumulates depends: a decode tail, which should
    not be quantized."""
    if report.dla is None:
        return []
    there = _in_large_subgraphs(report.dla, report.plan)
    made = [name for node in planned.graph.nodes if node.name in there for name in node.outputs if name]
    own = planned.own(graph, made, True, {node.name for node in graph.nodes})
    needed = _needed(graph, own) | _constant(graph)
    return [node.name or f"node_of_{node.outputs[0]}" for node in graph.nodes if id(node) not in needed]


def _in_large_subgraphs(dla: rows.Dla, plan: Sequence[rows.LayerPlan]) -> set[str]:
    """The layers of all DLA subgraphs with at least 1% of the DLA's multiply-accumulates."""
    subgraph = _subgraphs(dla)
    macs = dict.fromkeys(subgraph.values(), 0)
    for row in plan:
        if row.name in subgraph:
            macs[subgraph[row.name]] += row.macs or 0
    least = _LARGE * sum(macs.values())
    return {name for name, number in subgraph.items() if macs[number] >= least}


def tail_begins(graph: Graph, report: rows.Report) -> list[str]:
    """Tensors after which it is useful to cut off a tail. [] if none of its layers computes on the GPU (data movement
    does not count, up to one layer per output), or if at least as many GPU layers are before it: the DLA's part would
    still need the GPU.
    """
    behind = set(tail(graph, Planned(graph), report))
    gpu = [row for row in report.dla.layers if row.verdict == "gpu"] if report.dla and behind else []
    inside = [row for row in gpu if row.name in behind]
    moves = all(row.op in (*REARRANGES, *PARTS) for row in inside)
    if 2 * len(inside) <= len(gpu) or (moves and len(inside) <= len(graph.outputs)):
        return []
    constant = _constant(graph)
    return _read_outside(graph, [n for n in graph.nodes if n.name not in behind and id(n) not in constant])


def _needed(graph: Graph, tensors: Iterable[str]) -> set[int]:
    """The nodes that the tensors depend on."""
    found: set[int] = set()
    pending = list(tensors)
    while pending:
        node = graph.producer.get(pending.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            pending += node.reads()
    return found


def _constant(graph: Graph) -> set[int]:
    """Nodes that depend on no graph input."""
    found: set[int] = set()
    for node in graph.nodes:
        makers = [graph.producer.get(name) for name in node.reads()]
        # a random operator that is copied into two parts would give different values there
        if not node.is_op(*RANDOM) and all(
            name in graph.initializers or (maker is not None and id(maker) in found)
            for name, maker in zip(node.reads(), makers)
        ):
            found.add(id(node))
    return found


def _part(
    graph: Graph, types: TensorTypes, role: str, nodes: list[Node], constant: set[int], borders: Sequence[str]
) -> Part:
    copied = _needed(graph, [name for node in nodes for name in node.reads()]) & constant
    everything = [node for node in graph.nodes if id(node) in copied] + nodes
    left = {*_read_outside(graph, nodes), *borders}
    outputs = [name for node in nodes for name in node.outputs if name in left]
    inputs = _read_from_outside(graph, everything)
    ends = ([_value(graph, types, name) for name in names] for names in (inputs, outputs))
    picture = graph.submodel(everything, f"{graph.name or 'graph'}_{role}", *ends)
    return Part(role, Graph.from_picture(picture), inputs, outputs)


def _value(graph: Graph, types: TensorTypes, name: str) -> onnx.ValueInfoProto:
    if name in graph.inputs:
        return graph.inputs[name]
    if name in graph.outputs:
        return graph.outputs[name]
    return onnx.helper.make_tensor_value_info(name, types.elem_type(name) or onnx.TensorProto.FLOAT, types.shape(name))


def _behind_pair(graph: Graph, tensor: str) -> str:
    """Output of the Q/DQ pair through which all readers read `tensor`, so that a cut does not separate the pair."""
    for op in ("QuantizeLinear", "DequantizeLinear"):
        reader = graph.only_consumer(tensor)
        if reader is None or reader.op_type != op:
            return tensor
        tensor = reader.outputs[0]
    return tensor
