"""Root causes of layers above INT8: the few tensors behind many missing scales, and the options that give them one.

A missing tensor is a *root* if no scale rule would give it a scale even if the other roots had theirs. Each tensor is tried alone on a
copy of the scale table, with a nominal scale; then roots are selected, sources first, each with all tensors that follow from it. The set is
the smallest possible if every rule needs only one known tensor, else (Mul, parallel Slices) a small one. The time is linear in the graph.
Cures: the same inference with further options. A root that gets its scale this way is cured by them; any other root by data (rule K1) if
the data can give one, or by quantizing it in the model.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterable, Optional, Tuple

from qdq_translator.core.formats.report_rows import CauseGroup, RootCause
from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import finish_order
from qdq_translator.planning.root_causes import cures
from qdq_translator.planning.root_causes.cures import Needs, command_line
from qdq_translator.scales.inference import Context, all_rules, rules_by_op
from qdq_translator.scales.inference.formulas import inside_normalizations
from qdq_translator.scales.table import Origin, TensorScale
from qdq_translator.targets.precision import LayerPlan, add_macs

CALIBRATE = "--calibrate DATA"
_Key = Tuple[str, bool, bool]


def find_root_causes(
    context: Context, plan: list[LayerPlan], users: Callable[[str], str] = lambda tensor: tensor
) -> cures.RootCauses:
    """Reads graph and scales of `context`; changes neither. users: from a tensor to the one of the user's model that cures
    name in its stead."""
    wanted = _missing(plan, context)
    if not wanted:
        return cures.RootCauses([], [], [])
    more = cures.everything_on(context)
    cured, needs = cures.try_rules(context, more)
    root_of = Roots(context, wanted).find()
    causes = _describe(context, plan, root_of, cured, needs, users)
    groups = _group(causes, plan, root_of)
    return cures.RootCauses(causes, groups, cures.what_if(context, plan, more, needs, wanted, cured), root_of)


def explain(plan: list[LayerPlan], causes: cures.RootCauses) -> list[LayerPlan]:
    """The plan with cause and cure of every avoidable layer, and the reason completed by them."""
    if not causes.causes:
        return plan
    explained = []
    for layer in plan:
        root = next((causes.root_of[t] for t in layer.missing if t in causes.root_of), None)
        if layer.avoidable and root is not None:
            first = causes.by_tensor[root]
            follows = "" if root in layer.missing else f"it would follow from '{root}': "
            reason = f"{layer.reason}; {follows}{first.why}"
            layer = dataclasses.replace(layer, reason=reason, cause=root, cure=first.cure)
        explained.append(layer)
    return explained


def _missing(plan: list[LayerPlan], context: Context) -> dict[str, None]:
    """Tensors without scale around avoidable layers, in graph order; graph outputs only if also read."""
    graph = context.graph
    missing = (tensor for layer in plan if layer.avoidable for tensor in layer.missing)
    return dict.fromkeys(t for t in missing if t not in graph.outputs or graph.consumer_count(t))


def _waiting(plan: list[LayerPlan], root_of: dict[str, str]) -> tuple[dict[str, list[LayerPlan]], ...]:
    """Root -> layers that need only its scale, and root -> layers that need more."""
    alone: dict[str, list[LayerPlan]] = {root: [] for root in root_of.values()}
    shared: dict[str, list[LayerPlan]] = {root: [] for root in root_of.values()}
    for layer in plan:
        roots = dict.fromkeys(root_of[t] for t in layer.missing if t in root_of and layer.avoidable)
        # a layer that makes an unquantized graph output stays in higher precision whatever its inputs get (rule S2)
        gains = len(roots) == 1 and all(t in root_of for t in layer.missing)
        for root in roots:
            (alone if gains else shared)[root].append(layer)
    return alone, shared


def _describe(
    context: Context,
    plan: list[LayerPlan],
    root_of: dict[str, str],
    cured: dict[str, TensorScale],
    needs: cures.Needs,
    users: Callable[[str], str],
) -> list[RootCause]:
    graph = context.graph
    by_data = not context.policy.by_data
    inside = inside_normalizations(context.graph) if by_data else ()
    follows: dict[str, list[str]] = {root: [] for root in root_of.values()}
    for tensor, root in root_of.items():
        if tensor != root:
            follows[root].append(tensor)
    alone, shared = _waiting(plan, root_of)
    causes = []
    position = {name: index for index, name in enumerate(graph.tensors())}
    for root in sorted(follows, key=lambda root: position.get(root, len(position))):
        producer = graph.producer.get(root)
        op = producer.op_type if producer is not None else "graph input"
        tensors = (root, *follows[root])
        options: tuple[str, ...] = ()
        rule = cured[root].origin.rule if root in cured else ""
        if all(t in cured for t in tensors):
            options = cures.command_line(flag for t in tensors for flag in needs[t])
        why = why_not(root, context, cured, needs)
        cure = f"quantize '{users(root)}' in the model"
        if options:
            cure = f"translate with {' '.join(options)}"
        elif by_data and root not in inside and root not in graph.outputs:
            options = (CALIBRATE,)
            cure = f"translate with {CALIBRATE}, or {cure}"
        named = what(root, producer)
        if users(root) != root:
            named = named.replace(f"'{root}'", f"'{root}' ('{users(root)}' in your model)", 1)
        sentence = f"{who(alone[root] or shared[root])} because {named} was never quantized" + evidence(root, context)
        causes.append(
            RootCause(
                root,
                users(root),
                producer.name if producer is not None else "",
                op,
                sentence + ".",
                why,
                cure,
                rule,
                options,
                tuple(follows[root]),
                tuple(layer.name for layer in alone[root]),
                tuple(layer.name for layer in shared[root]),
                add_macs(alone[root]),
            )
        )
    causes.sort(key=lambda cause: -(cause.macs or 0))
    return causes


def _group(causes: list[RootCause], plan: list[LayerPlan], root_of: dict[str, str]) -> list[CauseGroup]:
    # by operator and kind of cure: rules, data, or the model
    key_of = {cause.tensor: (cause.op, cause.options == (CALIBRATE,), bool(cause.options)) for cause in causes}
    members: dict[_Key, list[RootCause]] = {}
    for cause in causes:
        members.setdefault(key_of[cause.tensor], []).append(cause)
    own: dict[_Key, list[LayerPlan]] = {key: [] for key in members}
    spanning: list[tuple[set[_Key], LayerPlan]] = []
    for layer in plan:
        if layer.avoidable and layer.missing and all(t in root_of for t in layer.missing):
            keys = {key_of[root_of[t]] for t in layer.missing}
            if len(keys) == 1:
                own[next(iter(keys))].append(layer)
            spanning.append((keys, layer))
    order = sorted(members, key=lambda key: (-(add_macs(own[key]) or 0), -len(own[key])))
    groups, done = [], set()
    for key in order:
        done.add(key)
        flags = dict.fromkeys(option for cause in members[key] for option in cause.options)
        groups.append(
            CauseGroup(
                key[0],
                tuple(sorted(flags)),
                tuple(cause.tensor for cause in members[key]),
                len(own[key]),
                add_macs(own[key]),
                add_macs(layer for keys, layer in spanning if keys <= done),
            )
        )
    return groups


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
