"""Scale inference (docs/rules.md): one module a rule, keyed by ONNX operator, run to a fixed point (rule S4)."""

from __future__ import annotations

from types import ModuleType

from qdq_translator.diagnostics import Diagnostics
from qdq_translator.graph import Node
from qdq_translator.inference import average_pool, clip, concat, mul, pass_through, sigmoid, unary
from qdq_translator.inference.context import Context
from qdq_translator.options import TranslateOptions

__all__ = ["Context", "infer_scales", "rules_by_op"]

_RULES = (clip, sigmoid, average_pool, concat, mul)


def rules_by_op(options: TranslateOptions) -> dict[str, ModuleType]:
    """ONNX operator -> the module whose `forward` and `backward` are its rule."""
    by_op: dict[str, ModuleType] = {op: module for module in _RULES for op in module.OPS}
    pass_ops = (*pass_through.DEFAULT_OPS, *pass_through.WHOLE_OPS, *pass_through.PART_OPS, *pass_through.RESIZE_OPS)
    by_op.update((op, pass_through) for op in pass_ops)
    for op in options.addtl_ops_to_infer_adjacent_scales:
        if op not in (*clip.OPS, *concat.OPS, *average_pool.OPS):  # these heed the list themselves
            by_op[op] = pass_through
    return by_op


def infer_scales(context: Context, diagnostics: Diagnostics) -> int:
    """Fills the scale table; returns the number of scales that were added.

    Forward in topological order, then backward in reverse order, until nothing changes. The first rule that gives a
    tensor a scale wins; explicit scales are never touched.
    """
    before = len(context.scales)
    by_op = rules_by_op(context.options)
    work: list[tuple[Node, ModuleType]] = [
        (node, by_op[node.op_type]) for node in context.graph.nodes if node.op_type in by_op and node.inputs
    ]
    _report_unknown_operators(context, diagnostics)
    changed = True
    while changed:
        changed = False
        for derived in context.derived:
            changed |= derived.apply(context)
        for node, rule in work:
            changed |= rule.forward(node, context)
        for node, rule in reversed(work):
            changed |= rule.backward(node, context)
    if context.options.add_unary_ew_scales_for_dla:
        _report_unary(unary.add_unary_scales(context), context, diagnostics)
    for name, scale in context.scales.items():
        if scale.origin.rule == "S5" and scale.origin.source:
            diagnostics.info(
                "S5",
                f"Tensor '{name}' got the inverse sigmoid scale {scale.value:.6g}: {scale.origin.note}.",
                tensor=name,
                node=scale.origin.node,
            )
    return len(context.scales) - before


def _report_unknown_operators(context: Context, diagnostics: Diagnostics) -> None:
    """Operators that the user named and the model does not have: a misspelt one would do nothing, in silence."""
    present = {node.op_type for node in context.graph.nodes}
    absent = [op for op in context.options.addtl_ops_to_infer_adjacent_scales if op not in present]
    if absent:
        diagnostics.info(
            "S3",
            f"The model has no {' or '.join(absent)} operator, which --addtl_ops_to_infer_adjacent_scales names.",
            mend="ONNX operators are spelt like LeakyRelu.",
            data={"operators": absent},
        )


def _report_unary(given: list[str], context: Context, diagnostics: Diagnostics) -> None:
    if not given:
        return
    on_gpu = context.options.target == "gpu"
    (diagnostics.warning if on_gpu else diagnostics.info)(
        "S9",
        f"{len(given)} Conv outputs before an Add got the unary scale 1.0; values above 127 saturate where TensorRT does "
        "not fuse the two" + (", and a GPU engine may apply it literally." if on_gpu else "."),
        tensor=given[0],
        mend="Leave --add_unary_ew_scales_for_dla out for GPU engines." if on_gpu else "",
        data={"tensors": given},
    )
