"""The scale table: at most one INT8 scale for every tensor, and its origin."""

from __future__ import annotations

import dataclasses
from typing import Container, Dict, Iterable, Mapping, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.formats import report_rows
from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.rules import STATED

ASSUMED = "assumed"
"""Origin of every assumed scale of `qdq-translator plan`; not a rule."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """Which rule gave a scale, at which node, from which tensor, with a remark. grid: the model's own scale and uint8
    zero point, if it is not symmetric."""

    rule: str
    node: str = ""
    source: str = ""
    note: str = ""
    grid: Optional[Tuple[float, int]] = None

    def row(self) -> report_rows.Origin:
        """The origin as files have it."""
        return report_rows.Origin(self.rule, self.node, self.source, self.note)


@dataclasses.dataclass(frozen=True)
class TensorScale:
    """`value`: the scale (amax / 127), a float32 held in a Python float."""

    value: float
    origin: Origin

    @property
    def explicit(self) -> bool:
        return self.origin.rule in STATED

    @property
    def amax(self) -> float:
        return self.value * 127


class ScaleTable(Dict[str, TensorScale]):
    """Tensor name -> TensorScale. Explicit scales are observed first and settled once; rules then add scales and never
    change one."""

    def __init__(self, scales: Iterable[Tuple[str, TensorScale]] = ()) -> None:
        super().__init__(scales)
        self.observed: dict[str, dict[float, TensorScale]] = {}
        """Tensor -> each observed value -> the scale of the first quantizer that gave it, in order (kept after
        `settle`)."""
        self.settled = False

    def observe(self, tensor: str, value: float, origin: Origin) -> None:
        """Add the scale that one quantizer gives a tensor; quantizers may differ until `settle`."""
        value = float(np.float32(value))
        self.observed.setdefault(tensor, {}).setdefault(value, TensorScale(value, origin))

    def rename(self, old: str, new: str) -> None:
        """Move the observations and scale of `old` to `new`; a scale that `new` already has stays."""
        for scale in self.observed.pop(old, {}).values():
            self.observe(new, scale.value, scale.origin)
        if old in self:
            self.setdefault(new, self.pop(old))

    def follow(self, nodes: Mapping[str, str], tensors: Mapping[str, str]) -> None:
        """Update node and tensor names in origins."""

        def now(scale: TensorScale) -> TensorScale:
            origin = scale.origin
            node, source = nodes.get(origin.node, origin.node), tensors.get(origin.source, origin.source)
            if (node, source) == (origin.node, origin.source):
                return scale
            return TensorScale(scale.value, dataclasses.replace(origin, node=node, source=source))

        for tensor, scale in self.items():
            self[tensor] = now(scale)
        for seen in self.observed.values():
            for value, scale in seen.items():
                seen[value] = now(scale)

    def forget(self, note: str, kept: Container[str]) -> None:
        """Drop tensors observed only by quantizers with this note, except `kept`."""
        self.observed = {
            tensor: seen
            for tensor, seen in self.observed.items()
            if tensor in kept or any(scale.origin.note != note for scale in seen.values())
        }

    def settle(self, policy: str, diagnostics: Diagnostics) -> None:
        """Rule C1: one scale per tensor by `policy` (max, min, first, error); each conflict is reported.

        Raises UnsupportedQuantizer for a conflict under `error`.
        """
        for tensor, seen in self.observed.items():
            usable = []
            for scale in seen.values():
                if is_usable(scale.value):
                    usable.append(scale)
                else:
                    _report_unusable(tensor, scale, diagnostics)
            if usable:
                self[tensor] = usable[0] if len(usable) == 1 else _chosen(tensor, usable, policy, diagnostics)
        self.settled = True

    def infer(self, tensor: str, value: float, origin: Origin) -> bool:
        """Add a scale if there is none (rule S1); unusable values are rejected. True if it was added."""
        value = float(np.float32(value))
        if tensor in self or not is_usable(value):
            return False
        self[tensor] = TensorScale(value, origin)
        return True

    def replace(self, tensor: str, value: float, origin: Origin) -> None:
        """Override a scale, for steps that the user requested (--unify_scales max)."""
        self[tensor] = TensorScale(float(np.float32(value)), origin)

    def fork(self) -> ScaleTable:
        """A separate table with the same scales, for trying out a rule; it shares what was observed."""
        other = ScaleTable(self.items())
        other.observed = self.observed
        return other

    def value(self, tensor: str) -> Optional[float]:
        scale = self.get(tensor)
        return None if scale is None else scale.value

    def assume(self, tensors: Iterable[str]) -> None:
        """Replace all scales with one nominal scale for each of `tensors`, for a plan before quantization."""
        self.clear()
        self.update(dict.fromkeys(tensors, TensorScale(float(np.float32(1 / 127)), Origin(ASSUMED))))

    def drop(self, tensor: str) -> None:
        self.pop(tensor, None)
        self.observed.pop(tensor, None)


def _report_unusable(tensor: str, scale: TensorScale, diagnostics: Diagnostics) -> None:
    diagnostics.warning(
        "Q1",
        f"The scale {scale.value:g} of tensor '{tensor}' is below the smallest normal float32 and is left out.",
        tensor=tensor,
        node=scale.origin.node,
        hint="Calibrate that tensor again.",
    )


def _chosen(tensor: str, scales: Sequence[TensorScale], policy: str, diagnostics: Diagnostics) -> TensorScale:
    """The scale to use of several different ones of a tensor."""
    where = ", ".join(f"{s.value:.6g} at '{s.origin.node}'" for s in scales)
    if policy == "error":
        raise UnsupportedQuantizer(
            f"Tensor '{tensor}' is quantized with {len(scales)} scales: {where} (rule C1).",
            "Choose one with --on_conflict max, min or first.",
        )
    values = [s.value for s in scales]
    pick = {"max": max(values), "min": min(values)}.get(policy, values[0])
    chosen = scales[values.index(pick)]
    diagnostics.warning(
        "C1",
        f"Conflicting scales on tensor '{tensor}': {where}; {pick:.6g} is used (--on_conflict {policy}).",
        tensor=tensor,
        node=chosen.origin.node,
        data={"scales": values, "nodes": [s.origin.node for s in scales], "chosen": pick},
    )
    return chosen
