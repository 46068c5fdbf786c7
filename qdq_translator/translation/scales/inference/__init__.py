"""Scale inference (docs/rules.md): formulas in phases (`phases`), each run to a fixed point (rule S4)."""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, List, Optional, Tuple

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.words import counted, listed, others
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import SPATIAL_MEANS
from qdq_translator.translation.scales.inference import formulas, pass_through, readers, self_gated
from qdq_translator.translation.scales.inference.context import LOWER_BOUND, Context, Policy
from qdq_translator.translation.scales.inference.formulas import add_unary_scales, hand_on
from qdq_translator.translation.scales.table import TensorScale

__all__ = ["Context", "Observe", "Policy", "all_rules", "infer_scales", "rules_by_op"]

Observe = Callable[[Context], bool]
"""Gives any number of scales from data (rule K1) through `Context.give`; True if it gave any."""


def infer_scales(context: Context, diagnostics: Diagnostics, observe: Optional[Observe] = None) -> None:
    """Fill the scale table. Every phase runs forward in topological order, then backward in reverse order, until
    nothing changes. The first rule that gives a tensor a scale wins; explicit scales never change. observe: called
    after the exact rules until it gives no more scales; the exact rules propagate its scales after each call."""
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
    _report_unknown_operators(context, diagnostics)
    _report_unary(unary_scales, context, diagnostics)
    noted = [(name, s) for name, s in context.scales.items() if s.origin.note or s.origin.rule == "S5"]
    _report_clipped(noted, context, diagnostics)
    _report_lifted(noted, context, diagnostics)
    _report_swallowed(context, diagnostics)
    _report_bounds(context, diagnostics)


def _to_rest(rules: tuple[ScaleRule, ...], context: Context) -> None:
    by_op = rules_by_op(rules)
    nodes = [node for node in context.graph.nodes if node.inputs]
    forward = [(rule.forward, node) for node in nodes for rule in by_op.get(node.op_type, ())]
    backward = [(rule.backward, node) for node in reversed(nodes) for rule in by_op.get(node.op_type, ())]
    changed = True
    while changed:
        changed = False
        for derived in context.derived:
            changed |= derived.apply(context)
        for apply, node in (*forward, *backward):
            changed |= apply is not None and apply(node, context)


# ---------------- phases

Apply = Callable[[Node, Context], bool]


@dataclasses.dataclass(frozen=True)
class ScaleRule:
    """A scale rule. flag: the field of TranslateOptions that enables it, '' if always on. forward, backward: give
    scales to the outputs (inputs) of one node of `ops`; True if they did."""

    flag: str
    ops: tuple[str, ...]
    forward: Optional[Apply] = None
    backward: Optional[Apply] = None


HANDED_ON = ScaleRule("", pass_through.OPS, pass_through.forward, readers.backward)
CLIP = ScaleRule("", ("Clip",), formulas.clip_forward, readers.backward)
CONCAT = ScaleRule("infer_concat_scales", ("Concat",), formulas.concat_forward, formulas.concat_backward)
CONCAT_PARTLY = ScaleRule("infer_concat_scales", ("Concat",), formulas.concat_partly_forward, formulas.concat_backward)
SELF_GATED = ScaleRule("infer_mul_scales", self_gated.OPS, self_gated.forward, self_gated.backward)
BY_CONSTANT = ScaleRule("infer_mul_scales", ("Mul", "Div"), formulas.constant_forward, formulas.constant_backward)
LEAKY = ScaleRule("infer_mul_scales", ("LeakyRelu", "PRelu"), backward=formulas.leaky_backward)
LEAKY_OUTPUT = ScaleRule("infer_mul_scales", LEAKY.ops, hand_on("S12", note="an upper bound", where=formulas.has_slope))
SATURATING = ScaleRule("infer_bounds", ("Tanh", "Sigmoid", "HardSigmoid"), backward=formulas.saturating_backward)
SIGMOID = ScaleRule("infer_mul_scales", ("Sigmoid",), formulas.sigmoid_forward)
BOUNDS = ScaleRule("infer_bounds", (*formulas.WITHIN_ONE, "Clip"), formulas.bound_forward)
SUMS = ScaleRule("infer_add_scales", ("Add", "Sub", "Sum"), formulas.sum_forward, formulas.sum_backward)
PRODUCTS = ScaleRule("infer_mul_scales", ("Mul",), formulas.product_forward)
MEANS = ScaleRule("infer_average_pool_scales", SPATIAL_MEANS, hand_on("S6", where=formulas.is_spatial_mean))
AVERAGED = ScaleRule(MEANS.flag, MEANS.ops, backward=hand_on("S6", True, LOWER_BOUND, formulas.is_spatial_mean))
QUOTIENTS = ScaleRule("infer_mul_scales", ("Mul",), backward=formulas.product_reference_backward)
INVERSE_SIGMOID = ScaleRule("", ("Sigmoid",), backward=formulas.sigmoid_reference_backward)

PHASES: dict[str, tuple[tuple[ScaleRule, ...], ...]] = {
    "sound": (
        (HANDED_ON, CLIP, CONCAT, SELF_GATED, LEAKY, BY_CONSTANT),
        (SIGMOID, BOUNDS, LEAKY_OUTPUT, SATURATING),
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
"""`--inference` -> its phases, each run to a fixed point before the next one begins (rule S4).

A tensor keeps the first scale that it gets (S1), so the order decides. Exact rules come first: their scales follow from
the model's own, and no estimate may replace them. Then scales are observed on data (rule K1, the `observe` of
`infer_scales`), because an observation is better than any bound, and the exact rules propagate them. Then come bounds
by definition (B1), sums (S11), products (S8) and means (S6), upper bounds that only cost resolution; last a Concat with
inputs that stay unknown (S7), a lower bound. All earlier rules stay on in a later phase. Unary scales (S9) are not
ranges: they are added after all phases, so that no rule uses them.

`--inference reference` is NVIDIA's order and NVIDIA's formulas, lower bounds included, in one phase.
"""


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
    """ONNX operator -> its rules, in order."""
    by_op: dict[str, list[ScaleRule]] = {}
    for rule in rules:
        for op in rule.ops:
            by_op.setdefault(op, []).append(rule)
    return by_op


def all_rules(policy: Policy) -> tuple[ScaleRule, ...]:
    """The rules of all phases, in order."""
    return tuple(rule for phase in phases(policy) for rule in phase)


# ---------------- the report: one diagnostic per rule, for any number of tensors


DOUBTFUL = 1.0
"""Bits of slack from which a bound is reported."""
TOLD_SHARE = 0.1
"""Largest error of the output by a saturating SiLU input that is not reported, as a share of the output's range."""


def _report_unknown_operators(context: Context, diagnostics: Diagnostics) -> None:
    """Report operators that the user named and the model does not have: a misspelt one would silently do nothing."""
    if not context.policy.passed:
        return
    present = dict.fromkeys(node.op_type for node in context.graph.nodes)
    absent = [op for op in context.policy.passed if op not in present]
    if absent:
        near = dict.fromkeys(filter(None, (did_you_mean(op, present) for op in absent)))
        (diagnostics.warning if near else diagnostics.info)(
            "S3",
            f"The model has no {' or '.join(absent)} operator, which --addtl_ops_to_infer_adjacent_scales names.",
            hint=" ".join(near) or f"It has {', '.join(sorted(present))}.",
            data={"operators": absent},
        )


def _report_unary(given: list[str], context: Context, diagnostics: Diagnostics) -> None:
    """Report the scales of rule S9."""
    if not given:
        return
    on_gpu = not context.policy.for_dla
    (diagnostics.warning if on_gpu else diagnostics.info)(
        "S9",
        f"{len(given)} Conv outputs before an Add got the unary scale 1.0; values above 127 saturate where TensorRT "
        "does not fuse the two" + (", and a GPU engine may apply it literally." if on_gpu else "."),
        tensor=given[0],
        hint="Leave --add_unary_ew_scales_for_dla out for GPU engines." if on_gpu else "",
        data={"tensors": given},
    )


_Noted = List[Tuple[str, TensorScale]]
"""Scales with a note to report, by tensor."""


def _report_clipped(noted: _Noted, context: Context, diagnostics: Diagnostics) -> None:
    """Report scales that are lower bounds, one diagnostic per rule."""
    clipped: dict[str, list[str]] = {}
    for name, scale in noted:
        if scale.origin.note == LOWER_BOUND or (scale.origin.rule == "S5" and scale.origin.source):
            clipped.setdefault(scale.origin.rule, []).append(name)
    for rule, tensors in clipped.items():
        names = listed([f"'{name}'" for name in tensors], 3)
        diagnostics.warning(
            rule,
            f"The scale of {names} is a lower bound: larger values are clipped.",
            tensor=tensors[0],
            node=context.scales[tensors[0]].origin.node,
            hint="Quantize the tensor in the model"
            + ("." if context.policy.mode == "sound" else ", or translate with --inference sound."),
            data={"tensors": tensors},
        )


def _report_lifted(noted: _Noted, context: Context, diagnostics: Diagnostics) -> None:
    """Report inputs of a SiLU or HardSwish whose saturation of negative values changes the output noticeably (rule
    S8)."""
    given = {s.origin.node: (name, s) for name, s in noted if s.origin.note.startswith(self_gated.NOTE)}
    shares: dict[str, float] = {}
    for node in context.graph.nodes if given else ():
        found = self_gated.parts(node, context) if node.name in given else None
        if found is not None:
            name, scale = given[node.name]
            shares[name] = -found[2].product(-scale.amax) / context.scales[scale.origin.source].amax
    lifted = [name for name, share in shares.items() if share > TOLD_SHARE]
    if lifted:
        worst = max(lifted, key=lambda name: shares[name])
        origin = context.scales[worst].origin
        diagnostics.info(
            "S8",
            f"Inputs of {counted(len(lifted), 'activation')} (SiLU, HardSwish) saturate for small outputs: of "
            f"'{worst}' {origin.note.partition('; ')[2]}, which is {100 * shares[worst]:.0f}% of the output's range.",
            tensor=worst,
            node=origin.node,
            hint="Quantize the activation's input in the model if that matters.",
            data={"tensors": lifted},
        )


def _report_bounds(context: Context, diagnostics: Diagnostics) -> None:
    """Report bounds that are probably much wider than the values, in one line (rule S14)."""
    wide = {name: bits for name, bits in context.slack.items() if name in context.scales and bits >= DOUBTFUL}
    unused = {name: bits for name, bits in context.slack.items() if name in context.withheld}
    said = []
    if wide:
        worst = max(wide, key=lambda name: wide[name])
        said.append(
            f"the ranges of {counted(len(wide), 'tensor')} are bounds, not data: that of '{worst}' is "
            f"probably {wide[worst]:.1f} bits too wide"
        )
    if unused:
        first = next(iter(unused))
        said.append(f"{counted(len(unused), 'tensor')} got no scale, because {context.withheld[first]} ('{first}')")
    if said:
        text = "; ".join(said)
        diagnostics.info(
            "S14",
            f"{text[0].upper()}{text[1:]}.",
            tensor=next(iter({**unused, **wide})),
            hint="The same translation with --calibrate DATA measures them.",
            data={"bits": {**wide, **unused}},
        )


def _stated(context: Context, name: str) -> str:
    """The tensor whose scale the model states and a tensor has: itself or, behind a clamp of its quantizer (rule Q9) or
    other readers that hand scales on (rule S3), what they make of it; '' if there is none."""
    while name in context.scales and not context.scales[name].explicit:
        origin = context.scales[name].origin
        name = origin.source if origin.rule == "S3" and origin.source != name else ""
    return name if name in context.scales else ""


def _report_swallowed(context: Context, diagnostics: Diagnostics) -> None:
    """Report inputs of a Concat that become all 0 on the model's own scale of its output (rule C3)."""
    lost: dict[str, str] = {}
    for node in context.graph.of("Concat"):
        stated = _stated(context, node.outputs[0])
        least = context.scales[stated].value / 2 if stated else 0.0
        lost.update((name, stated) for name in node.inputs if (context.amax(name) or math.inf) < least)
    if lost:
        first, concat = next(iter(lost.items()))
        diagnostics.warning(
            "C3",
            f"Every value of '{first}' becomes 0: the model quantizes '{concat}', a Concat of it, with a step of "
            f"{context.scales[concat].value:.3g}, and '{first}' is at most "
            f"{context.amax(first):.3g}{others(lost, ' ({} more like that)')}.",
            tensor=first,
            node=context.graph.producer[concat].name,
            hint="Quantize without the layers behind the network's last convolutions, a decode tail ('qdq-translator "
            "split -i' finds them), or leave the Concat unquantized.",
            data={"tensors": lost},
        )
