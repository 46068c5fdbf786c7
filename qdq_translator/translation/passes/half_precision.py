"""Rule F9: convert a half (or double) precision network to float32: in implicit mode the builder selects the types.

1. Weights and constants: float16 and bfloat16 exactly; float64, unsupported by TensorRT, rounded as in its parser.
2. `Cast` to such a type becomes a Cast to float32, which rule F7 removes if it changes nothing.
3. Graph inputs and outputs keep their types, which are the user's: a Cast stays at that border and records why.

Quantized values of trained weights stay the same. Bodies of If, Loop and Scan are converted too. Not: a network with
operators outside ONNX, or with inputs or outputs that are not tensors, because their types are unknown.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, ValueInfoProto

from qdq_translator.translation.ir.constants import element_name
from qdq_translator.translation.ir.graph import Graph, Node, every_body
from qdq_translator.translation.ir.weights import Initializer, message_of, to_array
from qdq_translator.translation.scales.network import Network

RULE = "F9"
_OTHERS = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))
_LARGEST = float(np.finfo(np.float32).max)


def to_float32(network: Network) -> None:
    graph = network.graph
    if not _has_other(graph):
        return
    who = _of_unknown_type(graph)
    if who:
        network.diagnostics.info(RULE, f"The network stays in its precision, because {who}, whose types are not known.")
        return
    done = _Done()
    borders = _borders(network)
    for name, tensor in list(graph.initializers.items()):
        if tensor.data_type in _OTHERS:
            graph.add_initializer(name, done.converted(tensor))
    stay = {id(border.cast) for border in borders}
    for node in graph.nodes:
        if id(node) not in stay:
            for attribute in filter(_names_other, node.attributes.values()):
                # not in place: equal nodes share attributes, and some of them keep theirs
                node.set(attribute.name, TensorProto.FLOAT)
            done.convert_inside(node)
    for value in graph.value_info.values():
        _convert_type(value.type)
    for border in borders:
        network.leave(border.cast, border.why)
    network.changed()
    _report(network, done, borders)


def _of_unknown_type(graph: Graph) -> str:
    """Description of a part whose types are unknown; '' if there is none."""
    for node in graph.nodes:
        if not node.is_standard:
            return f"{node.op_type} {node.label} is not an operator of ONNX"
    tensors = all(value.type.HasField("tensor_type") for value in _ends(graph))
    return "" if tensors else "an input or output is no tensor"


@dataclasses.dataclass
class _Done:
    """What became float32. constants: number of converted constants of each type; error: largest relative rounding
    error of those in float64."""

    constants: dict[str, int] = dataclasses.field(default_factory=dict)
    error: float = 0.0

    def converted(self, tensor: Initializer) -> np.ndarray:
        """The values in float32; float64 values beyond its range become its largest value."""
        kind = element_name(tensor.data_type)
        self.constants[kind] = self.constants.get(kind, 0) + 1
        values = to_array(tensor)
        if kind != "float64":
            return values.astype(np.float32)
        finite = np.isfinite(values)
        single = np.where(finite, np.clip(values, -_LARGEST, _LARGEST), values).astype(np.float32)
        told = finite & (np.abs(values) >= np.finfo(np.float32).tiny)
        if told.any():
            self.error = max(self.error, float(np.max(np.abs(single[told] / values[told] - 1))))
        return single

    def convert_inside(self, node: Node) -> None:
        """Convert the constants in a node's attributes, and its bodies."""
        own, tensors, inner = _inside(node)
        for attribute in filter(_names_other, own):
            attribute.i = TensorProto.FLOAT
        for tensor in tensors:
            if tensor.data_type in _OTHERS:
                tensor.CopyFrom(message_of(self.converted(tensor), tensor.name))
        for value in (value for body in inner for value in (*body.input, *body.output, *body.value_info)):
            _convert_type(value.type)


@dataclasses.dataclass(frozen=True)
class _Border:
    """The Cast that stays between a graph input or output and the network."""

    cast: Node
    tensor: str
    kind: str
    why: str


def _borders(network: Network) -> list[_Border]:
    """Add Casts behind inputs and before outputs of other float types. The producer of an output writes a new tensor,
    without a scale if the output has none (rule S2)."""
    graph = network.graph
    for name in [n for n, v in graph.outputs.items() if n in graph.initializers and _other(v)]:
        network.rename_tensor(name, graph.unique_name(f"{name}_value"))
    found = []
    for value in filter(_other, graph.inputs.values()):
        inside = graph.unique_name(f"{value.name}_float32")
        graph.replace_uses(value.name, inside)
        cast = Node("Cast", [value.name], [inside], graph.node_name(f"{inside}_cast"), to=TensorProto.FLOAT)
        graph.insert_after(cast, None)
        found.append(_border(cast, value, "input"))
    for value in filter(_other, graph.outputs.values()):
        if value.name not in graph.producer:
            continue
        inside = graph.before_output(value.name, "float32")
        kind = value.type.tensor_type.elem_type
        cast = Node("Cast", [inside], [value.name], graph.node_name(f"{inside}_cast"), to=kind)
        graph.insert_behind(inside, [cast])
        if value.name not in network.scales:
            network.withhold(inside)
        found.append(_border(cast, value, "output"))
    return found


def _border(cast: Node, value: ValueInfoProto, what: str) -> _Border:
    kind = element_name(value.type.tensor_type.elem_type)
    return _Border(cast, value.name, kind, f"the graph {what} '{value.name}' is {kind} in your model and stays so")


def _ends(graph: Graph) -> list[ValueInfoProto]:
    return [*graph.inputs.values(), *graph.outputs.values()]


def _other(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in _OTHERS


def _names_other(attribute: AttributeProto) -> bool:
    return attribute.name in ("to", "dtype") and attribute.i in _OTHERS


def _has_other(graph: Graph) -> bool:
    """Whether anything in the network has a float type other than float32."""
    if any(tensor.data_type in _OTHERS for tensor in graph.initializers.values()) or any(map(_other, _ends(graph))):
        return True
    return any(
        any(map(_names_other, own)) or any(tensor.data_type in _OTHERS for tensor in tensors)
        for own, tensors, _ in (_inside(node) for node in graph.nodes if node.attributes)
    )


def _inside(node: Node) -> tuple[list[AttributeProto], list[TensorProto], list[onnx.GraphProto]]:
    """The attributes of a node and of all nodes in its bodies, the constants in both, and these bodies."""
    inner = [body for graph in node.subgraphs() for body in (graph, *every_body(graph.node))]
    own = [*node.attributes.values(), *(a for body in inner for one in body.node for a in one.attribute)]
    held = (tensor for a in own for tensor in ((a.t,) if a.type == AttributeProto.TENSOR else a.tensors))
    return own, [*(tensor for body in inner for tensor in body.initializer), *held], inner


def _convert_type(kind: TypeProto) -> None:
    if kind.HasField("sequence_type"):
        _convert_type(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _convert_type(kind.optional_type.elem_type)
    elif kind.tensor_type.elem_type in _OTHERS:
        kind.tensor_type.elem_type = TensorProto.FLOAT


def _report(network: Network, done: _Done, borders: list[_Border]) -> None:
    kinds = sorted({*done.constants, *(border.kind for border in borders)}) or ["another float type"]
    message = f"The network has {' and '.join(kinds)} in it and became float32"
    if "float64" in done.constants:
        message += (
            "; constants in float64 were rounded as TensorRT's parser rounds them (at most "
            f"{done.error:.2g} of their value)"
        )
    if borders:
        message += "; " + ", and ".join(f"a Cast stays because {border.why}" for border in borders)
    doubles = [border.tensor for border in borders if border.kind == "float64"]
    hint = "Export inputs and outputs in float32; TensorRT's builder sets their types and formats." if borders else ""
    hint = "TensorRT has no inputs or outputs in float64; export them in float32." if doubles else hint
    note = network.diagnostics.warning if doubles else network.diagnostics.info
    data = {"constants": done.constants, "casts": {border.cast.name: border.tensor for border in borders}}
    note(RULE, f"{message}.", tensor=borders[0].tensor if borders else "", hint=hint, data=data)
