"""Walking the bodies of If, Loop and Scan, however deeply they are nested."""

from __future__ import annotations

from typing import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def bodies(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """The graphs that these attributes hold themselves."""
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        else:
            yield from attribute.graphs


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Each node, followed by those of its bodies."""
    for node in nodes:
        yield node
        for body in bodies(node.attribute):
            yield from every_node(body.node)


def every_body(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """The bodies of these nodes, and those inside them."""
    for node in every_node(nodes):
        yield from bodies(node.attribute)
