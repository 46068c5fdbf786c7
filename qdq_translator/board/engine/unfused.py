"""Why a Q or DQ of an explicit engine did not fuse: the pattern around it, and where the pair belongs.

| pattern | pair belongs |
| --- | --- |
| a DQ in front of data movement | behind it, at the layer that computes |
| a pair between a product and the Relu, Clip or bias behind it | behind the last of them |
| a layer with one input from a DQ and another one without | on that input too |
| two pairs in a row | one of them, unless the network needs both ranges |
| a pair on one reader of a tensor, and not on the others | on all, so that its layer writes INT8 |
| a pair behind a layer that reads no pair | on what that layer reads too |
| a pair at a graph input or output | none, with INT8 inputs and outputs (`explicit --io_types int8`) |

The placement that these rows follow is that of `qdq.explicit` (docs/tensorrt11.md names the public pages).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Iterable, Mapping, Optional, Tuple

from qdq_translator.board.engine.inspector import EngineCheck
from qdq_translator.core.formats import report_rows
from qdq_translator.core.formats.calibration_cache import scale_to_hex
from qdq_translator.core.formats.engine_rows import Unfused
from qdq_translator.core.formats.report_rows import LayerPlan, Precision
from qdq_translator.translation.ir.constants import is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.io import load_model
from qdq_translator.translation.ir.operators import CLAMPS, WEIGHTED
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.qdq.explicit import MOVES
from qdq_translator.translation.report.data import coverage
from qdq_translator.translation.targets.precision import FP16, INT8, NO_PRECISION, float_activations, layer_macs


@dataclasses.dataclass(frozen=True)
class Explicit:
    """A network with Q/DQ for strong typing, not translated. report: contents of the page and the terminal output."""

    graph: Graph
    plan: list[LayerPlan]
    report: report_rows.Report


def read_explicit(path: Path) -> Explicit:
    """Raises ModelError if it is not an ONNX model."""
    model, source = load_model(path)
    graph = Graph.from_model(model)
    types, plan = TensorTypes(graph), plan_of(graph)
    scales: list[report_rows.TensorScale] = []
    for node in graph.nodes:
        value = graph.scalar(node.inputs[1]) if is_quantize(node) else None
        if value is not None and node.inputs[0] not in graph.initializers:
            scales.append(report_rows.TensorScale(node.inputs[0], value, scale_to_hex(value), True, "Q1", node.name))
    tensors = {*graph.inputs, *(name for row in plan for name in row.outputs)}
    rows = [dataclasses.replace(row, inputs=tuple(n for n in row.inputs if n in tensors)) for row in plan]

    def ends(names: Iterable[str]) -> tuple[report_rows.End, ...]:
        shapes = ((name, types.shape(name)) for name in names)
        return tuple(
            report_rows.End(n, dims and tuple(dims), types.is_float(n), None, None, None) for n, dims in shapes
        )

    report = report_rows.Report(
        schema_version=3,
        generator=report_rows.GENERATOR,
        model=path.stem,
        source=report_rows.Source(source.file, source.sha256),
        assumption="",
        target="gpu",
        options={},
        cache_version=report_rows.CacheVersion("", ""),
        coverage=coverage(rows),
        inputs=ends(graph.inputs),
        outputs=ends(graph.outputs),
        root_causes=report_rows.FoundCauses([], [], []),
        plan=tuple(rows),
        scales=tuple({row.tensor: row for row in scales}.values()),
    )
    return Explicit(graph, plan, report)


def plan_of(graph: Graph) -> list[LayerPlan]:
    """One row per node of an explicit network except its Q and DQ: INT8 if all operands come from a DQ, or if it only
    clamps, adds to or moves such a result. Inputs are the tensors in front of the pairs."""
    types = TensorTypes(graph)
    rows: list[LayerPlan] = []
    int8: set[str] = set()
    for node in graph.nodes:
        if is_quantize(node) or is_dequantize(node):
            continue
        read = float_activations(node.reads(), graph, types)
        made = float_activations(node.outputs, graph, types)
        computed, quantized, bare = _sorted(graph, node, read, int8)
        precision: Precision = (INT8 if computed and not bare else FP16) if read and made else NO_PRECISION
        if precision == INT8:
            int8.update(made)
        row = LayerPlan(
            node.name,
            node.op_type,
            precision=precision,
            reason=_reason(precision, bare, quantized),
            inputs=tuple(_source(graph, name) for name in node.inputs),
            outputs=tuple(node.outputs),
            missing=tuple(bare) if precision == FP16 else (),
            by_design=not quantized and precision == FP16,
            macs=layer_macs(node, types),
            weights=sum(_size(graph, name) for name in node.inputs),
        )
        rows.append(row)
    return rows


def _sorted(graph: Graph, node: Node, read: Iterable[str], int8: set[str]) -> tuple[list[str], list[str], list[str]]:
    """Three lists of the tensors that a node reads: operands without weights, those from a DQ, and those from neither a
    DQ nor, for a node that follows its operands, an INT8 layer. int8: outputs of such layers."""
    computed = [name for name in read if not _weight(graph, name)]
    quantized = [name for name in computed if _dequantizer(graph, name)]
    known = {*quantized, *(int8 if node.is_op(*CLAMPS, "Add", *MOVES) else ())}
    return computed, quantized, [name for name in computed if name not in known]


def _reason(precision: Precision, bare: list[str], quantized: list[str]) -> str:
    if precision != FP16:
        return "every operand comes from a DQ, or follows such a layer" if precision == INT8 else "no float data"
    if not bare:
        return "computes with constants only"
    return f"'{bare[0]}' has no Q/DQ pair, '{quantized[0]}' has one" if quantized else f"'{bare[0]}' has no Q/DQ pair"


def explain_unfused(graph: Graph, check: EngineCheck, times: Mapping[str, float] = {}) -> list[Unfused]:
    """One row a layer of `check.unfused_qdq`, in its order. times: layer of the engine -> milliseconds."""
    nodes = {node.name: node for node in graph.nodes if is_quantize(node) or is_dequantize(node)}
    found = []
    for layer in check.unfused_qdq:
        node = next((nodes[part] for part in layer.name.split(" + ") if part in nodes), None)
        about: tuple[str, str, str, str, tuple[str, ...]] = ("", "", "", "", ())
        if node is not None:
            pair = _Pair.of(graph, node)
            what, cure = next(filter(None, (pattern(pair) for pattern in _PATTERNS)), ("", ""))
            names = tuple(reader.name for reader in pair.readers)
            about = (node.name, what, cure, pair.source or node.inputs[0], names)
        found.append(Unfused(layer.name, *about, times.get(layer.name)))
    return found


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A Q and its DQ. source: the tensor that is quantized; made: the result ('' without that half). before: the
    producer of the source; readers: of the result; beside: other readers of the source."""

    graph: Graph
    source: str
    made: str

    @classmethod
    def of(cls, graph: Graph, node: Node) -> _Pair:
        quantizer: Optional[Node] = node
        dequantizer: Optional[Node] = node
        if is_quantize(node):
            dequantizer = next((r for r in graph.consumers(node.outputs[0]) if is_dequantize(r)), None)
        else:
            maker = graph.producer.get(node.inputs[0])
            quantizer = maker if maker is not None and is_quantize(maker) else None
        return cls(graph, quantizer.inputs[0] if quantizer else "", dequantizer.outputs[0] if dequantizer else "")

    @property
    def before(self) -> Optional[Node]:
        return self.graph.producer.get(self.source) if self.source else None

    @property
    def readers(self) -> list[Node]:
        return self.graph.consumers(self.made) if self.made else []

    @property
    def beside(self) -> list[Node]:
        return [r for r in self.graph.consumers(self.source) if not is_quantize(r)] if self.source else []


_Told = Optional[Tuple[str, str]]
"""The pattern around a pair, and the pair's correct place; None for any other pattern."""


def _moved(pair: _Pair) -> _Told:
    for node in pair.readers:
        if node.is_op(*MOVES):
            return f"a DQ in front of {node.op_type} '{node.name}'", f"Put the pair behind '{node.name}'."
    return None


def _inside_a_layer(pair: _Pair) -> _Told:
    before, behind = pair.before, pair.readers
    if before is None or not before.is_op(*WEIGHTED, "Add") or len(behind) != 1 or not behind[0].is_op(*CLAMPS):
        return None
    names = f"{before.op_type} '{before.name}' and {behind[0].op_type} '{behind[0].name}'"
    return f"a pair between {names}", f"Put the pair behind '{behind[0].name}'."


def _twice(pair: _Pair) -> _Told:
    if pair.before is None or not is_dequantize(pair.before):
        return None
    return f"two pairs in a row, behind '{pair.before.name}'", "Leave one of them out, unless both ranges are meant."


def _one_operand(pair: _Pair) -> _Told:
    graph = pair.graph
    for node in pair.readers:
        bare = [name for name in _operands(node) if not _dequantizer(graph, name) and not _is_product(graph, name)]
        if node.is_op(*WEIGHTED, "Add", "Mul", "Concat") and bare:
            what = f"{node.op_type} '{node.name}' reads '{bare[0]}' without a pair"
            return what, f"Put a pair on '{bare[0]}', or leave this one out."
    return None


def _at_an_end(pair: _Pair) -> _Told:
    if pair.source in pair.graph.inputs:
        return f"the pair of the graph input '{pair.source}'", "Give the graph INT8 inputs: explicit --io_types int8."
    if pair.made in pair.graph.outputs:
        return f"the pair of the graph output '{pair.made}'", "Leave it out, or make the output INT8."
    return None


def _one_reader(pair: _Pair) -> _Told:
    for node in pair.beside:
        what = f"{node.op_type} '{node.name}' reads '{pair.source}' without a pair"
        return what, f"Let '{node.name}' read a pair too."
    return None


def _behind_floats(pair: _Pair) -> _Told:
    before = pair.before
    bare = [name for name in _operands(before) if not _fits(pair.graph, name)] if before is not None else []
    if before is None or not bare:
        return None
    return f"behind {before.op_type} '{before.name}', which reads no pair", f"Put a pair on '{bare[0]}'."


_PATTERNS = (_moved, _inside_a_layer, _twice, _one_operand, _at_an_end, _one_reader, _behind_floats)
"""The patterns, in the order in which they are tried."""


def _operands(node: Node) -> Iterable[str]:
    """The operands of a layer, without the bias of a product."""
    return [name for name in (node.inputs[:2] if node.is_op(*WEIGHTED) else node.inputs) if name]


def _dequantizer(graph: Graph, name: str) -> Optional[Node]:
    """The DQ that produces a tensor."""
    maker = graph.producer.get(name)
    return maker if maker is not None and is_dequantize(maker) else None


def _fits(graph: Graph, name: str) -> bool:
    """Whether the tensor comes from a pair, or from a product that fuses with its only reader."""
    return _dequantizer(graph, name) is not None or (_is_product(graph, name) and graph.consumer_count(name) == 1)


def _weight(graph: Graph, name: str) -> Optional[str]:
    """The quantized constant behind a DQ."""
    maker = _dequantizer(graph, name)
    return maker.inputs[0] if maker is not None and maker.inputs[0] not in graph.producer else None


def _size(graph: Graph, name: str) -> int:
    """Elements of a quantized constant, 0 for anything else."""
    values = graph.array(_weight(graph, name) or "")
    return 0 if values is None else int(values.size)


def _is_product(graph: Graph, name: str) -> bool:
    maker = graph.producer.get(name)
    return maker is not None and maker.is_op(*WEIGHTED)


def _source(graph: Graph, name: str) -> str:
    """The tensor in front of a pair."""
    maker = _dequantizer(graph, name)
    if maker is None:
        return name
    quantizer = graph.producer.get(maker.inputs[0])
    return quantizer.inputs[0] if quantizer is not None and is_quantize(quantizer) else name
