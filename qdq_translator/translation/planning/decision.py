"""The decision for a network without quantizers: inferred scales, the plan, the DLA's verdicts, the estimated time.

A pure function of the finished network and the options, so that other options can be tried on the same network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.formats.layer_precisions import kept_layers
from qdq_translator.core.formats.report_rows import ON_DLA
from qdq_translator.core.words import by_x, dotted, others
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.normal_forms import RULES as NORMAL_FORMS
from qdq_translator.translation.passes.rewrites import Rewrites, priced
from qdq_translator.translation.planning.fp16_range import beyond_fp16
from qdq_translator.translation.planning.steps import drop_coarse
from qdq_translator.translation.scales.inference import Context, Observe, infer_scales
from qdq_translator.translation.scales.inference.formulas import around_normalizations
from qdq_translator.translation.scales.inference.unify import REFUSED_CURE, SharedRange, unify_scales
from qdq_translator.translation.scales.network import Network, followed
from qdq_translator.translation.scales.table import ScaleTable
from qdq_translator.translation.targets.parser_network import ParsedNetwork, supports
from qdq_translator.translation.targets.precision import FP16, INT8, LayerPlan, make_plan, stay_higher
from qdq_translator.translation.targets.settings import Settings

if TYPE_CHECKING:
    from qdq_translator.translation.planning.regions import Placed
    from qdq_translator.translation.targets.cost.estimate import CostPlan, Original
    from qdq_translator.translation.targets.dla.verdicts import DlaPlan


@dataclass(frozen=True)
class Decision:
    """What was decided about a network. context: with the final scales. plan: one record per layer, without causes.
    placed: the search for regions; None if every layer that the DLA can run stays on it."""

    context: Context
    shared: list[SharedRange]
    plan: list[LayerPlan]
    rewrites: Rewrites
    dla: Optional[DlaPlan]
    costs: Optional[CostPlan]
    placed: Optional[Placed] = None


def batch_note(sizes: Mapping[str, Sequence[int]]) -> str:
    """The assumption about a dynamic batch, in words. sizes: input with a dynamic batch -> its shape."""
    name, shape = next(iter(sizes.items()))
    return (
        f"The batch of {', '.join(sizes)} is open: plan, limits and estimate are for a batch of 1 (--shapes "
        f"{name}:{by_x([8, *shape[1:]])} for another one). The DLA runs static shapes only: build with equal "
        "minimum, optimum and maximum shapes."
    )


def context_of(network: Network, scales: ScaleTable, settings: Settings) -> Context:
    """The input of the scale rules."""
    return Context(
        network.graph, network.types, scales, settings.policy, tuple(network.derived), dict(network.withheld)
    )


def rewrites_of(network: Network, settings: Settings) -> Rewrites:
    """The rewrites for the DLA, without normal forms, which apply on every target."""
    applied = tuple(one for one in network.applied if one.rule not in NORMAL_FORMS)
    return Rewrites(applied, network.reasons, settings.rewrites != "off")


def decide(
    network: Network,
    context: Context,
    settings: Settings,
    diagnostics: Diagnostics,
    observe: Optional[Observe] = None,
    like: Optional[Decision] = None,
    further: bool = True,
) -> Decision:
    """Fill the scale table of `context` and decide the plan; the rest of the network is only read. observe: gives
    scales from data (rule K1). like: decision for the same network, perhaps with different scale options; reused if the
    scales are equal. further: with the estimate (`settled`)."""
    scales = context.scales
    infer_scales(context, diagnostics, observe)
    rewrites = rewrites_of(network, settings)
    drop_coarse(context, rewrites.applied)
    shared = unify_scales(context, diagnostics)
    if like is not None and (scales.items(), shared) == (like.context.scales.items(), like.shared):
        return like
    made = _located(network, Decision(context, shared, [], rewrites, None, None), settings, diagnostics)
    return settled(network, made, settings, diagnostics) if further else made


def planned(network: Network, scaled: Decision, settings: Settings, diagnostics: Diagnostics) -> Decision:
    """The plan for the scales of a decision, whose own plan is not read: `settings` may keep other layers in FP16."""
    return settled(network, _located(network, scaled, settings, diagnostics), settings, diagnostics)


def _located(network: Network, scaled: Decision, settings: Settings, diagnostics: Diagnostics) -> Decision:
    """`scaled` with its plan for the scales alone, and for a DLA with the verdicts and the device of each layer (`dla`,
    `placed`); without the estimate, which `settled` adds. Raises UserError if --keep_fp16 names no layer."""
    graph, context, shared = network.graph, scaled.context, scaled.shared
    scales = context.scales
    types = network.planned_types if settings.hardware.generation else network.types
    kept = _kept(network, settings, diagnostics)
    refused = {node: ranges.why for ranges in shared if ranges.refused for node in ranges.nodes}
    floats = {tensor: why for tensor, why in context.withheld.items() if why}
    plan = stay_higher(make_plan(graph, types, scales, kept, floats), refused, REFUSED_CURE)
    around = around_normalizations(graph)
    if context.policy.keep_norms:
        why = {name: f"INT8 would round '{read}' for a LayerNormalization (rule P1)" for name, read in around.items()}
        plan = stay_higher(plan, why, by_design=True)
    dla = found = None
    if settings.hardware.generation:  # imported here, because translation for a GPU does not need these modules
        from qdq_translator.translation.planning.regions import placed
        from qdq_translator.translation.targets.dla.verdicts import judge

        dla = judge(replace(context, types=types), plan, settings.hardware)
        if types is not network.types:
            dla = replace(dla, remarks=[*dla.remarks, batch_note(network.types.open_batches())])
        found = placed(network, types, dla, settings) if settings.rewrites in ("on", "approximate") else None
        dla = dla if found is None else found.dla
    return replace(scaled, plan=plan, dla=dla, placed=found)


def settled(network: Network, made: Decision, settings: Settings, diagnostics: Diagnostics) -> Decision:
    """`made`, of `_located`, with the estimated time (`costs`) and a plan that has the device of each layer. Reports
    what INT8 rounds for LayerNormalizations and what FP16 cannot hold (rules P1, P2)."""
    graph, plan, dla = network.graph, made.plan, made.dla
    costs: Optional[CostPlan] = None
    if dla is not None:
        from qdq_translator.translation.planning.layers import settle
        from qdq_translator.translation.targets.cost.estimate import estimate_costs

        types, (model, note) = network.planned_types, settings.cost
        original = network.original or priced(network, settings)
        costs = estimate_costs(graph, types, dla.layers, (model, settings.gpu), note, _alone(original, settings))
        plan = settle(graph, plan, dla.layers, costs)
    elif settings.gpu_module:
        costs = _on_gpu(network, settings)
    if any(row.precision == INT8 for row in plan):
        _report_rounded(around_normalizations(graph), plan, diagnostics)
    plan = _widened(graph, made.context, plan, diagnostics)
    return replace(made, plan=plan, costs=costs)


def _widened(graph: Graph, context: Context, plan: list[LayerPlan], diagnostics: Diagnostics) -> list[LayerPlan]:
    """The plan with FP32 for layers on the GPU whose values FP16 cannot hold, if rule P2 is on. Reports them, and those
    that stay in FP16: on a DLA, or without the rule."""
    beyond = beyond_fp16(graph, {tensor: scale.value for tensor, scale in context.scales.items()})
    above = [row for row in plan if row.name in beyond and row.precision == FP16]
    may = context.policy.keep_norms
    wide = {row.name: beyond[row.name] for row in above if may and row.device != ON_DLA}
    _report_beyond(wide, {row.name: beyond[row.name] for row in above if row.name not in wide}, may, diagnostics)
    return [replace(row, wide=True) if row.name in wide else row for row in plan]


def _report_beyond(wide: Mapping[str, str], left: Mapping[str, str], may: bool, diagnostics: Diagnostics) -> None:
    """Report rule P2. wide, left: layer -> why, of those in FP32 and of those in FP16. may: the rule is on."""
    for name in list(wide)[:1]:
        diagnostics.info(
            "P2",
            f"FP32 on the GPU for '{name}'{others(wide)}: {wide[name]}.",
            node=name,
            data={"layers": [*wide]},
        )
    for name in list(left)[:1]:
        diagnostics.warning(
            "P2",
            f"FP16 cannot hold the values of '{name}'{others(left)}: {left[name]}. The engine can be wrong.",
            node=name,
            hint="" if may else "--keep_norm_fp16 (part of the presets) gives layers on the GPU FP32.",
            data={"layers": [*left]},
        )


def _alone(original: Original, settings: Settings) -> Optional[tuple[float, float]]:
    """The time of the whole network on the GPU; None where the board's GPU has no time model."""
    return None if settings.gpu_module == "" else original.whole


def _on_gpu(network: Network, settings: Settings) -> CostPlan:
    """The estimate of the whole network on the GPU of the user's board; of an open batch, for one sample."""
    from qdq_translator.translation.targets.cost.estimate import CostPlan

    original = network.original or priced(network, settings)
    return CostPlan([None for _ in network.graph.nodes], None, 0, settings.gpu.name, None, whole=original.whole)


def _report_rounded(around: Mapping[str, str], plan: list[LayerPlan], diagnostics: Diagnostics) -> None:
    """Report layers that rule P1 would keep in FP16. around: from `around_normalizations`."""
    lost = [row.name for row in plan if row.precision == INT8 and row.name in around]
    if lost:
        diagnostics.info(
            "P1",
            f"Layers without weights round to INT8 what a LayerNormalization reads: '{lost[0]}'{others(lost)}. This "
            "can be most of a transformer's error.",
            node=lost[0],
            tensor=around[lost[0]],
            hint="--keep_norm_fp16 (part of the presets) keeps such layers in FP16.",
            data={"layers": lost},
        )


def _kept(network: Network, settings: Settings, diagnostics: Diagnostics) -> frozenset[str]:
    """Nodes that `--keep_fp16` names, also by a former name, or by one that a rewrite gives which is left out. Reports
    layers that `--layerPrecisions` does not reach, because the parser gives them a name other than their node's."""
    former = _former(network) if settings.keep_fp16 else {}
    kept = kept_layers(settings.keep_fp16, (node.name for node in network.graph.nodes), former)
    version = settings.hardware.tensorrt
    if not kept or not supports(version):
        return kept
    made = ParsedNetwork(network.graph, network.types, version).further
    found = {node: [name or "a layer without a name" for name in made[node]] for node in made if node in kept}
    if found:
        first, layers = next(iter(found.items()))
        text = dotted(version[:2])
        diagnostics.warning(
            "F6",
            f"--keep_fp16 reaches layers by the name of their node, and TensorRT {text} makes {', '.join(layers)} of "
            f"'{first}' too{others(found, ' (and others of {} more)')}: these may run in INT8.",
            node=first,
            hint="Look at their precision in the engine's layer information ('qdq-translator report').",
            data={"layers": found},
        )
    return kept


def _former(network: Network) -> dict[str, list[str]]:
    """Former name of a node, or one that a rewrite gives which is left out -> the nodes that do its work."""
    former = Rewrites(tuple(network.applied)).nodes
    for old, renamed in network.diagnostics.renamed_nodes.items():
        former[old] = [*former.get(old, ()), *(name for new in renamed for name in former.get(new, [new]))]
    for seen in network.scales.observed.values():  # clamps that the plan may add (rule Q9)
        for scale in seen.values():
            former.setdefault(f"{scale.origin.node}_clamp", [])
    names = {node.name for node in network.graph.nodes}
    undone = followed({name: nodes for name, nodes in network.undone.items() if name not in names})
    for one, nodes in undone.items():
        former.setdefault(one, [name for node in nodes for name in former.get(node, [node])])
    return former
