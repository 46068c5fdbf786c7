"""Rule S9, with `--add_unary_ew_scales_for_dla`: scale 1.0 on a Conv output that only feeds a two-input Add whose other
input has a real scale. The DLA fuses the two and never applies it; without it TensorRT would raise both to FP16
(fact 5.8). It is given last, so that no other rule builds on it."""

from __future__ import annotations

from qdq_translator.scales.inference.context import Context

RULE = "S9"


def add_unary_scales(context: Context) -> list[str]:
    """The tensors that got one, in graph order."""
    given = []
    for node in context.graph.nodes:
        if not node.is_op("Add") or len(node.inputs) != 2:
            continue
        for name, other in (node.inputs, node.inputs[::-1]):
            producer = context.graph.producer.get(name)
            if producer is None or not producer.is_op("Conv") or not context.lacks(name):
                continue
            partner = context.scales.get(other)
            if context.graph.only_consumer(name) is not node or partner is None or partner.origin.rule == RULE:
                continue
            note = "not applied where TensorRT fuses Conv and Add; otherwise values above 127 saturate"
            if context.give(name, 1.0, RULE, node, other, note):
                given.append(name)
    return given
