"""Rules R1 and F12: leave out rewrites that make a network worse.

R1: a rewrite for the DLA is applied where the region that it serves ends on the DLA (`regions`). The network is planned
with all rewrites, then without those that the search leaves to the GPU, whose layers keep their original form there.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, Iterator, Optional

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.words import others
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.planning.decision import Decision, context_of, decide, rewrites_of, settled
from qdq_translator.translation.planning.regions import NEAR
from qdq_translator.translation.planning.steps import left_out
from qdq_translator.translation.scales.inference import Context, infer_scales
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.scales.table import ASSUMED, Origin
from qdq_translator.translation.targets.dla.limits import GPU
from qdq_translator.translation.targets.settings import ANY_RULE, Settings

_ROUNDS = 3
"""How often rewrites are left out: other rules may rewrite the nodes that one leaves."""
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


def faster(
    network: Network, settings: Settings, said: Diagnostics, lossy: Found, read: Read
) -> tuple[Network, Settings, Diagnostics, Optional[Outcome]]:
    """Rule R1: the network with the rewrites that are worth applying, its settings, messages and plan (None if there is
    nothing to weigh). lossy: rewrites that are left out already."""
    if not any(one.rule.startswith("D") for one in network.applied):
        return network, settings, said, None
    least = first = outcome(network, settings)
    best = network, settings, said
    out, around = first.useless, _amid_the_gpu(network, first)
    made = {node.name: [name for name, _ in one.before] for one in network.applied for node, _ in one.after}
    for _ in range(_ROUNDS if first.ends is not None else 0):
        if not out:
            break
        # no other rule rewrites their nodes and those around them, because their region stays on the GPU
        around.update((name, why) for nodes in out.values() for name, why in nodes.items())
        refuted = {**together(lossy, out), ANY_RULE: around}
        now, messages = dataclasses.replace(settings, refuted=refuted), Diagnostics()
        other = read(now, messages)
        other.undone = made
        found = outcome(other, now)
        if found.ends is not None and found.loses_to(least) <= NEAR:
            report_left_out(lossy, messages)
            alone = "" if first.gpu else " No layer is left for the GPU then, as a standalone loadable needs it."
            report_left_out(out, messages, alone)
            best, least = (other, now, messages), found
        more = together(out, found.useless)
        out = {} if more == out else more
    decision = settled(best[0], least.decision, best[1], least.messages)
    return (*best, dataclasses.replace(least, decision=decision))


def _amid_the_gpu(network: Network, planned: Outcome) -> dict[str, str]:
    """Nodes on the GPU that exchange tensors with nodes on the GPU only -> why no rule rewrote them ('': unknown)."""
    graph, reasons = network.graph, network.reasons
    rows = () if planned.decision.dla is None else planned.decision.dla.layers
    off = {id(node) for node, row in zip(graph.nodes, rows) if row.verdict == GPU}

    def near(node: Node) -> Iterator[Node]:
        yield from (graph.producer[name] for name in node.reads() if name in graph.producer)
        yield from (reader for name in node.outputs for reader in graph.consumers(name))

    inside = (node for node in graph.nodes if id(node) in off and all(id(other) in off for other in near(node)))
    return {node.name: reasons.get(node.name, "") for node in inside}


def together(one: Found, other: Found) -> Found:
    return {rule: {**one.get(rule, {}), **other.get(rule, {})} for rule in {**one, **other}}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A plan, up to the device of each layer, with nominal scales instead of observed ones, because scale values hardly
    affect the time."""

    decision: Decision
    messages: Diagnostics

    @property
    def ends(self) -> Optional[tuple[float, float]]:
        """Milliseconds with transitions at the low and at the high end; None without an estimate."""
        return None if self.decision.placed is None else self.decision.placed.ends

    @property
    def useless(self) -> Found:
        """Rewrites whose layers are all on the GPU."""
        return {} if self.decision.placed is None else self.decision.placed.useless

    @property
    def gpu(self) -> int:
        """Number of layers on the GPU."""
        return 0 if self.decision.dla is None else len(self.decision.dla.fallbacks)

    def loses_to(self, other: Outcome) -> float:
        """How much more it loses than the other, each at the end where it loses most, as a share of the time."""
        if self.ends is None or other.ends is None:
            return 0.0
        pairs = list(zip(self.ends, other.ends))
        mine, others = max(a / max(min(a, b), 1e-9) for a, b in pairs), max(b / max(min(a, b), 1e-9) for a, b in pairs)
        return mine - others


def outcome(network: Network, settings: Settings) -> Outcome:
    scales, messages = network.scales.fork(), Diagnostics()
    if settings.assume_scales:
        scales.assume(name for name in network.graph.tensors() if network.types.is_float(name))

    def assume(context: Context) -> bool:
        lacking = [name for name in network.graph.tensors() if context.lacks(name)]
        for name in lacking:
            context.scales.infer(name, 1 / 127, Origin(ASSUMED))
        return bool(lacking)

    observe = None if settings.calibration is None else assume
    decision = decide(network, context_of(network, scales, settings), settings, messages, observe, further=False)
    return Outcome(decision, messages)


def report_left_out(refused: Found, diagnostics: Diagnostics, more: str = "") -> None:
    """Report rewrites that are left out. more: a sentence for the remedy."""
    for rule, nodes in refused.items():
        first = next(iter(nodes))
        diagnostics.info(
            rule,
            f"The rewrite of '{first}'{others(nodes, ' and {} more nodes')} is left out: {nodes[first]}.",
            node=first,
            hint=f"--dla_rewrites force applies every rewrite.{more}",
            data={"nodes": list(nodes)},
        )
