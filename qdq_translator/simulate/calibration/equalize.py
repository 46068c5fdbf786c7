"""`--equalize`: rescale channels of a float network so that one INT8 scale fits all of them.

A tensor's scale is set by its largest channel; smaller channels lose resolution accordingly. A factor f of a channel
passes through Relu, LeakyRelu, PRelu, MaxPool, spatial means and Adds unchanged (they are homogeneous of degree 1 in
each channel), so multiplying the weights and the bias that make a channel by f and dividing the weights that read it by
f preserves the function (cross-layer equalization: M. Nagel et al., Data-Free Quantization Through Weight Equalization
and Bias Correction, ICCV 2019). A depthwise Conv both reads and makes a channel: its tensors have separate factors.
Factors are powers of two, so that the float network changes by no more than the order of a sum.

- A set of tensors with common factors is rescaled only if every tensor in it is made by a Conv, ConvTranspose or a
  layer of the list above, and read by a Conv or such a layer. Anything else (a graph output, Clip with a bound,
  Sigmoid, Concat) leaves its set unchanged.
- f = (largest channel / channel) ** strength, rounded down to a power of two, at most LARGEST. Channels of zeros keep
  factor 1.
- The strength is the one with the least loss on samples not used for the ranges; 0 (no change) is among the choices.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import List, Optional, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.progress import Progress, silent
from qdq_translator.core.workers.packing import pack
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import Unions
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
LEAST_DB = 0.1
"""Gain on held-out samples below which nothing is changed."""
_HOMOGENEOUS = (
    "Relu",
    "LeakyRelu",
    "PRelu",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Add",
    "Identity",
)


@dataclass(frozen=True)
class Equalized:
    """tensors: that were rescaled. before_db, after_db: SQNR of the worst output on held-out samples."""

    tensors: tuple[str, ...]
    strength: float
    before_db: float
    after_db: float

    def report(self, diagnostics: Diagnostics) -> None:
        gain = f"{self.before_db:.1f} to {self.after_db:.1f} dB on samples that the factors were not taken from"
        text = f"--equalize rescaled the channels of {len(self.tensors)} tensors (strength {self.strength:g}): {gain}."
        if not self.tensors:
            text = "--equalize changed nothing: no factors gain on samples that they were not taken from."
        diagnostics.info(RULE, text, data={"tensors": list(self.tensors), "strength": self.strength})


def equalize(
    graph: Graph, types: TensorTypes, samples: Samples, progress: Progress = silent, where: Evaluation = HERE
) -> Equalized:
    """Changes the weights of the graph, which are all float32. With one sample it is judged on the sample that it is fitted to."""
    samples = samples.some(MOST_RUNS)
    sets = equal_sets(graph, types)
    if not sets:
        return Equalized((), 0.0, 0.0, 0.0)
    key = f"equalize {pack(graph.to_model()).digest} {samples.digest}"
    factors, found = where.engine.remembered(key, lambda: _choose(graph, types, sets, samples, progress, where))
    _apply(graph, sets, factors)
    changed = [name for names, row in zip(sets, factors) if row is not None and (row != 1).any() for name in names]
    return dataclasses.replace(found, tensors=tuple(changed))


_Factors = List[Optional[np.ndarray]]


def _choose(
    graph: Graph,
    types: TensorTypes,
    sets: Sequence[Sequence[str]],
    samples: Samples,
    progress: Progress,
    where: Evaluation,
) -> tuple[_Factors, Equalized]:
    """Factors of each set (None for an unchanged set), and their gain."""
    fit = samples.chosen(list(range(0, samples.runs, 2)))
    held_out = samples.chosen(list(range(1, samples.runs, 2)) or [0])
    members = [name for names in sets for name in names]
    observed = observe(graph, types, {}, members, fit, progress, by_channel=True, where=where).histograms
    reach: _Factors = []
    for names in sets:
        channels = [observed[name].channels for name in names if name in observed]
        known = [values for values in channels if values is not None and np.isfinite(values).all()]
        alike = len(known) == len(names) and len({values.shape for values in known}) == 1
        reach.append(np.max(known, axis=0) if alike else None)
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


def _factors(reach: Optional[np.ndarray], strength: float) -> Optional[np.ndarray]:
    """(C,) float32, at least 1."""
    if reach is None or not reach.max(initial=0) > 0:
        return None
    ratio = reach.max() / np.where(reach > 0, reach, reach.max()).astype(np.float64)
    exponent = np.floor(np.log2(np.minimum(ratio**strength, LARGEST)))
    return np.exp2(exponent).astype(np.float32)


# ---------------------------------------------------------------- the graph


def equal_sets(graph: Graph, types: TensorTypes) -> list[list[str]]:
    """Tensors whose channels must have common factors, of those that can be rescaled, in graph order."""
    unions: Unions[str] = Unions()
    fixed: set[str] = set()
    names = [name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)]
    for node in graph.nodes:
        inputs = [name for name in node.reads() if name and not graph.is_constant(name)]
        outputs = [name for name in node.outputs if name]
        if _is_homogeneous(node, graph, types):
            for name in (*inputs[1:], *outputs):
                unions.join(inputs[0], name)
        elif _is_product(node, graph):
            continue
        else:
            fixed.update((*inputs, *outputs))
    fixed.update((*graph.inputs, *graph.outputs))
    roots = {unions.root(name) for name in fixed}
    sets: dict[str, list[str]] = {}
    for name in names:
        if unions.root(name) not in roots:
            sets.setdefault(unions.root(name), []).append(name)
    return list(sets.values())


def _is_homogeneous(node: Node, graph: Graph, types: TensorTypes) -> bool:
    if not node.is_op(*_HOMOGENEOUS) or len(node.outputs) != 1:
        return False
    shapes = [types.shape(name) for name in node.inputs if not graph.is_constant(name)]
    if node.is_op("Add"):
        return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0] or ()) > 2
    return len(shapes) == 1 and len(shapes[0] or ()) > 2


def _is_product(node: Node, graph: Graph) -> bool:
    """A Conv of one group or depthwise, or a ConvTranspose of one group, with weights and bias that can be edited."""
    if not node.is_op("Conv", "ConvTranspose") or not all(map(graph.is_constant, node.inputs[1:])):
        return False
    weight = graph.array(node.input(1))
    group = int(node.get("group", 1))
    depthwise = weight is not None and node.is_op("Conv") and weight.shape[1] == 1 and weight.shape[0] == group
    return weight is not None and weight.dtype == np.float32 and (group == 1 or depthwise)


def _apply(graph: Graph, sets: Sequence[Sequence[str]], factors: Sequence[Optional[np.ndarray]]) -> None:
    of_tensor = {name: row for names, row in zip(sets, factors) if row is not None for name in names}
    for node in list(graph.nodes):
        if not _is_product(node, graph):
            continue
        made, read = of_tensor.get(node.outputs[0]), of_tensor.get(node.inputs[0])
        weight = graph.array(node.inputs[1])
        assert weight is not None
        transposed = node.is_op("ConvTranspose")
        if read is not None:
            weight = _scaled(weight, 1 / read, 0 if transposed or int(node.get("group", 1)) > 1 else 1)
        if made is not None:
            weight = _scaled(weight, made, 1 if transposed else 0)
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
