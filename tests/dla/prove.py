"""Oracle of the tests: compare every rewrite for the DLA, before and after, in ONNX Runtime.

The changes by a rule are split into pieces: nodes that differ before and after, and share a tensor that only one of the
two sides has. Each piece becomes two small models with the same inputs; its outputs are the tensors that the rest of
the network reads. The inputs are random values, values at the ends of the INT8 range and far beyond it, zeros and tiny
ones. The outputs must agree up to the effect of the order of a float32 sum.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import MissingDependency, UserError
from qdq_translator.lab.laboratory import OnnxRuntime
from qdq_translator.lab.simulate.faithful import concrete_sizes
from qdq_translator.lab.simulate.metrics import Comparison
from qdq_translator.lab.simulate.run import Part, Session, value_info
from qdq_translator.translation import translator
from qdq_translator.translation.ir.graph import Graph, Node, Picture
from qdq_translator.translation.ir.operators import Unions
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import to_array
from qdq_translator.translation.passes import dla
from qdq_translator.translation.passes.dla.rewriter import Rewriter
from qdq_translator.translation.scales.network import Applied, Network, report_applied
from qdq_translator.translation.targets.settings import Settings, resolve
from qdq_translator.translation.translator import Translation

TOLERANCE = 1e-4
"""Accepted difference, as a share of an output's largest magnitude."""
_RANGE = 8.0
"""Range of a tensor without scale."""


@dataclass(frozen=True)
class Refuted:
    """An application of a rule that does not compute the same function. nodes: earlier names of the nodes that it
    replaced; what: the difference, or the reason why it could not be run."""

    rule: str
    nodes: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Stage:
    """A rule that was applied, and the graph before and after it. error: the largest change by the rule for values up to 1."""

    rule: str
    applied: tuple[Applied, ...]
    before: Picture
    after: Picture
    error: float = 0.0


def refuted(model: Any, options: TranslateOptions, **more: Any) -> tuple[Translation, list[Refuted]]:
    """The translation without a laboratory, so that rule V1 is not checked, and its refuted rewrites."""
    runs: list[tuple[Network, list[Stage]]] = []
    last: list[Picture] = []

    class Recording(Rewriter):
        def __init__(self, network: Network, *given: Any) -> None:
            super().__init__(network, *given)
            runs.append((network, []))
            last[:] = [network.graph.picture()]

    def report(applied: Sequence[Applied], *given: Any, **named: Any) -> None:
        network, stages = runs[-1]
        now, rule = network.graph.picture(), applied[0].rule
        error = next(getattr(module, "ERROR", 0.0) for module in dla.RULES if rule == module.RULE)
        stages.append(Stage(rule, tuple(applied), last[0], now, error))
        last[:] = [now]
        report_applied(applied, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dla, "Rewriter", Recording)
        patch.setattr(dla, "report_applied", report)
        made = translator.translate(model, options, lab=Calibrating(), **more)
    stages = next((stages for network, stages in runs if network.graph is made.graph), [])
    return made, prove(stages, resolve(options).input_shapes, made.tensor_scales)


class Calibrating(OnnxRuntime):
    """Calibrates; what rule V1 would refuse as a whole is found here rewrite by rewrite."""

    def check_function(self, source: Network, network: Network, settings: Settings) -> None:
        pass


def proved(model: Any, options: TranslateOptions, **more: Any) -> Translation:
    """The translation, every rewrite of which computes the same function."""
    made, found = refuted(model, options, **more)
    assert not found, found
    return made


class _Side:
    """A network before or after a rule."""

    def __init__(self, picture: Picture, shapes: Mapping[str, Sequence[int]]) -> None:
        self.graph, self.weights = Graph.from_picture(picture), picture[1]
        self._inputs = concrete_sizes(self.graph, shapes)
        self.types = TensorTypes(self.graph, self._inputs)
        self.nodes = {node.to_proto().SerializeToString(): node for node in self.graph.nodes}
        self.order = {id(node): index for index, node in enumerate(self.graph.nodes)}

    def sizes(self, name: str) -> Optional[tuple[int, ...]]:
        """Sizes of a tensor: inferred from those of the inputs, or else observed in one run on noise."""
        known = self.types.static_shape(name)
        return known if known is not None else self._seen.get(name)

    @functools.cached_property
    def _seen(self) -> Mapping[str, tuple[int, ...]]:
        """Sizes of tensors that cannot be inferred from the input sizes; {} if the network cannot be run."""
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
        before = after or _Side(stage.before, shapes)  # a stage begins with the result of the one before it
        after = _Side(stage.after, shapes)
        for piece in _pieces(before, after):
            what = _compare(piece, scales, TOLERANCE + stage.error)
            if what:
                found.append(Refuted(stage.rule, _origin(stage.applied, piece[0].nodes), what))
        if found:
            break
    return found


def _origin(applied: Iterable[Applied], nodes: Sequence[Node]) -> tuple[str, ...]:
    """The nodes that the rule replaced by this piece."""
    names = {node.name for node in nodes}
    taken = [[name for name, _ in a.before] for a in applied]
    found = dict.fromkeys(name for before in taken if not names.isdisjoint(before) for name in before)
    return tuple(found) or tuple(names)


# ---------------- pieces


class _Half:
    """One side of a piece. made: outputs of its nodes; missing: tensors that they read from elsewhere, except weights;
    values: tensors of which they need more than the size."""

    def __init__(self, side: _Side) -> None:
        self.side = side
        self.nodes: list[Node] = []
        self.made: set[str] = set()
        self.missing: set[str] = set()
        self.values: set[str] = set()

    def take(self, node: Node) -> None:
        names = {name for name in node.reads() if name}
        self.nodes.append(node)
        self.made.update(node.outputs)
        self.missing = (self.missing | names) - self.made - self.side.weights.keys()
        if not node.is_op("Shape", "Size"):
            self.values |= names

    def latest(self, accepted: Callable[[str], bool]) -> tuple[int, Optional[Node]]:
        """The last node that makes a tensor which is not accepted as an input, after its position in the network."""
        graph, order = self.side.graph, self.side.order
        makers = [graph.producer[name] for name in self.missing if name in graph.producer and not accepted(name)]
        return max(((order[id(node)], node) for node in makers), key=lambda pair: pair[0], default=(-1, None))

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs. Raises UserError for an unknown one."""
        found = {}
        for name in sorted(self.missing):
            shape = self.side.sizes(name)
            if shape is None:
                raise UserError(f"the shape of '{name}' is not known.")
            found[name] = shape
        return found


_Piece = Tuple[_Half, _Half]
"""Before and after a rule, with the same inputs."""


def _pieces(before: _Side, after: _Side) -> list[_Piece]:
    sides = (before, after)
    changed = [_changed(one, other) for one, other in (sides, sides[::-1])]
    unions: Unions[tuple[int, int]] = Unions()
    makers: dict[str, list[tuple[int, int]]] = {}
    for number, own in enumerate(changed):
        for node in own.values():
            for name in filter(None, node.outputs):
                makers.setdefault(name, []).append((number, id(node)))
    for name, made in makers.items():
        joined = made[1:]
        if not _is_border(name, before, after):
            for number, (side, own) in enumerate(zip(sides, changed)):
                joined += [(number, id(node)) for node in side.graph.consumers(name) if id(node) in own]
        for one in joined:
            unions.join(made[0], one)
    pieces: dict[tuple[int, int], _Piece] = {}
    for number, own in enumerate(changed):
        for key, node in own.items():
            pieces.setdefault(unions.root((number, key)), (_Half(before), _Half(after)))[number].take(node)
    for piece in pieces.values():
        _give_same_inputs(piece)
    return list(pieces.values())


def _is_border(name: str, before: _Side, after: _Side) -> bool:
    """True if both sides have the tensor with the same shape, and it is float: integers control their readers."""
    there = all(name in side.graph.producer or name in side.graph.inputs for side in (before, after))
    return there and before.types.is_float(name) and before.sizes(name) == after.sizes(name)


def _changed(side: _Side, other: _Side) -> dict[int, Node]:
    """Nodes that `other` lacks, or has with different weights or tensor shapes. Readers of integers that such a node
    makes are included."""
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


def _give_same_inputs(piece: _Piece) -> None:
    """Extend a piece by producers, the latest first, until both sides have the same inputs. They make tensors that only
    one side reads, of unknown size, or of integers. A tensor of which a side needs only the size stays an input: else
    sizes that the last layer of a network computes would include the whole network."""
    one, two = piece

    def latest(half: _Half, other: _Half) -> tuple[int, Optional[Node]]:
        def accepted(name: str) -> bool:
            both = name in other.missing and half.side.types.is_float(name)
            size_only = name not in half.values and _is_border(name, one.side, two.side)
            return (both or size_only) and half.side.sizes(name) is not None

        return half.latest(accepted)

    while one.nodes and two.nodes:
        (place, node), (place_two, node_two) = latest(one, two), latest(two, one)
        if node_two is not None and place_two >= place:
            two.take(node_two)
        elif node is not None:
            one.take(node)
        else:
            break
    for half in piece:
        half.nodes.sort(key=lambda node: half.side.order[id(node)])


# ---------------- two models and their numbers


def _compare(piece: _Piece, scales: Mapping[str, float], tolerance: float) -> str:
    """'', or the difference of the piece after the rule from the piece before it. tolerance: see `_difference`."""
    one, two = piece
    graph, there = one.side.graph, two.made.union(two.side.weights)
    made = Part(graph, one.nodes, graph.outputs).makes
    outputs = [name for name in made if name in there and one.side.types.is_float(name)]
    if not outputs:
        return ""
    try:
        rows = _measured(piece, outputs, scales)
    except MissingDependency:
        raise
    except UserError as error:
        return error.what.rstrip(".")
    return next(filter(None, (_difference(name, found, tolerance) for name, found in rows.items())), "")


def _measured(piece: _Piece, outputs: Sequence[str], scales: Mapping[str, float]) -> dict[str, list[Comparison]]:
    """Output -> comparison after and before the rule, for each kind of input. Raises UserError if shapes differ."""
    rows: dict[str, list[Comparison]] = {name: [] for name in outputs}
    runs = [_session(half, outputs) for half in piece]
    for number in range(SAMPLES):
        want, got = (run(feed) for run, feed in zip(runs, _feeds(piece, scales, number)))
        for name, found in rows.items():
            inferred, one, two = piece[0].side.sizes(name), want.pop(name), got.pop(name)
            if inferred not in (None, one.shape):
                raise UserError(f"'{name}' has the shape {list(one.shape)}, not {list(inferred or ())}.")
            if one.size != two.size:
                raise UserError(f"'{name}' has {one.size} values instead of {two.size}.")
            found.append(Comparison())
            found[-1].add(two.reshape(one.shape), one)
    return rows


def _difference(name: str, rows: Sequence[Comparison], tolerance: float) -> str:
    """'' if no difference exceeds `tolerance` times the largest magnitude. rows: comparison of the tensor after and
    before a rule, for each input.
    """
    usual = max(row.peak for row in rows[:_USUAL])
    for row in rows:
        most = max(usual, row.peak)
        if row.max_abs > tolerance * most:
            return f"'{name}' differs by {row.max_abs:.3g} where the largest value is {most:.3g}"
    finite = not any(row.non_finite for row in rows)
    return "" if finite else f"'{name}' is not finite where it was, or is where it was not"


def _dtype(side: _Side, name: str) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(side.types.elem_type(name) or onnx.TensorProto.FLOAT)


def _feeds(piece: _Piece, scales: Mapping[str, float], number: int) -> Iterator[dict[str, np.ndarray]]:
    """Equal values of one kind for both sides, in the shapes of each side."""
    rng = np.random.default_rng(number)
    one, two = piece
    values = {}
    for name, shape in {**two.shapes, **one.shapes}.items():
        dtype = _dtype(one.side if name in one.shapes else two.side, name)
        reach = 127 * scales[name] if name in scales else _RANGE
        values[name] = _values(rng, math.prod(shape), dtype, reach, number)
    return ({name: values[name].reshape(shape) for name, shape in half.shapes.items()} for half in piece)


def _values(rng: np.random.Generator, count: int, dtype: np.dtype, reach: float, number: int) -> np.ndarray:
    if dtype.kind != "f":  # integers are indices and sizes: only 0 is always valid
        return (rng.integers(0, 2, count) * (dtype.kind == "b")).astype(dtype)
    made = _KINDS[number](rng, count)
    made *= np.float32(reach)
    return made.astype(dtype, copy=False)


_KINDS: tuple[Callable[[np.random.Generator, int], np.ndarray], ...] = (
    lambda rng, count: rng.standard_normal(count, np.float32) / 3,
    lambda rng, count: rng.random(count, np.float32) * 2 - 1,
    lambda rng, count: rng.integers(-1, 2, count, np.int8).astype(np.float32),
    lambda rng, count: rng.standard_normal(count, np.float32) * 100,
    lambda rng, count: rng.standard_normal(count, np.float32) * 1e-6,
    lambda rng, count: np.zeros(count, np.float32),
)
"""Inputs of a piece, as shares of their range: normal and uniform inside it, at its ends, far beyond it, tiny, zero.
"""
_USUAL = 3
"""The first kinds are usual inputs of an INT8 network: errors are relative to the magnitude of their outputs."""
SAMPLES = len(_KINDS)


def _session(half: _Half, outputs: Sequence[str]) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The nodes as a model. An output that no node makes is a constant."""
    wanted = [name for name in outputs if name in half.made]
    constant = {name: to_array(half.side.weights[name]) for name in outputs if name not in half.made}
    if not wanted:
        return lambda _: dict(constant)
    inputs = (value_info(name, _dtype(half.side, name), shape) for name, shape in half.shapes.items())
    model, weights = half.side.graph.submodel(half.nodes, "piece", inputs)
    session = Session(model, "rewritten", wanted, weights=weights)
    return lambda values: {**constant, **session.run(values)}
