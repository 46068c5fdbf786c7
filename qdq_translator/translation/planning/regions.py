"""Rule R1: the device of every layer, and which rewrites are worth applying, as one optimisation.

A layer costs its time on its device, and a tensor between DLA and GPU costs a transition. The cheapest assignment is a
minimum cut (`min_cut`), which is exact. Layers that a limit keeps off the DLA are fixed. The layers of one rewrite stay
together: on the GPU they cost what the layers cost that they replace, because there the rewrite is left out.

The DLA was asked for, so a layer that it can run as it is does not leave it to be faster: on the GPU it costs at least
what it costs on the DLA, and only saved transitions move it. The DLA keeps at least one such layer.

The price of a transition is not known (hypothesis `transitions`). The cheapest assignments at both ends and between
them are compared, and the one is taken that loses least at the end where it loses most. If it has more regions than a
core has loadables, a higher price of transitions gives fewer regions; this is a heuristic, whose distance from the
cheapest assignment is reported.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Container, Dict, Iterator, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import milliseconds, others
from qdq_translator.translation.ir.operators import Unions
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.passes.normal_forms import RULES as NORMAL_FORMS
from qdq_translator.translation.planning.min_cut import Crossing, Cut
from qdq_translator.translation.scales.network import Applied, Network
from qdq_translator.translation.targets.cost.estimate import CostPlan, Exchange, crossed, dla_cost, exchanges
from qdq_translator.translation.targets.cost.fusing import FusedLayer, fused_layers
from qdq_translator.translation.targets.cost.gpu import HIGH, START
from qdq_translator.translation.targets.dla.limits import CHEAPER, GPU
from qdq_translator.translation.targets.dla.verdicts import (
    MAX_LOADABLES,
    DlaPlan,
    Makers,
    makers_of,
    moved_to_gpu,
    regions,
)
from qdq_translator.translation.targets.settings import Settings

_BETWEEN = (0.15, 0.4)
"""Prices of a transition between the low (0) and the high end (1) at which the cheapest assignment is found, too."""
NEAR = 0.02
"""Share of the time below which the assignment with more layers on the DLA is taken, and the network without the
rewrites that serve none."""
_SMALL = 50_000
"""Nanoseconds at both ends below which it is, too: three transitions at the low end."""
_RELIEF = 0.1
"""Share of the network's time on the GPU below which its layers on the DLA do not relieve the GPU."""
_MORE = 64.0
"""The highest price that is tried for few regions, in transitions at the high end."""
Found = Dict[str, Dict[str, str]]
"""Rule -> node that it rewrote -> why the rewrite is left out."""


@dataclasses.dataclass(frozen=True)
class Placed:
    """The chosen assignment. dla: the plan with it. useless: rewrites whose layers are all on the GPU. ends:
    milliseconds at both ends without them. bound: milliseconds that it can be above the cheapest assignment with the
    loadables of a core, at the high end; None if it is the cheapest."""

    dla: DlaPlan
    useless: Found
    ends: tuple[float, float]
    bound: Optional[float] = None


def placed(network: Network, types: TensorTypes, dla: DlaPlan, settings: Settings) -> Optional[Placed]:
    """The assignment that loses least; None if a layer has no price. dla: the plan by limits alone."""
    problem = _Problem.of(network, types, dla, settings)
    return None if problem is None else problem.solved(dla)


_MANY = 4
"""Regions above which an estimate is not to be trusted: one published network with 16 is 57 ms longer."""


def report_placed(found: Optional[Placed], costs: Optional[CostPlan], diagnostics: Diagnostics) -> None:
    """Report what the plan leaves to the GPU, and whether the whole network would be faster there."""
    if found is None or costs is None or costs.ends is None:
        return
    moved = [row.name for row in found.dla.layers if any(one.limit == CHEAPER.id for one in row.findings)]
    ends, whole = costs.ends, costs.whole
    low, high = milliseconds(ends[0]), milliseconds(ends[1])
    if moved and not found.dla.subgraphs:
        diagnostics.warning(
            "D0",
            f"No layer is left for the DLA: '{moved[0]}'{others(moved)} could run there, but would save the GPU less "
            "than a tenth of its time.",
            node=moved[0],
            hint="Use --on gpu; --dla_rewrites force keeps every layer on the DLA that can run there.",
            data={"layers": moved},
        )
    elif moved:
        near = "" if found.bound is None else f" Its distance from the best is at most {milliseconds(found.bound)}."
        diagnostics.info(
            "D0",
            f"'{moved[0]}'{others(moved)} could run on the DLA, but the region is estimated faster on the GPU: {low} "
            f"to {high} in all.{near}",
            node=moved[0],
            hint="--dla_rewrites force keeps every layer on the DLA that can run there.",
            data={"layers": moved},
        )
    if whole is not None and whole[0] < ends[0]:
        diagnostics.info(
            "D0",
            f"All of it on the GPU is estimated at {milliseconds(whole[0])}, {low} to {high} with the DLA.",
            hint="--on gpu is faster if the GPU is free.",
        )
    if found.dla.subgraphs > _MANY:
        diagnostics.warning(
            "D0",
            f"{found.dla.subgraphs} DLA regions with GPU layers between them: a published network with 16 regions "
            "takes several times as long as any estimate explains.",
            hint="Measure it on the board before you rely on it, or use --on gpu.",
        )


@dataclasses.dataclass
class _Part:
    """Layers with one device. first, second: nanoseconds on the DLA (None: impossible) and on the GPU, there at least
    as many as on the DLA if no rewrite made them. gpu: the estimate on the GPU. native: nanoseconds on the DLA of
    layers that no rewrite made. macs: of these layers."""

    layers: list[int]
    first: Optional[int] = 0
    second: int = 0
    gpu: int = 0
    native: int = 0
    macs: int = 0


@dataclasses.dataclass
class _Cluster:
    """Rewrites that build on each other. before: nodes that they replaced. made: ids of their nodes that are left."""

    applied: list[Applied]
    before: dict[str, None]
    made: set[int]


@dataclasses.dataclass(frozen=True)
class _Problem:
    """The parts of a network that one device has as a whole. owner: layer -> its part. islands: layer -> the region on
    the GPU that no assignment changes (-1: none); first_of: a part of each. whole: as in `Original`."""

    makers: Makers
    layers: list[FusedLayer]
    parts: list[_Part]
    owner: list[int]
    between: list[Exchange]
    prices: list[int]
    clusters: list[tuple[_Cluster, set[int]]]
    islands: list[int]
    first_of: dict[int, int]
    whole: Optional[tuple[float, float]]

    @classmethod
    def of(cls, network: Network, types: TensorTypes, dla: DlaPlan, settings: Settings) -> Optional[_Problem]:
        graph, (model, _), gpu = network.graph, settings.cost, settings.gpu
        layers = fused_layers(graph, types, [layer.verdict for layer in dla.layers], gpu=True)
        if model is None or network.original is None or any(layer.works is None for layer in layers):
            return None
        costs = [
            gpu.kernel(one, True) if one.verdict == GPU else dla_cost(one, model).milliseconds or 0.0 for one in layers
        ]
        parts, owner, clusters = _Builder(network, layers).parts(costs)
        between = exchanges(graph, types, layers)
        prices = [_ns(gpu.transition(one.surface)) for one in between]
        makers = makers_of(graph)
        numbers = regions(makers, dla.layers)
        islands = [numbers[layer.nodes[0]] if layer.verdict == GPU else -1 for layer in layers]
        first_of = {number: owner[own] for own, number in enumerate(islands) if number >= 0}
        whole = network.original.whole
        return cls(makers, layers, parts, owner, between, prices, clusters, islands, first_of, whole)

    @property
    def constant(self) -> int:
        """Nanoseconds of a network on the GPU alone, without its kernels."""
        return max(0, _ns(self.whole[0]) - sum(part.gpu for part in self.parts)) if self.whole else 0

    def crossings(self, share: float) -> list[Crossing]:
        """share: of the way from the low to the high end."""
        more = _ns(share * (HIGH - START))
        return [one._replace(price=one.price + more * high) for one, high in self._crossings if one.price or more]

    @functools.cached_property
    def _crossings(self) -> list[tuple[Crossing, bool]]:
        """At the low end, and whether the high end adds its price. Tensors into a region that is fixed on the GPU share
        one price of the high end, and so do those out of it; every other tensor has its own."""
        found, into, out = [], {}, {}  # type: list[tuple[Crossing, bool]], dict[int, list[int]], dict[int, list[int]]
        for one, price in zip(self.between, self.prices):
            maker, readers = self.owner[one.maker], [self.owner[reader] for reader in one.readers]
            fixed = dict.fromkeys(self.islands[reader] for reader in one.readers if self.islands[reader] >= 0)
            island = self.islands[one.maker]
            if island >= 0:
                out.setdefault(island, []).extend(readers)
            else:
                for number in fixed:
                    into.setdefault(number, []).append(maker)
            found.append((Crossing(maker, readers, price), island < 0 and not fixed))
        ends = ((self.first_of[number], parts) for ends in (into, out) for number, parts in ends.items())
        return found + [(Crossing(part, parts, 0), True) for part, parts in ends]

    def cheapest(self, share: float) -> list[bool]:
        """The cheapest assignment at this price of transitions, with the heaviest layer on the DLA that it can run as
        it is, or nearly as fast as the GPU, unless that leaves nearly all of the network to the GPU."""
        cut = Cut([part.first for part in self.parts], [part.second for part in self.parts], self.crossings(share))
        found = cut.cheapest()
        able = [] if any(found) else [rank for rank in map(self._rank, range(len(found))) if rank is not None]
        if not able:
            return found
        forced = cut.cheapest(kept=max(able)[-1])
        relieved = sum(part.gpu for part, on in zip(self.parts, forced) if on)
        return forced if relieved >= _RELIEF * sum(part.gpu for part in self.parts) else found

    def _rank(self, number: int) -> Optional[tuple[int, int, int, int]]:
        part = self.parts[number]
        if part.first is None or (not part.native and part.first - part.second >= _ns(HIGH)):
            return None
        return part.macs, part.native, part.second - part.first, number

    def solved(self, dla: DlaPlan) -> Placed:
        tried = [[part.first is not None for part in self.parts]]
        free, dear = self.cheapest(0.0), self.cheapest(1.0)
        # the least price is concave in the share: what is the cheapest at both ends is the cheapest between them
        between = [self.cheapest(share) for share in _BETWEEN] if free != dear else []
        for found in (free, *between, dear):
            tried += [found] if found not in tried else []
        plans = [self._plan(dla, chosen) for chosen in tried]
        prices = [self.ends(chosen, plan) for chosen, plan in zip(tried, plans)]
        best = _least_lost(prices, [sum(chosen) for chosen in tried])
        chosen, made, bound = tried[best], plans[best], None
        if made.subgraphs > MAX_LOADABLES:
            chosen, made = self._fewer(dla)
            bound = (self.ends(chosen, made)[1] - min(high for _, high in prices)) / 1e6
        low, high = self.ends(chosen, made)
        more = sum(part.second - part.gpu for on, part in zip(chosen, self.parts) if not on)
        return Placed(made, self._useless(chosen), ((low - more) / 1e6, (high - more) / 1e6), bound)

    def ends(self, chosen: Sequence[bool], plan: DlaPlan) -> tuple[int, int]:
        """The price of an assignment at both ends, with the constant of a network on the GPU alone."""
        alone = sum((part.first or 0) if on else part.second for on, part in zip(chosen, self.parts))
        alone += 0 if any(chosen) else self.constant
        subgraphs = [plan.layers[layer.nodes[0]].subgraph for layer in self.layers]
        low, ends = crossed(self.between, subgraphs, self.prices)
        return alone + round(low), alone + round(low) + _ns(HIGH - START) * ends

    def _fewer(self, dla: DlaPlan) -> tuple[list[bool], DlaPlan]:
        """The assignment at the lowest price of transitions that leaves no more regions than loadables."""
        low, high = 1.0, _MORE
        chosen = self.cheapest(high)
        made = self._plan(dla, chosen)
        for _ in range(6):
            middle = (low * high) ** 0.5
            found = self.cheapest(middle)
            plan = self._plan(dla, found)
            if plan.subgraphs > MAX_LOADABLES:
                low = middle
            else:
                high, chosen, made = middle, found, plan
        return chosen, made

    def _plan(self, dla: DlaPlan, chosen: Sequence[bool]) -> DlaPlan:
        moved = [
            index
            for own, layer in enumerate(self.layers)
            if layer.verdict != GPU and not chosen[self.owner[own]]
            for index in layer.nodes
        ]
        return moved_to_gpu(dla, self.makers, moved) if moved else dla

    def _useless(self, chosen: Sequence[bool]) -> Found:
        """Rewrites of which no layer is on the DLA."""
        found: Found = {}
        for cluster, parts in self.clusters:
            if parts and not any(chosen[part] for part in parts):
                given = _given_nodes(cluster.applied)
                for one in cluster.applied:  # a node that another rewrite made is undone with that one
                    names = {name: CHEAPER.text for name, _ in one.before if name in given}
                    found.setdefault(one.rule, {}).update(names)
        return {rule: names for rule, names in found.items() if names}


def _least_lost(prices: Sequence[tuple[int, int]], on_dla: Sequence[int]) -> int:
    """The assignment that loses least at the end where it loses most; of nearly equal ones that with most parts on the
    DLA. prices: nanoseconds of each at both ends."""
    least = [max(1, min(price[end] for price in prices)) for end in (0, 1)]
    loses = [max(price[end] / least[end] for end in (0, 1)) for price in prices]
    small = [all(price[end] - least[end] <= _SMALL for end in (0, 1)) for price in prices]
    near = [index for index, loss in enumerate(loses) if small[index] or loss <= min(loses) + NEAR]
    return max(near, key=on_dla.__getitem__)


class _Builder:
    """Parts of the problem: fused layers, joined where a rewrite made several of them."""

    def __init__(self, network: Network, layers: list[FusedLayer]) -> None:
        self.network, self.layers = network, layers
        self.nodes = list(network.graph.nodes)
        self.layer_of = {id(self.nodes[index]): own for own, layer in enumerate(layers) for index in layer.nodes}
        self.kernels: dict[str, float] = dict(network.original.kernels)  # type: ignore[union-attr]
        for one in network.applied:
            if one.rule in NORMAL_FORMS and one.after:  # the kernel counts for the first node that has its place
                names = [node.name for node, _ in one.after]
                for gone in (name for name, _ in one.before if name in self.kernels and name not in names):
                    self.kernels[names[0]] = self.kernels.get(names[0], 0.0) + self.kernels.pop(gone)

    def parts(self, costs: Sequence[float]) -> tuple[list[_Part], list[int], list[tuple[_Cluster, set[int]]]]:
        """The parts with their prices. costs: milliseconds of each layer on its device."""
        clusters = list(_clusters(self.network.applied, self.layer_of))
        made_by = {node: cluster for cluster in clusters for node in cluster.made}
        inside = [self._own(cluster) for cluster in clusters]
        parts = [_Part(layers) for layers in self._tied(inside)]
        owner = [0] * len(self.layers)
        for number, part in enumerate(parts):
            for own in part.layers:
                owner[own] = number
                self._price(part, own, costs[own], made_by)
        for cluster, held in zip(clusters, inside):
            self._price_cluster(cluster, held, [parts[owner[layer]] for layer in held], costs)
        return parts, owner, [(cluster, {owner[layer] for layer in held}) for cluster, held in zip(clusters, inside)]

    def _tied(self, inside: Sequence[Sequence[int]]) -> list[list[int]]:
        """Layers in sets: those of one cluster on the DLA are together."""
        unions: Unions[int] = Unions()
        for own in range(len(self.layers)):
            unions.root(own)
        for held in inside:
            on_dla = [layer for layer in held if self.layers[layer].verdict != GPU]
            for layer in on_dla[1:]:
                unions.join(on_dla[0], layer)
        return unions.sets()

    def _own(self, cluster: _Cluster) -> list[int]:
        return sorted({self.layer_of[node] for node in cluster.made})

    def _price(self, part: _Part, own: int, cost: float, made_by: dict[int, _Cluster]) -> None:
        layer = self.layers[own]
        given = [self.nodes[index] for index in layer.nodes if id(self.nodes[index]) not in made_by]
        there = _ns(sum(self.kernels.get(node.name, 0.0) for node in given))
        if layer.verdict == GPU:
            part.first = None
            there = there if len(given) == len(layer.nodes) else _ns(cost)
            part.second, part.gpu = part.second + there, part.gpu + there
            return
        part.first = None if part.first is None else part.first + _ns(cost)
        native = given[:1] == [self.nodes[layer.nodes[0]]]
        part.second += max(there, _ns(cost)) if native else there
        part.gpu += there
        part.native += _ns(cost) if native else 0
        part.macs += sum(work.macs for work in layer.works or ()) if native else 0

    def _price_cluster(
        self, cluster: _Cluster, own: Sequence[int], parts: Sequence[_Part], costs: Sequence[float]
    ) -> None:
        """Set the price of a cluster of rewritten layers: on the GPU what it replaced, on the DLA also those of its
        layers that need the GPU."""
        held = next((part for part, layer in zip(parts, own) if self.layers[layer].verdict != GPU), None)
        if held is None or held.first is None:
            return
        before = _ns(sum(self.kernels.get(name, 0.0) for name in cluster.before))
        held.second, held.gpu = held.second + before, held.gpu + before
        for part, layer in zip(parts, own):
            if self.layers[layer].verdict == GPU:
                part.second, part.gpu = part.second - _ns(costs[layer]), part.gpu - _ns(costs[layer])
                held.first += _ns(costs[layer])


def _clusters(applied: Sequence[Applied], alive: Container[int]) -> Iterator[_Cluster]:
    """Applications joined where one rewrote nodes that another made, each with nodes that are left."""
    unions: Unions[int] = Unions()
    maker: dict[str, int] = {}
    for number, one in enumerate(applied):
        unions.root(number)
        for name, _ in one.before:
            if name in maker:
                unions.join(maker[name], number)
        maker.update((node.name, number) for node, _ in one.after)
    for numbers in unions.sets():
        rewrites = [applied[number] for number in numbers if applied[number].rule.startswith("D")]
        made = {id(node) for one in rewrites for node, _ in one.after if id(node) in alive}
        if made:
            yield _Cluster(rewrites, dict.fromkeys(name for one in rewrites for name, _ in one.before), made)


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)


def _given_nodes(applied: Sequence[Applied]) -> set[str]:
    """The nodes that these rewrites replaced and that none of them made before."""
    made: set[str] = set()
    given: set[str] = set()
    for one in applied:
        given.update(name for name, _ in one.before if name not in made)
        made.update(node.name for node, _ in one.after)
    return given
