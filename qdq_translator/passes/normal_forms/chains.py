"""Rule F8: Sum, Max and Min of three or more become two-input layers with named tensors between them.

1. `Sum(a, b, c, ...)` -> `Add(Add(a, b), c) ...`
2. `Max(a, b, c, ...)` -> `Max(Max(a, b), c) ...`, Min likewise

Scales of the new tensors, where output and inputs have one: a partial sum the sum of its terms' ranges, which holds it
whatever the values; a partial maximum or minimum the output's, because what that saturates the rest of the chain does not
choose.
Not: integers.
"""

from __future__ import annotations

from qdq_translator.ir.graph import Node
from qdq_translator.passes.editor import Editor

WHAT = "Sum, Max and Min of several inputs as a chain of two-input layers"


def apply(editor: Editor) -> None:
    for node in editor.nodes("Sum", "Max", "Min"):
        if len(node.inputs) < 3 or not editor.is_float(node.outputs[0]):
            continue
        target, terms = node.outputs[0], list(node.inputs)
        op = "Add" if node.is_op("Sum") else node.op_type
        nodes: list[Node] = []
        current = terms[0]
        for number, other in enumerate(terms[1:], 1):
            last = number == len(terms) - 1
            output = target if last else editor.tensor(f"{target}_part{number}")
            name = node.name if last else editor.node(f"{node.name}_part{number}")
            nodes.append(Node(op, [current, other], [output], name))
            current = output
        editor.replace("F8", node, nodes)
        for count, part in enumerate(nodes[:-1], 2):
            name = part.outputs[0]
            activations = [term for term in terms if term not in editor.graph.initializers]
            if op != "Add":
                editor.derive("F8", name, target, part, needs=activations, note="scale of the output")
                continue
            added = [term for term in terms[:count] if term in activations]
            constants = sum(editor.largest(term) for term in terms[:count] if term not in activations)
            if added:
                note = f"sum of the ranges of {count} terms"
                editor.derive(
                    "F8",
                    name,
                    added[0],
                    part,
                    more=added[1:],
                    plus=constants / 127,
                    needs=[*editor.unless_output(target), *activations],
                    note=note,
                )
