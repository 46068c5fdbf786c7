"""Rules F8, F10 and F11: replace nodes for which TensorRT's parser adds layers or tensors, or which it refuses (fact
4.12).

A form is a function of an `Editor` and a row of `FORMS`. Every form computes the same function, on every target unless
its docstring restricts it. Existing tensors keep their names and scales. A new tensor gets a scale, independent of the
options, once its neighbours have theirs: no layer leaves INT8, and parts of a layer above INT8 stay above INT8.
"""

from __future__ import annotations

from typing import Callable

from qdq_translator.translation.passes import cleanup
from qdq_translator.translation.passes.editor import Editor
from qdq_translator.translation.passes.normal_forms import one_dimensional, operands, parts, refused
from qdq_translator.translation.scales.network import Network, report_applied
from qdq_translator.translation.targets.settings import Settings

RULES = ("F8", "F10", "F11")
FORMS: tuple[tuple[str, Callable[[Editor], None]], ...] = (
    ("Empty inputs at the end are left out", operands.trailing_inputs),
    ("Forms that TensorRT's parser refuses", refused.apply),
    ("Clip with both limits", operands.clip_limits),
    ("Activations of several layers in parts", parts.activations),
    ("LayerNormalization in parts", parts.layer_norm),
    ("Sum, Max and Min of several inputs as a chain of two-input layers", parts.chains),
    ("Gemm without factors, and its bias as an Add", parts.gemm),
    ("One-dimensional layers with a second dimension of 1", one_dimensional.apply),
    ("DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape", parts.depth_space),
    ("Constant operands of full rank", operands.operand_ranks),
    ("Slice indices in INT32", operands.slice_indices),
)
"""(description for the report, form), in the order of application, each once: later forms also apply to nodes that
earlier ones create."""


def apply_normal_forms(network: Network, settings: Settings) -> None:
    editor = Editor(network, settings)
    for what, form in FORMS:
        before = len(network.applied)
        form(editor)
        applied = network.applied[before:]
        if applied:
            network.end_of_pass()
            report_applied(applied, what, network.diagnostics)
    cleanup.remove_unused_initializers(network.graph)
