"""Insert Q/DQ pairs where implicit quantization would have fused: a network for strong typing (TensorRT 11).

`translate` reads, folds and assigns scales; here the pairs are added again, at other places than in the export:

1. Inputs of multiplying layers (Conv, ConvTranspose, Gemm, MatMul), of pooling and element-wise layers, and both
   branches of Add and Concat: one pair after the tensor, shared by all readers (TensorRT guide, "Q/DQ layer-placement
   recommendations": quantize all inputs of weighted operations and the residual input of skip connections). On a DLA
   the branches of a Concat have the scale of its output (fact 5.9), and those of a sum the larger of their scales (fact
   5.11): a branch with no other reader has its pair with that scale, any other branch has a second pair.
2. No pair inside a fusion: between a product and its bias, the Add that it fuses with, or a Relu or Clip (the same
   guide: do not simulate BatchNormalization and ReLU fusions), and on a GPU between the two halves of SiLU and
   HardSwish.
3. Data movement reads float; the pair follows it, next to the layer that computes: a DQ before Reshape, Slice or
   Transpose did not build on Orin (TensorRT#4832, user report). Rounding before or after data movement is the same.
4. A multiplying layer is INT8 if all its inputs have scales, and so is the Add that it fuses with if the other input
   has one. Its result for a graph output stays float.
5. Weights are INT8 initializers with one DQ per output channel, with their trained values (rule W1). A constant operand
   of a MatMul that is not a matrix has one scale. Biases stay float.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence, Tuple

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import (
    CLAMPS,
    ELEMENTWISE,
    WEIGHT_INPUTS,
    OutputChannels,
)
from qdq_translator.translation.ir.qparams import INT8_MAX
from qdq_translator.translation.planning.placement import Placement, place
from qdq_translator.translation.planning.translation import Translated
from qdq_translator.translation.qdq.pairs import pair, weight_scales
from qdq_translator.translation.quantizers.dialects.pairs import linear
from qdq_translator.translation.scales.network import TrainedWeight
from qdq_translator.translation.targets.precision import FP16, KEPT

MOVES = frozenset(where(data="view permute same part repeat drop"))
"""Data movement in front of which no DQ is placed."""
_GATES = ("Sigmoid", "HardSigmoid")
_SUMS = ("Add", "Sub", "Sum", "Max", "Min")
_ONE_SCALE = ("E1", "K3")
_CLOSE = 1e-5

Grid = Tuple[float, Optional[int]]
"""Scale and zero point of a pair: None for symmetric int8, else uint8 (`--asymmetric keep`)."""


@dataclass
class Placed:
    """The network with its pairs, all in float32. scales: initializer -> the float32 scales of a pair or weight. pairs:
    tensor -> its scale. zero_points: those of them that are uint8. weights: weight -> nodes that read it in INT8.
    fused: tensor with a scale and without a pair -> why. int8: nodes that compute in INT8."""

    graph: Graph
    scales: dict[str, np.ndarray]
    pairs: dict[str, float]
    weights: dict[str, list[str]]
    fused: dict[str, str]
    int8: frozenset[str]
    zero_points: dict[str, int] = field(default_factory=dict)


def place_pairs(translated: Translated, graph: Graph) -> Placed:
    """Place Q/DQ pairs. graph: a copy of the translation's graph, which is changed. The places are described in the
    module."""
    scales = translated.tensor_scales
    # if only a scale is missing, `place` decides by the readers of the layer (rule 4)
    above = (row for row in translated.plan if row.precision == FP16)
    shared = _with_one_scale(translated)
    precisions = {row.name: FP16 for row in above if (not row.missing or row.reason == KEPT) and row.name not in shared}
    unary = frozenset(n for n, s in translated.scales.items() if s.origin.rule == "S9")
    known = {name: value for name, value in scales.items() if name not in unary}
    placement = place(graph, translated.types, known, precisions, fuse=True, by_inputs=True)
    work = _Work(translated, graph, placement, known)
    work.weights()
    work.activations()
    return work.placed


def _with_one_scale(translated: Translated) -> frozenset[str]:
    """Layers in FP16 on the DLA only because their branches have different scales, which rule 1 gives one."""
    verdicts = translated.dla.layers if translated.dla is not None else ()
    return frozenset(
        v.name
        for v in verdicts
        if v.op in ("Concat", *_SUMS) and v.findings and all(f.limit in _ONE_SCALE for f in v.findings)
    )


class _Work:
    def __init__(self, translated: Translated, graph: Graph, placement: Placement, known: Mapping[str, float]) -> None:
        self.translated, self.graph, self.placement = translated, graph, placement
        self.for_dla = bool(translated.hardware.generation)
        self.known = known
        fused = dict.fromkeys(placement.fused, "inside the fusion of a product with what follows")
        self.placed = Placed(graph, {}, {}, {}, fused, placement.int8)
        self._zeros: dict[tuple[int, Optional[int]], str] = {}
        self._written: dict[tuple[str, float], str] = {}

    # ---------------------------------------------------------------- activations

    def activations(self) -> None:
        """Pairs behind tensors, in graph order (rules 1 to 3)."""
        held, graph = self.placement.held, self.graph
        before: dict[str, list[Grid]] = {}  # ranges that a tensor must pass because its source had them
        for name in list(held):
            grid, fusion = self._grid(name), self._fusion(name)
            if fusion:
                self.placed.fused[name] = fusion
                continue
            steps = [value for value in before.get(name, ()) if value != grid]
            readers = []
            for reader in graph.consumers(name):
                if reader.is_op(*MOVES) and reader.inputs[0] == name and any(reader.outputs):
                    before.update({out: [*steps, grid] for out in reader.outputs})
                else:
                    readers.append(reader)
            if readers or _is_made_output(graph, name):
                self._tensor(name, grid, steps, readers)
            else:
                self.placed.fused[name] = "the pair is behind the data movement that reads it (rule 3)"

    def _grid(self, name: str) -> Grid:
        """Scale of a tensor; a tensor passed on by data movement has that of its source."""
        scales = self.translated.scales
        scale, origin = self.known[name], scales[name].origin
        while origin.rule == "S3" and origin.source in scales and scales[origin.source].value == scale:
            origin = scales[origin.source].origin
        if origin.grid is None or self.translated.options.asymmetric != "keep":
            return scale, None
        step, zero = origin.grid
        widened = step * max((255 - zero) / INT8_MAX, zero / 128)
        covers = abs(widened / scale - 1) < 1e-4  # no rule changed the scale since
        return origin.grid if covers else (scale, None)

    def _fusion(self, name: str) -> str:
        """Reason why `name` has no pair; '' if it has one (rule 2; products are `Placement.fused`)."""
        graph = self.graph
        producer, reader = graph.producer.get(name), graph.only_consumer(name)
        if producer is None or reader is None or name in graph.outputs or reader.name not in self.placement.int8:
            return ""
        if producer.is_op(*ELEMENTWISE) and reader.is_op(*CLAMPS) and reader.outputs[0] in self.placement.held:
            return f"{reader.op_type} '{reader.name}' alone reads it and fuses with {producer.op_type}"
        explicit = self.translated.scales[name].explicit
        if self.for_dla or explicit or not (producer.is_op(*_GATES) and reader.is_op("Mul")):
            return ""
        return (
            f"{producer.op_type} and Mul '{reader.name}' are one layer" if producer.inputs[0] in reader.inputs else ""
        )

    def _tensor(self, name: str, grid: Grid, steps: Sequence[Grid], readers: Sequence[Node]) -> None:
        """A pair for all `readers`. steps: further ranges that the values must pass first."""
        graph = self.graph
        is_output = _is_made_output(graph, name)
        apart = {} if is_output else self._shared(grid, readers)
        if apart and len(apart) == len(readers) and len(set(apart.values())) == 1:
            grid, apart = next(iter(apart.values())), {}
        source = graph.before_output(name) if is_output else name
        for value in steps:
            source = self._pair(name, source, value)
        source = self._pair(name, source, grid, name if is_output else "")
        self.placed.pairs[name] = grid[0]
        if grid[1] is not None:
            self.placed.zero_points[name] = grid[1]
        for reader in readers:
            own = self._pair(name, source, apart[reader.name]) if reader.name in apart else source
            graph.replace_use(reader, name, own)

    def _pair(self, name: str, source: str, grid: Grid, target: str = "") -> str:
        graph = self.graph
        target = target or graph.unique_name(f"{name}_dequantized")
        graph.insert_behind(source, pair(graph, source, target, name, self._parameters(name, grid)))
        return target

    def _shared(self, grid: Grid, readers: Sequence[Node]) -> dict[str, Grid]:
        """Where a DLA has one scale for several inputs: reader that needs another scale than the tensor's own, because
        its inputs share one -> that scale. Branches of a sum with different zero points have none."""
        found = {}
        for reader in readers if self.for_dla else ():
            wanted = grid
            if reader.is_op("Concat") and reader.outputs[0] in self.known:
                wanted = self._grid(reader.outputs[0])
            elif reader.is_op(*_SUMS):
                branches = [n for n in reader.inputs if n in self.known and n not in self.placed.fused]
                same = len(set(map(self._grid, branches))) == 1
                wanted = grid if same else (max(self.known[n] for n in branches), None)
            if wanted != grid and reader.name in self.placement.int8:
                found[reader.name] = wanted
        return found

    def _parameters(self, base: str, grid: Grid) -> list[str]:
        key = (base, grid[0])
        if key not in self._written:
            self._written[key] = self._scale(base, np.asarray(grid[0], np.float32))
        return [self._written[key], self._zero(0, grid[1])]

    def _scale(self, base: str, values: np.ndarray) -> str:
        name = self.graph.constant(f"{base}_scale", values)
        self.placed.scales[name] = values
        return name

    def _zero(self, count: int, value: Optional[int] = None) -> str:
        """The zero point of `count` channels; 0: per tensor. value: uint8, None: int8 and 0."""
        key = (count, value)
        if key not in self._zeros:
            zeros = np.full((count,) if count else (), value or 0, np.int8 if value is None else np.uint8)
            wanted = f"zero_points_{count}" if count else "zero_point" if value is None else f"zero_point_{value}"
            self._zeros[key] = self.graph.constant(wanted, zeros)
        return self._zeros[key]

    # ---------------------------------------------------------------- weights

    def weights(self) -> None:
        """INT8 initializers behind one DQ (rule 5). Layers that share a weight along the same axis share both."""
        graph = self.graph
        done: dict[tuple[str, Optional[int]], str] = {}
        for node in list(graph.nodes):
            if node.name not in self.placement.int8 or not node.is_standard:
                continue
            for index in WEIGHT_INPUTS.get(node.op_type, ()):
                name = node.input(index)
                tensor = graph.initializers.get(name)
                if tensor is None:
                    continue
                channels = operators.output_channels(node, index, len(tensor.dims))
                axis = None if channels is None else channels.axis
                if (name, axis) not in done:
                    done[name, axis] = self._weight(name, axis)
                self.placed.weights.setdefault(name, []).append(node.name)
                graph.set_input(node, index, done[name, axis])
        for (name, _), made in done.items():
            if name in graph.initializers and not graph.is_used(name):
                graph.drop_initializer(name)
                graph.rename_output(graph.producer[made], made, name)

    def _weight(self, name: str, axis: Optional[int]) -> str:
        graph = self.graph
        values = graph.array(name)
        assert values is not None
        codes, scale = quantized_weight(values, axis, self.translated.trained.get(name))
        stored = graph.constant(f"{name}_quantized", codes)
        parameters = [self._scale(name, scale), self._zero(scale.size if axis is not None else 0)]
        target = graph.unique_name(f"{name}_dequantized")
        graph.insert_after(linear(graph, "DequantizeLinear", [stored, *parameters], target, name, axis), None)
        return target


def quantized_weight(
    values: np.ndarray, axis: Optional[int], trained: Optional[TrainedWeight] = None
) -> tuple[np.ndarray, np.ndarray]:
    """(int8 values of the shape of `values`, float32 scales (C,) along `axis`, or () without one).

    Uses the trained quantized values if they are known and one scale per channel reproduces the weight (relative error
    1e-5 of the channel's largest); else TensorRT's rule `max|w| / 127` (fact 5.2). Channels of zeros have scale 1."""
    channels = OutputChannels(axis) if axis is not None else None

    def by_row(tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(1, -1) if channels is None else channels.rows(tensor)

    rows, codes = by_row(values).astype(np.float32), None
    if trained is not None and trained.codes is not None and tuple(trained.codes.dims) == values.shape:
        codes = by_row(trained.codes.array())
    scale = None if codes is None else _trained_scales(rows, codes)
    if scale is None or codes is None:
        scale = weight_scales(rows, 0)
        codes = np.clip(np.rint(rows / scale[:, None]), -INT8_MAX, INT8_MAX)
    else:
        codes = codes * np.sign(scale)[:, None]
        scale = np.abs(scale)
    codes = codes.astype(np.int8)
    if channels is None:
        return codes.reshape(values.shape), scale.reshape(())
    return np.ascontiguousarray(channels.unrolled(codes, values.shape)), scale


def _trained_scales(rows: np.ndarray, codes: np.ndarray) -> Optional[np.ndarray]:
    """Signed float32 scales that map `codes` to `rows`; None if there are none."""
    place = np.abs(codes.astype(np.int16)).argmax(axis=1)[:, None]
    largest = np.take_along_axis(codes, place, 1)[:, 0].astype(np.float32)
    value = np.take_along_axis(rows, place, 1)[:, 0]
    scale = np.where(largest != 0, value / np.where(largest != 0, largest, 1), 1).astype(np.float32)
    scale[scale == 0] = 1
    amax = np.abs(rows).max(axis=1, initial=0)
    for one in (scale, np.nextafter(scale, np.float32(0)), np.nextafter(scale, np.copysign(np.float32(np.inf), scale))):
        same = (codes * one[:, None] == rows).all(axis=1)
        scale = np.where(same, one, scale)
    error = np.abs(codes * scale[:, None] - rows).max(axis=1, initial=0)
    return scale if bool(np.all(error <= _CLOSE * amax)) else None


def _is_made_output(graph: Graph, name: str) -> bool:
    """True for a graph output that a node makes. A graph input that is also an output leaves the network unrounded."""
    return name in graph.outputs and name in graph.producer
