"""Rule F3: Constant nodes become initializers; dead nodes and unused initializers go."""

from __future__ import annotations

from qdq_translator.graph import Graph, constant_value


def constants_to_initializers(graph: Graph) -> None:
    """Every `Constant` node (but strings and sparse tensors) becomes an initializer of its output's name."""
    for node in graph.nodes:
        if node.is_op("Constant") and node.outputs[0] not in graph.outputs:
            values = constant_value(node)
            if values is not None:
                graph.remove(node)
                graph.add_initializer(node.outputs[0], values)
                graph.value_info.pop(node.outputs[0], None)


def remove_dead_nodes(graph: Graph) -> None:
    """Nodes whose outputs nothing reads; one reverse sweep finds them all."""
    for node in graph.nodes_reversed:
        if not any(name in graph.outputs or graph.consumer_count(name) for name in node.outputs if name):
            graph.remove(node)
            for name in node.outputs:
                graph.value_info.pop(name, None)


def remove_unused_initializers(graph: Graph) -> None:
    for name in [n for n in graph.initializers if not graph.consumer_count(n) and n not in graph.outputs]:
        graph.drop_initializer(name)
