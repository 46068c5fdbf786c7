"""Element types and shapes of every tensor, by ONNX's own shape inference from the graph's inputs.

The file's own declarations (value_info, shapes of graph outputs) are used only if inference knows less, because they
may contradict the network.
"""

from __future__ import annotations

import math
import re
from typing import Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto

from qdq_translator.core.budget import MOST_DIMENSIONS
from qdq_translator.core.errors import UserError
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import WEIGHTED
from qdq_translator.translation.ir.shape_arithmetic import HIDDEN, complete_shapes, shown_domain
from qdq_translator.translation.ir.weights import Initializer, to_message

FLOAT_TYPES = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))
MAKE_INTEGERS = frozenset(where(traits="integers"))
_KEPT_VALUES = 64
"""Initializers up to this many elements keep their values: shapes and axes that inference needs."""

Dim = Union[int, str, None]


_Form = Tuple[int, Optional[Tuple[Dim, ...]]]
"""Element type and shape of a tensor."""


class _Source(NamedTuple):
    """What the types of a graph follow from. stored: forms of the initializers. kept: initializers with values. nodes:
    outputs of each -> all else that its inference reads."""

    inputs: Dict[str, _Form]
    opsets: Dict[str, int]
    stored: Dict[str, _Form]
    kept: Dict[str, Initializer]
    nodes: Dict[Tuple[str, ...], Tuple[object, ...]]

    @classmethod
    def of(cls, graph: Graph, model: onnx.ModelProto) -> _Source:
        tensors = graph.initializers
        stored: dict[str, _Form] = {name: (tensor.data_type, tuple(tensor.dims)) for name, tensor in tensors.items()}
        kept = {name: tensor for name, tensor in tensors.items() if math.prod(tensor.dims) <= _KEPT_VALUES}
        nodes: dict[tuple[str, ...], tuple[object, ...]] = {
            (*node.outputs,): (node.op_type, node.domain, node.attributes, *node.inputs) for node in graph.nodes
        }
        return cls({value.name: _form(value) for value in model.graph.input}, dict(graph.opsets), stored, kept, nodes)

    def edited(self, graph: Graph, before: _Source) -> Optional[list[Node]]:
        """The nodes whose types may be others than `before`; None if these are many."""
        if (self.inputs, self.opsets) != (before.inputs, before.opsets):
            return None
        constants = {name for name, _ in self.stored.items() ^ before.stored.items()}
        constants.update(name for name, tensor in self.kept.items() if before.kept.get(name) != tensor)
        nodes = [
            node
            for node in graph.nodes
            if before.nodes.get(key := (*node.outputs,)) != self.nodes[key] or not constants.isdisjoint(node.inputs)
        ]
        return nodes if 2 * len(nodes) < len(graph) else None


class TensorTypes:
    """Types and shapes of all tensors. Unknown element types count as float unless their operator makes integers."""

    def __init__(
        self,
        graph: Graph,
        input_shapes: Optional[Mapping[str, Sequence[int]]] = None,
        believe: bool = True,
        before: Optional[TensorTypes] = None,
    ) -> None:
        """`input_shapes`: sizes for dynamic dimensions of graph inputs. believe: use the file's shapes if the inputs do
        not determine them. before: types of this graph before its last edits; only what these change is inferred again.
        Raises UserError if the shapes do not fit."""
        self._graph = graph
        self._declared: dict[str, ValueInfoProto] = {}
        if believe and not input_shapes:  # for which the file's claims may not hold
            self._declared = {**graph.value_info, **graph.outputs}
        model = onnx.ModelProto(ir_version=graph.ir_version)
        model.graph.input.extend(graph.inputs.values())
        _fix_inputs(model, input_shapes or {})
        self.impossible = ""
        """Why a layer cannot be computed from the shapes of its inputs, by ONNX's inference; '' if all can."""
        self._values: dict[str, ValueInfoProto] = {}
        self._integers: Optional[dict[str, np.ndarray]] = None
        self._source = _Source.of(graph, model)
        if before is None or not self._follows(before):
            self.impossible = ""
            known = self._inferred(model, list(graph.nodes))
            # not everything follows from the inputs, as ONNX infers it
            self._is_static = known.keys() >= graph.producer.keys() and _all_static(known)
            if not self._is_static:
                self._integers = complete_shapes(graph, self._values, self._declared)
                known = {name: _form(value) for name, value in self._values.items()}
                self._is_static = known.keys() >= graph.producer.keys() and _all_static(known)
            self._known = {**known, **self._source.stored}

    def _follows(self, before: TensorTypes) -> bool:
        """Copies the types of the graph before its last edits, with new ones for the outputs of edited nodes.
        Returns False, and no types, if that does not suffice: a size is unknown, or a node that was not edited
        reads a tensor of another type than before."""
        graph, known = self._graph, before._known
        nodes = self._source.edited(graph, before._source) if before._is_static and not before.impossible else None
        if nodes is None:
            return False
        made, fresh = _made(nodes), self._behind(before, nodes)
        if self.impossible or not (fresh.keys() >= made and _all_static(fresh)):
            return False
        changed = (name for name in made if fresh[name] != known.get(name))
        if not graph.is_read_within(changed, {id(node) for node in nodes}):
            return False
        rest = [name for name in (*graph.inputs, *graph.producer) if name not in made]
        self._values.update((name, before._values[name]) for name in rest)
        self._known = {**{name: known[name] for name in rest}, **fresh, **self._source.stored}
        self._is_static = True
        return True

    def _behind(self, before: TensorTypes, nodes: Sequence[Node]) -> dict[str, _Form]:
        """The types inferred for what these nodes make, provided that all that they read is as in `before`."""
        graph, made = self._graph, _made(nodes)
        read = dict.fromkeys(name for node in nodes for name in node.reads() if name not in made)
        model = onnx.ModelProto(ir_version=graph.ir_version)
        model.graph.input.extend(before._values[name] for name in read if name not in graph.initializers)
        fresh = self._inferred(model, nodes)
        if fresh.keys() >= made:
            return fresh
        complete_shapes(graph, self._values, {}, nodes)
        return {name: _form(value) for name, value in self._values.items()}

    def _inferred(self, model: onnx.ModelProto, nodes: Sequence[Node]) -> dict[str, _Form]:
        """What ONNX infers for these nodes. model: with the inputs that they read."""
        inferred = self._infer(model, nodes).graph
        self._values = {value.name: value for value in (*inferred.value_info, *inferred.output, *inferred.input)}
        return {name: _form(value) for name, value in self._values.items()}

    def _infer(self, model: onnx.ModelProto, nodes: Sequence[Node]) -> onnx.ModelProto:
        """The inputs of `model`, the graph's outputs, and ONNX's inference for the outputs of these nodes."""
        graph = self._graph
        elsewhere = graph.producer.keys() - _made(nodes)
        model.graph.output.extend(value for name, value in graph.outputs.items() if name not in elsewhere)
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        domains = _add_nodes(graph, model, nodes)
        for domain, version in {**graph.opsets, HIDDEN: 1}.items():
            if domain in domains:
                model.opset_import.add(domain=domain, version=version)
        try:
            return onnx.shape_inference.infer_shapes(model, strict_mode=True)
        except Exception as error:  # ONNX has no public exception type
            self.impossible = _contradiction(str(error))
        try:
            return onnx.shape_inference.infer_shapes(model)
        except Exception:  # unknown operators: only the file's declarations are used
            return model

    def forget(self, node: Node) -> None:
        """Infers this node again after the edits of a pass, which change the types of its outputs but not the node."""
        self._source.nodes.pop((*node.outputs,), None)

    def open_batches(self) -> dict[str, list[int]]:
        """Graph input -> its sizes with 1 for the first; {} if any input lacks another size, or none lacks any."""
        found = {}
        for name in self._graph.inputs:
            shape = self.shape(name)
            if shape is None or any(not isinstance(size, int) for size in shape[1:]):
                return {}
            if shape and not isinstance(shape[0], int):
                found[name] = [1, *(int(size) for size in shape[1:] if isinstance(size, int))]
        return found

    def contradictions(self) -> dict[str, tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
        """Tensors whose rank or sizes in the file contradict inference: the declared and the inferred
        shape."""
        found = {}
        for name, value in self._declared.items():
            declared, shape = _form(value)[1], self.shape(name)
            gone = name not in self._graph.value_info and name not in self._graph.outputs
            if gone or declared is None or shape is None:
                continue
            pairs = zip(declared, shape)
            if len(declared) != len(shape) or any(
                isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
            ):
                found[name] = (declared, shape)
        return found

    def integers(self) -> dict[str, np.ndarray]:
        """Node outputs that hold integers or booleans which follow from known shapes."""
        if self._integers is None:
            self._integers = complete_shapes(self._graph, self._values, {})
        return self._integers

    def elem_type(self, name: str) -> int:
        """ONNX element type, 0 if unknown."""
        return self._known.get(name, (0, None))[0]

    def is_float(self, name: str) -> bool:
        elem = self.elem_type(name)
        if elem:
            return elem in FLOAT_TYPES
        producer = self._graph.producer.get(name)
        return producer is None or producer.op_type not in MAKE_INTEGERS

    def shape(self, name: str) -> Optional[tuple[Dim, ...]]:
        """Sizes; a dynamic dimension is its name or None. None if even the rank is unknown."""
        return self._known.get(name, (0, None))[1]

    def rank(self, name: str) -> Optional[int]:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def static_shape(self, name: str) -> Optional[tuple[int, ...]]:
        """The shape if every dimension is a number."""
        return _static(self.shape(name))


def _static(shape: Optional[tuple[Dim, ...]]) -> Optional[tuple[int, ...]]:
    return None if shape is None or not all(isinstance(d, int) for d in shape) else shape  # type: ignore[return-value]


def _made(nodes: Iterable[Node]) -> set[str]:
    return {name for node in nodes for name in node.outputs if name}


def _all_static(forms: Mapping[str, _Form]) -> bool:
    return None not in [_static(shape) for _, shape in forms.values()]  # a generator would cost a call for each


def _form(value: ValueInfoProto) -> _Form:
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or len(dims) > MOST_DIMENSIONS:
        return tensor.elem_type, None
    # ONNX infers sizes below 0 if a kernel is larger than its input
    sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in dims]
    return tensor.elem_type, tuple(sizes)


_CONTRADICTION = re.compile(r"\(op_type:(\w+), node name: (.*?)\): \[ShapeInferenceError\] (.+)")
_STATIC = (
    "Sizes that the file fixes cannot be changed: export the model again with these sizes, or with that axis dynamic."
)
_ABOUT_SIZES = re.compile("incompatible|mismatch|merge shape|same rank|must be 1 instead", re.IGNORECASE)
_BODIES = where(kind="control")
"""Their bodies are not checked: exporters write branches that no input of these sizes reaches."""


def _contradiction(message: str) -> str:
    """ONNX's first statement about a layer whose inputs do not fit; '' for other errors of its inference."""
    found = _CONTRADICTION.search(message)
    if found is None or found.group(1) in _BODIES or _ABOUT_SIZES.search(found.group(3)) is None:
        return ""
    why = found.group(3).strip().rstrip(".")
    return f"{found.group(1)} {found.group(2)} cannot have these inputs ({why})"


def _add_nodes(graph: Graph, model: onnx.ModelProto, added: Iterable[Node]) -> set[str]:
    """Add only the data of these nodes and initializers that ONNX's inference needs; return the nodes' domains.

    All weights of one type and shape share the name of the first, without values. Inputs of other operators may
    determine a shape (sizes, axes, scales of a Resize): they keep their names, and their values if few.
    """
    initializers, nodes = graph.initializers, model.graph.node
    stand_ins: dict[tuple[int, tuple[int, ...]], str] = {}
    own_name, domains = dict.fromkeys(value.name for value in model.graph.output), {""}
    for node in added:
        inputs = node.inputs
        if node.is_op("GroupNormalization"):  # of which ONNX infers nothing
            nodes.add(op_type="Identity", input=inputs[:1], output=node.outputs)
            continue
        if node.op_type in WEIGHTED and not node.domain:
            inputs = inputs[:]
            for index, name in enumerate(inputs):
                tensor = initializers.get(name) if name else None
                if tensor is not None:
                    inputs[index] = stand_ins.setdefault((tensor.data_type, tuple(tensor.dims)), name)
        else:
            own_name.update(dict.fromkeys(node.reads()))
        domain = shown_domain(node)
        domains.add(domain)
        proto = nodes.add(op_type=node.op_type, domain=domain, input=inputs, output=node.outputs)
        proto.name = f"'{node.name}'" if node.name else f"of '{node.outputs[0]}'"
        proto.attribute.extend(node.attributes.values())
    for name in dict.fromkeys((*own_name, *stand_ins.values())):
        tensor = initializers.get(name)
        if tensor is not None and name in own_name and math.prod(tensor.dims) <= _KEPT_VALUES:
            model.graph.initializer.append(to_message(tensor))
        elif tensor is not None:
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    return domains


def open_sizes(graph: Graph, sizes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """The sizes that were given, without those of static inputs: rule D16 may have changed their dimensions since the
    sizes were given."""
    dims = {name: value.type.tensor_type.shape.dim for name, value in graph.inputs.items()}
    return {
        n: given for n, given in sizes.items() if n not in dims or not all(d.HasField("dim_value") for d in dims[n])
    }


def _fix_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    inputs = {v.name: v for v in model.graph.input}
    for name, wanted in shapes.items():
        value = inputs.get(name)
        if value is None:
            raise UserError(
                f"--shapes names '{name}', which is not a graph input.", "Inputs are: " + ", ".join(inputs) + "."
            )
        dims = value.type.tensor_type.shape.dim
        if len(dims) != len(wanted) or any(d.HasField("dim_value") and d.dim_value != w for d, w in zip(dims, wanted)):
            has = "x".join(str(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)
            what = f"--shapes gives '{name}' {'x'.join(map(str, wanted))}, but the model has {has or 'one number'}."
            raise UserError(what, _STATIC if dims else f"Fix its value with --shapes {name}={wanted[0]}.")
        for dim, size in zip(dims, wanted):
            dim.Clear()
            dim.dim_value = size
