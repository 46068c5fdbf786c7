"""Network that TensorRT's ONNX parsers build: tensors that exist only there, and their names.

One row per operator (`_row`), in the order in which the parser adds layers. A tensor between two layers of one node has
no ONNX name. TensorRT 8.x calls it `(Unnamed Layer* N) [Type]_output`, N counting every layer of the network from 0;
10.x calls it `<layer>_output`, and a duplicate layer name gets `_k` from one counter that layers and tensors share. So
a name is certain only if every node before it has a row; otherwise it is None. The rows were observed with the
open-source parsers 8.5, 8.6, 10.3, 10.7 and 10.10 on some 140 networks (fact 4.12); that the library derives tensor
names in this way is inferred from published listings (fact 4.6).

| word | layer or name that it represents |
| --- | --- |
| `const:i` | Constant of input i, if it is an initializer that has none yet |
| `broadcast:i` | Shuffle of input i to the rank of the highest operand, if it is lower |
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
from typing import Callable, Iterator, Optional, Tuple

import onnx

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import OPERATORS, where
from qdq_translator.translation.ir.operators import ELEMENTWISE, POOLING, window
from qdq_translator.translation.ir.types import FLOAT_TYPES, TensorTypes

Version = Tuple[int, int, int]

PARSER_PREFIX = "ONNXTRT_"
"""Prefix of the names of the parser's own layers in 10.x."""
MULTI_LAYER = where(parser="several")
"""Operators for which the parser makes several layers with the node's name (fact 4.4)."""
_ONE_LAYER = where(parser="one")
_NO_FLOAT_HELPERS = where(parser="bare")
"""Operators whose row may be uncertain, but whose layers add no float tensor of their own."""
_INTEGER_LAYERS = ("Constant", "Shape", "Cast", "Gather", "Concatenation")
"""Helpers that compute shapes, and constants that nothing reads."""
_DYNAMIC_FLATTEN_8 = "helper::Constant helper::Shape helper::Gather helper::Constant helper::Concatenation shuffle"
_DYNAMIC_FLATTEN_10 = (
    "name:tmp_weight helper:ONNXTRT_ShapeTensorFromDims:Constant helper:ONNXTRT_ShapeTensor:Shape "
    "helper:ONNXTRT_castHelper:Cast helper:ONNXTRT_ShapeGather:Gather name:tmp_weight "
    "helper:ONNXTRT_ShapeTensorFromDims:Constant helper:ONNXTRT_ShapeConcat:Concatenation shuffle"
)


@dataclass(frozen=True)
class OwnTensor:
    """A float tensor of the parser's network that the ONNX network does not have. kind: 'constant', 'broadcast' or
    'inside' (between two layers of the node). source: the initializer or tensor whose values it holds, '' for
    intermediate results of a node. name: None if it cannot be predicted with certainty."""

    node: Node
    kind: str
    source: str
    name: Optional[str]


def supports(version: Version) -> bool:
    """True for TensorRT versions whose parser is known."""
    return version[:2] in ((8, 5), (8, 6)) or version[0] == 10


class ParsedNetwork:
    """The network that this version's parser builds from a graph, as far as rows and names are known. own: tensors that
    only this network has, in its order; a constant that several nodes read is listed once for each, under one name.
    misnamed: nodes whose name the parser gives to another layer first (a Split `sp` makes `sp` and `sp_0`), so that
    their own layer has a different name. further: node -> the layers that compute on its data under a different name
    ('': unnamed), which `--layerPrecisions` with the node's name does not reach."""

    def __init__(self, graph: Graph, types: TensorTypes, version: Version) -> None:
        self.graph, self.types, self.version = graph, types, version
        self._certain = not any(name in graph.outputs for name in (*graph.inputs, *graph.initializers))
        self._layers = 0
        self._counter = 0
        self._layer_names: set[str] = set()
        self._tensor_names: set[str] = set(graph.outputs)
        self._constants: dict[str, Optional[str]] = {}
        self._started: set[str] = set()
        self._made = ""
        """The name of the last layer."""
        self.misnamed: list[Node] = []
        self.further: dict[str, list[str]] = {}
        self.own: list[OwnTensor] = []
        for node in graph.nodes:
            self.own.extend(self._node(node))

    def _node(self, node: Node) -> Iterator[OwnTensor]:
        row = _row(self, node)
        if row is None:
            self._certain = False
            if not node.is_op(*_NO_FLOAT_HELPERS) and any(map(self.types.is_float, filter(None, node.outputs))):
                yield OwnTensor(node, "inside", "", None)
            return
        words = row.split()
        for position, word in enumerate(words, 1):
            what, _, rest = word.partition(":")
            if what == "?":
                self._certain = False
            elif what == "name":
                self._unique(self._layer_names if rest.startswith(PARSER_PREFIX) else self._tensor_names, rest)
            elif what in ("const", "broadcast"):
                yield from (self._constant if what == "const" else self._broadcast)(node, int(rest))
            else:
                tensor = self._own_layer(node, what, rest)
                if tensor is not None and what != "part" and position < len(words):
                    yield tensor
        for name in node.outputs:
            if name in self.graph.outputs:  # names of graph outputs are reserved first (fact 4.1)
                self._unique(self._tensor_names, name)

    def _own_layer(self, node: Node, what: str, rest: str) -> Optional[OwnTensor]:
        """Add a layer of the node; return its output, None for a layer that computes on shapes."""
        if what in ("main", "part", "shuffle") and node.name in self._layer_names and node.name not in self._started:
            self.misnamed.append(node)
        self._started.add(node.name)
        source, label, called = "", rest.replace("_", " "), node.name
        if what == "helper":
            called, _, label = rest.rpartition(":") if ":" in rest else (rest, "", "Shuffle")
        elif what in ("shuffle", "flatten"):
            self._unique(self._layer_names, "ONNXTRT_ShapeShuffle")
            source, label = node.inputs[0], "Shuffle"
            called = node.name if what == "shuffle" else "ONNXTRT_flattenTensor"
        name = self._layer(label, called)
        if label in _INTEGER_LAYERS:
            return None
        if self._made != node.name:
            self.further.setdefault(node.name, []).append(self._made)
        return OwnTensor(node, "inside", source, name)

    # ---------------------------------------------------------------- names

    def _layer(self, label: str, name: str) -> Optional[str]:
        """Add a layer; return its output name if nothing else names it."""
        index = self._layers
        self._layers += 1
        unnamed = not name or (self.version[0] == 8 and name.startswith(PARSER_PREFIX))
        unique = None if unnamed else self._unique(self._layer_names, name)
        self._made = unique or ""
        if unnamed or self.version[0] == 8:
            return f"(Unnamed Layer* {index}) [{label}]_output" if self._certain else None
        return None if unique is None else f"{unique}_output"

    def _unique(self, taken: set[str], wanted: str) -> Optional[str]:
        """The parser's name for a wanted name; None if that depends on a node without a row."""
        if self.version[0] == 8 and wanted.startswith(PARSER_PREFIX):
            return None  # helper layers are unnamed in 8.x (fact 4.6)
        name = wanted
        while name in taken:
            if not self._certain:
                return None
            name = f"{wanted}_{self._counter}"
            self._counter += 1
        taken.add(name)
        return None if wanted.startswith(PARSER_PREFIX) and not self._certain else name

    def _constant(self, node: Node, index: int) -> Iterator[OwnTensor]:
        name = node.input(index)
        tensor = self.graph.initializers.get(name)
        if tensor is None:
            return
        if name not in self._constants:
            self._constants[name] = self._layer("Constant", name)
        if tensor.data_type in FLOAT_TYPES:
            yield OwnTensor(node, "constant", name, self._constants[name])

    def _broadcast(self, node: Node, index: int) -> Iterator[OwnTensor]:
        ranks = [self.types.rank(name) for name in node.inputs if name]
        rank = self.types.rank(node.input(index))
        highest = 2 if node.is_op("Gemm") else max((r for r in ranks if r is not None), default=0)
        if rank is None or rank >= highest:
            return
        self._unique(self._layer_names, "ONNXTRT_ShapeShuffle")
        name = self._layer("Shuffle", "ONNXTRT_Broadcast")
        if self.types.is_float(node.input(index)):
            yield OwnTensor(node, "broadcast", node.input(index), name)


# ---------------- rows


def _static(net: ParsedNetwork, node: Node) -> bool:
    """Whether all sizes of the first input are known."""
    return net.types.static_shape(node.inputs[0]) is not None


def _constants(net: ParsedNetwork, node: Node) -> bool:
    """Whether all inputs but the first are initializers."""
    return all(name in net.graph.initializers for name in node.inputs[1:] if name) and "" not in node.inputs


def _row(net: ParsedNetwork, node: Node) -> Optional[str]:
    """Layers that the parser makes for a node (words of the module's table); None if unknown."""
    rule = _ROWS.get(node.op_type)
    known = rule is not None and node.is_standard and not any(True for _ in node.subgraphs())
    return rule(net, node) if rule is not None and known else None


def _elementwise(net: ParsedNetwork, node: Node) -> Optional[str]:
    ranks = [net.types.rank(node.input(index)) for index in range(len(node.inputs))]
    if net.graph.opset() < 7 or len(ranks) < 2 or None in ranks:
        return None
    highest = max(rank or 0 for rank in ranks)
    computed = [
        name for name, rank in zip(node.inputs, ranks) if rank != highest and name not in net.graph.initializers
    ]
    if any(net.types.static_shape(name) is None for name in computed):
        return None  # the parser computes the shape of the broadcast at run time
    operands = (f"const:{index} broadcast:{index}" for index in range(len(ranks)))
    return " ".join((*operands, *("main:ElementWise" for _ in ranks[1:])))


def _conv(net: ParsedNetwork, node: Node) -> Optional[str]:
    weight = net.graph.initializers.get(node.input(1))
    if weight is None or len(weight.dims) not in (4, 5) or not _constants(net, node):
        return None
    return None if any(operators.output_padding(node)) or operators.states_output_shape(node) else "main"


def _clip(net: ParsedNetwork, node: Node) -> Optional[str]:
    limits = net.graph.opset() < 11 or (len(node.inputs) == 3 and _constants(net, node))
    return "main" if limits and net.types.is_float(node.inputs[0]) else None


def _gemm(net: ParsedNetwork, node: Node) -> Optional[str]:
    bias, version = node.input(2), net.version
    alpha, beta = operators.coefficients(node)
    if alpha != 1 or (bias and beta != 1):
        return None
    if not bias:
        return "const:0 const:1 main:Matrix_Multiply"
    if bias not in net.graph.initializers and net.types.rank(node.input(2)) != 2:
        return None
    last = "main" if version >= (10, 16, 0) else "helper::ElementWise"
    unknown = " ?" if (10, 11, 0) <= version < (10, 16, 0) else ""
    return f"const:0 const:1 main:Matrix_Multiply const:2 broadcast:2 {last}{unknown}"


def _matmul(net: ParsedNetwork, node: Node) -> Optional[str]:
    one, other = net.types.rank(node.input(0)) or 0, net.types.rank(node.input(1)) or 0
    if min(one, other) < 2 or (one != other and not any(n in net.graph.initializers for n in node.inputs)):
        return None
    return "const:0 const:1 broadcast:0 broadcast:1 main:Matrix_Multiply"


def _softmax(net: ParsedNetwork, node: Node) -> Optional[str]:
    if net.graph.opset() < 13:
        return "flatten main:Softmax helper:ONNXTRT_ShapeShuffle" if _static(net, node) else None
    return "main:Softmax helper:ONNXTRT_ShapeShuffle" if _static(net, node) else "main:Softmax ?"


def _flatten(net: ParsedNetwork, node: Node) -> Optional[str]:
    shape, axis = net.types.shape(node.inputs[0]), operators.axis(node, net.graph.opset())
    if shape is None:
        return None
    if len(shape) == 2 and axis == 1:
        return "helper:ONNXTRT_identity"
    if all(isinstance(d, int) for d in shape):
        return "shuffle"
    if axis == 1 and all(isinstance(d, int) for d in shape[1:]):
        return _DYNAMIC_FLATTEN_8 if net.version[0] == 8 else _DYNAMIC_FLATTEN_10
    return None


def _squeeze(net: ParsedNetwork, node: Node) -> Optional[str]:
    """Up to 10.3 a Shuffle; from 10.7 on a Squeeze or Unsqueeze layer whose axes are a Constant. Unknown in between."""
    if not (_static(net, node) and _constants(net, node)):
        return None
    if net.version < (10, 4, 0):
        return "shuffle"
    if net.version < (10, 7, 0):
        return None
    return "const:1 main" if node.input(1) else "helper::Constant main"


def _resize(net: ParsedNetwork, node: Node) -> Optional[str]:
    scales = node.input(2) if net.graph.opset() >= 11 else node.input(1)
    sizes = node.input(3) if net.version[0] == 10 else ""  # 8.x computes the factors from the sizes
    known = (sizes or scales) in net.graph.initializers and (sizes or not node.input(3))
    return "main" if known and "axes" not in node.attributes else None


def _split(net: ParsedNetwork, node: Node) -> Optional[str]:
    part = "part" if net.version[0] == 8 else "name:ONNXTRT_ShapeSlice part"
    return " ".join(part for _ in node.outputs) if _static(net, node) and _constants(net, node) else None


def _layer_norm(net: ParsedNetwork, node: Node) -> Optional[str]:
    """Up to 10.10 two constants precede the operands, from 10.16 on none (seen with TensorRT-RTX 1.7)."""
    if len(node.inputs) != 3 or not _constants(net, node) or net.version < (8, 6, 0):
        return None
    operands = "const:1 const:2 broadcast:1 broadcast:2"
    if net.version[0] == 8:
        return f"{operands} helper::Normalization"
    if net.version < (10, 11, 0):
        return f"name:tmp_weight helper::Constant name:tmp_weight helper::Constant {operands} main"
    return f"{operands} main" if net.version >= (10, 16, 0) else f"? {operands} main"


_ROWS: dict[str, Callable[[ParsedNetwork, Node], Optional[str]]] = {
    **dict.fromkeys(_ONE_LAYER, lambda net, node: "main"),
    **dict.fromkeys((*ELEMENTWISE, "Pow", "PRelu"), _elementwise),
    **dict.fromkeys(
        ("AveragePool", "MaxPool"),
        lambda net, node: "main" if net.types.rank(node.inputs[0]) in (4, 5) and len(node.outputs) == 1 else None,
    ),
    "BatchNormalization": lambda net, node: (
        "main" if _constants(net, node) and net.types.rank(node.inputs[0]) == 4 else None
    ),
    "Clip": _clip,
    "Concat": lambda net, node: " ".join((*(f"const:{index}" for index in range(len(node.inputs))), "main")),
    "Constant": lambda net, node: "",
    **dict.fromkeys(operators.CONVOLUTIONS, _conv),
    "Dropout": lambda net, node: "helper:ONNXTRT_identity" if len(node.outputs) == 1 else None,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    **dict.fromkeys(("ReduceMax", "ReduceMean"), lambda net, node: "main" if _constants(net, node) else None),
    "Reshape": lambda net, node: "shuffle" if _constants(net, node) else None,
    "Resize": _resize,
    "Softmax": _softmax,
    "Split": _split,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _squeeze),
}


# ---------------- operators that the parsers read

"""Operators that TensorRT's ONNX parsers read, and their forms that the parsers refuse. The lists are those of the
open-source parser (github.com/onnx/onnx-tensorrt, branches 8.0-GA to 10.1-GA, and the sources of 10.3, 10.7 and 10.10);
no version lacks an operator that an earlier one has."""


def _first(version: str) -> tuple[int, int]:
    major, minor = map(int, version.split("."))
    return major, minor


SINCE = {op: _first(row["since"]) for op, row in OPERATORS.items() if row["since"] != "-"}
"""ONNX operator -> the first TensorRT version (major, minor) whose parser has it."""


def has_operator(op_type: str, version: Version) -> bool:
    return op_type in SINCE and version[:2] >= SINCE[op_type]


def refusal(node: Node, version: Version, graph: Graph) -> Optional[tuple[str, str]]:
    """Why this version's parser refuses the node, and the remedy; None if it reads the node. Operators that ONNX does
    not have may be plugins and are left to TensorRT."""
    if not node.is_standard:
        return None
    if not has_operator(node.op_type, version) and onnx.defs.has(node.op_type):
        text = ".".join(map(str, version[:2]))
        since = SINCE.get(node.op_type)
        export = f"Choose a platform with TensorRT {since[0]}.{since[1]} or later, or export" if since else "Export"
        what = f"The ONNX parser of TensorRT {text} has no {node.op_type} (node {node.label})."
        return what, f"{export} the network without that operator."
    weight = graph.initializers.get(node.input(1))
    sized = weight is not None and len(weight.dims) > 2
    for form in FORMS:
        own = node.op_type in form.operators and version < form.until
        if own and form.found(node) and not (form.computed and sized):
            return f"TensorRT's ONNX parser refuses {form.what} (node {node.label}).", form.remedy
    return None


@dataclass(frozen=True)
class Form:
    """A form of some operators that the parsers refuse. instead: how to export it. until: the first version that reads
    it. computed: every version reads the form if the weight is an initializer with spatial dimensions."""

    operators: tuple[str, ...]
    found: Callable[[Node], bool]
    what: str
    instead: str
    until: Version = (11, 0, 0)
    computed: bool = False

    @property
    def remedy(self) -> str:
        return f"Export {self.instead}."


def _dilated(node: Node) -> bool:
    found = window(node)
    return found is not None and found.dilated


def _rounds_otherwise(node: Node) -> bool:
    where, how = node.get("coordinate_transformation_mode"), node.get("nearest_mode", "round_prefer_floor")
    return where == "tf_half_pixel_for_nn" and how != "round_prefer_floor"


def _not_among(key: str, default: object, *read: object) -> Callable[[Node], bool]:
    return lambda node: node.get(key, default) not in read


_MODES = ("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners")
_INDICES = "the network without MaxUnpool or what else reads the indices"
FORMS = (
    Form(POOLING, _dilated, "dilations of a pooling", "the network with a pooling without dilations"),
    Form(("MaxPool",), lambda node: any(node.outputs[1:]), "a MaxPool whose indices are read", _INDICES),
    Form(("LpPool",), _not_among("p", 2, 1, 2), "an LpPool with p above 2", "it with p=1 or p=2"),
    Form(
        ("BatchNormalization",),
        _not_among("training_mode", 0, 0),
        "BatchNormalization in training mode",
        "the network in inference mode (in PyTorch after model.eval())",
    ),
    Form(
        ("Einsum",),
        lambda node: any(letter.isupper() for letter in str(node.get("equation", ""))),
        "capital letters in an Einsum",
        "it with small letters and an explicit output ('->')",
    ),
    Form(
        ("Resize",),
        _not_among("antialias", 0, 0),
        "a Resize with antialias that makes the tensor smaller",
        "it with antialias=False",
    ),
    Form(
        ("Resize",),
        _not_among("keep_aspect_ratio_policy", "stretch", "stretch"),
        "a Resize with a keep_aspect_ratio_policy",
        "it with the sizes that come out, and 'stretch'",
    ),
    Form(
        ("Resize",),
        _not_among("coordinate_transformation_mode", "half_pixel", *_MODES),
        "a Resize of that coordinate_transformation_mode",
        "it with 'half_pixel', 'align_corners' or 'asymmetric'",
    ),
    Form(
        ("Resize",),
        _rounds_otherwise,
        "a Resize with tf_half_pixel_for_nn and another nearest_mode than round_prefer_floor",
        "it with 'asymmetric' and 'floor', or with 'half_pixel'",
    ),
    Form(
        ("Conv",),
        lambda node: "kernel_shape" not in node.attributes,
        "a Conv without kernel_shape whose weight has no known shape",
        "it with kernel_shape",
        (10, 10, 0),
        computed=True,
    ),
)
"""As observed with the parsers 8.5, 8.6, 10.3 and 10.10. Nodes with an equivalent form that the parsers read were
rewritten before (rules F6, F11)."""
