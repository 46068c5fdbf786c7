"""Report on the inferred scales: one diagnostic per rule, for any number of tensors."""

from __future__ import annotations

from typing import Iterable, List, Tuple

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.parsing import did_you_mean
from qdq_translator.core.words import counted, others
from qdq_translator.scales.inference import self_gated
from qdq_translator.scales.inference.context import LOWER_BOUND, Context
from qdq_translator.scales.table import TensorScale

TOLD_SHARE = 0.1
"""What a saturating SiLU input may add to the output, as a share of the output's range, before it is told."""


def report_inferred(context: Context, unary: list[str], diagnostics: Diagnostics) -> None:
    """unary: tensors that got the unary scale of rule S9."""
    _report_unknown_operators(context, diagnostics)
    _report_unary(unary, context, diagnostics)
    noted = [(name, s) for name, s in context.scales.items() if s.origin.note or s.origin.rule == "S5"]
    _report_clipped(noted, context, diagnostics)
    _report_lifted(noted, context, diagnostics)
    _report_swallowed(context, diagnostics)


def _named(tensors: Iterable[str]) -> str:
    """'a', 'b', 'c' and 4 more."""
    names = [f"'{name}'" for name in tensors]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _report_unknown_operators(context: Context, diagnostics: Diagnostics) -> None:
    """Operators that the user named and the model does not have: a misspelt one would do nothing, in silence."""
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
    if not given:
        return
    on_gpu = not context.for_dla
    (diagnostics.warning if on_gpu else diagnostics.info)(
        "S9",
        f"{len(given)} Conv outputs before an Add got the unary scale 1.0; values above 127 saturate where TensorRT does "
        "not fuse the two" + (", and a GPU engine may apply it literally." if on_gpu else "."),
        tensor=given[0],
        hint="Leave --add_unary_ew_scales_for_dla out for GPU engines." if on_gpu else "",
        data={"tensors": given},
    )


_Noted = List[Tuple[str, TensorScale]]
"""Scales about which there is something to say, by tensor."""


def _report_clipped(noted: _Noted, context: Context, diagnostics: Diagnostics) -> None:
    """Scales that are lower bounds, rule by rule."""
    clipped: dict[str, list[str]] = {}
    for name, scale in noted:
        if scale.origin.note == LOWER_BOUND or (scale.origin.rule == "S5" and scale.origin.source):
            clipped.setdefault(scale.origin.rule, []).append(name)
    for rule, tensors in clipped.items():
        diagnostics.warning(
            rule,
            f"The scale of {_named(tensors)} is a lower bound: larger values are clipped.",
            tensor=tensors[0],
            node=context.scales[tensors[0]].origin.node,
            hint="Quantize the tensor in the model"
            + ("." if context.policy.mode == "sound" else ", or translate with --inference sound."),
            data={"tensors": tensors},
        )


def _report_lifted(noted: _Noted, context: Context, diagnostics: Diagnostics) -> None:
    """Inputs of a SiLU or HardSwish whose saturation below shows in the output (rule S8)."""
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
            f"Inputs of {counted(len(lifted), 'activation')} (SiLU, HardSwish) saturate for small outputs: of '{worst}' "
            f"{origin.note.partition('; ')[2]}, which is {100 * shares[worst]:.0f}% of the output's range.",
            tensor=worst,
            node=origin.node,
            hint="Quantize the activation's input in the model if that matters.",
            data={"tensors": lifted},
        )


def _report_swallowed(context: Context, diagnostics: Diagnostics) -> None:
    """Inputs of a Concat all of whose values the model's own scale behind it rounds to 0 (rule C3)."""
    lost: dict[str, str] = {}
    for node in context.graph.nodes:
        behind = context.scales.get(node.outputs[0]) if node.is_op("Concat") else None
        if behind is None or not behind.explicit:
            continue
        for name in node.inputs:
            amax = context.amax(name)
            if amax is not None and amax < behind.value / 2:
                lost[name] = node.outputs[0]
    if lost:
        first, concat = next(iter(lost.items()))
        diagnostics.warning(
            "C3",
            f"Every value of '{first}' becomes 0: the model quantizes '{concat}', a Concat of it, with a step of "
            f"{context.scales[concat].value:.3g}, and '{first}' is at most {context.amax(first):.3g}{others(lost, ' ({} more like that)')}.",
            tensor=first,
            node=context.graph.producer[concat].name,
            hint="Quantize without the layers behind the network's last convolutions, a decode tail ('qdq-translator split -i' finds "
            "them), or leave the Concat unquantized.",
            data={"tensors": lost},
        )
