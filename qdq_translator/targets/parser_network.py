"""What TensorRT's ONNX parsers make of a network: the tensors that only their network has, and what they are called.

One row an operator (`_row`), in the order in which the parser adds layers. A tensor between two layers of one node has no
ONNX name. TensorRT 8.x calls it `(Unnamed Layer* N) [Type]_output`, N counting every layer of the network from 0; 10.x
calls it `<layer>_output`, and a layer name that is taken gets `_k` from one counter that layers and tensors share. So a
name is certain only while every node before it has a row; where it is not, it is None. The rows come from what the
open-source parsers 8.5, 8.6, 10.3, 10.7 and 10.10 made of some 140 networks (fact 4.12); that the library derives
tensor names in this way is inferred from published listings.

| word | layer or name that it stands for |
| --- | --- |
| `const:i` | Constant of input i, where it is an initializer that has none yet |
| `operands` | `const:i` and the broadcast of every input in turn |
| `broadcast:i` | Shuffle of input i to the rank of the highest operand, where it is lower |
| `main[:Type]` | a layer with the node's name |
| `part` | a layer with the node's name that makes one of the node's outputs |
| `shuffle` | a Shuffle with the node's name |
| `flatten` | a Shuffle to two dimensions |
| `helper:NAME[:Type]` | a layer that 10.x calls NAME (nothing: unnamed) |
| `name:NAME` | a name of the parser's that becomes no tensor |
| `?` | from here on nothing is certain |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Tuple

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.ir.operators import ELEMENTWISE, PARTS, RESIZES, VIEWS
from qdq_translator.ir.types import FLOAT_TYPES, TensorTypes

Version = Tuple[int, int, int]

PARSER_PREFIX = "ONNXTRT_"
"""What the parser's own layers are called like in 10.x."""
MULTI_LAYER = ("Split", "Sum", "Max", "Min")
"""Operators of which the parser makes several layers with the node's name."""
_ONE_LAYER = frozenset(
    (
        *(
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "Elu",
            "HardSigmoid",
            "Selu",
            "Softplus",
            "Softsign",
            "ThresholdedRelu",
        ),
        *("Abs", "Exp", "Erf", "Sqrt", "Log", "Neg", "Sin", "Cos", "Floor", "Ceil", "Reciprocal", "LRN", "Transpose"),
        *("GlobalAveragePool", "GlobalMaxPool", "Cast", "Identity"),
    )
)
_ELEMENTWISE = frozenset((*ELEMENTWISE, "Pow", "PRelu"))
_NO_FLOAT_HELPERS = frozenset(
    (
        *(*VIEWS, *PARTS, *RESIZES, "Shape", "Expand", "Tile", "Concat"),
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ArgMax", "ArgMin", "TopK"),
    )
)
"""Operators whose row may be uncertain, but whose layers add no float tensor of their own."""
_INTEGER_LAYERS = ("Constant", "Shape", "Cast", "Gather", "Concatenation")
"""Helpers that compute shapes, and constants that nothing reads."""
_DYNAMIC_FLATTEN_8 = "helper::Constant helper::Shape helper::Gather helper::Constant helper::Concatenation shuffle"
_DYNAMIC_FLATTEN_10 = (
    "name:tmp_weight helper:ONNXTRT_ShapeTensorFromDims:Constant helper:ONNXTRT_ShapeTensor:Shape helper:ONNXTRT_castHelper:Cast "
    "helper:ONNXTRT_ShapeGather:Gather name:tmp_weight helper:ONNXTRT_ShapeTensorFromDims:Constant "
    "helper:ONNXTRT_ShapeConcat:Concatenation shuffle"
)


@dataclass(frozen=True)
class OwnTensor:
    """A float tensor of the parser's network that the ONNX network does not have.

    kind: 'constant', 'broadcast' or 'inside' (between two layers of the node). source: the initializer or tensor whose
    values it holds, '' for what a node computes on its way. name: None where it cannot be predicted with certainty.
    """

    node: Node
    kind: str
    source: str
    name: Optional[str]


def supports(version: Version) -> bool:
    """True for TensorRT versions whose parser is known."""
    return version[:2] in ((8, 5), (8, 6)) or version[0] == 10


def own_tensors(graph: Graph, types: TensorTypes, version: Version) -> Iterator[OwnTensor]:
    """In network order. A constant that several nodes read comes once for each of them, under one name."""
    return _Walk(graph, types, version).run()


def misnamed(graph: Graph, types: TensorTypes, version: Version) -> list[Node]:
    """Nodes whose name the parser gives to another layer first (a Split `sp` makes `sp` and `sp_0`), so that their own
    layer is called otherwise; as far as names are certain."""
    walk = _Walk(graph, types, version)
    for _ in walk.run():
        pass
    return walk.misnamed


def further_layers(graph: Graph, types: TensorTypes, version: Version) -> dict[str, list[str]]:
    """Node -> the layers that compute on its data and are called otherwise than it ('' for one without a name), which
    `--layerPrecisions` with the node's name does not reach; as far as rows are known."""
    walk = _Walk(graph, types, version)
    for _ in walk.run():
        pass
    return walk.further


class _Walk:
    def __init__(self, graph: Graph, types: TensorTypes, version: Version) -> None:
        self.graph, self.types, self.version = graph, types, version
        self.certain = not any(name in graph.outputs for name in (*graph.inputs, *graph.initializers))
        self.layers = 0
        self.counter = 0
        self.layer_names: set[str] = set()
        self.tensor_names: set[str] = set(graph.outputs)
        self.constants: dict[str, Optional[str]] = {}
        self.misnamed: list[Node] = []
        self.started: set[str] = set()
        self.further: dict[str, list[str]] = {}
        self.made = ""
        """The name of the last layer."""

    def run(self) -> Iterator[OwnTensor]:
        for node in self.graph.nodes:
            row = _row(node, self.graph, self.types, self.version)
            if row is None:
                self.certain = False
                if not node.is_op(*_NO_FLOAT_HELPERS) and any(self.types.is_float(n) for n in node.outputs if n):
                    yield OwnTensor(node, "inside", "", None)
                continue
            yield from self._node(node, row.split())
            for name in node.outputs:
                if name in self.graph.outputs:  # outputs are reserved first
                    self._unique(self.tensor_names, name)

    def _node(self, node: Node, words: list[str]) -> Iterator[OwnTensor]:
        for position, word in enumerate(words):
            what, _, rest = word.partition(":")
            if what == "operands":
                for index in range(len(node.inputs)):
                    yield from self._constant(node, index)
                    yield from self._broadcast(node, index)
            elif what == "const":
                yield from self._constant(node, int(rest))
            elif what == "broadcast":
                yield from self._broadcast(node, int(rest))
            elif what == "name":
                self._unique(self.layer_names if rest.startswith(PARSER_PREFIX) else self.tensor_names, rest)
            elif what == "?":
                self.certain = False
            else:
                name, source = self._own_layer(node, what, rest)
                if self.made != node.name and rest.rpartition(":")[2] not in _INTEGER_LAYERS:
                    self.further.setdefault(node.name, []).append(self.made)
                if position < len(words) - 1 and what != "part" and rest.rpartition(":")[2] not in _INTEGER_LAYERS:
                    yield OwnTensor(node, "inside", source, name)

    def _own_layer(self, node: Node, what: str, rest: str) -> tuple[Optional[str], str]:
        if what in ("main", "part", "shuffle") and node.name in self.layer_names and node.name not in self.started:
            self.misnamed.append(node)
        self.started.add(node.name)
        if what == "shuffle":
            self._unique(self.layer_names, "ONNXTRT_ShapeShuffle")
            return self._layer("Shuffle", node.name), node.inputs[0]
        if what == "flatten":
            self._unique(self.layer_names, "ONNXTRT_ShapeShuffle")
            return self._layer("Shuffle", "ONNXTRT_flattenTensor"), node.inputs[0]
        if what == "helper":
            name, _, label = rest.rpartition(":") if ":" in rest else (rest, "", "Shuffle")
            return self._layer(label, name), ""
        return self._layer(rest.replace("_", " "), node.name), ""  # main, part

    # ---------------------------------------------------------------- names

    def _layer(self, label: str, name: str) -> Optional[str]:
        """Adds a layer; the name of its output where nothing else names it."""
        index = self.layers
        self.layers += 1
        unnamed = not name or (self.version[0] == 8 and name.startswith(PARSER_PREFIX))
        unique = None if unnamed else self._unique(self.layer_names, name)
        self.made = unique or ""
        if unnamed or self.version[0] == 8:
            return f"(Unnamed Layer* {index}) [{label}]_output" if self.certain else None
        return None if unique is None else f"{unique}_output"

    def _unique(self, taken: set[str], wanted: str) -> Optional[str]:
        """What the parser makes of a wanted name; None where that depends on a node without a row."""
        if self.version[0] == 8 and wanted.startswith(PARSER_PREFIX):
            return None  # there such layers have no names
        name = wanted
        while name in taken:
            if not self.certain:
                return None
            name = f"{wanted}_{self.counter}"
            self.counter += 1
        taken.add(name)
        return None if wanted.startswith(PARSER_PREFIX) and not self.certain else name

    def _constant(self, node: Node, index: int) -> Iterator[OwnTensor]:
        name = node.input(index)
        tensor = self.graph.initializers.get(name)
        if tensor is None:
            return
        if name not in self.constants:
            self.constants[name] = self._layer("Constant", name)
        if tensor.data_type in FLOAT_TYPES:
            yield OwnTensor(node, "constant", name, self.constants[name])

    def _broadcast(self, node: Node, index: int) -> Iterator[OwnTensor]:
        ranks = [self.types.rank(name) for name in node.inputs if name]
        rank = self.types.rank(node.input(index))
        highest = 2 if node.is_op("Gemm") else max((r for r in ranks if r is not None), default=0)
        if rank is None or rank >= highest:
            return
        self._unique(self.layer_names, "ONNXTRT_ShapeShuffle")
        name = self._layer("Shuffle", "ONNXTRT_Broadcast")
        if self.types.is_float(node.input(index)):
            yield OwnTensor(node, "broadcast", node.input(index), name)


# ---------------------------------------------------------------- rows


def _row(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    """The layers that the parser makes of a node (the words of the module's table); None where that is not known."""
    if not node.is_standard or any(True for _ in node.subgraphs()):
        return None
    if node.op_type in _ONE_LAYER:
        return "main"
    if node.op_type in _ELEMENTWISE:
        return _elementwise(node, graph, types)
    rule = _ROWS.get(node.op_type)
    return None if rule is None else rule(node, graph, types, version)


def _initializers(node: Node, graph: Graph, first: int) -> bool:
    return all(name in graph.initializers for name in node.inputs[first:] if name) and "" not in node.inputs


def _elementwise(node: Node, graph: Graph, types: TensorTypes) -> Optional[str]:
    if graph.opset() < 7 or len(node.inputs) < 2:
        return None
    ranks = [types.rank(name) for name in node.inputs]
    if None in ranks:
        return None
    highest = max(r for r in ranks if r is not None)
    for name, rank in zip(node.inputs, ranks):
        if rank != highest and name not in graph.initializers and types.static_shape(name) is None:
            return None  # the parser computes the shape of the broadcast at run time
    return " ".join(("operands", *("main:ElementWise" for _ in node.inputs[1:])))


def _conv(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    weight = graph.initializers.get(node.input(1))
    if weight is None or len(weight.dims) not in (4, 5) or not _initializers(node, graph, 1):
        return None
    return None if any(operators.output_padding(node)) or operators.states_output_shape(node) else "main"


def _pool(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return "main" if types.rank(node.inputs[0]) in (4, 5) and len(node.outputs) == 1 else None


def _clip(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    limits = graph.opset() < 11 or (len(node.inputs) == 3 and _initializers(node, graph, 1))
    return "main" if limits and types.is_float(node.inputs[0]) else None


def _batchnorm(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    if types.rank(node.inputs[0]) != 4 or not _initializers(node, graph, 1):
        return None
    return "main"


def _concat(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return " ".join((*(f"const:{index}" for index in range(len(node.inputs))), "main"))


def _gemm(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    alpha, beta = operators.coefficients(node)
    if alpha != 1 or (node.input(2) and beta != 1):
        return None
    if not node.input(2):
        return "const:0 const:1 main:Matrix_Multiply"
    if node.input(2) not in graph.initializers and types.rank(node.input(2)) != 2:
        return None
    last = "main" if version >= (10, 16, 0) else "helper::ElementWise"
    unknown = " ?" if (10, 11, 0) <= version < (10, 16, 0) else ""
    return f"const:0 const:1 main:Matrix_Multiply const:2 broadcast:2 {last}{unknown}"


def _matmul(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    ranks = [types.rank(name) for name in node.inputs]
    if any(rank is None or rank < 2 for rank in ranks):
        return None
    if ranks[0] != ranks[1] and not any(name in graph.initializers for name in node.inputs):
        return None
    return "const:0 const:1 broadcast:0 broadcast:1 main:Matrix_Multiply"


def _softmax(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    static = types.static_shape(node.inputs[0]) is not None
    if graph.opset() < 13:
        return "flatten main:Softmax helper:ONNXTRT_ShapeShuffle" if static else None
    return "main:Softmax helper:ONNXTRT_ShapeShuffle" if static else "main:Softmax ?"


def _flatten(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    shape, axis = types.shape(node.inputs[0]), operators.axis(node, graph.opset())
    if shape is None:
        return None
    if len(shape) == 2 and axis == 1:
        return "helper:ONNXTRT_identity"
    if all(isinstance(d, int) for d in shape):
        return "shuffle"
    if axis == 1 and all(isinstance(d, int) for d in shape[1:]):
        return _DYNAMIC_FLATTEN_8 if version[0] == 8 else _DYNAMIC_FLATTEN_10
    return None


def _reshape(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return "shuffle" if _initializers(node, graph, 1) else None


def _squeeze(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    """Up to 10.3 a Shuffle; from 10.7 on a layer of its own kind, whose axes are a Constant. Between them not known."""
    if types.static_shape(node.inputs[0]) is None or not _initializers(node, graph, 1):
        return None
    if version < (10, 4, 0):
        return "shuffle"
    if version < (10, 7, 0):
        return None
    return "const:1 main" if node.input(1) else "helper::Constant main"


def _resize(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    scales = node.input(2) if graph.opset() >= 11 else node.input(1)
    sizes = node.input(3) if version[0] == 10 else ""  # 8.x computes factors from sizes
    known = (sizes or scales) in graph.initializers and (sizes or not node.input(3))
    return "main" if known and "axes" not in node.attributes else None


def _split(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    if types.static_shape(node.inputs[0]) is None or not _initializers(node, graph, 1):
        return None
    return " ".join("part" if version[0] == 8 else "name:ONNXTRT_ShapeSlice part" for _ in node.outputs)


def _reduce(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return "main" if _initializers(node, graph, 1) else None


def _layer_norm(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    """Up to 10.10 two constants precede the operands, from 10.16 on none (seen with TensorRT-RTX 1.7)."""
    if len(node.inputs) != 3 or not _initializers(node, graph, 1) or version < (8, 6, 0):
        return None
    operands = "const:1 const:2 broadcast:1 broadcast:2"
    if version[0] == 8:
        return f"{operands} helper::Normalization"
    if version < (10, 11, 0):
        return f"name:tmp_weight helper::Constant name:tmp_weight helper::Constant {operands} main"
    return f"{operands} main" if version >= (10, 16, 0) else f"? {operands} main"


def _dropout(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return "helper:ONNXTRT_identity" if len(node.outputs) == 1 else None


def _constant(node: Node, graph: Graph, types: TensorTypes, version: Version) -> Optional[str]:
    return ""


_ROWS = {
    "AveragePool": _pool,
    "BatchNormalization": _batchnorm,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "Reshape": _reshape,
    "Resize": _resize,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
}
