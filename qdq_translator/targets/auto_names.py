"""Rule S10: scales of tensors that only TensorRT's own network has (fact 4.12). They have the names that the parser of
the target's TensorRT gives them (`parser_network`).

| tensor | scale |
| --- | --- |
| constant operand (weight of a Gemm, of Add, Mul, LayerNormalization, ..., also behind Identity) | max|c| / 127 |
| operand broadcast to the rank of the other | that of the operand |
| Gemm before its bias | (amax of the output + max|bias|) / 127 |
| Softmax before its Shuffle | that of its output, else 1 / 127 |

If a name cannot be predicted with certainty none is written, and the layer is reported: an entry for the wrong tensor
would be worse than none.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.words import dotted, others
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.scales.table import ScaleTable
from qdq_translator.targets.parser_network import OwnTensor, ParsedNetwork, Version
from qdq_translator.targets.precision import INT8, LayerPlan


@dataclasses.dataclass(frozen=True)
class Automatic:
    """scales: tensor of TensorRT's network -> scale, in network order. without: node -> its parts without a predictable
    name."""

    scales: dict[str, float] = dataclasses.field(default_factory=dict)
    without: dict[str, str] = dataclasses.field(default_factory=dict)


_WORDS = {"constant": "the constant '{}'", "broadcast": "the broadcast of '{}'", "inside": "a tensor inside it"}


def automatic_scales(graph: Graph, types: TensorTypes, scales: ScaleTable, version: Version) -> Automatic:
    """`version`: one that `parser_network.supports`."""
    found = Automatic()
    known = {*graph.inputs, *graph.producer}
    amax: dict[str, Optional[float]] = {}
    for tensor in ParsedNetwork(graph, types, version).own:
        if tensor.source in graph.initializers and tensor.source not in amax:
            amax[tensor.source] = _constant_scale(graph, types, tensor.source)
        scale = _scale(tensor, graph, types, scales, amax)
        if tensor.name is None or tensor.name in known or (scale is None and tensor.kind == "inside"):
            found.without.setdefault(tensor.node.name, _WORDS[tensor.kind].format(tensor.source))
        elif scale == 0:  # a constant of zeros: its codes are 0 whatever the scale
            found.scales.setdefault(tensor.name, float(np.float32(1 / INT8_MAX)))
        elif scale is not None and is_usable(scale):
            found.scales.setdefault(tensor.name, float(np.float32(scale)))
    for name in (node.outputs[0] for node in graph.of("Identity")):  # of a constant, as `--keep_model` leaves it
        scale = _constant_scale(graph, types, name)
        if scale is not None and name not in graph.outputs:
            found.scales[name] = float(np.float32(scale or 1 / INT8_MAX))
    return found


def _scale(
    tensor: OwnTensor, graph: Graph, types: TensorTypes, scales: ScaleTable, constants: dict[str, Optional[float]]
) -> Optional[float]:
    node = tensor.node
    if tensor.source in graph.initializers:
        return constants[tensor.source]
    if tensor.source:
        return scales.value(tensor.source)
    output = scales.value(node.outputs[0])
    if node.is_op("Softmax"):
        return output or 1 / INT8_MAX
    if node.is_op("Gemm"):
        name = node.input(2)
        bias = _constant_scale(graph, types, name) if graph.is_constant(name) else scales.value(name)
        return None if output is None or bias is None else output + bias
    return None


def _constant_scale(graph: Graph, types: TensorTypes, name: str) -> Optional[float]:
    """max|c| / 127 of a float constant; None if it is empty, and for another tensor."""
    values = graph.array(name)
    if not types.is_float(name) or values is None or values.size == 0:
        return None
    return float(max(values.max(), -values.min())) / INT8_MAX


def report_without(
    plan: list[LayerPlan], automatic: Automatic, version: Version, diagnostics: Diagnostics
) -> list[LayerPlan]:
    """The plan, with a word in the reason of every INT8 layer that lacks the scale of a tensor of TensorRT's own."""
    if not automatic.without:
        return plan
    text = dotted(version[:2])
    told: dict[str, str] = {}
    result = []
    for layer in plan:
        what = automatic.without.get(layer.name) if layer.precision == INT8 else None
        if what is not None:
            told[layer.name] = what
            reason = (
                f"every input and output of the model has a scale, but {what} has none in TensorRT "
                f"{text}: its name there "
                "cannot be predicted (rule S10), so the layer may run in FP16"
            )
            layer = dataclasses.replace(layer, reason=reason)
        result.append(layer)
    if told:
        first, what = next(iter(told.items()))
        diagnostics.warning(
            "S10",
            f"TensorRT {text} makes tensors of its own whose names cannot be predicted: {what} of layer "
            f"'{first}'{others(told, ' and of {} more')}. "
            "They get no scale, so such layers may run in FP16 although INT8 is planned.",
            node=first,
            hint="Look at the missing scales in the builder's log; static shapes make more names predictable.",
            data={"layers": told},
        )
    return result
