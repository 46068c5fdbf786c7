"""Rule F3: Constant nodes become initializers; dead nodes, unused initializers and wrong shapes go."""

from __future__ import annotations

from typing import Container, Optional

import numpy as np
from onnx import TensorProto, helper

from qdq_translator.core.budget import Budget
from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import ModelError
from qdq_translator.core.words import others
from qdq_translator.ir.constants import FOLDABLE, evaluate
from qdq_translator.ir.graph import Graph, Node, constant_value
from qdq_translator.ir.types import TensorTypes


def constants_to_initializers(graph: Graph) -> None:
    """Every `Constant` node (but strings and sparse tensors) becomes an initializer of its output's name."""
    for node in graph.of("Constant"):
        if node.outputs[0] not in graph.outputs:
            values = constant_value(node)
            if values is not None:
                graph.remove(node)
                graph.add_initializer(node.outputs[0], values)
                graph.value_info.pop(node.outputs[0], None)


def fold_constants(graph: Graph, trained: Container[str]) -> list[Node]:
    """Fold nodes that compute constants from initializers, and then their readers; return those nodes.

    A graph output keeps its node, but other readers read an initializer. Not: weights that were trained, whose
    quantized values would be lost, and nodes that cost too much (budget.py): left to TensorRT.
    """
    folded: list[Node] = []
    budget: Optional[Budget] = None
    for node in graph.nodes:
        reads = node.reads() if node.op_type in FOLDABLE and node.is_standard and not node.captured else []
        if not reads or any(name not in graph.initializers for name in reads):
            continue
        if node.is_op("Identity"):  # another name for the same values: no copy
            values: dict[str, Optional[np.ndarray]] = {}
            graph.replace_uses(node.outputs[0], reads[0])
        elif any(name in trained for name in reads):
            continue
        else:
            budget = budget or Budget(graph.initializers.values())
            values = _computed(graph, node, budget)
            if any(array is None for array in values.values()):
                continue
        if not any(name in graph.outputs for name in node.outputs):
            graph.remove(node)
            folded.append(node)
        for name, array in values.items():
            if array is not None and name in graph.outputs:
                graph.replace_uses(name, graph.constant(f"{name}_value", array))
            elif array is not None and name not in graph.producer:
                graph.add_initializer(name, array)
                graph.value_info.pop(name, None)
        for name in dict.fromkeys(reads):
            if not graph.is_used(name):
                graph.drop_initializer(name)
    return folded


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


def _computed(graph: Graph, node: Node, budget: Budget) -> dict[str, Optional[np.ndarray]]:
    """The values of each output that is read; None if not computable, or too costly."""
    inputs = [graph.array(name) if name else None for name in node.inputs]
    wanted = [(i, name) for i, name in enumerate(node.outputs) if name and graph.consumer_count(name)]
    try:
        return {name: evaluate(node, inputs, i, graph.opset(), budget) for i, name in wanted}
    except ModelError:
        return {name: None for _, name in wanted}


def remove_dead_nodes(graph: Graph) -> None:
    """Nodes whose outputs nothing reads; one reverse sweep finds them all."""
    for node in graph.nodes_reversed:
        if not any(name and graph.is_used(name) for name in node.outputs):
            graph.remove(node)
            for name in node.outputs:
                graph.value_info.pop(name, None)


def remove_unused_initializers(graph: Graph) -> None:
    unused = [name for name in graph.initializers if not graph.is_used(name)]
    if unused:
        graph.drop_initializer(*unused)


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
            f"{list(inferred)}"
            f"{others(wrong, ' ({} more like it)')}; the declared shape is ignored.",
            tensor=first,
            hint="Export the model again: other tools may rely on the wrong shapes.",
            data={
                "declared": {n: list(d) for n, (d, _) in wrong.items()},
                "inferred": {n: list(i) for n, (_, i) in wrong.items()},
            },
        )
