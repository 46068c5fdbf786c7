"""`--equalize`: rescale channels of a float network so that one INT8 scale fits all of them.

A tensor's scale is set by its largest channel; smaller channels lose resolution accordingly. A factor f of a channel
passes through Relu (Clip from 0 without an upper bound), LeakyRelu, PRelu, MaxPool, spatial means, Resize, Add and Concat unchanged (they are homogeneous of
degree 1 in each channel), so multiplying the weights and the bias that make a channel by f and dividing the weights that read it by
f preserves the function (cross-layer equalization: M. Nagel et al., Data-Free Quantization Through Weight Equalization
and Bias Correction, ICCV 2019). A depthwise Conv both reads and makes a channel: its tensors have separate factors.
Factors are powers of two, so that the float network changes by no more than the order of a sum.

- Tensors that such layers join are a set. It is rescaled only if every tensor in it is made by a Conv, ConvTranspose, Gemm or
  a layer of the list above, and read by one. Anything else (a graph output, Clip with a bound, Sigmoid) leaves its set
  unchanged. Channels that a layer joins have one factor.
- f = (largest channel / channel) ** strength, rounded down to a power of two, at most LARGEST. Channels of zeros keep
  factor 1.
- The strength is the one with the least loss on samples not used for the ranges; 0 (no change) is among the choices.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.work import pack
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import RESIZES, VIEWS, Unions, axis, clip_bounds, crops, transposed
from qdq_translator.ir.qparams import INT8_MAX
from qdq_translator.ir.types import TensorTypes
from qdq_translator.simulate.account import Judge
from qdq_translator.simulate.calibration.methods import mse
from qdq_translator.simulate.calibration.observe import observe
from qdq_translator.simulate.evaluation import HERE, Evaluation
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions
from qdq_translator.simulate.inputs import Samples

RULE = "K1"
STRENGTHS = (0.0, 0.5, 0.75, 1.0)
LARGEST = 64.0
MOST_RUNS = 32
LEAST_DB = 0.3
"""Gain on held-out samples below which nothing is changed."""
_TOO_FEW = "it needs 2 samples or more, one to fit and one to judge"
_HOMOGENEOUS = (
    "Relu",
    "LeakyRelu",
    "PRelu",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Identity",
    *RESIZES,
)
Places = Dict[str, np.ndarray]
"""Tensor of a set -> the place of each of its channels among the factors of the set."""


@dataclass(frozen=True)
class Equalized:
    """tensors: that were rescaled. before_db, after_db: SQNR of the worst output on held-out samples. why: if nothing changed."""

    tensors: tuple[str, ...] = ()
    strength: float = 0.0
    before_db: float = 0.0
    after_db: float = 0.0
    why: str = "no factors gain on samples that they were not taken from"

    def report(self, diagnostics: Diagnostics) -> None:
        gain = f"{self.before_db:.1f} to {self.after_db:.1f} dB on samples that the factors were not taken from"
        text = f"--equalize rescaled the channels of {len(self.tensors)} tensors (strength {self.strength:g}): {gain}."
        if not self.tensors:
            text = f"--equalize changed nothing: {self.why}."
        tell = diagnostics.warning if self.why == _TOO_FEW else diagnostics.info
        tell(RULE, text, data={"tensors": list(self.tensors), "strength": self.strength})


def equalize(
    graph: Graph, types: TensorTypes, samples: Samples, progress: Progress = silent, where: Evaluation = HERE
) -> Equalized:
    """Changes the weights of the graph, which are all float32."""
    samples = samples.some(MOST_RUNS)
    sets = equal_sets(graph, types)
    if not sets:
        return Equalized(why="no layers of this network pass factors of channels from one product to the next")
    if samples.runs < 2:
        return Equalized(why=_TOO_FEW)
    key = f"equalize {pack(graph.to_model()).digest} {samples.digest}"
    factors, found = where.engine.remembered(key, lambda: _choose(graph, types, sets, samples, progress, where))
    _apply(graph, sets, factors)
    changed = [
        name
        for places, row in zip(sets, factors)
        if row is not None
        for name in places
        if (row[places[name]] != 1).any()
    ]
    return dataclasses.replace(found, tensors=tuple(changed))


_Factors = List[Optional[np.ndarray]]


def _choose(
    graph: Graph,
    types: TensorTypes,
    sets: Sequence[Places],
    samples: Samples,
    progress: Progress,
    where: Evaluation,
) -> tuple[_Factors, Equalized]:
    """Factors of each set (None for an unchanged set), and their gain."""
    fit = samples.chosen(list(range(0, samples.runs, 2)))
    held_out = samples.chosen(list(range(1, samples.runs, 2)))
    members = [name for places in sets for name in places]
    observed = observe(graph, types, {}, members, fit, progress, by_channel=True, where=where).histograms
    channels = {name: row.channels for name, row in observed.items()}
    reach = [_reach(places, channels) for places in sets]
    judge: Optional[Judge] = None
    found: list[tuple[float, float]] = []
    for strength in STRENGTHS:
        tried = Graph.from_model(graph.to_model())
        _apply(tried, sets, [_factors(row, strength) for row in reach])
        network = _calibrated(tried, types, fit, where)
        if judge is None:
            judge = Judge(network, SimulationOptions(), held_out, None, TensorTypes(tried), where=where)
        judge.network = network
        found.append((judge.of(judge.simulated({})).sqnr_db, strength))
    before = found[0][0]
    after, strength = max(found, key=lambda row: (row[0], -row[1]))
    if after < before + LEAST_DB:
        return [None] * len(sets), Equalized((), 0.0, before, before)
    return [_factors(row, strength) for row in reach], Equalized((), strength, before, after)


def _calibrated(graph: Graph, types: TensorTypes, samples: Samples, where: Evaluation) -> ImplicitNetwork:
    """With the range of the least squared error for every activation but graph outputs."""
    names = [n for n in graph.tensors() if types.is_float(n) and not graph.is_constant(n) and n not in graph.outputs]
    histograms = observe(graph, types, {}, names, samples, where=where).histograms
    scales = {name: mse(row) / INT8_MAX for name, row in histograms.items() if row.amax > 0}
    return ImplicitNetwork(graph.to_model(), scales, {}, frozenset())


def _reach(places: Places, channels: Mapping[str, Optional[np.ndarray]]) -> Optional[np.ndarray]:
    """The largest magnitude at each place; None if that of a tensor is not known or not finite."""
    largest = np.zeros(1 + max(int(own.max()) for own in places.values()), np.float32)
    for name, own in places.items():
        seen = channels.get(name)
        if seen is None or seen.shape != own.shape or not np.isfinite(seen).all():
            return None
        np.maximum.at(largest, own, seen)
    return largest


def _factors(reach: Optional[np.ndarray], strength: float) -> Optional[np.ndarray]:
    """(C,) float32, at least 1."""
    if reach is None or not reach.max(initial=0) > 0:
        return None
    ratio = reach.max() / np.where(reach > 0, reach, reach.max()).astype(np.float64)
    exponent = np.floor(np.log2(np.minimum(ratio**strength, LARGEST)))
    return np.exp2(exponent).astype(np.float32)


# ---------------------------------------------------------------- the graph


def equal_sets(graph: Graph, types: TensorTypes) -> list[Places]:
    """Sets of tensors that can be rescaled, in graph order."""
    unions: Unions[str] = Unions()
    fixed: set[str] = set()
    joins: list[tuple[str, str, int, int]] = []
    names = [name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)]
    for node in graph.nodes:
        found = _joins(node, graph, types)
        joins += found
        for name, other, _, _ in found:
            unions.join(name, other)
        if not found and not _is_product(node, graph):
            fixed.update(name for name in (*node.reads(), *node.outputs) if name)
    fixed.update((*graph.inputs, *graph.outputs), (name for name in names if not _channels(name, types)))
    roots = {unions.root(name) for name in fixed}
    equal: Unions[tuple[str, int]] = Unions()
    for name, other, begin, count in joins:
        for channel in range(count) if unions.root(name) not in roots else ():
            equal.join((name, channel), (other, begin + channel))
    sets: dict[str, list[str]] = {}
    for name in names:
        if unions.root(name) not in roots:
            sets.setdefault(unions.root(name), []).append(name)
    result = []
    for members in sets.values():
        place: dict[tuple[str, int], int] = {}
        roots_of = {name: [equal.root((name, c)) for c in range(_channels(name, types))] for name in members}
        result.append(
            {name: np.array([place.setdefault(root, len(place)) for root in own]) for name, own in roots_of.items()}
        )
    return result


def _channels(name: str, types: TensorTypes) -> int:
    """0 if unknown."""
    shape = types.shape(name) or ()
    return shape[1] if len(shape) > 1 and isinstance(shape[1], int) else 0


def _joins(node: Node, graph: Graph, types: TensorTypes) -> list[tuple[str, str, int, int]]:
    """(tensor, output, its first channel that is the tensor's, number of channels) of a layer that factors pass; [] of another."""
    inputs = [name for name in node.inputs if name and not graph.is_constant(name)]
    shapes = [types.shape(name) or () for name in inputs]
    if len(node.outputs) != 1 or not inputs or min(map(len, shapes)) < 2:
        return []
    output, counts = node.outputs[0], [_channels(name, types) for name in inputs]
    if node.is_op("Concat"):
        begins = np.cumsum([0, *counts])
        whole = len(inputs) == len(node.inputs) and axis(node, graph.opset()) in (1, 1 - len(shapes[0]))
        ends = zip(inputs, begins.tolist(), counts)
        return [(name, output, begin, count) for name, begin, count in ends] if whole else []
    if node.is_op("Add"):
        passes = len(inputs) == 2 and shapes[0] == shapes[1]
    elif node.is_op(*VIEWS):
        sizes = {*shapes[0][2:], *(types.shape(output) or ())[2:]}
        passes = sizes <= {1}
    else:
        relu = node.is_op("Clip") and clip_bounds(node, graph.array) == (0, np.inf)
        passes = (relu or node.is_op(*_HOMOGENEOUS)) and len(inputs) == 1 and not (node.is_op(*RESIZES) and crops(node))
    passes = passes and counts[0] == _channels(output, types)
    return [(name, output, 0, counts[0]) for name in inputs] if passes else []


def _is_product(node: Node, graph: Graph) -> bool:
    """A Conv of one group or depthwise, a ConvTranspose of one group or a Gemm, with weights and bias that can be edited."""
    if not node.is_op("Conv", "ConvTranspose", "Gemm") or not all(map(graph.is_constant, node.inputs[1:])):
        return False
    weight = graph.array(node.input(1))
    if weight is None or weight.dtype != np.float32 or graph.is_constant(node.inputs[0]) or transposed(node, 0):
        return False
    group = int(node.get("group", 1))
    return group == 1 or (node.is_op("Conv") and weight.shape[1] == 1 and weight.shape[0] == group)


def _axes(node: Node) -> tuple[int, int]:
    """Axes of the weight of a product: of the channels that it makes, and that it reads."""
    if node.is_op("Conv"):
        return 0, int(int(node.get("group", 1)) == 1)
    return (0, 1) if transposed(node, 1) else (1, 0)


def _apply(graph: Graph, sets: Sequence[Places], factors: Sequence[Optional[np.ndarray]]) -> None:
    of_tensor = {
        name: row[own] for places, row in zip(sets, factors) if row is not None for name, own in places.items()
    }
    for node in list(graph.nodes):
        if not _is_product(node, graph):
            continue
        made, read = of_tensor.get(node.outputs[0]), of_tensor.get(node.inputs[0])
        weight = graph.array(node.inputs[1])
        assert weight is not None
        makes, reads = _axes(node)
        if read is not None:
            weight = _scaled(weight, 1 / read, reads)
        if made is not None:
            weight = _scaled(weight, made, makes)
            bias = graph.array(node.input(2)) if node.input(2) else None
            if bias is not None:
                graph.set_input(
                    node, 2, graph.add_initializer(graph.unique_name(f"{node.input(2)}_equal"), bias * made)
                )
        if made is not None or read is not None:
            graph.set_input(node, 1, graph.add_initializer(graph.unique_name(f"{node.inputs[1]}_equal"), weight))


def _scaled(weight: np.ndarray, factors: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * weight.ndim
    shape[axis] = -1
    return (weight * factors.astype(np.float32).reshape(shape)).astype(np.float32)
