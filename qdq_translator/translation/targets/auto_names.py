"""Rule S10: scales of tensors that only TensorRT's own network has (fact 4.12), under the names that the parser of the
target's TensorRT gives them (`parser_network`).

| tensor | scale |
| --- | --- |
| constant operand (weight of a Gemm, of Add, Mul, LayerNormalization, ..., also behind Identity) | max|c| / 127 |
| operand broadcast to the rank of the other operand | that of the operand |
| Gemm before its bias | (amax of the output + max|bias|) / 127 |
| Softmax before its Shuffle | that of its output, else 1 / 127 |

If a name cannot be predicted with certainty, no entry is written and the layer is reported: an entry for the wrong
tensor is worse than none.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.words import dotted, others
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import ScaleTable
from qdq_translator.translation.targets.parser_network import OwnTensor, ParsedNetwork, Version
from qdq_translator.translation.targets.precision import INT8, LayerPlan


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Scales of TensorRT's own tensors. scales: tensor of TensorRT's network -> scale, in network order. without: node
    -> description of its tensor without a predictable name."""

    scales: dict[str, float] = dataclasses.field(default_factory=dict)
    without: dict[str, str] = dataclasses.field(default_factory=dict)


_WORDS = {"constant": "the constant '{}'", "broadcast": "the broadcast of '{}'", "inside": "a tensor inside it"}


def automatic_scales(graph: Graph, types: TensorTypes, scales: ScaleTable, version: Version) -> Automatic:
    """`version`: one that `parser_network.supports`."""
    own = ParsedNetwork(graph, types, version).own
    # an Identity of a constant, as `--keep_model` leaves it, has the constant's scale too
    copies = [node.outputs[0] for node in graph.of("Identity") if node.outputs[0] not in graph.outputs]
    stored = dict.fromkeys(tensor.source for tensor in own if tensor.source in graph.initializers)
    constants = {name: _constant_scale(graph, types, name) for name in (*stored, *copies)}
    found: dict[str, Optional[float]] = {}
    without: dict[str, str] = {}
    for tensor in own:
        scale = _scale(tensor, graph, types, scales, constants)
        missing = scale is None and tensor.kind == "inside"
        if tensor.name is None or tensor.name in graph.inputs or tensor.name in graph.producer or missing:
            without.setdefault(tensor.node.name, _WORDS[tensor.kind].format(tensor.source))
        else:
            found.setdefault(tensor.name, scale)
    found.update((name, constants[name]) for name in copies)
    return Automatic(_single(found), without)


def _single(scales: Mapping[str, Optional[float]]) -> dict[str, float]:
    """The known scales, rounded to float32. A constant of zeros gets 1 / 127: its quantized values are 0 with any
    scale."""
    known = ((name, float(np.float32(scale or 1 / INT8_MAX))) for name, scale in scales.items() if scale is not None)
    return {name: scale for name, scale in known if is_usable(scale)}


def _scale(
    tensor: OwnTensor, graph: Graph, types: TensorTypes, scales: ScaleTable, constants: dict[str, Optional[float]]
) -> Optional[float]:
    node = tensor.node
    if tensor.source:
        return constants[tensor.source] if tensor.source in constants else scales.value(tensor.source)
    output = scales.value(node.outputs[0])
    if node.is_op("Softmax"):
        return output or 1 / INT8_MAX
    if node.is_op("Gemm"):
        name = node.input(2)
        bias = _constant_scale(graph, types, name) if graph.is_constant(name) else scales.value(name)
        return None if output is None or bias is None else output + bias
    return None


def _constant_scale(graph: Graph, types: TensorTypes, name: str) -> Optional[float]:
    """max|c| / 127 of a float constant; None if it is empty or the tensor is not a float constant."""
    values = graph.array(name)
    if not types.is_float(name) or values is None or values.size == 0:
        return None
    return float(max(values.max(), -values.min())) / INT8_MAX


def report_without(
    plan: list[LayerPlan], automatic: Automatic, version: Version, diagnostics: Diagnostics
) -> list[LayerPlan]:
    """The plan; the reason of an INT8 layer names the tensor of TensorRT's own network that lacks a scale."""
    if not automatic.without:
        return plan
    text = dotted(version[:2])
    told = {
        row.name: automatic.without[row.name] for row in plan if row.precision == INT8 and row.name in automatic.without
    }
    why = {
        name: f"every input and output of the model has a scale, but {what} has none in TensorRT {text}: its name "
        "there cannot be predicted (rule S10), so the layer may run in FP16"
        for name, what in told.items()
    }
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
    return [dataclasses.replace(row, reason=why[row.name]) if row.name in why else row for row in plan]
