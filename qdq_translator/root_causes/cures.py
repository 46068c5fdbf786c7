"""Cures: the same inference with the options that are off, and what each of them would give."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, NamedTuple, Optional

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.graph import Node
from qdq_translator.inference import Context, infer_scales, pass_through
from qdq_translator.options import TranslateOptions
from qdq_translator.precision import INT8, LayerPlan
from qdq_translator.root_causes.causes import WhatIf, add_macs
from qdq_translator.rules import MARKERS, RULES, inference_options
from qdq_translator.scales import ScaleTable, TensorScale

_MORE_OPERATORS = "addtl_ops_to_infer_adjacent_scales"


class Flag(NamedTuple):
    """An option that would have to be given. operator: what it has to name, for the option that takes operators."""

    option: str
    operator: str = ""


Needs = Dict[str, Dict[Flag, None]]
"""Tensor -> the options on the way to its scale, in the order in which they were needed."""

_WITHIN_INPUT_RANGE = (
    *(
        "Abs",
        "Elu",
        "Gelu",
        "GlobalMaxPool",
        "LeakyRelu",
        "Neg",
        "ReduceMax",
        "ReduceMin",
        "ThresholdedRelu",
    ),
)
"""Operators without a rule whose output stays within the range of their input (with the usual parameters): proposed
for `--addtl_ops_to_infer_adjacent_scales`."""


def options_off(context: Context) -> TranslateOptions:
    """The options of `context` with every inference rule switched on that could matter for this graph."""
    present = dict.fromkeys(node.op_type for node in context.graph.nodes if node.is_standard)
    given = context.options.addtl_ops_to_infer_adjacent_scales
    changes: dict[str, Any] = {
        **inference_options(markers=context.for_dla),
        _MORE_OPERATORS: [
            *given,
            *(o for o in _WITHIN_INPUT_RANGE if o in present and o not in given),
        ],
    }
    return dataclasses.replace(context.options, **changes)


def _infer_with(context: Context, options: TranslateOptions) -> ScaleTable:
    table = context.scales.fork()
    for name, scale in table.items():
        if scale.origin.rule in MARKERS:  # no ranges: the rules would take them for some
            table.drop(name)
    infer_scales(dataclasses.replace(context, scales=table, options=options), Diagnostics())
    return table


def try_options(context: Context, options: TranslateOptions) -> tuple[dict[str, TensorScale], Needs]:
    """Scales that `options` would add, in the order in which they came, and for each the flags on its way."""
    table = _infer_with(context, options)
    added = {name: scale for name, scale in table.items() if name not in context.scales}
    nodes = {node.name: node for node in context.graph.nodes}
    needs: Needs = {}
    for tensor, scale in added.items():
        origin, node = scale.origin, nodes.get(scale.origin.node)
        sources = [origin.source]
        if node is not None and origin.source not in table:  # several tensors, whose names may hold what stands between
            sources = [n for n in (*node.inputs, *node.outputs) if n != tensor]
        flags = {flag: None for source in sources for flag in needs.get(source, ())}
        own = _flag(origin.rule, node, context.options) if node is not None else None
        if own is not None and not (origin.rule == "S5" and origin.source):
            flags[own] = None
        needs[tensor] = flags
    return added, needs


def _flag(rule: str, node: Node, options: TranslateOptions) -> Optional[Flag]:
    """What has to be added to the command line for `rule` at `node`; None if nothing."""
    if rule == "S3" and node.op_type not in (*pass_through.OPS, "Clip"):
        known = node.op_type in options.addtl_ops_to_infer_adjacent_scales
        return None if known else Flag(_MORE_OPERATORS, node.op_type)
    switches = RULES[rule].options
    return None if not switches or any(getattr(options, name) for name in switches) else Flag(switches[0])


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
    more: TranslateOptions,
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
            options = dataclasses.replace(context.options, **{name: getattr(more, name)})
            shown = command_line(f for f in flags if f.option == name)
            rows.append(_count(shown, plan, _infer_with(context, options)))
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
