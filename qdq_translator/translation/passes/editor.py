"""The common base of rewrites: queries on the network, creation of nodes and constants, and the change log."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Sequence, Tuple, TypeVar

import numpy as np
from onnx import TensorProto

from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.types import Dim, TensorTypes
from qdq_translator.translation.ir.weights import Weight, as_weight, weight_of
from qdq_translator.translation.scales.inference.context import DerivedScale
from qdq_translator.translation.scales.network import Applied, Network
from qdq_translator.translation.targets.settings import Settings

Image = Tuple[Dim, int, int, int]
"""N, C, H, W; the batch size may be unknown."""
Found = TypeVar("Found")
_DTYPES: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}


class Stays(Exception):
    """Raised by a rule that leaves a node as it is, with the reason."""


def stay_if(found: object, why: str) -> None:
    """Raises Stays if the condition holds."""
    if found:
        raise Stays(why)


def known(value: Optional[Found], why: str) -> Found:
    """The value. Raises Stays if there is none."""
    if value is None:
        raise Stays(why)
    return value


class Editor:
    """Rules query, edit through `replace`, and record in-place changes with `note`."""

    def __init__(self, network: Network, settings: Settings) -> None:
        self.network, self.settings = network, settings
        self.graph, self.scales, self.trained = network.graph, network.scales, network.trained

    # ---------------------------------------------------------------- questions

    @property
    def types(self) -> TensorTypes:
        """Types and shapes at the start of the rule; inferred on first access."""
        return self.network.types

    @property
    def parser(self) -> Optional[tuple[int, int, int]]:
        """The TensorRT version whose parser reads the model; None if not specified."""
        return None if self.settings.hardware.origin == "default" else self.settings.hardware.tensorrt

    def nodes(self, *op_types: str) -> list[Node]:
        """Existing nodes of these operators; the list is independent of later edits."""
        return self.graph.of(*op_types)

    def dtype(self, tensor: str) -> Optional[Any]:
        """NumPy's type of a float tensor; None if NumPy does not have it."""
        constant = self.graph.initializers.get(tensor)
        return _DTYPES.get(constant.data_type if constant is not None else self.types.elem_type(tensor))

    def is_float(self, tensor: str) -> bool:
        return self.types.is_float(tensor)

    def rank(self, tensor: str) -> Optional[int]:
        constant = self.graph.initializers.get(tensor)
        return len(constant.dims) if constant is not None else self.types.rank(tensor)

    def image(self, tensor: str) -> Optional[Image]:
        """(N, C, H, W) of a 4-D float tensor if all sizes but the batch are known and positive, else None."""
        batch, *rest = self._sizes(tensor) or (None,)
        sizes = [d for d in rest if isinstance(d, int) and d > 0]
        return (batch, sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None

    def channels(self, tensor: str) -> Optional[int]:
        """C of a 4-D float tensor; None if unknown or 0."""
        channels = (self._sizes(tensor) or (None, None))[1]
        return channels or None if isinstance(channels, int) else None

    def _sizes(self, tensor: str) -> Optional[tuple[Dim, ...]]:
        """Sizes of a 4-D float tensor, else None."""
        shape = self.types.shape(tensor)
        return shape if shape is not None and len(shape) == 4 and self.dtype(tensor) is not None else None

    def unless_output(self, tensor: str) -> list[str]:
        """The tensor, as a source that a scale next to it needs; [] for a graph output, which never gets a scale (rule
        S2)."""
        return [] if tensor in self.graph.outputs else [tensor]

    def largest(self, constant: str) -> float:
        """The largest magnitude in an initializer; 0 if it is empty."""
        values = self.graph.array(constant)
        assert values is not None
        return float(np.abs(values.astype(np.float64)).max(initial=0))

    # ---------------------------------------------------------------- making

    def tensor(self, wanted: str) -> str:
        return self.graph.unique_name(wanted)

    def node(self, wanted: str) -> str:
        """A free name for a new node."""
        return self.graph.node_name(wanted)

    def constant(self, wanted: str, values: np.ndarray) -> str:
        return self.graph.constant(wanted, values)

    def weight(
        self, node: Node, index: int, wanted: str, change: Callable[[np.ndarray], np.ndarray], factor: float = 1.0
    ) -> str:
        """Create an initializer from input `index` of `node`, with its trained quantized values (rule W1).

        `change` gets the values, and the quantized ones, in the layout of the old initializer. The old name is kept if
        it has no other reader and `wanted` is ''.
        """
        old = node.inputs[index]
        alone = not wanted and self.graph.consumer_count(old) == 1 and old not in self.graph.outputs
        return self.remade(old, old if alone else self.tensor(wanted or f"{old}_{node.name}"), change, factor)

    def remade(self, old: str, new: str, change: Callable[[np.ndarray], np.ndarray], factor: float = 1.0) -> str:
        """Initializer `new` (which may be `old`) with `change` applied to the values of `old` and to its trained
        quantized values. `change` may be called later, and several times."""
        given = self.graph.initializers.get(old)
        weight: Optional[Weight] = given if isinstance(given, Weight) else None
        if weight is None:
            values = self.graph.array(old)
            weight = None if values is None else as_weight(weight_of(old, values))
            assert weight is not None

        def scaled(values: np.ndarray) -> np.ndarray:
            changed = change(values)
            return changed if factor == 1.0 else (changed * np.float64(factor)).astype(values.dtype)

        self.graph.set_initializer(new, weight.remade(new, scaled))
        trained = self.trained.get(old)
        if trained is not None:
            codes = None
            if trained.codes is not None and tuple(trained.codes.dims) == tuple(weight.dims):
                codes = trained.codes.remade(new, change)
            self.trained[new] = dataclasses.replace(trained, codes=codes)
        return new

    def reshape(self, source: str, target: str, shape: Sequence[int], name: str) -> Node:
        """Reshape to `shape`; a leading 0 keeps the batch size."""
        return Node("Reshape", [source, self.constant(f"{name}.shape", np.array(shape, np.int64))], [target], name)

    def slice(
        self, source: str, target: str, begins: Sequence[int], ends: Sequence[int], axes: Sequence[int], name: str
    ) -> Node:
        """Slice with step 1, in the form of the model's opset."""
        if self.graph.opset() < 10:
            return Node("Slice", [source], [target], name, starts=list(begins), ends=list(ends), axes=list(axes))
        inputs = [source]
        for key, values in (("starts", begins), ("ends", ends), ("axes", axes)):
            inputs.append(self.constant(f"{name}.{key}", np.array(values, np.int64)))
        return Node("Slice", inputs, [target], name)

    # ---------------------------------------------------------------- changing

    def replace(
        self,
        rule: str,
        old: Node,
        new: Sequence[Node],
        tensors: Optional[dict[str, list[str]]] = None,
        more: Sequence[Node] = (),
    ) -> None:
        """Replace `old` with `new`, in their order, and record it. more: nodes that were removed with `old`."""
        anchor = old.prev
        before = [old, *more]
        known = {name for node in before for name in node.outputs}
        self.graph.remove(old)
        for node in new:
            self.graph.insert_after(node, anchor)
            anchor = node
        self.note(rule, before, new, tensors or {}, [n for node in new for n in node.outputs if n not in known])

    def note(
        self,
        rule: str,
        before: Sequence[Node],
        after: Sequence[Node],
        tensors: Optional[dict[str, list[str]]] = None,
        new: Sequence[str] = (),
    ) -> None:
        gone, made = tuple((n.name, n.op_type) for n in before), tuple((n, n.op_type) for n in after)
        self.network.applied.append(Applied(rule, gone, made, tensors or {}, tuple(new)))
        for node in before:
            for name in node.outputs:
                self.graph.value_info.pop(name, None)

    def derive(self, rule: str, tensor: str, source: str, node: Node, *more: Any, **named: Any) -> None:
        """`tensor` gets a scale as soon as its sources have one. more, named: further fields of `DerivedScale`."""
        self.network.derived.append(DerivedScale(tensor, source, rule, node, *more, **named))

    def same_scale(self, rule: str, one: str, other: str, node: Node) -> None:
        """Both tensors hold the same values: if one has a scale, the other gets it."""
        self.derive(rule, one, other, node)
        self.derive(rule, other, one, node)


class Row:
    """Layers that replace a node; `add` makes each of them read the tensor `current`."""

    def __init__(self, editor: Editor, node: Node) -> None:
        self.editor, self.node, self.rule = editor, node, ""
        self.nodes: list[Node] = []
        self.current = node.inputs[0]

    def at(self: _OwnRow, tensor: str) -> _OwnRow:
        """This row of layers, continued at `tensor`: the next layer reads it."""
        self.current = tensor
        return self

    def add(self, op: str, what: str, *more: str, **attributes: Any) -> str:
        """Add a layer that reads the current tensor and `more`; its output becomes current. `what` names both."""
        return self.append(what, lambda target, name: Node(op, [self.current, *more], [target], name, **attributes))

    def reshape(self, what: str, sizes: Sequence[int]) -> str:
        return self.append(what, lambda target, name: self.editor.reshape(self.current, target, sizes, name))

    def append(self, what: str, make: Callable[[str, str], Node]) -> str:
        """Add the layer that `make` returns for the names of the new tensor and of the node."""
        names = self.editor.tensor(f"{self.node.outputs[0]}_{what}"), self.editor.node(f"{self.node.name}_{what}")
        self.nodes.append(make(*names))
        self.current = names[0]
        return self.current

    def close(self) -> list[Node]:
        """The layers; the last one gets the name and outputs of the node."""
        if self.nodes:
            self.nodes[-1].outputs, self.nodes[-1].name = list(self.node.outputs), self.node.name
        return self.nodes

    def put(self, rule: str, *more: Node) -> None:
        """Replace the node by the layers of the row. more: nodes that are removed with it."""
        self.editor.replace(rule, self.node, self.close(), {name: [] for node in more for name in node.outputs}, more)
        self.rule = rule

    def derive(self, layers: Sequence[Node], source: str, *more: Any, **named: Any) -> None:
        """Declare, after `put`, that each layer's output gets a scale as soon as `source` and the output of the node
        have one."""
        for layer in layers:
            self.editor.derive(self.rule, layer.outputs[0], source, layer, *more, needs=self.node.outputs[:1], **named)

    def bound(self, layer: Node, bound: float) -> None:
        """Declare, after `put`, that no output value of the layer exceeds `bound`."""
        self.derive([layer], self.node.outputs[0], 0.0, bound / 127, note="its bound")


_OwnRow = TypeVar("_OwnRow", bound=Row)
