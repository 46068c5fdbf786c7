"""Rule S10: scales of tensors that only TensorRT 10.x's network has (fact sheet 4.12).

| tensor | name | scale |
| --- | --- | --- |
| constant operand (Gemm weight and bias, Add, Mul, ... operands) | `<initializer>_output` | max|c| / 127 |
| its broadcast to the other operand's rank | `ONNXTRT_Broadcast[_k]_output` | the same |
| Gemm before its bias | `<node>_output` | (amax of the output + max|bias|) / 127 |
| Softmax before its Shuffle | `<node>_output` | that of its output, else 1 / 127 |

The number k comes from one counter that other helper layers of the parser advance too; broadcasts are named only in
networks whose operators make no such helpers. The names are as the open-source parser 10.1 makes them; that the library
derives tensor names as `<layer>_output` is inferred from published listings.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.graph import Graph, Node
from qdq_translator.qparams import INT8_MAX
from qdq_translator.scales import ScaleTable
from qdq_translator.types import FLOAT_TYPES, TensorTypes

_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max")
_NO_HELPERS = frozenset(
    (
        *(
            "Conv",
            "ConvTranspose",
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "Clip",
            "HardSigmoid",
            "Elu",
            "BatchNormalization",
        ),
        *(
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "Concat",
            "Identity",
            "Flatten",
            "Gemm",
            "Cast",
        ),
        *("Transpose", "Dropout", *_ELEMENTWISE),
    )
)
"""Operators that make no numbered helper layers in the parser but the broadcasts counted here (with 2-D kernels)."""


def automatic_scales(graph: Graph, types: TensorTypes, scales: ScaleTable) -> dict[str, float]:
    """Tensor name in TensorRT's network -> scale, in network order."""
    return _Namer(graph, types, scales).run()


class _Namer:
    def __init__(self, graph: Graph, types: TensorTypes, scales: ScaleTable) -> None:
        self.graph, self.types, self.scales = graph, types, scales
        self.result: dict[str, float] = {}
        self.broadcasts = 0
        self.numbers_known = all(n.is_op(*_NO_HELPERS) for n in graph.nodes)

    def run(self) -> dict[str, float]:
        for node in self.graph.nodes:
            if node.is_op("Gemm"):
                self._gemm(node)
            elif node.is_op("Softmax"):
                self._give(f"{node.name}_output", self.scales.value(node.outputs[0]) or 1 / INT8_MAX)
            elif node.is_op(*_ELEMENTWISE, "MatMul", "Concat"):
                self._operands(node)
        return self.result

    def _give(self, name: str, scale: Optional[float]) -> None:
        if scale is not None and np.isfinite(scale) and scale > 0 and name not in self.scales:
            self.result.setdefault(name, float(np.float32(scale)))

    def _constant(self, name: str) -> Optional[float]:
        """The scale of an initializer as a tensor, and its own entry; None for what is no float constant."""
        tensor = self.graph.initializers.get(name)
        if tensor is None or tensor.data_type not in FLOAT_TYPES:
            return None
        values = self.graph.array(name)
        if values is None or values.size == 0:
            return None
        scale = float(max(values.max(), -values.min())) / INT8_MAX
        self._give(f"{name}_output", scale)
        return scale

    def _broadcast(self, scale: Optional[float]) -> None:
        if self.numbers_known:
            suffix = f"_{2 * self.broadcasts}" if self.broadcasts else ""
            self._give(f"ONNXTRT_Broadcast{suffix}_output", scale)
        self.broadcasts += 1

    def _gemm(self, node: Node) -> None:
        self._constant(node.input(1))
        if not node.input(2):
            return
        bias = self._constant(node.input(2))
        if (self.types.rank(node.input(2)) or 0) < 2:
            self._broadcast(bias)
        output = self.scales.value(node.outputs[0])
        if output is not None and bias is not None:
            self._give(f"{node.name}_output", output + bias)

    def _operands(self, node: Node) -> None:
        ranks = [self.types.rank(name) for name in node.inputs]
        highest = max((r for r in ranks if r is not None), default=None)
        for name, rank in zip(node.inputs, ranks):
            scale = self._constant(name)
            if rank is not None and highest is not None and rank < highest and not node.is_op("Concat"):
                self._broadcast(scale if scale is not None else self.scales.value(name))
