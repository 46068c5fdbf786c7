"""Check if a translation's scales and plan follow from its records: each inferred scale from its rule and sources.

With `reference.wrong_scales`, which compares the premises with the model, this checks every scale that did not come
from data: the rule named by its origin is applied again, to all other scales. A scale observed on data (rule K1) must
not exceed the bound of its operator (rule B1), and a layer that the plan has in INT8 must have the scales for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Collection, Iterator, Mapping, Optional

from qdq_translator.core.rules import MARKERS, RULES, STATED
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.scales.inference import all_rules, rules_by_op
from qdq_translator.scales.inference.context import Context, Policy
from qdq_translator.scales.inference.formulas import WITHIN_ONE
from qdq_translator.scales.table import Origin, ScaleTable
from qdq_translator.simulate.implicit import ImplicitNetwork
from qdq_translator.targets.precision import INT8

SAME = 1e-3
"""Relative difference of two scales that count as equal: float16 holds 11 bits."""
CHOSEN = ("K2", "U1")
"""Origins of scales that the user asked for in place of the model's own."""
BEYOND = 1.02
"""Range of a bounded operator's output that a histogram's last bin explains."""
CALIBRATED = "K1"
_NOT_DERIVED = frozenset((*STATED, *CHOSEN, *MARKERS, CALIBRATED))


@dataclasses.dataclass
class _Table(ScaleTable):
    """All scales but that of `tensor`; `given`: (scale, rule, source) that rules would give it."""

    scales: Mapping[str, float]
    tensor: str = ""
    given: list[tuple[float, str, str]] = dataclasses.field(default_factory=list)

    def value(self, tensor: str) -> Optional[float]:
        return None if tensor == self.tensor else self.scales.get(tensor)

    def __contains__(self, tensor: object) -> bool:
        return tensor != self.tensor and tensor in self.scales

    def infer(self, tensor: str, value: float, origin: Origin) -> bool:
        if tensor == self.tensor:
            self.given.append((value, origin.rule, origin.source))
        return True


def underived(network: ImplicitNetwork, graph: Graph) -> Iterator[str]:
    """Sentences. graph: of the stripped network."""
    origins: Mapping[str, Mapping[str, Any]] = network.config.get("scale_origins", {})
    named = {node.name: node for node in graph.nodes}
    flags = frozenset(flag for row in RULES.values() for flag in row.options)
    passed = tuple(network.option.get("addtl_ops_to_infer_adjacent_scales") or ())
    policy = Policy(flags, passed, network.option.get("inference") or "sound")
    rules, table = rules_by_op(all_rules(policy)), _Table(network.scales)
    context = Context(graph, TensorTypes(graph), table, policy)
    for tensor, origin in origins.items():
        node, scale, source = named.get(origin.get("node", "")), network.scales.get(tensor), origin.get("source", "")
        rule = origin["rule"]
        if node is None or scale is None or rule in _NOT_DERIVED:
            continue
        if any(origins.get(name, {}).get("rule") in CHOSEN for name in source.split(", ")):
            continue
        table.tensor, table.given = tensor, []
        for row in rules.get(node.op_type, ()):
            for apply in filter(None, (row.forward, row.backward)):
                apply(node, context)
        due = [value for value, by, of in table.given if (by, of) == (rule, source)]
        if due and not any(abs(scale - value) <= SAME * value for value in due):
            yield f"Tensor '{tensor}' has the scale {scale:.6g}; by rule {rule} from '{source}' it is {due[0]:.6g}."


def beyond_bounds(network: ImplicitNetwork, graph: Graph) -> Iterator[str]:
    """Sentences on calibrated scales beyond their operator's bound, unless a neighbour shares the range."""
    origins = network.config.get("scale_origins", {})
    for node in graph.of(*WITHIN_ONE):
        tensor = node.outputs[0]
        scale = network.scales.get(tensor, 0.0)
        if origins.get(tensor, {}).get("rule") != CALIBRATED or scale * INT8_MAX <= BEYOND:
            continue
        ends = {name for one in (node, *graph.consumers(tensor)) for name in (*one.inputs, *one.outputs)} - {tensor}
        if not any(abs(network.scales.get(name, 0.0) - scale) <= SAME * scale for name in ends):
            amax = scale * INT8_MAX
            bound = f"the output of {node.op_type} cannot exceed 1"
            yield f"Tensor '{tensor}' was calibrated and has the range {amax:.4g}; {bound}."


def not_as_planned(network: ImplicitNetwork, higher: Collection[str]) -> Iterator[str]:
    """Sentences on layers planned in INT8 that lack a scale for it. higher: above INT8."""
    for row in network.plan:
        lacking = [name for name in (*row.inputs, *row.outputs) if name not in network.scales]
        if row.precision == INT8 and row.name in higher and lacking:
            yield f"Layer '{row.name}' is planned in INT8, but '{lacking[0]}' has no scale."
