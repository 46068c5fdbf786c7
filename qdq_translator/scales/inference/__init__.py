"""Scale inference (docs/rules.md): formulas, in phases (`phases`), each run to a fixed point (rule S4)."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.ir.graph import Node
from qdq_translator.scales.inference.context import Context, Policy
from qdq_translator.scales.inference.formulas import add_unary_scales
from qdq_translator.scales.inference.phases import ScaleRule, all_rules, phases, rules_by_op
from qdq_translator.scales.inference.report import report_inferred

__all__ = ["Context", "Observe", "Policy", "all_rules", "infer_scales", "rules_by_op"]

Observe = Callable[[Context], bool]
"""Gives scales from data (rule K1) through `Context.give`: one, several, or none; True if it gave any."""


def infer_scales(context: Context, diagnostics: Diagnostics, observe: Optional[Observe] = None) -> int:
    """Fills the scale table; returns the number of scales that were added.

    In every phase forward in topological order, then backward in reverse order, until nothing changes. The first rule that
    gives a tensor a scale wins; explicit scales are never touched. observe: asked behind the exact rules, again and again
    until it has nothing more to give; what it gives, the exact rules hand on first.
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
