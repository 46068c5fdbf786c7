"""Rule F6: Conv and ConvTranspose say their `kernel_shape`, and their weights are initializers."""

from __future__ import annotations

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.ir.graph import Graph
from qdq_translator.ir.types import TensorTypes


def complete_convolutions(graph: Graph, types: TensorTypes, diagnostics: Diagnostics) -> None:
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
        shape = types.static_shape(node.input(1)) if weight is None else weight.dims
        if "kernel_shape" not in node.attributes and shape is not None and len(shape) > 2:
            node.set("kernel_shape", list(shape[2:]))
