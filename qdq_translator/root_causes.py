"""Why layers run in higher precision: the few tensors behind many missing scales, and what would give them one.

A missing tensor is a *root* if no scale rule would give it a scale when the other roots had theirs. The roots are
found by trying: a copy of the scale table, a nominal scale on one tensor, the inference rules around it. First one
tensor at a time (which missing tensors follow from this one?), then roots are taken in an order in which sources come
first, each with everything that follows from it. Where every rule needs one known tensor only, that is the smallest
possible set; where a rule needs two (Mul, parallel Slices) it is a small one. Every tensor is tried once at each of
its nodes: linear in the size of the graph.

Cures: the same inference with the options that are off. A root that gets its scale there, with all that follows from
it, is cured by the options on the way; any other has to be quantized in the model.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Optional

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.graph import Graph, Node
from qdq_translator.inference import Context, all_rules, infer_scales, pass_through, rules_by_op
from qdq_translator.options import TranslateOptions
from qdq_translator.precision import INT8, LayerPlan
from qdq_translator.rules import MARKERS, RULES, inference_options
from qdq_translator.scales import Origin, ScaleTable, TensorScale

_WITHIN_INPUT_RANGE = (
    *(
        "Abs",
        "Elu",
        "Gelu",
        "GlobalMaxPool",
        "LeakyRelu",
        "Neg",
        "ReduceMax",
        "ReduceMin",
        "ThresholdedRelu",
    ),
)
"""Operators without a rule whose output stays within the range of their input (with the usual parameters): proposed
for `--addtl_ops_to_infer_adjacent_scales`."""
_NOMINAL = 0.9 / 127
"""The scale that a tensor is tried with: an amax of 0.9, so that the inverse sigmoid exists (rule S5)."""


@dataclasses.dataclass(frozen=True)
class RootCause:
    """One tensor without scale from which others would follow.

    producer/op: the node that makes it ('' and 'graph input' for an input). follows: missing tensors that its scale
    would bring along. layers: surprises that it alone brings to INT8; shared: surprises that need another root too.
    macs: of `layers`, None where unknown. milliseconds: estimated gain on a DLA, None without one. rule/options: what would give it ('' and () if nothing would).
    """

    tensor: str
    producer: str
    op: str
    follows: tuple[str, ...]
    layers: tuple[str, ...]
    shared: tuple[str, ...]
    macs: Optional[int]
    rule: str
    options: tuple[str, ...]
    why: str
    cure: str
    sentence: str
    milliseconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class CauseGroup:
    """Causes that are one story: made by the same operator, cured in the same way (by options or by quantizing).

    layers: surprises that the whole group brings to INT8. macs: theirs. total_macs: with all groups before it too.
    """

    op: str
    options: tuple[str, ...]
    tensors: tuple[str, ...]
    layers: int
    macs: Optional[int]
    total_macs: Optional[int]
    milliseconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """The plan with further options: layers and MACs (None: unknown) in INT8, tensors with a scale. With a DLA as target
    what runs there, layers on the GPU, the estimated time, and the most bits of resolution that a tensor loses."""

    options: tuple[str, ...]
    int8_layers: int
    int8_macs: Optional[int]
    scales: int
    gpu_layers: Optional[int] = None
    milliseconds: Optional[float] = None
    bits_lost: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class RootCauses:
    """causes: by MACs gained, then in graph order. groups: likewise. root_of: missing tensor -> its root.
    what_if: options worth trying."""

    causes: list[RootCause]
    groups: list[CauseGroup]
    root_of: dict[str, str]
    what_if: list[WhatIf]

    @property
    def by_tensor(self) -> dict[str, RootCause]:
        return self._by_tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_tensor", {cause.tensor: cause for cause in self.causes})

    _by_tensor: dict[str, RootCause] = dataclasses.field(init=False, repr=False, compare=False)


def find_root_causes(context: Context, plan: list[LayerPlan]) -> RootCauses:
    """Reads graph and scales of `context`; changes neither."""
    wanted = _missing(plan, context)
    if not wanted:
        return RootCauses([], [], {}, [])
    more = _options_off(context)
    cured, needs = _try_options(context, more)
    root_of = _Roots(context, wanted).find()
    causes = _describe(context, plan, root_of, cured, needs)
    groups = _group(causes, plan, root_of)
    return RootCauses(causes, groups, root_of, _what_if(context, plan, more, needs, wanted, cured))


def explain(plan: list[LayerPlan], causes: RootCauses) -> list[LayerPlan]:
    """The plan with cause and cure of every surprise, and the reason completed by them."""
    explained = []
    for layer in plan:
        if layer.surprise:
            roots = dict.fromkeys(causes.root_of[t] for t in layer.missing if t in causes.root_of)
            if roots:
                first = causes.by_tensor[next(iter(roots))]
                why = (
                    first.why
                    if first.tensor in layer.missing
                    else f"it would follow from '{first.tensor}': {first.why}"
                )
                layer = dataclasses.replace(layer, reason=f"{layer.reason}; {why}", cause=first.tensor, cure=first.cure)
        explained.append(layer)
    return explained


def _missing(plan: list[LayerPlan], context: Context) -> dict[str, None]:
    """Tensors without scale around surprises, in graph order. Graph outputs only where the network reads them too."""
    found: dict[str, None] = {}
    for layer in plan:
        if layer.surprise:
            for tensor in layer.missing:
                if tensor not in context.graph.outputs or context.graph.consumer_count(tensor):
                    found[tensor] = None
    return found


class _TryContext(Context):
    """A context over a table of its own that notes what is given."""

    def __init__(self, context: Context) -> None:
        super().__init__(**{f.name: getattr(context, f.name) for f in dataclasses.fields(Context)})
        self.scales = context.scales.fork()
        self.given: list[str] = []

    def give(self, tensor: str, value: float, rule: str, node: Node, source: str, note: str = "") -> bool:
        done = super().give(tensor, value, rule, node, source, note)
        if done:
            self.given.append(tensor)
        return done


class _Roots:
    """Finds a small set of missing tensors from which all of `wanted` follow."""

    def __init__(self, context: Context, wanted: dict[str, None]) -> None:
        self.wanted = wanted
        self.trial = _TryContext(context)
        self.graph = context.graph
        self.rules = rules_by_op(all_rules(context.options))

    def find(self) -> dict[str, str]:
        """Missing tensor -> root."""
        follows = self._edges()
        root_of: dict[str, str] = {}
        for tensor in reversed(_finish_order(list(self.wanted), follows)):
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


def _finish_order(tensors: list[str], edges: dict[str, list[str]]) -> list[str]:
    """Depth-first, in the order in which tensors are left. Read backwards, the first of every component that nothing
    else leads to comes before all that follows from it."""
    seen: set[str] = set()
    order: list[str] = []
    for start in tensors:
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(edges.get(start, ())))]
        while stack:
            tensor, following = stack[-1]
            step = next((t for t in following if t not in seen), None)
            if step is None:
                order.append(tensor)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(edges.get(step, ()))))
    return order


# ---------------------------------------------------------------- options


def _options_off(context: Context) -> TranslateOptions:
    """The options of `context` with every inference rule switched on that could matter for this graph."""
    present = dict.fromkeys(node.op_type for node in context.graph.nodes if node.is_standard)
    given = context.options.addtl_ops_to_infer_adjacent_scales
    changes: dict[str, Any] = {
        **inference_options(markers=context.options.target != "gpu"),
        "addtl_ops_to_infer_adjacent_scales": [
            *given,
            *(o for o in _WITHIN_INPUT_RANGE if o in present and o not in given),
        ],
    }
    return dataclasses.replace(context.options, **changes)


def _infer_with(context: Context, options: TranslateOptions) -> ScaleTable:
    table = context.scales.fork()
    for name, scale in table.items():
        if scale.origin.rule in MARKERS:  # no ranges: the rules would take them for some
            table.drop(name)
    infer_scales(dataclasses.replace(context, scales=table, options=options), Diagnostics())
    return table


def _try_options(
    context: Context, options: TranslateOptions
) -> tuple[dict[str, TensorScale], dict[str, dict[str, None]]]:
    """Scales that `options` would add, in the order in which they came, and for each the flags on its way."""
    table = _infer_with(context, options)
    added = {name: scale for name, scale in table.items() if name not in context.scales}
    nodes = {node.name: node for node in context.graph.nodes}
    needs: dict[str, dict[str, None]] = {}
    for tensor, scale in added.items():
        origin, node = scale.origin, nodes.get(scale.origin.node)
        sources = [origin.source]
        if node is not None and origin.source not in table:  # several tensors, whose names may hold what stands between
            sources = [n for n in (*node.inputs, *node.outputs) if n != tensor]
        flags = {flag: None for source in sources for flag in needs.get(source, ())}
        own = _flag(origin.rule, node, context.options) if node is not None else ""
        if own and not (origin.rule == "S5" and origin.source):
            flags[own] = None
        needs[tensor] = flags
    return added, needs


def _flag(rule: str, node: Node, options: TranslateOptions) -> str:
    """What has to be added to the command line for `rule` at `node`; '' if nothing."""
    if rule == "S3" and node.op_type not in (*pass_through.OPS, "Clip"):
        known = node.op_type in options.addtl_ops_to_infer_adjacent_scales
        return "" if known else f"addtl_ops_to_infer_adjacent_scales {node.op_type}"
    switches = RULES[rule].options
    return "" if not switches or any(getattr(options, name) for name in switches) else switches[0]


def command_line(flags: Iterable[str]) -> tuple[str, ...]:
    """Flag names as a user types them; several operators behind one --addtl_ops_to_infer_adjacent_scales."""
    names = set(flags)
    plain = sorted(flag for flag in names if " " not in flag)
    ops = sorted(flag.split(" ")[1] for flag in names if " " in flag)
    extra = [f"--addtl_ops_to_infer_adjacent_scales {' '.join(ops)}"] if ops else []
    return (*(f"--{flag}" for flag in plain), *extra)


def _what_if(
    context: Context,
    plan: list[LayerPlan],
    more: TranslateOptions,
    needs: dict[str, dict[str, None]],
    wanted: dict[str, None],
    cured: dict[str, TensorScale],
) -> list[WhatIf]:
    """Every option that matters alone, then all of them together."""
    flags = dict.fromkeys(flag for tensor, own in needs.items() if tensor in wanted for flag in own)
    singles = dict.fromkeys(flag.split(" ")[0] for flag in flags)
    rows = []
    if len(singles) > 1:
        for name in singles:
            options = dataclasses.replace(context.options, **{name: getattr(more, name)})
            shown = command_line(f for f in flags if f.split(" ")[0] == name)
            rows.append(_count(shown, plan, _infer_with(context, options)))
    if flags:
        table = context.scales.fork()
        for tensor, scale in cured.items():
            table.infer(tensor, scale.value, scale.origin)
        rows.append(_count(command_line(flags), plan, table))
    return rows


def _count(options: tuple[str, ...], plan: list[LayerPlan], table: ScaleTable) -> WhatIf:
    int8 = [
        layer
        for layer in plan
        if layer.precision == INT8 or (layer.surprise and layer.missing and all(t in table for t in layer.missing))
    ]
    return WhatIf(options, len(int8), add_macs(int8), len(table))


def add_macs(layers: Iterable[LayerPlan]) -> Optional[int]:
    """The sum, None as soon as one is unknown."""
    total = 0
    for layer in layers:
        if layer.macs is None:
            return None
        total += layer.macs
    return total


def _group(causes: list[RootCause], plan: list[LayerPlan], root_of: dict[str, str]) -> list[CauseGroup]:
    members: dict[tuple[str, bool], list[RootCause]] = {}
    for cause in causes:
        members.setdefault((cause.op, bool(cause.options)), []).append(cause)
    key_of = {cause.tensor: (cause.op, bool(cause.options)) for cause in causes}
    own: dict[tuple[str, bool], list[LayerPlan]] = {key: [] for key in members}
    spanning: list[tuple[set[tuple[str, bool]], LayerPlan]] = []
    for layer in plan:
        if layer.surprise and layer.missing and all(t in root_of for t in layer.missing):
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


# ---------------------------------------------------------------- words


def _describe(
    context: Context,
    plan: list[LayerPlan],
    root_of: dict[str, str],
    cured: dict[str, TensorScale],
    needs: dict[str, dict[str, None]],
) -> list[RootCause]:
    graph = context.graph
    follows: dict[str, list[str]] = {root: [] for root in root_of.values()}
    for tensor, root in root_of.items():
        if tensor != root:
            follows[root].append(tensor)
    alone: dict[str, list[LayerPlan]] = {root: [] for root in follows}
    shared: dict[str, list[LayerPlan]] = {root: [] for root in follows}
    for layer in plan:
        if not layer.surprise:
            continue
        roots = dict.fromkeys(root_of[t] for t in layer.missing if t in root_of)
        # a layer that makes an unquantized graph output stays in higher precision whatever its inputs get (rule S2)
        gains = len(roots) == 1 and all(t in root_of for t in layer.missing)
        for root in roots:
            (alone if gains else shared)[root].append(layer)
    causes = []
    for root in sorted(follows, key=_graph_order(graph)):
        producer = graph.producer.get(root)
        op = producer.op_type if producer is not None else "graph input"
        tensors = (root, *follows[root])
        options: tuple[str, ...] = ()
        rule = cured[root].origin.rule if root in cured else ""
        if all(t in cured for t in tensors):
            options = command_line(flag for t in tensors for flag in needs[t])
        why = _why(root, context, cured, needs)
        cure = f"translate with {' '.join(options)}" if options else f"quantize '{root}' in the model"
        sentence = (
            f"{_who(alone[root] or shared[root])} because {_what(root, producer)} was never quantized"
            + _evidence(root, context)
        )
        causes.append(
            RootCause(
                root,
                producer.name if producer is not None else "",
                op,
                tuple(follows[root]),
                tuple(layer.name for layer in alone[root]),
                tuple(layer.name for layer in shared[root]),
                add_macs(alone[root]),
                rule,
                options,
                why,
                cure,
                sentence + ".",
            )
        )
    causes.sort(key=lambda cause: -(cause.macs or 0))
    return causes


def _graph_order(graph: Graph) -> Any:
    names = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs)]
    position = {name: index for index, name in enumerate(names)}
    return lambda tensor: position.get(tensor, len(position))


def _what(tensor: str, producer: Optional[Node]) -> str:
    return (
        f"graph input '{tensor}'"
        if producer is None
        else f"'{tensor}', output of {producer.op_type} '{producer.name}',"
    )


def _who(layers: list[LayerPlan]) -> str:
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


def _evidence(tensor: str, context: Context) -> str:
    """What around the tensor is quantized: ' (its reader Add '/m/Add' has a scale on its output)'."""
    for reader in context.graph.consumers(tensor):
        others = [n for n in reader.inputs if n != tensor and n in context.scales]
        if others:
            return f" (the other operand of its reader {reader.op_type} '{reader.name}' is)"
    for reader in context.graph.consumers(tensor):
        if any(n in context.scales for n in reader.outputs):
            return f" (the output of its reader {reader.op_type} '{reader.name}' is)"
    return ""


def _why(tensor: str, context: Context, cured: dict[str, TensorScale], needs: dict[str, dict[str, None]]) -> str:
    """Which rule would give the tensor a scale and why it did not."""
    producer = context.graph.producer.get(tensor)
    if tensor in cured:
        origin = cured[tensor].origin
        missing = " and ".join(command_line(needs[tensor]))
        return f"rule {origin.rule} at '{origin.node}' would give it with {missing}"
    if tensor in context.graph.outputs:
        return "it is a graph output, which no rule gives a scale (S2)"
    made = "the graph input was not quantized" if producer is None else f"no rule follows a {producer.op_type} forward"
    if producer is not None and producer.op_type in rules_by_op(all_rules(context.options)):
        made = f"the rule of {producer.op_type} has nothing to start from"
    readers = list(dict.fromkeys(reader.op_type for reader in context.graph.consumers(tensor)))
    if not readers:
        return made
    verb = "has" if len(readers) == 1 else "have"
    return f"{made}, and its readers' operator{'s' * (len(readers) > 1)} ({', '.join(readers[:3])}) {verb} none to hand back"
