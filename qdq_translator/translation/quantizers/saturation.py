"""Rule Q9 as a function of its own: a network whose quantizers only saturate, and the clamps that this needs.

A quantizer rounds and saturates. `saturate` replaces each one by its saturation alone: the float function that a
translation must compute, made from the model and from nothing that the translation wrote. `saturate_at` adds to a
translated network the saturation that its INT8 tensors have in the engine.
"""

from __future__ import annotations

from typing import Collection, Mapping, Optional

import numpy as np
from onnx import TensorProto, helper

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.constants import Constants, is_dequantize, is_quantize, is_quantizer
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.ir.qparams import QuantParams, along
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.quantizers.parameters import known_parameters

_CODES = {TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}


def clamp_node(
    graph: Graph, source: str, output: str, low: Optional[float], high: Optional[float], name: str, real: np.dtype
) -> Node:
    """A node that clamps `source` to [low, high] (None: no bound), not yet in the graph: Relu for [0, inf), else Clip
    with bounds of type `real` as the opset of the graph has them."""
    if (low, high) == (0.0, None):
        return Node("Relu", [source], [output], name)
    if graph.opset() < 11:
        clip = Node("Clip", [source], [output], name)
        for key, bound in (("min", low), ("max", high)):
            if bound is not None:
                clip.set(key, bound)
        return clip
    inputs = [source]
    for which, bound in zip(("min", "max"), (low, high)):
        inputs.append("" if bound is None else graph.constant(f"{output}_{which}", np.asarray(bound, real)))
    return Node("Clip", inputs if inputs[-1] else inputs[:-1], [output], name)


def saturate(graph: Graph, symmetric: bool = True) -> None:
    """Replace in place every quantizer of activations by its saturation in float: Q by a clamp to the values that it
    can represent, DQ by nothing; everything between them works on real values. Weights stay behind their quantizers,
    rounded. Quantized graph inputs and outputs become float32. A quantizer that cannot be read (a type other than int8
    and uint8, computed scales) passes its input on, and so do symmetric ones if `symmetric` is not set."""
    _Saturated(graph, "uint8", as_int8=not symmetric).run()


def saturate_both(
    source: Graph,
    written: Graph,
    scales: Mapping[str, float],
    missing_zero_point: str = "uint8",
    saturating: Collection[str] = (),
    idle: Collection[tuple[str, int]] = (),
) -> None:
    """Make a model with quantizers and the network that was written for it comparable, in place: quantizers become
    their saturation, those of INT8 itself on the tensors that both have. There, as in the engine, a tensor saturates
    for all its readers alike (rules C1, C2, Q8), and channels at the largest range. scales: those of the written
    network that the model states. saturating: symmetric quantizers, the first of those
    that are equal, whose saturation is a node of the written one. idle: ends (0 lower, 1 upper) of others that are left
    out, because no data reach them."""
    work = _Saturated(source, missing_zero_point, as_int8=True, saturating=saturating, idle=idle)
    quantizers = [node for node in work.constants.varying if is_quantizer(node)]
    symmetric = [node for node in quantizers if _is_symmetric(work, node)]
    given = {node.inputs[0] for node in symmetric if is_quantize(node)}
    given |= source.outputs.keys() & {node.outputs[0] for node in symmetric if is_dequantize(node)}
    work.run()
    names = {name: _quantized(source, written, name, scales) for name in given}
    stated = {name: scale for name, scale in scales.items() if name in names}
    saturate_at(source, {names[name]: scale for name, scale in stated.items()})
    saturate_at(written, stated)


def _quantized(source: Graph, written: Graph, end: str, scales: Mapping[str, float]) -> str:
    """The tensor of the model that the written network has as `end`: what quantizers and Identity nodes before it copy,
    unless the written network has a copy too, and a clamp passes on that it has not."""
    made = written.producer.get(end)
    if made is None or made.is_op("Identity"):
        return end
    name = source.behind(end, "Identity")
    if not made.is_op("Relu", "Clip"):
        unclamped = source.behind(name, "Identity", "Relu", "Clip")
        node = source.producer.get(unclamped)
        name = unclamped if node is not None and node.op_type == made.op_type else name
    return end if name in scales else name


def saturate_weights(graph: Graph, nodes: Collection[str], missing_zero_point: str = "uint8") -> None:
    """Give weights of -128 steps, which the DequantizeLinear `nodes` make, -127 steps in place, the lowest that
    TensorRT's weights have (rule W1)."""
    constants, types = Constants(graph, missing_zero_point), TensorTypes(graph)
    for node in [node for node in graph.nodes if node.name in nodes]:
        params, rank = known_parameters(constants, node), types.rank(node.outputs[0])
        if params is not None and (params.axis is None or rank is not None):
            made, readers = node.outputs[0], graph.consumers(node.outputs[0])
            least = np.asarray((-127 * params.scale.astype(np.float32)).astype(params.real))
            least = least if params.axis is None else along(least, params.axis, rank or 0)
            name = graph.unique_name(f"{made}_least")
            other = graph.unique_name(f"{made}_saturated")
            graph.insert_after(Node("Max", [made, graph.constant(name, least)], [other], f"{other}_max"), node)
            for reader in readers:
                graph.replace_use(reader, made, other)


def _is_symmetric(work: _Saturated, node: Node) -> bool:
    params = known_parameters(work.constants, node)
    return params is not None and params.symmetric


class _Saturated:
    """as_int8: symmetric quantizers but those `saturating` do so as INT8 does, elsewhere; channels at their largest
    range."""

    def __init__(
        self,
        graph: Graph,
        missing_zero_point: str,
        as_int8: bool,
        saturating: Collection[str] = (),
        idle: Collection[tuple[str, int]] = (),
    ) -> None:
        self.graph, self.types, self.as_int8 = graph, TensorTypes(graph), as_int8
        self.saturating, self.idle = saturating, idle
        self.constants = Constants(graph, missing_zero_point)
        self.first: dict[tuple[str, float], str] = {}
        """Tensor and largest value -> the first quantizer of the two."""
        self.codes: dict[str, Optional[QuantParams]] = {}
        """Tensor that held quantized values -> their parameters."""

    def run(self) -> None:
        graph = self.graph
        for name, value in graph.inputs.items():
            if value.type.tensor_type.elem_type in _CODES and self._is_coded(name):
                self.codes[name] = None
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in self.constants.varying:
            if is_quantize(node):
                self._quantize(node)
            elif is_dequantize(node):
                self._pass_on(node)
            elif node.inputs and node.inputs[0] in self.codes:
                self._between(node, self.codes[node.inputs[0]])
        graph.value_info.clear()
        for name in graph.outputs.keys() & self.codes.keys():
            graph.outputs[name].type.tensor_type.elem_type = TensorProto.FLOAT

    def _is_coded(self, name: str) -> bool:
        """Whether a DequantizeLinear reads the tensor, directly or behind data movement."""
        waiting, seen = [name], {name}
        while waiting:
            for node in self.graph.consumers(waiting.pop()):
                if is_dequantize(node):
                    return True
                fresh = [o for o in node.outputs if o and o not in seen and not node.is_op("Cast")]
                seen.update(fresh)
                waiting += fresh
        return False

    def _quantize(self, node: Node) -> None:
        params = known_parameters(self.constants, node)
        self.codes[node.outputs[0]] = params
        if params is None:
            become(self.graph, node, Node("Identity", node.inputs[:1], node.outputs, node.name))
            return
        self._clamp(node, params, params.code_range)

    def _clamp(self, node: Node, params: QuantParams, codes: tuple[int, int]) -> None:
        """Turn the node into a clamp of its first input to the real values of the two: scalars, or one a channel."""
        graph, name, made = self.graph, node.name, node.outputs[0]
        source = node.inputs[0]
        if not self.types.is_float(source) and source not in self.codes:
            cast = graph.unique_name(f"{source}_real")
            to = helper.np_dtype_to_tensor_dtype(params.real)
            graph.insert_after(Node("Cast", [source], [cast], f"{cast}_cast", to=to), graph.producer.get(source))
            source = cast
        low, high = map(params.real_value, codes)
        if not low.ndim or self.as_int8:
            ends = self._ends(node, source, params, codes)
            clamped = ends != [None, None]
            clamp = clamp_node(graph, source, made, ends[0], ends[1], name, params.real) if clamped else None
            become(graph, node, clamp or Node("Identity", [source], [made], name))
            return
        rank = self.types.rank(source) or 4
        bounds = [graph.constant(f"{made}_bound", along(bound, params.axis, rank)) for bound in (low, high)]
        above = graph.unique_name(f"{made}_above")
        graph.insert_after(Node("Max", [source, bounds[0]], [above], f"{above}_max"), node.prev)
        become(graph, node, Node("Min", [above, bounds[1]], [made], name))

    def _ends(self, node: Node, source: str, params: QuantParams, codes: tuple[int, int]) -> list[Optional[float]]:
        """The real values of the two at which the node saturates; None where INT8 does, or no data reach it."""
        low, high = map(params.real_value, codes)
        first = self.first.setdefault((source, float(high.max())), node.name)
        alike = self.as_int8 and params.symmetric and first not in self.saturating
        ends: list[Optional[float]] = [float(low.min()), float(high.max())]
        for end, (code, limit) in enumerate(zip(codes, params.code_range)):
            # -127 is one step from where INT8 saturates
            if (alike and abs(code - limit) <= 1) or (first, end) in self.idle:
                ends[end] = None
        return ends

    def _pass_on(self, node: Node) -> None:
        params = self.codes.get(node.inputs[0])
        target = known_parameters(self.constants, node, params.dtype) if params is not None else None
        if params is not None and target is not None and params.real != target.real:
            to = helper.np_dtype_to_tensor_dtype(target.real)
            become(self.graph, node, Node("Cast", node.inputs[:1], node.outputs, node.name, to=to))
        else:
            become(self.graph, node, Node("Identity", node.inputs[:1], node.outputs, node.name))

    def _between(self, node: Node, params: Optional[QuantParams]) -> None:
        """A node that works on quantized values: a Clip and the constant of a Pad get real values."""
        graph, value = self.graph, self.constants.value
        self.codes.update(dict.fromkeys(filter(None, node.outputs), params))
        if params is None:
            return
        if node.is_op("Clip"):
            ends = zip(operators.clip_bounds(node, value), params.code_range, (max, min))
            low, high = (int(inner if bound is None else choose(inner, bound)) for bound, inner, choose in ends)
            self._clamp(node, params, (low, high))
        elif node.is_op("Pad") and operators.mode(node) == "constant":
            code = operators.pad_value(node, value)
            if code is not None:
                while len(node.inputs) < 3:
                    graph.set_inputs(node, [*node.inputs, ""])
                graph.set_input(
                    node, 2, graph.constant(f"{node.outputs[0]}_pad", params.real_value(int(code)).reshape(-1)[0])
                )


def become(graph: Graph, node: Node, other: Node) -> None:
    """Turn a node into another one, which is not in the graph and has the same outputs and the same name."""
    graph.set_inputs(node, other.inputs)
    graph.set_operator(node, other.op_type)
    node.domain, node.attributes = other.domain, other.attributes


def saturate_at(graph: Graph, scales: Mapping[str, float]) -> None:
    """Add in place the saturation of INT8 to tensors: their readers get values in [-128 scale, 127 scale], and a graph
    output has them. scales: tensor -> its scale."""
    types = TensorTypes(graph)
    for name, scale in scales.items():
        if name in graph.producer or name in graph.inputs:
            low, high = (float(np.float32(code) * np.float32(scale)) for code in (-128, 127))
            _saturate_for_all(graph, name, low, high, types)


def _saturate_for_all(graph: Graph, name: str, low: float, high: float, types: TensorTypes) -> None:
    """Clamp a tensor for all its readers; a graph output is clamped under its name."""
    real = helper.tensor_dtype_to_np_dtype(types.elem_type(name) or TensorProto.FLOAT)
    is_output = name in graph.producer and name in graph.outputs
    source = graph.before_output(name) if is_output else name
    made = name if is_output else graph.unique_name(f"{name}_saturated")
    node = clamp_node(graph, source, made, low, high, graph.unique_name(f"{name}_saturation"), real)
    readers = graph.consumers(source)
    graph.insert_after(node, graph.producer.get(source))
    for reader in readers:
        graph.replace_use(reader, source, made)
