"""The report as rows for the page: one object a tensor and a layer, with everything that the page says of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from qdq_translator.words import milliseconds, size

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
    """scale: None where it has none. producer: layer, -1 for graph inputs. assumed: of a plan, which gives it one."""

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
    readers: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Layer:
    """One row of the plan. kind: a key of KINDS. device: a key of DEVICES or ''. db: SQNR of what it makes, as read.

    cost: the row's object in the report, {} without one.
    """

    index: int
    name: str
    op: str
    kind: str
    device: str
    reason: str
    cure: str
    cause: int
    macs: Optional[int]
    share: Optional[float]
    weights: int
    inputs: list[int]
    outputs: list[int]
    findings: list[dict[str, str]]
    cost: dict[str, Any] = dataclasses.field(default_factory=dict)
    db: Optional[float] = None
    changed: str = ""

    @property
    def milliseconds(self) -> Optional[float]:
        """Estimated; None where it is part of another layer, or unknown."""
        return None if self.cost.get("fused_into") else self.cost.get("milliseconds")

    @property
    def time_words(self) -> str:
        """What stands in the column of times; '' on the GPU and without an estimate."""
        if self.cost.get("fused_into"):
            return "fused"
        return "" if self.milliseconds is None else f"{self.milliseconds:.3f}"

    @property
    def mark(self) -> str:
        return KINDS[self.kind][0]

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
        verdicts = (report.get("dla") or {}).get("layers") or []
        plan = report.get("plan") or []
        for index, row in enumerate(plan):
            verdict = verdicts[index] if len(verdicts) == len(plan) else {}
            self._add(index, row, verdict)

    def tensor(self, name: str) -> int:
        if name not in self.tensor_index:
            self.tensor_index[name] = len(self.tensors)
            self.tensors.append(Tensor(name, assumed=self.assumed))
        return self.tensor_index[name]

    def _add(self, index: int, row: dict[str, Any], verdict: dict[str, Any]) -> None:
        precision, device = row.get("precision", ""), row.get("dla") or verdict.get("verdict") or ""
        if device == "gpu":
            kind = "gpu"
        elif precision == "int8":
            kind = "limit" if device == "dla-fp16" else "int8"
        elif precision == "fp16":
            kind = "expected" if row.get("by_design") else "avoidable"
        else:
            kind = "none"
        cause = row.get("cause") or ""
        layer = Layer(
            index,
            row["name"],
            row.get("op", ""),
            kind,
            device,
            row.get("reason", ""),
            row.get("cure") or "",
            self.tensor(cause) if cause else -1,
            row.get("macs"),
            row.get("macs_share"),
            row.get("weights") or 0,
            [self.tensor(name) for name in row.get("inputs") or []],
            [self.tensor(name) for name in row.get("outputs") or []],
            verdict.get("findings") or [],
            row.get("cost") or {},
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


def cost_words(layer: Layer) -> str:
    """'0.123 ms (estimate), bound by memory, 12.3 kB'; '' without a figure."""
    cost = layer.cost
    if cost.get("fused_into"):
        return f"part of the layer of {cost['fused_into']}"
    bytes_ = size(cost["bytes"]) if cost.get("bytes") is not None else ""
    if layer.milliseconds is None:
        return bytes_
    bound = f", bound by {cost['bound']}" if cost.get("bound") else ""
    return f"{milliseconds(layer.milliseconds)} (estimate){bound}, {bytes_}"
