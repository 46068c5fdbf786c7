"""The precision plan (docs/rules.md): for every layer INT8, or the higher precision it needs and why.

`make_plan` decides by scales, `planning.layers.settle` by the limits of the device; `planning.root_causes` finds the causes.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

from qdq_translator.core.formats.report_rows import FP16 as FP16
from qdq_translator.core.formats.report_rows import INT8 as INT8
from qdq_translator.core.formats.report_rows import NO_PRECISION as NO_PRECISION
from qdq_translator.core.formats.report_rows import NOWHERE as NOWHERE
from qdq_translator.core.formats.report_rows import ON_DLA as ON_DLA
from qdq_translator.core.formats.report_rows import ON_GPU as ON_GPU
from qdq_translator.core.formats.report_rows import LayerPlan as LayerPlan
from qdq_translator.core.words import others
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import CLAMPS, RESIZES, VIEWS
from qdq_translator.ir.types import TensorTypes
from qdq_translator.scales.table import ScaleTable
from qdq_translator.targets.macs import layer_macs, layer_weights

KEPT = "kept in FP16 (--keep_fp16)"


_SHAPE_OPS = frozenset(("Shape", "Size", "ConstantOfShape", "NonZero", "Range"))
_TAIL_OPS = frozenset(
    (
        *(*VIEWS, *RESIZES, *CLAMPS, "Transpose", "Identity", "Cast", "Concat", "Slice", "Split"),
        *("Sigmoid", "Tanh", "Softmax", "LogSoftmax", "HardSigmoid"),
    )
)
"""Between the last layer that multiplies and a graph output these do not count as a layer of their own (fact 5.6)."""


def float_activations(names: list[str], graph: Graph, types: TensorTypes) -> tuple[str, ...]:
    """Float tensors among `names` that are no constants, each once."""
    return tuple(dict.fromkeys(n for n in names if n and not graph.is_constant(n) and types.is_float(n)))


def float_ends(node: Node, graph: Graph, types: TensorTypes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Float activations that a layer reads and makes. Both are empty if it has no precision (shape arithmetic,
    integers, constants only)."""
    inputs = float_activations(node.reads(), graph, types)
    outputs = float_activations(node.outputs, graph, types)
    return (inputs, outputs) if _has_precision(node, inputs, outputs) else ((), ())


def _has_precision(node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bool:
    return bool(inputs and outputs and node.op_type not in _SHAPE_OPS)


def make_plan(
    graph: Graph,
    types: TensorTypes,
    scales: ScaleTable,
    kept: frozenset[str] = frozenset(),
    floats: Optional[Mapping[str, str]] = None,
) -> list[LayerPlan]:
    """One row a node, in graph order, for a GPU as target (`planning.layers.settle` has the DLA's limits). Rule: INT8 needs a scale on every float input and output (fact 5.5), and that the
    user did not keep the layer in FP16 (`kept`). floats: tensors that are not meant to have a scale, and why."""
    real = {name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)}
    tails = _tails(graph, real, scales)
    rows = [_plan_layer(node, graph, types, real, scales, tails, floats or {}) for node in graph.nodes]
    for index, row in enumerate(rows):
        if row.name in kept and row.precision != NO_PRECISION:
            rows[index] = dataclasses.replace(row, precision=FP16, reason=KEPT, listed=True, by_design=True)
    return rows


def _tails(graph: Graph, real: set[str], scales: ScaleTable) -> dict[str, str]:
    """Tensors without scale that lead only to graph outputs -> the first such output.

    Only through data movement, a bias and final activations: TensorRT gives the last multiplying layer before them a
    float output regardless of the scales (fact 5.6), and a graph output gets no scale by inference (rule S2).
    """
    tails: dict[str, str] = {}
    for node in graph.nodes_reversed:
        for name in [name for name in node.outputs if name in real and name not in scales]:
            ends = [name] if name in graph.outputs else []
            for reader in graph.consumers(name):
                is_bias = reader.is_op("Add") and any(map(graph.is_constant, reader.inputs))
                if not is_bias and not reader.is_op(*_TAIL_OPS):
                    break
                following = [tails.get(n, "") for n in reader.outputs if n in real]
                if not all(following):
                    break
                ends += following
            else:
                if ends:
                    tails[name] = ends[0]
    return tails


def _plan_layer(
    node: Node,
    graph: Graph,
    types: TensorTypes,
    real: set[str],
    scales: ScaleTable,
    tails: Mapping[str, str],
    floats: Mapping[str, str],
) -> LayerPlan:
    inputs, outputs = (tuple(dict.fromkeys(filter(real.__contains__, n))) for n in (node.reads(), node.outputs))
    macs, weights = layer_macs(node, types), layer_weights(node, graph)
    layer = LayerPlan(node.name, node.op_type, inputs=inputs, outputs=outputs, macs=macs, weights=weights)
    if not _has_precision(node, inputs, outputs):
        reason = "works on shapes, integers or booleans, or on constants only"
        return dataclasses.replace(layer, reason=reason, device=ON_GPU if inputs else NOWHERE)
    missing_in = tuple(n for n in inputs if n not in scales)
    missing = missing_in + tuple(n for n in outputs if n not in scales)
    if not missing:
        return dataclasses.replace(layer, precision=INT8, reason="every input and output has a scale")
    by_design = all(n in tails or n in floats for n in missing)
    wide = next((n for n in missing if n in floats), "") if by_design else ""
    if wide:
        reason = f"'{wide}' stays in floating point: {floats[wide]}"
    elif by_design:
        end = tails[missing[-1]]
        verb = "makes" if missing[-1] == end else "only leads to"
        reason = f"{verb} the graph output '{end}', which has no scale of its own and stays float (rule S2)"
    else:
        what = "input" if missing_in else "output"
        reason = f"{what} '{missing[0]}' has no scale{others(missing, ' ({} more without)')}"
    return dataclasses.replace(
        layer, precision=FP16, reason=reason, missing=missing, listed=bool(missing_in), by_design=by_design
    )


def stay_higher(plan: list[LayerPlan], reasons: Mapping[str, str], cure: str) -> list[LayerPlan]:
    """The plan with the INT8 layers in `reasons` (layer -> reason) in FP16 and listed as such."""
    if not reasons:
        return plan
    return [
        dataclasses.replace(layer, precision=FP16, listed=True, reason=reasons[layer.name], cure=cure)
        if layer.precision == INT8 and layer.name in reasons
        else layer
        for layer in plan
    ]


def fp16_nodes(plan: list[LayerPlan]) -> list[str]:
    """Layers that consume a tensor without scale, in graph order, once each."""
    return [layer.name for layer in plan if layer.listed]
