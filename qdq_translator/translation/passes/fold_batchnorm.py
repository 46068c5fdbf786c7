"""Rule F1: fold BatchNormalization into the Conv, ConvTranspose, Gemm or MatMul before it.

1. `Conv -> BN`            -> `Conv'`         W' = W * f over output channels,  b' = (b - mean) * f + beta
2. `ConvTranspose -> BN`   -> `ConvTranspose'`  the same; output channels are (group, axis 1)
3. `Gemm -> BN`            -> `Gemm'`         axis 0 of B with transB, else axis 1; alpha unchanged, beta folded into b'
4. `MatMul -> BN` (rank 2) -> `Gemm'`
with `f = gamma / sqrt(variance + epsilon)` (ONNX BatchNormalization, inference).

The folded node's output keeps the name of the BN's output. Not folded: if the first node's output has another consumer,
is a graph output, or has a separate explicit scale; if weights or statistics are not constant; BN in training mode.
Shared weights are copied.

Rule F2: a constant `Pad` is folded into the node behind it, only if the result is equal for every input.

1. `Pad(0) -> Conv`                      pads add up
2. `Pad(0) -> AveragePool`               with count_include_pad, or without if it pads nothing itself (then it is set)
3. `Pad(-inf) -> MaxPool`, and `Pad(0) -> MaxPool` of a tensor that cannot be negative
Not: negative or batch/channel padding, auto_pad, another reader of the padded tensor, a graph output, a padded tensor
with an explicit scale of its own that differs from its source's; pools whose padding would reach their kernel's size,
pools with ceil_mode or dilations (a window might be in padding only), and pools that also give indices.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import is_non_negative
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import WEIGHTED, coefficients, epsilon, output_channels
from qdq_translator.translation.ir.weights import Weight, as_weight
from qdq_translator.translation.passes.editor import Stays
from qdq_translator.translation.scales.network import Network, report_kept


def fold_batchnorm(network: Network) -> None:
    """Fold every BatchNormalization that rule F1 allows. A copied weight keeps its trained quantized values."""
    kept = {}
    for norm in network.graph.of("BatchNormalization"):
        first = network.graph.producer.get(norm.inputs[0])
        if first is not None and first.is_op(*WEIGHTED):
            try:
                _fold(network, first, norm)
            except Stays as why:
                kept[norm.name] = str(why)
    report_kept(network.diagnostics, "F1", kept)


def _read(graph: Graph, norm: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factor, mean and beta of BatchNormalization as `(x - mean) * factor + beta`, float64, one value per channel."""
    if norm.get("training_mode", 0) or len([o for o in norm.outputs if o]) > 1 or not norm.get("spatial", 1):
        raise Stays("it is in training mode, or does not normalize by channel")
    arrays = [graph.array(name) for name in norm.inputs[1:5]]
    statistics = [np.asarray(array, np.float64).reshape(-1) for array in arrays if array is not None]
    if len(statistics) < 4 or len({values.size for values in statistics}) > 1:
        raise Stays("its statistics are not constant, or not one value per channel")
    gamma, beta, mean, variance = statistics
    spread = variance + epsilon(norm)
    if not (spread > 0).all():
        raise Stays("its variance is not above 0")
    return gamma / np.sqrt(spread), mean, beta


def _fold(network: Network, first: Node, norm: Node) -> None:
    """Raises Stays."""
    graph, between, op_type = network.graph, first.outputs[0], first.op_type
    if graph.only_consumer(between) is not norm:
        raise Stays(f"'{between}' is a graph output or has another reader")
    if between in network.scales.observed:
        raise Stays(f"'{between}' has a scale of its own")
    factor, mean, beta = _read(graph, norm)
    weight = as_weight(graph.initializers[first.input(1)]) if first.input(1) in graph.initializers else None
    if weight is None or weight.dtype.kind != "f":
        raise Stays(f"the weight of {op_type} '{first.name}' is no constant of a float type that NumPy has")
    layout, channels = output_channels(first, 1, len(weight.dims)), factor.size
    if layout is None or layout.count(tuple(weight.dims)) != channels:
        raise Stays(f"{op_type} '{first.name}' does not have {channels} output channels")
    bias = _bias(graph, first, channels)
    if op_type == "MatMul" and network.types.rank(first.inputs[0]) != 2:  # a Gemm accepts matrices only
        raise Stays(f"MatMul '{first.name}' does not multiply two matrices")
    _replace_weight(network, first, weight.remade("", lambda values: layout.times(values, factor), weight.dims))
    _replace_bias(graph, first, ((bias - mean) * factor + beta).astype(weight.dtype))
    graph.remove(norm)
    graph.value_info.pop(between, None)
    network.rename_tensor(between, norm.outputs[0])


def _bias(graph: Graph, first: Node, channels: int) -> np.ndarray:
    """The bias (of a Gemm times its beta), float64, one value per channel."""
    bias = graph.array(first.input(2)) if first.input(2) else np.zeros(())
    if bias is None or bias.shape not in ((), (1,), (1, 1), (channels,), (1, channels)):
        raise Stays(f"the bias of {first.op_type} '{first.name}' is not constant, or not one value per channel")
    values = np.broadcast_to(bias.astype(np.float64).reshape(-1), channels)
    return values * coefficients(first)[1] if first.op_type == "Gemm" else values


def _replace_weight(network: Network, node: Node, weight: Weight) -> None:
    """Replace the weight of `node`; other readers of the old weight keep it."""
    graph, old = network.graph, node.inputs[1]
    weight.name = old if graph.only_consumer(old) else graph.unique_name(f"{old}_{node.name or node.outputs[0]}")
    graph.set_initializer(weight.name, weight)
    if weight.name != old:
        graph.set_input(node, 1, weight.name)
    if old in network.trained:
        network.trained[weight.name] = network.trained[old]


def _replace_bias(graph: Graph, node: Node, values: np.ndarray) -> None:
    name = node.input(2)
    if not name or not graph.only_consumer(name):
        name = graph.unique_name(f"{node.name or node.outputs[0]}.bias")
    graph.add_initializer(name, values)
    graph.set_input(node, 2, name)
    if node.op_type == "MatMul":  # a MatMul has no bias
        graph.set_operator(node, "Gemm")
    node.unset("beta")


# ---------------- Pad


_LOWEST = float(np.finfo(np.float32).min)


def fold_pads(network: Network) -> None:
    """Fold every Pad that rule F2 allows."""
    kept = {}
    for pad in network.graph.of("Pad"):
        readers = network.graph.consumers(pad.outputs[0])
        for reader in [reader for reader in readers if reader.is_op("Conv", "AveragePool", "MaxPool")][:1]:
            try:
                _fold_pad(network, pad, reader)
            except Stays as why:
                kept[pad.name] = str(why)
    report_kept(network.diagnostics, "F2", kept)


def _fold_pad(network: Network, pad: Node, reader: Node) -> None:
    """Raises Stays."""
    graph, source = network.graph, pad.inputs[0]
    if graph.only_consumer(pad.outputs[0]) is not reader:
        raise Stays(f"'{pad.outputs[0]}' is a graph output or has another reader")
    weight = graph.initializers.get(reader.input(1))
    window = operators.window(reader, None if weight is None else weight.dims)
    pads = operators.pads(pad, graph.array)
    if operators.mode(pad) != "constant":
        raise Stays(f"it pads by mode {operators.mode(pad)}")
    if window is None or pads is None:
        raise Stays(f"its pads or the window of {reader.op_type} '{reader.name}' are computed, or it has axes")
    _check_values(network, pad, reader, window)
    total = _sum(window, pads)
    if not reader.is_op("Conv") and any(p >= k for p, k in zip(total, window.kernel * 2)):
        raise Stays(f"{reader.op_type} '{reader.name}' would be padded by its whole kernel")
    if reader.is_op("AveragePool") and any(total):
        reader.set("count_include_pad", 1)
    reader.set("pads", total)
    graph.set_inputs(reader, [source if name == pad.outputs[0] else name for name in reader.inputs])
    graph.remove(pad)
    graph.value_info.pop(pad.outputs[0], None)


def _check_values(network: Network, pad: Node, reader: Node, window: operators.Window) -> None:
    """Raises Stays if the padding of `reader` has other values, or another scale, than that of `pad`."""
    graph, scales = network.graph, network.scales
    source, padded, which = pad.inputs[0], pad.outputs[0], f"{reader.op_type} '{reader.name}'"
    if reader.inputs[0] != padded or padded in reader.inputs[1:]:
        raise Stays(f"{which} reads it as a weight")
    if padded in scales.observed and (padded not in scales or scales.value(padded) != scales.value(source)):
        raise Stays(f"'{padded}' and '{source}' have different scales")
    if window.automatic or window.rounds_up:
        raise Stays(f"{which} has auto_pad or ceil_mode")
    if not reader.is_op("Conv") and (window.dilated or len(reader.outputs) > 1):  # windows of padding only; indices
        raise Stays(f"{which} has dilations or gives indices")
    if not _pads_alike(graph, pad, reader, window):
        raise Stays(f"{which} pads with other values")


def _pads_alike(graph: Graph, pad: Node, reader: Node, window: operators.Window) -> bool:
    """Whether `reader` treats its own padding like the values of `pad`."""
    value = operators.pad_value(pad, graph.array)
    if reader.is_op("MaxPool"):  # it ignores its padding, as if it were minus infinity
        return value is not None and (value <= _LOWEST or (value == 0 and is_non_negative(graph, pad.inputs[0])))
    return value == 0 and (reader.is_op("Conv") or operators.counts_padding(reader) or not any(window.pads))


def _sum(window: operators.Window, pads: list[int]) -> list[int]:
    """The sum of both paddings of the spatial axes."""
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    if rank < 3 or min(pads) < 0 or any(begins[:2] + ends[:2]) or len(window.pads) != 2 * (rank - 2):
        raise Stays("it crops, or pads the batch or the channels")
    total = [a + b for a, b in zip(window.pads, begins[2:] + ends[2:])]
    if max(total) >= 2**31:
        raise Stays("both pads together are beyond TensorRT's dimensions, which are in INT32")
    return total
