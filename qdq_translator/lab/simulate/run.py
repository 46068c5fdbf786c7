"""ONNX Runtime with graph optimizations off, so that the numbers are those of the graph as written."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, Collection, Container, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np
import onnx

from qdq_translator.core.diagnostics import Diagnostics
from qdq_translator.core.errors import UserError, needed
from qdq_translator.translation.ir.constants import Constants, is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.operators import RANDOM
from qdq_translator.translation.ir.qparams import QuantParams
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.ir.weights import Weight, to_array, to_message
from qdq_translator.translation.ir.wire import LARGE
from qdq_translator.translation.passes import names
from qdq_translator.translation.passes.cleanup import remove_dead_nodes, remove_unused_initializers
from qdq_translator.translation.quantizers.parameters import known_parameters
from qdq_translator.translation.quantizers.steps import BETWEEN_OPS

_WEIGHTS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
"""Types of tensors whose values have no effect while a model is loaded."""


def _onnxruntime() -> Any:
    return needed(
        "onnxruntime",
        "verify and --calibrate run models in ONNX Runtime, which is not installed.",
        "pip install '.[verify]' in a checkout of qdq-translator",
    )


_CODES: dict[int, str] = {onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "uint8"}


class Session:
    """A model that is loaded once. `run` returns the tensors in `fetch`."""

    def __init__(
        self,
        model: onnx.ModelProto,
        what: str,
        fetch: Optional[Sequence[str]] = None,
        one_thread: bool = False,
        provider: str = "cpu",
        weights: Mapping[str, Weight] = MappingProxyType({}),
    ) -> None:
        """`weights`: initializers that the model lacks. `fetch`: tensors of the graph to return instead of its outputs.
        one_thread: compute in the thread that calls `run`, from packed weights, for callers that run several samples at
        a time. provider: see `provider_name`. Raises UserError if ONNX Runtime refuses the model."""
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False  # an arena grows by powers of two and never shrinks
        options.enable_mem_pattern = False  # the pattern is one block for all tensors of a run
        if one_thread:
            options.intra_op_num_threads = 1
        else:
            # packed constant weights use another kernel, which sums in another order than for weights behind a Q/DQ
            # pair
            options.add_session_config_entry("session.disable_prepacking", "1")
        # threads that spin between runs slow down the comparison
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.what = what
        light, self._weights = _apart(model, fetch, weights)
        self.outputs = [v.name for v in light.graph.output]
        providers = list(dict.fromkeys((provider_name(provider), "CPUExecutionProvider")))
        try:
            values = list(map(runtime.OrtValue.ortvalue_from_numpy, self._weights.values()))
            options.add_external_initializers(list(self._weights), values)
            self._session = runtime.InferenceSession(light.SerializeToString(), options, providers=providers)
            self.inputs = [value.name for value in self._session.get_inputs()]
        except Exception as error:  # ONNX Runtime has no public exception type
            raise UserError(
                f"ONNX Runtime cannot load the {what} model: {_first_line(error)}",
                "Check it with onnx.checker; a newer onnxruntime may know its operators.",
            ) from error

        self._shapes = {given.name: given.shape for given in self._session.get_inputs()}

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Output -> its values; of an input that is fetched, the array of the feed. feed: one array per input, with the
        rank of the input before or after rule D16. Raises UserError if it cannot be run."""
        values = {name: in_rank(array, self._shapes.get(name, ())) for name, array in feed.items()}
        # ONNX Runtime 1.19 returns an input as a view that does not keep the caller's array alive
        made = [name for name in self.outputs if name not in values]
        try:
            values.update(zip(made, map(np.asarray, self._session.run(made, values))) if made else ())
        except Exception as error:
            raise UserError(
                f"The {self.what} model fails in ONNX Runtime: {_first_line(error)}",
                "Check the shapes of the inputs; --shapes sets dynamic ones.",
            ) from error
        return {name: values[name] for name in self.outputs}


def in_rank(array: np.ndarray, shape: Sequence[Any]) -> np.ndarray:
    """The values in the shape that an input has before or after rule D16, which makes it four-dimensional; the
    first axis is kept. The array itself for any other shape. shape: sizes that are not integers are dynamic."""
    sizes = [size if isinstance(size, int) else -1 for size in shape[1:]]
    if array.ndim in (0, len(shape)) or 4 not in (array.ndim, len(shape)) or sizes.count(-1) > 1:
        return array
    fits = -1 in sizes or math.prod(sizes) * len(array) == array.size
    return array.reshape(len(array), *sizes) if fits else array


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


def provider_name(wanted: str) -> str:
    """ONNX Runtime's name of the provider 'cpu', 'cuda', ... Raises UserError if it is not available."""
    available = {
        name.replace("ExecutionProvider", "").lower(): name for name in _onnxruntime().get_available_providers()
    }
    name = available.get(wanted.replace("ExecutionProvider", "").lower())
    if name is None:
        raise UserError(
            f"ONNX Runtime has no provider '{wanted}' here.", f"It has {', '.join(available)}; see --provider."
        )
    return name


def _apart(
    model: onnx.ModelProto, fetch: Optional[Sequence[str]], more: Mapping[str, Weight] = MappingProxyType({})
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model without its large weights, and those weights, which ONNX Runtime reads in place. In a message they
    would be copied five times. fetch: tensors to return in place of the outputs (their types are left to ONNX Runtime).
    more: initializers that the model lacks."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    given, graph = model.graph, light.graph
    for field in ("node", "input", "value_info", "sparse_initializer", "quantization_annotation"):
        getattr(graph, field).extend(getattr(given, field))
    graph.name = given.name
    known = {v.name: v for v in (*given.output, *given.input)}
    wanted = [v.name for v in given.output] if fetch is None else dict.fromkeys(fetch)
    graph.output.extend(known.get(n) or onnx.ValueInfoProto(name=n) for n in wanted)
    read = {name for node in given.node for name in node.input} - {v.name for v in given.input}
    weights: dict[str, np.ndarray] = {}
    for tensor in (*given.initializer, *more.values()):  # ONNX Runtime refuses values for unused names
        if tensor.data_type not in _WEIGHTS or tensor.ByteSize() < LARGE or tensor.name not in read:
            graph.initializer.append(to_message(tensor))
            continue
        weights[tensor.name] = np.ascontiguousarray(to_array(tensor))
        header = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        header.data_location = onnx.TensorProto.EXTERNAL
        header.external_data.add(key="location", value="given")
    return light, weights


_SLICE = 2**25
"""Bytes of the weights and of all tensors of one slice of a network, in float32: ONNX Runtime may compute each as early
as it can.
"""


class Part:
    """Some nodes of a graph. reads: tensors from outside; makes: tensors that other nodes read, and those in `kept`."""

    def __init__(self, graph: Graph, nodes: list[Node], kept: Container[str]) -> None:
        self.nodes = nodes
        self.names = frozenset(node.name for node in nodes)
        self.session: Optional[Session] = None
        inside = set(map(id, nodes))
        made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
        read = dict.fromkeys(name for node in nodes for name in node.reads() if name)
        self.reads = [name for name in read if name not in made and name not in graph.initializers]
        self.makes = [name for name in made if name in kept or not inside.issuperset(map(id, graph.consumers(name)))]


class Sliced:
    """A graph that is computed in slices of its nodes: memory contains the weights of one slice, and the tensors that
    later slices read. The numbers are those of a `Session`, as neither has graph optimizations."""

    def __init__(self, graph: Graph, types: TensorTypes, what: str, fetch: Optional[Iterable[str]] = None) -> None:
        """A graph to be run in slices. types: its types. what: its name in messages. fetch: tensors to return instead
        of its outputs."""
        self._graph, self._what = graph, what
        self._wanted = dict.fromkeys(graph.outputs if fetch is None else fetch)
        self._slices = [Part(graph, nodes, self._wanted) for nodes in _in_slices(graph, types)]
        self._last = {name: index for index, part in enumerate(self._slices) for name in part.reads}

    def run(
        self, feed: Mapping[str, np.ndarray], more: Callable[[Collection[str]], Mapping[str, np.ndarray]] = lambda _: {}
    ) -> Iterator[tuple[str, np.ndarray]]:
        """(name, values) of the tensors in `fetch`, in the order in which they are computed. more: gives the inputs
        that `feed` lacks, when the slice that reads them begins. Raises UserError."""
        known = {name: array for name, array in feed.items() if name not in self._graph.producer}
        for name in self._wanted:
            if name in known or name in self._graph.initializers:
                yield name, known[name] if name in known else to_array(self._graph.initializers[name])
        for index, part in enumerate(self._slices):
            known.update(more([name for name in part.reads if name not in known]))
            found = self._computed(part, known) if part.makes else {}
            values = (*known.items(), *found.items())
            known = {name: array for name, array in values if self._last.get(name, -1) > index}
            del values
            for name in part.makes:
                array = found.pop(name)
                if name in self._wanted:
                    yield name, array

    def _computed(self, part: Part, known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of a part. Large weights are inputs of the session, because it would copy initializers."""
        model, weights = self._graph.submodel(part.nodes, "slice")
        values = {name: known[name] for name in part.reads if name in known}
        values.update({n: np.ascontiguousarray(w.array()) for n, w in weights.items() if w.ByteSize() >= LARGE})
        session = part.session
        if session is None:
            given = (self._graph.inputs.get(name) or value_info(name, v.dtype) for name, v in values.items())
            model.graph.input.extend(given)
            small = {name: weight for name, weight in weights.items() if name not in values}
            session = Session(model, self._what, part.makes, weights=small)
            part.session = session if len(self._slices) == 1 else None  # it keeps memory
        return session.run(values)


def _in_slices(graph: Graph, types: TensorTypes) -> Iterator[list[Node]]:
    """The nodes, in slices of `_SLICE` bytes. A sequence or an optional cannot pass from one session to another."""
    at_once = any("Sequence" in node.op_type or "Optional" in node.op_type for node in graph.nodes)
    sizes = {name: 4 * math.prod(tensor.dims) for name, tensor in graph.initializers.items()}
    sizes.update((name, 4 * math.prod(types.static_shape(name) or ())) for name in graph.producer)
    nodes: list[Node] = []
    taken = 0
    for node in _constants_late(graph):
        own = sum(sizes.get(name, 0) for name in (*node.reads(), *node.outputs))
        if taken + own > _SLICE and nodes and not at_once:
            yield nodes
            nodes, taken = [], 0
        nodes.append(node)
        taken += own
    yield nodes


def _constants_late(graph: Graph) -> Iterator[Node]:
    """The nodes in an order in which those that do not depend on an input come right before their first reader: a
    weight that they compute is not kept for long."""
    varying, waiting = set(graph.inputs), {}  # type: set[str], dict[str, Node]
    for node in graph.nodes:
        reads = node.reads()
        if node.outputs and varying.isdisjoint(reads) and graph.outputs.keys().isdisjoint(node.outputs):
            waiting.update(dict.fromkeys(node.outputs, node))
            continue
        varying.update(node.outputs)
        yield from _taken(waiting, reads)
        yield node


def _taken(waiting: dict[str, Node], names: Iterable[str]) -> Iterator[Node]:
    """The nodes that make these tensors, each once, after the producers of its inputs."""
    for name in names:
        node = waiting.get(name)
        if node is not None:
            for output in node.outputs:
                waiting.pop(output, None)
            yield from _taken(waiting, node.reads())
            yield node


def value_info(name: str, dtype: np.dtype, shape: Optional[Sequence[int]] = None) -> onnx.ValueInfoProto:
    """Type of a model's input; shape: None for any."""
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of the same function with everything independent of the inputs computed once, by ONNX Runtime. Weights
    after their Q/DQ pairs become initializers, so that they are not rounded again with every sample. Float16 nodes
    stay: ONNX Runtime computes them in float32 if it has no other kernel, and rounds at fewer places than the graph
    specifies."""
    graph = Graph.from_picture((model, {}))
    return graph.to_model() if fold(graph) else model


def fold(graph: Graph) -> bool:
    """`folded` in place; False if there is nothing to compute."""
    constant = _constant_tensors(graph)
    wanted = [
        name
        for name in graph.producer
        if name in constant
        and name not in graph.outputs
        and any(reader.outputs[0] not in constant for reader in graph.consumers(name))
    ]
    if not wanted:
        return False
    part, weights = graph.submodel([n for n in graph.nodes if not constant.isdisjoint(n.outputs)], "constants")
    session = Session(part, "constant part of the", wanted, one_thread=True, weights=weights)
    for name, values in session.run({}).items():
        if values.dtype != np.float16:
            graph.detach(name)
            graph.add_initializer(name, values)
    remove_dead_nodes(graph)
    remove_unused_initializers(graph)
    return True


def _constant_tensors(graph: Graph) -> set[str]:
    """Tensors that nodes compute from constants alone."""
    found: set[str] = set()
    for node in graph.nodes:
        is_plain = node.is_standard and not any(True for _ in node.subgraphs()) and not node.is_op(*RANDOM)
        if is_plain and all(not name or name in found or name in graph.initializers for name in node.reads()):
            found.update(name for name in node.outputs if name)
    return found


# ---------------- the explicit model


@dataclass(frozen=True)
class CodedEnds:
    """Graph inputs and outputs of an explicit model that are quantized values; the stripped model's are float."""

    inputs: dict[str, QuantParams]
    outputs: dict[str, QuantParams]

    def feed(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Convert float inputs of the stripped model for the explicit one."""
        result = dict(feed)
        for name, grid in self.inputs.items():
            codes = np.rint(feed[name].astype(np.float32) / grid.scale) + grid.zero_point
            result[name] = np.clip(codes, *grid.code_range).astype(grid.dtype)
        return result

    def real(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs as real numbers."""
        result = dict(values)
        for name, grid in self.outputs.items():
            if name in result and result[name].dtype in (np.int8, np.uint8):
                result[name] = (result[name].astype(np.float32) - grid.zero_point.astype(np.float32)) * grid.scale
        return result


@dataclass
class ExplicitNetwork:
    """The original Q/DQ model, and its relation to the stripped one."""

    graph: Graph
    ends: CodedEnds

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        return self.graph.to_model()

    @classmethod
    def of(cls, model: Union[onnx.ModelProto, Graph]) -> ExplicitNetwork:
        """Modifies the model. Node names are made unique, as by the translator; ONNX Runtime requires that too."""
        graph = model if isinstance(model, Graph) else Graph.from_model(model)
        names.name_nodes(graph, Diagnostics())
        constants = Constants(graph)

        def grids(ends: Mapping[str, onnx.ValueInfoProto]) -> dict[str, QuantParams]:
            found = {}
            for name, value in ends.items():
                dtype = _CODES.get(value.type.tensor_type.elem_type)
                nodes = _quantizers_of(graph, name) if dtype else ()
                for node in nodes:
                    grid = known_parameters(constants, node, dtype, missing=dtype)
                    if grid is not None and not grid.per_channel:
                        found[name] = grid
            return found

        ends = CodedEnds(grids(graph.inputs), grids(graph.outputs))
        return cls(graph, ends)


def _quantizers_of(graph: Graph, name: str) -> Iterator[Node]:
    """The quantizers that tell what the values of a quantized graph input or output mean: those that make or read a
    tensor that only data movement is between (rule Q10)."""
    pending, seen = [name], {name}
    while pending:
        tensor = pending.pop()
        maker, readers = graph.producer.get(tensor), graph.consumers(tensor)
        yield from (node for node in readers if is_dequantize(node))
        if maker is not None and is_quantize(maker):
            yield maker
        for node in (*readers, *filter(None, [maker])):
            ends = [*node.inputs[: None if node.is_op("Concat") else 1], *node.outputs]
            if node.is_op(*BETWEEN_OPS) and tensor in ends:
                pending += [end for end in ends if end not in seen]
                seen.update(ends)


def same_ends(which: str, stripped: Iterable[str], other: Iterable[str], what: str) -> None:
    """Raises UserError if `other` lacks names of `stripped` or has more. which: 'inputs' or 'outputs'. what: the other
    model in words."""
    a, b = list(stripped), list(other)
    if set(a) != set(b):
        raise UserError(
            f"The {what} model has the {which} {', '.join(b)}; the translation has {', '.join(a)}.",
            "Give the model that the translation was made from.",
        )
