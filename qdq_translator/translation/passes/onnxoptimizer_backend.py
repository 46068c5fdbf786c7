"""Rule F4: rules F1 to F3 by onnxoptimizer (0.3.2) and onnx-graphsurgeon, for users who require their folding.

Tensors with a scale, and the outputs of BatchNormalizations, are protected by name: they are declared as graph outputs,
which the package neither folds nor renames. The native passes then handle the unsupported cases (BatchNormalization
after ConvTranspose, Gemm or MatMul; padding into pools).
"""

from __future__ import annotations

from typing import Any

import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.passes.names import name_nodes
from qdq_translator.translation.scales.network import Network

PASSES = ("extract_constant_to_initializer", "fuse_bn_into_conv", "fuse_pad_into_conv")


def optimize(network: Network) -> None:
    """Replace the network's graph, and rename the quantized values of renamed weights.

    Raises MissingDependency without the package, UserError if it fails.
    """
    (optimizer, surgeon), graph = _import(), network.graph
    held = [
        name
        for node in graph.nodes
        for name in node.outputs
        if name and name not in graph.outputs and (name in network.scales.observed or node.is_op("BatchNormalization"))
    ]
    weights = {node.name: node.input(1) for node in graph.nodes if node.is_op("Conv")}
    optimized = _optimized(optimizer, graph.to_model(), held)
    # onnx-graphsurgeon removes dead nodes and unused initializers (rule F3), also in subgraphs
    result = Graph.from_model(surgeon.export_onnx(surgeon.import_onnx(optimized).cleanup()))
    result.model_metadata, result.doc, result.opsets = graph.model_metadata, graph.doc, graph.opsets
    result.inputs, result.outputs = graph.inputs, graph.outputs
    for node in result.nodes:
        old = weights.get(node.name, "")
        if node.is_op("Conv") and old in network.trained and node.input(1) != old:
            network.trained[node.input(1)] = network.trained[old]
    name_nodes(result, Diagnostics())
    network.graph = result
    network.changed()


def _optimized(optimizer: Any, model: onnx.ModelProto, held: list[str]) -> onnx.ModelProto:
    """The optimized model. held: tensors that must be neither folded nor renamed."""
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in held)
    try:
        optimized: onnx.ModelProto = optimizer.optimize(model, list(PASSES), fixed_point=True)
    except Exception as error:
        raise UserError(
            f"onnxoptimizer failed on this model: {error}.", "Use --graph_optimizer native, which needs no package."
        ) from error
    kept = [value for value in optimized.graph.output if value.name in known]
    del optimized.graph.output[:]
    optimized.graph.output.extend(kept)
    return optimized


def _import() -> tuple[Any, Any]:
    try:
        import onnx_graphsurgeon
        import onnxoptimizer
    except ImportError as error:
        raise MissingDependency(
            "--graph_optimizer onnxoptimizer needs the package onnxoptimizer 0.3.2, which has wheels for Python 3.9 "
            "and below on x86-64 Linux only.",
            "Use --graph_optimizer native (the default), which gives equal results.",
        ) from error
    return onnxoptimizer, onnx_graphsurgeon
