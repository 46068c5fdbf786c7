"""Rule B1, with `--infer_bounds`: outputs whose largest magnitude is known by definition, whatever comes in.

| operator | amax |
| --- | --- |
| Sigmoid, HardSigmoid, Softmax, Tanh, Erf | 1 |
| Clip with two constant bounds | the larger magnitude of the two |
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference import clip
from qdq_translator.scales.inference.context import Context

WITHIN_ONE = ("Sigmoid", "HardSigmoid", "Softmax", "Tanh", "Erf")
OPS = (*WITHIN_ONE, *clip.OPS)


def bound(node: Node, context: Context) -> Optional[float]:
    """The largest magnitude that the output of `node` can have, infinite where there is none; None where it is not constant."""
    if node.is_op(*WITHIN_ONE):
        return 1.0
    limits = clip.bounds(node, context)
    return None if limits is None else max(abs(limits[0]), abs(limits[1]))


def forward(node: Node, context: Context) -> bool:
    amax = bound(node, context) if context.lacks(node.outputs[0]) else None
    note = "the operator's own bound"
    return amax is not None and context.give(node.outputs[0], amax / INT8_MAX, "B1", node, "", note)
