"""Scale inference (docs/rules.md): formulas in phases (`phases`), each run to a fixed point (rule S4)."""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import SPATIAL_MEANS
from qdq_translator.scales.inference import formulas, pass_through, self_gated
from qdq_translator.scales.inference.context import Context, Policy
from qdq_translator.scales.inference.formulas import add_unary_scales
from qdq_translator.scales.inference.report import report_inferred

__all__ = ["Context", "Observe", "Policy", "all_rules", "infer_scales", "rules_by_op"]

Observe = Callable[[Context], bool]
"""Gives scales from data (rule K1) through `Context.give`: one, several, or none; True if it gave any."""


def infer_scales(context: Context, diagnostics: Diagnostics, observe: Optional[Observe] = None) -> int:
    """Fill the scale table; return the number of added scales.

    Every phase runs forward in topological order, then backward in reverse order, until nothing changes. The first rule
    that gives a tensor a scale wins; explicit scales never change. observe: called after the exact rules until it has
    nothing more to give; the exact rules propagate its scales first.
    """
    before = len(context.scales)
    exact, *guesses = phases(context.policy)
    _to_rest(exact, context)
    while observe is not None and observe(context):
        _to_rest(exact, context)
    rules = exact
    for guess in guesses:
        if guess:
            rules = (*rules, *guess)
            _to_rest(rules, context)
    unary_scales = add_unary_scales(context) if "add_unary_ew_scales_for_dla" in context.policy.on else []
    report_inferred(context, unary_scales, diagnostics)
    return len(context.scales) - before


def _to_rest(rules: tuple[ScaleRule, ...], context: Context) -> None:
    by_op = rules_by_op(rules)
    work: Sequence[tuple[Node, list[ScaleRule]]] = [
        (node, by_op[node.op_type]) for node in context.graph.nodes if node.op_type in by_op and node.inputs
    ]
    changed = True
    while changed:
        changed = False
        for derived in context.derived:
            changed |= derived.apply(context)
        for node, own in work:
            for rule in own:
                changed |= rule.forward is not None and rule.forward(node, context)
        for node, own in reversed(work):
            for rule in own:
                changed |= rule.backward is not None and rule.backward(node, context)


# ---------------------------------------------------------------- phases

"""Which scale rules are on, and in which order: each phase is run to a fixed point (rule S4) before the next one begins.

A tensor keeps the first scale that it gets (S1), so the order is what decides. Exact rules come first: what they give
follows from the model's own scales, and nothing that is guessed may take its place. Then what is observed on data (rule K1:
`infer_scales` takes it as a function), because an observation is better than any bound; with it known, the exact rules go
on. Then the guesses: bounds by definition (B1), sums (S11), products (S8) and means (S6), which are upper bounds and cost
resolution only; last a Concat some of whose inputs stay unknown (S7), a lower bound. All earlier rules stay on in a later
phase.
Unary scales (S9) are no ranges: they are added behind all phases, so that no rule builds on them.

`--inference reference` is NVIDIA's order and NVIDIA's formulas, lower bounds included, in one phase.
"""


Apply = Callable[[Node, Context], bool]


@dataclasses.dataclass(frozen=True)
class ScaleRule:
    """A scale rule. flag: the field of TranslateOptions that enables it, '' if always on. forward, backward: give
    scales to the outputs (inputs) of one node of `ops`; True if they did."""

    flag: str
    ops: tuple[str, ...]
    forward: Optional[Apply] = None
    backward: Optional[Apply] = None


HANDED_ON = ScaleRule("", pass_through.OPS, pass_through.forward, pass_through.backward)
CLIP = ScaleRule("", ("Clip",), formulas.clip_forward, formulas.clip_backward)
CONCAT = ScaleRule("infer_concat_scales", ("Concat",), formulas.concat_forward, formulas.concat_backward)
CONCAT_PARTLY = ScaleRule("infer_concat_scales", ("Concat",), formulas.concat_partly_forward, formulas.concat_backward)
SELF_GATED = ScaleRule("infer_mul_scales", self_gated.OPS, self_gated.forward, self_gated.backward)
BY_CONSTANT = ScaleRule("infer_mul_scales", ("Mul", "Div"), formulas.constant_forward, formulas.constant_backward)
LEAKY = ScaleRule("infer_mul_scales", ("LeakyRelu", "PRelu"), backward=formulas.leaky_backward)
LEAKY_OUTPUT = ScaleRule("infer_mul_scales", LEAKY.ops, formulas.leaky_forward)
SIGMOID = ScaleRule("infer_mul_scales", ("Sigmoid",), formulas.sigmoid_forward)
BOUNDS = ScaleRule("infer_bounds", (*formulas.WITHIN_ONE, "Clip"), formulas.bound_forward)
SUMS = ScaleRule("infer_add_scales", ("Add", "Sub", "Sum"), formulas.sum_forward, formulas.sum_backward)
PRODUCTS = ScaleRule("infer_mul_scales", ("Mul",), formulas.product_forward)
MEANS = ScaleRule("infer_average_pool_scales", SPATIAL_MEANS, formulas.mean_forward)
AVERAGED = ScaleRule("infer_average_pool_scales", SPATIAL_MEANS, backward=formulas.mean_reference_backward)
QUOTIENTS = ScaleRule("infer_mul_scales", ("Mul",), backward=formulas.product_reference_backward)
INVERSE_SIGMOID = ScaleRule("", ("Sigmoid",), backward=formulas.sigmoid_reference_backward)

PHASES: dict[str, tuple[tuple[ScaleRule, ...], ...]] = {
    "sound": (
        (HANDED_ON, CLIP, CONCAT, SELF_GATED, LEAKY, BY_CONSTANT),
        (SIGMOID, BOUNDS, LEAKY_OUTPUT),
        (SUMS,),
        (PRODUCTS,),
        (MEANS,),
        (CONCAT_PARTLY,),
    ),
    "reference": (
        (HANDED_ON, CLIP, CONCAT_PARTLY, SIGMOID, INVERSE_SIGMOID, PRODUCTS, QUOTIENTS, MEANS, AVERAGED),
        (BOUNDS,),
        (SUMS,),
    ),
}
"""`--inference` -> its phases; data (K1) come behind the first."""


def phases(policy: Policy) -> tuple[tuple[ScaleRule, ...], ...]:
    """The phases of `policy.mode` with the rules that are on. Operators that the user names
    (`--addtl_ops_to_infer_adjacent_scales`) are passed through and have no other rule; Clip and Concat keep theirs."""
    named = set(policy.passed)
    passed = tuple(sorted(named - {*CLIP.ops, *CONCAT.ops} - {*HANDED_ON.ops}))

    def switched(rule: ScaleRule) -> ScaleRule:
        if rule is HANDED_ON:
            return dataclasses.replace(rule, ops=(*rule.ops, *passed))
        return dataclasses.replace(rule, ops=tuple(op for op in rule.ops if op not in passed))

    def is_on(rule: ScaleRule) -> bool:
        return not rule.flag or rule.flag in policy.on or (rule in (CONCAT, CONCAT_PARTLY) and "Concat" in named)

    return tuple(tuple(switched(rule) for rule in phase if is_on(rule)) for phase in PHASES[policy.mode])


def rules_by_op(rules: tuple[ScaleRule, ...]) -> dict[str, list[ScaleRule]]:
    """ONNX operator -> the rules that hold for it, in their order."""
    by_op: dict[str, list[ScaleRule]] = {}
    for rule in rules:
        for op in rule.ops:
            by_op.setdefault(op, []).append(rule)
    return by_op


def all_rules(policy: Policy) -> tuple[ScaleRule, ...]:
    """The rules of all phases, in order."""
    return tuple(rule for phase in phases(policy) for rule in phase)
