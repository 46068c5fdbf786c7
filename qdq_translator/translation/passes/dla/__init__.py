"""`--dla_rewrites`: replaces operators that the DLA does not support with ones that it supports (rules D, one module
each).

Each module has `RULE` and `apply(rewriter)`, or `rewrite(rewriter, node)` for the nodes of `OPERATORS` that a limit
(one of `CURED`) assigns to the GPU, which raises `Stays` if the rule does not apply; its docstring lists both cases. A
rule replaces layers that the limits (`targets.dla`) assign to the GPU; D1, D3, D5 and D9 document the other layers that
they change. Every rewrite computes the same function in float, except D22 (optional), which approximates it. Existing
tensors keep their scales. A new tensor gets its scale from the rule that adds it: at once if the model's own scales
determine it, else during inference, as soon as its source has one.
"""

from __future__ import annotations

import importlib
import math
from typing import Mapping, Sequence

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.rules import RULES as REGISTRY
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes import cleanup
from qdq_translator.translation.passes.dla import dense, norms
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.scales.network import Network, report_applied
from qdq_translator.translation.targets.settings import Settings

_ORDER = (
    "shapes identities recurrent one_dimension large_windows kernel_parts folded_axis channels_last norms spatial_mean "
    "max_pool chains split_conv dense reshapes hard_activations products error_function scales depth_space linear_axis "
    "conv_padding deconvolution average_pool tails"
)
RULES = tuple(importlib.import_module(f".{name}", __package__) for name in _ORDER.split())
"""The modules in the order in which they are applied, each once."""

_ROOT = "it divides by a square root, and the DLA has neither root nor power (limit O1)"
_STEPS = "it is a step function, and the DLA has none except comparisons"
_ANGLES = "the DLA supports Sin, Cos, Tanh and Atanh, not this function"
_BOOLEANS = "the DLA supports booleans only between a comparison and its Cast"
_ERROR_FUNCTION = (
    "no layer of the DLA computes the error function exactly (--dla_rewrites approximate replaces it with Tanh)"
)
_PLACES = "its indices are computed, or address single values"
NO_REWRITE = {
    "MatMul": dense.PRODUCT,
    "Einsum": dense.PRODUCT,
    "LpNormalization": norms.NO_EPSILON,
    "MeanVarianceNormalization": _ROOT,
    **dict.fromkeys(("LpPool", "GlobalLpPool"), "the DLA has no root (limit O1)"),
    **dict.fromkeys(("Erf", "Gelu"), _ERROR_FUNCTION),
    **dict.fromkeys(
        ("Log", "Softplus", "LogSoftmax", "ReduceLogSum", "ReduceLogSumExp"),
        "the DLA has no logarithm (limit O1)",
    ),
    "Exp": "the equivalent quotient of two Sigmoids divides by 0 in FP16",
    **dict.fromkeys(("TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Unique"), "it sorts or searches"),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Mod", "Hardmax"), _STEPS),
    **dict.fromkeys(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Cosh", "Sinh", "Tan"), _ANGLES),
    **dict.fromkeys(("And", "Or", "Xor", "Not", "IsInf", "IsNaN"), _BOOLEANS),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), "the DLA compares by Equal, Greater and Less"),
    **dict.fromkeys(
        (
            *("GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"),
            *("GridSample", "RoiAlign", "MaxRoiPool", "MaxUnpool", "OneHot", "ReverseSequence", "DeformConv"),
        ),
        _PLACES,
    ),
    "Cast": "on the DLA only the Cast behind a comparison runs; export inputs and outputs in float32",
    "ReduceL1": "write it as Abs and ReduceSum, which have rules",
    "ReduceSumSquare": "write it as Mul and ReduceSum, which have rules",
    "ReduceProd": "the DLA multiplies tensor by tensor, not along an axis",
    **dict.fromkeys(("If", "Loop", "Scan"), "control flow"),
    **dict.fromkeys(("Range", "ConstantOfShape", "EyeLike"), "its size is unknown; give it with --shapes"),
}
"""Operator -> why no rule rewrites it."""
_SMALL = 2**16
"""Number of weights below which growth is never reported."""


def rules_text() -> str:
    """The output of `--dla_rewrites list`: every rule with its cases and exceptions."""
    return "\n".join((module.__doc__ or "").strip() + "\n" for module in RULES)


def apply_rules(network: Network, settings: Settings, generation: str) -> None:
    """Apply every rule once, in place."""
    rewriter = Rewriter(network, settings, generation)
    before = _weights(network.graph)
    for module in RULES:
        known = len(network.applied)
        rewriter.begin(module.RULE)
        if hasattr(module, "apply"):
            module.apply(rewriter)
        else:
            rewriter.each(*module.OPERATORS, rewrite=module.rewrite, cured=getattr(module, "CURED", ()))
        if len(network.applied) > known:
            network.end_of_pass()
            applied = network.applied[known:]
            renamed = {old: new for a in applied for old, new in a.tensors.items()}
            report_applied(applied, REGISTRY[applied[0].rule].what, network.diagnostics, tensors=renamed)
    if network.applied:
        cleanup.remove_dead_nodes(network.graph)
        cleanup.remove_unused_initializers(network.graph)
        if network.input_shapes:
            _fix_shapes(network.graph, network.input_shapes)
        _report_growth(before, _weights(network.graph), network.diagnostics)


def _weights(graph: Graph) -> int:
    """Number of values in the initializers."""
    return sum(math.prod(tensor.dims) for tensor in graph.initializers.values())


def _report_growth(before: int, after: int, diagnostics: Diagnostics) -> None:
    if after > 2 * before and after > _SMALL:
        diagnostics.warning(
            "D0",
            f"The rewrites increase the weights from {before:,} to {after:,}: Convs that copy values have many, and "
            "the DLA reads all.",
            hint="'qdq-translator report' lists the replaced operators; a network exported without them is faster.",
            data={"before": before, "after": after},
        )


def _fix_shapes(graph: Graph, input_shapes: Mapping[str, Sequence[int]]) -> None:
    """Set static sizes: the rewritten graph is valid only for them."""
    for name, sizes in input_shapes.items():
        for dim, size in zip(graph.inputs[name].type.tensor_type.shape.dim, sizes):
            dim.Clear()
            dim.dim_value = size
    graph.value_info.clear()
