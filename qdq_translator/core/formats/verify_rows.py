"""Rows of `verify --json` and `verify --save`: written and published as a schema from these definitions.

docs/report_schema.md explains the keys. A ratio in dB is infinite for equal values and null in the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, Final, Optional, Tuple

from qdq_translator.core.formats.report_rows import Source, Texts
from qdq_translator.core.hypotheses import Hypothesis

_LATER: Final = {"later": True}
_ASKED: Final = {"sparse": True}
_FINITE: Final = {"finite": True}


@dataclass(frozen=True)
class Slice:
    """The worst slice of an output along one axis. silent: slices of that axis without a cosine, because the reference is
    zero throughout; they are left out."""

    axis: int
    index: int
    size: int
    silent: int
    cosine: float
    sqnr_db: float = field(metadata=_FINITE)

    @property
    def compared(self) -> int:
        """Slices of this axis that were compared."""
        return self.size - self.silent

    def __str__(self) -> str:
        return f"slice {self.index} of {self.size} along axis {self.axis}"


@dataclass(frozen=True)
class Compared:
    """Two tensors. top1_agreement: percent of samples with the same largest score, None without class scores.
    non_finite: values that are not finite on one side only."""

    identical: bool
    cosine: float
    sqnr_db: float = field(metadata=_FINITE)
    mse: float
    max_abs: float
    top1_agreement: Optional[float]
    top1_samples: int
    non_finite: int
    count: int = field(metadata={"key": "values"})


@dataclass(frozen=True)
class ComparedOutput(Compared):
    """slices: the worst along each axis that counts."""

    slices: Tuple[Slice, ...] = field(metadata=_LATER)

    @property
    def worst_slice(self) -> Optional[Slice]:
        return min(self.slices, key=lambda found: found.cosine, default=None)


@dataclass(frozen=True)
class Pair:
    """outputs: name -> comparison of the stage `other` with the stage `reference`."""

    reference: str
    other: str
    outputs: Dict[str, ComparedOutput]


@dataclass(frozen=True)
class Outputs:
    """accuracy: stage -> output -> percent of right labels. metric: stage -> the user's metric, {} without one."""

    pairs: Tuple[Pair, ...]
    accuracy: Dict[str, Any]
    metric: Dict[str, float] = field(metadata=_LATER)


@dataclass(frozen=True)
class Verdict:
    """Verdict on one output. expected_db: SQNR of rounding alone. least_db: below it, it is suspicious. where: the
    slice that decided, '' for the whole."""

    verdict: str
    sqnr_db: float = field(metadata=_FINITE)
    expected_db: float = field(metadata=_FINITE)
    least_db: float = field(metadata=_FINITE)
    where: str = ""


@dataclass(frozen=True)
class Judged:
    """Verdicts on a translation. outputs: name -> verdict. reasons: sentences on causes for suspicion other than the
    measurements at its outputs."""

    overall: str
    outputs: Dict[str, Verdict]
    reasons: Texts


@dataclass(frozen=True)
class Jump:
    """A place where the error jumps. where: 'made' (its layer computes something else) or 'read' (its output is rounded
    differently). added: noise energy, relative to the tensor's (see `simulate.per_layer`). noise_share: 0 to 1 of the
    noise at the outputs, None without an account."""

    tensor: str
    node: str
    op: str
    where: str
    added: float = field(metadata={"finite": True, "later": True})
    lost_db: float = field(metadata=_FINITE)
    sqnr_db: float = field(metadata={"finite": True, "later": True})
    notes: Texts
    noise_share: Optional[float] = field(default=None, metadata=_ASKED)

    def __str__(self) -> str:
        what = "computes something else" if self.where == "made" else "has an output that is rounded differently"
        where = (
            f"{self.op} '{self.node}' {what}" if self.node else f"graph input '{self.tensor}' is rounded differently"
        )
        after = "nothing of the signal left" if self.sqnr_db == -math.inf else f"{self.sqnr_db:.1f} dB"
        return f"{where} (tensor '{self.tensor}': {after}, {min(self.lost_db, 999):.1f} dB lost here)"


@dataclass(frozen=True)
class Layer:
    """One tensor, as its layer makes it (None for a graph input) and as its readers read it. inherited_db: SQNR of its
    layer's inputs."""

    tensor: str
    node: str
    op: str
    scale: Optional[float]
    made: Optional[Compared]
    read: Compared
    inherited_db: float = field(metadata=_FINITE)
    notes: Texts


@dataclass(frozen=True)
class Layers:
    """first_jump: in graph order. jumps: those that add the most noise first."""

    first_jump: Optional[Jump]
    jumps: Tuple[Jump, ...]
    layers: Tuple[Layer, ...]


@dataclass(frozen=True)
class Simulation:
    """Precisions in the simulation. sigmoid: precision of Sigmoid and Tanh, '' without any. parts: role of a part ->
    its layers in INT8. hypotheses: those whose other end is shown."""

    rounding: str
    higher_layers: str
    layers_in_fp16_on_dla: int
    sigmoid: str
    fuse: str
    layer_arg: bool
    tensors_held_in_int8: int
    tensors_inside_fusions: int
    tensors_that_stay_float: int
    layers_in_int8: int
    layers_above_int8: int
    weights_rounded: int
    parts: Dict[str, int]
    hypotheses: Tuple[Hypothesis, ...]


@dataclass(frozen=True)
class Inputs:
    """batch: samples of one run. random: made here, not given."""

    source: str
    samples: int
    batch: int
    random: bool = field(metadata=_LATER)


@dataclass(frozen=True)
class MetricDrop:
    """drop: from the explicit model to the simulated engine."""

    name: str
    drop: float


@dataclass(frozen=True)
class Verification:
    """stale: the model is not the file that was translated. integrity: sentences on files that differ from those that
    were written. device: of `--device_results`. audit, sensitivity, account: JSON types, of the options of the same
    name. failed: sentences about missed thresholds."""

    schema_version: int = field(metadata=_LATER)
    kind: str = field(metadata=_LATER)
    generator: str = field(metadata=_LATER)
    model: Source = field(metadata=_LATER)
    translation: str = field(metadata=_LATER)
    stale: bool = field(metadata=_LATER)
    simulation: Simulation = field(metadata=_LATER)
    integrity: Texts = field(metadata=_LATER)
    inputs: Inputs = field(metadata=_LATER)
    outputs: Outputs = field(metadata=_LATER)
    verdict: Judged = field(metadata=_LATER)
    notes: Texts = field(metadata=_LATER)
    device: Optional[Any] = field(metadata=_ASKED)
    metric: Optional[MetricDrop] = field(metadata=_ASKED)
    per_layer: Optional[Layers] = field(metadata=_ASKED)
    audit: Optional[Any] = field(metadata=_ASKED)
    sensitivity: Optional[Any] = field(metadata=_ASKED)
    account: Optional[Any] = field(metadata=_ASKED)
    failed: Texts = field(metadata=_LATER)
