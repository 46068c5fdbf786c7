"""Rule F2: constant `Pad` goes into the node behind it, only where the result is equal for every input.

1. `Pad(0) -> Conv`                      pads add up
2. `Pad(0) -> AveragePool`               with count_include_pad, or without if it pads nothing itself (then it is set)
3. `Pad(-inf) -> MaxPool`, and `Pad(0) -> MaxPool` of a tensor that cannot be negative
Not: negative or batch/channel padding, auto_pad, another reader of the padded tensor, a graph output, a padded tensor
with an explicit scale of its own that differs from its source's; pools whose padding would reach their kernel's size,
pools with ceil_mode or dilations (a window might lie in padding only), and pools that also give indices.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.passes.clamps import is_non_negative
from qdq_translator.scales.table import ScaleTable

_LOWEST = float(np.finfo(np.float32).min)


def fold_pads(graph: Graph, scales: ScaleTable) -> None:
    for node in graph.of("Pad"):
        reader = graph.only_consumer(node.outputs[0])
        pads = operators.pads(node, graph.array)
        if reader is not None and pads is not None and _allowed(graph, scales, node, reader):
            _fold(graph, node, reader, pads)


def _allowed(graph: Graph, scales: ScaleTable, pad: Node, reader: Node) -> bool:
    source, padded = pad.inputs[0], pad.outputs[0]
    if not reader.is_op("Conv", "AveragePool", "MaxPool") or reader.inputs[0] != padded:
        return False
    if reader.inputs.count(padded) > 1:
        return False
    if scales.observed(padded) and (padded not in scales or scales.value(padded) != scales.value(source)):
        return False
    window = _window(graph, reader)
    if window is None or window.automatic or window.rounds_up:
        return False
    if not reader.is_op("Conv") and (window.dilated or len(reader.outputs) > 1):
        return False
    value = operators.pad_value(pad, graph.array)
    if reader.is_op("Conv"):
        return value == 0
    if reader.is_op("AveragePool"):
        return value == 0 and (operators.counts_padding(reader) or not any(window.pads))
    return value is not None and (value <= _LOWEST or (value == 0 and is_non_negative(graph, source)))


def _window(graph: Graph, reader: Node) -> Optional[operators.Window]:
    weight = graph.initializers.get(reader.input(1))
    return operators.window(reader, None if weight is None else weight.dims)


def _fold(graph: Graph, pad: Node, reader: Node, pads: list[int]) -> None:
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    if rank < 3 or min(pads) < 0 or any(begins[:2] + ends[:2]):
        return
    window = _window(graph, reader)
    assert window is not None  # `_allowed` asked
    if len(window.pads) != 2 * (rank - 2):
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
