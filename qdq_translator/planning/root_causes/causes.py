"""What is found: causes, groups of them, and what further options would give."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Optional

from qdq_translator.targets.precision import LayerPlan


@dataclasses.dataclass(frozen=True)
class RootCause:
    """One tensor without scale from which others would follow.

    producer/op: the node that makes it ('' and 'graph input' for an input). follows: missing tensors that its scale
    would bring along. layers: avoidable layers that it alone brings to INT8; shared: avoidable layers that need another root too.
    macs: of `layers`, None where unknown. milliseconds: estimated gain on a DLA, None without one. rule: what would give it ('' if none would); options: the flags for that, or '--calibrate DATA', () if neither would.
    users: the tensor of the user's model that stands for it.
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
    users: str = ""
    milliseconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class CauseGroup:
    """Causes that are one story: made by the same operator, cured in the same way (by rules, by data or by quantizing).

    layers: avoidable layers that the whole group brings to INT8. macs: theirs. total_macs: with all groups before it too.
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


def add_macs(layers: Iterable[LayerPlan]) -> Optional[int]:
    """The sum, None as soon as one is unknown."""
    total = 0
    for layer in layers:
        if layer.macs is None:
            return None
        total += layer.macs
    return total
