"""The search for the roots: which missing tensors would follow from which."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Optional

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import finish_order
from qdq_translator.planning.root_causes.cures import Needs, command_line
from qdq_translator.scales.inference import Context, all_rules, rules_by_op
from qdq_translator.scales.table import Origin, TensorScale
from qdq_translator.targets.precision import LayerPlan

_NOMINAL = 0.9 / 127
"""The scale that a tensor is tried with: an amax of 0.9, so that the inverse sigmoid exists (rule S5)."""


class _TryContext(Context):
    """A context with a separate scale table that records new scales."""

    def __init__(self, context: Context) -> None:
        super().__init__(**{f.name: getattr(context, f.name) for f in dataclasses.fields(Context)})
        self.scales = context.scales.fork()
        self.given: list[str] = []

    def give(self, tensor: str, value: Optional[float], rule: str, node: Node, source: str, note: str = "") -> bool:
        done = super().give(tensor, value, rule, node, source, note)
        if done:
            self.given.append(tensor)
        return done


class Roots:
    """Finds a small set of missing tensors from which all of `wanted` follow."""

    def __init__(self, context: Context, wanted: dict[str, None]) -> None:
        self.wanted = wanted
        self.trial = _TryContext(context)
        self.graph = context.graph
        self.rules = rules_by_op(all_rules(context.policy))

    def find(self) -> dict[str, str]:
        """Missing tensor -> root."""
        follows = self._edges()
        root_of: dict[str, str] = {}
        for tensor in reversed(finish_order(self.wanted, lambda tensor: follows.get(tensor, ()))):
            if tensor in root_of:
                continue
            self.trial.given.clear()
            self.trial.scales.infer(tensor, _NOMINAL, Origin("try"))
            root_of[tensor] = tensor
            reached = [tensor]
            while reached:
                for node in self._around(reached.pop()):
                    start = len(self.trial.given)
                    self._apply(node)
                    reached += self.trial.given[start:]
            root_of.update((given, tensor) for given in self.trial.given)
        return root_of

    def _edges(self) -> dict[str, list[str]]:
        """Missing tensor -> missing tensors that one rule at one node would give when it alone had a scale."""
        edges: dict[str, list[str]] = {}
        for tensor in self.wanted:
            self.trial.scales.infer(tensor, _NOMINAL, Origin("try"))
            for node in self._around(tensor):
                self._apply(node)
                for given in self.trial.given:
                    edges.setdefault(tensor, []).append(given)
                    self.trial.scales.drop(given)
                self.trial.given.clear()
            self.trial.scales.drop(tensor)
        return edges

    def _around(self, tensor: str) -> Iterable[Node]:
        producer = self.graph.producer.get(tensor)
        nodes = self.graph.consumers(tensor) if producer is None else [producer, *self.graph.consumers(tensor)]
        return (node for node in nodes if node.op_type in self.rules and node.inputs)

    def _apply(self, node: Node) -> None:
        for rule in self.rules[node.op_type]:
            if rule.forward is not None:
                rule.forward(node, self.trial)
            if rule.backward is not None:
                rule.backward(node, self.trial)


# ---------------------------------------------------------------- causes in sentences


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
