"""The one in-memory form of a network: an ONNX graph, indexed once, edited in constant time.

Nodes are in a doubly linked list in topological order; `producer` and `consumers` are updated by every edit.
Initializers are ONNX `TensorProto`s, or `Weight`s if they are large or were created here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Container, Dict, Hashable, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from qdq_translator.core.budget import INLINED_NODES, INLINED_PER_NODE
from qdq_translator.core.errors import ModelError
from qdq_translator.core.formats.layer_precisions import legal_name
from qdq_translator.translation.ir.qparams import QuantParams
from qdq_translator.translation.ir.weights import Initializer, Weight, to_array, to_message, weight_of

_NOTHING: Mapping[str, Any] = {}
DEFAULT_DOMAINS = ("", "ai.onnx")
_MOST_CALLS = 100
"""Levels on which local functions may call each other; ONNX's inliner recurses."""
_NO_FUNCTIONS = "Export it without local functions."
PRODUCER_NAME = "qdq-translator"
"""Never 'TensorRT': the parser would read our attributes as its own (fact 4.10)."""


class Node:
    """One ONNX node. `inputs` may hold '' for an omitted optional input. Edit inputs and outputs through the graph,
    attributes through `set` and `unset`."""

    def __init__(
        self,
        op_type: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        name: str = "",
        domain: str = "",
        attributes: Mapping[str, AttributeProto] = _NOTHING,
        **values: Any,
    ) -> None:
        """`values`: attributes as plain Python values."""
        self.op_type = op_type
        self.domain = "" if domain in DEFAULT_DOMAINS else domain
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.attributes = attributes
        if values:
            made = {key: onnx.helper.make_attribute(key, value) for key, value in values.items()}
            self.attributes = {**attributes, **made}
        self.doc = ""
        self.metadata: Mapping[str, str] = _NOTHING
        self.captured: tuple[str, ...] = ()
        self.prev = self.next = self

    @classmethod
    def from_proto(cls, proto: onnx.NodeProto) -> Node:
        node = cls(
            proto.op_type,
            proto.input,
            proto.output,
            proto.name,
            proto.domain,
            {a.name: a for a in proto.attribute} if proto.attribute else _NOTHING,
        )
        node.doc = proto.doc_string
        if proto.metadata_props:
            node.metadata = {p.key: p.value for p in proto.metadata_props}
        node.captured = _captured(node)
        return node

    def to_proto(self) -> onnx.NodeProto:
        proto = onnx.NodeProto(
            op_type=self.op_type,
            name=self.name,
            domain=self.domain,
            doc_string=self.doc,
            input=self.inputs,
            output=self.outputs,
        )
        proto.attribute.extend(self.attributes.values())
        for key, value in self.metadata.items():
            proto.metadata_props.add(key=key, value=value)
        return proto

    def get(self, key: str, default: Any = None) -> Any:
        """An attribute as a plain Python value (bytes become str)."""
        attribute = self.attributes.get(key)
        if attribute is None:
            return default
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value

    def set(self, key: str, value: Any) -> None:
        self.attributes = {**self.attributes, key: onnx.helper.make_attribute(key, value)}

    def unset(self, key: str) -> bool:
        """Whether there was such an attribute."""
        there = key in self.attributes
        if there:
            self.attributes = {name: given for name, given in self.attributes.items() if name != key}
        return there

    def input(self, index: int) -> str:
        """The name of input `index`, '' if omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def is_standard(self) -> bool:
        """True for operators of ONNX itself."""
        return self.domain == ""

    def is_op(self, *op_types: str) -> bool:
        return self.op_type in op_types and self.domain == ""

    @property
    def label(self) -> str:
        """How messages call the node: by its name, else by operator and output."""
        return f"'{self.name}'" if self.name else f"{self.op_type} of '{self.outputs[0] if self.outputs else '?'}'"

    def subgraphs(self) -> Iterator[onnx.GraphProto]:
        return bodies(self.attributes.values()) if self.attributes else iter(())

    def reads(self) -> list[str]:
        """Tensors of this graph that the node depends on: inputs, and captures of its subgraphs."""
        if not self.captured and "" not in self.inputs:
            return self.inputs[:]
        return [name for name in self.inputs if name] + list(self.captured)

    def __repr__(self) -> str:
        return f"<{self.op_type} {self.name!r} {self.inputs} -> {self.outputs}>"


Picture = Tuple[onnx.ModelProto, Dict[str, Initializer]]
"""A model, and the initializers that it lacks or has without values."""


class Graph:
    """See the module. Made with `Graph.from_model`, written with `to_model`."""

    def __init__(self) -> None:
        self.name = ""
        self.doc = ""
        self.inputs: dict[str, onnx.ValueInfoProto] = {}
        self.outputs: dict[str, onnx.ValueInfoProto] = {}
        self.value_info: dict[str, onnx.ValueInfoProto] = {}
        self.initializers: dict[str, Initializer] = {}
        self.opsets: dict[str, int] = {}
        self.ir_version = 8
        self.model_metadata: dict[str, str] = {}
        self.tensor_metadata: dict[str, dict[str, str]] = {}
        self.coded: dict[str, QuantParams] = {}
        """Graph input that held quantized values in the model as given -> their parameters."""
        self.producer: dict[str, Node] = {}
        self._consumers: dict[str, dict[int, Node]] = {}
        """Tensor -> its readers by id, oldest connection first."""
        self._ends = Node("", (), ())
        """Behind the last node and before the first, so that they are linked like all others."""
        self._size = 0
        self._arrays: dict[str, np.ndarray] = {}
        self.version = 0
        """Counts the edits of nodes, connections, names and constants (not those of attributes)."""
        self._of: tuple[int, dict[str, list[Node]]] = (-1, {})
        self._taken: Optional[set[str]] = None
        self._suffix: dict[str, int] = {}

    # ---------------------------------------------------------------- in and out

    @classmethod
    def from_model(cls, model: onnx.ModelProto) -> Graph:
        """Index a model; local functions are inlined, unsorted nodes are sorted.

        The model must not be used afterwards: its parts are moved, not copied. Raises ModelError if a tensor has two
        producers or none.
        """
        model = _without_functions(model)
        graph, proto = cls(), model.graph
        # IR 3 requires every initializer among the graph inputs too; they are none here, so IR 4 is the least
        graph.name, graph.doc, graph.ir_version = proto.name, proto.doc_string, max(model.ir_version, 4)
        graph.opsets = {("" if o.domain in DEFAULT_DOMAINS else o.domain): o.version for o in model.opset_import}
        graph.model_metadata = {p.key: p.value for p in model.metadata_props}
        if len(proto.sparse_initializer):
            raise ModelError("The model has sparse initializers.", "Export it with dense weights.")
        _check_ends(proto)
        _clear_negative_sizes(proto)
        for tensor in proto.initializer:
            if tensor.name in graph.initializers:
                raise ModelError(f"Two initializers are called '{tensor.name}'.", "Export the model again.")
            graph.initializers[tensor.name] = tensor
        # initializers may be listed as graph inputs too (IR < 4, Brevitas): they are constants for TensorRT (fact 4.8)
        graph.inputs = {v.name: v for v in proto.input if v.name not in graph.initializers}
        graph.outputs = {v.name: v for v in proto.output}
        graph.value_info = {v.name: v for v in proto.value_info}
        for node in _sorted([Node.from_proto(node) for node in proto.node], {*graph.inputs, *graph.initializers}):
            graph.append(node)
        made = {*graph.producer, *graph.inputs, *graph.initializers}
        for name in graph.outputs:
            if name not in made:
                raise ModelError(f"Graph output '{name}' is not produced by any node.", "The file is damaged or cut.")
        return graph

    @classmethod
    def from_picture(cls, picture: Picture) -> Graph:
        """A graph of its own, which shares the values of weights."""
        copy, weights = onnx.ModelProto(), picture[1]
        copy.CopyFrom(picture[0])
        there = {tensor.name for tensor in copy.graph.initializer}
        copy.graph.initializer.extend(onnx.TensorProto(name=name) for name in weights if name not in there)
        graph = cls.from_model(copy)
        graph.initializers.update(weights)
        return graph

    def picture(self) -> Picture:
        """The graph as it is, without copies of weights."""
        return self.to_model(initializers=()), dict(self.initializers)

    def to_model(self, initializers: Optional[Iterable[Initializer]] = None) -> onnx.ModelProto:
        """A new ModelProto with copies of everything. `initializers`: used in place of the graph's own, to save their
        copies.
        """
        model = onnx.ModelProto(ir_version=self.ir_version, producer_name=PRODUCER_NAME)
        used = {n.domain for n in self.nodes} | {""}
        for domain, version in self.opsets.items():
            if domain in used:
                model.opset_import.add(domain=domain, version=version)
        for key, value in self.model_metadata.items():
            model.metadata_props.add(key=key, value=value)
        proto = model.graph
        proto.name, proto.doc_string = self.name or "graph", self.doc
        proto.node.extend(node.to_proto() for node in self.nodes)
        proto.input.extend(self.inputs.values())
        proto.output.extend(self.outputs.values())
        proto.value_info.extend(
            v for name, v in self.value_info.items() if name in self.producer and name not in self.outputs
        )
        for tensor in self.initializers.values() if initializers is None else initializers:
            proto.initializer.append(to_message(tensor))
        if self.tensor_metadata:
            for value in (*proto.input, *proto.output, *proto.value_info):
                for key, text in self.tensor_metadata.get(value.name, {}).items():
                    value.metadata_props.add(key=key, value=text)
        return model

    def submodel(
        self,
        nodes: Iterable[Node],
        name: str,
        inputs: Iterable[onnx.ValueInfoProto] = (),
        outputs: Iterable[onnx.ValueInfoProto] = (),
    ) -> Picture:
        """Some of the nodes as a model of its own, and the `Weight`s that they read; it has the other initializers."""
        model = onnx.ModelProto(ir_version=self.ir_version, producer_name=PRODUCER_NAME)
        for domain, version in self.opsets.items():
            model.opset_import.add(domain=domain, version=version)
        nodes, proto = list(nodes), model.graph
        proto.name = name
        proto.node.extend(node.to_proto() for node in nodes)
        read = dict.fromkeys(name for node in nodes for name in node.reads())
        tensors = {n: self.initializers[n] for n in read if n in self.initializers}
        proto.initializer.extend(t for t in tensors.values() if not isinstance(t, Weight))
        proto.input.extend(inputs)
        proto.output.extend(outputs)
        return model, {n: t for n, t in tensors.items() if isinstance(t, Weight)}

    # ---------------------------------------------------------------- nodes

    @property
    def nodes(self) -> Iterator[Node]:
        """Nodes in topological order. The current node may be removed, and others added, while iterating."""
        node = self._ends.next
        while node is not self._ends:
            following = node.next
            yield node
            node = following

    @property
    def nodes_reversed(self) -> list[Node]:
        return [*self.nodes][::-1]

    def of(self, *op_types: str) -> list[Node]:
        """Nodes of these standard ONNX operators, in graph order; the list does not change with later edits.

        Most passes ask for a few operators that the network does not have, so the index is kept until the next edit."""
        if self._of[0] != self.version:
            found: dict[str, list[Node]] = {}
            for node in self.nodes:
                if not node.domain:
                    found.setdefault(node.op_type, []).append(node)
            self._of = (self.version, found)
        there = [op_type for op_type in op_types if op_type in self._of[1]]
        if len(there) > 1:
            return [node for node in self.nodes if node.is_op(*there)]
        return self._of[1][there[0]][:] if there else []

    def set_operator(self, node: Node, op_type: str) -> None:
        self.version += 1
        node.op_type = op_type

    def tensors(self) -> list[str]:
        """Graph inputs, then the outputs of nodes in graph order."""
        return [*self.inputs, *(name for node in self.nodes for name in node.outputs if name)]

    def __len__(self) -> int:
        return self._size

    def append(self, node: Node) -> Node:
        return self.insert_after(node, self._ends.prev)

    def remove(self, node: Node) -> None:
        """Remove a node. Its outputs have no producer afterwards."""
        self.version += 1
        self._disconnect(node, node.reads())
        for name in node.outputs:
            if self.producer.get(name) is node:
                del self.producer[name]
        node.prev.next, node.next.prev = node.next, node.prev
        self._size -= 1

    def _connect(self, node: Node, names: Iterable[str]) -> None:
        """`node` reads these tensors, of which it may read some already."""
        for name in names:
            self._consumers.setdefault(name, {})[id(node)] = node

    def _disconnect(self, node: Node, names: Iterable[str]) -> None:
        """`node` no longer reads these tensors, if it did."""
        for name in names:
            self._consumers.get(name, {}).pop(id(node), None)

    def insert_after(self, node: Node, anchor: Optional[Node]) -> Node:
        """Places `node` right behind `anchor`; None: first of all. Raises ModelError if one of its outputs has a
        producer.
        """
        self.version += 1
        for name in filter(None, node.outputs):
            if name in self.producer or name in self.inputs or name in self.initializers:
                raise ModelError(f"Tensor '{name}' is produced twice, once by {node.label}.", "Export the model again.")
            self.producer[name] = node
        self._connect(node, node.reads())
        node.prev = anchor or self._ends
        node.next = node.prev.next
        node.prev.next = node.next.prev = node
        self._size += 1
        return node

    # ---------------------------------------------------------------- tensors

    def consumers(self, name: str) -> list[Node]:
        """Nodes that read the tensor, each once, oldest connection first."""
        return list(self._consumers.get(name, {}).values())

    def is_read_within(self, tensors: Iterable[str], nodes: Container[int]) -> bool:
        """True if every node that reads one of the tensors is among `nodes`, which are ids (`id`); graph outputs do not
        count."""
        return all(id(reader) in nodes for name in tensors for reader in self.consumers(name))

    def consumer_count(self, name: str) -> int:
        return len(self._consumers.get(name, {}))

    def is_used(self, name: str) -> bool:
        """A node reads the tensor, or it is a graph output."""
        return bool(self._consumers.get(name)) or name in self.outputs

    def only_consumer(self, name: str) -> Optional[Node]:
        """The only node that reads the tensor, None if there are several or the graph itself reads it too."""
        readers = self.consumers(name)
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def set_input(self, node: Node, index: int, name: str) -> None:
        """Connects input `index` (which may be beyond the last one) to another tensor; '' omits it."""
        self.version += 1
        while len(node.inputs) <= index:
            node.inputs.append("")
        old, node.inputs[index] = node.inputs[index], name
        if old and old not in node.inputs and old not in node.captured:
            self._disconnect(node, (old,))
        if name:
            self._connect(node, (name,))
        while node.inputs and not node.inputs[-1]:
            node.inputs.pop()

    def set_inputs(self, node: Node, names: Iterable[str]) -> None:
        self.version += 1
        self._disconnect(node, node.reads())
        node.inputs = list(names)
        self._connect(node, node.reads())

    def replace_uses(self, old: str, new: str) -> None:
        """Every node that read `old` reads `new` (in subgraphs too). Graph outputs are not touched."""
        self.version += 1
        for node in self.consumers(old):
            _read_instead(node, old, new)
            self._connect(node, (new,))
        self._consumers.pop(old, None)

    def replace_use(self, node: Node, old: str, new: str) -> None:
        """`node`, which reads `old`, reads `new` (in its subgraphs too)."""
        _read_instead(node, old, new)
        self._disconnect(node, (old,))
        self._connect(node, (new,))

    def rename_output(self, node: Node, old: str, new: str) -> None:
        """Renames a tensor at its producer and at all its consumers. `new` must be free."""
        self.version += 1
        node.outputs = [new if n == old else n for n in node.outputs]
        del self.producer[old]
        self.producer[new] = node
        self.replace_uses(old, new)
        value = self.value_info.pop(old, None)
        if value is not None:
            value.name = new
            self.value_info[new] = value
        if self._taken is not None:
            self._taken.add(new)

    def before_output(self, name: str, suffix: str = "float") -> str:
        """Graph output `name` loses its producer, which makes another tensor; returns that one's name. Readers of
        `name` read it.
        """
        source = self.unique_name(f"{name}_{suffix}")
        self.rename_output(self.producer[name], name, source)
        return source

    def insert_behind(self, tensor: str, nodes: Iterable[Node]) -> None:
        """Place `nodes`, in their order, after the producer of `tensor`, or first of all if it has none."""
        anchor = self.producer.get(tensor)
        for node in nodes:
            anchor = self.insert_after(node, anchor)

    def detach(self, name: str) -> None:
        """Detach a tensor from its producer, so that another one can provide it."""
        self.version += 1
        node = self.producer.pop(name)
        if len(node.outputs) == 1:
            self.remove(node)
            return
        unused = self.unique_name(f"{name}_unused")
        node.outputs = [unused if n == name else n for n in node.outputs]
        self.producer[unused] = node

    def drop_unused_outputs(self, node: Node) -> bool:
        """Removes the outputs behind the first that nothing reads; True if there was one."""
        count = len(node.outputs)
        while count > 1 and not (node.outputs[count - 1] and self.is_used(node.outputs[count - 1])):
            count -= 1
        gone = node.outputs[count:]
        for name in filter(None, gone):
            del self.producer[name]
            self.value_info.pop(name, None)
        self.version += bool(gone)
        node.outputs = node.outputs[:count]
        return bool(gone)

    def rename_tensors(self, mapping: dict[str, str]) -> None:
        """Renames many tensors at once, so that new names may be old names of others. Graph inputs and outputs and
        initializers must not be among them."""
        between, order = {old: self.unique_name(f"{old}_renamed") for old in mapping}, list(self.value_info)
        for step in (between, {between[old]: new for old, new in mapping.items()}):
            for old, new in step.items():
                self.rename_output(self.producer[old], old, new)
        self.value_info = {name: self.value_info[name] for name in (mapping.get(old, old) for old in order)}

    def is_graph_tensor(self, name: str) -> bool:
        """True for graph inputs and outputs: their names are the user's."""
        return name in self.inputs or name in self.outputs

    def unique_name(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2` ...: free as a tensor and as a node name. Stable, amortised constant."""
        if self._taken is None:
            self._taken = set(self.initializers)
            self._taken.update(self.inputs, self.outputs, self.producer, [node.name for node in self.nodes])
            self._taken.update(self.body_names())
        name = wanted
        while not name or name in self._taken:
            self._suffix[wanted] = self._suffix.get(wanted, 0) + 1
            name = f"{wanted}_{self._suffix[wanted]}"
        self._taken.add(name)
        return name

    def node_name(self, wanted: str) -> str:
        """A `unique_name` that a layer may have: every file can express the names of new nodes (rule F6)."""
        return self.unique_name(legal_name(wanted))

    def body_names(self) -> set[str]:
        """Names of nodes and tensors inside the bodies of If, Loop and Scan."""
        return {name for node in self.nodes for subgraph in node.subgraphs() for name in _names_in(subgraph)}

    # ---------------------------------------------------------------- constants

    def array(self, name: str) -> Optional[np.ndarray]:
        """The values of a constant (`is_constant`); None for anything else. Do not write to it."""
        tensor = self.initializers.get(name)
        if tensor is None:
            node = self.producer.get(name)
            if node is not None and node.op_type == "Identity":
                origin = self.behind(name, "Identity")
                return self.array(origin) if origin != name else None
            return constant_value(node) if node is not None and node.is_op("Constant") else None
        if isinstance(tensor, Weight):
            return tensor.array()
        cached = self._arrays.get(name)
        if cached is None:
            cached = to_array(tensor)
            if cached.size <= 4096:  # scales and shapes are read often, weights are not worth a second copy
                self._arrays[name] = cached
        return cached

    def scalar(self, name: str) -> Optional[float]:
        """The value of a constant with one element."""
        values = self.array(name)
        return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None

    def add_initializer(self, name: str, values: np.ndarray) -> str:
        """Adds or replaces an initializer; the array must not change afterwards. Replacing does not touch arrays that
        were handed out."""
        return self.set_initializer(name, weight_of(name, values))

    def constant(self, wanted: str, values: Any) -> str:
        """Adds an initializer; its name, which is new, begins with `wanted`."""
        return self.add_initializer(self.unique_name(wanted), np.asarray(values))

    def set_initializer(self, name: str, tensor: Initializer) -> str:
        """Give the existing initializer called `name` these values."""
        self.version += 1
        old = self.initializers.get(name)
        if old is not None and list(old.dims) != list(tensor.dims):
            self.value_info.pop(name, None)  # the file's declaration of the old one
        self.initializers[name] = tensor
        self._arrays.pop(name, None)
        if self._taken is not None:
            self._taken.add(name)
        return name

    def drop_initializer(self, *names: str) -> None:
        for name in names:
            self.initializers.pop(name, None)
            self._arrays.pop(name, None)
            self.value_info.pop(name, None)

    def rename_initializer(self, old: str, new: str) -> None:
        """All readers of `old` read `new`, which must be unused; if `old` is a graph output, an Identity computes it
        from `new`."""
        self.version += 1
        tensor = self.initializers.pop(old)
        tensor.name = new
        self.initializers[new] = tensor
        self._arrays.pop(old, None)
        self.replace_uses(old, new)
        if old in self.outputs:
            self.append(Node("Identity", [new], [old], self.node_name(f"{old}_identity")))

    def is_constant(self, name: str) -> bool:
        """True for initializers and outputs of `Constant` nodes, behind Identities too."""
        if name in self.initializers:
            return True
        node = self.producer.get(name)
        if node is not None and node.op_type == "Identity":
            origin = self.behind(name, "Identity")
            return origin != name and self.is_constant(origin)
        return node is not None and node.op_type == "Constant" and not node.domain

    def behind(self, name: str, *ops: str) -> str:
        """The tensor that the chain of nodes of these operators which makes `name` begins with, following first inputs;
        `name` itself if another node makes it, or none."""
        node = self.producer.get(name)
        while node is not None and node.is_op(*ops) and node.inputs:
            name = node.inputs[0]
            node = self.producer.get(name)
        return name

    def opset(self) -> int:
        return self.opsets.get("", 1)


def _read_instead(node: Node, old: str, new: str) -> None:
    if old in node.captured:
        for subgraph in node.subgraphs():
            _rename_in_subgraph(subgraph, {old: new})
        node.captured = tuple(new if n == old else n for n in node.captured)
    node.inputs = [new if n == old else n for n in node.inputs]


def constant_value(node: Node) -> Optional[np.ndarray]:
    """The value of a `Constant` node; None for strings and sparse tensors."""
    for key in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if key in node.attributes:
            value = onnx.helper.get_attribute_value(node.attributes[key])
            if isinstance(value, TensorProto):
                return to_array(value) if value.data_type != TensorProto.STRING else None
            return np.asarray(value, dtype=np.float32 if "float" in key else np.int64)
    return None


def _clear_negative_sizes(graph: onnx.GraphProto) -> None:
    """Some exporters write -1 for an unknown size; ONNX's inference aborts the process over it."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions inlined. Raises ModelError if they cannot be."""
    if not model.functions:
        return model
    from onnx import inliner  # few models have functions

    _check_functions(model)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # ONNX raises several types for functions that do not fit
        raise ModelError("The local functions of this model cannot be inlined.", _NO_FUNCTIONS) from error


def _check_functions(model: onnx.ModelProto) -> None:
    """Raises ModelError if local functions are recursive, or would expand to more nodes than a model may have."""

    def called(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str, str]]:
        return ((node.domain, node.op_type, node.overload) for node in every_node(nodes))

    made_of = {(f.domain, f.name, f.overload): list(called(f.node)) for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    written = list(called(model.graph.node))
    limit = INLINED_NODES + INLINED_PER_NODE * (len(written) + sum(map(len, made_of.values())))

    def size(key: tuple[str, str, str], callers: tuple[tuple[str, str, str], ...] = ()) -> int:
        """How many nodes a call becomes, as far as the limit."""
        if key in callers:
            raise ModelError(f"The local function '{key[1]}' calls itself.", "Export the model again.")
        if key not in made_of:
            return 1
        if len(callers) >= _MOST_CALLS:
            raise ModelError(f"Local functions call each other over {_MOST_CALLS} levels.", _NO_FUNCTIONS)
        if key not in sizes:
            sizes[key] = min(limit + 1, sum(size(inner, (*callers, key)) for inner in made_of[key]))
        return sizes[key]

    total = sum(map(size, written))
    if total > limit:
        raise ModelError(
            (
                f"The local functions of this model would become more than {limit:,} nodes, the limit for a "
                "file of its size."
            ),
            _NO_FUNCTIONS,
        )


def _check_ends(graph: onnx.GraphProto) -> None:
    """Raises ModelError if inputs or outputs share a name."""
    for values, what in ((graph.input, "inputs"), (graph.output, "outputs")):
        names = [v.name for v in values]
        if len(set(names)) < len(names):
            twice = next(n for n, count in Counter(names).items() if count > 1)
            raise ModelError(f"Two graph {what} are called '{twice}'.", "Export the model again.")


def _names_in(graph: onnx.GraphProto) -> Iterator[str]:
    for node in every_node(graph.node):
        yield node.name
        yield from node.output
    for body in (graph, *every_body(graph.node)):
        yield from (value.name for value in (*body.input, *body.output, *body.initializer))


def _captured(node: Node) -> tuple[str, ...]:
    names: dict[str, None] = {}

    def visit(graph: onnx.GraphProto, outer: set[str]) -> None:
        known = outer | {v.name for v in graph.input} | {t.name for t in graph.initializer}
        for inner in graph.node:
            for name in inner.input:
                if name and name not in known:
                    names[name] = None
            for body in bodies(inner.attribute):
                visit(body, known)
            known.update(inner.output)
        for value in graph.output:
            if value.name not in known:
                names[value.name] = None

    for subgraph in node.subgraphs():
        visit(subgraph, set())
    return tuple(names)


def _rename_in_subgraph(graph: onnx.GraphProto, mapping: dict[str, str]) -> None:
    for node in every_node(graph.node):
        for index, name in enumerate(node.input):
            if name in mapping:
                node.input[index] = mapping[name]
    for body in (graph, *every_body(graph.node)):
        for value in body.output:
            if value.name in mapping:
                value.name = mapping[value.name]


def _sorted(nodes: list[Node], known: set[str]) -> list[Node]:
    """Topological order; the given order if it is one. Raises ModelError for cycles and missing producers."""
    if _too_early(nodes, known) is None:
        return nodes
    maker = {name: node for node in reversed(nodes) for name in node.outputs if name}

    def makers(node: Node) -> Iterator[Node]:
        for name in node.reads():
            if name in maker and name not in known:
                yield maker[name]
            elif name not in known:
                raise ModelError(
                    f"Node {node.label} reads tensor '{name}', which no node, input or initializer provides.",
                    "The file is damaged or cut; export it again.",
                )

    order = finish_order(nodes, makers)
    stuck = _too_early(order, known)
    if stuck is not None:
        raise ModelError(f"The graph has a cycle through node {stuck.label}.", "Export the model again.")
    return order


def _too_early(nodes: list[Node], known: set[str]) -> Optional[Node]:
    """The first node that reads a tensor which no earlier node makes."""
    made = set(known)
    for node in nodes:
        if not made.issuperset(node.reads()):
            return node
        made.update(node.outputs)
    return None


Item = TypeVar("Item", bound=Hashable)


def finish_order(starts: Iterable[Item], following: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Depth-first, in the order in which items are left: each after all that `following` leads to. Read backwards, the
    first of every component that nothing else leads to comes before all that follows from it."""
    seen: set[Item] = set()
    order: list[Item] = []
    for start in starts:
        stack = [] if start in seen else [(start, iter(following(start)))]
        seen.add(start)
        while stack:
            item, rest = stack[-1]
            step = next((one for one in rest if one not in seen), None)
            if step is None:
                order.append(item)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(following(step))))
    return order


# ---------------- the bodies of If, Loop and Scan, however deeply they are nested


def bodies(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """The graphs that these attributes hold themselves."""
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """These nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for body in bodies(node.attribute):
            yield from every_node(body.node)


def every_body(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """The bodies of these nodes, and those inside them."""
    for node in nodes:
        for body in bodies(node.attribute):
            yield body
            yield from every_body(body.node)
