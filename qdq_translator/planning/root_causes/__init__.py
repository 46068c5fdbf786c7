"""Root causes of layers above INT8: the few tensors behind many missing scales, and the options that give them one.

A missing tensor is a *root* if no scale rule would give it a scale even if the other roots had theirs. Each tensor is tried alone on a
copy of the scale table, with a nominal scale; then roots are selected, sources first, each with all tensors that follow from it. The set is
the smallest possible if every rule needs only one known tensor, else (Mul, parallel Slices) a small one. The time is linear in the graph.
Cures: the same inference with further options. A root that gets its scale this way is cured by them; any other root by data (rule K1) if
the data can give one, or by quantizing it in the model.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Tuple

from qdq_translator.core.formats.report_rows import CauseGroup, RootCause
from qdq_translator.planning.root_causes import cures
from qdq_translator.planning.root_causes.roots import Roots, evidence, what, who, why_not
from qdq_translator.scales.inference import Context
from qdq_translator.scales.inference.formulas import inside_normalizations
from qdq_translator.scales.table import TensorScale
from qdq_translator.targets.precision import LayerPlan

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
    alone: dict[str, list[LayerPlan]] = {root: [] for root in follows}
    shared: dict[str, list[LayerPlan]] = {root: [] for root in follows}
    for layer in plan:
        if not layer.avoidable:
            continue
        roots = dict.fromkeys(root_of[t] for t in layer.missing if t in root_of)
        # a layer that makes an unquantized graph output stays in higher precision whatever its inputs get (rule S2)
        gains = len(roots) == 1 and all(t in root_of for t in layer.missing)
        for root in roots:
            (alone if gains else shared)[root].append(layer)
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
                cures.add_macs(alone[root]),
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
    order = sorted(members, key=lambda key: (-(cures.add_macs(own[key]) or 0), -len(own[key])))
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
                cures.add_macs(own[key]),
                cures.add_macs(layer for keys, layer in spanning if keys <= done),
            )
        )
    return groups
