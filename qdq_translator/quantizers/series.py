"""Rule Q8: pairs in series, `x -> Q -> DQ -> Q -> DQ`, are one quantizer. What went through several saturates at the smallest
range, so that scale holds: the finer grid loses less, and nothing that it cuts would have come through.

A pair whose real values only feed further quantizers has no say of its own; one that something else reads too keeps its
own (rule C1 then chooses, as for parallel pairs). Relu and data movement between DQ and Q end a series: both sides are
tensors with a scale each.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from qdq_translator.ir.constants import is_quantize
from qdq_translator.ir.graph import Graph
from qdq_translator.quantizers.steps import Dequantize, Move, Quantize, QuantizedInput, QuantizedOutput, Step


@dataclasses.dataclass
class Link:
    """One quantizer and the codes that it makes. scale: its own; holds: what holds in its series. before: the quantizer
    whose real values it reads. read: something other than a quantizer reads what it makes."""

    source: str
    scale: float
    holds: float
    before: Optional[Link] = None
    read: bool = False


def in_series(graph: Graph, steps: list[Step]) -> tuple[list[Step], list[Link]]:
    """The steps with the scales that hold, and the links whose scale is another than that of the quantizer before."""
    real = {step.node.outputs[0] for step in steps if isinstance(step, Dequantize)}
    if real.isdisjoint([step.source for step in steps if isinstance(step, Quantize)]):
        return steps, []
    links: list[Link] = []
    codes: dict[str, Link] = {}
    reals: dict[str, Link] = {}
    of_step: list[Optional[Link]] = []

    def begin(source: str, scale: float, before: Optional[Link] = None) -> Link:
        links.append(Link(source, scale, scale if before is None else min(scale, before.holds), before))
        return links[-1]

    for step in steps:
        if isinstance(step, QuantizedInput):
            link = codes[step.name] = begin(step.name, step.scale)
        elif isinstance(step, QuantizedOutput):
            link = codes[step.name]
            link.read = True
        elif isinstance(step, Quantize):
            link = codes[step.node.outputs[0]] = begin(step.source, step.scale, reals.get(step.source))
        elif isinstance(step, Dequantize):
            link = codes[step.source]
            made = step.node.outputs[0]
            reals[made] = link
            link.read |= made in graph.outputs or not all(is_quantize(reader) for reader in graph.consumers(made))
        else:  # on codes; a Concat of several ends their series
            joined = list({id(codes[name]): codes[name] for name in step.node.reads() if name in codes}.values())
            if len(joined) != 1:
                link = begin(step.node.outputs[0], step.scale)
            elif isinstance(step, Move):  # a tensor of its own, which may saturate earlier than the one that is moved
                link = begin(step.node.outputs[0], joined[0].scale, joined[0])
            else:
                link = joined[0]
            for other in joined if len(joined) > 1 else ():
                other.read = True
            codes.update((name, link) for name in (step.moved if isinstance(step, Move) else step.node.outputs))
        of_step.append(link)
    after: dict[int, list[float]] = {}
    for link in reversed(links):
        if not link.read and id(link) in after:
            link.holds = max(after[id(link)])
        if link.before is not None:
            after.setdefault(id(link.before), []).append(link.holds)
    changed = [
        step
        if isinstance(step, QuantizedOutput) or link is None or step.scale == link.holds
        else dataclasses.replace(step, scale=link.holds)
        for step, link in zip(steps, of_step)
    ]
    return changed, [link for link in links if link.before is not None and link.scale != link.before.scale]
