"""Rows of an engine compared with its plan: `check-engine --json`, `engine` of `report --json` and of NAME_board.json.

docs/report_schema.md explains the keys. Precisions are 'int8', 'fp16', ..., '' if unknown; milliseconds are None
without a profile.
"""

from __future__ import annotations

from dataclasses import field
from typing import Dict, Final, Optional, Tuple

from qdq_translator.core.formats.report_rows import Texts
from qdq_translator.core.formats.rows import Row

MISSING, DISOBEYED = "missing", "disobeyed"
_SPARSE: Final = {"sparse": True}
_LATER: Final = {"later": True}


class Checked(Row):
    """A planned layer versus the engine. verdict: see `engine.inspector`. engine_layer: the one that computes it.
    device: 'GPU', 'DLA' or ''."""

    name: str
    op: str
    planned: str
    actual: str
    verdict: str
    engine_layer: str
    device: str
    why: str


class LayerVerdict(Checked):
    """expected: above INT8 by design."""

    macs: int
    expected: bool

    @property
    def is_disobedience(self) -> bool:
        """Counts for --strict: a planned INT8 layer that is not in INT8 or is missing, or one listed as FP16 that is in
        INT8."""
        missing = self.verdict == MISSING and self.planned == "int8"
        return not self.expected and (missing or self.verdict == DISOBEYED)


class BuiltLayer(Checked):
    """against: the plan. format: of inputs and outputs, in TensorRT's words. milliseconds: of the layer of the engine,
    in the row of the first planned layer that it computes; the others have None and the same `engine_layer`."""

    against: bool
    format: str
    fused_with: Texts
    milliseconds: Optional[float]


class ExtraLayer(Row):
    """An engine layer that is not in the model; `change`: 'fp16 -> int8', or 'int8' if only the layout changes.
    layouts: 'CHW32 -> CHW4'. between: the layer that writes and the one that reads, '' for an end of the network.
    why: which of them asks for it."""

    name: str
    layer_type: str
    change: str
    layouts: str = field(default="", metadata=_LATER)
    between: Texts = field(default=(), metadata=_LATER)
    why: str = field(default="", metadata=_LATER)


class Region(Row):
    """A `{ForeignNode[...]}`: the planned layers inside, and the precisions at its edges."""

    name: str
    device: str
    nodes: Texts
    inputs: Texts
    outputs: Texts


class Fallback(Row):
    """A layer of a DLA engine that runs on the GPU. cause: TensorRT's sentence, or ''."""

    layer: str
    cause: str


class Unmatched(Row):
    """A layer of the engine, or a row of the profile, without a planned layer."""

    name: str
    layer_type: str
    what: str
    milliseconds: Optional[float]


class Unfused(Row):
    """A Q or DQ that stayed a layer of the engine. node: the Q or DQ; pattern: the nodes around it, '' if nothing
    explains it; cure: the remedy. tensor: the one that the pair quantizes. readers: nodes that read the pair."""

    layer: str
    node: str
    pattern: str
    cure: str
    tensor: str
    readers: Texts
    milliseconds: Optional[float] = None


class CheckSummary(Row):
    """Counts. int8: verdict -> layers planned in INT8."""

    obeys: bool
    int8: Dict[str, int]
    disobediences: int
    reformats: int
    quantizers: int
    unfused_qdq: int
    dla_subgraphs: int
    gpu_fallbacks: int
    missing_scales: int
    unmatched_precisions: int
    cache_rejected: bool


class Engine(Row):
    """layers: one row per planned layer. disagreements: names of the layers that contradict the plan. unmatched: layers
    of the engine that compute no planned one. missing: planned, but not in the engine. unfused: of an explicit network.
    """

    summary: CheckSummary
    milliseconds: Optional[float]
    layers: Tuple[BuiltLayer, ...]
    disagreements: Texts
    unmatched: Tuple[Unmatched, ...]
    missing: Texts
    unfused_qdq: Tuple[ExtraLayer, ...]
    gpu_fallbacks: Tuple[Fallback, ...]
    unfused: Optional[Tuple[Unfused, ...]] = field(default=None, metadata=_SPARSE)


class Side(Row):
    """One of two engines, as in `BuiltLayer`."""

    actual: str
    verdict: str
    device: str
    milliseconds: Optional[float]


class Difference(Row):
    """A layer of two engines. difference: ms, B - A (0 for a layer fused into another one). differs: in precision or
    device."""

    name: str
    op: str
    a: Side
    b: Side
    difference: Optional[float]
    differs: bool


class ComparedEngines(Row):
    """`engines` of `report --layer_info A B --json`. milliseconds: of A and B; unmatched_milliseconds: of layers of no
    planned one. differ: layers that differ. layers: the largest difference first."""

    milliseconds: Tuple[Optional[float], ...]
    unmatched_milliseconds: Tuple[float, ...]
    differ: int
    layers: Tuple[Difference, ...]


class Answer(Row):
    """Of a board. planned, other: distance of its outputs to the simulation at each end of a hypothesis, as a share of
    their range, or of its time to the estimate. held: 'planned', 'other', or '' if they do not decide. layers: whose
    device answers."""

    hypothesis: str
    planned: Optional[float] = field(metadata=_SPARSE)
    other: Optional[float] = field(metadata=_SPARSE)
    held: str
    sentence: str
    layers: str = field(default="", metadata=_SPARSE)

    @property
    def measured(self) -> str:
        """Both distances in words, or, if one of them is unknown, what is known of the layers."""
        known = self.planned is not None and self.other is not None
        return f"distance {self.planned:.2g} planned, {self.other:.2g} other" if known else self.layers


class LogMessage(Row):
    """A known message of a log. kind: see `engine.messages.Message`. names: layers or tensors that it named."""

    id: str
    kind: str
    happened: str
    cause: str
    remedy: str
    source: str
    status: str
    count: int
    names: Texts


class Board(Row):
    """NAME_board.json. schema_version to l4t: lines of board_info.txt; model and cache are SHA-256 digests. The rest is
    missing if the build failed. check, against: as in `Engine.summary` and `Engine.disagreements`. lines: for
    the terminal. milliseconds: of all layers of the engine; layers: of each; estimate: of the plan, for a DLA."""

    schema_version: str
    kind: str
    status: str
    model: str
    cache: str
    machine: str = field(default="", metadata=_SPARSE)
    board: str = field(default="", metadata=_SPARSE)
    l4t: str = field(default="", metadata=_SPARSE)
    messages: Tuple[LogMessage, ...] = ()
    check: Optional[CheckSummary] = field(default=None, metadata=_SPARSE)
    against: Optional[Texts] = field(default=None, metadata=_SPARSE)
    engine: Optional[Engine] = field(default=None, metadata=_SPARSE)
    lines: Optional[Texts] = field(default=None, metadata=_SPARSE)
    milliseconds: Optional[float] = field(default=None, metadata=_SPARSE)
    layers: Dict[str, float] = field(default_factory=dict, metadata=_SPARSE)
    estimate: Optional[float] = field(default=None, metadata=_SPARSE)
    hypotheses: Optional[Tuple[Answer, ...]] = field(default=None, metadata=_SPARSE)

    @property
    def failed(self) -> bool:
        """The engine was not built."""
        return self.status != "0"
