"""Rows of NAME_report.json: written, read and published as a schema from these definitions. docs/report_schema.md
explains the keys.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Dict, Final, List, Literal, Optional, Tuple, Union

from qdq_translator._version import __version__
from qdq_translator.core.formats.rows import Row

GENERATOR: Final = f"qdq-translator {__version__}"
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


class Source(Row):
    """The translated model. file, sha256: empty for a model in memory."""

    file: str
    sha256: str


class CacheVersion(Row):
    """Of the calibration cache. number: in its header. origin: 'option', 'platform', 'installed' or 'default'."""

    number: str
    origin: str


class WeightParts(Row):
    """Layers, or elements of weights: in INT8, and above it by design, by a limit of the DLA, or avoidably. total: the
    sum of the other four."""

    total: int
    int8: int
    by_design: int
    limit: int
    avoidable: int


class MacParts(Row):
    """The same in MACs: of Conv, ConvTranspose, Gemm, MatMul, Einsum, LSTM, GRU and RNN, with batch 1 if the batch is
    dynamic. total, int8, by_design, limit, avoidable: None if the MACs of one layer are unknown, which `--shapes`
    fixes. unknown_layers: the number of such layers."""

    total: Optional[int]
    int8: Optional[int]
    by_design: Optional[int]
    limit: Optional[int]
    avoidable: Optional[int]
    unknown_layers: int


class Coverage(Row):
    """Share of INT8. A layer above INT8 is in one of three classes. By design: it makes a graph output, or leads
    only through data movement and final activations to graph outputs; TensorRT gives the last multiplying layer
    before a float output a float output, and a graph output never gets an inferred scale (rule S2). Limit: all its
    tensors have scales, but a limit of the DLA keeps it in FP16 or moves it to the GPU. Avoidable: all others."""

    layers: WeightParts
    macs: MacParts
    weights: WeightParts


class Origin(Row):
    """Origin of a scale. rule: the one that gave it. node: the one to which it applied. source: the tensor whose scale
    it used. note: remark of the rule.
    """

    rule: str
    node: str = field(default="", metadata=_SPARSE)
    source: str = field(default="", metadata=_SPARSE)
    note: str = field(default="", metadata=_SPARSE)


class End(Row):
    """A graph input or output as the application has it. name: tensor. shape: list of sizes; a dynamic size is its
    name or None; None if nothing is known. is_float: whether the tensor has a float type. scale: quantization step
    (real = quantized value * scale), or None. hex: the scale as in the cache: float32, big-endian. origin: None
    without a scale."""

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


class LayerCost(Row):
    """Estimated time of one layer on the DLA. milliseconds, bytes: as planned; None if unknown or if no figure is
    published. bound: 'compute', 'memory', 'overhead', or '' for a layer without its own time. int8_milliseconds,
    fp16_milliseconds: of the layer in either precision. fused_into: the layer that contains it, or ''. share: 0 to
    1 of all milliseconds on the DLA."""

    milliseconds: Optional[float]
    bytes: Optional[int]
    bound: Optional[str]
    int8_milliseconds: Optional[float] = None
    fp16_milliseconds: Optional[float] = None
    fused_into: Optional[str] = ""
    share: Optional[float] = None


class LayerPlan(Row):
    """One node of the stripped model: the record that plan, estimate, simulation, report and `check-engine` read.
    name, op: node and ONNX operator. device: 'none' if TensorRT evaluates the layer at build time. precision:
    'int8'; 'fp16' for anything higher; 'none' without float data. hypotheses: assumptions about device, precision
    and rounding that no public source settles (verdict.md). reason: sentence: the limit that moves it to the GPU
    or to FP16, or the tensor without a scale, the rule that would give it and why it did not. inputs, outputs: its
    float activations. missing: those without a scale. listed: in `fp16_nodes` and in the layer argument, because it
    reads a tensor without scale. wide: FP32 in the layer argument, because FP16 cannot hold its values (rule P2); its
    precision is 'fp16'. by_design: see `coverage`. macs: None if unknown. weights: elements. cause:
    avoidable layer: the tensor whose scale would give the first missing one; else ''. cure: avoidable layer: the
    suggested action; else ''. macs_share: 0 to 1 of the network's; None if unknown or if the network has
    none. cost: None off the DLA."""

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
    wide: bool = field(default=False, metadata={"later": True})
    by_design: bool = False
    macs: Optional[int] = 0
    weights: int = 0
    cause: str = ""
    cure: str = ""
    macs_share: Optional[float] = None
    cost: Optional[LayerCost] = None

    @property
    def milliseconds(self) -> Optional[float]:
        """Estimated; None on the GPU, for a part of another layer, and if it is unknown."""
        return None if self.cost is None or self.cost.fused_into else self.cost.milliseconds

    @property
    def saved_by_int8(self) -> Optional[float]:
        """Milliseconds less than in FP16 by the estimate; None as `milliseconds` is."""
        cost = self.cost
        if cost is None or cost.fused_into or cost.fp16_milliseconds is None or cost.int8_milliseconds is None:
            return None
        return cost.fp16_milliseconds - cost.int8_milliseconds

    @property
    def avoidable(self) -> bool:
        """True if it runs in higher precision but should not."""
        return self.precision == FP16 and not self.by_design and not self.limited

    @property
    def limited(self) -> bool:
        """Above INT8 because of a limit of the DLA, not because of a scale or the layer argument."""
        return self.precision == FP16 and not (self.missing or self.listed or self.by_design)

    @property
    def runs(self) -> str:
        """Device and precision as one word: 'dla-int8', 'gpu-fp16'; 'none' for a layer that computes nothing."""
        return self.device if NO_PRECISION in (self.device, self.precision) else f"{self.device}-{self.precision}"


class RootCause(Row):
    """One tensor without scale from which others would follow. tensor: the cause. users: its counterpart in the given
    model: itself, except for tensors made by rewrites. producer, op: the node that makes it; '' and 'graph input' for
    an input. sentence: the layers in FP16 because of it. why: the rule that would give the scale and why it did not.
    cure: the suggested action. rule: the one that gives it with `options`, or ''. options: flags that give the scale
    and all that follows; `--calibrate DATA` if only data can; empty if the tensor must be quantized. follows: missing
    tensors that would follow from its scale. layers: avoidable layers that this scale alone brings to INT8. shared:
    avoidable layers that need further causes too, or that also make a graph output without scale. macs: of `layers`;
    None if unknown. milliseconds: estimated gain on the DLA, or None."""

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


class CauseGroup(Row):
    """Causes with the same operator and the same kind of cure (rules, data or quantization). layers: avoidable
    layers that the whole group brings to INT8. macs: theirs. total_macs: with all groups before it. milliseconds:
    estimated gain, or None."""

    op: str
    options: Tuple[str, ...]
    tensors: Tuple[str, ...]
    layers: int
    macs: Optional[int]
    total_macs: Optional[int]
    milliseconds: Optional[float] = None


class WhatIf(Row):
    """The plan with further options, each alone if there are several, then all together. scales: tensors with a
    scale. For a DLA target each is evaluated on the model, including `--dla_rewrites` and `--unify_scales max`,
    best first. int8_layers, int8_macs: in INT8; None if unknown. gpu_layers: None for a GPU as target. milliseconds: of
    the network, with transitions at the high end; None for a GPU as target. bits_lost: the largest loss of resolution
    of a tensor; None for a GPU as target."""

    options: Tuple[str, ...]
    int8_layers: int
    int8_macs: Optional[int]
    scales: int
    gpu_layers: Optional[int] = None
    milliseconds: Optional[float] = None
    bits_lost: Optional[float] = field(default=None, metadata={"digits": 3})


class FoundCauses(Row):
    """Causes of higher precision. causes: a small set of tensors from which all missing scales of avoidable layers
    follow by the enabled rules; the smallest set if each rule needs one known tensor; sorted by `milliseconds` if
    estimated, else by `macs`, largest first. groups: the same, joined. what_if: options worth trying."""

    causes: List[RootCause]
    groups: List[CauseGroup]
    what_if: List[WhatIf]


class Finding(Row):
    """A violated limit of the DLA. limit: its row in `translation/targets/dla/limits.py`. text: the limit.
    found: in the model. effect: 'gpu' or 'dla-fp16'. source: public source of the limit; sources state limits, not
    consequences: that a layer outside an INT8 limit runs in FP16, and outside any other limit on the GPU, is
    inferred. status: 'documented' if the source states the limit, 'inferred' if it follows from other evidence."""

    limit: str
    text: str
    found: str
    effect: str
    source: str
    status: str


class Verdict(Row):
    """Placement of one layer. findings: limits that it violates. unknown: limits that need unknown shapes.
    subgraph: number of its DLA subgraph, -1 for none. wants_scale: on the GPU only because a scale is missing."""

    name: str
    op: str
    verdict: Place
    findings: Tuple[Finding, ...] = ()
    unknown: Texts = ()
    subgraph: int = -1
    wants_scale: bool = False


class Counts(Row):
    """Layers per verdict. gpu: a build error without GPU fallback. folded: shape arithmetic and constants."""

    dla_int8: int = field(metadata={"key": "dla-int8"})
    dla_fp16: int = field(metadata={"key": "dla-fp16"})
    gpu: int
    folded: int


class Share(Row):
    """Layers of one verdict. macs, macs_share: None if unknown. milliseconds: of the layers on the DLA; None on
    the GPU."""

    layers: int
    macs: Optional[int]
    milliseconds: Optional[float]
    macs_share: Optional[float] = None


class Shares(Row):
    dla_int8: Share = field(metadata={"key": "dla-int8"})
    dla_fp16: Share = field(metadata={"key": "dla-fp16"})
    gpu: Share


class Transition(Row):
    """Tensors that pass from one side to another. bytes: as their producer writes them; None if unknown."""

    tensors: int
    bytes: Optional[int]


class Transitions(Row):
    """int8_fp16: between precisions on the DLA. dla_gpu: between the devices."""

    int8_fp16: Transition
    dla_gpu: Transition


class Dla(Row):
    """Placement on a DLA: predicted from documented and inferred limits, not measured on a DLA. generation: 'orin' or
    'xavier'. subgraphs: predicted DLA subgraphs, one loadable each. max_loadables: the number that a core holds at
    once. notes: sentences. layers: one for each row of the plan."""

    generation: str
    counts: Counts
    subgraphs: int
    max_loadables: int
    notes: Texts
    layers: Tuple[Verdict, ...]
    shares: Shares
    transitions: Transitions


class Cost(Row):
    """An estimate from published figures (cost.md) for one DLA core. milliseconds: all layers on the DLA; None if a
    shape is unknown or no figure is published. fp16_milliseconds: the same with all layers in FP16. gpu_milliseconds:
    layers on the GPU in addition. transition_milliseconds, transition_high_milliseconds: conversions between DLA and
    GPU at the low and at the high end (hypothesis `transitions`). total_milliseconds, total_high_milliseconds: the sum
    of the three at each end. all_gpu_milliseconds, all_gpu_fp16_milliseconds: the whole network, as it was before
    rewrites, on the GPU in INT8 and in FP16. extrapolated_milliseconds: the part of `milliseconds` for operators
    without published times. what: description of the estimate. note: the power mode or clock, or why there is no
    figure. unknown_layers: layers without an estimate. model: `name`, `source`, `clock_ghz` and the parameters; None
    without a figure."""

    milliseconds: Optional[float]
    fp16_milliseconds: Optional[float]
    gpu_milliseconds: Optional[float]
    transition_milliseconds: Optional[float]
    transition_high_milliseconds: Optional[float]
    total_milliseconds: Optional[float]
    total_high_milliseconds: Optional[float]
    all_gpu_milliseconds: Optional[float]
    all_gpu_fp16_milliseconds: Optional[float]
    extrapolated_milliseconds: Optional[float]
    what: str
    note: str
    unknown_layers: int
    model: Optional[Dict[str, Any]]


class NodeRow(Row):
    node: str
    op: str


class Applied(Row):
    """One application of a rewrite rule. rule: see dla_rewrites.md. before, after: removed and added nodes.
    tensors: removed tensor -> the tensors that contain its values. new_tensors: not in the original; their scales
    are in `scales`, with the rule as origin."""

    rule: str
    before: Tuple[NodeRow, ...]
    after: Tuple[NodeRow, ...]
    tensors: Dict[str, List[str]]
    new_tensors: Texts


class Left(Row):
    """A layer that remains on the GPU. limit: of the DLA. why: no rule applied, or ''."""

    node: str
    op: str
    limit: str
    why: str


class Rewrites(Row):
    """Result of `--dla_rewrites`; empty without the option. applied: one row per application, in order. nodes: node
    that was removed or has another operator now -> its replacements. tensors: removed tensor -> the tensors that
    contain its values or parts of them. left: layers that remain on the GPU."""

    applied: Tuple[Applied, ...]
    nodes: Dict[str, List[str]]
    tensors: Dict[str, List[str]]
    left: Tuple[Left, ...]


class SharedTensor(Row):
    """scale: its own, before. bits_lost: log2 of the ratio of the scales."""

    tensor: str
    scale: float
    bits_lost: float = field(metadata={"digits": 3})


class SharedRange(Row):
    """Tensors that the DLA requires to share a scale and whose scales differ. scale, source: the largest scale and
    its tensor. raised: whether `--unify_scales max` applied it to all. refused: whether that would exceed
    `--max_bits_lost`, so that `nodes` stay in FP16. nodes: the layers that require it."""

    scale: float
    source: str = field(metadata={"key": "from"})
    raised: bool
    refused: bool
    nodes: Texts
    tensors: Tuple[SharedTensor, ...]


class TensorScale(Row):
    """A tensor with a scale: inputs first, then node outputs. scale: quantization step. hex: as in the cache. explicit:
    from a quantizer of the model. rule, node, source, note: as in `inputs[].origin`."""

    tensor: str
    scale: float
    hex: str
    explicit: bool
    rule: str
    node: str = field(default="", metadata=_SPARSE)
    source: str = field(default="", metadata=_SPARSE)
    note: str = field(default="", metadata=_SPARSE)


class WeightCheck(Row):
    """One quantized weight of one layer. weight, node: initializer and the layer that uses it. codes: number of trained
    INT8 values. reproduced: those that TensorRT's own quantization of the written weights reproduces (a
    channel whose sign was folded in counts with its sign). channels: output channels. mixed_channels: those with
    several scales (quantized along another axis), which no scale of TensorRT's can reproduce. full_channels: the
    others that use +-127, where TensorRT must reproduce every value. full_reproduced: share reproduced in those;
    None without any. largest_code_error: in quantization steps. largest_error: relative to the channel's largest
    weight. saturated: values of -128 that became -127. note: why the values could not be compared, or ''.
    one_scale: TensorRT has one scale for the whole weight (a MatMul of other than two matrices), counted as one
    channel. exact: whether `share` is 1. share: `reproduced` / `codes`."""

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


class DiagnosticRow(Row):
    """See `core.diagnostics.Diagnostic`. code: severity letter and rule. node, tensor, hint, data: if applicable."""

    code: str
    severity: Literal["info", "warning"]
    rule: str
    message: str
    node: str = field(default="", metadata=_SPARSE)
    tensor: str = field(default="", metadata=_SPARSE)
    hint: str = field(default="", metadata=_SPARSE)
    data: Dict[str, Any] = field(default_factory=dict, hash=False, metadata=_SPARSE)


class Border(Row):
    """An input or output of a part. type: ONNX's name of it. scale: None for a float tensor. format: of
    `--inputIOFormats`.
    """

    name: str
    type: Optional[str] = field(default=None, metadata=_LATER)
    shape: Optional[Tuple[Union[int, str, None], ...]] = field(default=None, metadata=_LATER)
    scale: Optional[float] = field(default=None, metadata=_LATER)
    format: str = field(default="", metadata=_SPARSE)


class UnplacedPart(Row):
    """A part without a plan for a DLA: of a model as it is, or of a translation for a GPU."""

    role: str
    file: str
    layers: int
    inputs: Tuple[Border, ...]
    outputs: Tuple[Border, ...]


class Part(UnplacedPart):
    """One network of those that a model was cut into. role: 'before', 'dla', 'between' or 'after'. milliseconds:
    estimated."""

    gpu_layers: Optional[int] = field(default=None, metadata=_SPARSE)
    subgraphs: Optional[int] = field(default=None, metadata=_SPARSE)
    milliseconds: Optional[float] = field(default=None, metadata=_LATER)


class Proof(Row):
    """runs: inputs on which the parts, one after the other, gave the bits of the whole."""

    runs: int


class CutParts(Row):
    """Result of `--parts`. folder: next to the report. parts: in order of execution, as in `NAME_split.json`.
    tail: layers of the tail. proof: of the parts against the whole. tail_macs_share: 0 to 1, None if unknown."""

    folder: str
    parts: Tuple[Part, ...]
    tail: Texts
    proof: Proof
    tail_macs_share: Optional[float] = field(default=None, metadata=_LATER)


class SplitManifest(Row):
    """NAME_split.json. parts: in order of execution. tail: layers behind the last one of the DLA, not to be quantized.
    proof, tail_macs_share: as in `CutParts`."""

    schema_version: int
    kind: str
    generator: str
    source: Source
    parts: Tuple[UnplacedPart, ...]
    tail: Texts
    tail_macs_share: Optional[float]
    proof: Proof


class OpsetChange(Row):
    before: int = field(metadata={"key": "from"})
    after: int = field(metadata={"key": "to"})


class ExplicitLayers(Row):
    """Counts of layers that compute in INT8, and of those planned in INT8; names of those that were only planned."""

    int8: int
    planned_int8: int
    not_int8_though_planned: Texts


class FloatLayer(Row):
    """A layer of an explicit network above INT8. why: as `reason` of its plan."""

    layer: str
    op: str
    why: str
    cure: str


class ExplicitReport(Row):
    """NAME_explicit_report.json. platform: '' if none was given. form: types of data and scales. pairs: tensor with a
    Q/DQ pair -> its scale; zero_points: of those that are uint8. weights: weight -> nodes that read it in INT8.
    without_pair: tensor with a scale -> why it has no pair. float32: node -> why it does not compute in FP16."""

    schema_version: int
    kind: str
    generator: str
    source: Source
    target: str
    platform: str
    form: str
    opset: OpsetChange
    io_types: str
    parser_flags: Texts
    pairs: Dict[str, float]
    zero_points: Dict[str, int]
    weights: Dict[str, List[str]]
    without_pair: Dict[str, str]
    layers: ExplicitLayers
    stays_float: Tuple[FloatLayer, ...]
    float32: Dict[str, str]
    casts: int
    notes: Texts
    diagnostics: Tuple[DiagnosticRow, ...]


class ExplicitTarget(Row):
    """Data of NAME_explicit_report.json for building the network. parser_flags: for a DLA."""

    target: str
    platform: str
    parser_flags: Texts = ("adjust_for_dla",)


class Digests(Row):
    """Of the stripped model's ends, nodes and initializers, by name."""

    ends: Dict[str, str]
    nodes: Dict[str, str]
    initializers: Dict[str, str]


class Integrity(Row):
    """Digests of the files when they were written; only in the file, not in `translation.report`. set: id of the
    translation, also in the precision config. model: of the stripped model."""

    set: str
    cache: str
    layer_arg: str
    config: str
    model: Digests


class Report(Row):
    """`NAME_report.json`. schema_version: 3. generator: program and version. model: NAME. assumption: ''; for
    `plan`: 'every tensor has a scale'. options: every option of the translation by flag name. coverage: share of
    INT8. inputs, outputs: tensors of the application. root_causes: causes of higher precision. plan: one row per
    layer. nodes_in_your_model: layer without an equal node in the given model (rewritten, normal form, renamed) ->
    the node that it implements. dla: placement on the DLA; None for a GPU as target. cost: estimated time on the
    DLA; likewise. parts: None if nothing was cut. dla_rewrites: of the DLA. shared_ranges: tensors that must share
    a scale and do not. scales: one row per tensor with a scale. automatic_scales: tensor that exists only in
    TensorRT's network -> scale (rule S10). conflicts: diagnostics of rule C1. weights: one row per quantized
    weight. diagnostics: of all rules. integrity: digests of the written files."""

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
    nodes_in_your_model: Dict[str, NodeRow] = field(default_factory=dict, hash=False, metadata=_LATER)
    dla: Optional[Dla] = None
    cost: Optional[Cost] = None
    parts: Optional[CutParts] = None
    dla_rewrites: Rewrites = Rewrites((), {}, {}, ())
    shared_ranges: Tuple[SharedRange, ...] = ()
    scales: Tuple[TensorScale, ...] = ()
    automatic_scales: Dict[str, float] = field(default_factory=dict, hash=False)
    conflicts: Tuple[DiagnosticRow, ...] = ()
    weights: Tuple[WeightCheck, ...] = ()
    diagnostics: Tuple[DiagnosticRow, ...] = ()
    integrity: Optional[Integrity] = field(default=None, metadata={"later": True, "sparse": True})


class ScaleCounts(Row):
    """automatic: for tensors that only TensorRT's network has."""

    total: int
    explicit: int
    automatic: int


class WeightCounts(Row):
    """exact: every trained value is reproduced."""

    total: int
    exact: int


class CauseSummary(Row):
    """See `FoundCauses`."""

    groups: List[CauseGroup]
    what_if: List[WhatIf]


class DlaSummary(Row):
    """See `Dla`. gpu_operators: ONNX operator -> how many of its layers run on the GPU, in graph order."""

    gpu_operators: Dict[str, int]
    counts: Counts
    shares: Shares
    transitions: Transitions
    subgraphs: int
    notes: Texts


class ComparedSide(Row):
    """A translation. macs_share, layers_share: percent in INT8, on the DLA if that is the target; None if unknown.
    scales: tensors with one."""

    name: str
    model: str
    target: str
    options: Texts
    macs_share: Optional[float]
    layers_share: Optional[float]
    milliseconds: Optional[float]
    gpu_layers: int
    scales: int


class ChangedOption(Row):
    name: str
    before: str
    after: str


class ChangedLayer(Row):
    """a, b: device and precision on each side, in words; None if that side lacks it. reason: of B."""

    name: str
    op: str
    a: Optional[str]
    b: Optional[str]
    reason: str


class ChangedLayers(Row):
    """union: layers of A or B."""

    union: int
    only_a: int
    only_b: int
    changed: Tuple[ChangedLayer, ...]


class ChangedScale(Row):
    tensor: str
    a: Optional[float]
    b: Optional[float]


class ChangedCauses(Row):
    """Tensors without scale from which others would follow, in A only and in B only."""

    gone: Texts
    new: Texts


class Comparison(Row):
    """`report --against --json`. worse: how B is worse than A, '' if it is not."""

    schema_version: int
    a: ComparedSide
    b: ComparedSide
    same_source: bool
    worse: str
    options: Tuple[ChangedOption, ...]
    layers: ChangedLayers
    scales: Tuple[ChangedScale, ...]
    causes: ChangedCauses


class RestoreSummary(Row):
    """`restore --json`. tensors, weights: with Q/DQ. left_out: kind -> entries of the cache. unknown_layers: of the
    layer argument. shared_scales: grouped weights whose groups share scales."""

    output: str
    tensors: int
    weights: int
    left_out: Dict[str, List[str]]
    without_scale: Texts
    unknown_layers: Texts
    shared_scales: Texts


class DeploySummary(Row):
    """`deploy --json`. good: None if nothing was measured on data; reason: for it; next: the command, or what to do.
    target: device. cost: estimate. scores: metric -> values of the model and of what was written. dla: layers per
    verdict. milliseconds: of the whole network. verdict: None if nothing was compared; reasons: for it. failed: missed
    thresholds. consumers: program -> its commands on the board; refused: program -> why. redone: steps.
    accuracy: sentences on what INT8 lost and what cures it."""

    folder: str
    network: str
    good: Optional[bool]
    reason: str
    next: str
    target: str
    cost: Optional[Cost]
    scores: Dict[str, Tuple[float, float]]
    coverage: Coverage
    dla: Optional[Counts]
    milliseconds: Optional[float]
    verdict: Optional[str]
    reasons: Texts
    failed: Texts
    consumers: Dict[str, List[str]]
    refused: Dict[str, str]
    redone: Texts
    accuracy: Texts = ()


class Metric(Row):
    """The user's metric of the model and of the simulated engine."""

    name: str
    model: float
    engine: float


class Summary(Row):
    """The last output of `translate`, and one row of `translate --json`. source: as named on the command line. preset:
    the flags that a preset sets. failed: missed thresholds, '' for none. not_cut: why there are no parts. accuracy:
    sentences of `--recover`.
    """

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
    accuracy: Texts = field(default=(), metadata=_SPARSE)
