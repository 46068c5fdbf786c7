"""Why a Q or DQ of an explicit engine stayed a layer of its own: the pattern around it in the network, and where the pair belongs.

| pattern | pair belongs |
| --- | --- |
| a DQ in front of data movement | behind it, at the layer that computes |
| a pair between a product and the Relu, Clip or bias behind it | behind the last of them |
| a layer with one input from a DQ and another one without | on that input too |
| two pairs in a row | one of them, unless the network needs both ranges |
| a pair at a graph input or output | none, with INT8 inputs and outputs (`explicit --io_types int8`) |

The placement that these rows follow is that of `qdq.explicit` (docs/tensorrt11.md names the public pages).
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from qdq_translator.core.formats.report_rows import Precision
from qdq_translator.engine.inspector import EngineCheck
from qdq_translator.ir.constants import is_dequantize, is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import CLAMPS, WEIGHTED
from qdq_translator.ir.types import TensorTypes
from qdq_translator.qdq.explicit import MOVES
from qdq_translator.targets.precision import FP16, INT8, NO_PRECISION, LayerPlan, float_activations


@dataclasses.dataclass(frozen=True)
class Unfused:
    """layer: of the engine; node: the Q or DQ; pattern: what is around it, '' where nothing explains it; cure."""

    layer: str
    node: str
    pattern: str
    cure: str


def plan_of(graph: Graph) -> list[LayerPlan]:
    """A row for each node of an explicit network but its Q and DQ: INT8 where all that it computes with comes from a DQ, and
    where it only clamps, adds to or moves such a result. Inputs and outputs skip the pairs."""
    types = TensorTypes(graph)
    rows: list[LayerPlan] = []
    int8: set[str] = set()
    for node in graph.nodes:
        if is_quantize(node) or is_dequantize(node):
            continue
        read = float_activations(node.reads(), graph, types)
        made = float_activations(node.outputs, graph, types)
        computed = [name for name in read if not _weight(graph, name)]
        quantized = [name for name in computed if _is_pair(graph, name)]
        follows = (*CLAMPS, "Add", *MOVES)
        fits = [name for name in computed if name in quantized or (node.op_type in follows and name in int8)]
        precision: Precision = (
            NO_PRECISION if not (read and made) else INT8 if computed and len(fits) == len(computed) else FP16
        )
        if precision == INT8:
            int8.update(made)
        inputs = tuple(_source(graph, name) for name in node.inputs)
        rows.append(LayerPlan(node.name, node.op_type, precision=precision, inputs=inputs, outputs=tuple(node.outputs)))
    return rows


def explain_unfused(graph: Graph, check: EngineCheck) -> list[Unfused]:
    """One row a layer of `check.unfused_qdq`, in its order."""
    nodes = {node.name: node for node in graph.nodes if is_quantize(node) or is_dequantize(node)}
    found = []
    for layer in check.unfused_qdq:
        names = [part for part in layer.name.split(" + ") if part in nodes]
        node = nodes[names[0]] if names else None
        pattern, cure = _pattern(graph, node) if node is not None else ("", "")
        found.append(Unfused(layer.name, names[0] if names else "", pattern, cure))
    return found


def _pattern(graph: Graph, node: Node) -> tuple[str, str]:
    quantizer, dequantizer = _pair(graph, node)
    before = graph.producer.get(quantizer.inputs[0]) if quantizer is not None else None
    behind = graph.consumers(dequantizer.outputs[0]) if dequantizer is not None else []
    moved = next((reader for reader in behind if reader.is_op(*MOVES)), None)
    if moved is not None:
        return f"a DQ in front of {moved.op_type} '{moved.name}'", f"Put the pair behind '{moved.name}'."
    fused = next((r for r in behind if r.is_op(*CLAMPS)), None)
    if before is not None and before.is_op(*WEIGHTED, "Add") and fused is not None and len(behind) == 1:
        return (
            f"a pair between {before.op_type} '{before.name}' and {fused.op_type} '{fused.name}'",
            f"Put the pair behind '{fused.name}'.",
        )
    if before is not None and is_dequantize(before):
        return f"two pairs in a row, behind '{before.name}'", "Leave one of them out, unless both ranges are meant."
    for reader in behind:
        operands = reader.inputs[:2] if reader.is_op(*WEIGHTED) else reader.inputs  # without the bias of a product
        bare = [name for name in operands if name and not _is_pair(graph, name) and not _is_product(graph, name)]
        if reader.is_op(*WEIGHTED, "Add", "Mul", "Concat") and bare:
            return (
                f"{reader.op_type} '{reader.name}' reads '{bare[0]}' without a pair",
                f"Put a pair on '{bare[0]}', or leave this one out.",
            )
    if quantizer is not None and quantizer.inputs[0] in graph.inputs:
        return (
            f"the pair of the graph input '{quantizer.inputs[0]}'",
            "Give the graph INT8 inputs: explicit --io_types int8.",
        )
    if dequantizer is not None and dequantizer.outputs[0] in graph.outputs:
        return f"the pair of the graph output '{dequantizer.outputs[0]}'", "Leave it out, or make the output INT8."
    return "", ""


def _pair(graph: Graph, node: Node) -> tuple[Optional[Node], Optional[Node]]:
    if is_quantize(node):
        return node, next((r for r in graph.consumers(node.outputs[0]) if is_dequantize(r)), None)
    maker = graph.producer.get(node.inputs[0])
    return (maker if maker is not None and is_quantize(maker) else None), node


def _is_pair(graph: Graph, name: str) -> bool:
    maker = graph.producer.get(name)
    return maker is not None and is_dequantize(maker)


def _weight(graph: Graph, name: str) -> bool:
    """A constant behind a DQ."""
    maker = graph.producer.get(name)
    return maker is not None and is_dequantize(maker) and maker.inputs[0] not in graph.producer


def _is_product(graph: Graph, name: str) -> bool:
    maker = graph.producer.get(name)
    return maker is not None and maker.is_op(*WEIGHTED)


def _source(graph: Graph, name: str) -> str:
    """The tensor in front of a pair."""
    maker = graph.producer.get(name)
    if maker is None or not is_dequantize(maker):
        return name
    quantizer = graph.producer.get(maker.inputs[0])
    return quantizer.inputs[0] if quantizer is not None and is_quantize(quantizer) else name
