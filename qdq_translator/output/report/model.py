"""The report as rows for the page: one object a tensor and a layer, with everything that the page says of it."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Optional

from qdq_translator.core.formats.rows import read
from qdq_translator.targets.precision import LayerPlan

KINDS = {
    "int8": ("8", "INT8"),
    "avoidable": ("16!", "FP16 avoidable"),
    "expected": ("16", "FP16 by design"),
    "limit": ("16D", "FP16, by a DLA limit"),
    "gpu": ("GPU", "GPU, by a DLA limit"),
    "none": ("-", "no float data"),
}
"""What a layer runs in: mark (readable without colour) and words."""

DEVICES = {
    "dla-int8": ("DLA", "DLA, INT8"),
    "dla-fp16": ("DLA", "DLA, FP16"),
    "gpu": ("", "GPU"),
    "folded": ("", "computed while building"),
}


@dataclasses.dataclass
class Tensor:
    """scale: None where it has none. producer: layer, -1 for graph inputs. assumed: of a plan, which gives it one. bits_lost: of its
    resolution, on a range that the DLA requires it to share; None where it shares none."""

    name: str
    scale: Optional[float] = None
    hex: str = ""
    explicit: bool = False
    rule: str = ""
    node: str = ""
    source: str = ""
    shape: Optional[list[Any]] = None
    role: str = ""
    producer: int = -1
    assumed: bool = False
    bits_lost: Optional[float] = None
    readers: list[int] = dataclasses.field(default_factory=list)


def _of_row(key: str) -> Any:
    return property(operator.attrgetter(f"row.{key}"))


@dataclasses.dataclass
class Layer:
    """One row of the plan, numbered. kind: a key of KINDS. device: one of DEVICES, '' for a GPU as target. cause, inputs,
    outputs: numbers of tensors (-1: none). subgraph: of the DLA, -1 for none. db: SQNR of what it makes, as read. noise: its share (0
    to 1) of the noise at the outputs, by the noise account. changed, was: of a comparison."""

    index: int
    row: LayerPlan
    kind: str
    device: str
    cause: int
    inputs: list[int]
    outputs: list[int]
    findings: list[dict[str, str]]
    subgraph: int = -1
    db: Optional[float] = None
    noise: Optional[float] = None
    changed: str = ""
    was: str = ""

    name, op, reason, cure = (_of_row(key) for key in ("name", "op", "reason", "cure"))
    cost, milliseconds, hypotheses = (_of_row(key) for key in ("cost", "milliseconds", "hypotheses"))
    macs, share, weights = (_of_row(key) for key in ("macs", "macs_share", "weights"))

    @property
    def label(self) -> str:
        return KINDS[self.kind][1]

    @property
    def device_label(self) -> str:
        return DEVICES[self.device][1] if self.device in DEVICES else ""


class Network:
    """The plan of a report with its tensors, numbered."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.assumed = bool(report.get("assumption"))
        self.on_dla = bool(report.get("dla"))
        self.tensors: list[Tensor] = []
        self.tensor_index: dict[str, int] = {}
        self.layers: list[Layer] = []
        self.layer_index: dict[str, int] = {}
        for role in ("inputs", "outputs"):
            for row in report.get(role) or []:
                tensor = self.tensors[self.tensor(row["name"])]
                tensor.role = "graph " + role[:-1]
                tensor.shape = row.get("shape")
        self.inputs = [self.tensor(row["name"]) for row in report.get("inputs") or []]
        self.outputs = [self.tensor(row["name"]) for row in report.get("outputs") or []]
        for row in report.get("scales") or []:
            tensor = self.tensors[self.tensor(row["tensor"])]
            tensor.scale, tensor.hex = row.get("scale"), row.get("hex") or ""
            tensor.explicit, tensor.rule = bool(row.get("explicit")), row.get("rule") or ""
            tensor.node, tensor.source = row.get("node") or "", row.get("source") or ""
        for shared in report.get("shared_ranges") or []:
            for row in () if shared.get("refused") else shared["tensors"]:
                self.tensors[self.tensor(row["tensor"])].bits_lost = row.get("bits_lost")
        verdicts = (report.get("dla") or {}).get("layers") or []
        plan = report.get("plan") or []
        for index, row in enumerate(plan):
            verdict = verdicts[index] if len(verdicts) == len(plan) else {}
            self._add(index, read(LayerPlan, row), verdict)

    def tensor(self, name: str) -> int:
        if name not in self.tensor_index:
            self.tensor_index[name] = len(self.tensors)
            self.tensors.append(Tensor(name, assumed=self.assumed))
        return self.tensor_index[name]

    def _add(self, index: int, row: LayerPlan, verdict: dict[str, Any]) -> None:
        device = ""
        if self.on_dla:
            device = row.runs if row.device == "dla" else "gpu" if row.device == "gpu" else "folded"
        if device == "gpu":
            kind = "gpu"
        elif row.precision == "fp16":
            kind = "limit" if row.limited else "avoidable" if row.avoidable else "expected"
        else:
            kind = row.precision
        layer = Layer(
            index,
            row,
            kind,
            device,
            self.tensor(row.cause) if row.cause else -1,
            [self.tensor(name) for name in row.inputs],
            [self.tensor(name) for name in row.outputs],
            verdict.get("findings") or [],
            verdict.get("subgraph", -1),
        )
        self.layers.append(layer)
        self.layer_index[layer.name] = index
        for tensor in layer.outputs:
            self.tensors[tensor].producer = index
        for tensor in layer.inputs:
            self.tensors[tensor].readers.append(index)

    def link(self, node: str = "", tensor: str = "") -> str:
        """The place of a layer, else of a tensor, on the page; '' where it has none."""
        if node in self.layer_index:
            return f"#layer-{self.layer_index[node]}"
        return f"#tensor-{self.tensor_index[tensor]}" if tensor in self.tensor_index else ""
