"""The gain of further scales and options on a DLA: milliseconds of each layer that lacks a scale, and options,
evaluated one by one and all together, ranked by gain."""

from __future__ import annotations

from typing import Any, Callable, Optional

from qdq_translator.core.formats.report_rows import WhatIf
from qdq_translator.core.options import flags_of
from qdq_translator.core.rules import inference_options
from qdq_translator.translation.planning.decision import Decision
from qdq_translator.translation.targets.cost.estimate import CostPlan
from qdq_translator.translation.targets.dla.limits import DLA_FP16, DLA_INT8, NO_SCALE
from qdq_translator.translation.targets.dla.verdicts import DlaPlan
from qdq_translator.translation.targets.precision import add_macs


def what_if_on_dla(
    now: Decision, decide_with: Callable[[dict[str, Any]], Decision], may_rewrite: bool, may_approximate: bool
) -> list[WhatIf]:
    """Single options with a gain, best first, then all together if they gain more. decide_with: decides for the model
    with changed options. may_rewrite, may_approximate: whether to include `--dla_rewrites`, for which the passes run
    again, and `--dla_rewrites approximate`."""
    base = _row((), now)
    candidates = _candidates(now, may_rewrite, may_approximate)
    singles: list[tuple[dict[str, Any], WhatIf]] = []
    for change in candidates:
        row = _row(tuple(flags_of(change)), decide_with(change))
        if _gain(row, base) > _gain(base, base):
            singles.append((change, row))
    singles.sort(key=lambda pair: _gain(pair[1], base), reverse=True)
    rows = [row for _, row in singles]
    everything = {name: value for change in candidates for name, value in change.items()}
    if len(everything) > 1:
        together = _row(tuple(flags_of(everything)), decide_with(everything))
        if all(_gain(together, base) > _gain(row, base) for row in (base, *rows)):
            rows.append(together)
    return rows


def _candidates(now: Decision, may_rewrite: bool, may_approximate: bool) -> list[dict[str, Any]]:
    """Options that are off and could matter for this network."""
    policy = now.context.policy
    changes: list[dict[str, Any]] = []
    if any(layer.missing for layer in now.plan):
        changes += [{name: True} for name in inference_options(markers=True) if name not in policy.on]
    if now.shared and not policy.unifies:
        changes.append({"unify_scales": "max"})
    if now.dla is not None and now.dla.fallbacks and may_rewrite:
        changes.append({"dla_rewrites": True})
    if now.dla is not None and may_approximate and any(layer.op == "Erf" for layer in now.dla.fallbacks):
        changes.append({"dla_rewrites": "approximate"})
    return changes


def _row(flags: tuple[str, ...], decision: Decision) -> WhatIf:
    int8 = [row for row in decision.plan if row.runs == DLA_INT8]
    lost = [ranges.bits_lost(ranges.worst) for ranges in decision.shared if ranges.raised]
    return WhatIf(
        flags,
        len(int8),
        add_macs(int8),
        len(decision.context.scales),
        0 if decision.dla is None else len(decision.dla.fallbacks),
        None if decision.costs is None or decision.costs.ends is None else decision.costs.ends[1],
        max(lost, default=0.0),
    )


def _gain(row: WhatIf, base: WhatIf) -> tuple[float, int, int, int]:
    """Less time, fewer GPU layers, more MACs and layers in INT8, in this order."""
    known = row.milliseconds is not None and base.milliseconds is not None
    return (
        round((base.milliseconds or 0.0) - (row.milliseconds or 0.0), 6) if known else 0.0,
        (base.gpu_layers or 0) - (row.gpu_layers or 0),
        (row.int8_macs or 0) - (base.int8_macs or 0),
        row.int8_layers - base.int8_layers,
    )


def saved_by_scales(dla: DlaPlan, costs: CostPlan) -> Optional[dict[str, float]]:
    """Layer that only a missing scale keeps in FP16 -> milliseconds that INT8 would save; None if there is no
    estimate."""
    if costs.milliseconds is None:
        return None
    # nodes fused behind an INT8 convolution may have either precision, so only the first node of a layer counts
    return {
        # not below 0: small tensors, which INT8 pads to 32 channels, can be estimated slightly slower
        verdict.name: max(0.0, (cost.fp16_milliseconds or 0.0) - (cost.int8_milliseconds or 0.0))
        for verdict, cost in zip(dla.layers, costs.layers)
        if cost is not None
        and not cost.fused_into
        and verdict.verdict == DLA_FP16
        and {finding.limit for finding in verdict.findings} == {NO_SCALE.id}
    }
