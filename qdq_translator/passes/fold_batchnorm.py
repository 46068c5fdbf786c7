"""Rule F1: BatchNormalization goes into the Conv, ConvTranspose, Gemm or MatMul before it.

1. `Conv -> BN`            -> `Conv'`         W' = W * f over output channels,  b' = (b - mean) * f + beta
2. `ConvTranspose -> BN`   -> `ConvTranspose'`  the same; output channels are (group, axis 1)
3. `Gemm -> BN`            -> `Gemm'`         axis 0 of B with transB, else axis 1; alpha stays, beta goes into b'
4. `MatMul -> BN` (rank 2) -> `Gemm'`
with `f = gamma / sqrt(variance + epsilon)` (ONNX BatchNormalization, inference).

The folded node's output is called what the BN's output was. Not folded: where the first node's output has another
consumer, is a graph output, or carries an explicit scale of its own; where weights or statistics are not constant;
BN in training mode. Shared weights are copied.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.graph import Graph, Node
from qdq_translator.network import Network
from qdq_translator.operators import WEIGHTED, coefficients, epsilon, output_channels
from qdq_translator.weights import as_weight


def fold_batchnorm(network: Network) -> None:
    """Folds every BatchNormalization that rule F1 allows. The codes of a weight that was copied hold for the copy too."""
    graph = network.graph
    for node in graph.nodes:
        if node.is_op("BatchNormalization"):
            first = graph.producer.get(node.inputs[0])
            if first is not None and first.is_op(*WEIGHTED):
                _fold(network, first, node)


def _fold(network: Network, first: Node, norm: Node) -> None:
    graph, between = network.graph, first.outputs[0]
    if graph.only_consumer(between) is not norm or network.scales.observed(between):
        return
    if norm.get("training_mode", 0) or len([o for o in norm.outputs if o]) > 1 or not norm.get("spatial", 1):
        return
    statistics = [graph.array(name) for name in norm.inputs[1:5]]
    weight = as_weight(graph.initializers[first.input(1)]) if first.input(1) in graph.initializers else None
    if weight is None or weight.dtype.kind != "f" or any(s is None for s in statistics):
        return
    layout = output_channels(first, 1, len(weight.dims))
    gamma, beta, mean, variance = (np.asarray(s, np.float64).reshape(-1) for s in statistics)
    channels = gamma.size
    if (
        {s.size for s in (beta, mean, variance)} != {channels}
        or layout is None
        or layout.count(tuple(weight.dims)) != channels
    ):
        return
    spread = variance + epsilon(norm)
    if not (spread > 0).all():
        return
    factor = gamma / np.sqrt(spread)
    bias = None
    if first.input(2):
        bias = graph.array(first.input(2))
        if bias is None or bias.shape not in ((), (1,), (1, 1), (channels,), (1, channels)):
            return
    if first.op_type == "MatMul" and network.types.rank(first.inputs[0]) != 2:
        return
    old_bias = (
        np.zeros(channels) if bias is None else np.broadcast_to(np.asarray(bias, np.float64).reshape(-1), channels)
    )
    new_bias = (old_bias - mean) * factor + beta
    if first.op_type == "Gemm":
        new_bias = (old_bias * coefficients(first)[1] - mean) * factor + beta
        first.unset("beta")
    old = first.inputs[1]
    new = old if _only_here(graph, old) else graph.unique_name(f"{old}_{first.name or between}")

    def times(values: np.ndarray, rows: slice) -> np.ndarray:
        return layout.times(values, factor[rows] if layout.axis == 0 else factor, in_place=values.flags.writeable)

    graph.set_initializer(new, weight.changed(new, times, by_rows=layout.groups == 1, each=layout.axis == 0))
    graph.set_input(first, 1, new)
    bias_name = first.input(2)
    if not bias_name or not _only_here(graph, bias_name):
        bias_name = graph.unique_name(f"{first.name or between}.bias")
    graph.add_initializer(bias_name, new_bias.astype(weight.dtype))
    graph.set_input(first, 2, bias_name)
    if first.op_type == "MatMul":
        first.op_type = "Gemm"
    output = norm.outputs[0]
    graph.remove(norm)
    graph.value_info.pop(between, None)
    network.rename_tensor(between, output)
    if old in network.trained:
        network.trained[new] = network.trained[old]


def _only_here(graph: Graph, initializer: str) -> bool:
    return graph.consumer_count(initializer) == 1 and initializer not in graph.outputs
