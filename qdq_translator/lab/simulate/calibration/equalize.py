"""`--equalize`: rescale channels of a float network so that one INT8 scale fits all of them.

A tensor's scale is set by its largest channel; smaller channels lose resolution accordingly. A factor f of a channel
passes through Relu (Clip from 0 without an upper bound), LeakyRelu, PRelu, MaxPool, spatial means, Resize, Add and
Concat unchanged (they are homogeneous of degree 1 in each channel), so multiplying the weights and the bias that make a
channel by f and dividing the weights that read it by f preserves the function (cross-layer equalization: M. Nagel et
al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019). A depthwise Conv both reads and
makes a channel: its tensors have separate factors. Factors are powers of two, so that the float network changes by no
more than the order of a sum.

- Tensors that such layers join are a set. It is rescaled only if every tensor in it is made by a Conv, ConvTranspose,
  Gemm or a layer of the list above, and read by one. Anything else (a graph output, Clip with a bound, Sigmoid) leaves
  its set unchanged. Channels that a layer joins have one factor.
- f = (largest channel / channel) ** strength, rounded down to a power of two, at most LARGEST. Channels of zeros keep
  factor 1. Measured, and no gain on two networks: an exponent of the weights that read a channel.
- Factors come from one half of the samples. STRENGTHS are judged on the other half, with the ranges, shared ranges and
  precisions of the translation (`trial`), but without the layers of --keep_fp16: `tune` tries many sets of these with
  one set of factors.
"""

from __future__ import annotations

import dataclasses
import gc
import math
from copy import copy
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.lab.simulate.calibration.histogram import Histogram
from qdq_translator.lab.simulate.calibration.observe import observe
from qdq_translator.lab.simulate.calibration.trial import Trials
from qdq_translator.lab.simulate.evaluation import HERE, Evaluation
from qdq_translator.lab.simulate.inputs import Samples
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import RESIZES, VIEWS, Unions, axis, clip_bounds, crops, transposed
from qdq_translator.translation.ir.types import Dim, TensorTypes
from qdq_translator.translation.scales.network import Network
from qdq_translator.translation.targets.settings import Settings

RULE = "K1"
STRENGTHS = (0.75, 0.5, 1.0)
"""In addition to 0. The best of those with a significant gain; on a network for which LEAST_RUNS are all, the first one
alone."""
LARGEST = 64.0
LEAST_RUNS, MOST_RUNS, VALUES = 8, 64, 2**25
"""Runs, half of them for the ranges: as many as make so many VALUES of activations within these limits, so that a
full-size network needs no more time than a small one."""
KEPT = 2**13
"""Values of a tensor, of each run."""
_TOO_FEW = "it needs 2 samples or more, one to fit and one to judge"
_HOMOGENEOUS = where(traits="scaled")
Places = Dict[str, np.ndarray]
"""Tensor of a set -> the place of each of its channels among the factors of the set."""


class Equalized(NamedTuple):
    """The result of equalizing. tensors: those that were rescaled. before_db, after_db: SQNR (sum over the outputs) on
    held-out samples. why: if nothing changed."""

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


def equalize(network: Network, settings: Settings, samples: Samples, where: Evaluation = HERE) -> Equalized:
    """Changes the network's weights, which are all float32 and have no scales."""
    graph, types = network.graph, network.types
    values = sum(math.prod(types.static_shape(name) or ()) for name in graph.tensors() if not graph.is_constant(name))
    samples = samples.some(min(max(VALUES // values, LEAST_RUNS), MOST_RUNS))
    sets = equal_sets(graph, types)
    if not sets:
        return Equalized(why="no layers of this network pass factors of channels from one product to the next")
    if samples.runs < 2:
        return Equalized(why=_TOO_FEW)
    settings = dataclasses.replace(settings, keep_fp16=())
    policy = {**vars(settings.policy), "on": sorted(settings.policy.on)}
    key = "equalize", graph.to_model(), samples, policy, settings.calibration, str(settings.hardware)
    factors, found = where.engine.remembered(key, lambda: _choose(network, settings, sets, samples, where))
    of_tensor = _of_tensor(sets, factors)
    _apply(graph, of_tensor)
    network.changed()
    return Equalized(*found)._replace(tensors=tuple(name for name, row in of_tensor.items() if (row != 1).any()))


_Factors = List[Optional[np.ndarray]]


def _choose(
    network: Network, settings: Settings, sets: Sequence[Places], samples: Samples, where: Evaluation
) -> tuple[_Factors, Equalized]:
    """Factors of each set (None for an unchanged set), and their gain."""
    observer = _Observer()
    trials = Trials(network, settings, samples, where, observer)
    before = best = trials.of(network)
    chosen: _Factors = [None] * len(sets)
    strength = 0.0
    reach = [_reach(places, observer.seen) for places in sets]
    for power in STRENGTHS if samples.runs > LEAST_RUNS else STRENGTHS[:1]:
        factors = [_factors(row, power) for row in reach]
        tried = copy(network)
        tried.graph, observer.factors = Graph.from_picture(network.graph.picture()), _of_tensor(sets, factors)
        _apply(tried.graph, observer.factors)
        tried.changed()
        found = trials.of(tried)
        del tried
        gc.collect()  # graphs are cycles that hold weights
        if found.gains_over(before) and found.db > best.db:
            best, chosen, strength = found, factors, power
    return chosen, Equalized((), strength, before.db, best.db)


class _Observer:
    """The counterpart of `observe`, with one run of the network for all factors. seen: tensors before they are
    rescaled. factors: of the channels of tensors."""

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}
        self.factors: dict[str, np.ndarray] = {}

    def __call__(self, graph: Graph, types: TensorTypes, *given: Any, where: Evaluation) -> dict[str, Any]:
        scales, tensors, samples, *_ = given
        unseen = [name for name in tensors if name not in self.seen]
        if unseen:
            found = observe(graph, types, scales, unseen, samples, counter=_Seen, where=where)
            for name, row in found.items():  # may be rescaled already
                row.divide(self.factors.get(name))
            self.seen.update(found)
        return {name: self.seen[name].histogram(self.factors.get(name)) for name in tensors}


class _Seen:
    """What data show of a tensor. channels: (C,) the largest magnitude of each channel (axis 1). values: (C, n), some
    of the magnitudes."""

    channels, values = np.zeros(1, np.float32), np.zeros((1, 0), np.float32)

    def add(self, values: np.ndarray) -> None:
        """Float, of one run."""
        rows = (np.moveaxis(values, 1, 0) if values.ndim > 1 else values[None]).astype(np.float32, copy=False)
        rows = rows.reshape(len(rows), -1)
        self.channels = np.maximum(rows.max(axis=1, initial=0), -rows.min(axis=1, initial=0))
        self.values = np.abs(rows[:, :: 1 + rows.size // KEPT // 2 * 2])

    def merge(self, other: _Seen) -> None:
        self.channels = np.maximum(self.channels, other.channels)
        self.values = np.concatenate([self.values, other.values], axis=1)

    def divide(self, factors: Optional[np.ndarray]) -> None:
        if factors is not None:
            self.channels, self.values = self.channels / factors, self.values / factors[:, None]

    def histogram(self, factors: Optional[np.ndarray]) -> Histogram:
        """Histogram of the kept values, each channel multiplied by its factor."""
        factors, histogram = np.ones_like(self.channels) if factors is None else factors, Histogram()
        amax = float((self.channels * factors).max())
        if math.isfinite(amax):
            histogram.cover(0.0, amax)
        histogram.add(self.values * factors[:, None])
        return histogram


def _reach(places: Places, seen: Mapping[str, _Seen]) -> Optional[np.ndarray]:
    """The largest magnitude at each place, of the tensors that were observed; None if one is not finite."""
    largest = np.zeros(1 + max(int(own.max()) for own in places.values()), np.float32)
    for name in places.keys() & seen.keys():
        if not np.isfinite(seen[name].channels).all():
            return None
        np.maximum.at(largest, places[name], seen[name].channels)
    return largest


def _factors(reach: Optional[np.ndarray], strength: float) -> Optional[np.ndarray]:
    """(C,) float32, at least 1."""
    if reach is None or not reach.max(initial=0) > 0:
        return None
    ratio = reach.max() / np.where(reach > 0, reach, reach.max()).astype(np.float64)
    exponent = np.floor(np.log2(np.minimum(ratio**strength, LARGEST)))
    return np.exp2(exponent).astype(np.float32)


# ---------------- the graph


def equal_sets(graph: Graph, types: TensorTypes) -> list[Places]:
    """Sets of tensors that can be rescaled, in graph order."""
    unions: Unions[str] = Unions()
    fixed = {*graph.inputs, *graph.outputs}
    joins: list[tuple[str, str, int, int]] = []
    for node in graph.nodes:
        found = _joins(node, graph, types)
        joins += found
        for name, other, _, _ in found:
            unions.join(name, other)
        if not found and not _is_product(node, graph):
            fixed.update((*node.reads(), *node.outputs))
    names = [name for name in graph.tensors() if types.is_float(name) and not graph.is_constant(name)]
    fixed.update(name for name in names if not _channels(name, types))
    roots = {unions.root(name) for name in fixed}
    sets: dict[str, dict[str, int]] = {}
    for name in names:
        if unions.root(name) not in roots:
            sets.setdefault(unions.root(name), {})[name] = _channels(name, types)
    of_root: dict[str, list[tuple[str, str, int, int]]] = {}
    for join in joins:
        of_root.setdefault(unions.root(join[0]), []).append(join)
    return [_places(members, of_root.get(root, [])) for root, members in sets.items()]


def _places(members: Mapping[str, int], joins: Sequence[tuple[str, str, int, int]]) -> Places:
    """members: tensors of a set, and their number of channels."""
    equal: Unions[tuple[str, int]] = Unions()
    for name, other, begin, count in joins:
        for channel in range(count):
            equal.join((name, channel), (other, begin + channel))
    place: dict[tuple[str, int], int] = {}
    own = {name: [equal.root((name, channel)) for channel in range(count)] for name, count in members.items()}
    return {name: np.array([place.setdefault(root, len(place)) for root in roots]) for name, roots in own.items()}


def _channels(name: str, types: TensorTypes) -> int:
    """0 if unknown."""
    shape = types.shape(name) or ()
    return shape[1] if len(shape) > 1 and isinstance(shape[1], int) else 0


def _joins(node: Node, graph: Graph, types: TensorTypes) -> list[tuple[str, str, int, int]]:
    """(tensor, output, its first channel that is the tensor's, number of channels) of a layer that factors pass; [] of
    another.
    """
    inputs = [name for name in filter(None, node.inputs) if not graph.is_constant(name)]
    shapes = [types.shape(name) or () for name in inputs]
    if len(node.outputs) != 1 or min(map(len, shapes), default=0) < 2:
        return []
    output, counts = node.outputs[0], [_channels(name, types) for name in inputs]
    if node.is_op("Concat"):
        whole = len(inputs) == len(node.inputs) and axis(node, graph.opset()) in (1, 1 - len(shapes[0]))
        begins = np.cumsum([0, *counts]).tolist()
        return list(zip(inputs, [output] * len(inputs), begins, counts)) if whole else []
    passes = counts[0] == _channels(output, types) and _passes(node, graph, shapes, types.shape(output) or ())
    return [(name, output, 0, counts[0]) for name in inputs] if passes else []


def _passes(node: Node, graph: Graph, shapes: Sequence[tuple[Dim, ...]], output: tuple[Dim, ...]) -> bool:
    """Whether factors of channels pass a layer other than Concat. shapes: of its inputs that are not constants."""
    if node.is_op("Add"):
        return len(shapes) == 2 and shapes[0] == shapes[1]
    if node.is_op(*VIEWS):
        return {*shapes[0][2:], *output[2:]} <= {1}
    if len(shapes) != 1 or (node.is_op(*RESIZES) and crops(node)):
        return False
    relu = node.is_op("Clip") and clip_bounds(node, graph.array) == (0, np.inf)
    return relu or node.is_op(*_HOMOGENEOUS, *RESIZES)


def _is_product(node: Node, graph: Graph) -> bool:
    """A Conv of one group or depthwise, a ConvTranspose of one group or a Gemm, with weights and bias that can be
    edited.
    """
    if not node.is_op("Conv", "ConvTranspose", "Gemm") or not all(map(graph.is_constant, node.inputs[1:])):
        return False
    weight = graph.array(node.input(1))
    if weight is None or weight.dtype != np.float32 or graph.is_constant(node.inputs[0]) or transposed(node, 0):
        return False
    group = int(node.get("group", 1))
    return group == 1 or (node.is_op("Conv") and weight.shape[1] == 1 and weight.shape[0] == group)


def _axes(node: Node) -> tuple[int, int]:
    """Axes of the weight of a product: of its output channels, and of its input channels."""
    if node.is_op("Conv"):
        return 0, int(int(node.get("group", 1)) == 1)
    return (0, 1) if transposed(node, 1) else (1, 0)


def _of_tensor(sets: Sequence[Places], factors: _Factors) -> dict[str, np.ndarray]:
    """Factors of the channels of each tensor that may change."""
    rows = zip(sets, factors)
    return {name: row[own] for places, row in rows if row is not None for name, own in places.items()}


def _apply(graph: Graph, of_tensor: Mapping[str, np.ndarray]) -> None:
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
                _set(graph, node, 2, bias * made)
        if made is not None or read is not None:
            _set(graph, node, 1, weight)


def _set(graph: Graph, node: Node, index: int, values: np.ndarray) -> None:
    graph.set_input(node, index, graph.add_initializer(graph.unique_name(f"{node.inputs[index]}_equal"), values))


def _scaled(weight: np.ndarray, factors: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * weight.ndim
    shape[axis] = -1
    return (weight * factors.astype(np.float32).reshape(shape)).astype(np.float32)
