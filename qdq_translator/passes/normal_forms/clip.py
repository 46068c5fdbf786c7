"""Rule F8: a Clip has both limits.

`Clip(x)`, `Clip(x, min)` and `Clip(x, , max)` get the lowest and the largest finite number of x's type where a limit is
missing. With both the parser makes one layer; without a minimum it makes five tensors without a scale.
Not: limits that are computed; types other than float and float16; below opset 11, whose limits are attributes.
"""

from __future__ import annotations

import numpy as np

from qdq_translator.passes.editor import Editor

WHAT = "Clip with both limits"


def apply(editor: Editor) -> None:
    graph = editor.graph
    if graph.opset() < 11:
        return
    limits: dict[str, str] = {}
    for node in editor.nodes("Clip"):
        given = [name for name in node.inputs[1:] if name]
        if len(given) == 2 or any(name not in graph.initializers for name in given):
            continue
        dtype = editor.dtype(given[0] if given else node.inputs[0])
        if dtype not in (np.float32, np.float16):
            continue
        for index, key in ((1, "min"), (2, "max")):
            if not node.input(index):
                name = f"clip_{key}_{np.dtype(dtype).name}"
                if name not in limits:
                    limits[name] = editor.constant(name, np.array(getattr(np.finfo(dtype), key), dtype))
                graph.set_input(node, index, limits[name])
        editor.note("F8", [node], [node])
