"""Rule S5: Sigmoid. With `--infer_mul_scales` and a Mul that reads it, the output gets 1/127 (amax 1: its bound, B1).

`--inference reference` alone, as NVIDIA's translator, goes backward: `amax_in = log(amax_out / (1 - amax_out))`, the inverse
sigmoid, for `0.5 < amax_out < 1`. It clips: a sigmoid is flat where it is near 1.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_translator.ir.graph import Node
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.scales.inference.context import Context

OPS = ("Sigmoid",)


def forward(node: Node, context: Context) -> bool:
    output = node.outputs[0]
    if not context.lacks(output) or not any(reader.is_op("Mul") for reader in context.graph.consumers(output)):
        return False
    return context.give(output, 1 / INT8_MAX, "S5", node, "", "a sigmoid's range is [0, 1]")


def reference_backward(node: Node, context: Context) -> bool:
    value = context.scale(node.outputs[0])
    if value is None or not context.lacks(node.inputs[0]):
        return False
    amax = float(np.float32(value * INT8_MAX))  # the float32 nearest to 1/127 means 1
    if not 0.5 < amax < 1:
        return False
    amax_in = math.log(amax / (1 - amax))
    note = f"inputs below {-amax_in:.4g} saturate, which lifts small outputs to {1 - amax:.4g}"
    return context.give(node.inputs[0], amax_in / INT8_MAX, "S5", node, node.outputs[0], note)
