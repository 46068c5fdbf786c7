"""Rows of NAME_report.json that are written as they are found; docs/report_schema.md explains their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Tuple


@dataclass(frozen=True)
class RootCause:
    """One tensor without scale from which others would follow.

    users: the tensor of the user's model that stands for it. producer, op: the node that makes it ('' and 'graph input' for an
    input). rule: the rule that would give it a scale ('' if none would); options: the flags for that, or '--calibrate DATA', ()
    if neither would. follows: missing tensors that its scale would bring along. layers: avoidable layers that it alone brings to
    INT8; shared: avoidable layers that need another root too. macs: of `layers`, None if unknown. milliseconds: estimated gain
    on a DLA, None without one.
    """

    tensor: str
    users: str = field(metadata={"key": "in_your_model", "later": True})
    producer: str
    op: str
    sentence: str
    why: str
    cure: str
    rule: str
    options: Tuple[str, ...]
    follows: Tuple[str, ...]
    layers: Tuple[str, ...]
    shared: Tuple[str, ...] = field(metadata={"key": "shared_layers"})
    macs: Optional[int]
    milliseconds: Optional[float] = None


@dataclass(frozen=True)
class CauseGroup:
    """Causes made by the same operator and cured in the same way (by rules, by data or by quantizing).

    layers: number of avoidable layers that the whole group brings to INT8. macs: theirs. total_macs: with all groups before it.
    """

    op: str
    options: Tuple[str, ...]
    tensors: Tuple[str, ...]
    layers: int
    macs: Optional[int]
    total_macs: Optional[int]
    milliseconds: Optional[float] = None


@dataclass(frozen=True)
class WhatIf:
    """The plan with further options: layers and MACs (None: unknown) in INT8, tensors with a scale. With a DLA as target
    what runs there, layers on the GPU, the estimated time, and the most bits of resolution that a tensor loses."""

    options: Tuple[str, ...]
    int8_layers: int
    int8_macs: Optional[int]
    scales: int
    gpu_layers: Optional[int] = None
    milliseconds: Optional[float] = None
    bits_lost: Optional[float] = field(default=None, metadata={"digits": 3})


@dataclass(frozen=True)
class FoundCauses:
    """causes: by MACs gained, then in graph order. groups: likewise. what_if: options worth trying."""

    causes: List[RootCause]
    groups: List[CauseGroup]
    what_if: List[WhatIf]
