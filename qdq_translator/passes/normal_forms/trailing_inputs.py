"""Rule F8: `Conv(x, w, '')` -> `Conv(x, w)`. Every version of the parser refuses an empty third input (fact 4.12)."""

from __future__ import annotations

from qdq_translator.passes.editor import Editor

WHAT = "Empty inputs at the end are left out"


def apply(editor: Editor) -> None:
    for node in editor.graph.nodes:
        count = len(node.inputs)
        while count and not node.inputs[count - 1]:
            count -= 1
        if count < len(node.inputs):
            editor.graph.set_inputs(node, node.inputs[:count])
            editor.note("F8", [node], [node])
