"""Rule P2: layers above INT8 that need FP32 on a GPU, because FP16 cannot hold their values.

Two cases that need no data: a tensor whose range (127 times its scale) is beyond 65504, and a constant that keeps the
argument of a logarithm or a divisor away from 0 and is itself 0 in FP16, as in `Log(x * x + 1e-10)` of an audio
network, where x * x matters down to the constant.
An epsilon under a square root is left alone: it matters only where a variance is exactly 0, and a layer in another type
would break the normalization that TensorRT fuses.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional

import numpy as np

from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.qparams import FLOAT16_MAX, INT8_MAX

_POLES = {"Log": 0, "Reciprocal": 0, "Div": 1}
"""Operators that are infinite where this input is 0."""
_GUARDS = ("Add", "Max", "Clip")
_VIEWS = where(data="view permute same part pick")
_POWERS = ("Abs", "Mul", "Pow", "ReduceSum", "ReduceSumSquare", "Sqrt")
"""Operators between small values and the sum of their squares."""


def beyond_fp16(graph: Graph, scales: Mapping[str, float]) -> dict[str, str]:
    """Node -> why FP16 cannot hold its values, in words. scales: tensor -> scale."""
    wide = {name: INT8_MAX * scale for name, scale in scales.items() if INT8_MAX * scale > FLOAT16_MAX}
    found: dict[str, str] = {}
    for node in graph.nodes:
        reach = next((name for name in (*node.inputs, *node.outputs) if name in wide), None)
        if reach is not None:
            found[node.name] = f"'{reach}' reaches {wide[reach]:.4g}, and FP16 ends at {FLOAT16_MAX:.0f}"
        elif node.op_type in _POLES:
            found.update(_vanishing(graph, node))
    return found


def _vanishing(graph: Graph, node: Node) -> Iterator[tuple[str, str]]:
    """The layers from the constant to `node`, if only a constant that FP16 rounds to 0 keeps its input away from 0, and
    those that make the values that it is added to, which are as small."""
    path, maker = [node], graph.producer.get(node.input(_POLES[node.op_type]))
    while maker is not None and maker.is_op(*_VIEWS):
        path, maker = [*path, maker], graph.producer.get(maker.inputs[0])
    guard = None if maker is None or not maker.is_op(*_GUARDS) else _guard(graph, maker)
    if maker is None or guard is None:
        return
    made = next((name for name in maker.inputs if name != guard), "")
    for layer in (*path, maker, *_small(graph, made)):
        yield layer.name, f"the constant '{guard}' keeps the input of '{node.name}' away from 0, and is 0 in FP16"


def _small(graph: Graph, tensor: str) -> Iterator[Node]:
    """The layer that makes `tensor`, and those in front of it up to the values whose squares it adds."""
    maker = graph.producer.get(tensor)
    while maker is not None:
        yield maker
        is_through = maker.is_op(*_VIEWS, *_POWERS) and (not maker.is_op("Mul") or maker.inputs[0] == maker.inputs[1])
        maker = graph.producer.get(maker.inputs[0]) if is_through else None


def _guard(graph: Graph, node: Node) -> Optional[str]:
    """The constant input of `node` that is not 0 and becomes 0 in FP16."""
    for name in node.inputs[:2]:
        values = graph.array(name) if name in graph.initializers else None
        if values is not None and values.dtype == np.float32 and values.any() and not values.astype(np.float16).any():
            return name
    return None
