"""Rule F10: a Slice has starts, ends, axes and steps, all in INT32, for TensorRT 10 and later.

With INT64 its parser computes start and size in 26 integer layers, and the Slice is not static. A limit beyond INT32
("to the end") becomes the last INT32. TensorRT-RTX's parser refuses INT32 indices without axes or steps, and INT64 ones
without axes.
Not: TensorRT 8; indices that are computed, or INT32 already.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Graph
from qdq_translator.passes.editor import Editor

RULE = "F10"
WHAT = "Slice indices in INT32"


def apply(editor: Editor) -> None:
    graph = editor.graph
    if editor.parser is None or editor.parser[0] < 10:
        return
    limits = np.iinfo(np.int32)
    made: dict[tuple[int, ...], str] = {}
    for node in editor.nodes("Slice"):
        given = operators.slices(node, graph.array) if graph.opset() >= 10 else None
        if given is None or all(_is_int32(graph, node.input(index)) for index in (1, 2, 3, 4)):
            continue
        names = []
        for key in ("starts", "ends", "axes", "steps"):
            values = tuple(min(max(value, limits.min), limits.max) for value in getattr(given, key))
            if values not in made:
                made[values] = editor.constant(f"{node.name}.{key}", np.array(values, np.int32))
            names.append(made[values])
        graph.set_inputs(node, [node.inputs[0], *names])
        editor.note(RULE, [node], [node])


def _is_int32(graph: Graph, name: str) -> bool:
    tensor = graph.initializers.get(name)
    return tensor is not None and tensor.data_type == TensorProto.INT32
