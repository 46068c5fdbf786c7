"""`--prove`: compare every rewrite for the DLA, before and after, in ONNX Runtime.

The changes by a rule are split into pieces: nodes that differ before and after, and share a tensor that only one of
both sides has. Each piece becomes two small models with the same inputs; its outputs are the tensors that the rest of
the network reads. They get random values, values at the ends of the INT8 range and far beyond it, zeros and tiny ones,
and have to agree within the effect of the order of a float32 sum.
"""

from __future__ import annotations

import functools
import heapq
import math
from dataclasses import dataclass
from typing import Callable, Iterable, Mapping, Optional, Sequence

import numpy as np
import onnx

from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import Unions
from qdq_translator.ir.types import TensorTypes
from qdq_translator.ir.weights import to_array
from qdq_translator.planning.translation import Translated
from qdq_translator.scales.network import Applied, Picture, Stage
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import Samples, input_specs, random_samples
from qdq_translator.simulate.metrics import Comparison
from qdq_translator.simulate.run import Session, value_info

TOLERANCE = 1e-4
"""Of an output's largest magnitude."""
_BATCH, _OPEN = 2, 64
"""Sizes for a batch, and for other dimensions, that nobody knows."""
_WHOLE = 2
"""Random inputs of a whole network."""
_RANGE = 8.0
"""Of a tensor without scale."""


@dataclass(frozen=True)
class Refuted:
    """An application of a rule that, by all evidence, is not the same function. nodes: that it replaced, by their
    earlier names; what: the difference, or why it could not be run."""

    rule: str
    nodes: tuple[str, ...]
    what: str


class _Side:
    """A network before or after a rule."""

    def __init__(self, picture: Picture, shapes: Mapping[str, Sequence[int]]) -> None:
        model, self.weights = onnx.ModelProto(), picture[1]
        model.CopyFrom(picture[0])
        model.graph.initializer.extend(onnx.TensorProto(name=name) for name in self.weights)
        self.graph = Graph.from_model(model)
        self.graph.initializers.update(self.weights)
        self._inputs = concrete_sizes(self.graph, shapes)
        self.types = TensorTypes(self.graph, self._inputs)
        self.nodes = {node.to_proto().SerializeToString(): node for node in self.graph.nodes}
        self.order = {id(node): index for index, node in enumerate(self.graph.nodes)}

    def sizes(self, name: str) -> Optional[tuple[int, ...]]:
        """Of a tensor, as they follow from those of the inputs, or else as they are in one run on noise."""
        known = self.types.static_shape(name)
        return known if known is not None else self._seen.get(name)

    @functools.cached_property
    def _seen(self) -> Mapping[str, tuple[int, ...]]:
        """Sizes of tensors that do not follow from the input sizes; {} if the network does not run."""
        unknown = [n for n in self.graph.producer if n and self.types.static_shape(n) is None]
        model = self.graph.to_model()
        wanted = [f"qdq.sizes.{number}" for number in range(len(unknown))]
        model.graph.node.extend(onnx.helper.make_node("Shape", [n], [w]) for n, w in zip(unknown, wanted))
        rng, feed = np.random.default_rng(0), {}
        for name, shape in self._inputs.items():
            dtype = onnx.helper.tensor_dtype_to_np_dtype(self.types.elem_type(name) or onnx.TensorProto.FLOAT)
            feed[name] = rng.standard_normal(shape).astype(dtype)
        try:
            found = Session(model, "rewritten", wanted).run(feed)
        except MissingDependency:
            raise
        except UserError:
            return {}
        return {name: tuple(int(size) for size in found[w]) for name, w in zip(unknown, wanted)}


def prove(stages: Sequence[Stage], shapes: Mapping[str, Sequence[int]], scales: Mapping[str, float]) -> list[Refuted]:
    """Refuted applications of the first faulty stage; [] if every stage was proved. shapes: for dynamic graph inputs.
    scales: tensor -> its scale, which gives the range of its values."""
    found: list[Refuted] = []
    after: Optional[_Side] = None
    for stage in stages:
        before = after or _Side(stage.before, shapes)  # a stage begins where the one before it ended
        after = _Side(stage.after, shapes)
        for nodes in _pieces(before, after):
            what = _compare(before, after, nodes, scales, stage.error)
            if what:
                found.append(Refuted(stage.rule, _origin(stage.applied, nodes[0]), what))
        if found:
            break
    return found


def _origin(applied: Iterable[Applied], nodes: Sequence[Node]) -> tuple[str, ...]:
    """The nodes that the rule took to make this piece of it."""
    names = {node.name for node in nodes}
    taken = [[name for name, _ in a.before] for a in applied]
    found = dict.fromkeys(name for before in taken if not names.isdisjoint(before) for name in before)
    return tuple(found) or tuple(names)


# ---------------------------------------------------------------- pieces


def _pieces(before: _Side, after: _Side) -> list[tuple[list[Node], list[Node]]]:
    """(nodes before, nodes after) of every piece, each side in its order; the inputs of both are the same."""
    sides = (before, after)
    changed = [_changed(one, other) for one, other in (sides, sides[::-1])]
    unions: Unions[tuple[int, int]] = Unions()
    makers: dict[str, list[tuple[int, int]]] = {}
    for number, own in enumerate(changed):
        for node in own.values():
            for name in filter(None, node.outputs):
                makers.setdefault(name, []).append((number, id(node)))
    for name, made in makers.items():
        for one in made[1:]:
            unions.join(made[0], one)
        if _is_border(name, before, after):
            continue
        for number, (side, own) in enumerate(zip(sides, changed)):
            for reader in side.graph.consumers(name):
                if id(reader) in own:
                    unions.join(made[0], (number, id(reader)))
    pieces: dict[tuple[int, int], tuple[list[Node], list[Node]]] = {}
    for number, own in enumerate(changed):
        for key, node in own.items():
            pieces.setdefault(unions.root((number, key)), ([], []))[number].append(node)
    return [_with_same_inputs(before, after, piece) for piece in pieces.values()]


def _is_border(name: str, before: _Side, after: _Side) -> bool:
    """True if both sides have the tensor with the same shape, and it is no integer that controls its readers."""
    there = all(name in side.graph.producer or name in side.graph.inputs for side in (before, after))
    return there and before.types.is_float(name) and before.sizes(name) == after.sizes(name)


def _changed(side: _Side, other: _Side) -> dict[int, Node]:
    """Nodes that the other side lacks, or has with other weights or tensor shapes. Readers of integers made by such a
    node are included."""
    found: dict[int, Node] = {}
    for key, node in side.nodes.items():
        names = [name for name in (*node.reads(), *node.outputs) if name]
        same = key in other.nodes and all(
            side.weights.get(name) is other.weights.get(name) and side.sizes(name) == other.sizes(name)
            for name in names
        )
        integers = (side.graph.producer.get(name) for name in node.reads() if not side.types.is_float(name))
        if not same or any(maker is not None and id(maker) in found for maker in integers):
            found[id(node)] = node
    return found


def _with_same_inputs(
    before: _Side, after: _Side, piece: tuple[list[Node], list[Node]]
) -> tuple[list[Node], list[Node]]:
    """Extend a piece by producers, the latest first, for equal inputs of both sides. They make tensors whose values
    only one side reads, of unknown size, or with integers. If a side needs only the size of a tensor, its values may be
    any: else the sizes that the last layer of a network computes would include the whole network."""
    sides = (before, after)
    inside = [list(nodes) for nodes in piece]
    made = [{name for node in nodes for name in node.outputs} for nodes in piece]
    reads: list[set[str]] = [set(), set()]
    values: list[set[str]] = [set(), set()]
    pending: list[tuple[int, int, str]] = []

    def look(number: int, names: Iterable[str]) -> None:
        for name in names:
            maker = sides[number].graph.producer.get(name)
            if maker is not None and name in reads[number] and name not in made[number]:
                heapq.heappush(pending, (-sides[number].order[id(maker)], -number, name))

    def read(number: int, nodes: Iterable[Node]) -> None:
        for node in nodes:
            names = [name for name in node.reads() if name]
            reads[number].update(names)
            values[number].update(() if node.is_op("Shape", "Size") else names)
            look(number, names)

    for number, nodes in enumerate(piece):
        read(number, nodes)
    while all(inside) and pending:
        _, number, name = heapq.heappop(pending)
        number, side = -number, sides[-number]
        other = 1 - number
        both = name in reads[other] and name not in made[other] and side.types.is_float(name)
        size_only = name not in values[number] and _is_border(name, before, after)
        if name in made[number] or ((both or size_only) and side.sizes(name) is not None):
            continue
        node = side.graph.producer[name]
        inside[number].append(node)
        made[number].update(node.outputs)
        read(number, [node])
        look(other, node.outputs)
    one, two = (
        sorted(nodes, key=lambda node: order[id(node)])
        for nodes, order in ((inside[0], before.order), (inside[1], after.order))
    )
    return one, two


def _inputs(side: _Side, nodes: Iterable[Node]) -> set[str]:
    nodes = list(nodes)
    made = {name for node in nodes for name in node.outputs}
    return {n for node in nodes for n in node.reads() if n and n not in made and n not in side.weights}


# ---------------------------------------------------------------- two models and their numbers


def _compare(
    before: _Side, after: _Side, piece: tuple[list[Node], list[Node]], scales: Mapping[str, float], allowed: float
) -> str:
    """'', or the difference of the piece after the rule from the piece before it; allowed: for values up to 1."""
    sides, inside = (before, after), {id(node) for node in piece[0]}
    there = {name for node in piece[1] for name in node.outputs}.union(after.weights)
    made = (name for node in piece[0] for name in node.outputs if name in there and before.types.is_float(name))
    outputs = [name for name in made if name and _is_read(before, name, inside)]
    if not outputs:
        return ""
    feeds = _feeds(sides, piece, scales)
    if isinstance(feeds, str):
        return feeds
    try:
        runs = [_session(side, nodes, outputs, feed) for side, nodes, feed in zip(sides, piece, feeds[0])]
        want, got = ([run(feed[i]) for feed in feeds] for i, run in enumerate(runs))
    except MissingDependency:
        raise
    except UserError as error:
        return error.what.rstrip(".")
    for name in outputs:
        inferred, shape = before.sizes(name), want[0][name].shape
        if inferred not in (None, shape):
            return f"'{name}' has the shape {list(shape)}, not {list(inferred or ())}"
        what = _difference(name, [r[name] for r in want], [r[name] for r in got], TOLERANCE + allowed)
        if what:
            return what
    return ""


def _is_read(side: _Side, name: str, inside: set[int]) -> bool:
    return name in side.graph.outputs or any(id(reader) not in inside for reader in side.graph.consumers(name))


def _difference(name: str, want: Sequence[np.ndarray], got: Sequence[np.ndarray], tolerance: float) -> str:
    usual = max((float(np.abs(w[np.isfinite(w)]).max(initial=0)) for w in want[:_USUAL]), default=0.0)
    for one, other in zip(want, got):
        if one.size != other.size:
            return f"'{name}' has {other.size} values instead of {one.size}"
        one, other = one.reshape(-1).astype(np.float64), other.reshape(-1).astype(np.float64)
        finite = np.isfinite(one)
        largest = max(usual, float(np.abs(one[finite]).max(initial=0)))
        both = finite & np.isfinite(other)
        wrong = float(np.abs(one[both] - other[both]).max(initial=0))
        if wrong > tolerance * largest:
            return f"'{name}' differs by {wrong:.3g} where the largest value is {largest:.3g}"
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True) or not np.isfinite(other[finite]).all():
            return f"'{name}' is not finite where it was, or is where it was not"
    return ""


def _feeds(
    sides: tuple[_Side, _Side], piece: tuple[list[Node], list[Node]], scales: Mapping[str, float]
) -> str | list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Equal values for both sides, each in its own shape; or the size that is unknown."""
    shapes: list[dict[str, tuple[int, ...]]] = [{}, {}]
    for own, side, nodes in zip(shapes, sides, piece):
        for name in sorted(_inputs(side, nodes)):
            shape = side.sizes(name)
            if shape is None:
                return f"the shape of '{name}' is not known"
            own[name] = shape
    feeds = []
    for number, make in enumerate(_KINDS):
        rng = np.random.default_rng(number)
        values = {}
        for name, shape in {**shapes[1], **shapes[0]}.items():
            side = sides[name not in shapes[0]]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(side.types.elem_type(name) or onnx.TensorProto.FLOAT)
            count = math.prod(shape)
            reach = 127 * scales[name] if name in scales else _RANGE
            made = make(rng, count) * reach if dtype.kind == "f" else rng.integers(0, 2, count) * (dtype.kind == "b")
            values[name] = made.astype(dtype)
        one, two = ({name: values[name].reshape(shape) for name, shape in own.items()} for own in shapes)
        feeds.append((one, two))
    return feeds


_KINDS: tuple[Callable[[np.random.Generator, int], np.ndarray], ...] = (
    lambda rng, count: rng.standard_normal(count) / 3,
    lambda rng, count: rng.uniform(-1, 1, count),
    lambda rng, count: rng.choice(np.array([-1.0, 0.0, 1.0]), count),
    lambda rng, count: rng.standard_normal(count) * 100,
    lambda rng, count: rng.standard_normal(count) * 1e-6,
    lambda rng, count: np.zeros(count),
)
"""What the inputs of a piece are made of, as shares of their range: inside it, at its ends, far beyond it, tiny, zero."""
_USUAL = 3
"""Of them are what an INT8 network sees; how large their outputs are says what an error is measured by."""
SAMPLES = len(_KINDS)


def _session(
    side: _Side, nodes: Sequence[Node], outputs: Sequence[str], feed: Mapping[str, np.ndarray]
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The nodes as a model of their own. An output that no node makes is a constant."""
    made = {name for node in nodes for name in node.outputs}
    wanted = [name for name in outputs if name in made]
    constant = {name: to_array(side.weights[name]) for name in outputs if name not in made}
    if not wanted:
        return lambda _: constant
    inputs = (value_info(name, values.dtype, values.shape) for name, values in feed.items())
    session = Session(side.graph.submodel(nodes, "piece", inputs), "rewritten", wanted)
    return lambda values: {**constant, **session.run(values)}


# ---------------------------------------------------------------- the planned precision


@dataclass(frozen=True)
class Planned:
    """Two simulated networks against the float network. before, after: SQNR of the worst output, dB. tensors: those
    that both hold in INT8 with one scale; equal: the share of their values that is equal, up to 1; first: the first
    that differs, '' if none does."""

    before: float
    after: float
    tensors: int
    equal: float
    first: str


def planned_precision(before: Translated, after: Translated, samples: Iterable[dict[str, np.ndarray]]) -> Planned:
    """Outputs have the same names; their shapes may differ, not the order of their values. INT8 values are those of the
    first `_WHOLE` samples. One network is in memory at a time."""
    feeds = list(samples)
    made = {name for node in after.model.graph.node for name in node.output}
    session = Session(after.model, "float")
    wanted = [session.run(feed) for feed in feeds]
    del session
    one, other = (_rounded(translated, feeds, wanted, made) for translated in (before, after))
    names = [name for name, scale in one.held.items() if other.held.get(name) == scale]
    pairs = [
        (name, one.values[name, run], other.values[name, run])
        for name in names
        for run in range(len(feeds[:_WHOLE]))
        if one.values[name, run].size == other.values[name, run].size
    ]
    same = [int(np.count_nonzero(a == b)) for _, a, b in pairs]
    different = {name for (name, a, _), count in zip(pairs, same) if count < a.size}
    total = sum(a.size for _, a, _ in pairs)
    first = next((name for name in names if name in different), "")
    return Planned(one.worst, other.worst, len(names), sum(same) / total if total else 1.0, first)


@dataclass(frozen=True)
class _Rounded:
    """A simulated network. held: tensor -> scale. values: (tensor, sample) -> INT8 values. worst: SQNR of an output, dB."""

    held: dict[str, float]
    values: dict[tuple[str, int], np.ndarray]
    worst: float


def _rounded(
    translated: Translated,
    feeds: Sequence[dict[str, np.ndarray]],
    wanted: Sequence[dict[str, np.ndarray]],
    made: set[str],
) -> _Rounded:
    """wanted: outputs of the float network. made: tensors that both networks may have."""
    network = ImplicitNetwork.of(translated)
    side = simulate(network, SimulationOptions(sigmoid_fp16=bool(network.on_dla)))
    held = {name: scale for name, scale in side.placement.held.items() if name in made}
    session = Session(side.model, "planned", list(dict.fromkeys((*wanted[0], *(side.read[name] for name in held)))))
    rows = {name: Comparison() for name in wanted[0]}
    values = {}
    for index, (feed, outputs) in enumerate(zip(feeds, wanted)):
        run = session.run(feed)
        for name, reference in outputs.items():
            rows[name].add(reference, run[name].reshape(reference.shape))
        if index < _WHOLE:
            rounded = {name: np.rint(run[side.read[name]].reshape(-1) / scale) for name, scale in held.items()}
            values.update({(name, index): codes.astype(np.int8) for name, codes in rounded.items()})
    return _Rounded(held, values, min(row.sqnr_db for row in rows.values()))


# ---------------------------------------------------------------- sizes


def random_inputs(
    model: onnx.ModelProto, graph: Graph, shapes: Mapping[str, Sequence[int]], scales: Mapping[str, float]
) -> Samples:
    """For the model, which is that of the graph, with a size for every dimension."""
    return random_samples(input_specs(model, concrete_sizes(graph, shapes)), scales, _WHOLE, 0)


def concrete_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """A size for every dimension of every graph input; the same one for the same name."""
    found: dict[str, list[int]] = {}
    named: dict[str, int] = {}
    for name, value in graph.inputs.items():
        if name in shapes:
            found[name] = list(shapes[name])
            continue
        sizes: list[int] = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = _OPEN if axis else _BATCH
            sizes.append(dim.dim_value or (named.setdefault(dim.dim_param, size) if dim.dim_param else size))
        found[name] = sizes
    return found
