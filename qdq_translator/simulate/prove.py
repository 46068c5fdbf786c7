"""`--prove`: compare every rewrite for the DLA, before and after, in ONNX Runtime.

The changes by a rule are split into pieces: nodes that differ before and after, and share a tensor that only one of
both sides has. Each piece becomes two small models with the same inputs; its outputs are the tensors that the rest of
the network reads. They get random values, values at the ends of the INT8 range and far beyond it, zeros and tiny ones,
and have to agree within the effect of the order of a float32 sum.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import onnx

from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.ir.graph import Graph, Node, Picture
from qdq_translator.ir.operators import Unions
from qdq_translator.ir.qparams import in_blocks
from qdq_translator.ir.types import TensorTypes, open_sizes
from qdq_translator.ir.weights import to_array
from qdq_translator.planning.translation import Translated
from qdq_translator.scales.network import Applied, Stage
from qdq_translator.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.simulate.inputs import Samples, input_specs, random_samples
from qdq_translator.simulate.metrics import Comparison
from qdq_translator.simulate.run import Session, Sliced, value_info

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
        self.graph, self.weights = Graph.from_picture(picture), picture[1]
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
            feed[name] = rng.standard_normal(shape).astype(_dtype(self, name))
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


# ---------------- pieces


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


# ---------------- two models and their numbers


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
    shapes = _shapes(sides, piece)
    if isinstance(shapes, str):
        return shapes
    differences: dict[str, list[Comparison]] = {name: [] for name in outputs}
    try:
        runs = [_session(side, nodes, outputs, own) for side, nodes, own in zip(sides, piece, shapes)]
        for number in range(SAMPLES):
            feeds = _feeds(sides, shapes, scales, number)
            want, got = (run(feed) for run, feed in zip(runs, feeds))
            del feeds
            for name, rows in differences.items():
                inferred, one, other = before.sizes(name), want.pop(name), got.pop(name)
                if inferred not in (None, one.shape):
                    return f"'{name}' has the shape {list(one.shape)}, not {list(inferred or ())}"
                if one.size != other.size:
                    return f"'{name}' has {other.size} values instead of {one.size}"
                rows.append(Comparison())
                rows[-1].add(other.reshape(one.shape), one)
    except MissingDependency:
        raise
    except UserError as error:
        return error.what.rstrip(".")
    found = (_difference(name, rows, TOLERANCE + allowed) for name, rows in differences.items())
    return next(filter(None, found), "")


def _is_read(side: _Side, name: str, inside: set[int]) -> bool:
    return name in side.graph.outputs or any(id(reader) not in inside for reader in side.graph.consumers(name))


def _difference(name: str, rows: Sequence[Comparison], tolerance: float) -> str:
    """'' if no difference is larger than this share of the largest magnitude. rows: of the tensor after and before a
    rule, for each input.
    """
    usual = max(row.peak for row in rows[:_USUAL])
    for row in rows:
        most = max(usual, row.peak)
        if row.max_abs > tolerance * most:
            return f"'{name}' differs by {row.max_abs:.3g} where the largest value is {most:.3g}"
    finite = not any(row.non_finite for row in rows)
    return "" if finite else f"'{name}' is not finite where it was, or is where it was not"


_Shapes = List[Dict[str, Tuple[int, ...]]]
"""Of the inputs of a piece, before and after."""


def _shapes(sides: tuple[_Side, _Side], piece: tuple[list[Node], list[Node]]) -> Union[str, _Shapes]:
    """Or the size that is unknown."""
    shapes: _Shapes = [{}, {}]
    for own, side, nodes in zip(shapes, sides, piece):
        for name in sorted(_inputs(side, nodes)):
            shape = side.sizes(name)
            if shape is None:
                return f"the shape of '{name}' is not known"
            own[name] = shape
    return shapes


def _dtype(side: _Side, name: str) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(side.types.elem_type(name) or onnx.TensorProto.FLOAT)


def _feeds(
    sides: tuple[_Side, _Side], shapes: _Shapes, scales: Mapping[str, float], number: int
) -> list[dict[str, np.ndarray]]:
    """Equal values of a kind for both sides, each in its own shape."""
    rng = np.random.default_rng(number)
    values = {}
    for name, shape in {**shapes[1], **shapes[0]}.items():
        dtype, count = _dtype(sides[name not in shapes[0]], name), math.prod(shape)
        reach = np.float32(127 * scales[name] if name in scales else _RANGE)
        made = _KINDS[number](rng, count) if dtype.kind == "f" else rng.integers(0, 2, count) * (dtype.kind == "b")
        if dtype.kind == "f":
            made *= reach
        values[name] = made.astype(dtype, copy=False)
        del made
    return [{name: values[name].reshape(shape) for name, shape in own.items()} for own in shapes]


_KINDS: tuple[Callable[[np.random.Generator, int], np.ndarray], ...] = (
    lambda rng, count: rng.standard_normal(count, np.float32) / 3,
    lambda rng, count: rng.random(count, np.float32) * 2 - 1,
    lambda rng, count: rng.integers(-1, 2, count, np.int8).astype(np.float32),
    lambda rng, count: rng.standard_normal(count, np.float32) * 100,
    lambda rng, count: rng.standard_normal(count, np.float32) * 1e-6,
    lambda rng, count: np.zeros(count, np.float32),
)
"""What the inputs of a piece are made of, as shares of their range: inside it, at its ends, far beyond it, tiny, zero.
"""
_Codes = Iterator[Tuple[str, np.ndarray]]
"""Tensor, INT8 values."""
_USUAL = 3
"""Of them are what an INT8 network sees; how large their outputs are says what an error is measured by."""
SAMPLES = len(_KINDS)


def _session(
    side: _Side, nodes: Sequence[Node], outputs: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The nodes as a model of their own. An output that no node makes is a constant."""
    made = {name for node in nodes for name in node.outputs}
    wanted = [name for name in outputs if name in made]
    constant = {name: to_array(side.weights[name]) for name in outputs if name not in made}
    if not wanted:
        return lambda _: dict(constant)
    inputs = (value_info(name, _dtype(side, name), shape) for name, shape in shapes.items())
    model, weights = side.graph.submodel(nodes, "piece", inputs)
    session = Session(model, "rewritten", wanted, weights=weights)
    return lambda values: {**constant, **session.run(values)}


# ---------------- the planned precision


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
    first `_WHOLE` samples."""
    made = {name for node in after.graph.nodes for name in node.outputs}
    reference = Sliced(after.graph, after.types, "float")
    sides = [_Rounded(translated, made) for translated in (before, after)]
    names = {name for name, scale in sides[0].held.items() if sides[1].held.get(name) == scale}
    total, same, different = 0, 0, set()  # type: int, int, set[str]
    for index, feed in enumerate(samples):
        wanted = dict(reference.run(feed))
        codes = [side.run(feed, wanted, names if index < _WHOLE else set()) for side in sides]
        for name, one, other in _pairs(*codes):
            if one.size == other.size:
                equal = int(np.count_nonzero(one == other))
                total, same = total + one.size, same + equal
                different.update([name] if equal < one.size else ())
    first = next((name for name in sides[0].held if name in different), "")
    worst = [min(row.sqnr_db for row in side.rows.values()) for side in sides]
    return Planned(worst[0], worst[1], len(names), same / total if total else 1.0, first)


def _pairs(one: _Codes, other: _Codes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Tensors of both, in turns, so that few wait for the other network."""
    waiting: list[dict[str, np.ndarray]] = [{}, {}]
    for step in itertools.zip_longest(one, other):
        for number, item in enumerate(step):
            if item is None:
                continue
            name, values = item
            if name not in waiting[1 - number]:
                waiting[number][name] = values
                continue
            pair = values, waiting[1 - number].pop(name)
            yield (name, *(pair if number == 0 else pair[::-1]))


class _Rounded:
    """A simulated network. held: tensor -> scale. rows: output -> comparison with the float network. made: tensors that
    both networks may have."""

    def __init__(self, translated: Translated, made: set[str]) -> None:
        network = ImplicitNetwork.of(translated, light=True)
        side = simulate(network, SimulationOptions(sigmoid_fp16=bool(network.on_dla)))
        self.held = {name: scale for name, scale in side.placement.held.items() if name in made}
        self._tensor = {side.read[name]: name for name in self.held}
        self._session = Sliced(side.graph, TensorTypes(side.graph), "planned", [*side.graph.outputs, *self._tensor])
        self.rows: dict[str, Comparison] = {}

    def run(self, feed: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], names: set[str]) -> _Codes:
        """INT8 values of these tensors. wanted: outputs of the float network."""
        for made, values in self._session.run(feed):
            if made in wanted:
                reference = wanted[made]
                self.rows.setdefault(made, Comparison()).add(reference, values.reshape(reference.shape))
            name = self._tensor.get(made)
            if name in names:
                scale: np.ndarray = np.array(self.held[name], np.float32)
                yield name, in_blocks(lambda v, s: np.rint(v / s).astype(np.int8), "int8", values.reshape(-1), scale)


# ---------------- sizes


def random_inputs(graph: Graph, shapes: Mapping[str, Sequence[int]], scales: Mapping[str, float]) -> Samples:
    """With a size for every dimension."""
    return random_samples(input_specs(graph.picture()[0], concrete_sizes(graph, shapes)), scales, _WHOLE, 0)


def concrete_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """A size for every dimension of every graph input; the same one for the same name."""
    found: dict[str, list[int]] = {}
    named: dict[str, int] = {}
    shapes = open_sizes(graph, shapes)
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
