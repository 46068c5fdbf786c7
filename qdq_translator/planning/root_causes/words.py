"""Causes in sentences."""

from __future__ import annotations

from typing import Optional

from qdq_translator.ir.graph import Node
from qdq_translator.planning.root_causes.cures import Needs, command_line
from qdq_translator.scales.inference import Context, all_rules, rules_by_op
from qdq_translator.scales.table import TensorScale
from qdq_translator.targets.precision import LayerPlan


def what(tensor: str, producer: Optional[Node]) -> str:
    return (
        f"graph input '{tensor}'"
        if producer is None
        else f"'{tensor}', output of {producer.op_type} '{producer.name}',"
    )


def who(layers: list[LayerPlan]) -> str:
    """'6 Conv and 2 Add run in FP16': layers with weights first."""
    counts: dict[str, int] = {}
    for layer in sorted(layers, key=lambda la: -la.weights):
        counts[layer.op] = counts.get(layer.op, 0) + 1
    parts = [f"{number} {op}" for op, number in counts.items()]
    if len(parts) > 4:
        rest = sum(list(counts.values())[3:])
        parts = [*parts[:3], f"{rest} others"]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return f"{listed} {'runs' if len(layers) == 1 else 'run'} in FP16"


def evidence(tensor: str, context: Context) -> str:
    """Quantized neighbours of the tensor: ' (its reader Add '/m/Add' has a scale on its output)'."""
    for reader in context.graph.consumers(tensor):
        others = [n for n in reader.inputs if n != tensor and n in context.scales]
        if others:
            return f" (the other operand of its reader {reader.op_type} '{reader.name}' is)"
    for reader in context.graph.consumers(tensor):
        if any(n in context.scales for n in reader.outputs):
            return f" (the output of its reader {reader.op_type} '{reader.name}' is)"
    return ""


def why_not(tensor: str, context: Context, cured: dict[str, TensorScale], needs: Needs) -> str:
    """Which rule would give the tensor a scale and why it did not."""
    producer = context.graph.producer.get(tensor)
    if tensor in cured:
        origin = cured[tensor].origin
        missing = " and ".join(command_line(needs[tensor]))
        return f"rule {origin.rule} at '{origin.node}' would give it with {missing}"
    if tensor in context.graph.outputs:
        return "it is a graph output, which no rule gives a scale (S2)"
    made = "the graph input was not quantized" if producer is None else f"no rule follows a {producer.op_type} forward"
    if producer is not None and producer.op_type in rules_by_op(all_rules(context.policy)):
        made = f"the rule of {producer.op_type} has nothing to start from"
    readers = list(dict.fromkeys(reader.op_type for reader in context.graph.consumers(tensor)))
    if not readers:
        return made
    verb = "has" if len(readers) == 1 else "have"
    return f"{made}, and its readers' operator{'s' * (len(readers) > 1)} ({', '.join(readers[:3])}) {verb} none to hand back"
