"""Rows of NAME_report.json: written, read and published as a schema from these definitions. docs/report_schema.md explains the keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Final, List, Literal, Optional, Tuple, Union

INT8: Final = "int8"
FP16: Final = "fp16"
NO_PRECISION: Final = "none"
ON_DLA: Final = "dla"
ON_GPU: Final = "gpu"
NOWHERE: Final = "none"
Texts = Tuple[str, ...]
Precision = Literal["int8", "fp16", "none"]
Device = Literal["dla", "gpu", "none"]
Place = Literal["dla-int8", "dla-fp16", "gpu", "folded"]
_SPARSE = {"sparse": True}
_LATER = {"later": True}


@dataclass(frozen=True)
class Source:
    """The model that was translated; empty texts for a model in memory."""

    file: str
    sha256: str


@dataclass(frozen=True)
class CacheVersion:
    """number: of the cache's header. origin: 'option', 'platform', 'installed' or 'default'."""

    number: str
    origin: str


@dataclass(frozen=True)
class WeightParts:
    """Elements of weights in INT8, and above it by design, by a limit of the DLA, and avoidably."""

    total: int
    int8: int
    by_design: int
    limit: int
    avoidable: int


@dataclass(frozen=True)
class LayerParts(WeightParts):
    """The same in layers. without_float_data: layers that do not count: shapes, integers, constants."""

    without_float_data: int


@dataclass(frozen=True)
class MacParts:
    """The same in MACs, None if unknown. unknown_layers: layers whose MACs are unknown."""

    total: Optional[int]
    int8: Optional[int]
    by_design: Optional[int]
    limit: Optional[int]
    avoidable: Optional[int]
    unknown_layers: int


@dataclass(frozen=True)
class Coverage:
    layers: LayerParts
    macs: MacParts
    weights: WeightParts


@dataclass(frozen=True)
class Origin:
    """Which rule gave a scale, at which node, from which tensor."""

    rule: str
    node: str = field(default="", metadata=_SPARSE)
    source: str = field(default="", metadata=_SPARSE)
    note: str = field(default="", metadata=_SPARSE)


@dataclass(frozen=True)
class End:
    """A graph input or output. scale: quantization step, None without one; hex: as the cache has it."""

    name: str
    shape: Optional[Tuple[Union[int, str, None], ...]]
    is_float: bool = field(metadata={"key": "float"})
    scale: Optional[float]
    hex: Optional[str]
    origin: Optional[Origin]

    @property
    def is_dynamic(self) -> bool:
        """True if a size is no number, or the shape is unknown."""
        return self.shape is None or any(not isinstance(size, int) for size in self.shape)


@dataclass(frozen=True)
class LayerCost:
    """One node. milliseconds, bytes: as planned; None if unknown, or if no figure is published. int8_milliseconds,
    fp16_milliseconds: of the same layer in either precision. bound: 'compute', 'memory', 'overhead', or '' for a layer that takes
    no time of its own. fused_into: the node whose layer it is part of, '' for its own. share: of all milliseconds on the DLA."""

    milliseconds: Optional[float]
    bytes: Optional[int]
    bound: Optional[str]
    int8_milliseconds: Optional[float] = None
    fp16_milliseconds: Optional[float] = None
    fused_into: Optional[str] = ""
    share: Optional[float] = None


@dataclass(frozen=True)
class LayerPlan:
    """One node of the stripped model: the record of a layer that plan, estimate, simulation, report and `check-engine` read.

    device: 'dla', 'gpu', or 'none' for what TensorRT computes when it builds. precision: what the layer runs in: 'int8';
    'fp16' for what runs higher; 'none' for layers without float data (shape arithmetic, integers). hypotheses: ids of
    `core.hypotheses` on which device, precision or rounding of this layer rest.
    inputs/outputs: its float activations. missing: those of them without a scale. listed: stands in `fp16_nodes`.
    by_design: higher precision that is by design (producers of graph outputs, fact 5.6).
    cause: the tensor whose scale would give those that are missing; cure: what to do. macs: None if unknown;
    macs_share, weights_share: of the whole network, None if unknown. cost: None for a layer without an estimate.
    """

    name: str
    op: str
    device: Device = "gpu"
    precision: Precision = "none"
    hypotheses: Texts = ()
    reason: str = ""
    inputs: Texts = ()
    outputs: Texts = ()
    missing: Texts = ()
    listed: bool = False
    by_design: bool = False
    macs: Optional[int] = 0
    weights: int = 0
    cause: str = ""
    cure: str = ""
    macs_share: Optional[float] = None
    weights_share: Optional[float] = None
    cost: Optional[LayerCost] = None

    @property
    def milliseconds(self) -> Optional[float]:
        """Estimated; None on the GPU, for a part of another layer, and if it is unknown."""
        return None if self.cost is None or self.cost.fused_into else self.cost.milliseconds

    @property
    def avoidable(self) -> bool:
        """Runs in higher precision and should not."""
        return self.precision == FP16 and not self.by_design and not self.limited

    @property
    def limited(self) -> bool:
        """Above INT8 because of a limit of the DLA, not because of a scale or the layer argument."""
        return self.precision == FP16 and not (self.missing or self.listed or self.by_design)

    @property
    def runs(self) -> str:
        """Device and precision in a word: 'dla-int8', 'gpu-fp16'; 'none' for what does not compute."""
        return self.device if NO_PRECISION in (self.device, self.precision) else f"{self.device}-{self.precision}"


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


@dataclass(frozen=True)
class Finding:
    """A limit that a layer exceeds. effect: 'gpu' or 'dla-fp16'."""

    limit: str
    text: str
    found: str
    effect: str
    source: str
    status: str


@dataclass(frozen=True)
class Verdict:
    """Where a layer runs. unknown: limits that need unknown shapes. subgraph: number of its DLA subgraph, -1 for none.
    wants_scale: on the GPU only because a scale is missing."""

    name: str
    op: str
    verdict: Place
    findings: Tuple[Finding, ...] = ()
    unknown: Texts = ()
    subgraph: int = -1
    wants_scale: bool = False


@dataclass(frozen=True)
class Counts:
    """Layers of each verdict."""

    dla_int8: int = field(metadata={"key": "dla-int8"})
    dla_fp16: int = field(metadata={"key": "dla-fp16"})
    gpu: int
    folded: int


@dataclass(frozen=True)
class Share:
    """Of one verdict. macs, milliseconds, and their shares of the network: None if unknown; no milliseconds on the GPU."""

    layers: int
    macs: Optional[int]
    milliseconds: Optional[float]
    macs_share: Optional[float] = None
    milliseconds_share: Optional[float] = None


@dataclass(frozen=True)
class Shares:
    dla_int8: Share = field(metadata={"key": "dla-int8"})
    dla_fp16: Share = field(metadata={"key": "dla-fp16"})
    gpu: Share


@dataclass(frozen=True)
class Transition:
    """Tensors that pass from one side to another, and their bytes as their producer writes them (None: unknown)."""

    tensors: int
    bytes: Optional[int]


@dataclass(frozen=True)
class Transitions:
    """int8_fp16: between precisions on the DLA. dla_gpu: between the devices."""

    int8_fp16: Transition
    dla_gpu: Transition


@dataclass(frozen=True)
class Dla:
    """max_loadables: subgraphs that a core holds at once. layers: one for each row of the plan."""

    generation: str
    counts: Counts
    subgraphs: int
    max_loadables: int
    notes: Texts
    layers: Tuple[Verdict, ...]
    shares: Shares
    transitions: Transitions


@dataclass(frozen=True)
class Cost:
    """Estimated time of one DLA core. model: name, source, clock_ghz and parameters; None without a figure."""

    milliseconds: Optional[float]
    fp16_milliseconds: Optional[float]
    between_milliseconds: Optional[float]
    total_milliseconds: Optional[float]
    what: str
    note: str
    unknown_layers: int
    model: Optional[Dict[str, Any]]


@dataclass(frozen=True)
class NodeRow:
    node: str
    op: str


@dataclass(frozen=True)
class Applied:
    """One application of a rule that rewrites. tensors: tensor that is gone -> tensors that hold its values."""

    rule: str
    before: Tuple[NodeRow, ...]
    after: Tuple[NodeRow, ...]
    tensors: Dict[str, List[str]]
    new_tensors: Texts


@dataclass(frozen=True)
class Left:
    """A layer that still runs on the GPU. limit: of the DLA; why: no rule applied ('' if there is no reason)."""

    node: str
    op: str
    limit: str
    why: str


@dataclass(frozen=True)
class Rewrites:
    """nodes: node that is gone or changed -> nodes that do its work. tensors: likewise."""

    applied: Tuple[Applied, ...]
    nodes: Dict[str, List[str]]
    tensors: Dict[str, List[str]]
    left: Tuple[Left, ...]


@dataclass(frozen=True)
class SharedTensor:
    """scale: its own, before. bits_lost: log2 of the ratio of the step sizes."""

    tensor: str
    scale: float
    bits_lost: float = field(metadata={"digits": 3})


@dataclass(frozen=True)
class SharedRange:
    """Tensors that the DLA requires to share one scale, which the tensor `source` needs. raised: all have it. refused: it
    would cost more than `--max_bits_lost`."""

    scale: float
    source: str = field(metadata={"key": "from"})
    raised: bool
    refused: bool
    nodes: Texts
    tensors: Tuple[SharedTensor, ...]


@dataclass(frozen=True)
class TensorScale:
    """explicit: the model's own quantizer gave it. The rest as in `Origin`."""

    tensor: str
    scale: float
    hex: str
    explicit: bool
    rule: str
    node: str = field(default="", metadata=_SPARSE)
    source: str = field(default="", metadata=_SPARSE)
    note: str = field(default="", metadata=_SPARSE)


@dataclass(frozen=True)
class WeightCheck:
    """One quantized weight of one layer.

    reproduced: codes that come out as trained (a channel whose sign was folded in counts with its sign), of `codes`.
    mixed_channels: output channels whose codes have several scales, because the weight was quantized along another
    axis: no scale of TensorRT's can reproduce them. full_channels: the others whose trained codes reach +-127, where
    TensorRT must reproduce every code; full_reproduced: share reproduced in them (None without such channels).
    largest_code_error: in TensorRT's codes; largest_error: real error relative to the channel's max|w|.
    one_scale: TensorRT has one scale for the weight, which then counts as one channel.
    note: why codes could not be compared, '' if they were. exact, share: of the codes that come out as trained.
    """

    weight: str
    node: str
    codes: int
    reproduced: int
    channels: int
    full_channels: int
    full_reproduced: Optional[float]
    largest_code_error: int
    largest_error: float
    mixed_channels: int
    saturated: int
    note: str
    one_scale: bool = field(metadata=_LATER)
    exact: bool
    share: float


@dataclass(frozen=True)
class DiagnosticRow:
    """See `core.diagnostics.Diagnostic`. code: severity letter and rule."""

    code: str
    severity: Literal["info", "warning"]
    rule: str
    message: str
    node: str = field(default="", metadata=_SPARSE)
    tensor: str = field(default="", metadata=_SPARSE)
    hint: str = field(default="", metadata=_SPARSE)
    data: Dict[str, Any] = field(default_factory=dict, metadata=_SPARSE)


@dataclass(frozen=True)
class Border:
    """An input or output of a part. type: ONNX's name of it. scale: None for a float tensor. format: of `--inputIOFormats`."""

    name: str
    type: Optional[str] = field(default=None, metadata=_LATER)
    shape: Optional[Tuple[Union[int, str, None], ...]] = field(default=None, metadata=_LATER)
    scale: Optional[float] = field(default=None, metadata=_LATER)
    format: str = field(default="", metadata=_SPARSE)


@dataclass(frozen=True)
class Part:
    """One network of those that a model was cut into. role: 'before', 'dla' or 'tail'. milliseconds: estimated."""

    role: str
    file: str
    layers: int
    inputs: Tuple[Border, ...]
    outputs: Tuple[Border, ...]
    gpu_layers: Optional[int] = field(default=None, metadata=_SPARSE)
    subgraphs: Optional[int] = field(default=None, metadata=_SPARSE)
    milliseconds: Optional[float] = field(default=None, metadata=_LATER)


@dataclass(frozen=True)
class Proof:
    """runs: inputs on which the parts, one after the other, gave the bits of the whole."""

    runs: int
    equal_bits: bool


@dataclass(frozen=True)
class CutParts:
    """What `--cut_tail` cut the network into; proof: of the parts against the whole."""

    folder: str
    parts: Tuple[Part, ...]
    tail: Texts
    proof: Proof
    tail_macs_share: Optional[float] = field(default=None, metadata=_LATER)


@dataclass(frozen=True)
class Digests:
    """Of the stripped model's ends, nodes and initializers, by name."""

    ends: Dict[str, str]
    nodes: Dict[str, str]
    initializers: Dict[str, str]


@dataclass(frozen=True)
class Integrity:
    """Digests of the files when they were written. set: id of the set."""

    set: str
    cache: str
    layer_arg: str
    config: str
    model: Digests


@dataclass(frozen=True)
class Report:
    """The whole. assumption: of a plan what it assumes; '' for a translation. dla, cost: None for a GPU as target."""

    schema_version: Literal[3]
    generator: str
    model: str
    source: Source
    assumption: str
    target: Literal["gpu", "orin-dla", "xavier-dla"]
    options: Any
    cache_version: CacheVersion
    coverage: Coverage
    inputs: Tuple[End, ...]
    outputs: Tuple[End, ...]
    root_causes: FoundCauses
    plan: Tuple[LayerPlan, ...]
    nodes_in_your_model: Dict[str, NodeRow] = field(metadata=_LATER)
    dla: Optional[Dla]
    cost: Optional[Cost]
    parts: Optional[CutParts]
    dla_rewrites: Rewrites
    shared_ranges: Tuple[SharedRange, ...]
    scales: Tuple[TensorScale, ...]
    automatic_scales: Dict[str, float]
    conflicts: Tuple[DiagnosticRow, ...]
    weights: Tuple[WeightCheck, ...]
    diagnostics: Tuple[DiagnosticRow, ...]
    integrity: Optional[Integrity] = field(default=None, metadata={"later": True, "sparse": True})


@dataclass(frozen=True)
class ScaleCounts:
    """automatic: for tensors that only TensorRT's network has."""

    total: int
    explicit: int
    automatic: int


@dataclass(frozen=True)
class WeightCounts:
    """exact: every trained value is reproduced."""

    total: int
    exact: int


@dataclass(frozen=True)
class CauseSummary:
    """See `FoundCauses`."""

    groups: List[CauseGroup]
    what_if: List[WhatIf]


@dataclass(frozen=True)
class DlaSummary:
    """See `Dla`. gpu_operators: ONNX operator -> how many of its layers run on the GPU, in graph order."""

    gpu_operators: Dict[str, int]
    counts: Counts
    shares: Shares
    transitions: Transitions
    subgraphs: int
    notes: Texts


@dataclass(frozen=True)
class Metric:
    """The user's metric of the model and of the simulated engine."""

    name: str
    model: float
    engine: float


@dataclass(frozen=True)
class Summary:
    """What `translate` prints at its end, and one row of `translate --json`. source: as named on the command line. preset: the
    flags that a preset stands for. failed: missed thresholds, '' for none. not_cut: why there are no parts."""

    source: str
    model: str
    files: Dict[str, str]
    cache_header: str
    cache_origin: str
    scales: ScaleCounts
    coverage: Coverage
    fp16_nodes: int
    weights: WeightCounts
    root_causes: CauseSummary
    dla: Optional[DlaSummary]
    cost: Optional[Cost]
    split: Optional[CutParts]
    preset: Texts
    dla_rewrites: str
    dynamic_inputs: Texts
    diagnostics: Tuple[DiagnosticRow, ...]
    failed: str
    not_cut: str = ""
    metric: Optional[Metric] = field(default=None, metadata=_SPARSE)
