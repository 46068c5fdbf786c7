"""Find the explicit model's counterpart of a stripped tensor, and its scales there."""

from __future__ import annotations

import functools

from qdq_translator.lab.simulate.run import ExplicitNetwork
from qdq_translator.translation.ir.constants import Constants, is_dequantize, is_quantize
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.quantizers.parameters import known_parameters


class Counterparts:
    """Tensor of the stripped model -> tensors of the explicit one: as its layer makes it, and as its readers get it."""

    def __init__(self, stripped: Graph, explicit: ExplicitNetwork) -> None:
        self.stripped, self.graph = stripped, explicit.graph
        self.by_node = {n.name: n for n in self.graph.nodes}
        self.constants = Constants(self.graph)
        self.base = functools.lru_cache(maxsize=None)(self._base)
        self.aliases = functools.lru_cache(maxsize=None)(self._aliases)

    def is_clamped(self, name: str) -> bool:
        """True for the output of a clamp from inside a quantizer (rule Q9): the explicit model has no such node, or a
        Relu in its place."""
        producer = self.stripped.producer.get(name)
        if producer is None or not producer.is_op("Relu", "Clip"):
            return False
        twin = self.by_node.get(producer.name)
        return twin is None or (twin.is_op("Relu") and producer.is_op("Clip"))

    def is_moved(self, name: str) -> bool:
        """True if the explicit model moves (rule Q10) or clamps (Q9) the quantized values before use, so that no reader
        there gets this tensor's rounded values unchanged."""
        base = self.base(name)
        readers = [r for r in self.graph.consumers(base) if is_quantize(r)]
        clamped = any(self.is_clamped(o) for r in self.stripped.consumers(name) for o in r.outputs)
        return bool(readers) and (clamped or not self._as_read(base))

    def _base(self, name: str) -> str:
        """Counterpart in the explicit model, '' if there is none."""
        graph = self.graph
        if name not in graph.producer and name not in graph.inputs:
            name = self._of_twin(name)
        while True:
            node = graph.producer.get(name)
            if node is None or not (is_quantize(node) or is_dequantize(node) or self._clips_codes(node)):
                return name
            if is_dequantize(node) and node.inputs[0] in graph.inputs:  # its float side is the stripped model's input
                return name
            name = node.inputs[0]

    def _of_twin(self, name: str) -> str:
        """The output of the node with the same name and operator, for a tensor that only the stripped model has."""
        namesake = self.by_node.get(name)
        if namesake is not None:  # rule F5: of a folded BatchNormalization, whose layer has the name of the Conv
            return namesake.outputs[0]
        producer = self.stripped.producer.get(name)
        if producer is None:
            return ""
        if self.is_clamped(name):
            return self.base(producer.inputs[0])
        twin = self.by_node.get(producer.name)
        # with fewer inputs its bias is a separate Add here (rule F8)
        if twin is None or twin.op_type != producer.op_type or len(producer.inputs) < len(twin.inputs):
            return ""
        return twin.outputs[producer.outputs.index(name)]

    def _clips_codes(self, node: Node) -> bool:
        producer = self.graph.producer.get(node.inputs[0]) if node.inputs else None
        return node.is_op("Clip") and producer is not None and is_quantize(producer)

    def _aliases(self, name: str) -> list[str]:
        """Names that readers use: after DequantizeLinear, or the tensor itself. Empty if it does not exist."""
        base = self.base(name)
        found = self._as_read(base) if base and not self.is_moved(name) else []
        return list(dict.fromkeys(found)) or ([base] if base else [])

    def _as_read(self, tensor: str) -> list[str]:
        graph = self.graph
        found: list[str] = [tensor] if tensor in graph.outputs else []
        for reader in graph.consumers(tensor):
            if is_quantize(reader) and reader.inputs[0] == tensor:
                found += self._dequantized(reader.outputs[0])
            elif is_dequantize(reader):
                found += self._as_read(reader.outputs[0])
            else:
                found.append(tensor)
        return found

    def _dequantized(self, codes: str) -> list[str]:
        graph = self.graph
        found: list[str] = [codes] if codes in graph.outputs else []
        for reader in graph.consumers(codes):
            if is_dequantize(reader):
                found += self._as_read(reader.outputs[0]) or [reader.outputs[0]]
            elif reader.is_op("Clip"):
                found += self._dequantized(reader.outputs[0])
        return found

    def stated(self, name: str) -> list[float]:
        """Distinct scales with which the explicit model quantizes the tensor, as symmetric INT8 scales, ascending; for
        a quantizer with another grid, the smallest scale that covers it."""
        base = self.base(name)
        scales: set[float] = set()
        stack = [base] if base else []
        while stack:
            for reader in self.graph.consumers(stack.pop()):
                if is_quantize(reader):
                    read = known_parameters(self.constants, reader)
                    scales.update([] if read is None else [float(read.symmetric_scale())])
                    stack += [n.outputs[0] for n in self.graph.consumers(reader.outputs[0]) if is_dequantize(n)]
        return sorted(scales)
