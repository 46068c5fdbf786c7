"""The built engine compared with the plan: each planned layer against layer information and build log (facts 3.8 to
6.3c). A DLA loadable or a Myelin region is one layer `{ForeignNode[first...last]}` whose contents are not reported.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import Any, Container, Iterable, Mapping, Optional, Sequence

import onnx

from qdq_translator.board.engine.layer_info import FLOATING, HELPERS, EngineLayer, fused_names, layout_of
from qdq_translator.board.engine.messages import BuildLog
from qdq_translator.core.formats import engine_rows
from qdq_translator.core.formats.engine_rows import DISOBEYED, MISSING, ExtraLayer, LayerVerdict, Region
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.core.formats.report_rows import Precision
from qdq_translator.core.formats.rows import plain, read
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import WEIGHTED
from qdq_translator.translation.targets.precision import FP16, INT8, NO_PRECISION, LayerPlan

_MADE = ("Constant", "ConstantOfShape", "Shape")
DATA_MOVEMENT = frozenset((*where(data="view part same drop join pad"), *_MADE, "Transpose", "Expand", "Cast"))
"""Operators that TensorRT may dissolve into its neighbours, so their absence proves nothing."""
_INSERTED = ("Reformatting CopyNode", "copied_squeeze_after_", "reshape_before_", "reshape_after_")
"""Prefixes of the names of layers that TensorRT inserts; the rest is the neighbour's name."""
_QDQ_NAME = re.compile(r"(^|[/_.])(de)?quantize_?linear", re.IGNORECASE)


def planned(files: TranslationFiles) -> list[LayerPlan]:
    """The plan of a translation, with all inputs and outputs of the nodes, weights included (a report names float
    activations). Without a report: `fp16_nodes` of the config in FP16, nodes between tensors with scales in INT8."""
    nodes = list(load_model(files.model, weights=False)[0].graph.node)
    rows = files.read_report().get("plan") or () if files.report.exists() else ()
    if rows:
        named = {node.name: node for node in nodes}
        return [_with_edges(read(LayerPlan, row), named.get(row["name"])) for row in rows]
    config = files.read_config()
    scales, high = config.get("int8_tensor_scales", {}), {*config.get("fp16_nodes", ()), *config.get("fp32_nodes", ())}
    plan = []
    for node in nodes:
        scaled = any(i in scales for i in node.input) and any(o in scales for o in node.output)
        listed = node.name in high
        precision: Precision = FP16 if listed else INT8 if scaled else NO_PRECISION
        plan.append(_with_edges(LayerPlan(node.name, node.op_type, precision=precision, listed=listed), node))
    return plan


def _with_edges(layer: LayerPlan, node: Optional[onnx.NodeProto]) -> LayerPlan:
    return layer if node is None else dataclasses.replace(layer, inputs=tuple(node.input), outputs=tuple(node.output))


OBEYED, UNSEEN, DISSOLVED, FREE = "obeyed", "unseen", "dissolved", "free"
"""Further verdicts: as planned; inside a region or without a type; merged into neighbours; no plan."""
_LISTS = (
    *("reformats", "quantizers", "unfused_qdq", "regions", "gpu_fallbacks", "missing_scales"),
    "unmatched_precisions",
)


@dataclasses.dataclass
class EngineCheck:
    """Everything `check-engine` found. layers: of the engine, in its order; log: of its build, if there is one."""

    layers: Sequence[EngineLayer]
    log: Optional[BuildLog]
    verdicts: list[LayerVerdict]
    reformats: list[ExtraLayer]
    quantizers: list[ExtraLayer]
    unfused_qdq: list[ExtraLayer]
    regions: list[Region]
    gpu_fallbacks: list[engine_rows.Fallback]
    missing_scales: list[str]
    cache_rejected: bool
    unmatched_precisions: list[str]

    @property
    def disobediences(self) -> list[LayerVerdict]:
        return [v for v in self.verdicts if v.is_disobedience]

    @property
    def obeys(self) -> bool:
        return not (self.disobediences or self.cache_rejected or self.unmatched_precisions)

    def summary(self) -> engine_rows.CheckSummary:
        int8 = Counter(row.verdict for row in self.verdicts if row.planned == "int8")
        return engine_rows.CheckSummary(
            obeys=self.obeys,
            int8={verdict: int8[verdict] for verdict in (OBEYED, DISOBEYED, UNSEEN, DISSOLVED, MISSING)},
            disobediences=len(self.disobediences),
            dla_subgraphs=sum(r.device == "DLA" for r in self.regions),
            cache_rejected=self.cache_rejected,
            **{name: len(getattr(self, name)) for name in _LISTS if name != "regions"},
        )

    def as_dict(self) -> dict[str, Any]:
        """The check as values of JSON types: summary, layers, and each list of findings."""
        lists = {name: plain(getattr(self, name)) for name in _LISTS}
        return {"summary": plain(self.summary()), "layers": plain(self.verdicts), **lists}


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

    def positions(self, names: Iterable[str]) -> set[int]:
        """Positions in the graph of the nodes named `names`; names of nothing in it are left out."""
        return {self.position[name] for name in names if name in self.position}

    def locate(self, name: str) -> Optional[int]:
        """Position of a node; for a weight or tensor, the position of its first reader."""
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
    layers: Sequence[EngineLayer],
    given: Optional[BuildLog] = None,
    layer_precisions: Iterable[str] = (),
) -> EngineCheck:
    """Compares an engine with the plan. `layer_precisions`: names given to `--layerPrecisions`."""
    log = given or BuildLog()
    graph = _Graph(plan)
    found, extras = _attribute(graph, layers)
    devices = _devices(layers, log)
    regions = _expand_regions(graph, layers, found, devices)
    on_dla = any(region.device == "DLA" for region in regions) or bool(log.dla)
    high_edges = {node for region in regions if region.device == "DLA" for node in _high_edges(graph, region)}
    scales = log.missing_scales
    verdicts = [_verdict(row, found.get(at), devices, at in high_edges, scales) for at, row in enumerate(plan)]
    return EngineCheck(
        layers=layers,
        log=given,
        verdicts=verdicts,
        regions=regions,
        gpu_fallbacks=_fallbacks(verdicts if on_dla else (), log),
        missing_scales=list(scales),
        cache_rejected=log.cache_rejected,
        unmatched_precisions=[n for n in layer_precisions if log.set_precisions and n not in log.set_precisions],
        **extras,
    )


def _fallbacks(verdicts: Iterable[LayerVerdict], log: BuildLog) -> list[engine_rows.Fallback]:
    """Layers on the GPU of an engine that was built for the DLA, each with the cause in its log, '' if that names
    none."""
    causes: dict[str, str] = {}
    for layer, cause in log.fallbacks:
        causes[layer] = f"{causes[layer]} {cause}" if layer in causes else cause
    on_gpu = (v.name for v in verdicts if v.device == "GPU" and v.verdict not in (DISSOLVED, MISSING))
    return [engine_rows.Fallback(name, causes.get(name, "")) for name in dict.fromkeys((*on_gpu, *causes))]


def _attribute(
    graph: _Graph, layers: Sequence[EngineLayer]
) -> tuple[dict[int, EngineLayer], dict[str, list[ExtraLayer]]]:
    """Plan position -> the engine layer that computes it, and the layers that TensorRT added or left, by kind."""
    found: dict[int, EngineLayer] = {}
    extras: dict[str, list[ExtraLayer]] = {"reformats": [], "quantizers": [], "unfused_qdq": []}
    neighbours = _Neighbours(layers)
    for layer in layers:
        if layer.region and not layer.metadata:
            continue
        names = list(layer.metadata)
        if not names and not layer.name.startswith(_INSERTED):
            names = fused_names(layer.name, graph.position)
        nodes = graph.positions(_own_name(name, graph.position) for name in names)
        kind = _extra_kind(layer, names)
        if kind and not nodes:
            about = _why_moved(layer, neighbours) if _moves(layer) else ()
            extras[kind].append(ExtraLayer(layer.name, layer.layer_type, _change(layer), *about))
        for node in nodes:
            if node not in found or _rank(layer) > _rank(found[node]):
                found[node] = layer
    return found, extras


def _extra_kind(layer: EngineLayer, names: Sequence[str]) -> str:
    """The list of `_LISTS` for a layer that may not belong to the model, '' for any other."""
    if layer.origin == "QDQ" or (names and all(map(_QDQ_NAME.search, names))):
        return "unfused_qdq"
    moved, change = layer.layer_type.lower(), _change(layer)
    if moved == "scale" or (_moves(layer) and "int8" in change and "->" in change):
        return "quantizers"
    return "reformats" if _moves(layer) else ""


def _moves(layer: EngineLayer) -> bool:
    return layer.layer_type.lower() in ("reformat", "copy") or layer.origin in ("REFORMAT", "CAST")


def _own_name(name: str, known: Mapping[str, int]) -> str:
    """A node's further layers are called NAME_2, NAME_clone_0 ... (fact 4.3)."""
    return name if name in known else re.sub(r"(_clone)?_\d+$", "", name)


def _rank(layer: EngineLayer) -> int:
    """Rank of a layer among several of one node: weights, then arithmetic, then data movement."""
    if layer.weights in FLOATING:
        return 3
    return 0 if layer.layer_type.lower() in HELPERS else 2 if layer.precision else 1


def _change(layer: EngineLayer) -> str:
    before = next((t.precision for t in layer.inputs if t.precision), "?")
    after = next((t.precision for t in layer.outputs if t.precision), "?")
    return before if before == after else f"{before} -> {after}"


class _Neighbours:
    """Tensor -> the layer of the engine that writes it, and those that read it."""

    def __init__(self, layers: Sequence[EngineLayer]) -> None:
        self.writer = {tensor.name: layer for layer in layers for tensor in layer.outputs}
        self.readers: dict[str, list[EngineLayer]] = {}
        for layer in layers:
            for tensor in layer.inputs:
                self.readers.setdefault(tensor.name, []).append(layer)

    def is_alone(self, layer: EngineLayer) -> bool:
        """Whether a reformat writes an input of the layer and another one reads an output of it, which is how TensorRT
        builds a layer that needs a layout none of its neighbours has."""
        before = any(_moves(self.writer[t.name]) for t in layer.inputs if t.name in self.writer)
        return before and any(_moves(reader) for t in layer.outputs for reader in self.readers.get(t.name, ()))


def _why_moved(layer: EngineLayer, around: _Neighbours) -> tuple[str, tuple[str, ...], str]:
    """Layouts, writer and reader of a reformat, and which of the two asks for it."""
    if not (layer.inputs and layer.outputs):
        return "", (), ""
    source, target = layer.inputs[0], layer.outputs[0]
    before, after = layout_of(source.words), layout_of(target.words)
    writer = around.writer.get(source.name)
    reader = next(iter(around.readers.get(target.name, ())), None)
    ends = tuple("" if end is None else end.name for end in (writer, reader))
    if reader is None or writer is None:
        end = "the network's output" if reader is None else "the network's input"
        return (
            f"{before} -> {after}",
            ends,
            f"{end} is {(target if reader is None else source).words or 'of another type'}",
        )
    odd = next((end for end in (reader, writer) if around.is_alone(end)), None)
    if odd is not None:
        layout, other = (after, before) if odd is reader else (before, after)
        why = f"{odd.layer_type} computes in {layout} here, and the layers around it in {other}"
    elif source.precision != target.precision:
        why = f"{writer.layer_type} writes {source.precision}, {reader.layer_type} reads {target.precision}"
    else:
        why = f"{writer.layer_type} writes {before}, {reader.layer_type} reads {after}"
    return f"{before} -> {after}", ends, why


def _devices(layers: Sequence[EngineLayer], log: BuildLog) -> dict[str, str]:
    """Engine layer name -> 'DLA' or 'GPU'; Myelin regions are the GPU's, other regions unknown without a log."""
    devices = {}
    dla, gpu = set(log.dla), set(log.gpu)
    for layer in layers:
        kind = layer.layer_type.lower()
        if "dla" in kind or layer.name in dla:
            devices[layer.name] = "DLA"
        elif not layer.region or "myelin" in kind or layer.name in gpu:
            devices[layer.name] = "GPU"
    return devices


def _expand_regions(
    graph: _Graph, every: Sequence[EngineLayer], found: dict[int, EngineLayer], devices: Mapping[str, str]
) -> list[Region]:
    """Fills `found` for the nodes inside regions: on a path from the first to the last, or between them in graph order
    and computed by no other layer."""
    layers = [layer for layer in every if layer.region]
    inside: dict[str, set[int]] = {}
    spans: dict[str, range] = {}
    for layer in layers:
        inside[layer.name], spans[layer.name] = _certain(graph, layer, found)
    taken = set(found).union(*inside.values())
    for name, span in spans.items():
        inside[name].update(set(span).difference(taken))
        taken |= inside[name]
    for layer in layers:
        for position in inside[layer.name]:
            if position not in found or _rank(found[position]) == 0:
                found[position] = layer
    return [_region(graph, layer, devices, inside[layer.name]) for layer in layers]


def _certain(graph: _Graph, layer: EngineLayer, found: Container[int]) -> tuple[set[int], range]:
    """The nodes that are certainly inside a region, and the span in which there may be more."""
    first, last = (None, None) if layer.metadata else graph.ends(layer.region)
    if first is not None and last is not None:
        between = graph.between(first, last)
        return {place for place in between if place not in found}, range(min(first, last), max(first, last) + 1)
    if first is not None:  # the plan lacks the other end: up to the end of the graph
        return {first}, range(first, len(graph.plan))
    return ({last}, range(last + 1)) if last is not None else (graph.positions(layer.metadata), range(0))


def _region(graph: _Graph, layer: EngineLayer, devices: Mapping[str, str], inside: Iterable[int]) -> Region:
    nodes = tuple(graph.plan[place].name for place in sorted(inside))
    inputs, outputs = (tuple(t.precision for t in ends) for ends in (layer.inputs, layer.outputs))
    return Region(layer.name, devices.get(layer.name, ""), nodes, inputs, outputs)


def _verdict(
    layer: LayerPlan,
    engine: Optional[EngineLayer],
    devices: Mapping[str, str],
    high_edge: bool,
    missing_scales: Container[str],
) -> LayerVerdict:
    actual, why = "", ""
    if engine is None or engine.layer_type.lower() == "noop":
        verdict, why = _absent(layer)
    elif engine.region:
        verdict, why = UNSEEN, "inside a region, whose layers TensorRT does not report"
        if layer.precision == "int8" and high_edge:
            verdict, why = DISOBEYED, "the DLA region has no INT8 input or output"
            actual = next((t.precision for t in engine.inputs if t.precision), "")
    else:
        actual = engine.precision
        verdict, why = _seen(layer, engine)
        if verdict == DISOBEYED:
            why = _explain(layer, engine, missing_scales)
    name = engine.name if engine else ""
    device = devices.get(name, "")
    about = (layer.name, layer.op, layer.precision, actual, verdict, name, device, why)
    return LayerVerdict(*about, layer.macs or 0, layer.by_design)


def _absent(layer: LayerPlan) -> tuple[str, str]:
    """Verdict and reason for a layer that no layer of the engine computes."""
    if layer.op in DATA_MOVEMENT:
        return DISSOLVED, "merged into its neighbours"
    return (MISSING, "no layer of the engine carries its name") if layer.precision in FLOATING else (FREE, "")


def _seen(layer: LayerPlan, engine: EngineLayer) -> tuple[str, str]:
    """Verdict and reason for a layer that has an engine layer of its own."""
    if layer.precision not in FLOATING:
        return FREE, ""
    if not engine.precision:
        return UNSEEN, "TensorRT does not tell its precision"
    if layer.precision == "int8":
        return OBEYED if engine.precision == "int8" else DISOBEYED, ""
    # a layer may read INT8 (a cast at its input) or be fused into an INT8 convolution
    against = layer.listed and engine.weights == "int8" and layer.op in WEIGHTED
    return DISOBEYED if against else OBEYED, ""


def _explain(layer: LayerPlan, engine: EngineLayer, missing_scales: Container[str]) -> str:
    missed = [t for t in (*layer.inputs, *layer.outputs) if t in missing_scales]
    if missed:
        return f"TensorRT missed the scale of '{missed[0]}'"
    reads = "+".join(dict.fromkeys(t.precision or "?" for t in engine.inputs)) or "?"
    writes = "+".join(dict.fromkeys(t.precision or "?" for t in engine.outputs)) or "?"
    return f"{engine.layer_type}, reads {reads}, writes {writes}"


def _high_edges(graph: _Graph, region: Region) -> set[int]:
    """The nodes at the edge of a region none of whose inputs and outputs is INT8 (it then ran above INT8: fact 6.6)."""
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


# ---------------- plan and engine, layer by layer


def engine_truth(check: EngineCheck, times: Mapping[str, float]) -> engine_rows.Engine:
    """What the engine made of the plan, as a row. times: layer of the engine -> milliseconds (`board.read_profile`),
    {} without a profile."""
    engine = {layer.name: layer for layer in check.layers}
    members: dict[str, list[str]] = {}
    for verdict in check.verdicts:
        if verdict.engine_layer:
            members.setdefault(verdict.engine_layer, []).append(verdict.name)
    rows = []
    for row in check.verdicts:
        layer, fused = engine.get(row.engine_layer), members.get(row.engine_layer, [row.name])
        about = (row.name, row.op, row.planned, row.actual, row.verdict, row.engine_layer, row.device, row.why)
        others = tuple(name for name in fused if name != row.name)
        time = times.get(row.engine_layer) if fused[0] == row.name else None
        rows.append(
            engine_rows.BuiltLayer(*about, row.is_disobedience, "" if layer is None else _formats(layer), others, time)
        )
    return engine_rows.Engine(
        summary=check.summary(),
        milliseconds=sum(times.values()) if times else None,
        layers=tuple(rows),
        disagreements=tuple(verdict.name for verdict in check.disobediences),
        unmatched=tuple(_unmatched(check, members, times)),
        missing=tuple(v.name for v in check.verdicts if v.verdict == MISSING and v.planned != FREE),
        unfused_qdq=tuple(check.unfused_qdq),
        gpu_fallbacks=tuple(check.gpu_fallbacks),
    )


def _formats(layer: EngineLayer) -> str:
    sides = (("reads", layer.inputs), ("writes", layer.outputs))
    words = ((side, "; ".join(dict.fromkeys(t.words for t in tensors if t.words))) for side, tensors in sides)
    return ", ".join(f"{side} {text}" for side, text in words if text)


def _unmatched(
    check: EngineCheck, members: Mapping[str, Sequence[str]], times: Mapping[str, float]
) -> list[engine_rows.Unmatched]:
    """Engine layers without a planned layer, slowest first, and rows that are only in the profile."""
    kinds = (
        ("reformat", check.reformats),
        ("to or from INT8", check.quantizers),
        ("Q/DQ left unfused", check.unfused_qdq),
    )
    what = {layer.name: kind for kind, layers in kinds for layer in layers}
    types = {layer.name: layer.layer_type for layer in check.layers}
    names = [name for name in dict.fromkeys((*types, *times)) if name not in members]
    rows = [
        engine_rows.Unmatched(
            name,
            types.get(name, ""),
            what.get(name, "computes no layer of the plan" if name in types else "in the profile only"),
            times.get(name),
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: -(row.milliseconds or 0.0))
