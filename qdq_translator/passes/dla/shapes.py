"""Rule D1: shape arithmetic becomes constants, so that a standalone DLA build has nothing to compute before it starts.

1. Integers and booleans that follow from known shapes (`Shape -> Gather -> Add -> Div -> ...`) become initializers, also
   where only the sizes that matter are known and the batch size is not.
2. Nodes whose inputs are all constants, and whose results have at most 4096 elements, become initializers too (sizes
   computed in float, say), and so on behind them. Computed by ONNX's reference implementation.

Not: results that are graph outputs, random numbers, control flow, what depends on sizes that are not known (`--shapes`
tells them), operators outside ONNX.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np
import onnx

from qdq_translator.graph import Node
from qdq_translator.operators import QUANTIZERS, RANDOM
from qdq_translator.passes.dla.rewriter import Rewriter

RULE = "D1"
_MOST = 4096


def apply(rewriter: Rewriter) -> None:
    graph, folded = rewriter.graph, []
    known = rewriter.types.integers()
    for node in graph.nodes:
        output = node.outputs[0] if len(node.outputs) == 1 else ""
        if not output or output in graph.outputs or output in graph.initializers:
            continue
        values = known.get(output)
        kind = rewriter.types.elem_type(output)
        if values is not None and kind:
            array: Optional[np.ndarray] = values.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        else:
            array = _evaluate(rewriter, node)
        if array is not None:
            graph.remove(node)
            graph.add_initializer(output, array)
            folded.append(node)
    for node in folded:
        # what only fed other shape arithmetic goes with the unused initializers
        rewriter.note(RULE, [node], [], {})


def _evaluate(rewriter: Rewriter, node: Node) -> Optional[np.ndarray]:
    graph = rewriter.graph
    if not node.is_standard or node.is_op(*RANDOM, *QUANTIZERS) or node.captured or any(node.subgraphs()):
        return None
    names = [name for name in node.inputs if name]
    if any(name not in graph.initializers for name in names) or any(name in rewriter.trained for name in names):
        return None
    if sum(math.prod(graph.initializers[name].dims) for name in names) > _MOST:
        return None
    feed: dict[str, Any] = {name: graph.array(name) for name in names}
    if node.is_op("ConstantOfShape", "Expand", "Tile", "Range"):  # may be large however small what it is made from
        shape = rewriter.types.static_shape(node.outputs[0])
        if shape is None or math.prod(shape) > _MOST:
            return None
    single = onnx.helper.make_graph(
        [node.to_proto()],
        "one",
        [onnx.helper.make_tensor_value_info(n, graph.initializers[n].data_type, None) for n in feed],
        [onnx.ValueInfoProto(name=node.outputs[0])],
    )
    opsets = [onnx.helper.make_opsetid("", graph.opset())]
    model = onnx.helper.make_model(single, opset_imports=opsets, ir_version=graph.ir_version)
    try:
        from onnx.reference import ReferenceEvaluator

        results: Any = ReferenceEvaluator(model).run(None, feed)
        result = np.asarray(results[0])
    except Exception:  # an operator, or a case of one, that the reference implementation does not have
        return None
    return result if result.size <= _MOST and result.dtype.kind in "fiub" else None
