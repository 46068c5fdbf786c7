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

from typing import NamedTuple, Sequence

import numpy as np
from onnx import TensorProto

from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import WEIGHTED, coefficients, epsilon, output_channels
from qdq_translator.ir.weights import Weight, as_weight
from qdq_translator.scales.network import Network


def fold_batchnorm(network: Network) -> None:
    """Folds every BatchNormalization that rule F1 allows. The codes of a weight that was copied hold for the copy too."""
    graph = network.graph
    norms = graph.of("BatchNormalization")
    read = _read(graph, norms)
    for norm in norms:
        first = graph.producer.get(norm.inputs[0])
        if norm in read and first is not None and first.is_op(*WEIGHTED):
            _fold(network, first, norm, read[norm])


class _Affine(NamedTuple):
    """What a BatchNormalization does: `(x - mean) * factor + beta`, float64, a value for each channel. of_zero: to x = 0."""

    factor: np.ndarray
    mean: np.ndarray
    beta: np.ndarray
    of_zero: np.ndarray


def _read(graph: Graph, norms: Sequence[Node]) -> dict[Node, _Affine]:
    """Those whose statistics are constant and can be used. All channels of the usual ones, float32 values in the file, are
    computed together: NumPy takes longer for a call than for the channels of one layer."""
    usual: dict[Node, list[bytes]] = {}
    found: dict[Node, _Affine] = {}
    for norm in norms:
        tensors = [graph.initializers.get(name) for name in norm.inputs[1:5]]
        stored = [t.stored() for t in tensors if isinstance(t, Weight) and t.data_type == TensorProto.FLOAT]
        if len(stored) == 4 and stored[0] and len({len(raw) for raw in stored}) == 1:
            usual[norm] = stored
        else:
            arrays = [graph.array(name) for name in norm.inputs[1:5]]
            statistics = [np.asarray(array, np.float64).reshape(-1) for array in arrays if array is not None]
            if len(statistics) == 4 and len({values.size for values in statistics}) == 1:
                _add(found, [norm], [statistics[0].size], statistics)
    joined = [np.frombuffer(b"".join(raws), "<f4").astype(np.float64) for raws in zip(*usual.values())]
    if joined:
        _add(found, [*usual], [len(stored[0]) // 4 for stored in usual.values()], joined)
    return found


def _add(
    found: dict[Node, _Affine], norms: Sequence[Node], channels: Sequence[int], statistics: Sequence[np.ndarray]
) -> None:
    """channels: how many values of each statistic (gamma, beta, mean, variance) are a node's."""
    gamma, beta, mean, variance = statistics
    spread = variance + np.repeat([epsilon(norm) for norm in norms], channels)
    usable = spread > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = gamma / np.sqrt(spread)
    of_zero = (0 - mean) * factor + beta
    all_usable, first = bool(usable.all()), 0
    for norm, count in zip(norms, channels):
        part = slice(first, first + count)
        first += count
        if all_usable or usable[part].all():
            found[norm] = _Affine(factor[part], mean[part], beta[part], of_zero[part])


def _fold(network: Network, first: Node, norm: Node, does: _Affine) -> None:
    graph, between = network.graph, first.outputs[0]
    if graph.only_consumer(between) is not norm or network.scales.observed(between):
        return
    if norm.get("training_mode", 0) or len([o for o in norm.outputs if o]) > 1 or not norm.get("spatial", 1):
        return
    weight = as_weight(graph.initializers[first.input(1)]) if first.input(1) in graph.initializers else None
    if weight is None or weight.dtype.kind != "f":
        return
    layout = output_channels(first, 1, len(weight.dims))
    factor, channels = does.factor, does.factor.size
    if layout is None or layout.count(tuple(weight.dims)) != channels:
        return
    bias = None
    if first.input(2):
        bias = graph.array(first.input(2))
        if bias is None or bias.shape not in ((), (1,), (1, 1), (channels,), (1, channels)):
            return
    if first.op_type == "MatMul" and network.types.rank(first.inputs[0]) != 2:
        return
    if first.op_type == "Gemm" or bias is not None:
        old_bias = np.broadcast_to(np.asarray(0 if bias is None else bias, np.float64).reshape(-1), channels)
        if first.op_type == "Gemm":
            old_bias = old_bias * coefficients(first)[1]
            first.unset("beta")
        new_bias = (old_bias - does.mean) * factor + does.beta
    else:
        new_bias = does.of_zero
    old = first.inputs[1]
    new = old if _only_here(graph, old) else graph.unique_name(f"{old}_{first.name or between}")

    def times(values: np.ndarray, rows: slice) -> np.ndarray:
        return layout.times(values, factor[rows] if layout.axis == 0 else factor, in_place=values.flags.writeable)

    changed = weight.changed(new, times, by_rows=layout.groups == 1, each=layout.axis == 0, gone=new == old)
    graph.set_initializer(new, changed)
    if new != old:
        graph.set_input(first, 1, new)
    bias_name = first.input(2)
    if not bias_name or not _only_here(graph, bias_name):
        bias_name = graph.unique_name(f"{first.name or between}.bias")
    graph.add_initializer(bias_name, new_bias.astype(weight.dtype))
    graph.set_input(first, 2, bias_name)
    if first.op_type == "MatMul":
        graph.set_operator(first, "Gemm")
    output = norm.outputs[0]
    graph.remove(norm)
    graph.value_info.pop(between, None)
    network.rename_tensor(between, output)
    if old in network.trained:
        network.trained[new] = network.trained[old]


def _only_here(graph: Graph, initializer: str) -> bool:
    return graph.consumer_count(initializer) == 1 and initializer not in graph.outputs
