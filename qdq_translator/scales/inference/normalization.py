"""Decomposed normalizations (LayerNormalization, InstanceNormalization): their inside is no place for INT8."""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.scales.inference.context import Context


def is_mean_of_normalization(node: Node, context: Context) -> bool:
    """True for the means of a decomposed normalization: of x, which is then subtracted from x, and of a square."""
    source = node.inputs[0]
    if any(reader.is_op("Sub") and source in reader.inputs for reader in context.graph.consumers(node.outputs[0])):
        return True
    producer = context.graph.producer.get(source)
    if producer is None:
        return False
    squares = producer.is_op("Mul") and len(set(producer.inputs)) == 1
    return squares or (producer.is_op("Pow") and context.graph.scalar(producer.input(1)) == 2)


def inside_normalizations(context: Context) -> set[str]:
    """Means, differences, squares, variances and their roots: all tensors between the input of a decomposed normalization
    and the product or quotient that is normalized."""
    graph = context.graph
    inside: set[str] = set()
    for node in graph.nodes:
        if not node.is_op("ReduceMean") or not is_mean_of_normalization(node, context):
            continue
        inside.add(node.outputs[0])
        producer = graph.producer.get(node.inputs[0])
        if producer is not None and producer.is_op("Pow", "Mul"):  # the mean of the squares: what they are made of, too
            inside.update((node.inputs[0], producer.inputs[0]))
        pending = [node.outputs[0]]
        while pending:
            for reader in graph.consumers(pending.pop()):
                shifted = reader.is_op("Add") and any(graph.is_constant(name) for name in reader.inputs)
                if shifted or reader.is_op("Sqrt", "Reciprocal"):
                    inside.add(reader.outputs[0])
                    pending.append(reader.outputs[0])
                elif reader.is_op("Sub"):
                    inside.add(reader.outputs[0])
    return inside
