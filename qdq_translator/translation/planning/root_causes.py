"""Root causes of layers above INT8: the few tensors behind many missing scales, and the options that give them one.

A tensor without a scale is a *root* if no scale rule would give it one even if the other roots had theirs. Each tensor
is tried alone on a copy of the scale table, with a nominal scale; then roots are selected, sources first, each with all
tensors that follow from it. The set is the smallest possible if every rule needs only one known tensor, otherwise (Mul,
parallel Slices) it is small. The time is linear in the graph.

Cures: the same inference is run with further options. A root that gets its scale this way is cured by these options;
any other root by data (rule K1) if data can give a scale, or by quantizing it in the model.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Callable, Collection, Container, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.report_rows import CauseGroup, FoundCauses, RootCause, WhatIf
from qdq_translator.core.rules import MARKERS, RULES, inference_options
from qdq_translator.translation.ir.graph import Node, finish_order
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.scales.inference import (
    Context,
    Policy,
    all_rules,
    infer_scales,
    pass_through,
    rules_by_op,
)
from qdq_translator.translation.scales.inference.formulas import inside_normalizations
from qdq_translator.translation.scales.table import Origin, ScaleTable, TensorScale
from qdq_translator.translation.targets.precision import INT8, LayerPlan, add_macs

CALIBRATE = "--calibrate DATA"
_Key = Tuple[str, bool, bool]


def find_root_causes(
    context: Context,
    plan: list[LayerPlan],
    users: Callable[[str], str],
    saved: Optional[Mapping[str, float]],
) -> FoundCauses:
    """Find the causes; `context` is only read. users: maps a tensor to the one of the user's model that cures name.
    saved: layer -> milliseconds that its missing scales would save, by which causes are ranked; None without an
    estimate."""
    wanted = _missing(plan, context)
    if not wanted:
        return FoundCauses([], [], [])
    more = everything_on(context)
    cures = try_rules(context, more)
    root_of = Roots(context, wanted).find()
    causes = _describe(context, plan, root_of, cures, users)
    groups = _group(causes, plan, root_of, saved)
    if saved is not None:
        causes = [dataclasses.replace(one, milliseconds=_sum(saved, one.layers)) for one in causes]
        causes.sort(key=lambda cause: -(cause.milliseconds or 0.0))
    return FoundCauses(causes, groups, what_if(context, plan, more, cures, wanted))


def explain(plan: list[LayerPlan], causes: Iterable[RootCause]) -> list[LayerPlan]:
    """The plan with the cause and cure of every avoidable layer, which its reason also states."""
    cause_of = {tensor: cause for cause in causes for tensor in (cause.tensor, *cause.follows)}
    explained = []
    for layer in plan:
        cause = next((cause_of[t] for t in layer.missing if t in cause_of), None)
        if layer.avoidable and cause is not None:
            follows = "" if cause.tensor in layer.missing else f"it would follow from '{cause.tensor}': "
            reason = f"{layer.reason}; {follows}{cause.why}"
            layer = dataclasses.replace(layer, reason=reason, cause=cause.tensor, cure=cause.cure)
        explained.append(layer)
    return explained


def _missing(plan: list[LayerPlan], context: Context) -> dict[str, None]:
    """Tensors without scale around avoidable layers, in graph order; graph outputs only if a node reads them too."""
    graph = context.graph
    missing = (tensor for layer in plan if layer.avoidable for tensor in layer.missing)
    return dict.fromkeys(t for t in missing if t not in graph.outputs or graph.consumer_count(t))


def _waits_only_for(tensors: Container[str], layer: LayerPlan) -> bool:
    """Whether scales for `tensors` would suffice; never for a layer that makes an unquantized graph output (rule
    S2)."""
    return layer.avoidable and bool(layer.missing) and all(tensor in tensors for tensor in layer.missing)


def _waiting(plan: list[LayerPlan], root_of: dict[str, str]) -> tuple[dict[str, list[LayerPlan]], ...]:
    """Root -> layers that need only its scale, and root -> layers that need more."""
    alone: dict[str, list[LayerPlan]] = {root: [] for root in root_of.values()}
    shared: dict[str, list[LayerPlan]] = {root: [] for root in root_of.values()}
    for layer in plan:
        roots = dict.fromkeys(root_of[t] for t in layer.missing if t in root_of and layer.avoidable)
        gains = len(roots) == 1 and _waits_only_for(root_of, layer)
        for root in roots:
            (alone if gains else shared)[root].append(layer)
    return alone, shared


def _describe(
    context: Context,
    plan: list[LayerPlan],
    root_of: dict[str, str],
    cures: Cures,
    users: Callable[[str], str],
) -> list[RootCause]:
    graph = context.graph
    follows: dict[str, list[str]] = {root: [] for root in root_of.values()}
    for tensor, root in root_of.items():
        if tensor != root:
            follows[root].append(tensor)
    # data give no scale to a graph output (rule S2) or inside a normalization, and data that were used give no more
    from_data = set() if context.policy.by_data else follows.keys() - inside_normalizations(graph) - set(graph.outputs)
    alone, shared = _waiting(plan, root_of)
    position = {name: index for index, name in enumerate(graph.tensors())}
    causes = []
    for root in sorted(follows, key=lambda root: position.get(root, len(position))):
        producer, name = graph.producer.get(root), users(root)
        maker, op = ("", "graph input") if producer is None else (producer.name, producer.op_type)
        options, cure = _cure((root, *follows[root]), cures, name, root in from_data)
        named = f"'{root}'" if name == root else f"'{root}' ('{name}' in your model)"
        made = f"graph input {named}" if producer is None else f"{named}, output of {op} '{maker}',"
        waiting = who(alone[root] or shared[root])
        causes.append(
            RootCause(
                tensor=root,
                users=name,
                producer=maker,
                op=op,
                sentence=f"{waiting} because {made} was never quantized{evidence(root, context)}.",
                why=why_not(root, context, cures),
                cure=cure,
                rule=cures[root].scale.origin.rule if root in cures else "",
                options=options,
                follows=tuple(follows[root]),
                layers=tuple(layer.name for layer in alone[root]),
                shared=tuple(layer.name for layer in shared[root]),
                macs=add_macs(alone[root]),
            )
        )
    return sorted(causes, key=lambda cause: -(cause.macs or 0))


def _cure(tensors: Sequence[str], cures: Cures, name: str, from_data: bool) -> tuple[tuple[str, ...], str]:
    """The options that give all of these tensors a scale, and the action in words. name: name of the first in the
    user's model."""
    if all(tensor in cures for tensor in tensors):
        options = command_line(flag for tensor in tensors for flag in cures[tensor].flags)
        if options:
            return options, f"translate with {' '.join(options)}"
    by_hand = f"quantize '{name}' in the model"
    return ((CALIBRATE,), f"translate with {CALIBRATE}, or {by_hand}") if from_data else ((), by_hand)


def _sum(saved: Optional[Mapping[str, float]], layers: Iterable[str]) -> float:
    return sum((saved or {}).get(name, 0.0) for name in layers)


def _gain(layers: Sequence[LayerPlan], saved: Optional[Mapping[str, float]]) -> tuple[float, int, int]:
    """Key for ranking causes: milliseconds, MACs, number of layers."""
    return _sum(saved, (layer.name for layer in layers)), add_macs(layers) or 0, len(layers)


def _group(
    causes: list[RootCause], plan: list[LayerPlan], root_of: dict[str, str], saved: Optional[Mapping[str, float]]
) -> list[CauseGroup]:
    """Causes by operator and kind of cure: rules, data, or the model."""
    members: dict[_Key, list[RootCause]] = {}
    key_of: dict[str, _Key] = {}
    for cause in causes:
        key = key_of[cause.tensor] = (cause.op, cause.options == (CALIBRATE,), bool(cause.options))
        members.setdefault(key, []).append(cause)
    waiting = [
        (layer, {key_of[root_of[t]] for t in layer.missing}) for layer in plan if _waits_only_for(root_of, layer)
    ]

    def helped(keys: Collection[_Key]) -> list[LayerPlan]:
        """Layers that need only cures of these groups."""
        return [layer for layer, needs in waiting if needs.issubset(keys)]

    own = {key: helped([key]) for key in members}
    ranked = sorted(own, key=lambda key: _gain(own[key], saved), reverse=True)
    return [
        CauseGroup(
            key[0],
            tuple(sorted({option for cause in members[key] for option in cause.options})),
            tuple(cause.tensor for cause in members[key]),
            len(own[key]),
            add_macs(own[key]),
            add_macs(helped(ranked[:number])),
            None if saved is None else _gain(own[key], saved)[0],
        )
        for number, key in enumerate(ranked, 1)
    ]


_NOMINAL = 0.9 / 127
"""Scale for trials: an amax of 0.9, so that the inverse sigmoid exists (rule S5)."""


class _Trial(ScaleTable):
    """given: tensors that got a scale, in order."""

    def __init__(self, scales: ScaleTable) -> None:
        super().__init__(scales.items())
        self.given: list[str] = []

    def infer(self, tensor: str, value: float, origin: Origin) -> bool:
        done = super().infer(tensor, value, origin)
        if done:
            self.given.append(tensor)
        return done


class Roots:
    """Finds a small set of missing tensors from which all of `wanted` follow."""

    def __init__(self, context: Context, wanted: dict[str, None]) -> None:
        self.wanted = wanted
        self.trial = _Trial(context.scales)
        self.context = dataclasses.replace(context, scales=self.trial)
        self.rules = rules_by_op(all_rules(context.policy))

    def find(self) -> dict[str, str]:
        """Missing tensor -> root."""
        follows = self._edges()
        root_of: dict[str, str] = {}
        for tensor in reversed(finish_order(self.wanted, lambda tensor: follows.get(tensor, ()))):
            if tensor in root_of:
                continue
            self.trial.infer(tensor, _NOMINAL, Origin("try"))
            reached, pending = [tensor], [tensor]
            while pending:
                for node in self._around(pending.pop()):
                    given = self._given(node)
                    reached += given
                    pending += given
            root_of.update(dict.fromkeys(reached, tensor))
        return root_of

    def _edges(self) -> dict[str, list[str]]:
        """Missing tensor -> missing tensors to which one rule at one node would give a scale if only this tensor had
        one."""
        edges: dict[str, list[str]] = {}
        for tensor in self.wanted:
            self.trial.infer(tensor, _NOMINAL, Origin("try"))
            for node in self._around(tensor):
                for given in self._given(node):
                    edges.setdefault(tensor, []).append(given)
                    self.trial.drop(given)
            self.trial.drop(tensor)
        return edges

    def _around(self, tensor: str) -> Iterable[Node]:
        graph = self.context.graph
        nodes = [*([graph.producer[tensor]] if tensor in graph.producer else []), *graph.consumers(tensor)]
        return (node for node in nodes if node.op_type in self.rules and node.inputs)

    def _given(self, node: Node) -> list[str]:
        """Tensors to which the rules at a node give a scale."""
        self.trial.given = []
        for rule in self.rules[node.op_type]:
            for apply in filter(None, (rule.forward, rule.backward)):
                apply(node, self.context)
        return self.trial.given


# ---------------- cures


_MORE_OPERATORS = "addtl_ops_to_infer_adjacent_scales"


class Flag(NamedTuple):
    """An option to add. operator: its argument, if the option accepts operators."""

    option: str
    operator: str = ""


class Cure(NamedTuple):
    """A scale that further options would give. flags: the options needed, in the order in which the rules apply."""

    scale: TensorScale
    flags: Tuple[Flag, ...]


Cures = Dict[str, Cure]
"""Tensor -> its cure, in the order of inference."""

_WITHIN_INPUT_RANGE = where(scale="within")
"""Operators without a rule whose output stays within the range of their input (with the usual parameters): proposed
for `--addtl_ops_to_infer_adjacent_scales`."""


def everything_on(context: Context) -> Policy:
    """The policy of `context` with every further inference option that could matter for this graph."""
    present = {node.op_type for node in context.graph.nodes if node.is_standard}
    given = context.policy
    more = tuple(op for op in _WITHIN_INPUT_RANGE if op in present and op not in given.passed)
    on = given.on | inference_options(markers=context.policy.for_dla).keys()
    return dataclasses.replace(given, on=on, passed=(*given.passed, *more))


def _infer_with(context: Context, policy: Policy) -> ScaleTable:
    table = context.scales.fork()
    for name, scale in context.scales.items():
        if scale.origin.rule in MARKERS:  # markers are not ranges, and the rules would use them as such
            table.drop(name)
    infer_scales(dataclasses.replace(context, scales=table, policy=policy), Diagnostics())
    return table


def try_rules(context: Context, policy: Policy) -> Cures:
    """Scales that `policy` would add."""
    table = _infer_with(context, policy)
    nodes = {node.name: node for node in context.graph.nodes}
    cures: Cures = {}
    for tensor, scale in table.items():
        if tensor in context.scales:
            continue
        origin, node = scale.origin, nodes.get(scale.origin.node)
        sources = [origin.source]
        if node is not None and origin.source not in table:  # several; their names may contain ', '
            sources = [n for n in (*node.inputs, *node.outputs) if n != tensor]
        flags = {flag: None for source in sources if source in cures for flag in cures[source].flags}
        own = _flag(origin.rule, node, context.policy) if node is not None else None
        if own is not None and not (origin.rule == "S5" and origin.source):
            flags[own] = None
        cures[tensor] = Cure(scale, tuple(flags))
    return cures


def _flag(rule: str, node: Node, policy: Policy) -> Optional[Flag]:
    """The option to add for `rule` at `node`; None if no option is needed."""
    if rule == "S3" and node.op_type not in (*pass_through.OPS, "Clip"):
        return None if node.op_type in policy.passed else Flag(_MORE_OPERATORS, node.op_type)
    switches = RULES[rule].options
    return None if not switches or policy.on.intersection(switches) else Flag(switches[0])


def command_line(flags: Iterable[Flag]) -> tuple[str, ...]:
    """Flag names as a user types them; several operators behind one --addtl_ops_to_infer_adjacent_scales."""
    given = set(flags)
    plain = sorted(flag.option for flag in given if not flag.operator)
    ops = sorted(flag.operator for flag in given if flag.operator)
    extra = [f"--{_MORE_OPERATORS} {' '.join(ops)}"] if ops else []
    return (*(f"--{option}" for option in plain), *extra)


def what_if(
    context: Context, plan: list[LayerPlan], more: Policy, cures: Cures, wanted: dict[str, None]
) -> list[WhatIf]:
    """The effect of every option that matters alone, then of all of them together."""
    flags = dict.fromkeys(flag for tensor, cure in cures.items() if tensor in wanted for flag in cure.flags)
    singles = dict.fromkeys(flag.option for flag in flags)
    rows = []
    if len(singles) > 1:
        for name in singles:
            by_operator = name == _MORE_OPERATORS
            change: dict[str, Any] = {"passed": more.passed} if by_operator else {"on": context.policy.on | {name}}
            shown = command_line(f for f in flags if f.option == name)
            rows.append(_count(shown, plan, _infer_with(context, dataclasses.replace(context.policy, **change))))
    if flags:
        table = context.scales.fork()
        for tensor, cure in cures.items():
            table.infer(tensor, cure.scale.value, cure.scale.origin)
        rows.append(_count(command_line(flags), plan, table))
    return rows


def _count(options: tuple[str, ...], plan: list[LayerPlan], table: ScaleTable) -> WhatIf:
    int8 = [layer for layer in plan if layer.precision == INT8 or _waits_only_for(table, layer)]
    return WhatIf(options, len(int8), add_macs(int8), len(table))


# ---------------- causes in sentences


def who(layers: list[LayerPlan]) -> str:
    """'6 Conv and 2 Add run in FP16': layers with weights first."""
    counts = Counter(layer.op for layer in sorted(layers, key=lambda la: -la.weights))
    parts = [f"{number} {op}" for op, number in counts.items()]
    if len(parts) > 4:
        parts = [*parts[:3], f"{sum(list(counts.values())[3:])} others"]
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{listed} {'runs' if len(layers) == 1 else 'run'} in FP16"


def evidence(tensor: str, context: Context) -> str:
    """A quantized neighbour of the tensor: ' (the output of its reader Add '/m/Add' is)', to follow 'was never
    quantized'; '' if there is none."""
    for what, index in (("the other operand", 0), ("the output", 1)):
        for reader in context.graph.consumers(tensor):
            if any(name in context.scales for name in (reader.inputs, reader.outputs)[index] if name != tensor):
                return f" ({what} of its reader {reader.op_type} '{reader.name}' is)"
    return ""


def why_not(tensor: str, context: Context, cures: Cures) -> str:
    """The rule that would give the tensor a scale, and why it does not, in words."""
    producer = context.graph.producer.get(tensor)
    if tensor in cures:
        origin = cures[tensor].scale.origin
        missing = " and ".join(command_line(cures[tensor].flags))
        return f"rule {origin.rule} at '{origin.node}' would give it with {missing}"
    if tensor in context.graph.outputs:
        return "it is a graph output, which no rule gives a scale (S2)"
    if context.withheld.get(tensor):
        return context.withheld[tensor]
    if producer is None:
        made = "the graph input was not quantized"
    elif producer.op_type in rules_by_op(all_rules(context.policy)):
        made = f"the rule of {producer.op_type} has nothing to start from"
    else:
        made = f"no rule passes a scale through {producer.op_type}"
    readers = list(dict.fromkeys(reader.op_type for reader in context.graph.consumers(tensor)))
    back = f"and no rule passes one back through its reader{'s' * (len(readers) > 1)} ({', '.join(readers[:3])})"
    return f"{made}, {back}" if readers else made
