"""Rule S6, with `--infer_average_pool_scales`: AveragePool, GlobalAveragePool and ReduceMean over exactly the spatial
axes of a 4-D or 5-D tensor as pass-through. Never the ReduceMean of a decomposed LayerNormalization.

Backward, the range of a mean is only a lower bound of what is averaged: NVIDIA's formulas cost a trained network with
squeeze-and-excitation 3 points of Top-1 (`e2e_workflow/inference_flags`). `--inference reference` alone gives it.
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.scales.inference.context import LOWER_BOUND, Context
from qdq_translator.scales.inference.normalization import is_mean_of_normalization

OPS = operators.SPATIAL_MEANS


def reduced_axes(node: Node, context: Context) -> Optional[list[int]]:
    """Axes of a Reduce operator, non-negative and sorted; None where they or the rank are not known."""
    rank = context.types.rank(node.inputs[0])
    axes = operators.non_negative(operators.axes(node, context.graph.array), rank)
    return None if axes is None or rank is None else sorted(axes)


def _applies(node: Node, context: Context) -> bool:
    if not node.is_op("ReduceMean"):
        return True
    rank = context.types.rank(node.inputs[0])
    spatial = rank in (4, 5) and reduced_axes(node, context) == list(range(2, rank or 0))
    return spatial and not is_mean_of_normalization(node, context)


def forward(node: Node, context: Context) -> bool:
    value = context.scale(node.inputs[0])
    if value is None or not _applies(node, context):
        return False
    return context.give(node.outputs[0], value, "S6", node, node.inputs[0])


def reference_backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    if value is None or not _applies(node, context):
        return False
    return context.give(node.inputs[0], value, "S6", node, node.outputs[0], LOWER_BOUND)
