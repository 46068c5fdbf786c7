"""Rules F8, F10 and F11: no node makes layers or tensors of its own in TensorRT's parser, or is refused by it, if another
form computes the same.

One module a form, each with `WHAT`, a sentence for the report, and `apply(editor)`. Every form computes the same function,
on every target unless its head says otherwise. Tensors that the network has keep their names and scales; a tensor that a
form adds gets its scale with it, whatever the options, once the tensors around it have theirs, so that no layer is in INT8
less than before; where the layer was not in INT8, its parts are not either. After `fact 4.12` and the recordings of
the real parsers.
"""

from __future__ import annotations

from types import ModuleType

from qdq_translator.passes import cleanup
from qdq_translator.passes.editor import Editor
from qdq_translator.passes.normal_forms import (
    activations,
    chains,
    clip,
    depth_space,
    gemm,
    layer_norm,
    one_dimensional,
    operand_ranks,
    refused,
    slice_indices,
    trailing_inputs,
)
from qdq_translator.scales.network import Network, report_applied
from qdq_translator.targets.settings import Settings

RULES = ("F8", "F10", "F11")
FORMS: tuple[ModuleType, ...] = (
    trailing_inputs,
    refused,
    clip,
    activations,
    layer_norm,
    chains,
    gemm,
    one_dimensional,
    depth_space,
    operand_ranks,
    slice_indices,
)
"""In the order in which they are applied, each once: what the earlier ones make, the later ones bring into form."""


def apply_normal_forms(network: Network, settings: Settings) -> None:
    editor = Editor(network, settings)
    for form in FORMS:
        before = len(network.applied)
        form.apply(editor)
        applied = network.applied[before:]
        if applied:
            network.end_of_pass()
            report_applied(applied, form.WHAT, network.diagnostics)
    cleanup.remove_unused_initializers(network.graph)
