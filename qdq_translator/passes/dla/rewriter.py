"""What every rewrite for the DLA works with: the graph, the rule table, and the book that is kept of all changes."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np
from onnx import TensorProto

from qdq_translator.budget import Budget
from qdq_translator.graph import Node
from qdq_translator.inference.context import Context, DerivedScale
from qdq_translator.network import Applied, Network
from qdq_translator.scales import Origin
from qdq_translator.settings import Settings
from qdq_translator.targets.dla.checks import Layer, explicit_pads
from qdq_translator.targets.dla.limits import limits_by_op
from qdq_translator.targets.dla.verdicts import Finding, gpu_findings
from qdq_translator.types import Dim, TensorTypes

Image = Tuple[Dim, int, int, int]
"""N, C, H, W; the batch size may be unknown."""
_DTYPES: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}


class Rewriter:
    """One rewriting of one graph. Rules ask `rejected`, edit through `replace`, and say why not with `leave`."""

    def __init__(self, network: Network, settings: Settings, generation: str) -> None:
        """generation: of the DLA whose limits decide, 'orin' or 'xavier'."""
        self.network, self.settings = network, settings
        self.graph, self.scales, self.trained = network.graph, network.scales, network.trained
        self.budget = Budget(
            sum(t.ByteSize() for t in network.graph.initializers.values()), "Translate without --dla_rewrites."
        )
        self._limits = limits_by_op(generation)

    # ---------------------------------------------------------------- questions

    @property
    def types(self) -> TensorTypes:
        """Types and shapes as they were when the rule began."""
        return self.network.types

    def nodes(self, *op_types: str) -> list[Node]:
        """Nodes of these operators that still stand, whatever a rule does to others meanwhile."""
        return [node for node in self.graph.nodes if node.is_op(*op_types)]

    def rejected(self, node: Node) -> list[Finding]:
        """Limits of the rule table that send the node to the GPU."""
        return gpu_findings(self._layer(node), self._limits)

    def rejected_by(self, node: Node) -> set[str]:
        return {finding.limit.id for finding in self.rejected(node)}

    def image(self, tensor: str) -> Optional[Image]:
        """(N, C, H, W) of a 4-D float tensor of which all but the batch size is known."""
        shape = self.types.shape(tensor)
        if shape is None or len(shape) != 4 or self.dtype(tensor) is None:
            return None
        batch, *rest = shape
        if not all(isinstance(d, int) for d in rest):
            return None
        channels, height, width = (int(d) for d in rest if isinstance(d, int))
        return batch, channels, height, width

    def channels(self, tensor: str) -> Optional[int]:
        """C of a 4-D float tensor."""
        shape = self.types.shape(tensor)
        if shape is None or len(shape) != 4 or self.dtype(tensor) is None:
            return None
        return shape[1] if isinstance(shape[1], int) else None

    def dtype(self, tensor: str) -> Optional[Any]:
        """NumPy's type of a float tensor; None for what NumPy does not have."""
        return _DTYPES.get(self.types.elem_type(tensor))

    def pads(self, node: Node) -> Optional[list[int]]:
        """ONNX pads of a Conv or pooling (begins, then ends), auto_pad computed; None where a size is not known."""
        return explicit_pads(self._layer(node))

    def _layer(self, node: Node) -> Layer:
        context = Context(self.graph, self.types, self.scales, self.settings.options)
        return Layer(node, context, self.settings.hardware.tensorrt)

    def leave(self, node: Node, why: str) -> None:
        """Notes why a rejected node was not rewritten."""
        self.network.leave(node, why)

    # ---------------------------------------------------------------- making

    def afford(self, name: str, *shape: int) -> None:
        """To be called before a tensor of a shape that only the model's sizes bound is made for node `name`.

        Raises ModelError where it is too large.
        """
        self.budget.allow(shape, 4, 0, f"A rewrite of '{name}'")

    def tensor(self, wanted: str) -> str:
        return self.graph.unique_name(wanted)

    def node(self, wanted: str) -> str:
        """A free name for a new node."""
        return self.graph.node_name(wanted)

    def constant(self, wanted: str, values: np.ndarray) -> str:
        return self.graph.add_initializer(self.graph.unique_name(wanted), np.asarray(values))

    def weight(
        self, node: Node, index: int, wanted: str, change: Callable[[np.ndarray], np.ndarray], factor: float = 1.0
    ) -> str:
        """A new initializer made from input `index` of `node`; the codes that it was trained with follow (rule W1).

        `change` gets the values, and the codes, in the layout of the old initializer. The old name is kept where nobody
        else reads it and no other part of it is wanted (`wanted` is '').
        """
        old = node.inputs[index]
        values = self.graph.array(old)
        assert values is not None
        changed = np.ascontiguousarray(change(values))
        if factor != 1.0:
            changed = (changed * np.float64(factor)).astype(values.dtype)
        trained = self.trained.get(old)
        if not wanted and self.graph.consumer_count(old) == 1 and old not in self.graph.outputs:
            name = self.graph.add_initializer(old, changed)
        else:
            name = self.constant(wanted or f"{old}_{node.name}", changed)
        if trained is not None:
            codes = None
            if trained.codes is not None and trained.codes.shape == values.shape:
                codes = np.ascontiguousarray(change(trained.codes))
            self.trained[name] = dataclasses.replace(trained, codes=codes)
        return name

    def scale_layer(
        self, source: str, target: str, channels: int, factor: Any, shift: float, name: str, dtype: Any
    ) -> Node:
        """`target = source * factor + shift` as the Scale layer that the DLA has: a BatchNormalization with mean 0,
        variance 1 and epsilon 0. factor: a number or one for each channel."""
        self.afford(name, 4, channels)
        values = (
            ("scale", np.broadcast_to(np.asarray(factor), channels)),
            ("shift", np.full(channels, shift)),
            ("mean", np.zeros(channels)),
            ("variance", np.ones(channels)),
        )
        inputs = [self.constant(f"{name}.{key}", np.ascontiguousarray(v, dtype=dtype)) for key, v in values]
        return Node("BatchNormalization", [source, *inputs], [target], name, epsilon=0.0)

    def reshape(self, source: str, target: str, shape: Sequence[int], name: str) -> Node:
        """`shape` may begin with 0: the batch size is kept, whatever it is."""
        return Node("Reshape", [source, self.constant(f"{name}.shape", np.array(shape, np.int64))], [target], name)

    # ---------------------------------------------------------------- changing

    def replace(
        self,
        rule: str,
        old: Node,
        new: Sequence[Node],
        tensors: Optional[dict[str, list[str]]] = None,
        more: Sequence[Node] = (),
    ) -> None:
        """Puts `new` in the place of `old`, in their order, and writes it down. more: nodes that went with `old`."""
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
        tensors: dict[str, list[str]],
        new: Sequence[str] = (),
    ) -> None:
        self.network.applied.append(
            Applied(
                rule,
                tuple((n.name, n.op_type) for n in before),
                tuple((n, n.op_type) for n in after),
                tensors,
                tuple(new),
            )
        )
        for node in before:
            for name in node.outputs:
                self.graph.value_info.pop(name, None)

    def derive(
        self,
        rule: str,
        tensor: str,
        source: str,
        node: Node,
        factor: float = 1.0,
        least: float = 0.0,
        needs: str = "",
        note: str = "",
        more: Sequence[str] = (),
    ) -> None:
        """`tensor` gets `max(factor * scale of source, least)`, plus the scales of `more`, once `source`, `needs` and all of
        `more` have one."""
        self.network.derived.append(DerivedScale(tensor, source, rule, node, factor, least, needs, note, tuple(more)))

    def same_scale(self, rule: str, one: str, other: str, node: Node) -> None:
        """Both tensors hold the same values: whichever has a scale hands it to the other."""
        self.derive(rule, one, other, node)
        self.derive(rule, other, one, node)

    def inherit(self, rule: str, tensor: str, source: str, node: Node, note: str) -> None:
        """`tensor` gets the scale that the model gives to `source` itself."""
        value = self.scales.value(source)
        if value is not None and tensor not in self.graph.outputs:
            self.scales.infer(tensor, value, Origin(rule, node.name, "", note))
