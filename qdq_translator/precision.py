"""The precision plan (RULES.md, section 5): for every layer INT8, or the higher precision it needs and why."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from qdq_translator.graph import Graph, Node
from qdq_translator.macs import layer_macs, layer_weights
from qdq_translator.scales import ScaleTable
from qdq_translator.types import TensorTypes

INT8, FP16, NO_PRECISION = "int8", "fp16", "none"


@dataclasses.dataclass(frozen=True)
class LayerPlan:
    """One node of the stripped model.

    precision: 'int8'; 'fp16' for what runs higher; 'none' for layers without float data (shape arithmetic, integers).
    inputs/outputs: its float activations. missing: those of them without a scale. listed: stands in `fp16_nodes`.
    expected: higher precision that nobody should be surprised by (producers of graph outputs, fact sheet 5.6).
    macs: None where shapes are unknown.
    """

    name: str
    op: str
    precision: str
    reason: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    missing: tuple[str, ...] = ()
    listed: bool = False
    expected: bool = False
    macs: Optional[int] = 0
    weights: int = 0

    def as_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        for key in ("inputs", "outputs", "missing"):
            plain[key] = list(plain[key])
        return plain


_SHAPE_OPS = frozenset(("Shape", "Size", "ConstantOfShape", "NonZero", "Range"))


def float_activations(names: list[str], graph: Graph, types: TensorTypes) -> tuple[str, ...]:
    """Float tensors among `names` that are no constants, each once."""
    return tuple(dict.fromkeys(n for n in names if n and not graph.is_constant(n) and types.is_float(n)))


def make_plan(graph: Graph, types: TensorTypes, scales: ScaleTable) -> list[LayerPlan]:
    """One row a node, in graph order. Rule: INT8 needs a scale on every float input and output (fact sheet 5.5)."""
    return [_plan_layer(node, graph, types, scales) for node in graph.nodes]


def _plan_layer(node: Node, graph: Graph, types: TensorTypes, scales: ScaleTable) -> LayerPlan:
    inputs = float_activations(node.reads(), graph, types)
    outputs = float_activations(node.outputs, graph, types)
    macs, weights = layer_macs(node, types), layer_weights(node, graph)
    if node.op_type in _SHAPE_OPS or not inputs or not outputs:
        reason = "works on shapes, integers or booleans, or on constants only"
        return LayerPlan(node.name, node.op_type, NO_PRECISION, reason, inputs, outputs, macs=macs, weights=weights)
    missing_in = tuple(n for n in inputs if n not in scales)
    missing_out = tuple(n for n in outputs if n not in scales)
    missing = missing_in + missing_out
    if not missing:
        reason = "every input and output has a scale"
        return LayerPlan(node.name, node.op_type, INT8, reason, inputs, outputs, macs=macs, weights=weights)
    expected = not missing_in and all(n in graph.outputs for n in missing_out)
    if expected:
        reason = f"makes the graph output '{missing_out[0]}', which has no scale of its own and stays float (rule S2)"
    else:
        which = "input" if missing_in else "output"
        reason = f"{which} '{missing[0]}' has no scale"
        if len(missing) > 1:
            reason += f" ({len(missing) - 1} more without)"
    return LayerPlan(
        node.name,
        node.op_type,
        FP16,
        reason,
        inputs,
        outputs,
        missing,
        listed=bool(missing_in),
        expected=expected,
        macs=macs,
        weights=weights,
    )


def fp16_nodes(plan: list[LayerPlan]) -> list[str]:
    """Layers that consume a tensor without scale, in graph order, once each."""
    return [layer.name for layer in plan if layer.listed]
