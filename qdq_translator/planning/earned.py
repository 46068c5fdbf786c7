"""Rules R1 and F12: find rewrites that a network is better off without.

R1: a rewrite for the DLA stays only if its layers run on the DLA and reduce the estimate, including the cost of
transitions.

A rewrite is suspected if one of its layers with weights still runs on the GPU, or if its layers are estimated to take
longer than the most that one GPU layer fewer can save (`FURTHER_REGION`). The network is then planned without the
rewrite to see if it is faster.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import counted, milliseconds
from qdq_translator.ir.operators import WEIGHTED
from qdq_translator.planning.decision import Decision, context_of, decide, rewrites_of
from qdq_translator.planning.steps import left_out
from qdq_translator.scales.inference import Context, infer_scales
from qdq_translator.scales.network import Applied, Network
from qdq_translator.scales.table import ASSUMED, Origin
from qdq_translator.targets.cost.estimate import FURTHER_REGION, work_of
from qdq_translator.targets.dla.limits import GPU
from qdq_translator.targets.settings import Settings

_ADD_WORK = frozenset(("D4", "D7", "D11", "D13", "D15", "D17", "D19", "D21", "D23", "D24", "D25", "D27", "D28"))
"""Rules that make layers for the DLA of others; the rest gives layers that are there another form."""


Found = Dict[str, Dict[str, str]]
"""Rule -> node that it took -> what is wrong with the rewrite."""


def suspects(network: Network, settings: Settings) -> tuple[Found, Found]:
    """Rewrites that lose too much precision (rule F12), and those that may make the network slower."""
    lossy: Found = {}
    if settings.calibration is None and not settings.assume_scales:
        context, rewrites = context_of(network, network.scales.fork(), settings), rewrites_of(network, settings)
        lossy = left_out(context, rewrites.applied, lambda: infer_scales(context, Diagnostics()))
    heavy = list(_heavy(network, settings))
    decision = _planned(network, settings) if heavy else None
    if decision is None or decision.dla is None or decision.costs is None:
        return lossy, {}
    rows = {row.name: (row.verdict, cost) for row, cost in zip(decision.dla.layers, decision.costs.layers)}
    found: Found = {}
    for applied in heavy:
        made = [(node, *rows[node.name]) for node, _ in applied.after if node.name in rows]
        time = sum(cost.milliseconds or 0.0 for _, _, cost in made if cost is not None)
        if time > FURTHER_REGION or any(verdict == GPU and node.is_op(*WEIGHTED) for node, verdict, _ in made):
            why = f"its layers are estimated at {milliseconds(time)}, and the network without them is estimated faster"
            found.setdefault(applied.rule, {}).update(dict.fromkeys(_taken(network.applied, applied), why))
    return lossy, found


def _taken(steps: Sequence[Applied], last: Applied) -> set[str]:
    """Nodes that the application took, and the ones that its rule took to make those."""
    names = {name for name, _ in last.before}
    for step in reversed(steps):
        if step.rule == last.rule and any(node.name in names for node, _ in step.after):
            names.update(name for name, _ in step.before)
    return names


def _heavy(network: Network, settings: Settings) -> Iterator[Applied]:
    """Rewrites that may be suspected, by the maximum FP16 time of their layers."""
    model, graph = settings.cost[0], network.graph
    alive = {id(node) for node in graph.nodes}
    for applied in network.applied:
        if applied.rule in _ADD_WORK and model is not None:
            made = [node for node, _ in applied.after if id(node) in alive]
            works = [work for node in made for work in work_of(node, graph, network.types) or ()]
            times = (model.estimate(work, fp16=True).milliseconds for work in works)
            if any(node.is_op(*WEIGHTED) for node in made) or sum(times) > FURTHER_REGION:
                yield applied


def _planned(network: Network, settings: Settings) -> Decision:
    """Plan with every scale that data would supply if requested; scale values hardly affect the time."""
    scales = network.scales.fork()
    if settings.assume_scales:
        scales.assume(name for name in network.graph.tensors() if network.types.is_float(name))

    def assume(context: Context) -> bool:
        lacking = [name for name in network.graph.tensors() if context.lacks(name)]
        return bool([context.scales.infer(name, 1 / 127, Origin(ASSUMED)) for name in lacking])

    observe = None if settings.calibration is None else assume
    return decide(network, context_of(network, scales, settings), settings, Diagnostics(), observe)


def together(one: Found, other: Found) -> Found:
    return {rule: {**one.get(rule, {}), **other.get(rule, {})} for rule in {**one, **other}}


class Outcome(NamedTuple):
    """Milliseconds with transitions: a lower bound, and the estimate (None if a layer is unknown). gpu: number of layers there."""

    least: float
    total: Optional[float]
    gpu: int


def outcome(network: Network, settings: Settings) -> Outcome:
    decision = _planned(network, settings)
    gpu = 0 if decision.dla is None else len(decision.dla.fallbacks)
    return Outcome(*((0.0, None) if decision.costs is None else (decision.costs.least, decision.costs.total)), gpu)


def report_left_out(refused: Found, diagnostics: Diagnostics, outcomes: Sequence[Outcome] = ()) -> None:
    """outcomes: of the network with the rewrites and without them, if that is the reason."""
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
