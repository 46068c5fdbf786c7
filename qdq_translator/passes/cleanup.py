"""Rule F3: Constant nodes become initializers; dead nodes, unused initializers and wrong shapes go."""

from __future__ import annotations

from onnx import helper

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.graph import Graph, constant_value
from qdq_translator.types import TensorTypes


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


def remove_wrong_shapes(graph: Graph, types: TensorTypes, diagnostics: Diagnostics) -> None:
    """What the file says of a tensor's shape goes where the network contradicts it."""
    wrong = types.contradictions()
    for name, (_, inferred) in wrong.items():
        graph.value_info.pop(name, None)
        if name in graph.outputs:
            kind = graph.outputs[name].type.tensor_type.elem_type
            graph.outputs[name].type.CopyFrom(helper.make_tensor_type_proto(kind, inferred))
    if wrong:
        first, (declared, inferred) = next(iter(wrong.items()))
        more = f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        diagnostics.warning(
            "F3",
            f"The file gives tensor '{first}' the shape {list(declared)}, but its network makes it {list(inferred)}{more}; "
            "the file's claim is ignored.",
            tensor=first,
            mend="Export the model again: other tools may believe the wrong shapes.",
            data={
                "declared": {n: list(d) for n, (d, _) in wrong.items()},
                "inferred": {n: list(i) for n, (_, i) in wrong.items()},
            },
        )
