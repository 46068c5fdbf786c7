"""The report as one self-contained page, and the comparison of two translations as another.

Everything is drawn from the objects of `NAME_report.json` and of `verify --save`; keys that are missing leave their part of
the page out. Jinja2 escapes every name; the page's policy names its only script and style by hash, so that nothing else runs
and nothing is loaded. Without script the page still shows all of its content.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any, Callable, Iterable, Optional, Sequence

from qdq_translator.disk import write_file
from qdq_translator.errors import MissingDependency
from qdq_translator.options import TranslateOptions, effective
from qdq_translator.report.layout import BOX_HEIGHT, BOX_WIDTH, Layout, lay_out
from qdq_translator.report.messages import one_a_rule
from qdq_translator.rules import RULES, words
from qdq_translator.words import amount, milliseconds, size

_TEMPLATES = Path(__file__).with_name("templates")
_TOP_DB = 80.0
"""The chart of `verify` ends here; equal tensors lie on this line."""

KINDS = {
    "int8": ("8", "INT8"),
    "surprise": ("16!", "FP16, a surprise"),
    "expected": ("16", "FP16, expected"),
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

    @property
    def device_mark(self) -> str:
        return DEVICES[self.device][0] if self.device in DEVICES else ""


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
            kind = "expected" if row.get("expected") else "surprise"
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


@dataclasses.dataclass(frozen=True)
class Box:
    """One box of the picture: a layer, or a graph input or output (layer None)."""

    x: int
    y: int
    title: str
    name: str
    layer: Optional[Layer] = None
    tensor: int = -1


@dataclasses.dataclass(frozen=True)
class Label:
    """The scale of a tensor, below the box that makes it."""

    x: int
    y: int
    text: str
    tensor: int
    style: str


@dataclasses.dataclass(frozen=True)
class Edge:
    path: str
    tensor: int
    style: str


@dataclasses.dataclass(frozen=True)
class Picture:
    """The network drawn. left_out: layers without float data, which stand in the table only."""

    width: int
    height: int
    boxes: list[Box]
    edges: list[Edge]
    labels: list[Label]
    left_out: int
    columns: int

    @property
    def deep(self) -> bool:
        """Too many boxes to read their text when all of them show."""
        return len(self.boxes) > 400


def draw(network: Network) -> Picture:
    """Graph inputs, layers and graph outputs as boxes; every float activation as edges to its readers."""
    shown = [layer for layer in network.layers if layer.inputs or layer.outputs]
    if len(shown) > 1:  # layers that only feed shape arithmetic stand alone
        joined = {t for layer in shown for t in layer.inputs} & {t for layer in shown for t in layer.outputs}
        ends = {*network.inputs, *network.outputs}
        shown = [
            x
            for x in shown
            if x.kind != "none" or (x.inputs and x.outputs and {*x.inputs, *x.outputs} & (joined | ends))
        ]
    inputs = [t for t in network.inputs if network.tensors[t].producer < 0]
    maker = {tensor: number for number, tensor in enumerate(inputs)}
    for number, layer in enumerate(shown, len(inputs)):
        maker.update((tensor, number) for tensor in layer.outputs)
    links: list[tuple[int, int, int]] = []
    for number, layer in enumerate(shown, len(inputs)):
        links += [(maker[t], number, t) for t in layer.inputs if maker.get(t, number) < number]
    first_output = len(inputs) + len(shown)
    links += [(maker[t], first_output + i, t) for i, t in enumerate(network.outputs) if t in maker]
    layout = lay_out(first_output + len(network.outputs), [(a, b) for a, b, _ in links])
    boxes: list[Box] = []
    for number, (x, y) in enumerate(layout.boxes):
        if number < len(inputs):
            boxes.append(Box(x, y, "input", network.tensors[inputs[number]].name, tensor=inputs[number]))
        elif number < first_output:
            layer = shown[number - len(inputs)]
            boxes.append(Box(x, y, layer.op, layer.name, layer=layer))
        else:
            tensor = network.outputs[number - first_output]
            boxes.append(Box(x, y, "output", network.tensors[tensor].name, tensor=tensor))
    edges = [Edge(path, t, _edge_style(network.tensors[t])) for path, (_, _, t) in zip(layout.edges, links)]
    return Picture(
        layout.width,
        layout.height,
        boxes,
        edges,
        _labels(network, layout, maker),
        len(network.layers) - len(shown),
        len(layout.columns),
    )


def _labels(network: Network, layout: Layout, maker: dict[int, int]) -> list[Label]:
    made: dict[int, list[int]] = {}
    for tensor, number in maker.items():
        made.setdefault(number, []).append(tensor)
    labels = []
    for number, tensors in made.items():
        x, y = layout.boxes[number]
        for line, tensor in enumerate(tensors[:2]):
            row = network.tensors[tensor]
            text = "" if row.assumed else "no scale" if row.scale is None else f"{row.scale:.4g}"
            if line and len(tensors) > 2:
                text += f" +{len(tensors) - 2}"
            labels.append(
                Label(x + BOX_WIDTH // 2 + 7, y + BOX_HEIGHT + 14 + 13 * line, text, tensor, _edge_style(row))
            )
    return labels


def _edge_style(tensor: Tensor) -> str:
    return (
        "inferred"
        if tensor.assumed
        else "missing"
        if tensor.scale is None
        else "explicit"
        if tensor.explicit
        else "inferred"
    )


# ---------------------------------------------------------------- shares


@dataclasses.dataclass(frozen=True)
class Part:
    """One piece of a bar; start and share in percent, words: the amount for people."""

    kind: str
    mark: str
    label: str
    words: str
    amount: float
    start: float
    share: float


@dataclasses.dataclass(frozen=True)
class Bar:
    """title: what is shared out. total, parts: None and [] where it is unknown."""

    title: str
    total: Optional[float]
    words: str
    parts: list[Part]


def shares(network: Network) -> list[Bar]:
    """MACs, layers and weights by planned precision; with a DLA as target by its verdict, and the estimated time too."""
    working = [layer for layer in network.layers if layer.kind != "none"]
    placed = [layer for layer in network.layers if layer.device in DEVICES and layer.device != "folded"]
    if placed:
        verdicts = [layer.device for layer in placed]
        bars = [
            _bar("MACs", list(zip(verdicts, (x.macs for x in placed))), DEVICES),
            _bar("Layers", [(verdict, 1) for verdict in verdicts], DEVICES),
            _bar("Weights", list(zip(verdicts, (x.weights for x in placed))), DEVICES),
        ]
        times = [(x.device, x.cost.get("milliseconds")) for x in placed if x.cost]
        if times and all(time is not None for _, time in times):
            bars.append(_bar("Estimated ms on the DLA", times, DEVICES, milliseconds))
        return bars
    kinds = [layer.kind for layer in working]
    return [
        _bar("MACs", list(zip(kinds, (x.macs for x in working))), KINDS),
        _bar("Layers", [(kind, 1) for kind in kinds], KINDS),
        _bar("Weights", list(zip(kinds, (x.weights for x in working))), KINDS),
    ]


def _bar(
    title: str,
    amounts: Sequence[tuple[str, Optional[float]]],
    kinds: dict[str, tuple[str, str]],
    words: Callable[[Optional[float]], str] = amount,
) -> Bar:
    if any(amount is None for _, amount in amounts):
        return Bar(title, None, "unknown", [])
    sums = dict.fromkeys(kinds, 0.0)
    for kind, value in amounts:
        sums[kind] += value or 0
    total = sum(sums.values())
    parts, start = [], 0.0
    for kind, (mark, label) in kinds.items():
        if sums[kind]:
            share = 100 * sums[kind] / total
            parts.append(Part(kind, mark, label, words(sums[kind]), sums[kind], start, share))
            start += share
    return Bar(title, total, words(total), parts)


# ---------------------------------------------------------------- time


@dataclasses.dataclass(frozen=True)
class Dot:
    """One layer of the DLA in the roofline plot, in pixels."""

    x: float
    y: float
    layer: Layer
    title: str


@dataclasses.dataclass(frozen=True)
class Roofline:
    """MACs per byte against milliseconds, both logarithmic; layers that do not multiply stand at the left edge.

    ridge: where arithmetic takes as long as memory in INT8, a pixel; None without a model. ticks: (pixel, words).
    """

    dots: list[Dot]
    ridge: Optional[float]
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]


_PLOT = (52.0, 984.0, 14.0, 280.0)
"""left, right, top, bottom of the plot in a drawing of 1000 by 320."""


def roofline(network: Network, model: Optional[dict[str, Any]] = None) -> Optional[Roofline]:
    """None where no layer has an estimate. model: `cost.model` of the report."""
    shown = [layer for layer in network.layers if layer.milliseconds and layer.cost.get("bytes")]
    if not shown:
        return None
    left, right, top, bottom = _PLOT
    times = [math.log10(layer.milliseconds or 1.0) for layer in shown]
    low, high = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)
    most = 4.0  # 10^4 MACs a byte

    def across(value: float) -> float:
        return round(left + 20 + (right - left - 20) * min(max(math.log10(value), 0.0), most) / most, 1)

    def up(power: float) -> float:
        return round(bottom - (bottom - top) * (power - low) / (high - low), 1)

    dots = []
    for layer, time in zip(shown, times):
        intensity = (layer.macs or 0) / layer.cost["bytes"]
        x = across(intensity) if intensity >= 1 else left + 6
        words = f"{layer.op} {layer.name}: {intensity:.3g} MACs a byte, {_cost_words(layer)}"
        dots.append(Dot(x, up(time), layer, words))
    ridge = None
    if model:
        ridge = across(model["int8_rate"] * model["clock_ghz"] * 1e9 / model["bytes_per_second"])
    columns = [(across(10.0**power), f"{10**power:,}") for power in range(5)]
    rows = [(up(power), milliseconds(10.0**power)) for power in range(low, high + 1)]
    return Roofline(dots, ridge, columns, rows)


# ---------------------------------------------------------------- verify


@dataclasses.dataclass(frozen=True)
class Point:
    """One tensor on the chart of `verify`: pixels, and SQNR in dB (None: equal)."""

    x: float
    read_y: float
    made_y: Optional[float]
    tensor: int
    layer: int
    text: str


@dataclasses.dataclass(frozen=True)
class JumpMark:
    x: float
    y: float
    link: str
    title: str
    notes: list[str]


@dataclasses.dataclass(frozen=True)
class Chart:
    """Error along the depth of the network. made_lines: pieces, broken where nothing is known."""

    points: list[Point]
    jumps: list[JumpMark]
    grid: list[tuple[float, str]]
    read_line: str
    made_line: str


_CHART = (46.0, 984.0, 14.0, 224.0)
"""left, right, top, bottom of the plot in a drawing of 1000 by 260."""


def chart(verify: dict[str, Any], network: Network) -> Optional[Chart]:
    """None without results per layer. The tensors' dB go into the network's layers."""
    per_layer = verify.get("per_layer") or {}
    rows = per_layer.get("layers") or []
    if not rows:
        return None
    left, right, top, bottom = _CHART

    def height(comparison: Optional[dict[str, Any]]) -> Optional[float]:
        if comparison is None:
            return None
        db = _decibel(comparison)
        return round(bottom - (bottom - top) * min(max(db, 0.0), _TOP_DB) / _TOP_DB, 1)

    points: list[Point] = []
    places: dict[str, Point] = {}
    for number, row in enumerate(rows):
        x = round(left + (right - left) * (number / (len(rows) - 1) if len(rows) > 1 else 0.5), 1)
        made, read = row.get("made"), row.get("read") or {}
        tensor = network.tensor_index.get(row["tensor"], -1)
        layer = network.layer_index.get(row.get("node") or "", -1)
        text = f"{row['tensor']}: {_db_text(read)} as read"
        if made:
            text += f", {_db_text(made)} as made"
        point = Point(x, height(read) or 0.0, height(made), tensor, layer, text)
        points.append(point)
        places[row["tensor"]] = point
        if layer >= 0:
            network.layers[layer].db = _decibel(read)
    jumps = []
    for jump in per_layer.get("jumps") or []:
        at = places.get(jump["tensor"])
        if at is None:
            continue
        who = f"{jump.get('op', '')} {jump.get('node') or jump['tensor']}".strip()
        what = "computes something else" if jump.get("where") == "made" else "is rounded differently"
        lost = jump.get("lost_db")
        title = f"{who} {what}" + (f", {min(lost, 999.0):.1f} dB lost" if lost is not None else "")
        y = at.made_y if jump.get("where") == "made" and at.made_y is not None else at.read_y
        jumps.append(
            JumpMark(at.x, y, network.link(jump.get("node") or "", jump["tensor"]), title, jump.get("notes") or [])
        )
    grid = [(bottom - (bottom - top) * db / _TOP_DB, f"{db}") for db in (0, 20, 40, 60)] + [(top, "80+")]
    return Chart(
        points,
        jumps,
        grid,
        " ".join(f"{p.x:g},{p.read_y:g}" for p in points),
        " ".join(f"{p.x:g},{p.made_y:g}" for p in points if p.made_y is not None),
    )


def _decibel(comparison: dict[str, Any]) -> float:
    value = comparison.get("sqnr_db")
    if value is None:
        return math.inf if comparison.get("identical") else -math.inf
    return float(value)


def _db_text(comparison: dict[str, Any]) -> str:
    db = _decibel(comparison)
    return "equal" if db == math.inf else "nothing of the signal left" if db == -math.inf else f"{db:.1f} dB"


# ---------------------------------------------------------------- pages


def write_page(
    report: dict[str, Any],
    path: Path,
    against: Optional[dict[str, Any]] = None,
    verify: Optional[dict[str, Any]] = None,
) -> None:
    """Writes the page of `report`; with `against` (the earlier translation) the comparison of the two.

    report, against: objects of NAME_report.json. verify: the object that `verify --save` wrote, for `report`.
    Raises MissingDependency without jinja2, and UserError where the file cannot be written.
    """
    text = comparison_page(report, against, verify) if against is not None else report_page(report, verify)
    write_file(path, text.encode("utf-8", errors="replace"))


def report_page(report: dict[str, Any], verify: Optional[dict[str, Any]] = None) -> str:
    """The page of one translation as HTML."""
    network = Network(report)
    seen = chart(verify, network) if verify else None
    causes = report.get("root_causes") or {}
    scaled = [t for t in network.tensors if t.scale is not None]
    return _render(
        "report.html",
        report=report,
        network=network,
        picture=draw(network),
        bars=shares(network),
        causes={cause["tensor"]: cause for cause in causes.get("causes") or []},
        groups=causes.get("groups") or [],
        what_if=causes.get("what_if") or [],
        scaled=scaled,
        messages=one_a_rule(report.get("diagnostics") or []),
        options=_options(report),
        verify=verify or {},
        chart=seen,
        with_db=seen is not None,
        with_device=any(layer.device for layer in network.layers),
        with_cost=any(layer.cost for layer in network.layers),
        longest=max((layer.milliseconds or 0.0 for layer in network.layers), default=0.0),
        roofline=roofline(network, (report.get("cost") or {}).get("model")),
        data=_data(network),
    )


def comparison_page(report: dict[str, Any], against: dict[str, Any], verify: Optional[dict[str, Any]] = None) -> str:
    """What changed from `against` to `report`, as HTML; the network is drawn as `report` has it."""
    before, after = Network(against), Network(report)
    if verify:
        chart(verify, after)
    layers = _changed_layers(before, after)
    bars = [
        {"title": new.title, "before": old, "after": new, "first": _first_share(old), "second": _first_share(new)}
        for old, new in zip(shares(before), shares(after))
    ]
    old_causes, new_causes = _causes(against), _causes(report)
    return _render(
        "compare.html",
        report=report,
        against=against,
        network=after,
        picture=draw(after),
        bars=bars,
        layers=layers,
        scales=_changed_scales(before, after),
        options=_changed_options(against, report),
        gone=[cause for tensor, cause in old_causes.items() if tensor not in new_causes],
        new=[cause for tensor, cause in new_causes.items() if tensor not in old_causes],
        times=_times(against, report),
        same_source=(against.get("source") or {}).get("sha256") == (report.get("source") or {}).get("sha256"),
        scale_counts=(
            sum(t.scale is not None for t in before.tensors),
            sum(t.scale is not None for t in after.tensors),
        ),
        with_device=any(layer.device for layer in (*before.layers, *after.layers)),
        with_db=any(layer.db is not None for layer in after.layers),
        data=_data(after),
    )


def _times(*reports: dict[str, Any]) -> list[float]:
    """Estimated milliseconds of each, [] where one has none."""
    found = [(report.get("cost") or {}).get("milliseconds") for report in reports]
    known = [float(time) for time in found if time is not None]
    return known if len(known) == len(found) else []


def _causes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cause["tensor"]: cause for cause in (report.get("root_causes") or {}).get("causes") or []}


def _first_share(bar: Bar) -> Optional[float]:
    """Percent of the first kind (INT8)."""
    first = {"int8", "dla-int8"}
    if bar.total is None:
        return None
    return next((part.share for part in bar.parts if part.kind in first), 0.0)


def _changed_layers(before: Network, after: Network) -> list[dict[str, Any]]:
    """Layers whose precision or device differs, and those that only one of the two has; marks the changed ones."""
    rows: list[dict[str, Any]] = []
    for layer in after.layers:
        old = before.layer_index.get(layer.name)
        if old is None:
            layer.changed = "new"
            rows.append({"name": layer.name, "link": f"#layer-{layer.index}", "before": None, "after": layer})
            continue
        was = before.layers[old]
        if (was.kind, was.device) != (layer.kind, layer.device):
            worth = {"int8": 0, "limit": 1, "expected": 2, "surprise": 3, "gpu": 4, "none": 5}
            layer.changed = "better" if (worth[layer.kind], layer.device) < (worth[was.kind], was.device) else "worse"
            rows.append({"name": layer.name, "link": f"#layer-{layer.index}", "before": was, "after": layer})
    rows += [
        {"name": layer.name, "link": "", "before": layer, "after": None}
        for layer in before.layers
        if layer.name not in after.layer_index
    ]
    return rows


def _changed_scales(before: Network, after: Network) -> list[dict[str, Any]]:
    """Tensors whose scale differs by a bit or more, or that only one of the two gives a scale."""
    old = {t.name: t for t in before.tensors if t.scale is not None}
    new = {t.name: t for t in after.tensors if t.scale is not None}
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((*new, *old)):
        a, b = old.get(name), new.get(name)
        if a is not None and b is not None and a.scale == b.scale:
            continue
        ratio = b.scale / a.scale if a is not None and b is not None and a.scale and b.scale else None
        rows.append({"name": name, "link": after.link(tensor=name), "before": a, "after": b, "ratio": ratio})
    rows.sort(key=_change)
    return rows


def _change(row: dict[str, Any]) -> float:
    """The largest factor first, then scales that only one of the two has."""
    return -abs(math.log(row["ratio"])) if row["ratio"] else 0.0


def _options(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every option with its value; `changed`: it is not the default."""
    defaults = effective(TranslateOptions())
    return [
        {"name": name, "value": _option_text(value), "changed": value != defaults.get(name)}
        for name, value in (report.get("options") or {}).items()
    ]


def _changed_options(against: dict[str, Any], report: dict[str, Any]) -> list[dict[str, str]]:
    old, new = against.get("options") or {}, report.get("options") or {}
    rows = [
        {"name": f"--{name}", "before": _option_text(old.get(name)), "after": _option_text(new.get(name))}
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    versions = [(r.get("cache_version") or {}).get("number", "") for r in (against, report)]
    if versions[0] != versions[1]:
        rows.append({"name": "cache version", "before": versions[0], "after": versions[1]})
    return rows


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "not given"
    return " ".join(str(v) for v in value) if isinstance(value, list) else str(value)


def _data(network: Network) -> dict[str, Any]:
    """What the page's script shows of a layer or tensor that is selected: rows without keys and every text once, because
    there are thousands. The order of a row is that of `layerKeys` and `tensorKeys` in page.js."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    layers = [
        [
            *(
                text(x.name),
                text(x.op),
                text(x.kind),
                text(x.label),
                text(x.device_label),
                text(x.reason),
                text(x.cure),
            ),
            *(x.cause, text(amount(x.macs)), text(percent(x.share, 1)), text(amount(x.weights)), x.inputs, x.outputs),
            [[text(f.get(key, "")) for key in ("text", "found", "source", "status")] for f in x.findings],
            text(decibel(x.db)),
            text(_cost_words(x)),
        ]
        for x in network.layers
    ]
    tensors = [
        [
            *(
                text(t.name),
                text(scale(t.scale)),
                text(t.hex),
                int(t.explicit),
                text(t.rule),
                text(words(t.rule)),
            ),
            *(
                text(t.node),
                text(t.source),
                text(shape(t.shape) if t.shape else ""),
                text(t.role),
                t.producer,
                t.readers,
            ),
        ]
        for t in network.tensors
    ]
    return {"texts": list(texts), "layers": layers, "tensors": tensors}


def _cost_words(layer: Layer) -> str:
    """'0.123 ms (estimate), bound by memory, 12.3 kB'; '' without a figure."""
    cost = layer.cost
    if cost.get("fused_into"):
        return f"part of the layer of {cost['fused_into']}"
    bytes_ = size(cost["bytes"]) if cost.get("bytes") is not None else ""
    if layer.milliseconds is None:
        return bytes_
    bound = f", bound by {cost['bound']}" if cost.get("bound") else ""
    return f"{milliseconds(layer.milliseconds)} (estimate){bound}, {bytes_}"


# ---------------------------------------------------------------- filters


def percent(part: Optional[float], whole: Optional[float] = 100.0) -> str:
    """Of a share: 12.34 -> '12.3%'; 0% and 100% only where it is just that; nothing where it is unknown."""
    if part is None or not whole:
        return ""
    value = 100 * part / whole
    if 99.95 <= value < 100:
        return ">99.9%"
    return "<0.1%" if 0 < value < 0.05 else f"{value:.1f}%"


def scale(value: Optional[float]) -> str:
    """Enough digits to give the float32 back."""
    return "" if value is None else f"{value:.9g}"


def decibel(value: Optional[float]) -> str:
    if value is None:
        return ""
    return "equal" if value == math.inf else "none left" if value == -math.inf else f"{value:.1f}"


def shape(sizes: Optional[Iterable[Any]]) -> str:
    return "unknown" if sizes is None else "x".join("?" if size is None else str(size) for size in sizes)


def clip(name: str, length: int) -> str:
    """The start of a long name."""
    return name if len(name) <= length else name[: length - 1] + "\u2026"


def short(name: str, length: int = 23) -> str:
    """The end of a long name, which tells layers apart."""
    return name if len(name) <= length else "\u2026" + name[-(length - 1) :]


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _render(template: str, **values: Any) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency(
            "The HTML report needs the package jinja2.", "pip install 'qdq-translator[report]' adds it."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_ in (amount, milliseconds, size, percent, scale, decibel, shape, clip, short, plural):
        environment.filters[filter_.__name__] = filter_
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        kinds=KINDS,
        rules={row.id: row.words for row in RULES.values()},
        infinity=math.inf,
        box_width=BOX_WIDTH,
        box_height=BOX_HEIGHT,
        **values,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
