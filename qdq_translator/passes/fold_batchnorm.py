"""Rule F1: fold BatchNormalization into the Conv, ConvTranspose, Gemm or MatMul before it.

1. `Conv -> BN`            -> `Conv'`         W' = W * f over output channels,  b' = (b - mean) * f + beta
2. `ConvTranspose -> BN`   -> `ConvTranspose'`  the same; output channels are (group, axis 1)
3. `Gemm -> BN`            -> `Gemm'`         axis 0 of B with transB, else axis 1; alpha unchanged, beta folded into b'
4. `MatMul -> BN` (rank 2) -> `Gemm'`
with `f = gamma / sqrt(variance + epsilon)` (ONNX BatchNormalization, inference).

The folded node's output keeps the name of the BN's output. Not folded: if the first node's output has another consumer,
is a graph output, or has a separate explicit scale; if weights or statistics are not constant; BN in training mode.
Shared weights are copied.
"""

from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import WEIGHTED, coefficients, epsilon, is_non_negative, output_channels
from qdq_translator.ir.weights import as_weight
from qdq_translator.scales.network import Network
from qdq_translator.scales.table import ScaleTable


def fold_batchnorm(network: Network) -> None:
    """Folds every BatchNormalization that rule F1 allows. The codes of a copied weight hold for the copy too."""
    graph = network.graph
    for norm in graph.of("BatchNormalization"):
        first = graph.producer.get(norm.inputs[0])
        does = _read(graph, norm) if first is not None and first.is_op(*WEIGHTED) else None
        if does is not None and first is not None:
            _fold(network, first, norm, does)


_Affine = Tuple[np.ndarray, np.ndarray, np.ndarray]
"""Factor, mean and beta of BatchNormalization as `(x - mean) * factor + beta`, float64, one value per channel."""


def _read(graph: Graph, norm: Node) -> Optional[_Affine]:
    """None if the statistics are not constant or cannot be used."""
    arrays = [graph.array(name) for name in norm.inputs[1:5]]
    statistics = [np.asarray(array, np.float64).reshape(-1) for array in arrays if array is not None]
    if len(statistics) < 4 or len({values.size for values in statistics}) > 1:
        return None
    gamma, beta, mean, variance = statistics
    spread = variance + epsilon(norm)
    if not (spread > 0).all():
        return None
    return gamma / np.sqrt(spread), mean, beta


def _fold(network: Network, first: Node, norm: Node, does: _Affine) -> None:
    graph, between = network.graph, first.outputs[0]
    if graph.only_consumer(between) is not norm or between in network.scales.observed:
        return
    if norm.get("training_mode", 0) or len([o for o in norm.outputs if o]) > 1 or not norm.get("spatial", 1):
        return
    weight = as_weight(graph.initializers[first.input(1)]) if first.input(1) in graph.initializers else None
    if weight is None or weight.dtype.kind != "f":
        return
    layout = output_channels(first, 1, len(weight.dims))
    (factor, mean, beta), channels = does, does[0].size
    if layout is None or layout.count(tuple(weight.dims)) != channels:
        return
    bias = None
    if first.input(2):
        bias = graph.array(first.input(2))
        if bias is None or bias.shape not in ((), (1,), (1, 1), (channels,), (1, channels)):
            return
    if first.op_type == "MatMul" and network.types.rank(first.inputs[0]) != 2:
        return
    old_bias = np.broadcast_to(np.asarray(0 if bias is None else bias, np.float64).reshape(-1), channels)
    if first.op_type == "Gemm":
        old_bias = old_bias * coefficients(first)[1]
        first.unset("beta")
    new_bias = (old_bias - mean) * factor + beta
    old = first.inputs[1]
    new = old if graph.only_consumer(old) else graph.unique_name(f"{old}_{first.name or between}")
    graph.set_initializer(new, weight.remade(new, lambda values: layout.times(values, factor), weight.dims))
    if new != old:
        graph.set_input(first, 1, new)
    bias_name = first.input(2)
    if not bias_name or not graph.only_consumer(bias_name):
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


# ---------------- Pad

"""Rule F2: constant `Pad` goes into the node behind it, only where the result is equal for every input.

1. `Pad(0) -> Conv`                      pads add up
2. `Pad(0) -> AveragePool`               with count_include_pad, or without if it pads nothing itself (then it is set)
3. `Pad(-inf) -> MaxPool`, and `Pad(0) -> MaxPool` of a tensor that cannot be negative
Not: negative or batch/channel padding, auto_pad, another reader of the padded tensor, a graph output, a padded tensor
with an explicit scale of its own that differs from its source's; pools whose padding would reach their kernel's size,
pools with ceil_mode or dilations (a window might lie in padding only), and pools that also give indices.
"""


_LOWEST = float(np.finfo(np.float32).min)


def fold_pads(graph: Graph, scales: ScaleTable) -> None:
    for node in graph.of("Pad"):
        reader = graph.only_consumer(node.outputs[0])
        if reader is None or not reader.is_op("Conv", "AveragePool", "MaxPool"):
            continue
        weight = graph.initializers.get(reader.input(1))
        window = operators.window(reader, None if weight is None else weight.dims)
        if window is not None and _allowed(graph, scales, node, reader, window):
            _fold_pad(graph, node, reader, window)


def _allowed(graph: Graph, scales: ScaleTable, pad: Node, reader: Node, window: operators.Window) -> bool:
    source, padded = pad.inputs[0], pad.outputs[0]
    if reader.inputs[0] != padded or padded in reader.inputs[1:]:
        return False
    if padded in scales.observed and (padded not in scales or scales.value(padded) != scales.value(source)):
        return False
    if window.automatic or window.rounds_up:
        return False
    if not reader.is_op("Conv") and (window.dilated or len(reader.outputs) > 1):
        return False
    value = operators.pad_value(pad, graph.array)
    if not reader.is_op("MaxPool"):
        return value == 0 and (reader.is_op("Conv") or operators.counts_padding(reader) or not any(window.pads))
    return value is not None and (value <= _LOWEST or (value == 0 and is_non_negative(graph, source)))


def _fold_pad(graph: Graph, pad: Node, reader: Node, window: operators.Window) -> None:
    pads = operators.pads(pad, graph.array) or []
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    if rank < 3 or min(pads) < 0 or any(begins[:2] + ends[:2]) or len(window.pads) != 2 * (rank - 2):
        return
    total = [a + b for a, b in zip(window.pads, begins[2:] + ends[2:])]
    if max(total) >= 2**31:  # what TensorRT's dimensions hold
        return
    if not reader.is_op("Conv"):
        if any(p >= k for p, k in zip(total, window.kernel * 2)):
            return
        if reader.is_op("AveragePool") and any(total):
            reader.set("count_include_pad", 1)
    reader.set("pads", total)
    source = pad.inputs[0]
    graph.set_inputs(reader, [source if name == pad.outputs[0] else name for name in reader.inputs])
    graph.remove(pad)
    graph.value_info.pop(pad.outputs[0], None)
