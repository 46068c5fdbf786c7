"""Rule W1 for MatMul: TensorRT uses per-channel weight scales only if both operands are matrices, otherwise one scale
for the whole weight (fact 5.2), which reproduces few of the trained quantized values.

1. `MatMul(x [..., K], constant [K, N])` -> `Reshape [-1, K]`, `MatMul`, `Reshape [..., N]`, the same products and sums
2. with an `Add` of one constant per column after it: the Add stays between MatMul and the second Reshape

Nodes that read the same tensor share the first Reshape. The result keeps its name, and in case 2 the MatMul's output
too; scales pass through the Reshapes as through any (rule S3). Not: weights that were trained with one scale; inputs
with more than one unknown size.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.scales.network import Network

RULE = "W1"


def matmul_as_matrices(network: Network) -> None:
    graph, flat, done = network.graph, {}, []  # type: Graph, dict[str, str], list[Node]
    for node in graph.nodes:
        if not node.is_op("MatMul") or not trained_by_column(network, node.input(1)):
            continue
        sizes = _sizes(network.types.shape(node.inputs[0]))
        if sizes is not None:
            _rewrite(network, node, sizes, flat)
            done.append(node)
    if done:
        network.diagnostics.info(
            RULE,
            f"{len(done)} MatMul work on matrices between two Reshapes, because TensorRT has a scale for each column "
            "of a weight only there.",
            node=done[0].name,
            data={"nodes": [node.name for node in done]},
        )


def trained_by_column(network: Network, name: str) -> bool:
    weight = network.trained.get(name)
    return weight is not None and weight.per_channel and len(network.graph.initializers[name].dims) == 2


def _sizes(shape: Optional[tuple[Dim, ...]]) -> Optional[list[int]]:
    """Sizes of the result without its columns: -1 for the one unknown size; None if the form does not apply."""
    if shape is None or len(shape) < 3 or 0 in shape:
        return None
    sizes = [size if isinstance(size, int) else -1 for size in shape[:-1]]
    return sizes if sizes.count(-1) <= 1 else None


def _rewrite(network: Network, node: Node, sizes: list[int], flat: dict[str, str]) -> None:
    graph = network.graph
    source = node.inputs[0]
    rows, columns = graph.initializers[node.inputs[1]].dims
    if source not in flat:
        flat[source] = graph.unique_name(f"{source}_2d")
        first = _reshape(graph, source, flat[source], [-1, rows])
        graph.insert_after(first, graph.producer.get(source))
    last = _bias(graph, node, columns) or node
    graph.set_input(node, 0, flat[source])
    graph.value_info.pop(node.outputs[0], None)
    target = last.outputs[0]
    inside = graph.unique_name(f"{target}_2d")
    readers = graph.consumers(target)
    graph.rename_output(last, target, inside)
    graph.insert_after(_reshape(graph, inside, target, [*sizes, columns]), last)
    for reader in readers:
        graph.replace_use(reader, inside, target)
    if target in graph.outputs and target not in network.scales:
        network.withhold(inside)  # rule S2: it represents the graph output


def _reshape(graph: Graph, source: str, target: str, sizes: list[int]) -> Node:
    shape = graph.constant(f"{target}_shape", np.array(sizes, np.int64))
    return Node("Reshape", [source, shape], [target], graph.node_name(f"{target}_reshape"))


def _bias(graph: Graph, node: Node, columns: int) -> Optional[Node]:
    """The Add of one constant per column that is the MatMul's only reader, with the constant as one row; else None."""
    add = graph.only_consumer(node.outputs[0])
    if add is None or not add.is_op("Add") or len(set(add.inputs)) < 2:
        return None
    index = 1 - add.inputs.index(node.outputs[0])
    name = add.inputs[index]
    dims = list(graph.initializers[name].dims) if name in graph.initializers else [0]
    if any(size != 1 for size in dims[:-1]) or (dims and dims[-1] not in (1, columns)):
        return None
    if len(dims) > 2:
        values = graph.array(name)
        assert values is not None
        graph.set_input(add, index, graph.constant(f"{name}_row", values.reshape(1, -1)))
    return add
