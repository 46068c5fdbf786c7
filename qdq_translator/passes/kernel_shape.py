"""Rule F6: Conv and ConvTranspose say their `kernel_shape`, and their weights are initializers."""

from __future__ import annotations

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.ir.graph import Graph


def complete_convolutions(graph: Graph, diagnostics: Diagnostics) -> None:
    for node in graph.of("Conv", "ConvTranspose"):
        weight = graph.initializers.get(node.input(1))
        if weight is None:
            diagnostics.warning(
                "F6",
                f"The weight of {node.op_type} {node.label} is computed at run time; TensorRT's parser needs an initializer "
                "for an INT8 convolution.",
                node=node.name,
                tensor=node.input(1),
                hint="Export with constant folding on.",
            )
        elif "kernel_shape" not in node.attributes and len(weight.dims) > 2:
            node.set("kernel_shape", list(weight.dims[2:]))
