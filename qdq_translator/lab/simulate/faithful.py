"""Rule V1: the written network computes the function of the model, checked by running both.

The reference is the model with its quantizers replaced by their saturation, in float. Nodes of both networks that are
the same operator on the same values are the same value, and run once. A tensor that both networks have under one name
is compared where it is computed differently, and what follows reads the model's values: an error has one place, and
does not grow from layer to layer. So the check costs at most about one inference, and the parts that differ.

Random inputs do not reach the bounds of clamps inside a network. So what a clamp bounds is multiplied, in both networks
alike, until its values exceed the bounds (`_beyond`). A network with such bounds is run once more as it is; only that
if no clamp is in the parts that differ.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Collection, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np
from onnx import TensorProto

from qdq_translator.lab.simulate.compare import compare
from qdq_translator.lab.simulate.inputs import input_specs, random_samples
from qdq_translator.lab.simulate.metrics import Comparison, same_bits
from qdq_translator.lab.simulate.run import Sliced, fold, in_rank
from qdq_translator.lab.simulate.thresholds import LAST_BIT_DB
from qdq_translator.lab.simulate.verdict import last_bits_changed
from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.bounds import value_range
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.types import FLOAT_TYPES, TensorTypes, open_sizes
from qdq_translator.translation.ir.weights import Initializer, to_array
from qdq_translator.translation.passes.cleanup import remove_dead_nodes, remove_unused_initializers

LEAST_DB = 60.0
"""SQNR of a tensor of both networks below which they compute another function."""
HALF_DB = 35.0
"""SQNR of a tensor of both networks below which they compute another function, if the model has float16 or bfloat16
weights."""
_BOUNDED = ("Clip", "HardSigmoid", "HardSwish")
_ROUNDS = 3
"""In which differences may follow from each other before both networks are run alone."""
_BATCH, _OPEN = 2, 64
"""Sizes for a batch and for other dimensions of unknown size."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference between a model and its translation. tensor: the first that differs. output: the graph output that
    differs because of it. db: SQNR of the output. chaos: the model's own output moves as much if the last bit of its
    weights changes."""

    tensor: str
    output: str
    db: float
    chaos: bool


def difference(
    source: Graph, written: Graph, shapes: Mapping[str, Sequence[int]], least: float = LEAST_DB
) -> Optional[Difference]:
    """None if the two networks compute the same; both saturate already and may be changed. shapes: of dynamic graph
    inputs. Raises UserError if one of them cannot be run."""
    fold(source)
    feed, bounded = _feed(source, written, shapes), _bounds(source)
    if bounded and _alike(source, written, feed, least):
        return None
    for without in ((), bounded) if bounded else ((),):  # values beyond every bound may hide what is between them
        apart = _apart(source, written, without, feed, least)
        if not apart:
            continue
        pair = _beyond(source, written, {*without, *apart})
        found = {name: db for name, db in _Sides(*pair, feed, apart=None).compared().items() if db < least}
        for output, db in found.items():
            if output in written.outputs:
                own = _moved(pair[0], feed, output)
                return Difference(next(iter(apart)), output, db, db >= own - LAST_BIT_DB and own < least)
    return None


def _alike(source: Graph, written: Graph, feed: Mapping[str, np.ndarray], least: float) -> bool:
    """Whether all of both networks is computed alike but parts without clamps, and those are the same as they are."""
    sides = _Sides(source, written, feed)
    return not sides.has_clamps() and all(db >= least for db in sides.compared().values())


def _apart(
    source: Graph, written: Graph, without: Collection[str], feed: Mapping[str, np.ndarray], least: float
) -> dict[str, float]:
    """The tensors that differ, if an output may differ because of them. What differs inside may be meant (a Clip under
    the name of the Relu that it replaces, `--equalize`): what follows it then reads the written network's own values,
    and the function is the same if all of that is the model's again."""
    apart: dict[str, float] = {}
    for _ in range(_ROUNDS):
        compared = _Sides(*_beyond(source, written, {*without, *apart}), feed, apart).compared()
        differ = {name: db for name, db in compared.items() if db < least and name not in apart}
        if not differ:
            return {}
        apart.update(differ)
        if not differ.keys().isdisjoint(written.outputs):
            break
    return apart


def _feed(source: Graph, written: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Normal values, by the inputs of the model."""
    model, _ = source.picture()
    sizes = concrete_sizes(source, {name: size for name, size in shapes.items() if name in source.inputs})
    return random_samples(input_specs(model, sizes), {}, 1, 0).feed(0)


# ---------------- values beyond every bound


def _beyond(source: Graph, written: Graph, without: Collection[str] = ()) -> tuple[Graph, Graph]:
    """Copies, if there is a bound. Behind the operator that makes what a clamp bounds, they multiply by what brings the
    root mean square to its bound: a third of normal values exceeds it. In both networks, where both have the tensor,
    and not `without`."""
    bounds = _bounds(source)
    if bounds.keys() <= set(without):
        return source, written
    source, written = (Graph.from_picture(graph.picture()) for graph in (source, written))
    types, others = TensorTypes(source), TensorTypes(written)
    for name, bound in bounds.items():
        # a factor keeps signs, and would break other bounds that the operators before it keep
        free = all(math.isinf(end) or not end for end in value_range(source, name))
        is_float = types.elem_type(name) == others.elem_type(name) == TensorProto.FLOAT
        if free and is_float and name in written.producer and name not in {*without, *source.outputs, *written.outputs}:
            for graph in (source, written):
                _multiply(graph, name, bound)
    return source, written


def _bounds(graph: Graph) -> dict[str, float]:
    """Tensor -> the largest bound of the clamps that limit its values, alone or inside HardSigmoid and HardSwish."""
    bounds: dict[str, float] = {}
    for node in graph.of(*_BOUNDED):
        found: Sequence[Optional[float]] = (-3.0, 3.0)
        if node.is_op("Clip"):
            found = operators.clip_bounds(node, graph.array)
        elif node.is_op("HardSigmoid"):
            alpha, beta = operators.coefficients(node)
            found = [(end - beta) / alpha for end in (0.0, 1.0)] if alpha else ()
        ends = [abs(end) for end in found if end is not None and 0 < abs(end) < math.inf]
        name = _made(graph, node.inputs[0])
        if ends and name:
            bounds[name] = max(bounds.get(name, 0.0), *ends)
    return bounds


def _made(graph: Graph, name: str) -> str:
    """The tensor behind Relu, data movement and the like that has no bounds of its own; '' if there is none."""
    while True:
        node = graph.producer.get(name)
        if node is None:
            return ""
        if node.is_op(*operators.WEIGHTED, "BatchNormalization", "Add", "Sub", "Mul"):
            return name
        if not node.is_op("Relu", "Clip", "MaxPool", *operators.REARRANGES):
            return ""
        name = node.inputs[0]


def _multiply(graph: Graph, name: str, bound: float) -> None:
    made, anchor = f"{name}/beyond", graph.producer[name]
    readers = graph.consumers(name)
    one = {
        key: graph.constant(f"{made}/{key}", np.float32(value))
        for key, value in (("bound", bound * bound), ("least", 1e-30))
    }
    steps = (
        ("Mul", [name, name], "square"),
        ("ReduceMean", [f"{made}/square"], "energy"),
        ("Max", [f"{made}/energy", one["least"]], "some"),
        ("Div", [one["bound"], f"{made}/some"], "ratio"),
        ("Sqrt", [f"{made}/ratio"], "factor"),
    )
    for op, inputs, what in steps:
        node = Node(op, inputs, [f"{made}/{what}"], f"{made}/{what}")
        if op == "ReduceMean":
            node.set("keepdims", 0)
        anchor = graph.insert_after(node, anchor)
    graph.insert_after(Node("Mul", [name, f"{made}/factor"], [made], made), anchor)
    for reader in readers:
        graph.replace_use(reader, name, made)


# ---------------- one run of both


Given = Tuple[str, Optional[Tuple[int, ...]]]
"""A tensor of the model, and the shape that the written network has it in, if that is known."""


def _sizes(graph: Graph, name: str) -> list[Any]:
    return [dim.dim_value or None for dim in graph.inputs[name].type.tensor_type.shape.dim]


class _Held:
    """Values of the model's tensors, from its run as far as they are needed."""

    def __init__(
        self, run: Iterator[tuple[str, np.ndarray]], given: Mapping[str, Given], pairs: Collection[str]
    ) -> None:
        self.run, self.given = run, given
        self.uses: dict[str, int] = {}
        for name in (*(name for name, _ in given.values()), *pairs):
            self.uses[name] = self.uses.get(name, 0) + 1
        self.values: dict[str, np.ndarray] = {}

    def __call__(self, names: Collection[str]) -> dict[str, np.ndarray]:
        return {name: self._given(*self.given[name]) for name in names if name in self.given}

    def _given(self, name: str, shape: Optional[tuple[int, ...]]) -> np.ndarray:
        values = self.reference(name)
        return values if shape is None else values.reshape(shape)

    def reference(self, name: str) -> np.ndarray:
        while name not in self.values:
            made, values = next(self.run)
            self.values[made] = values
        self.uses[name] -= 1
        return self.values[name] if self.uses[name] else self.values.pop(name)


class _Sides:
    """Both networks, with the numbers of their values and the types of their tensors. rest: what only the written one
    computes. given: its inputs -> tensors of the model. pairs: tensors to be compared."""

    def __init__(
        self, source: Graph, written: Graph, feed: Mapping[str, np.ndarray], apart: Optional[Collection[str]] = ()
    ) -> None:
        """Number the values of both networks. apart: tensors behind which the written network's own values are read;
        None for all."""
        self.feed, self.fitting = feed, {n: in_rank(feed[n], _sizes(written, n)) for n in written.inputs}
        self.source, self.rest, self.numbers = source, written, _Numbers(source)
        self.known: dict[int, str] = {}
        for name in source.tensors():
            self.known.setdefault(self.numbers.of(name), name)
        self.own = _Numbers(written, self.numbers)
        self.given: dict[str, Given] = {}
        self.pairs: list[str] = []
        for name, values in self.fitting.items():
            if name in source.inputs and values.shape == feed[name].shape:
                self.own.same(name, name)
        both = [name for name in written.tensors() if name in source.producer]
        if any(self.own.of(name) != self.numbers.of(name) for name in both):
            self._part(apart)

    def _part(self, apart: Optional[Collection[str]]) -> None:
        written = self.rest
        shapes = [{name: values.shape for name, values in feed.items()} for feed in (self.feed, self.fitting)]
        self.types, self.others = TensorTypes(self.source, shapes[0]), TensorTypes(written, shapes[1])
        rest = self.rest = self.own.graph = Graph.from_picture(written.picture())
        self.own.known = {"": -1, **{name: self.own.known[name] for name in rest.inputs if name in self.own.known}}
        for name in [name for node in rest.nodes for name in node.outputs if name]:
            self._share(name, apart)
        rest.outputs = {n: written.value_info.get(n) or _info(n, self.others.elem_type(n)) for n in self.pairs}
        remove_dead_nodes(rest)
        remove_unused_initializers(rest)
        self.given = {name: row for name, row in self.given.items() if rest.is_used(name)}

    def _share(self, name: str, apart: Optional[Collection[str]]) -> None:
        same, differs = self.counterpart(name)
        if differs:
            self.pairs.append(name)
        if same and not (differs and (apart is None or name in apart)):
            self.give(name, same)

    def has_clamps(self) -> bool:
        """Whether a node with bounds is between the given tensors and the pairs, in one of the networks."""
        nodes, names = list(self.rest.nodes) if self.pairs else [], self.pairs[:]
        seen = {self.numbers.of(name) for name, _ in self.given.values()}
        while names:
            node = self.source.producer.get(names.pop())
            if node is not None:
                nodes.append(node)
                names += [name for name in node.reads() if self.numbers.of(name) not in seen]
                seen.update(map(self.numbers.of, node.reads()))
        return any(node.is_op(*_BOUNDED) for node in nodes)

    def compared(self) -> dict[str, float]:
        """Tensor -> SQNR in dB, in the order of the written network, of those that are computed differently."""
        if not self.pairs:
            return {}
        wanted = dict.fromkeys([*self.pairs, *(name for name, _ in self.given.values())])
        held = _Held(Sliced(self.source, self.types, "given", wanted).run(self.feed), self.given, self.pairs)
        found = {}
        for name, values in Sliced(self.rest, self.others, "written", self.pairs).run(self.fitting, held):
            row = Comparison()
            compare(row, held.reference(name), values, name, "given", "written")
            worst = -20 * math.log10(row.max_abs / row.peak) if row.max_abs and row.peak else math.inf
            found[name] = -math.inf if row.non_finite else min(row.sqnr_db, worst)
        return found

    def counterpart(self, name: str) -> tuple[str, bool]:
        """The model's tensor that has the values of a tensor of the written network, '' if there is none, and whether
        the two are computed differently."""
        number = self.own.of(name)
        both = name in self.source.producer and _is_float(self.others, self.types, name)
        differs = both and number != self.numbers.of(name)
        same = name if both else self.known.get(number, "")
        return same if same and _fit(self.types, same, self.others, name) else "", differs

    def give(self, name: str, same: str) -> None:
        """The readers of a tensor of the written network get the values of the model's tensor `same` instead."""
        graph, made = self.rest, f"{name}/given"
        self.own.same(name, same)
        self.own.same(made, same)
        readers = graph.consumers(name)
        if readers:
            graph.inputs[made] = _info(made, self.types.elem_type(same))
            self.given[made] = same, self.others.static_shape(name)
        for reader in readers:
            graph.replace_use(reader, name, made)


def _fit(types: TensorTypes, same: str, others: TensorTypes, name: str) -> bool:
    """Whether the values of a tensor of the model can be those of one of the written network."""
    one, other = types.static_shape(same), others.static_shape(name)
    if types.elem_type(same) != others.elem_type(name):
        return False
    if one is None or other is None:
        return types.rank(same) == others.rank(name)
    return math.prod(one) == math.prod(other)


def _is_float(others: TensorTypes, types: TensorTypes, name: str) -> bool:
    return others.elem_type(name) in FLOAT_TYPES and types.elem_type(name) in FLOAT_TYPES


def _info(name: str, elem_type: Optional[int]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, elem_type or TensorProto.FLOAT, None)


class _Numbers:
    """A number for every value of a graph: equal ones are computed alike. other: numbers of a graph to compare with."""

    def __init__(self, graph: Graph, other: Optional[_Numbers] = None) -> None:
        self.graph = graph
        self.table: dict[Any, int] = other.table if other is not None else {}
        self.constants: dict[Any, list[tuple[int, Initializer]]] = other.constants if other is not None else {}
        self.source = other
        self.known: dict[str, int] = {"": -1}
        self.clamps: dict[int, tuple[int, float, float]] = other.clamps if other is not None else {}

    def _number(self, key: Any) -> int:
        return self.table.setdefault(key, len(self.table))

    def same(self, name: str, other: str) -> None:
        """The tensor has the value of the other graph's tensor."""
        assert self.source is not None
        self.known[name] = self.source.of(other)

    def of(self, name: str) -> int:
        """The number of a tensor, equal for tensors that are computed alike. Its producer's inputs must have theirs
        (topological order)."""
        if name not in self.known:
            node, tensor = self.graph.producer.get(name), self.graph.initializers.get(name)
            if tensor is not None:
                self.known[name] = self._constant(tensor, tensor.dims)
            elif node is None:
                self.known[name] = self._number((id(self), name))
            else:
                self._node(node)
        return self.known[name]

    def _constant(self, tensor: Initializer, dims: Sequence[int]) -> int:
        """The number of a constant, equal for equal values of one type and shape. dims: its shape, or one that its
        readers take alike."""
        values = to_array(tensor).reshape(-1)
        key = (tensor.data_type, tuple(dims), values[:: max(1, values.size // 64)].tobytes())
        alike = self.constants.setdefault(key, [])
        for number, other in alike:
            if same_bits(to_array(other).reshape(-1), values):
                return number
        alike.append((self._number((key, len(alike))), tensor))
        return alike[-1][0]

    def _sum(self, matrix: int, name: str) -> Any:
        """Key of a sum: what is added to a matrix may be written as a vector or with one row."""
        tensor = self.graph.initializers.get(name)
        is_row = tensor is not None and len(tensor.dims) == 2 and tensor.dims[0] == 1
        added = self._constant(tensor, tensor.dims[1:]) if tensor is not None and is_row else self.of(name)
        return "Add", "", self.graph.opset(), (), (matrix, added)

    def _key(self, node: Node, reads: Sequence[int]) -> Any:
        """What nodes that compute alike share. A Gemm with bias has the key of the sum that it computes: the
        translation may add the bias behind it."""
        graph = self.graph
        kept = (a for a in node.attributes.values() if not _is_default(node, a.name, graph))
        attributes = tuple(sorted(a.SerializeToString() for a in kept))
        if _is_gemm(node) and node.input(2) and operators.coefficients(node)[1] == 1:
            product = node.op_type, node.domain, graph.opset(), attributes, reads[:2]
            return self._sum(self._number((product, 0)), node.inputs[2])
        if node.is_op("Add") and not attributes and _is_gemm(graph.producer.get(node.inputs[0])):
            return self._sum(reads[0], node.inputs[1])
        return node.op_type, node.domain, graph.opset(), attributes, reads

    def _node(self, node: Node) -> None:
        graph = self.graph
        reads = tuple(self.of(name) for name in (*node.inputs, *node.captured))
        bounds = _clamped(node, graph)
        if node.is_op("Identity"):
            self.known[node.outputs[0]] = reads[0]
        elif bounds is not None:
            base, *ends = self.clamps.get(reads[0], (reads[0], -math.inf, math.inf))
            low, high = (min(max(end, bounds[0]), bounds[1]) for end in ends)
            number = self.known[node.outputs[0]] = self._number(("clamp", base, low, high))
            self.clamps[number] = base, low, high
        else:
            key = self._key(node, reads)
            self.known.update((name, self._number((key, index))) for index, name in enumerate(node.outputs))


def _is_gemm(node: Optional[Node]) -> bool:
    return node is not None and node.is_op("Gemm")


def _clamped(node: Node, graph: Graph) -> Optional[tuple[float, float]]:
    """The bounds of a Relu, and of a Clip with constant ones."""
    if node.is_op("Relu"):
        return 0.0, math.inf
    low, high = operators.clip_bounds(node, graph.array) if node.is_op("Clip") else (None, None)
    return None if low is None or high is None else (float(np.float32(low)), float(np.float32(high)))


def _is_default(node: Node, name: str, graph: Graph) -> bool:
    """Whether an attribute of a convolution equals its default."""
    value = node.get(name)
    if not node.is_op(*operators.CONVOLUTIONS):
        return False
    if name == "kernel_shape":
        weight = graph.initializers.get(node.input(1))
        return weight is not None and list(weight.dims)[2:] == value
    return (
        (name in ("strides", "dilations", "group") and set(np.ravel(value)) == {1})
        or (name == "pads" and not any(value))
        or value == "NOTSET"
    )


def _moved(source: Graph, feed: Mapping[str, np.ndarray], output: str) -> float:
    """SQNR in dB of an output if the last bit of every weight changes."""
    row = Comparison()
    runs = [Sliced(g, TensorTypes(g), "given", [output]).run(feed) for g in (source, last_bits_changed(source))]
    for (_, one), (_, other) in zip(*runs):
        row.add(one, other)
    return row.sqnr_db


def concrete_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """A size for every dimension of every graph input, equal for dimensions of the same name."""
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
