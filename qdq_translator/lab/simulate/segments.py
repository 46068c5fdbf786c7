"""A model cut into parts, so that only the part after a changed tensor is recomputed.

A part is computed by the same kernels as in the whole, so the numbers are the same bit for bit (ONNX Runtime's graph
optimizations are off). All tensors that pass from one part to another are kept for the current run.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, Mapping, Sequence

import numpy as np
import onnx

from qdq_translator.lab.simulate.metrics import same_bits
from qdq_translator.lab.simulate.run import Part, Session, value_info
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import INT8_MAX


@dataclasses.dataclass(frozen=True)
class Change:
    """A variant of a model. tensors: target -> source: all readers of the target get the values of the source, in the
    target's type. weights: (node, input index) -> the initializer that is read instead, in the type of the original.
    scales: target -> the scale with which the source is rounded to INT8 (half to even)."""

    tensors: Mapping[str, str]
    weights: Mapping[tuple[str, int], str] = dataclasses.field(default_factory=dict)
    scales: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def read(self, target: str, values: np.ndarray) -> np.ndarray:
        """Values that readers of the target get from its source: rounded as by `quantize` and `dequantize`, but in
        place, and NaN stays.
        """
        if target not in self.scales:
            return values
        step = np.float32(self.scales[target])
        codes = values.astype(np.float32) / step
        np.clip(np.rint(codes, codes), -INT8_MAX - 1, INT8_MAX, codes)
        with np.errstate(over="ignore"):
            codes *= step
        return codes


PLAIN = Change({})


@dataclasses.dataclass(frozen=True)
class Base:
    """Values for one feed: every tensor that passes between parts, the inputs and the outputs, as the nodes make them
    and as readers get them with `ground`."""

    ground: Change
    made: dict[str, np.ndarray]
    read: dict[str, np.ndarray]


class Segments:
    """`model`, cut behind the targets of `changes`. provider: of ONNX Runtime."""

    def __init__(self, model: onnx.ModelProto, changes: Sequence[Change], provider: str = "cpu") -> None:
        self._graph = graph = Graph.from_picture((model, {}))
        self._provider, self._lock = provider, threading.Lock()
        self._sessions: dict[tuple[Any, ...], Session] = {}
        self.outputs = list(graph.outputs)
        targets = {target for change in changes for target in change.tensors}
        kept = {source for change in changes for source in change.tensors.values()} | targets | {*self.outputs}
        self._parts: list[tuple[Part, list[str]]] = []  # with the targets that its last node makes
        nodes: list[Node] = []
        for node in graph.nodes:
            nodes.append(node)
            made = [name for name in node.outputs if name in targets]
            if made:
                self._parts.append((Part(graph, nodes, kept), made))
                nodes = []
        self._parts.append((Part(graph, nodes, kept), []))

    def base(self, feed: Mapping[str, np.ndarray], ground: Change = PLAIN) -> Base:
        """The model with `ground`, which later calls of `changed` start from."""
        made = dict(feed)
        read = dict(feed)
        for part, targets in self._parts:
            if part.makes:
                found = self._session(part, read, ground).run({name: read[name] for name in part.reads})
                made.update(found)
                read.update(found)
            for target in targets:
                values = ground.read(target, made[ground.tensors.get(target, target)])
                read[target] = values.astype(made[target].dtype, copy=False)
        return Base(ground, made, read)

    def changed(self, base: Base, change: Change) -> dict[str, np.ndarray]:
        """Outputs with `change` instead of the ground. base: result of `base` for the same feed."""
        made: dict[str, np.ndarray] = {}
        new: dict[str, np.ndarray] = {}
        for part, targets in self._parts:
            other = _within(part, change) != _within(part, base.ground)
            if part.makes and (other or any(name in new for name in part.reads)):
                session = self._session(part, base.read, change)
                found = session.run({name: new.get(name, base.read[name]) for name in part.reads})
                made.update(found)
                new.update((name, values) for name, values in found.items() if not same_bits(values, base.made[name]))
            for target in targets:
                source = change.tensors.get(target, target)
                values = change.read(target, made.get(source, base.made[source])).astype(
                    base.made[target].dtype, copy=False
                )
                new.pop(target, None)
                if not same_bits(values, base.read[target]):
                    new[target] = values
        return {name: new.get(name, base.read[name]) for name in self.outputs}

    def _session(self, part: Part, values: Mapping[str, np.ndarray], change: Change) -> Session:
        """The session of a part with the weights of `change`, made once for all runs. values: give the types of its
        inputs."""
        weights = _within(part, change)
        key = (id(part), *sorted(weights.items()))
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = self._made(part, values, weights)
            return self._sessions[key]

    def _made(self, part: Part, values: Mapping[str, np.ndarray], weights: Mapping[tuple[str, int], str]) -> Session:
        graph = self._graph
        inputs = (value_info(name, values[name].dtype) for name in part.reads)
        model, own = graph.submodel(part.nodes, "part", inputs)
        for node, proto in zip(part.nodes, model.graph.node):
            for index, old in enumerate(proto.input):
                if (node.name, index) in weights:
                    values_old, values_new = graph.array(old), graph.array(weights[node.name, index])
                    assert values_old is not None and values_new is not None  # both are weights
                    proto.input[index] = f"{old}/{index}/{node.name}"
                    other = onnx.numpy_helper.from_array(values_new.astype(values_old.dtype), proto.input[index])
                    model.graph.initializer.append(other)
        return Session(model, "simulated", part.makes, one_thread=True, provider=self._provider, weights=own)


def _within(part: Part, change: Change) -> dict[tuple[str, int], str]:
    return {place: name for place, name in change.weights.items() if place[0] in part.names}
