"""Rules Q1, Q6, Q7, Q9 and Q10: remove the steps found from the graph, one after the other."""

from __future__ import annotations

from typing import Optional

import numpy as np
from onnx import TensorProto, helper

from qdq_translator.ir.constants import is_dequantize
from qdq_translator.ir.graph import Node
from qdq_translator.passes.clamps import is_non_negative, make_clamp
from qdq_translator.quantizers.steps import (
    Bounds,
    ClampCodes,
    Dequantize,
    Move,
    Quantize,
    QuantizedInput,
    QuantizedOutput,
    Step,
)
from qdq_translator.scales.network import Network
from qdq_translator.scales.table import Origin


class Stripper:
    """A graph whose activation quantizers are removed; each gives its scale."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph, self.scales = network, network.graph, network.scales
        self.real: dict[str, str] = {}
        """Tensor that is gone (codes, or a DQ's output) -> the float tensor that stands for it."""
        self.clamped: dict[tuple[str, Optional[float], Optional[float]], str] = {}
        self.floats: dict[tuple[str, np.dtype], str] = {}
        self.ends: dict[str, tuple[Node, float]] = {}
        """Graph output that a node is gone from -> the node, and the scale of its pair."""
        self.clamps: list[tuple[Node, str]] = []
        """Each clamp that stays and the quantizer that it came from."""

    def apply(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Quantize):
                self._quantize(step)
            elif isinstance(step, ClampCodes):
                self._clamp_codes(step)
            elif isinstance(step, Move):
                self._move(step)
            elif isinstance(step, Dequantize):
                self._dequantize(step)
            elif isinstance(step, QuantizedInput):
                self.graph.inputs[step.name].type.tensor_type.elem_type = TensorProto.FLOAT
                if step.real != np.float32:  # the network behind it has that type (rule F9)
                    self.real[step.name] = self._as_float(step.name, step.real)
                self.scales.observe(step.name, step.scale, Origin("Q6", "", step.name, "graph input was int8"))
            else:
                self._output(step)
        self._name_outputs()

    def name_now(self, name: str) -> str:
        """The float tensor that replaces `name`."""
        while name in self.real:
            name = self.real[name]
        return name

    def _quantize(self, step: Quantize) -> None:
        node, graph = step.node, self.graph
        source = self.name_now(node.inputs[0])
        graph.remove(node)
        if step.integer:
            source = self._as_float(source, step.params.real)
        origin = Origin("Q1", node.name, source, step.note, step.grid)
        if step.clamp is not None and self._cuts(source, step.clamp):
            source = self._clamp(source, step.clamp, step.scale, node, step.params.real, origin)
        else:
            self.scales.observe(source, step.scale, origin)
        self._replace(node, source, step.scale)

    def _as_float(self, source: str, real: np.dtype) -> str:
        """A Cast to the type of the scale behind integers that a quantizer reads; quantizers share it."""
        key = (source, real)
        if key not in self.floats:
            name = self.graph.unique_name(f"{source}_float")
            cast = Node("Cast", [source], [name], self.graph.unique_name(f"{name}_cast"), to=_element(real))
            self.graph.insert_after(cast, self.graph.producer.get(source))
            self.floats[key] = name
        return self.floats[key]

    def _cuts(self, source: str, clamp: Bounds) -> bool:
        """False for a clamp at 0 after a non-negative tensor: the network's Relu is still there."""
        return not (clamp == (0, None) and is_non_negative(self.graph, source))

    def _clamp(
        self,
        source: str,
        clamp: Bounds,
        scale: float,
        quantizer: Node,
        real: np.dtype,
        origin: Origin,
    ) -> str:
        """Rule Q9: the clamp that the pair did survives as a node behind `source`; equal clamps are shared."""
        key = (source, *clamp)
        if key not in self.clamped:
            graph = self.graph
            name = graph.unique_name(f"{source}_clamp")
            node_name = graph.node_name(f"{quantizer.name or source}_clamp")
            node = make_clamp(graph, source, name, clamp, node_name, real)
            producer = graph.producer.get(source)
            graph.insert_after(node, producer)
            self.clamped[key] = name
            self.clamps.append((node, quantizer.label))
        name = self.clamped[key]
        self.scales.observe(name, scale, Origin("Q9", quantizer.name, source, origin.note, origin.grid))
        return name

    def _clamp_codes(self, step: ClampCodes) -> None:
        node, graph = step.node, self.graph
        source = self.name_now(node.inputs[0])
        graph.remove(node)
        if step.clamp is not None and self._cuts(source, step.clamp):
            source = self._clamp(source, step.clamp, step.scale, node, step.real, Origin("Q9"))
        self._replace(node, source, step.scale)

    def _move(self, step: Move) -> None:
        node, graph = step.node, self.graph
        graph.set_inputs(node, [self.name_now(name) for name in node.inputs])
        if node.is_op("Pad"):  # its constant, if it has one, was a code
            value = ""
            if step.pad_value:
                value = graph.add_initializer(
                    graph.unique_name(f"{node.outputs[0]}_pad"), np.asarray(step.pad_value, step.real)
                )
            graph.set_input(node, 2, value)
        for name in step.moved:
            graph.value_info.pop(name, None)
            self.scales.observe(name, step.scale, Origin("Q10", node.name, node.inputs[0], step.note, step.grid))

    def _dequantize(self, step: Dequantize) -> None:
        node = step.node
        source = self.name_now(node.inputs[0])
        if step.cast is not None:
            before = node.prev
            self.graph.remove(node)
            cast = Node("Cast", [source], node.outputs, node.name, to=_element(step.cast))
            self.graph.insert_after(cast, before)
            self.scales.observe(node.outputs[0], step.scale, Origin("Q1", node.name, source))
            return
        self.graph.remove(node)
        self._replace(node, source, step.scale)

    def _replace(self, node: Node, source: str, scale: float) -> None:
        """Remove `node`; its readers read `source`. A DQ reader, nearly always the only one, is removed later."""
        graph, gone = self.graph, node.outputs[0]
        graph.value_info.pop(gone, None)
        self.real[gone] = source
        reader = graph.only_consumer(gone)
        if reader is None or not is_dequantize(reader):
            graph.replace_uses(gone, source)
        if gone in graph.outputs:
            self.ends[gone] = node, scale

    def _name_outputs(self) -> None:
        """Rule Q7: a graph output keeps its name. If several are one tensor, it gets the name of the first of them, in
        the order of their declaration in the model."""
        graph = self.graph
        for gone in [name for name in graph.outputs if name in self.ends]:
            node, scale = self.ends[gone]
            source = self.name_now(gone)
            if source not in graph.producer or source in graph.outputs:
                self._identity(source, gone, Origin("Q7", node.name, source), scale)
                continue
            self.network.rename_tensor(source, gone)
            del self.real[gone]
            self.real[source] = gone

    def _identity(self, source: str, output: str, origin: Origin, scale: float) -> None:
        """A graph output that is a graph input or another output: both names stay (fact 4.2). The output has the scale
        of this pair alone, not of other quantizers."""
        node = Node("Identity", [source], [output], self.graph.node_name(f"{output}_identity"))
        self.graph.insert_after(node, self.graph.producer.get(source))
        self.scales.observe(output, scale, origin)
        del self.real[output]

    def _output(self, step: QuantizedOutput) -> None:
        graph = self.graph
        graph.outputs[step.name].type.tensor_type.elem_type = TensorProto.FLOAT
        producer = graph.producer.get(step.name)
        if step.real != np.float32 and producer is not None:
            inside = graph.unique_name(f"{step.name}_float")
            graph.rename_output(producer, step.name, inside)
            cast = Node("Cast", [inside], [step.name], graph.node_name(f"{inside}_cast"), to=TensorProto.FLOAT)
            graph.insert_after(cast, producer)


def _element(real: np.dtype) -> int:
    """The ONNX element type."""
    return int(helper.np_dtype_to_tensor_dtype(real))
