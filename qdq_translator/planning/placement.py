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
   that is the only reader of its output. Whether a scale on the tensor between them then applies is not settled. `fuse`
   True: no, the tensor passes unrounded (documented for NVIDIA's DLA software); False: yes. The Add of a constant is a
   bias (fact 5.7), which passes unrounded either way. If two such layers meet in an Add, only one of them fuses: the
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
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import CLAMPS, ELEMENTWISE, WEIGHT_INPUTS, WEIGHTED, output_channels
from qdq_translator.ir.types import TensorTypes
from qdq_translator.scales.inference import pass_through
from qdq_translator.targets.precision import FP16, INT8, ON_GPU, LayerPlan, float_activations, float_ends

COMMUTING = (*pass_through.DEFAULT_OPS, "Unsqueeze", "Identity", "Dropout", "DepthToSpace", "SpaceToDepth")
"""Rounding before or after them is the same where both sides have one scale."""


@dataclass(frozen=True)
class Placement:
    """held: rounded tensor -> scale, in graph order. int8, higher: names of the layers in INT8, and of those above it.
    weights: (node name, input index) of each weight that an INT8 layer rounds. stay_float: tensors with a scale that no
    INT8 layer reads. fused: tensors with a scale that pass a fusion unrounded. open: fused ones whose rounding would
    change the result (a bias and a clamp under one scale hide it)."""

    held: dict[str, float]
    int8: frozenset[str] = frozenset()
    higher: frozenset[str] = frozenset()
    weights: frozenset[tuple[str, int]] = frozenset()
    stay_float: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def by_device(plan: Sequence[LayerPlan], other: Collection[str] = ()) -> dict[str, str]:
    """Layer -> the precision that its device gives it, of those that rest on more than scales and layer argument.

    other: hypotheses that hold at their other end.
    """
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
    plan: Sequence[LayerPlan], scales: Mapping[str, float], other: Collection[str], unary: Collection[str] = ()
) -> Mapping[str, float]:
    """`scales`, with the largest of them for all tensors that must share it if hypothesis `ranges` holds at its other
    end.
    """
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
    """Place the roundings of a network; see the module for `fuse` and `explicit`. `scales` may name tensors not in the
    graph; unusable values count as missing. `unary`: tensors whose scale is a unary marker. `planned`: layer ->
    precision on its device if scales and layer argument allow INT8 (see `by_device`). by_inputs: as under strong
    typing, a multiplying layer is INT8 if its inputs have scales; the Add or clamp that it fuses with needs none on
    that input."""
    usable = (name for name in graph.tensors() if name in scales and is_usable(scales[name]))
    known = {name: scales[name] for name in usable if types.is_float(name) and not graph.is_constant(name)}
    int8: set[str] = set()
    higher: set[str] = set()
    by_choice: set[str] = set()
    for node in graph.nodes:
        inputs, outputs = float_ends(node, graph, types)
        limit = planned.get(node.name)
        if not inputs and limit == INT8:  # a comparison: it has no float output
            inputs = float_activations(node.reads(), graph, types)
        if not inputs:
            continue
        ends = inputs if explicit or (by_inputs and node.is_op(*WEIGHTED)) else (*inputs, *outputs)
        lacking = [name for name in ends if name not in known]
        fuses = by_inputs and len(lacking) == 1 and _fuses_with_maker(graph, node, lacking[0], int8)
        asked = precisions.get(node.name, precisions.get("*", "int8"))  # '*': all layers that are not named
        if limit != FP16 and asked == "int8" and (fuses or not lacking):
            int8.add(node.name)
        else:
            higher.add(node.name)
            by_choice.update([node.name] if fuses or not lacking else [])
    # who reads codes: layers in INT8; of pairs, all but the layers that only the layer argument keeps above
    needing = {node.name for node in graph.nodes} - by_choice if explicit else int8
    free = _stay_float(graph, int8, needing, known, explicit)
    fused = _fusions(graph, int8, known, free, fuse and not explicit, unary)
    held = {name: scale for name, scale in known.items() if name not in free and name not in fused}
    return Placement(
        held,
        frozenset(int8),
        frozenset(higher),
        frozenset(_weights(graph, int8)),
        tuple(n for n in known if n in free),
        tuple(n for n in known if n in fused and n not in free),
        tuple(n for n in known if n not in free and fused.get(n)),
    )


def _fuses_with_maker(graph: Graph, node: Node, tensor: str, int8: set[str]) -> bool:
    """True for an Add or clamp that alone reads what a multiplying layer in INT8 makes."""
    maker = graph.producer.get(tensor) if node.is_op("Add", *CLAMPS) else None
    found = maker is not None and maker.is_op(*WEIGHTED) and maker.name in int8
    return found and graph.only_consumer(tensor) is node


def _weights(graph: Graph, int8: set[str]) -> Iterator[tuple[str, int]]:
    """Layers in INT8 and their inputs that are weights."""
    for node in graph.nodes:
        for index in WEIGHT_INPUTS.get(node.op_type, ()) if node.is_standard and node.name in int8 else ():
            stored = graph.initializers.get(node.input(index))
            if stored is not None and output_channels(node, index, len(stored.dims)):
                yield node.name, index


def _stay_float(
    graph: Graph, int8: set[str], needing: set[str], known: Mapping[str, float], explicit: bool
) -> set[str]:
    """Rule 2: tensors with a scale whose codes nobody needs. needing: layers that need the codes of what they read."""
    free: set[str] = set()
    for name in reversed(list(known)):
        producer, readers = graph.producer.get(name), graph.consumers(name)
        if name in graph.outputs:
            rounded = explicit or (producer is not None and producer.name in int8)
        else:
            rounded = explicit and not readers
        # a Relu or data movement needs none if its output stays float and would be rounded like its input
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
    taken: set[str] = set()
    # backwards, so that of two products that meet in an Add the later one gets it; markers before all
    products = [n for n in graph.nodes_reversed if n.is_op(*WEIGHTED) and n.name in int8]
    for node in sorted(products, key=lambda n: n.outputs[0] not in unary):
        name = node.outputs[0]
        while True:
            reader = graph.only_consumer(name)
            if reader is None or reader.name not in int8 or reader.name in taken:
                break
            is_clamp = reader.is_op(*CLAMPS) and reader.inputs[0] == name
            is_bias = (
                reader.is_op("Add") and graph.is_constant(node.input(1)) and any(map(graph.is_constant, reader.inputs))
            )
            is_sum = reader.is_op("Add") and len(set(reader.inputs)) == 2 and not is_bias and node.is_op(*WEIGHTED)
            if not (is_bias or (fuse and (is_sum or is_clamp))):
                break
            taken.add(reader.name)
            out = reader.outputs[0]
            fused[name] = not is_bias and not (is_clamp and known.get(name) == known.get(out) and out not in free)
            if is_clamp:
                break
            name = out
            if is_sum:
                node = reader  # one sum a fusion
    return fused
