"""Cures: the same inference with disabled options turned on, and the effect of each."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Dict, Iterable, NamedTuple, Optional

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.report_rows import FoundCauses, RootCause, WhatIf
from qdq_translator.core.rules import MARKERS, RULES, inference_options
from qdq_translator.ir.graph import Node
from qdq_translator.scales.inference import Context, Policy, infer_scales, pass_through
from qdq_translator.scales.table import ScaleTable, TensorScale
from qdq_translator.targets.precision import INT8, LayerPlan, add_macs

_MORE_OPERATORS = "addtl_ops_to_infer_adjacent_scales"


class Flag(NamedTuple):
    """An option to add. operator: its argument, if the option accepts operators."""

    option: str
    operator: str = ""


Needs = Dict[str, Dict[Flag, None]]
"""Tensor -> the options on the way to its scale, in the order in which they were needed."""

_WITHIN_INPUT_RANGE = (
    *("Abs", "Elu", "Gelu", "GlobalMaxPool", "LeakyRelu", "Neg", "ReduceMax", "ReduceMin", "ThresholdedRelu"),
)
"""Operators without a rule whose output stays within the range of their input (with the usual parameters): proposed
for `--addtl_ops_to_infer_adjacent_scales`."""


def everything_on(context: Context) -> Policy:
    """The policy of `context` with every inference rule switched on that could matter for this graph."""
    present = {node.op_type for node in context.graph.nodes if node.is_standard}
    given = context.policy
    more = tuple(op for op in _WITHIN_INPUT_RANGE if op in present and op not in given.passed)
    on = given.on | inference_options(markers=context.policy.for_dla).keys()
    return dataclasses.replace(given, on=on, passed=(*given.passed, *more))


def _infer_with(context: Context, policy: Policy) -> ScaleTable:
    table = context.scales.fork()
    for name, scale in context.scales.items():
        if scale.origin.rule in MARKERS:  # no ranges: the rules would take them for some
            table.drop(name)
    infer_scales(dataclasses.replace(context, scales=table, policy=policy), Diagnostics())
    return table


def try_rules(context: Context, policy: Policy) -> tuple[dict[str, TensorScale], Needs]:
    """Scales that `policy` would add, in the order in which they came, and for each the flags on its way."""
    table = _infer_with(context, policy)
    added = {name: scale for name, scale in table.items() if name not in context.scales}
    nodes = {node.name: node for node in context.graph.nodes}
    needs: Needs = {}
    for tensor, scale in added.items():
        origin, node = scale.origin, nodes.get(scale.origin.node)
        sources = [origin.source]
        if node is not None and origin.source not in table:  # several tensors, whose names may hold what stands between
            sources = [n for n in (*node.inputs, *node.outputs) if n != tensor]
        flags = {flag: None for source in sources for flag in needs.get(source, ())}
        own = _flag(origin.rule, node, context.policy) if node is not None else None
        if own is not None and not (origin.rule == "S5" and origin.source):
            flags[own] = None
        needs[tensor] = flags
    return added, needs


def _flag(rule: str, node: Node, policy: Policy) -> Optional[Flag]:
    """The option to add for `rule` at `node`; None if none."""
    if rule == "S3" and node.op_type not in (*pass_through.OPS, "Clip"):
        return None if node.op_type in policy.passed else Flag(_MORE_OPERATORS, node.op_type)
    switches = RULES[rule].options
    return None if not switches or policy.on.intersection(switches) else Flag(switches[0])


def command_line(flags: Iterable[Flag]) -> tuple[str, ...]:
    """Flag names as a user types them; several operators behind one --addtl_ops_to_infer_adjacent_scales."""
    given = set(flags)
    plain = sorted(flag.option for flag in given if not flag.operator)
    ops = sorted(flag.operator for flag in given if flag.operator)
    extra = [f"--{_MORE_OPERATORS} {' '.join(ops)}"] if ops else []
    return (*(f"--{option}" for option in plain), *extra)


def what_if(
    context: Context,
    plan: list[LayerPlan],
    more: Policy,
    needs: Needs,
    wanted: dict[str, None],
    cured: dict[str, TensorScale],
) -> list[WhatIf]:
    """Every option that matters alone, then all of them together."""
    flags = dict.fromkeys(flag for tensor, own in needs.items() if tensor in wanted for flag in own)
    singles = dict.fromkeys(flag.option for flag in flags)
    rows = []
    if len(singles) > 1:
        for name in singles:
            by_operator = name == _MORE_OPERATORS
            change: dict[str, Any] = {"passed": more.passed} if by_operator else {"on": context.policy.on | {name}}
            shown = command_line(f for f in flags if f.option == name)
            rows.append(_count(shown, plan, _infer_with(context, dataclasses.replace(context.policy, **change))))
    if flags:
        table = context.scales.fork()
        for tensor, scale in cured.items():
            table.infer(tensor, scale.value, scale.origin)
        rows.append(_count(command_line(flags), plan, table))
    return rows


def _count(options: tuple[str, ...], plan: list[LayerPlan], table: ScaleTable) -> WhatIf:
    int8 = [
        layer
        for layer in plan
        if layer.precision == INT8 or (layer.avoidable and layer.missing and all(t in table for t in layer.missing))
    ]
    return WhatIf(options, len(int8), add_macs(int8), len(table))


@dataclasses.dataclass(frozen=True)
class RootCauses(FoundCauses):
    """root_of: missing tensor -> its root."""

    root_of: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def by_tensor(self) -> dict[str, RootCause]:
        return {cause.tensor: cause for cause in self.causes}

    @property
    def found(self) -> FoundCauses:
        """Their form in the report."""
        return FoundCauses(self.causes, self.groups, self.what_if)
