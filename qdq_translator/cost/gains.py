"""What missing scales cost in time on a DLA: root causes with the milliseconds that they would gain, the largest first."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Sequence

from qdq_translator.cost.estimate import CostPlan, LayerCost
from qdq_translator.precision import LayerPlan
from qdq_translator.root_causes import RootCauses, add_macs
from qdq_translator.targets.dla.limits import DLA_FP16, NO_SCALE
from qdq_translator.targets.dla.verdicts import DlaPlan, Verdict


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
    """Layers of the DLA that run in FP16 for want of a scale and nothing else, with the nodes that wait for one."""

    def __init__(self, dla: DlaPlan, costs: CostPlan) -> None:
        self.layer_of: dict[str, str] = {}
        self.nodes: dict[str, int] = {}
        self.gain: dict[str, float] = {}
        limited: set[str] = set()
        for verdict, cost in zip(dla.layers, costs.layers):
            if cost is None:
                continue
            name = cost.fused_into or verdict.name
            if not cost.fused_into:
                self.gain[name] = _gain(cost) if verdict.verdict == DLA_FP16 else 0.0
            if _waits(verdict):
                self.layer_of[verdict.name] = name
                self.nodes[name] = self.nodes.get(name, 0) + 1
            elif verdict.verdict == DLA_FP16 and not cost.fused_into:
                limited.add(name)
        for name in limited:
            self.gain[name] = 0.0

    def gained(self, names: Iterable[str]) -> float:
        """Milliseconds if these nodes had their scales: of the layers that then wait for nothing more."""
        counts: dict[str, int] = {}
        for name in names:
            layer = self.layer_of.get(name)
            if layer is not None:
                counts[layer] = counts.get(layer, 0) + 1
        return sum(self.gain[layer] for layer, count in counts.items() if count == self.nodes[layer])


def _gain(cost: LayerCost) -> float:
    return (cost.fp16_milliseconds or 0.0) - (cost.int8_milliseconds or 0.0)


def _waits(verdict: Verdict) -> bool:
    """In FP16 because of a missing scale alone."""
    return verdict.verdict == DLA_FP16 and {f.limit.id for f in verdict.findings} == {NO_SCALE.id}
