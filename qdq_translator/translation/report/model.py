"""The report as rows for the page (one object per tensor and layer, with everything the page shows of it), and the
network on the DLA.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Optional, Sequence, Tuple, Union

from qdq_translator.core.formats.report_rows import Finding, LayerPlan, Report, TensorScale, Verdict

KINDS = {
    "int8": ("8", "INT8"),
    "avoidable": ("16!", "FP16 avoidable"),
    "expected": ("16", "FP16 by design"),
    "limit": ("16D", "FP16, by a DLA limit"),
    "gpu": ("GPU", "GPU, by a DLA limit"),
    "none": ("-", "no float data"),
}
"""Precision and device of a layer: mark (readable without colour) and words."""

DEVICES = {
    "dla-int8": ("DLA", "DLA, INT8"),
    "dla-fp16": ("DLA", "DLA, FP16"),
    "gpu": ("", "GPU"),
    "folded": ("", "computed while building"),
}


def _of_row(key: str) -> Any:
    return property(operator.attrgetter(f"row.{key}"))


_BARE: Any = TensorScale("", None, "", False, "")  # type: ignore[arg-type]


@dataclasses.dataclass
class Tensor:
    """A tensor of the page. row: its scale, with empty values if it has none. producer: layer, -1 for graph inputs.
    assumed: a plan assumes its scale. bits_lost: of its resolution, with a range that the DLA requires it to share;
    None if it shares none."""

    name: str
    row: TensorScale = _BARE
    shape: Optional[tuple[Any, ...]] = None
    role: str = ""
    producer: int = -1
    assumed: bool = False
    bits_lost: Optional[float] = None
    readers: list[int] = dataclasses.field(default_factory=list)

    scale, hex, explicit = (_of_row(key) for key in ("scale", "hex", "explicit"))
    rule, node, source = (_of_row(key) for key in ("rule", "node", "source"))


@dataclasses.dataclass
class Layer:
    """One row of the plan, numbered. kind: a key of KINDS. device: one of DEVICES, '' for a GPU as target. cause,
    inputs, outputs: numbers of tensors (-1: none). subgraph: of the DLA, -1 for none. db: SQNR of its output, as read
    ('equal', 'none left' without one). noise: its share (0 to 1) of the noise at the outputs, by the noise account.
    changed: of a comparison, 'better', 'worse', 'new' or ''."""

    index: int
    row: LayerPlan
    kind: str
    device: str
    cause: int
    inputs: list[int]
    outputs: list[int]
    findings: tuple[Finding, ...] = ()
    subgraph: int = -1
    db: Union[float, str, None] = None
    noise: Optional[float] = None
    changed: str = ""

    name, op, reason, cure = (_of_row(key) for key in ("name", "op", "reason", "cure"))
    cost, milliseconds, hypotheses = (_of_row(key) for key in ("cost", "milliseconds", "hypotheses"))
    macs, share, weights = (_of_row(key) for key in ("macs", "macs_share", "weights"))

    @property
    def label(self) -> str:
        return KINDS[self.kind][1]


class Network:
    """The plan of a report with its tensors, all numbered."""

    def __init__(self, report: Report) -> None:
        self.assumed = bool(report.assumption)
        self.on_dla = report.dla is not None
        self.tensors: list[Tensor] = []
        self.tensor_index: dict[str, int] = {}
        self.layers: list[Layer] = []
        self.layer_index: dict[str, int] = {}
        for role, ends in (("graph input", report.inputs), ("graph output", report.outputs)):
            for end in ends:
                tensor = self.tensors[self.tensor(end.name)]
                tensor.role, tensor.shape = role, end.shape
        self.inputs = [self.tensor_index[end.name] for end in report.inputs]
        self.outputs = [self.tensor_index[end.name] for end in report.outputs]
        for row in report.scales:
            self.tensors[self.tensor(row.tensor)].row = row
        for shared in report.shared_ranges:
            for member in () if shared.refused else shared.tensors:
                self.tensors[self.tensor(member.tensor)].bits_lost = member.bits_lost
        verdicts = report.dla.layers if report.dla else (None,) * len(report.plan)
        for layer, verdict in zip(report.plan, verdicts):
            self._add(layer, verdict)

    def tensor(self, name: str) -> int:
        if name not in self.tensor_index:
            self.tensor_index[name] = len(self.tensors)
            self.tensors.append(Tensor(name, assumed=self.assumed))
        return self.tensor_index[name]

    def _add(self, row: LayerPlan, verdict: Optional[Verdict]) -> None:
        device = ""
        if self.on_dla:
            device = row.runs if row.device == "dla" else "gpu" if row.device == "gpu" else "folded"
        kind: str = row.precision
        if device == "gpu":
            kind = "gpu"
        elif kind == "fp16":
            kind = "limit" if row.limited else "avoidable" if row.avoidable else "expected"
        inputs, outputs = list(map(self.tensor, row.inputs)), list(map(self.tensor, row.outputs))
        layer = Layer(len(self.layers), row, kind, device, self.tensor(row.cause) if row.cause else -1, inputs, outputs)
        if verdict is not None:
            layer.findings, layer.subgraph = verdict.findings, verdict.subgraph
        self.layer_index[layer.name] = layer.index
        self.layers.append(layer)
        for tensor in outputs:
            self.tensors[tensor].producer = layer.index
        for tensor in inputs:
            self.tensors[tensor].readers.append(layer.index)

    def link(self, node: str = "", tensor: str = "") -> str:
        """The anchor of a layer, else of a tensor, on the page; '' if it has none."""
        if node in self.layer_index:
            return f"#layer-{self.layer_index[node]}"
        return f"#tensor-{self.tensor_index[tensor]}" if tensor in self.tensor_index else ""


Found = Tuple[Verdict, Finding]


def by_limit(layers: Sequence[Verdict]) -> dict[str, list[Found]]:
    """Limit -> (row of `dla.layers`, its finding) for every layer that violates it, in order of appearance."""
    found: dict[str, list[Found]] = {}
    for row in layers:
        for finding in row.findings:
            found.setdefault(finding.limit, []).append((row, finding))
    return found


@dataclasses.dataclass(frozen=True)
class Subgraph:
    """One loadable. milliseconds: of its layers; None if one has no estimate."""

    number: int
    layers: list[Layer]
    milliseconds: Optional[float]

    @property
    def int8(self) -> int:
        return sum(layer.device == "dla-int8" for layer in self.layers)


@dataclasses.dataclass(frozen=True)
class Dla:
    """The DLA's part of the page. limits: limit -> its first finding and the layers that violate it. fallbacks: layers
    on the GPU, each with the findings that cause it and why no rewrite applied ('' if none was tried)."""

    limits: dict[str, tuple[Finding, list[Layer]]]
    fallbacks: list[tuple[Layer, list[Finding], str]]
    subgraphs: list[Subgraph]


def dla_rows(report: Report, network: Network) -> Optional[Dla]:
    """None without a DLA as target."""
    if report.dla is None:
        return None
    rows = report.dla.layers
    layers = {row.name: layer for row, layer in zip(rows, network.layers)}
    why = {row.node: row.why for row in report.dla_rewrites.left}
    subgraphs: dict[int, list[Layer]] = {}
    for row in rows:
        if row.subgraph >= 0:
            subgraphs.setdefault(row.subgraph, []).append(layers[row.name])
    return Dla(
        {key: (found[0][1], [layers[row.name] for row, _ in found]) for key, found in by_limit(rows).items()},
        [
            (layers[row.name], [one for one in row.findings if one.effect == "gpu"], why.get(row.name, ""))
            for row in rows
            if row.verdict == "gpu"
        ],
        [Subgraph(number, found, _time(found)) for number, found in subgraphs.items()],
    )


def _time(layers: list[Layer]) -> Optional[float]:
    times = [layer.milliseconds for layer in layers if layer.cost and not layer.cost.fused_into]
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None
