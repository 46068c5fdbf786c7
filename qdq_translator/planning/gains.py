"""The time on a DLA that missing scales cost: root causes with their gain in milliseconds, largest first."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Sequence

from qdq_translator.planning.root_causes import RootCauses, add_macs
from qdq_translator.targets.cost.estimate import CostPlan, LayerCost
from qdq_translator.targets.dla.limits import DLA_FP16, NO_SCALE
from qdq_translator.targets.dla.verdicts import DlaPlan, Verdict
from qdq_translator.targets.precision import LayerPlan


def with_milliseconds(causes: RootCauses, plan: Sequence[LayerPlan], dla: DlaPlan, costs: CostPlan) -> RootCauses:
    """`causes` ranked by the time that they gain; as they are where there is no estimate."""
    if costs.milliseconds is None:
        return causes
    waiting = _Waiting(dla, costs)
    rows = [dataclasses.replace(cause, milliseconds=waiting.gained(cause.layers)) for cause in causes.causes]
    roots = [
        (layer, {causes.root_of[t] for t in layer.missing})
        for layer in plan
        if layer.avoidable and layer.missing and all(t in causes.root_of for t in layer.missing)
    ]
    gains = {
        group.tensors: waiting.gained(layer.name for layer, own in roots if own <= set(group.tensors))
        for group in causes.groups
    }
    groups, so_far = [], set()
    for group in sorted(causes.groups, key=lambda group: -gains[group.tensors]):
        so_far |= set(group.tensors)
        together = add_macs(layer for layer, own in roots if own <= so_far)
        groups.append(dataclasses.replace(group, milliseconds=gains[group.tensors], total_macs=together))
    return dataclasses.replace(
        causes, causes=sorted(rows, key=lambda cause: -(cause.milliseconds or 0.0)), groups=groups
    )


class _Waiting:
    """Layers of the DLA that run in FP16 only because of a missing scale: what the first node of each waits for, because
    what is fused behind a convolution in INT8 may be in either precision."""

    def __init__(self, dla: DlaPlan, costs: CostPlan) -> None:
        self.gain = {
            verdict.name: _gain(cost)
            for verdict, cost in zip(dla.layers, costs.layers)
            if cost is not None and not cost.fused_into and _waits(verdict)
        }

    def gained(self, names: Iterable[str]) -> float:
        """Milliseconds if these nodes had their scales."""
        return sum(self.gain.get(name, 0.0) for name in names)


def _gain(cost: LayerCost) -> float:
    """Not below 0: small tensors, which INT8 pads to 32 channels, can be estimated a hair slower."""
    return max(0.0, (cost.fp16_milliseconds or 0.0) - (cost.int8_milliseconds or 0.0))


def _waits(verdict: Verdict) -> bool:
    """In FP16 because of a missing scale alone."""
    return verdict.verdict == DLA_FP16 and {f.limit.id for f in verdict.findings} == {NO_SCALE.id}
