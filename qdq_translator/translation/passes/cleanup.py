"""Rule F3: Constant nodes become initializers; dead nodes, unused initializers and wrong shapes are removed."""

from __future__ import annotations

from typing import Container, Optional

import numpy as np
from onnx import TensorProto, helper

from qdq_translator.core.budget import Budget
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import ModelError
from qdq_translator.core.words import others
from qdq_translator.translation.ir.constants import FOLDABLE, evaluate
from qdq_translator.translation.ir.graph import Graph, Node, constant_value
from qdq_translator.translation.ir.types import TensorTypes


def constants_to_initializers(graph: Graph) -> None:
    """Every `Constant` node (except strings and sparse tensors) becomes an initializer with the name of its output."""
    for node in graph.of("Constant"):
        if node.outputs[0] not in graph.outputs:  # TensorRT's parser needs a node there
            values = constant_value(node)
            if values is not None:
                graph.remove(node)
                graph.add_initializer(node.outputs[0], values)
                graph.value_info.pop(node.outputs[0], None)


def fold_constants(graph: Graph, trained: Container[str]) -> list[Node]:
    """Fold nodes that compute constants from initializers, and then their readers; return those nodes.

    A graph output keeps its node, but other readers read an initializer. Not: weights that were trained, whose
    quantized values would be lost, and nodes that cost too much (budget.py), which are left to TensorRT.
    """
    folded: list[Node] = []
    budget = Budget(graph.initializers.values())
    for node in graph.nodes:
        reads = _constant_reads(graph, node)
        if not reads:
            continue
        if node.is_op("Identity"):  # another name for the same values: no copy
            graph.replace_uses(node.outputs[0], reads[0])
        values = {} if node.is_op("Identity") else _computed(graph, node, trained, budget)
        if values is None:
            continue
        if not any(name in graph.outputs for name in node.outputs):
            graph.remove(node)
            folded.append(node)
        for name, array in values.items():
            if name in graph.outputs:
                graph.replace_uses(name, graph.constant(f"{name}_value", array))
            elif name not in graph.producer:
                graph.add_initializer(name, array)
                graph.value_info.pop(name, None)
        graph.drop_initializer(*(name for name in reads if not graph.is_used(name)))
    return folded


def _constant_reads(graph: Graph, node: Node) -> list[str]:
    """The initializers that a node reads; [] if it reads anything else or cannot be folded."""
    if node.op_type not in FOLDABLE or not node.is_standard or node.captured:
        return []
    reads = node.reads()
    return reads if all(name in graph.initializers for name in reads) else []


def fold_integers(graph: Graph, types: TensorTypes) -> list[Node]:
    """Fold nodes whose integers or booleans follow from known sizes (Shape, and computations on it) into initializers;
    return them. Not: graph outputs."""
    folded = []
    for name, values in types.integers().items():
        node, kind = graph.producer[name], types.elem_type(name)
        if kind and kind != TensorProto.STRING and len(node.outputs) == 1 and name not in graph.outputs:
            graph.remove(node)
            graph.add_initializer(name, values.astype(helper.tensor_dtype_to_np_dtype(kind)))
            folded.append(node)
    return folded


def _computed(graph: Graph, node: Node, trained: Container[str], budget: Budget) -> Optional[dict[str, np.ndarray]]:
    """The values of each output that is read; None for a node that must not or cannot be folded."""
    if any(name in trained for name in node.reads()):
        return None
    inputs = [graph.array(name) if name else None for name in node.inputs]
    values = {}
    for index, name in enumerate(node.outputs):
        if name and graph.consumer_count(name):
            try:
                array = evaluate(node, inputs, index, graph.opset(), budget)
            except ModelError:  # beyond the budget
                return None
            if array is None:
                return None
            values[name] = array
    return values


def remove_dead_nodes(graph: Graph) -> None:
    """Remove nodes whose outputs are not read; one reverse pass over the nodes finds them all."""
    for node in graph.nodes_reversed:
        if not any(name and graph.is_used(name) for name in node.outputs):
            graph.remove(node)
            for name in node.outputs:
                graph.value_info.pop(name, None)


def remove_unused_initializers(graph: Graph) -> None:
    graph.drop_initializer(*[name for name in graph.initializers if not graph.is_used(name)])


def remove_wrong_shapes(graph: Graph, types: TensorTypes, diagnostics: Diagnostics) -> None:
    """Remove shapes in the file that the network contradicts."""
    wrong = types.contradictions()
    for name, (_, inferred) in wrong.items():
        graph.value_info.pop(name, None)
        if name in graph.outputs:
            kind = graph.outputs[name].type.tensor_type.elem_type
            graph.outputs[name].type.CopyFrom(helper.make_tensor_type_proto(kind, inferred))
    if wrong:
        first, (declared, inferred) = next(iter(wrong.items()))
        diagnostics.warning(
            "F3",
            f"The file declares the shape {list(declared)} for tensor '{first}', but its network computes "
            f"{list(inferred)}{others(wrong, ' ({} more like it)')}; the declared shape is ignored.",
            tensor=first,
            hint="Export the model again: other tools may rely on the wrong shapes.",
            data={
                "declared": {n: list(d) for n, (d, _) in wrong.items()},
                "inferred": {n: list(i) for n, (_, i) in wrong.items()},
            },
        )
