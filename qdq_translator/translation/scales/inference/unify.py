"""Rule U1, on DLA targets: ranges that the DLA requires to be equal (`--unify_scales off|warn|max|data|requantize`).

| layer | tensors that must share one range | source |
| --- | --- | --- |
| Concat | all inputs and the output | fact 5.9 [documented] |
| Add, Sub, Mul, Div, Max, Min, Sum, Equal, Greater, Less | the inputs | 5.11 [documented] |
| MaxPool, AveragePool | input and output | 5.10 [documented] |

Tensors that share a range with a common third share it with each other (union-find). Layers are added in the order of
their own loss of resolution, and a layer that would cost any tensor of its set more than `--max_bits_lost` bits is left
out: its tensors keep their ranges, and it stays FP16. (Without this limit, all quantized values of a gate became 0.)
Outputs of Sigmoid and Tanh lose nothing: the DLA computes them in FP16 and does not apply their scale (fact 5.12b,
inferred). A tensor that inherited its scale unchanged stays in the set of its source, so that data movement before a
Concat does not end between two scales. Conv outputs with the unary scale of rule S9 are left out, because the DLA never
applies it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Collection, Mapping

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats import report_rows as rows
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.rules import MARKERS, SAME_VALUE
from qdq_translator.core.words import counted
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.operators import COMPARISONS, ELEMENTWISE, POOLING, SIGMOIDS, Unions
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.scales.inference.formulas import WITHIN_ONE, around_normalizations
from qdq_translator.translation.scales.table import Origin

RULE = "U1"
SHARING = ("Concat", *ELEMENTWISE, *COMPARISONS, *POOLING)
SHARES = "shares its range on the DLA"
"""Start of the note of a scale from data that several tensors share."""
OTHER_READERS = "other layers read it too: --unify_scales requantize tries to keep its own range for them"
REFUSED_CURE = "Quantize them with one scale in training, or allow the loss with a larger --max_bits_lost."


@dataclass(frozen=True)
class SharedRange:
    """Tensors that the DLA requires to share one scale. before: tensor -> its scale before; largest: the scale to
    share. nodes: the layers that require it, in graph order. raised: whether the table now has `largest` for all.
    refused: it does not, because of `--max_bits_lost`; `nodes` stay FP16. unapplied: tensors whose scale the DLA does
    not apply."""

    largest: float
    source: str
    before: dict[str, float]
    nodes: tuple[str, ...]
    raised: bool
    refused: bool = False
    unapplied: frozenset[str] = frozenset()

    @property
    def worst(self) -> str:
        """The tensor that loses most, among those whose scale is applied if there are any."""
        applied = [tensor for tensor in self.before if tensor not in self.unapplied]
        return min(applied or self.before, key=lambda tensor: self.before[tensor])

    def bits_lost(self, tensor: str) -> float:
        """Resolution that the tensor loses on the shared scale: log2 of the ratio of the step sizes."""
        return math.log2(self.largest / self.before[tensor])

    @property
    def why(self) -> str:
        """Reason why refused `nodes` stay in FP16."""
        return (
            f"one range for what it reads and makes would cost '{self.worst}' {self.bits_lost(self.worst):.1f} bits, "
            f"more than --max_bits_lost allows (rule {RULE})"
        )

    def row(self) -> rows.SharedRange:
        tensors = tuple(rows.SharedTensor(name, scale, self.bits_lost(name)) for name, scale in self.before.items())
        return rows.SharedRange(self.largest, self.source, self.raised, self.refused, self.nodes, tensors)


def shared_tensors(node: Node, context: Context) -> list[str]:
    """Activations with a scale that must have one range at `node`; fewer than two if there is no such requirement."""
    if node.is_op("Concat"):
        names = [*node.inputs, *node.outputs]
    elif node.is_op(*ELEMENTWISE, *COMPARISONS):
        names = node.inputs
    else:
        names = [node.inputs[0], node.outputs[0]] if node.is_op(*POOLING) else []
    is_constant, scales = context.graph.is_constant, context.scales
    known = [name for name in dict.fromkeys(names) if name in scales and not is_constant(name)]
    return [name for name in known if scales[name].origin.rule not in MARKERS]


def sharing_layers(context: Context) -> list[tuple[Node, list[str]]]:
    """Layers that need one range for tensors, and these tensors. Without those that rule P1 keeps in FP16."""
    kept = around_normalizations(context.graph) if context.policy.keep_norms else {}
    every = ((node, shared_tensors(node, context)) for node in context.graph.nodes if node.name not in kept)
    return [(node, shared) for node, shared in every if len(shared) > 1]


def unify_scales(context: Context, diagnostics: Diagnostics) -> list[SharedRange]:
    """Report sets of tensors with different scales that must be equal, or raise them to the largest (mode 'max'; mode
    'data' for sets without a common range from data). Does nothing for GPU targets and with mode 'off'."""
    mode, raises = context.policy.unify, context.policy.unifies
    if mode not in ("off", "warn") and not context.policy.for_dla:
        diagnostics.info(
            "U1",
            f"--unify_scales {mode} does nothing for a GPU, which does not need equal ranges.",
            hint="Select a DLA with --target.",
        )
    if mode == "off" or not context.policy.for_dla:
        return []
    groups = _Groups(context, context.policy.max_bits_lost if raises else math.inf)
    ranges = [_shared(members, nodes, context, raised=raises) for members, nodes in groups.differing()]
    for shared in ranges:
        for name, old in shared.before.items() if shared.raised else ():
            if old < shared.largest:
                note = f"raised from {old:.6g} (rule {context.scales[name].origin.rule}) by --unify_scales {mode}"
                context.scales.replace(name, shared.largest, Origin(RULE, shared.nodes[0], shared.source, note))
    ranges += [_shared(shared_tensors(node, context), [node.name], context, refused=True) for node in groups.refused]
    _report(ranges, context, diagnostics)
    return ranges


def _shared(
    members: list[str], nodes: list[str], context: Context, raised: bool = False, refused: bool = False
) -> SharedRange:
    before = {name: context.scales[name].value for name in members}
    source = max(before, key=lambda name: before[name])
    unapplied = frozenset(name for name in members if not _applied(name, context))
    return SharedRange(before[source], source, before, tuple(nodes), raised, refused, unapplied)


def differing_ranges(context: Context) -> list[tuple[list[str], list[str]]]:
    """(all tensors, those whose scale the DLA applies) of every set that should share one scale and does not, if no
    tensor would lose more than `--max_bits_lost`."""
    sets = _Groups(context, context.policy.max_bits_lost).differing()
    return [(members, [name for name in members if _applied(name, context)]) for members, _ in sets]


def sharing(tensor: str, layers: Mapping[str, list[str]], context: Context) -> list[Node]:
    """Layers that require the tensor to share a range with others; [] if every reader does. layers: name of each of
    `sharing_layers` -> its tensors."""
    readers = context.graph.consumers(tensor)
    found = [node for node in readers if tensor in layers.get(node.name, ())]
    return found if len(found) < len(readers) else []


def free_sets(context: Context, freed: Collection[str]) -> list[list[str]]:
    """Sets of tensors whose scales change together, without sets that contain a scale of the model (except `freed`) or
    the output of a bounded operator (rule B1)."""
    graph, scales, unions = context.graph, context.scales, Unions[str]()
    for name in scales:
        unions.root(name)
    for name, scale in scales.items():
        for source in scale.origin.source.split(", "):
            if source in scales:
                unions.join(name, source)
    for _, shared in sharing_layers(context) if context.policy.for_dla else ():
        for name in shared[1:]:
            if scales.value(name) == scales.value(shared[0]):
                unions.join(name, shared[0])
    fixed = {name for name, scale in scales.items() if scale.explicit}.difference(freed)
    fixed.update(name for node in graph.of(*WITHIN_ONE) for name in node.outputs)  # rule B1
    return [names for names in unions.sets() if fixed.isdisjoint(names)]


def is_handed_on(tensor: str, context: Context) -> bool:
    """True if the tensor inherited its scale from another one with the same values."""
    scale = context.scales[tensor]
    return scale.origin.rule in SAME_VALUE and context.scales.value(scale.origin.source) == scale.value


def _applied(tensor: str, context: Context) -> bool:
    producer = context.graph.producer.get(tensor)
    return producer is None or not producer.is_op(*SIGMOIDS)


class _Groups:
    """Sets of tensors that must share one scale. refused: layers that would cost a tensor more than `limit` bits."""

    def __init__(self, context: Context, limit: float) -> None:
        self.context = context
        self.unions: Unions[str] = Unions()
        self.ends: dict[str, tuple[float, float]] = {}
        """Root -> smallest applied scale of its set (infinite if none is applied) and largest scale."""
        self.needs = sharing_layers(context)
        for name, scale in context.scales.items():
            if is_handed_on(name, context):
                self._join([name, scale.origin.source], math.inf)
        cheapest = sorted(self.needs, key=lambda want: self._bits(want[1]))
        dear: set[int] = set()
        for node, shared in cheapest:
            if not self._join(shared, limit):
                dear.add(id(node))
        self.refused = [node for node, _ in self.needs if id(node) in dear]

    def differing(self) -> list[tuple[list[str], list[str]]]:
        """(tensors, nodes) of every set with different scales, in graph order."""
        nodes: dict[str, list[str]] = {}
        refused = {id(node) for node in self.refused}
        for node, shared in self.needs:
            if id(node) not in refused:
                nodes.setdefault(self._root(shared[0]), []).append(node.name)
        members = {self._root(names[0]): names for names in self.unions.sets()}
        scales = self.context.scales
        return [
            (members[root], names) for root, names in nodes.items() if len({scales[n].value for n in members[root]}) > 1
        ]

    def _root(self, name: str) -> str:
        if name not in self.ends:
            scale = self.context.scales[name].value
            self.ends[name] = (scale if _applied(name, self.context) else math.inf, scale)
        return self.unions.root(name)

    def _spread(self, names: list[str]) -> tuple[float, float]:
        ends = [self.ends[self._root(name)] for name in names]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _bits(self, names: list[str]) -> float:
        low, high = self._spread(names)
        return math.log2(high / low) if low < math.inf else 0.0

    def _join(self, names: list[str], limit: float) -> bool:
        if self._bits(names) > limit:
            return False
        ends, root = self._spread(names), self._root(names[0])
        for name in names[1:]:
            self.unions.join(name, root)
        self.ends[root] = ends
        return True


def _bits(ranges: SharedRange) -> str:
    lost = ranges.bits_lost(ranges.worst)
    return f"{lost:.1f} of 8 bits" if lost < 8 else "all of its 8 bits"


def _report(ranges: list[SharedRange], context: Context, diagnostics: Diagnostics) -> None:
    """Report at most one line for the sets and one for the refused layers."""
    sets, refused = [r for r in ranges if not r.refused], [r for r in ranges if r.refused]
    if sets:
        tensors = sum(len(r.before) for r in sets)
        worst = max(sets, key=lambda r: r.bits_lost(r.worst))
        verb = "loses" if worst.raised else "would lose"
        lost = f"'{worst.worst}' {verb} most: {_bits(worst)}"
        where: dict[str, Any] = {"tensor": worst.worst, "node": worst.nodes[0]}
        where["data"] = {"ranges": [plain(r.row()) for r in sets]}
        many = counted(len(sets), "set")
        if worst.raised:
            made = f"{many} of tensors ({tensors} in all) were raised to one scale each, as the DLA requires; {lost}."
            diagnostics.info(RULE, made, **where)
        else:
            more = ", ..." if len(worst.nodes) > 2 or len(sets) > 1 else ""
            diagnostics.warning(
                RULE,
                f"The DLA requires one range for {many} of tensors ({tensors} in all) whose scales differ: the layers "
                f"between them ({', '.join(worst.nodes[:2])}{more}) may run in FP16; {lost}.",
                hint=(
                    "--unify_scales max raises them to the largest; quantizing them with one scale in "
                    "training is better."
                ),
                **where,
            )
    if refused:
        worst = max(refused, key=lambda r: r.bits_lost(r.worst))
        layers = "1 layer stays" if len(refused) == 1 else f"{len(refused)} layers stay"
        diagnostics.warning(
            RULE,
            f"{layers} FP16, because the one range that the DLA requires for its tensors costs too much: at "
            f"'{worst.nodes[0]}' '{worst.worst}' would lose {_bits(worst)}.",
            tensor=worst.worst,
            node=worst.nodes[0],
            hint=REFUSED_CURE,
            data={"ranges": [plain(r.row()) for r in refused]},
        )
