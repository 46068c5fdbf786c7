"""Why a Q or DQ of an explicit engine stayed a layer of its own: the pattern around it in the network, and where the pair belongs.

| pattern | pair belongs |
| --- | --- |
| a DQ in front of data movement | behind it, at the layer that computes |
| a pair between a product and the Relu, Clip or bias behind it | behind the last of them |
| a layer with one input from a DQ and another one without | on that input too |
| two pairs in a row | one of them, unless the network needs both ranges |
| a pair on one reader of a tensor, and not on the others | on all of them, so that the layer that makes it writes INT8 |
| a pair behind a layer that reads no pair | on what that layer reads too |
| a pair at a graph input or output | none, with INT8 inputs and outputs (`explicit --io_types int8`) |

The placement that these rows follow is that of `qdq.explicit` (docs/tensorrt11.md names the public pages).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional

from qdq_translator._version import __version__
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.core.formats.report_rows import (
    CacheVersion,
    End,
    FoundCauses,
    LayerPlan,
    Precision,
    Report,
    Rewrites,
    Source,
    TensorScale,
)
from qdq_translator.engine.inspector import EngineCheck
from qdq_translator.ir.constants import is_dequantize, is_quantize
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.io import load_model
from qdq_translator.ir.operators import CLAMPS, WEIGHTED
from qdq_translator.ir.types import TensorTypes
from qdq_translator.output.report.data import coverage
from qdq_translator.qdq.explicit import MOVES
from qdq_translator.targets.macs import layer_macs
from qdq_translator.targets.precision import FP16, INT8, NO_PRECISION, float_activations


@dataclasses.dataclass(frozen=True)
class Unfused:
    """layer: of the engine; node: the Q or DQ; pattern: what is around it, '' where nothing explains it; cure. tensor: what the pair
    quantizes. readers: nodes that read the pair."""

    layer: str
    node: str
    pattern: str
    cure: str
    tensor: str = ""
    readers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Explicit:
    """A network with Q/DQ for strong typing, as it is. report: what the page and the terminal draw; nothing was translated."""

    graph: Graph
    plan: list[LayerPlan]
    report: Report


def read_explicit(path: Path) -> Explicit:
    """Raises ModelError if it is no ONNX model."""
    model, source = load_model(path)
    graph = Graph.from_model(model)
    types, plan = TensorTypes(graph), plan_of(graph)
    scales: list[TensorScale] = []
    for node in graph.nodes:
        value = graph.scalar(node.inputs[1]) if is_quantize(node) else None
        if value is not None and node.inputs[0] not in graph.initializers:
            scales.append(TensorScale(node.inputs[0], value, scale_to_hex(value), True, "Q1", node.name))
    tensors = {*graph.inputs, *(name for row in plan for name in row.outputs)}
    rows = [dataclasses.replace(row, inputs=tuple(n for n in row.inputs if n in tensors)) for row in plan]
    ends: list[tuple[End, ...]] = []
    for names in (graph.inputs, graph.outputs):
        found = ((name, types.shape(name), types.is_float(name)) for name in names)
        ends.append(tuple(End(name, shape and tuple(shape), real, None, None, None) for name, shape, real in found))
    empty: Any = dict.fromkeys(("shared_ranges", "conflicts", "weights", "diagnostics"), ())
    empty.update({name: {} for name in ("options", "nodes_in_your_model", "automatic_scales")})
    report = Report(
        **dict(empty, dla=None, cost=None, parts=None, assumption="", schema_version=3, target="gpu", model=path.stem),
        generator=f"qdq-translator {__version__}",
        source=Source(source.file, source.sha256),
        cache_version=CacheVersion("", ""),
        coverage=coverage(rows),
        inputs=ends[0],
        outputs=ends[1],
        root_causes=FoundCauses([], [], []),
        plan=tuple(rows),
        dla_rewrites=Rewrites((), {}, {}, ()),
        scales=tuple({row.tensor: row for row in scales}.values()),
    )
    return Explicit(graph, plan, report)


def plan_of(graph: Graph) -> list[LayerPlan]:
    """One row per node of an explicit network except its Q and DQ: INT8 if all operands come from a DQ, or if it only
    clamps, adds to or moves such a result. Inputs and outputs skip the pairs."""
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
        bare = [name for name in computed if name not in fits] if precision == FP16 else []
        row = LayerPlan(
            node.name,
            node.op_type,
            precision=precision,
            reason=_reason(precision, bare, quantized),
            inputs=tuple(_source(graph, name) for name in node.inputs),
            outputs=tuple(node.outputs),
            missing=tuple(bare),
            by_design=not quantized and precision == FP16,
            macs=layer_macs(node, types),
            weights=sum(_size(graph, name) for name in node.inputs),
        )
        rows.append(row)
    return rows


def _reason(precision: Precision, bare: list[str], quantized: list[str]) -> str:
    if precision != FP16:
        return "every operand comes from a DQ, or follows such a layer" if precision == INT8 else "no float data"
    if not bare:
        return "computes with constants only"
    return f"'{bare[0]}' has no Q/DQ pair, '{quantized[0]}' has one" if quantized else f"'{bare[0]}' has no Q/DQ pair"


def explain_unfused(graph: Graph, check: EngineCheck) -> list[Unfused]:
    """One row a layer of `check.unfused_qdq`, in its order."""
    nodes = {node.name: node for node in graph.nodes if is_quantize(node) or is_dequantize(node)}
    found = []
    for layer in check.unfused_qdq:
        names = [part for part in layer.name.split(" + ") if part in nodes]
        node = nodes[names[0]] if names else None
        pattern, cure = _pattern(graph, node) if node is not None else ("", "")
        tensor, readers = _around(graph, node) if node is not None else ("", ())
        found.append(Unfused(layer.name, names[0] if names else "", pattern, cure, tensor, readers))
    return found


def unfused_rows(rows: Iterable[Unfused], times: Mapping[str, float]) -> list[dict[str, Any]]:
    """JSON types only, with the milliseconds of each layer of the engine (None without a profile)."""
    return [
        {**dataclasses.asdict(row), "readers": list(row.readers), "milliseconds": times.get(row.layer)} for row in rows
    ]


def _around(graph: Graph, node: Node) -> tuple[str, tuple[str, ...]]:
    quantizer, dequantizer = _pair(graph, node)
    first = quantizer or node
    return first.inputs[0], tuple(r.name for r in graph.consumers(dequantizer.outputs[0])) if dequantizer else ()


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
        bare = [name for name in _operands(reader) if not _is_pair(graph, name) and not _is_product(graph, name)]
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
    bare_reader = (
        next((r for r in graph.consumers(quantizer.inputs[0]) if not is_quantize(r)), None) if quantizer else None
    )
    if quantizer is not None and bare_reader is not None:
        where = f"{bare_reader.op_type} '{bare_reader.name}'"
        return f"{where} reads '{quantizer.inputs[0]}' without a pair", f"Let '{bare_reader.name}' read a pair too."
    bare = [name for name in _operands(before) if not _fits(graph, name)] if before is not None else []
    if before is not None and bare:
        return f"behind {before.op_type} '{before.name}', which reads no pair", f"Put a pair on '{bare[0]}'."
    return "", ""


def _pair(graph: Graph, node: Node) -> tuple[Optional[Node], Optional[Node]]:
    if is_quantize(node):
        return node, next((r for r in graph.consumers(node.outputs[0]) if is_dequantize(r)), None)
    maker = graph.producer.get(node.inputs[0])
    return (maker if maker is not None and is_quantize(maker) else None), node


def _operands(node: Node) -> Iterable[str]:
    """The operands of a layer, without the bias of a product."""
    return [name for name in (node.inputs[:2] if node.is_op(*WEIGHTED) else node.inputs) if name]


def _is_pair(graph: Graph, name: str) -> bool:
    maker = graph.producer.get(name)
    return maker is not None and is_dequantize(maker)


def _fits(graph: Graph, name: str) -> bool:
    """Comes from a pair, or from a product that fuses with its only reader."""
    return _is_pair(graph, name) or (_is_product(graph, name) and graph.consumer_count(name) == 1)


def _weight(graph: Graph, name: str) -> bool:
    """A constant behind a DQ."""
    maker = graph.producer.get(name)
    return maker is not None and is_dequantize(maker) and maker.inputs[0] not in graph.producer


def _size(graph: Graph, name: str) -> int:
    """Elements of a quantized constant, 0 for anything else."""
    values = graph.array(graph.producer[name].inputs[0]) if _weight(graph, name) else None
    return 0 if values is None else int(values.size)


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
