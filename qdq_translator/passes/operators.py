"""Rule F6: nodes that the parser of the target's TensorRT cannot read are errors, not surprises on the device."""

from __future__ import annotations

from typing import Iterator

from qdq_translator.core.errors import UserError
from qdq_translator.core.words import counted
from qdq_translator.ir.bodies import every_node
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.scales.network import Network
from qdq_translator.targets.parser import refusal
from qdq_translator.targets.settings import Settings


def check_operators(network: Network, settings: Settings) -> None:
    """Raises UserError for the first node that cannot be read; a warning where nobody named the platform."""
    version = settings.hardware.tensorrt
    graph = network.graph
    nodes = [*_every_node(graph)] if graph.with_bodies() else graph.nodes
    found = [(node, why) for node in nodes for why in [refusal(node, version)] if why is not None]
    if not found:
        return
    node, (what, hint) = found[0]
    more = f" {counted(len(found) - 1, 'more node')} cannot be read either." if len(found) > 1 else ""
    if settings.hardware.origin != "default":
        raise UserError(what + more, hint)
    network.diagnostics.warning("F6", what + more, node=node.name, hint=hint)


def _every_node(graph: Graph) -> Iterator[Node]:
    """The nodes of the graph and of the bodies in it."""
    for node in graph.nodes:
        yield node
        for body in node.subgraphs():
            yield from map(Node.from_proto, every_node(body.node))
