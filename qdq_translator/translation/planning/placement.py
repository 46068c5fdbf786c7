"""Select the layers of a stripped model that compute in INT8 and the tensors that are rounded to quantized values. A
pure function of the graph, the scales, the layer argument and the planned layers. With the plan's own layer argument
the INT8 layers are those of the plan; a test checks that on every network.

1. A layer is INT8 if every float tensor that it reads or produces has a scale, the layer argument does not request more
   (fact 1.11, 5.5), and no device limit keeps it above INT8 (`planned`). Every other layer with float data runs in
   higher precision (FP16 or FP32); so does the last multiplying layer before a graph output without a scale (fact 5.6).
2. A tensor with a scale is rounded once, for all readers (fact 5.1), if an INT8 layer needs its quantized values. A
   tensor that no INT8 layer reads stays float: its producer can write float. A Relu or data movement needs no quantized
   values if its own output stays float and would be rounded by the same scale. A graph output with a scale is rounded
   if its producer is INT8 (for the cost see rule S2).
3. Fusion (fact 5.8): an INT8 Conv, ConvTranspose, Gemm or MatMul fuses with the Add, and the Add with the Relu or Clip,
   that is the only reader of its output. It is not known whether a scale on the tensor between them still applies.
   `fuse` True: no, the tensor is not rounded (documented for NVIDIA's DLA software); False: yes. The Add of a constant
   is a bias (fact 5.7), whose input is never rounded. If two such layers meet in an Add, only one of them fuses: the
   one with the unary marker (rule S9), else the later one.
4. Weights are rounded by TensorRT's rule (fact 5.1, 5.2) in INT8 layers only.

`explicit` does the same for a Q/DQ model written by `restore`: only the pairs at a layer's inputs decide, and every
pair rounds except those read only by layers of the layer argument. There is no pair before a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Iterator, Mapping, Sequence

from qdq_translator.core.formats.calibration_cache import is_usable
from qdq_translator.core.hypotheses import BETWEEN, GPU_INT8, RANGES
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import (
    CLAMPS,
    ELEMENTWISE,
    WEIGHT_INPUTS,
    WEIGHTED,
    has_one_scale,
    output_channels,
)
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.precision import FP16, INT8, ON_GPU, LayerPlan, float_activations, float_ends

COMMUTING = where(traits="swaps")
"""Rounding before or after them is the same if input and output have one scale."""


@dataclass(frozen=True)
class Placement:
    """Where the engine rounds. held: rounded tensor -> scale, in graph order. int8, higher: names of the layers in
    INT8, and of those above it. weights: (node name, input index) of each weight that an INT8 layer rounds. stay_float:
    tensors with a scale that no INT8 layer reads. fused: tensors with a scale that a fusion does not round. open: those
    of `fused` whose rounding would change the result (not before a bias or a clamp with the same scale)."""

    held: dict[str, float]
    int8: frozenset[str] = frozenset()
    higher: frozenset[str] = frozenset()
    weights: frozenset[tuple[str, int]] = frozenset()
    stay_float: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def by_device(plan: Sequence[LayerPlan], other: Collection[str] = ()) -> dict[str, str]:
    """Layer -> the precision on its device, for layers whose precision does not follow from scales and layer argument
    alone. other: hypotheses to take at their other end."""
    found: dict[str, str] = {
        row.name: row.precision for row in plan if row.limited or (row.precision == INT8 and row.device != ON_GPU)
    }
    for row in plan:
        if BETWEEN in other and BETWEEN in row.hypotheses:
            found[row.name] = FP16
        elif {GPU_INT8, RANGES}.intersection(other, row.hypotheses):
            found[row.name] = INT8
    return found


def by_ranges(
    plan: Sequence[LayerPlan], scales: Mapping[str, float], other: Collection[str], unary: Collection[str]
) -> Mapping[str, float]:
    """`scales`; if `other` has hypothesis `ranges`, tensors that must share a scale have the largest one of them."""
    found = dict(scales)
    for row in plan if RANGES in other else ():
        if RANGES in row.hypotheses:
            ends = row.inputs if row.op in ELEMENTWISE else (*row.inputs, *row.outputs)
            known = [name for name in ends if name in found and name not in unary]
            found.update(dict.fromkeys(known, max(found[name] for name in known)))
    return found


def place(
    graph: Graph,
    types: TensorTypes,
    scales: Mapping[str, float],
    precisions: Mapping[str, str],
    fuse: bool = False,
    explicit: bool = False,
    unary: frozenset[str] = frozenset(),
    planned: Mapping[str, str] = {},
    by_inputs: bool = False,
) -> Placement:
    """Place the roundings of a network; for `fuse` and `explicit` see the module. `scales` may name tensors that are
    not in the graph; unusable values count as missing. `unary`: tensors whose scale is a unary marker. `planned`: layer
    -> precision on its device if scales and layer argument allow INT8 (see `by_device`). by_inputs: as under strong
    typing, a multiplying layer is INT8 if its inputs have scales; the Add or clamp that it fuses with needs no scale on
    that input."""
    known = _scaled(graph, types, scales)
    asked = precisions.get("*", "int8")  # for all layers that are not named
    wanted = {
        node.name
        for node in graph.nodes
        if planned.get(node.name) != FP16 and precisions.get(node.name, asked) == "int8"
    }
    layers, able = _allowed(graph, types, known, wanted, planned, explicit, by_inputs)
    int8 = able & wanted
    # readers of quantized values: INT8 layers; with pairs all layers but those above INT8 by the layer argument alone
    needing = {node.name for node in graph.nodes} - (able - wanted) if explicit else int8
    free = _stay_float(graph, int8, needing, known, explicit)
    inside = _fusions(graph, int8, known, free, fuse and not explicit, unary)
    fused = tuple(name for name in known if name in inside and name not in free)
    return Placement(
        {name: scale for name, scale in known.items() if name not in free and name not in inside},
        frozenset(int8),
        frozenset(layers - int8),
        frozenset(_weights(graph, int8)),
        tuple(filter(free.__contains__, known)),
        fused,
        tuple(filter(inside.get, fused)),
    )


def _scaled(graph: Graph, types: TensorTypes, scales: Mapping[str, float]) -> dict[str, float]:
    """Float activations with a usable scale, in graph order."""
    usable = [name for name in graph.tensors() if name in scales and is_usable(scales[name])]
    return {name: scales[name] for name in float_activations(usable, graph, types)}


def _allowed(
    graph: Graph,
    types: TensorTypes,
    known: Mapping[str, float],
    wanted: set[str],
    planned: Mapping[str, str],
    explicit: bool,
    by_inputs: bool,
) -> tuple[set[str], set[str]]:
    """Layers with a precision, and those of them whose scales allow INT8. wanted: layers that neither device nor layer
    argument keeps above INT8."""
    layers: set[str] = set()
    kept: set[str] = set()  # above INT8 by their device or the layer argument alone
    int8: set[str] = set()
    for node in graph.nodes:
        inputs, outputs = float_ends(node, graph, types)
        if not inputs and planned.get(node.name) == INT8:  # a comparison, which has no float output
            inputs = float_activations(node.reads(), graph, types)
        if not inputs:
            continue
        layers.add(node.name)
        ends = inputs if explicit or (by_inputs and node.is_op(*WEIGHTED)) else (*inputs, *outputs)
        lacking = [name for name in ends if name not in known]
        if not lacking or (by_inputs and _maker_fused_with(graph, node, lacking) in int8):
            (int8 if node.name in wanted else kept).add(node.name)
    return layers, int8 | kept


def _maker_fused_with(graph: Graph, node: Node, lacking: Sequence[str]) -> str:
    """The multiplying layer that an Add or clamp fuses with, if the only tensor without a scale is the one between
    them, else ''."""
    maker = graph.producer.get(lacking[0]) if len(lacking) == 1 and node.is_op("Add", *CLAMPS) else None
    alone = maker is not None and maker.is_op(*WEIGHTED) and graph.only_consumer(lacking[0]) is node
    return maker.name if maker is not None and alone else ""


def _weights(graph: Graph, int8: set[str]) -> Iterator[tuple[str, int]]:
    """(node name, input index) of every weight of an INT8 layer."""
    for node in graph.nodes:
        for index in WEIGHT_INPUTS.get(node.op_type, ()) if node.is_standard and node.name in int8 else ():
            stored = graph.initializers.get(node.input(index))
            rank = 0 if stored is None else len(stored.dims)
            # constants of batched products have one scale (fact 5.2)
            if rank and (output_channels(node, index, rank) or has_one_scale(node, index, rank, None)):
                yield node.name, index


def _stay_float(
    graph: Graph, int8: set[str], needing: set[str], known: Mapping[str, float], explicit: bool
) -> set[str]:
    """Rule 2: tensors with a scale whose quantized values no layer needs. needing: layers that need those of their
    inputs."""
    free: set[str] = set()
    for name in reversed(list(known)):
        producer, readers = graph.producer.get(name), graph.consumers(name)
        if name in graph.outputs:
            rounded = explicit or (producer is not None and producer.name in int8)
        else:
            rounded = explicit and not readers
        # a Relu or data movement needs none if its output stays float and has the scale of its input
        if not rounded and all(
            r.is_op(*COMMUTING)
            and r.inputs[0] == name
            and r.outputs[0] in free
            and known.get(r.outputs[0]) == known[name]
            for r in readers
            if r.name in needing
        ):
            free.add(name)
    return free


def _fusions(
    graph: Graph, int8: set[str], known: Mapping[str, float], free: set[str], fuse: bool, unary: frozenset[str]
) -> dict[str, bool]:
    """Rule 3: tensor with a scale inside a fusion -> whether rounding it would change the result."""
    fused: dict[str, bool] = {}
    joining = ("bias", "sum", "clamp") if fuse else ("bias",)
    left = set(int8)
    # backward: if two products meet in an Add, the later one fuses with it; those with a unary marker come first
    products = [n for n in graph.nodes_reversed if n.is_op(*WEIGHTED) and n.name in int8]
    for last in sorted(products, key=lambda n: n.outputs[0] not in unary):
        name, how = last.outputs[0], ""
        while how != "clamp" and (reader := graph.only_consumer(name)) is not None and reader.name in left:
            how = _joins(reader, name, last, graph)
            if how not in joining:
                break
            left.remove(reader.name)
            out = reader.outputs[0]
            hidden = how == "clamp" and known.get(name) == known.get(out) and out not in free
            fused[name] = how != "bias" and not hidden
            name, last = out, reader if how == "sum" else last
    return fused


def _joins(reader: Node, name: str, last: Node, graph: Graph) -> str:
    """The part that `reader` of the tensor `name` can have in a fusion: 'bias', 'sum' or 'clamp'; '' if it is not
    fused. last: the product, or the sum that is fused with it (one sum per fusion)."""
    if reader.is_op(*CLAMPS) and reader.inputs[0] == name:
        return "clamp"
    if not reader.is_op("Add"):
        return ""
    if graph.is_constant(last.input(1)) and any(map(graph.is_constant, reader.inputs)):
        return "bias"
    return "sum" if len(set(reader.inputs)) == 2 and last.is_op(*WEIGHTED) else ""
