"""Check every layer against the table of limits: its device, the reason, and its subgraph."""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable, Iterator, Optional, Sequence

from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.words import others
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import COMPARISONS, Unions
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.targets.dla import limits
from qdq_translator.translation.targets.dla.checks import Layer, Unknown
from qdq_translator.translation.targets.platforms import Hardware, Platform
from qdq_translator.translation.targets.precision import FP16, INT8, LayerPlan

MAX_LOADABLES = 16
"""Loadables of one core at the same time (fact 6.2)."""


@dataclasses.dataclass(frozen=True)
class DlaPlan:
    """Every layer's verdict in graph order, the number of predicted DLA subgraphs (loadables), and remarks. doubts: of
    layers like some that did not build elsewhere."""

    generation: str
    layers: list[rows.Verdict]
    subgraphs: int
    remarks: list[str]
    doubts: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """The remarks, and one on too many subgraphs."""
        more = f"{self.subgraphs} DLA subgraphs are more than the {MAX_LOADABLES} loadables of one core."
        return [*self.remarks, more] if self.subgraphs > MAX_LOADABLES else self.remarks

    @property
    def fallbacks(self) -> list[rows.Verdict]:
        return [layer for layer in self.layers if layer.verdict == limits.GPU]

    def count(self, verdict: str) -> int:
        return sum(layer.verdict == verdict for layer in self.layers)

    def row(self, shares: rows.Shares, transitions: rows.Transitions) -> rows.Dla:
        """The plan as the report has it. shares, transitions: see `planning.layers`."""
        verdicts = (limits.DLA_INT8, limits.DLA_FP16, limits.GPU, limits.FOLDED)
        counts, notes, layers = rows.Counts(*map(self.count, verdicts)), tuple(self.notes), tuple(self.layers)
        return rows.Dla(self.generation, counts, self.subgraphs, MAX_LOADABLES, notes, layers, shares, transitions)


def judge(context: Context, plan: list[LayerPlan], hardware: Hardware) -> DlaPlan:
    """Check every layer against the limits of the DLA of `hardware`."""
    generation = hardware.generation
    table = limits.limits_by_op(generation)
    layers = [
        _judge(Layer(node, context, hardware.tensorrt, planned.precision == FP16, hardware.assumed), planned, table)
        for node, planned in zip(context.graph.nodes, plan)
    ]
    layers, count = _numbered(makers_of(context.graph), layers)
    doubts = tuple(_doubts(context, layers, hardware.platform))
    return DlaPlan(generation, layers, count, _notes(context, layers, hardware.platform), doubts)


def _numbered(makers: Makers, layers: list[rows.Verdict]) -> tuple[list[rows.Verdict], int]:
    """The layers with their subgraphs, and the number of subgraphs."""
    numbers, count = _subgraphs(makers, layers)
    changed = (layer.subgraph != number for layer, number in zip(layers, numbers))
    return [
        dataclasses.replace(layer, subgraph=number) if change else layer
        for layer, number, change in zip(layers, numbers, changed)
    ], count


def moved_to_gpu(plan: DlaPlan, makers: Makers, moved: Iterable[int]) -> DlaPlan:
    """The plan with the layers at these positions on the GPU (rule R1)."""
    layers = list(plan.layers)
    for index in moved:
        layer = layers[index]
        finding = limits.CHEAPER.finding(layer.op)
        layers[index] = rows.Verdict(layer.name, layer.op, limits.GPU, (finding,), layer.unknown)
    layers, count = _numbered(makers, layers)
    return dataclasses.replace(plan, layers=layers, subgraphs=count)


def gpu_findings(layer: Layer, table: dict[str, list[limits.Limit]]) -> list[rows.Finding]:
    """Limits that send the layer to the GPU; [] if it stays on the DLA."""
    findings, _ = _hold(layer, table)
    return [finding for finding in findings if finding.effect == limits.GPU]


def _hold(layer: Layer, table: dict[str, list[limits.Limit]]) -> tuple[list[rows.Finding], list[str]]:
    """Limits that the layer violates, and the ids of those that cannot be checked."""
    node = layer.node
    if not node.is_standard or node.op_type not in limits.KNOWN:
        return [limits.UNKNOWN_OPERATOR.finding(f"{node.domain}::{node.op_type}" if node.domain else node.op_type)], []
    findings, unknown = [], []
    for limit in (*table.get(node.op_type, ()), *table["*"]):
        try:
            found = limit.check(layer)
            findings += [limit.finding(found)] if found else []
        except Unknown:
            unknown.append(limit.id)
    return findings, unknown


def _judge(layer: Layer, planned: LayerPlan, table: dict[str, list[limits.Limit]]) -> rows.Verdict:
    node = layer.node
    if node.is_op("Shape", "Size", "Constant", "ConstantOfShape", "Range") or not planned.inputs:
        return rows.Verdict(node.name, node.op_type, limits.FOLDED)
    findings, unknown = _hold(layer, table)
    effects = {finding.effect for finding in findings}
    wants_scale = False
    verdict: rows.Place = limits.DLA_INT8
    if limits.GPU in effects:
        verdict = limits.GPU
        wants_scale = bool(planned.missing) and not gpu_findings(dataclasses.replace(layer, fp16=False), table)
    elif planned.missing:
        verdict = limits.DLA_FP16
        findings.append(limits.NO_SCALE.finding(f"'{planned.missing[0]}'"))
    elif limits.DLA_FP16 in effects or (planned.precision != INT8 and planned.outputs):
        verdict = limits.DLA_FP16
    return rows.Verdict(node.name, node.op_type, verdict, tuple(findings), tuple(unknown), wants_scale=wants_scale)


def _subgraphs(makers: Makers, layers: list[rows.Verdict]) -> tuple[list[int], int]:
    """The DLA subgraph of each layer (its number, -1: none), and how many there are."""
    on_dla = [layer.verdict != limits.GPU for layer in layers]
    number: dict[int, int] = {}
    found = [
        number.setdefault(region, len(number)) if dla and region >= 0 else -1
        for region, dla in zip(regions(makers, layers), on_dla)
    ]
    return found, len(number)


Makers = Sequence[Sequence[int]]
"""For every node, in graph order, the numbers of the nodes that make what it reads."""


def makers_of(graph: Graph) -> Makers:
    number = {id(node): index for index, node in enumerate(graph.nodes)}
    makers = ({id(_maker(graph, name)) for name in node.reads()} for node in graph.nodes)
    return [[number[maker] for maker in found if maker in number] for found in makers]


def regions(makers: Makers, layers: Sequence[rows.Verdict]) -> list[int]:
    """The region of each layer on DLA or GPU (its number, -1: none). The level of a layer is the number of changes
    between DLA and GPU on the way to it; connected layers of one device and level form one region, so no region depends
    on itself through the other device. TensorRT may merge less; that it merges no more is inferred."""
    on_dla = [None if layer.verdict == limits.FOLDED else layer.verdict != limits.GPU for layer in layers]
    unions: Unions[int] = Unions()
    level: dict[int, int] = {}
    for own, here in enumerate(on_dla):
        if here is None:
            continue
        known = [maker for maker in makers[own] if maker in level]
        level[own] = max((level[maker] + (on_dla[maker] != here) for maker in known), default=0)
        unions.root(own)
        for maker in known:
            if on_dla[maker] == here and level[maker] == level[own]:
                unions.join(own, maker)
    number = {own: index for index, nodes in enumerate(unions.sets()) for own in nodes}
    return [number.get(own, -1) for own in range(len(on_dla))]


def _maker(graph: Graph, name: str) -> Optional[Node]:
    """The node that makes the tensor; for the Cast behind a comparison the comparison, because both are one layer."""
    node = graph.producer.get(name)
    before = graph.producer.get(node.inputs[0]) if node is not None and node.is_op("Cast") else None
    return before if before is not None and before.is_op(*COMPARISONS) else node


_UNBUILT = (512 * 256 * 3 * 3, 512 * 80 * 160)
"""Weights and input values of a Conv that TensorRT 8.5.2 did not build for a DLA
(github.com/NVIDIA/TensorRT/issues/3499 [user report])."""


def _doubts(context: Context, layers: list[rows.Verdict], platform: Optional[Platform]) -> Iterator[str]:
    """A sentence if Convs on the DLA have weights and an input at least as large as those of `_UNBUILT`."""
    if platform is not None and platform.tensorrt >= (8, 6):
        return
    large = []
    for node, layer in zip(context.graph.nodes, layers):
        if node.is_op("Conv") and layer.verdict not in (limits.GPU, limits.FOLDED):
            sizes = [context.types.static_shape(name) for name in (node.inputs[1], node.inputs[0])]
            if all(size and math.prod(size) >= least for size, least in zip(sizes, _UNBUILT)):
                large.append(node.name)
    if large:
        yield (
            f"'{large[0]}'{others(large)} may not build: a Conv of 512 to 256 channels, 3 x 3, on 80 x 160 did not "
            "for a DLA with TensorRT 8.5.2 (a user's report, NVIDIA/TensorRT#3499; no limit is documented)."
        )


def _notes(context: Context, layers: list[rows.Verdict], platform: Optional[Platform]) -> list[str]:
    notes = []
    if platform is not None and platform.note and not platform.dla:
        notes.append(f"{platform.name}: {platform.note} ({platform.source}).")
    dynamic = [name for name in context.graph.inputs if not context.types.static_shape(name)]
    if dynamic:
        notes.append(
            "The DLA runs static shapes only: build with equal minimum, optimum and maximum shapes for "
            f"{', '.join(dynamic)}; --shapes tells them to this plan."
        )
    unknown = sum(bool(layer.unknown) for layer in layers)
    if unknown:
        notes.append(
            f"{unknown} layer{'s' if unknown > 1 else ''} could not be checked against every limit, "
            "because shapes are unknown."
        )
    return notes
