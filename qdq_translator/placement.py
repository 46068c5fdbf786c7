"""Which tensors of a stripped model are held as INT8 codes, and which layers compute on them: the one reading of the
facts that `restore` and the simulated engine share.

1. A layer runs higher (FP16 or FP32) where the layer argument names it, or where one of its float inputs has no scale
   (TensorRT then has no INT8 implementation for it: fact sheet 1.11, 5.5). Every other layer with a float input is INT8;
   one that lacks only its output's scale computes in INT8 and writes float (fact sheet 5.6).
2. A tensor with a scale is held once, as codes: every consumer reads the rounded values, layers of rule 1 that lack another
   scale too (fact sheet 5.1, rule C2), and so does whoever reads it as a graph output (rule S2 says what that costs).
3. The exception is a layer that has every scale and was asked to run higher all the same: it reads the float values where
   no other layer reads the tensor, because its producer can then write float; so do the tensors that only reach it
   through a Relu or data movement under the same scale. This is what "keep this layer in FP16" buys.
4. Weights are rounded by TensorRT's rule (5.1, 5.2) in INT8 layers only.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

from qdq_translator.emit.calibration_cache import is_usable
from qdq_translator.graph import Graph, Node
from qdq_translator.inference import pass_through
from qdq_translator.precision import float_activations
from qdq_translator.quantizers.constants import WEIGHT_INPUTS
from qdq_translator.types import TensorTypes

_COMMUTING = (*pass_through.DEFAULT_OPS, "Unsqueeze", "Identity", "Dropout", "DepthToSpace", "SpaceToDepth")


@dataclasses.dataclass(frozen=True)
class Placement:
    """held: tensor -> scale, in graph order. higher: names of layers above INT8 that have float inputs. weights: (node
    name, input index) of each weight that an INT8 layer rounds. stay_float: tensors with a scale that rule 3 leaves float."""

    held: dict[str, float]
    higher: frozenset[str]
    weights: frozenset[tuple[str, int]]
    stay_float: tuple[str, ...]


def is_named_higher(node: Node, precisions: Mapping[str, str]) -> bool:
    """True where the layer argument asks for more than INT8; '*' speaks for all layers that it does not name."""
    return precisions.get(node.name, precisions.get("*", "int8")) != "int8"


def graph_tensors(graph: Graph) -> list[str]:
    """Graph inputs, then node outputs, in graph order."""
    return [*graph.inputs, *(name for node in graph.nodes for name in node.outputs if name)]


def place(graph: Graph, types: TensorTypes, scales: Mapping[str, float], precisions: Mapping[str, str]) -> Placement:
    """`scales` may name tensors that the graph does not have; unusable values count as missing."""
    known = {
        name: scales[name]
        for name in graph_tensors(graph)
        if name in scales and is_usable(scales[name]) and types.is_float(name) and not graph.is_constant(name)
    }
    higher: set[str] = set()
    by_choice: set[str] = set()
    weights: set[tuple[str, int]] = set()
    for node in graph.nodes:
        inputs = float_activations(node.reads(), graph, types)
        if not inputs:
            continue
        lacking = any(name not in known for name in inputs)
        if lacking or is_named_higher(node, precisions):
            higher.add(node.name)
            if not lacking:
                by_choice.add(node.name)
            continue
        for index in WEIGHT_INPUTS.get(node.op_type, ()) if node.is_standard else ():
            name = node.input(index)
            if name in graph.initializers and weight_axis(node, index, len(graph.initializers[name].dims)) is not None:
                weights.add((node.name, index))
    free: set[str] = set()
    for name in reversed(list(known)):
        readers = graph.consumers(name) if name not in graph.outputs else []
        if readers and all(r.name in by_choice or _hands_on_free(r, name, known, free) for r in readers):
            free.add(name)
    held = {name: scale for name, scale in known.items() if name not in free}
    return Placement(held, frozenset(higher), frozenset(weights), tuple(n for n in known if n in free))


def _hands_on_free(node: Node, name: str, known: Mapping[str, float], free: set[str]) -> bool:
    """True for a Relu or data movement whose output stays float and would be rounded like its input."""
    out = node.outputs[0]
    return node.is_op(*_COMMUTING) and node.inputs[0] == name and out in free and known[out] == known[name]


def weight_axis(node: Node, index: int, rank: int) -> Optional[int]:
    """The axis of a constant operand that tells output channels apart (fact sheet 5.2); None where TensorRT has none.

    A grouped ConvTranspose has its output channels on axis 1 *and* in blocks along axis 0: see `restore`.
    """
    if node.is_op("Conv") and index == 1:
        return 0
    if node.is_op("ConvTranspose") and index == 1:
        return 1
    if rank != 2:
        return None
    if node.is_op("Gemm"):
        return (0 if node.get("transB", 0) else 1) if index == 1 else (1 if node.get("transA", 0) else 0)
    if node.is_op("MatMul"):
        return index
    return None
