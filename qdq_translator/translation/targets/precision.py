"""The precision plan (docs/rules.md): for every layer INT8, or the higher precision that it needs and why, with its
multiply-accumulates and weights.

`make_plan` decides by scales, `planning.layers.settle` by the limits of the device; `planning.root_causes` finds the
causes of layers above INT8.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Iterable, Mapping, Optional, Sequence, TypeVar

from qdq_translator.core.formats.report_rows import FP16, INT8, NO_PRECISION, NOWHERE, ON_DLA, ON_GPU, LayerPlan
from qdq_translator.core.words import others
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import WEIGHTED, summed_size
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.table import ScaleTable

__all__ = ["FP16", "INT8", "NOWHERE", "NO_PRECISION", "ON_DLA", "ON_GPU", "LayerPlan"]
KEPT = "kept in FP16 (--keep_fp16)"

_SHAPE_OPS = frozenset(where(kind="shape"))
_TAIL_OPS = frozenset(where(traits="end"))
"""Operators that may follow the last multiplying layer before a graph output: they do not change that its output is
float (fact 5.6)."""


def float_activations(names: list[str], graph: Graph, types: TensorTypes) -> tuple[str, ...]:
    """Float tensors among `names` that are not constants, each once."""
    return tuple(dict.fromkeys(n for n in names if n and not graph.is_constant(n) and types.is_float(n)))


def float_ends(node: Node, graph: Graph, types: TensorTypes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Float activations that a layer reads and makes. Both are empty if it has no precision (shape arithmetic,
    integers, constants only)."""
    inputs = float_activations(node.reads(), graph, types)
    outputs = float_activations(node.outputs, graph, types)
    return (inputs, outputs) if _has_precision(node, inputs, outputs) else ((), ())


def _has_precision(node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bool:
    return bool(inputs and outputs and node.op_type not in _SHAPE_OPS)


def make_plan(
    graph: Graph,
    types: TensorTypes,
    scales: ScaleTable,
    kept: frozenset[str],
    floats: Mapping[str, str],
) -> list[LayerPlan]:
    """One row per node, in graph order, for a GPU (`planning.layers.settle` applies the DLA's limits). A layer is INT8
    if every float input and output has a scale (fact 5.5) and the user does not keep it in FP16 (`kept`). floats:
    tensors that deliberately have no scale -> reason."""
    real = {name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)}
    tails = _tails(graph, real, scales)
    rows = [_plan_layer(node, graph, types, real, scales, tails, floats) for node in graph.nodes]
    for index, row in enumerate(rows):
        if row.name in kept and row.precision != NO_PRECISION:
            rows[index] = dataclasses.replace(row, precision=FP16, reason=KEPT, listed=True, by_design=True)
    return rows


def _tails(graph: Graph, real: set[str], scales: ScaleTable) -> dict[str, str]:
    """Tensors without scale that lead only to graph outputs -> the first such output. Only data movement, a bias and
    final activations may be between them: TensorRT gives the last multiplying layer before them a float output
    regardless of the scales (fact 5.6), and a graph output gets no scale by inference (rule S2)."""
    tails: dict[str, str] = {}
    for node in graph.nodes_reversed:
        for name in [name for name in node.outputs if name in real and name not in scales]:
            ends = [name] if name in graph.outputs else []
            for reader in graph.consumers(name):
                is_bias = reader.is_op("Add") and any(map(graph.is_constant, reader.inputs))
                if not is_bias and not reader.is_op(*_TAIL_OPS):
                    break
                following = [tails.get(n, "") for n in reader.outputs if n in real]
                if not all(following):
                    break
                ends += following
            else:
                if ends:
                    tails[name] = ends[0]
    return tails


def _plan_layer(
    node: Node,
    graph: Graph,
    types: TensorTypes,
    real: set[str],
    scales: ScaleTable,
    tails: Mapping[str, str],
    floats: Mapping[str, str],
) -> LayerPlan:
    inputs, outputs = (tuple(dict.fromkeys(filter(real.__contains__, n))) for n in (node.reads(), node.outputs))
    macs, weights = layer_macs(node, types), layer_weights(node, graph)
    row = functools.partial(
        LayerPlan, node.name, node.op_type, inputs=inputs, outputs=outputs, macs=macs, weights=weights
    )
    if not _has_precision(node, inputs, outputs):
        reason = "works on shapes, integers or booleans, or on constants only"
        return row(reason=reason, device=ON_GPU if inputs else NOWHERE)
    missing_in = tuple(n for n in inputs if n not in scales)
    missing = missing_in + tuple(n for n in outputs if n not in scales)
    if not missing:
        return row(precision=INT8, reason="every input and output has a scale")
    meant = _meant(missing, tails, floats)
    what = "input" if missing_in else "output"
    reason = meant or f"{what} '{missing[0]}' has no scale{others(missing, ' ({} more without)')}"
    return row(precision=FP16, reason=reason, missing=missing, listed=bool(missing_in), by_design=bool(meant))


def _meant(missing: Sequence[str], tails: Mapping[str, str], floats: Mapping[str, str]) -> str:
    """Why a layer without these scales stays above INT8 by design; '' if it does not."""
    if not all(n in tails or n in floats for n in missing):
        return ""
    wide = next((n for n in missing if n in floats), "")
    if wide:
        return f"'{wide}' stays in floating point: {floats[wide]}"
    end = tails[missing[-1]]
    verb = "makes" if missing[-1] == end else "only leads to"
    return f"{verb} the graph output '{end}', which has no scale of its own and stays float (rule S2)"


def stay_higher(
    plan: list[LayerPlan], reasons: Mapping[str, str], cure: str = "", by_design: bool = False
) -> list[LayerPlan]:
    """The plan with the INT8 layers in `reasons` (layer -> reason) in FP16 and listed as FP16 layers."""
    more = {"precision": FP16, "listed": True, "cure": cure, "by_design": by_design}
    return [
        dataclasses.replace(layer, reason=reasons[layer.name], **more)  # type: ignore[arg-type]
        if layer.precision == INT8 and layer.name in reasons
        else layer
        for layer in plan
    ]


RECURRENT = where(kind="recurrent")


Number = TypeVar("Number", int, float)


def total(parts: Iterable[Optional[Number]]) -> Optional[Number]:
    """The sum; None if a part is unknown."""
    every = list(parts)
    known = [part for part in every if part is not None]
    return sum(known) if len(known) == len(every) else None


def add_macs(layers: Iterable[LayerPlan]) -> Optional[int]:
    """The sum; None if one is unknown."""
    return total(layer.macs for layer in layers)


def share(part: Optional[float], whole: Optional[float]) -> Optional[float]:
    """part / whole; None if either is unknown or the whole is 0."""
    return part / whole if part is not None and whole else None


def layer_macs(node: Node, types: TensorTypes) -> Optional[int]:
    """MACs of Conv, ConvTranspose, Gemm, MatMul, Einsum, LSTM, GRU and RNN; 0 for other operators; None if a needed
    size is unknown. A dynamic first dimension counts as 1, so that shares are known for any batch size."""
    if node.is_op(*RECURRENT):
        return _recurrent(node, types)
    if node.is_op("Einsum"):
        return _einsum(node, types)
    if not node.is_op(*WEIGHTED):
        return 0
    a, b = _sizes(node.inputs[0], types), _sizes(node.input(1), types)
    out = _sizes(node.outputs[0], types)
    if a is None or b is None or out is None:
        return None
    if node.op_type == "Conv":
        return math.prod(out) * math.prod(b[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(a) * math.prod(b[1:])
    return math.prod(out) * summed_size(node, a)


def _recurrent(node: Node, types: TensorTypes) -> Optional[int]:
    """Every step of every sample multiplies by all of W (directions, gates * hidden, inputs) and R."""
    shape, weights = types.shape(node.inputs[0]), [_sizes(name, types) for name in node.inputs[1:3]]
    if shape is None or len(shape) != 3 or None in weights:
        return None
    batch, steps = (shape[0], shape[1]) if node.get("layout", 0) else (shape[1], shape[0])
    if not isinstance(steps, int):
        return None
    return (batch if isinstance(batch, int) else 1) * steps * sum(math.prod(sizes or ()) for sizes in weights)


def _einsum(node: Node, types: TensorTypes) -> Optional[int]:
    """The product of the sizes of all axes, for each operand after the first."""
    terms = str(node.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    size: dict[str, int] = {}
    for name, term in zip(node.inputs, terms):
        shape = _sizes(name, types)
        if shape is None:
            return None
        for axis, count in zip(_axes(term, len(shape)), shape):
            size[axis] = max(count, size.get(axis, 1))
    return math.prod(size.values()) * (len(terms) - 1)


def _axes(term: str, rank: int) -> list[str]:
    """A name for each axis: its letter, or its number among those of '...', counted from the last one."""
    before, dots, behind = term.partition("...")
    unnamed = range(rank - len(before) - len(behind), 0, -1) if dots else ()
    return [*before, *map(str, unnamed), *behind]


def _sizes(name: str, types: TensorTypes) -> Optional[tuple[int, ...]]:
    """Sizes of a tensor, None if one is unknown. A dynamic first dimension counts as 1, unless it is the only one."""
    shape = types.shape(name)
    if shape is None:
        return None
    sizes = [1 if i == 0 and len(shape) > 1 and not isinstance(d, int) else d for i, d in enumerate(shape)]
    known = tuple(d for d in sizes if isinstance(d, int))
    return known if len(known) == len(sizes) else None


def layer_weights(node: Node, graph: Graph) -> int:
    """Number of weights of the layer, without the bias."""
    if not node.is_op(*WEIGHTED, *RECURRENT):
        return 0
    first = 1 if node.is_op(*RECURRENT) else 0
    constants = [graph.initializers.get(name) for name in node.inputs[first : first + 2]]
    return sum([math.prod(tensor.dims) for tensor in constants if tensor is not None])


def asked(plan: Iterable[LayerPlan], float_type: str) -> dict[str, str]:
    """The layer argument, layer -> 'fp16' or 'fp32': the listed layers, and those that need FP32 (rule P2). In fp32 the
    GPU has every layer above INT8, because TensorRT is free to choose FP16 for one that is not named."""
    found = {}
    for row in plan:
        wide = row.wide or (float_type == "fp32" and row.precision == FP16 and row.device != ON_DLA)
        if wide or row.listed:
            found[row.name] = "fp32" if wide else "fp16"
    return found
