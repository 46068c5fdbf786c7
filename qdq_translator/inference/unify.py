"""Rule U1, on DLA targets: ranges that the DLA wants equal (`--unify_scales off|warn|max`).

| layer | tensors that must share one range | source |
| --- | --- | --- |
| Concat | all inputs and the output | fact sheet 5.9 [documented] |
| Add, Sub, Mul, Div, Max, Min, Sum, Equal, Greater, Less | the inputs | 5.11 [documented] |
| MaxPool, AveragePool | input and output | 5.10 [documented] |

Tensors that share a range with a common third share it with each other (union-find: the fixed point in one go).
Inferred scales that a rule handed on unchanged stay with the tensor that they came from, so that data
movement in front of a Concat does not end between two scales. Conv outputs with the unary scale of rule S9 are left
out: the DLA never applies it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.graph import Node
from qdq_translator.inference.context import Context
from qdq_translator.rules import MARKERS, SAME_VALUE
from qdq_translator.scales import Origin

RULE = "U1"
ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Equal", "Greater", "Less")
POOLING = ("MaxPool", "AveragePool")


@dataclasses.dataclass(frozen=True)
class SharedRange:
    """Tensors that the DLA wants on one scale. before: tensor -> its own scale; largest: the scale they need.

    nodes: the layers that ask for it, in graph order. raised: whether the table now holds `largest` for all.
    """

    largest: float
    source: str
    before: dict[str, float]
    nodes: tuple[str, ...]
    raised: bool

    @property
    def worst(self) -> str:
        """The tensor that loses most."""
        return min(self.before, key=lambda tensor: self.before[tensor])

    def bits_lost(self, tensor: str) -> float:
        """Resolution that the tensor loses on the shared scale: log2 of the ratio of the step sizes."""
        return math.log2(self.largest / self.before[tensor])

    def as_dict(self) -> dict[str, Any]:
        return {
            "scale": self.largest,
            "from": self.source,
            "raised": self.raised,
            "nodes": list(self.nodes),
            "tensors": [
                {"tensor": name, "scale": scale, "bits_lost": round(self.bits_lost(name), 3)}
                for name, scale in self.before.items()
            ],
        }


def shared_tensors(node: Node, context: Context) -> list[str]:
    """Activations with a scale that `node` wants on one range; fewer than two mean that it wants nothing."""
    if node.is_op("Concat"):
        names = [*node.inputs, *node.outputs]
    elif node.is_op(*ELEMENTWISE):
        names = node.inputs
    elif node.is_op(*POOLING):
        names = [node.inputs[0], node.outputs[0]]
    else:
        return []
    shared = []
    for name in dict.fromkeys(names):
        scale = context.scales.get(name)
        if scale is not None and scale.origin.rule not in MARKERS and not context.graph.is_constant(name):
            shared.append(name)
    return shared


def unify_scales(context: Context, diagnostics: Diagnostics) -> list[SharedRange]:
    """Reports the sets of tensors whose scales differ and should not, or raises them to the largest (mode 'max').

    Nothing is done for GPU targets and with mode 'off'.
    """
    mode = context.options.unify_scales
    if mode == "max" and context.options.target == "gpu":
        diagnostics.info(
            "U1",
            "--unify_scales max does nothing for a GPU, which does not need equal ranges.",
            mend="Name a DLA with --target.",
        )
    if mode == "off" or context.options.target == "gpu":
        return []
    found = _differing(context)
    if not found:
        return []
    ranges = []
    for members, nodes in found:
        before = {name: context.scales[name].value for name in members}
        source = max(before, key=lambda name: before[name])
        ranges.append(SharedRange(before[source], source, before, tuple(nodes), mode == "max"))
        if mode == "max":
            for name, old in before.items():
                if old < before[source]:
                    note = f"raised from {old:.6g} (rule {context.scales[name].origin.rule}) by --unify_scales max"
                    context.scales.replace(name, before[source], Origin(RULE, nodes[0], source, note))
    _report(ranges, context, diagnostics)
    return ranges


def _differing(context: Context) -> list[tuple[list[str], list[str]]]:
    """(tensors, nodes) of every set that is not on one scale, in graph order."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    wants: list[tuple[Node, str]] = []
    for node in context.graph.nodes:
        shared = shared_tensors(node, context)
        if len(shared) > 1:
            wants.append((node, shared[0]))
            for name in shared[1:]:
                parent[root(name)] = root(shared[0])
    for name, scale in context.scales.items():
        source = scale.origin.source
        if scale.origin.rule in SAME_VALUE and context.scales.value(source) == scale.value:
            parent[root(name)] = root(source)
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(root(name), []).append(name)
    nodes: dict[str, list[str]] = {}
    for node, first in wants:
        nodes.setdefault(root(first), []).append(node.name)
    return [
        (members[key], names)
        for key, names in nodes.items()
        if len({context.scales[name].value for name in members[key]}) > 1
    ]


def _report(ranges: list[SharedRange], context: Context, diagnostics: Diagnostics) -> None:
    tensors = sum(len(r.before) for r in ranges)
    worst = max(ranges, key=lambda r: r.bits_lost(r.worst))
    lost = f"'{worst.worst}' {'loses' if worst.raised else 'would lose'} most: {worst.bits_lost(worst.worst):.1f} of 8 bits"
    data = {"ranges": [r.as_dict() for r in ranges]}
    where = {"tensor": worst.worst, "node": worst.nodes[0], "data": data}
    one = len(ranges) == 1
    sets = "1 set" if one else f"{len(ranges)} sets"
    if ranges[0].raised:
        message = f"{sets} of tensors ({tensors} in all) were raised to one scale each, as the DLA wants; {lost}."
        diagnostics.info(RULE, message, **where)
    else:
        diagnostics.warning(
            RULE,
            f"The DLA wants one range for {sets} of tensors ({tensors} in all) whose scales differ: the layers between "
            f"them ({', '.join(worst.nodes[:2])}{', ...' if len(worst.nodes) > 2 or not one else ''}) may run in FP16; {lost}.",
            mend="--unify_scales max raises them to the largest; quantizing them with one scale in training is better.",
            **where,
        )
