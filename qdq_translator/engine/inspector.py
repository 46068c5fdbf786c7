"""The built engine compared with the plan: each planned layer against layer information and build log (fact 3.8, 3.14, 4.3 to 5.13,
6.3c). A DLA loadable or a Myelin region is one layer `{ForeignNode[first...last]}` whose inside is not reported.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Container, Iterable, Mapping, Optional, Sequence

from qdq_translator.core.formats.report_rows import Precision
from qdq_translator.core.formats.rows import read
from qdq_translator.engine.layer_info import FLOATING, EngineLayer, LayerInfo, fused_names
from qdq_translator.engine.messages import BuildLog
from qdq_translator.ir.operators import PARTS, VIEWS, WEIGHTED
from qdq_translator.targets.precision import FP16, INT8, NO_PRECISION, LayerPlan

DATA_MOVEMENT = frozenset(
    (
        *(*VIEWS, *PARTS, "Transpose", "Identity", "Dropout", "Concat", "Expand", "Pad", "Cast"),
        *("Constant", "ConstantOfShape", "Shape"),
    )
)
"""Operators that TensorRT may dissolve into its neighbours, so that their absence says nothing."""
_INSERTED = ("Reformatting CopyNode", "copied_squeeze_after_", "reshape_before_", "reshape_after_")
"""How TensorRT names what it put between layers; what follows is the neighbour's name."""
_QDQ_NAME = re.compile(r"(^|[/_.])(de)?quantize_?linear", re.IGNORECASE)


def plan_from_report(report: Mapping[str, Any]) -> list[LayerPlan]:
    """The rows of `report["plan"]`; [] if there are none."""
    return [read(LayerPlan, row) for row in report.get("plan") or ()]


def with_edges(plan: Iterable[LayerPlan], model: Any) -> list[LayerPlan]:
    """The plan with all inputs and outputs of the model's nodes, weights included (a report names float activations)."""
    nodes = {node.name: node for node in model.graph.node}
    return [
        dataclasses.replace(layer, inputs=tuple(nodes[layer.name].input), outputs=tuple(nodes[layer.name].output))
        if layer.name in nodes
        else layer
        for layer in plan
    ]


def plan_from_config(config: Mapping[str, Any], model: Any) -> list[LayerPlan]:
    """A plan if the report has none: `fp16_nodes` in FP16, nodes between tensors with scales in INT8.

    `model`: the stripped ONNX model (its weights are not needed).
    """
    scales, high = config.get("int8_tensor_scales", {}), set(config.get("fp16_nodes", ()))
    plan = []
    for node in model.graph.node:
        scaled = any(i in scales for i in node.input) and any(o in scales for o in node.output)
        precision: Precision = FP16 if node.name in high else INT8 if scaled else NO_PRECISION
        inputs, outputs, listed = tuple(node.input), tuple(node.output), node.name in high
        plan.append(
            LayerPlan(node.name, node.op_type, precision=precision, inputs=inputs, outputs=outputs, listed=listed)
        )
    return plan


OBEYED, DISOBEYED, UNSEEN, DISSOLVED, MISSING, FREE = "obeyed", "disobeyed", "unseen", "dissolved", "missing", "free"
"""Verdicts: as planned; otherwise; inside a region or without a type; merged into neighbours; nowhere; no plan."""


@dataclasses.dataclass(frozen=True)
class LayerVerdict:
    """A planned layer versus the engine. `actual`: precision, '' if unknown; `device`: 'GPU', 'DLA' or ''."""

    name: str
    op: str
    planned: str
    actual: str
    verdict: str
    engine_layer: str = ""
    device: str = ""
    why: str = ""
    macs: int = 0
    expected: bool = False

    @property
    def is_disobedience(self) -> bool:
        """Counts for --strict: a planned INT8 layer that is not or is nowhere, one listed as FP16 that is INT8."""
        missing = self.verdict == MISSING and self.planned == "int8"
        return not self.expected and (missing or self.verdict == DISOBEYED)


@dataclasses.dataclass(frozen=True)
class Region:
    """A `{ForeignNode[...]}`: the planned layers inside, and the precisions at its edges."""

    name: str
    device: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ExtraLayer:
    """An engine layer that is not in the model; `change`: 'fp16 -> int8', or 'int8' if only the layout changes."""

    name: str
    layer_type: str
    change: str


@dataclasses.dataclass
class EngineCheck:
    """Everything `check-engine` found."""

    verdicts: list[LayerVerdict]
    reformats: list[ExtraLayer]
    quantizers: list[ExtraLayer]
    unfused_qdq: list[ExtraLayer]
    regions: list[Region]
    gpu_fallbacks: list[tuple[str, str]]
    missing_scales: list[str]
    cache_rejected: bool
    unmatched_precisions: list[str]
    engine_layers: int

    def count(self, planned: str, verdict: str) -> int:
        return sum(v.planned == planned and v.verdict == verdict for v in self.verdicts)

    @property
    def disobediences(self) -> list[LayerVerdict]:
        return [v for v in self.verdicts if v.is_disobedience]

    @property
    def obeys(self) -> bool:
        return not (self.disobediences or self.cache_rejected or self.unmatched_precisions)

    def summary(self) -> dict[str, Any]:
        """Counts, JSON types only."""
        return {
            "obeys": self.obeys,
            "engine_layers": self.engine_layers,
            "int8": {v: self.count("int8", v) for v in (OBEYED, DISOBEYED, UNSEEN, DISSOLVED, MISSING)},
            "disobediences": len(self.disobediences),
            **{name: len(getattr(self, name)) for name in ("reformats", "quantizers", "unfused_qdq")},
            "dla_subgraphs": sum(r.device == "DLA" for r in self.regions),
            **{name: len(getattr(self, name)) for name in ("gpu_fallbacks", "missing_scales", "unmatched_precisions")},
            "cache_rejected": self.cache_rejected,
        }

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        found = {"summary": self.summary(), "layers": [dataclasses.asdict(v) for v in self.verdicts]}
        for name in ("reformats", "quantizers", "unfused_qdq", "regions"):
            found[name] = [dataclasses.asdict(row) for row in getattr(self, name)]
        found["gpu_fallbacks"] = [{"layer": layer, "cause": cause} for layer, cause in self.gpu_fallbacks]
        return {**found, **{name: getattr(self, name) for name in ("missing_scales", "unmatched_precisions")}}


class _Graph:
    """The planned layers in graph order, with producers and consumers."""

    def __init__(self, plan: Sequence[LayerPlan]) -> None:
        self.plan = plan
        self.position = {layer.name: index for index, layer in enumerate(plan)}
        producer = {tensor: index for index, layer in enumerate(plan) for tensor in layer.outputs if tensor}
        self.before: list[list[int]] = [[producer[t] for t in layer.inputs if t in producer] for layer in plan]
        self.after: list[list[int]] = [[] for _ in plan]
        self.readers: dict[str, int] = {}
        for index, layer in enumerate(plan):
            for earlier in self.before[index]:
                self.after[earlier].append(index)
            for tensor in layer.inputs:
                self.readers.setdefault(tensor, index)

    def locate(self, name: str) -> Optional[int]:
        """A node's position; for the name of a weight or tensor, that of its first reader."""
        return self.position.get(name, self.readers.get(name))

    def ends(self, region: str) -> tuple[Optional[int], Optional[int]]:
        """'first...last' or 'only' -> positions; None if not in the plan. Names may contain dots."""
        whole = self.locate(region)
        if whole is not None:
            return whole, whole
        cuts = [match.start() for match in re.finditer(r"(?=\.\.\.)", region)]
        pairs = [(self.locate(region[:cut]), self.locate(region[cut + 3 :])) for cut in cuts]
        return max(pairs, key=lambda pair: sum(p is not None for p in pair), default=(None, None))

    def between(self, first: int, last: int) -> set[int]:
        """Nodes on any path from `first` to `last`, both included."""
        return _reachable(first, self.after) & _reachable(last, self.before) | {first, last}


def _reachable(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        for following in edges[todo.pop()]:
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return seen


def check_engine(
    plan: Sequence[LayerPlan],
    info: LayerInfo,
    log: Optional[BuildLog] = None,
    layer_precisions: Iterable[str] = (),
) -> EngineCheck:
    """Holds an engine against the plan. `layer_precisions`: names given to `--layerPrecisions`."""
    log = log or BuildLog()
    graph = _Graph(plan)
    found, extras = _attribute(graph, info)
    devices = _devices(info, log)
    regions = _expand_regions(graph, info, found, devices)
    on_dla = any(region.device == "DLA" for region in regions) or bool(log.dla)
    causes: dict[str, str] = {}
    for layer, cause in log.fallbacks:
        causes[layer] = f"{causes[layer]} {cause}" if layer in causes else cause
    high_edges = {node for region in regions if region.device == "DLA" for node in _high_edges(graph, region)}
    verdicts = [
        _verdict(layer, found.get(index), devices, index in high_edges, log.missing_scales)
        for index, layer in enumerate(plan)
    ]
    fallbacks = [
        (v.name, causes.get(v.name, ""))
        for v in verdicts
        if on_dla and v.device == "GPU" and v.verdict not in (DISSOLVED, MISSING)
    ]
    listed = {name for name, _ in fallbacks}
    fallbacks += [(layer, cause) for layer, cause in causes.items() if layer not in listed]
    unmatched = [n for n in layer_precisions if n not in log.set_precisions] if log.set_precisions else []
    reformats, quantizers, unfused = extras
    return EngineCheck(
        verdicts,
        reformats,
        quantizers,
        unfused,
        regions,
        fallbacks,
        list(log.missing_scales),
        log.cache_rejected,
        unmatched,
        len(info.layers),
    )


def _attribute(
    graph: _Graph, info: LayerInfo
) -> tuple[dict[int, EngineLayer], tuple[list[ExtraLayer], list[ExtraLayer], list[ExtraLayer]]]:
    """Plan position -> the engine layer that computes it, and the layers that TensorRT put in or left standing."""
    found: dict[int, EngineLayer] = {}
    reformats: list[ExtraLayer] = []
    quantizers: list[ExtraLayer] = []
    unfused: list[ExtraLayer] = []
    for layer in info.layers:
        if layer.region and not layer.metadata:
            continue
        names = list(layer.metadata)
        if not names and not layer.name.startswith(_INSERTED):
            names = fused_names(layer.name, graph.position)
        nodes = {n for n in (graph.position.get(_own_name(name, graph.position)) for name in names) if n is not None}
        changes = _change(layer)
        if not nodes and (layer.origin == "QDQ" or (names and all(map(_QDQ_NAME.search, names)))):
            unfused.append(ExtraLayer(layer.name, layer.layer_type, changes))
        elif not nodes and layer.layer_type.lower() == "scale":
            quantizers.append(ExtraLayer(layer.name, layer.layer_type, changes))
        elif not nodes and (layer.layer_type.lower() in ("reformat", "copy") or layer.origin in ("REFORMAT", "CAST")):
            requantizes = "int8" in changes and "->" in changes
            (quantizers if requantizes else reformats).append(ExtraLayer(layer.name, layer.layer_type, changes))
        for node in nodes:
            if node not in found or _rank(layer) > _rank(found[node]):
                found[node] = layer
    return found, (reformats, quantizers, unfused)


def _own_name(name: str, known: Mapping[str, int]) -> str:
    """A node's further layers are called NAME_2, NAME_clone_0 ... (fact 4.3)."""
    if name in known:
        return name
    return re.sub(r"(_clone)?_\d+$", "", name)


def _rank(layer: EngineLayer) -> int:
    """Rank of a layer among several of one node: weights, then arithmetic, then data movement."""
    if layer.weights in FLOATING:
        return 3
    return 0 if layer.is_helper else 2 if layer.precision else 1


def _change(layer: EngineLayer) -> str:
    before = next((t.precision for t in layer.inputs if t.precision), "?")
    after = next((t.precision for t in layer.outputs if t.precision), "?")
    return before if before == after else f"{before} -> {after}"


def _devices(info: LayerInfo, log: BuildLog) -> dict[str, str]:
    """Engine layer name -> 'DLA' or 'GPU'; Myelin regions are the GPU's, other regions unknown without a log."""
    devices = {}
    dla, gpu = set(log.dla), set(log.gpu)
    for layer in info.layers:
        kind = layer.layer_type.lower()
        if "dla" in kind or layer.name in dla:
            devices[layer.name] = "DLA"
        elif not layer.region or "myelin" in kind or layer.name in gpu:
            devices[layer.name] = "GPU"
    return devices


def _expand_regions(
    graph: _Graph, info: LayerInfo, found: dict[int, EngineLayer], devices: Mapping[str, str]
) -> list[Region]:
    """Fills `found` for the nodes inside regions: on a path from the first to the last, or between them in graph order
    and computed by no other layer."""
    layers = [layer for layer in info.layers if layer.region]
    inside: dict[str, set[int]] = {}
    spans: dict[str, tuple[int, int]] = {}
    for layer in layers:
        inside[layer.name] = {p for p in (graph.position.get(n) for n in layer.metadata) if p is not None}
        if layer.metadata:
            continue
        first, last = graph.ends(layer.region)
        if first is None and last is None:
            continue
        low, high = (0 if first is None else first), (len(graph.plan) - 1 if last is None else last)
        spans[layer.name] = (min(low, high), max(low, high))
        if first is not None and last is not None:
            inside[layer.name] = {p for p in graph.between(first, last) if p not in found}
        else:
            inside[layer.name] = {p for p in (first, last) if p is not None}
    taken = set(found).union(*inside.values())
    for name, (low, high) in spans.items():
        rest = {p for p in range(low, high + 1) if p not in taken}
        inside[name] |= rest
        taken |= rest
    regions = []
    for layer in layers:
        for position in inside[layer.name]:
            if position not in found or _rank(found[position]) == 0:
                found[position] = layer
        regions.append(
            Region(
                layer.name,
                devices.get(layer.name, ""),
                tuple(graph.plan[p].name for p in sorted(inside[layer.name])),
                tuple(t.precision for t in layer.inputs),
                tuple(t.precision for t in layer.outputs),
            )
        )
    return regions


def _verdict(
    layer: LayerPlan,
    engine: Optional[EngineLayer],
    devices: Mapping[str, str],
    high_edge: bool,
    missing_scales: Container[str],
) -> LayerVerdict:
    actual, verdict, why = "", FREE, ""
    planned_free = layer.precision not in FLOATING
    if engine is None or engine.layer_type.lower() == "noop":
        if layer.op in DATA_MOVEMENT:
            verdict, why = DISSOLVED, "merged into its neighbours"
        elif not planned_free:
            verdict, why = MISSING, "no layer of the engine carries its name"
    elif engine.region:
        verdict, why = UNSEEN, "inside a region, whose layers TensorRT does not report"
        if layer.precision == "int8" and high_edge:
            verdict, why = DISOBEYED, "the DLA region has no INT8 input or output"
            actual = next((t.precision for t in engine.inputs if t.precision), "")
    else:
        actual = engine.precision
        if not actual and not planned_free:
            verdict, why = UNSEEN, "TensorRT does not tell its precision"
        elif layer.precision == "int8":
            verdict = OBEYED if actual == "int8" else DISOBEYED
        elif not planned_free:
            # reading INT8 is no offence (a cast at its door), nor is being fused into an INT8 convolution
            against = layer.listed and engine.weights == "int8" and layer.op in WEIGHTED
            verdict = DISOBEYED if against else OBEYED
    return LayerVerdict(
        layer.name,
        layer.op,
        layer.precision,
        actual,
        verdict,
        engine.name if engine else "",
        devices.get(engine.name, "") if engine else "",
        why or (_explain(layer, engine, missing_scales) if verdict == DISOBEYED and engine else ""),
        layer.macs or 0,
        layer.by_design,
    )


def _explain(layer: LayerPlan, engine: EngineLayer, missing_scales: Container[str]) -> str:
    missed = [t for t in (*layer.inputs, *layer.outputs) if t in missing_scales]
    if missed:
        return f"TensorRT missed the scale of '{missed[0]}'"
    reads = "+".join(dict.fromkeys(t.precision or "?" for t in engine.inputs)) or "?"
    writes = "+".join(dict.fromkeys(t.precision or "?" for t in engine.outputs)) or "?"
    return f"{engine.layer_type}, reads {reads}, writes {writes}"


def _high_edges(graph: _Graph, region: Region) -> set[int]:
    """The nodes at the edge of a region none of whose inputs and outputs is INT8 (it then ran high: fact 6.6)."""
    kinds = {*region.inputs, *region.outputs} - {""}
    if not kinds or "int8" in kinds:
        return set()
    inside = {graph.position[name] for name in region.nodes}
    return {
        node
        for node in inside
        for around in (graph.before[node], graph.after[node])
        if not around or not inside.issuperset(around)
    }


# ---------------------------------------------------------------- beside the plan, layer by layer


def engine_truth(check: EngineCheck, info: LayerInfo, times: Mapping[str, float]) -> dict[str, Any]:
    """JSON types only. times: layer of the engine -> milliseconds (`board.read_profile`), {} without a profile.

    `layers`: one row a planned layer. `format`: of inputs and outputs, in TensorRT's words. The time of a layer of the engine is in the
    row of the first planned layer that it computes, the others have `null` and the same `engine_layer`. `disagreements`: names of the
    layers that run against the plan. `unmatched`: layers of the engine that compute no planned one. `missing`: planned, nowhere.
    """
    engine = {layer.name: layer for layer in info.layers}
    members: dict[str, list[str]] = {}
    for verdict in check.verdicts:
        if verdict.engine_layer:
            members.setdefault(verdict.engine_layer, []).append(verdict.name)
    rows = []
    for verdict in check.verdicts:
        layer, with_ = engine.get(verdict.engine_layer), members.get(verdict.engine_layer, [verdict.name])
        row = {
            key: getattr(verdict, key)
            for key in ("name", "op", "planned", "actual", "verdict", "engine_layer", "device", "why")
        }
        row["against"] = verdict.is_disobedience
        row["format"] = _formats(layer) if layer is not None else ""
        row["fused_with"] = [name for name in with_ if name != verdict.name]
        row["milliseconds"] = times.get(verdict.engine_layer) if with_[0] == verdict.name else None
        rows.append(row)
    return {
        "summary": check.summary(),
        "milliseconds": sum(times.values()) if times else None,
        "layers": rows,
        "disagreements": [verdict.name for verdict in check.disobediences],
        "unmatched": _unmatched(check, info, members, times),
        "missing": [v.name for v in check.verdicts if v.verdict == MISSING and v.planned != FREE],
        "unfused_qdq": [dataclasses.asdict(layer) for layer in check.unfused_qdq],
        "gpu_fallbacks": [{"layer": layer, "cause": cause} for layer, cause in check.gpu_fallbacks],
    }


def _formats(layer: EngineLayer) -> str:
    sides = (("reads", layer.inputs), ("writes", layer.outputs))
    words = ((side, "; ".join(dict.fromkeys(t.words for t in tensors if t.words))) for side, tensors in sides)
    return ", ".join(f"{side} {text}" for side, text in words if text)


def _unmatched(
    check: EngineCheck, info: LayerInfo, members: Mapping[str, Sequence[str]], times: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Layers of the engine without a planned one, the slowest first, and rows of the profile that the engine does not name."""
    kinds = (
        ("reformat", check.reformats),
        ("to or from INT8", check.quantizers),
        ("Q/DQ left unfused", check.unfused_qdq),
    )
    what = {layer.name: kind for kind, layers in kinds for layer in layers}
    types = {layer.name: layer.layer_type for layer in info.layers}
    names = [name for name in dict.fromkeys((*types, *times)) if name not in members]
    rows = [
        {
            "name": name,
            "layer_type": types.get(name, ""),
            "what": what.get(name, "computes no layer of the plan" if name in types else "in the profile only"),
            "milliseconds": times.get(name),
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: -(row["milliseconds"] or 0.0))
