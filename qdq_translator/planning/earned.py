"""Rules R1 and F12: find rewrites that make a network worse.

R1: a rewrite for the DLA stays only if its layers run on the DLA and reduce the estimate, including the cost of
transitions.

A rewrite is suspected if one of its layers with weights still runs on the GPU, or if its layers are estimated to take
longer than avoiding one GPU layer can save (`FURTHER_REGION`, at an end of the network `END_ON_GPU`). The network is
then planned without the rewrite to see if it is faster.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import counted, milliseconds
from qdq_translator.ir.operators import WEIGHTED
from qdq_translator.planning.decision import Decision, context_of, decide, rewrites_of
from qdq_translator.planning.steps import left_out
from qdq_translator.scales.inference import Context, infer_scales
from qdq_translator.scales.network import Applied, Network
from qdq_translator.scales.table import ASSUMED, Origin
from qdq_translator.targets.cost.estimate import END_ON_GPU, FURTHER_REGION, work_of
from qdq_translator.targets.precision import ON_GPU
from qdq_translator.targets.settings import Settings

_ADD_WORK = frozenset(
    ("D4", "D5", "D7", "D11", "D13", "D15", "D17", "D19", "D21", "D23", "D24", "D25", "D27", "D28", "D29")
)
"""Rules that can add work to the DLA: they replace GPU layers with DLA layers. The other rules only change the form of
layers."""
_ONE_BY_ONE = 8
"""Up to this number of nodes, each left-out rewrite is tried again alone, because one of them may pay."""
Found = Dict[str, Dict[str, str]]
"""Rule -> node that it rewrote -> why the rewrite is left out."""


def too_lossy(network: Network, settings: Settings) -> Found:
    """Rewrites that lose too much precision (rule F12)."""
    if settings.calibration is not None or settings.assume_scales:
        return {}
    context, rewrites = context_of(network, network.scales.fork(), settings), rewrites_of(network, settings)
    return left_out(context, rewrites.applied, lambda: infer_scales(context, Diagnostics()))


Read = Callable[[Settings, Diagnostics], Network]
"""Reads the given network again and applies the passes with these settings."""


class _Search:
    """The fastest network found, its settings and messages. left: the rewrites that it leaves out besides `lossy`.
    first: the outcome with all rewrites but `lossy`, None before the first trial."""

    def __init__(self, network: Network, settings: Settings, said: Diagnostics, lossy: Found, read: Read) -> None:
        self.network, self.settings, self.said = network, settings, said
        self.lossy, self.read = lossy, read
        self.left: Found = {}
        self.first: Optional[Outcome] = None
        self.best = Outcome(0.0, None, 0)

    def without(self, out: Found) -> tuple[Network, Settings]:
        """The network without these rewrites and its settings; it becomes the result of the search if it is faster."""
        if self.first is None:
            self.first = self.best = outcome(self.network, self.settings)
        said, settings = Diagnostics(), dataclasses.replace(self.settings, refuted=together(self.lossy, out))
        other = self.read(settings, said)
        time, least = outcome(other, settings), self.best.least
        if time.total is not None and (time.total < least or time.total == self.first.least == least):
            report_left_out(self.lossy, said)
            report_left_out(out, said, (self.first, time))
            self.network, self.settings, self.said, self.best, self.left = other, settings, said, time, out
        return other, settings


def faster(
    network: Network, settings: Settings, said: Diagnostics, lossy: Found, read: Read
) -> tuple[Network, Settings, Diagnostics]:
    """Rule R1: the fastest network found, its settings and messages. Tried in this order: without the rewrites whose
    layers take longer than `FURTHER_REGION`, then `END_ON_GPU`, all together and one rule at a time; if any was
    suspected, without all rewrites; at last, if few nodes are left out, with the rewrites of each of them again. lossy:
    already left out."""
    search = _Search(network, settings, said, lossy, read)
    for most in (FURTHER_REGION, END_ON_GPU):
        _without_slow(search, most)
    every = _all(search.network) if search.first is not None else {}
    if every:
        search.without(together(search.left, every))
    left = search.left
    nodes = dict.fromkeys(node for rewritten in left.values() for node in rewritten)
    for node in nodes if 1 < len(nodes) <= _ONE_BY_ONE else ():
        kept = {rule: {name: why for name, why in row.items() if name != node} for rule, row in left.items()}
        search.without({rule: row for rule, row in kept.items() if row})
    return search.network, search.settings, search.said


def _without_slow(search: _Search, most: float) -> None:
    """Try without all rewrites whose layers take longer than `most` milliseconds, then without those of one rule at a
    time."""
    slow, base = _slow(search.network, search.settings, most), search.left
    if not slow:
        return
    more = _slow(*search.without(together(base, slow)), most)
    trials = [{rule: nodes} for rule, nodes in slow.items()] if len(slow) > 1 else []
    if more:  # another rule rewrites the nodes that this one leaves
        trials.append(together(slow, more))
    for found in trials:
        search.without(together(base, found))


def _all(network: Network) -> Found:
    found: Found = {}
    for applied in network.applied:
        if applied.rule.startswith("D"):
            found.setdefault(applied.rule, {}).update(dict.fromkeys((name for name, _ in applied.before), _FASTER))
    return found


_FASTER = "the network without them is estimated faster"


def _slow(network: Network, settings: Settings, most: float) -> Found:
    """Rewrites whose layers take longer than `most` milliseconds, or whose layers with weights are on the GPU."""
    heavy = list(_heavy(network, settings))
    rows = {row.name: row for row in _planned(network, settings).plan} if heavy else {}
    found: Found = {}
    for applied in heavy:
        made = [rows[node.name] for node, _ in applied.after if node.name in rows]
        time = sum(row.milliseconds or 0.0 for row in made)
        if time > most or any(row.device == ON_GPU and row.op in WEIGHTED for row in made):
            why = f"its layers are estimated at {milliseconds(time)}, and {_FASTER}"
            found.setdefault(applied.rule, {}).update(dict.fromkeys(_taken(network.applied, applied), why))
    return found


def _taken(steps: Sequence[Applied], last: Applied) -> set[str]:
    """Nodes that the application replaced, and those that its rule replaced earlier to create them."""
    names = {name for name, _ in last.before}
    for step in reversed(steps):
        if step.rule == last.rule and any(node.name in names for node, _ in step.after):
            names.update(name for name, _ in step.before)
    return names


def _heavy(network: Network, settings: Settings) -> Iterator[Applied]:
    """Rewrites that may be suspected: with weights, or with layers that take longer than `END_ON_GPU` in FP16."""
    model, graph = settings.cost[0], network.graph
    alive = {id(node) for node in graph.nodes}
    for applied in network.applied:
        if applied.rule in _ADD_WORK and model is not None:
            made = [node for node, _ in applied.after if id(node) in alive]
            works = [work for node in made for work in work_of(node, graph, network.types) or ()]
            times = (model.estimate(work, fp16=True).milliseconds for work in works)
            if any(node.is_op(*WEIGHTED) for node in made) or sum(times) > END_ON_GPU:
                yield applied


def _planned(network: Network, settings: Settings) -> Decision:
    """Plan with nominal scales instead of observed ones, because scale values hardly affect the time."""
    scales = network.scales.fork()
    if settings.assume_scales:
        scales.assume(name for name in network.graph.tensors() if network.types.is_float(name))

    def assume(context: Context) -> bool:
        lacking = [name for name in network.graph.tensors() if context.lacks(name)]
        for name in lacking:
            context.scales.infer(name, 1 / 127, Origin(ASSUMED))
        return bool(lacking)

    observe = None if settings.calibration is None else assume
    return decide(network, context_of(network, scales, settings), settings, Diagnostics(), observe)


def together(one: Found, other: Found) -> Found:
    return {rule: {**one.get(rule, {}), **other.get(rule, {})} for rule in {**one, **other}}


class Outcome(NamedTuple):
    """Milliseconds with transitions: a lower bound, and the estimate (None if a layer is unknown). gpu: number of
    layers on the GPU."""

    least: float
    total: Optional[float]
    gpu: int


def outcome(network: Network, settings: Settings) -> Outcome:
    decision = _planned(network, settings)
    gpu = 0 if decision.dla is None else len(decision.dla.fallbacks)
    return Outcome(*((0.0, None) if decision.costs is None else (decision.costs.least, decision.costs.total)), gpu)


def report_left_out(refused: Found, diagnostics: Diagnostics, outcomes: Sequence[Outcome] = ()) -> None:
    """Report rewrites that are left out. outcomes: of the network with and without the rewrites, if time is the
    reason."""
    for rule, nodes in refused.items():
        first, more = next(iter(nodes)), len(nodes) - 1
        behind = f" and {counted(more, 'more node')}" if more else ""
        why = nodes[first]
        data: dict[str, list[float]] = {}
        alone = ""
        if outcomes:
            times = [(one.least if one.total is None else one.total) for one in outcomes]
            slow, fast = map(milliseconds, times)
            why = f"the network is estimated at {slow} with it and at {fast} without, transitions included"
            data = {"milliseconds": times}
            if not outcomes[0].gpu:
                alone = " No layer is left for the GPU then, as a standalone loadable needs it."
        diagnostics.info(
            rule,
            f"The rewrite of '{first}'{behind} is left out: {why}.",
            node=first,
            hint=f"--dla_rewrites force applies every rewrite.{alone}",
            data={"nodes": list(nodes), **data},
        )
