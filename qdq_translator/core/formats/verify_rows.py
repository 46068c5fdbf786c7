"""Rows of `verify --json` and `verify --save`: written and published as a schema from these definitions.

docs/report_schema.md explains the keys. Shares are 0 to 1; noise_share: of the noise at the outputs, by the noise
account. A ratio in dB is infinite for equal values and null in the file.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, Dict, Final, Literal, Optional, Tuple

from qdq_translator.core.formats.report_rows import Source, Texts
from qdq_translator.core.formats.rows import Row
from qdq_translator.core.hypotheses import Hypothesis
from qdq_translator.core.words import counted

CLIPPED, UNUSED_BITS = 0.01, 1.5
"""A tensor with a larger clipped share, or more unused bits, does not fit its scale; if most tensors do not, the data
differ."""
SHOWN_REMAINDER, MOST_REMAINDER = 0.1, 2.0
"""The share of the noise at the outputs that the sum of an account may miss without a message, and beyond which it is
no figure."""
EQUAL, ROUNDING, SUSPICIOUS, BROKEN = VERDICTS = ("equal", "within expected rounding", "suspicious", "broken")
GOOD = (EQUAL, ROUNDING)
NOT_MEASURED = "not measured: random inputs"
"""In place of a good verdict without data."""
FITS = "fits"
"""The cause if nothing is wrong."""
_LATER: Final = {"later": True}
_ASKED: Final = {"sparse": True}
_FINITE: Final = {"finite": True}


class Slice(Row):
    """The worst slice of an output along one axis. silent: slices of that axis without a cosine, because the reference
    is zero throughout; they are left out."""

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


class Compared(Row):
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


class ComparedOutput(Compared):
    """One output of two networks, compared. slices: the worst along each axis that counts."""

    slices: Tuple[Slice, ...] = field(metadata=_LATER)

    @property
    def worst_slice(self) -> Optional[Slice]:
        return min(self.slices, key=lambda found: found.cosine, default=None)


class Pair(Row):
    """outputs: name -> comparison of the stage `other` with the stage `reference`."""

    reference: str
    other: str
    outputs: Dict[str, ComparedOutput]


class Outputs(Row):
    """accuracy: stage -> output -> percent of right labels. metric: stage -> the user's metric, {} without one."""

    pairs: Tuple[Pair, ...]
    accuracy: Dict[str, Any]
    metric: Dict[str, float] = field(metadata=_LATER)


class Verdict(Row):
    """Verdict on one output. expected_db: SQNR of rounding alone. least_db: below it, it is suspicious. where: the
    deciding slice, '' for the whole. decided: clear decisions of the model as given; changed: those that the engine
    decides otherwise."""

    verdict: str
    sqnr_db: float = field(metadata=_FINITE)
    expected_db: float = field(metadata=_FINITE)
    least_db: float = field(metadata=_FINITE)
    where: str = ""
    decided: int = field(default=0, metadata=_LATER)
    changed: int = field(default=0, metadata=_LATER)


class Cure(Row):
    """A change of the translation that regains accuracy. what: in words, such as '3 layers in FP16'. changes: option ->
    value. layers: to keep in FP16. gain: of the metric in its unit, or of the worst output in dB, over the options as
    given. milliseconds: that it adds by the estimate; None without one. int8_macs: share (0 to 1) of MACs that are then
    in INT8. applied: the translation has it. command: that translates with it; '' for one of a search."""

    what: str
    changes: Dict[str, Any]
    layers: Texts
    gain: float = field(metadata=_FINITE)
    milliseconds: Optional[float]
    int8_macs: float
    applied: bool
    unit: Literal["metric", "dB"] = field(default="metric", metadata=_LATER)
    command: str = field(default="", metadata=_LATER)

    @property
    def words(self) -> str:
        """'3 layers in FP16: metric +6, +0.02 ms (estimated)'."""
        gain = (
            f"metric {self.gain:+.3g}"
            if self.unit == "metric"
            else f"{self.gain:+.1f} dB"
            if math.isfinite(self.gain)
            else "nothing is lost"
        )
        macs = f"{100 * self.int8_macs:.3g}% of MACs in INT8"
        time = macs if self.milliseconds is None else f"{self.milliseconds:+.2g} ms (estimated)"
        return f"{self.what}: {gain}, {time}"


class Judged(Row):
    """Verdicts on a translation. outputs: name -> verdict. reasons: sentences on causes for suspicion other than the
    measurements at its outputs. reason: the cause of a verdict that is not good: a tensor, a layer, a rule, or the
    data. remedy: the command against it. cures: layers in FP16, the cheapest first."""

    overall: str
    outputs: Dict[str, Verdict]
    reasons: Texts
    reason: str = field(default="", metadata=_LATER)
    remedy: str = field(default="", metadata=_LATER)
    cures: Tuple[Cure, ...] = field(default=(), metadata=_LATER)


class Jump(Row):
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


class Layer(Row):
    """One tensor, as its layer makes it (None for a graph input) and as its readers read it."""

    tensor: str
    node: str
    op: str
    scale: Optional[float]
    made: Optional[Compared]
    read: Compared
    notes: Texts


class Layers(Row):
    """first_jump: in graph order. jumps: those that add the most noise first."""

    first_jump: Optional[Jump]
    jumps: Tuple[Jump, ...]
    layers: Tuple[Layer, ...]


class Magnitudes(Row):
    """Counts of magnitudes in equal bins from 0 to `end`."""

    end: float
    counts: Tuple[int, ...]


class AuditedScale(Row):
    """scale: of the table; origin: the rule that gave it. lowest, highest: of the values seen. clipped: share of the
    values beyond the scale's range. unused_bits: log2 of the scale's amax over the amax seen, not below 0. best: the
    scale of the least squared error."""

    tensor: str
    origin: str
    scale: float
    lowest: float
    highest: float
    clipped: float
    unused_bits: float
    best: float
    cause: str
    histogram: Magnitudes
    amax: float
    best_amax: float
    sqnr_db: float = field(metadata=_FINITE)
    best_sqnr_db: float = field(metadata=_FINITE)
    gain_db: float = field(metadata=_FINITE)
    noise_share: Optional[float] = field(default=None, metadata=_ASKED)

    @property
    def fits(self) -> bool:
        """True if neither much is clipped nor many bits are unused."""
        return self.clipped <= CLIPPED and self.unused_bits <= UNUSED_BITS

    @property
    def excess(self) -> float:
        """Share of the noise that a better range would remove."""
        return float(1 - 10 ** (-self.gain_db / 10))

    @property
    def damage(self) -> float:
        """Noise energy that a better range would remove, relative to the tensor's."""
        return float(10 ** (-self.sqnr_db / 10) * self.excess)


class AuditedWeight(Row):
    """weight: the initializer; node: the layer that uses it. one_scale: TensorRT has one scale for the whole weight. Of
    each output channel: amax, codes (amax in quantization steps) and sqnr_db (None for all zeros). histogram:
    magnitudes relative to their channel's largest."""

    weight: str
    node: str
    one_scale: bool
    worst_channel: int
    worst_sqnr_db: Optional[float]
    channel_amax: Tuple[float, ...]
    channel_codes: Tuple[int, ...]
    channel_sqnr_db: Tuple[Optional[float], ...]
    histogram: Magnitudes
    cause: str
    noise_share: Optional[float] = field(default=None, metadata=_ASKED)


class Audit(Row):
    """unlike: a sentence if the data differ from those used for the scales, else ''. zero: tensors that held only
    zeros. tensors, weights: worst first."""

    unlike: str
    zero: Texts
    tensors: Tuple[AuditedScale, ...]
    weights: Tuple[AuditedWeight, ...] = ()


class Rounding(Row):
    """Roundings measured together: of tensors with one scale, or of the weights of layers. name: for a reader. layers:
    to keep above INT8 for it. share: of the sum. sqnr_db: at the outputs, with these roundings alone. rule: that gave
    the scale. milliseconds: that the layers cost more in FP16 on a DLA by the estimate."""

    name: str
    tensors: Texts
    weights: Texts
    layers: Texts
    share: float
    sqnr_db: float = field(metadata=_FINITE)
    causes: Texts
    rule: str = field(default="", metadata=_LATER)
    milliseconds: Optional[float] = field(default=None, metadata=_LATER)


class Account(Row):
    """sqnr_db: of the whole simulation; sum_db: of the sum of the entries. remainder: share of the whole that the sum
    misses; negative if it exceeds it. passes: of the network over all samples."""

    sqnr_db: float = field(metadata=_FINITE)
    sum_db: float = field(metadata=_FINITE)
    remainder: float
    samples: int
    passes: float
    entries: Tuple[Rounding, ...]

    @property
    def sentence(self) -> str:
        """The sum compared with the whole, and the interaction if it is large; '' if nothing is rounded."""
        whole, total, off = self.sqnr_db, self.sum_db, self.remainder
        if whole is None or total is None or not (math.isfinite(whole) and math.isfinite(total)):
            return ""
        text = (
            f"Noise account: {counted(len(self.entries), 'rounding')}, each alone, add up to {total:.1f} dB at the "
            f"outputs; all together measured: {whole:.1f} dB on {counted(self.samples, 'sample')}"
        )
        if off < -MOST_REMAINDER:
            text += ". Roundings interact so strongly that their sum means nothing; their order still does"
        elif abs(off) > SHOWN_REMAINDER:
            text += f". Roundings interact: the sum {'misses' if off > 0 else 'exceeds it by'} {100 * abs(off):.0f}%"
        return f"{text}."


class Freed(Row):
    """Tensors left float, or layers kept above INT8, and the worst output then. metric: the user's own. milliseconds:
    see `Rounding`."""

    tensor: str
    tensors: Texts
    layers: Texts
    sqnr_db: float = field(metadata=_FINITE)
    cosine: float
    gain_db: float = field(metadata=_FINITE)
    samples: int = field(metadata=_LATER)
    metric: Optional[float]
    noise_share: float = field(metadata=_LATER)
    causes: Texts = field(metadata=_LATER)
    milliseconds: Optional[float] = field(default=None, metadata=_LATER)


class Sensitivity(Row):
    """ranking: each alone left float, everything else in INT8, best first. chosen: with the layers of those before it
    kept above INT8. layer_argument: complete, with layers that the translation names already; as keep_fp16. enough: the
    metric is reached before anything is kept. command: that translates again, '' for none."""

    baseline_db: float = field(metadata=_FINITE)
    baseline_metric: Optional[float]
    ranking: Tuple[Freed, ...]
    chosen: Tuple[Freed, ...]
    layer_argument: str
    layers: Texts
    keep_fp16: Texts
    enough: bool
    candidates_left_out: int
    seconds: float
    command: str = field(default="", metadata=_LATER)


class Simulation(Row):
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
    layers_in_int8: int
    layers_above_int8: int
    weights_rounded: int
    parts: Dict[str, int]
    hypotheses: Tuple[Hypothesis, ...]


class Inputs(Row):
    """batch: samples of one run. random: made here, not given."""

    source: str
    samples: int
    batch: int
    random: bool = field(metadata=_LATER)


class MetricDrop(Row):
    """drop: from the float model, or else the explicit one, to the simulated engine; stages: those two."""

    name: str
    drop: float
    stages: Tuple[str, ...] = field(default=(), metadata=_LATER)


class Verification(Row):
    """stale: the model is not the file that was translated. integrity: sentences on files that differ from those that
    were written. device: of `--device_results`. failed: sentences about missed thresholds."""

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
    audit: Optional[Audit] = field(metadata=_ASKED)
    sensitivity: Optional[Sensitivity] = field(metadata=_ASKED)
    account: Optional[Account] = field(metadata=_ASKED)
    failed: Texts = field(metadata=_LATER)
