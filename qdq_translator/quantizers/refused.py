"""Quantizers that nobody can use: operators of their own, and those inside the bodies of control flow."""

from __future__ import annotations

from typing import Optional

from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.words import counted
from qdq_translator.ir import operators
from qdq_translator.ir.constants import QUANTIZER_DOMAINS
from qdq_translator.ir.graph import Graph
from qdq_translator.quantizers.parameters import Rejected

_OTHER_QUANTIZED_OPS = {
    "QLinearConv",
    "QLinearMatMul",
    "QLinearAdd",
    "QLinearMul",
    "QLinearConcat",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearSoftmax",
    "QGemm",
    "QAttention",
    "ConvInteger",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLinear",
    "TRT_FP8QuantizeLinear",
    "TRT_FP8DequantizeLinear",
    "TRT_INT4QuantizeLinear",
    "TRT_INT4DequantizeLinear",
    "TRT_FP4DynamicQuantize",
    "TRT_FP4QDQ",
    "ExtendedQuantizeLinear",
    "ExtendedDequantizeLinear",
    "VitisQuantizeLinear",
    "VitisDequantizeLinear",
    "FixNeuron",
    "MatMulNBits",
}
"""Quantized operators that are no Q/DQ of ONNX: refused (fact 8, 8.3)."""


def refusal(rejected: list[Rejected]) -> UnsupportedQuantizer:
    first = rejected[0]
    more = "" if len(rejected) == 1 else f" ({counted(len(rejected) - 1, 'more quantizer')} cannot be used either)"
    return UnsupportedQuantizer(f"{first.what}{more}", first.hint)


def other_quantized_operators(graph: Graph) -> list[Rejected]:
    return [
        Rejected(
            f"{node.op_type} {node.label}"
            + (f" of domain '{node.domain}'" if node.op_type in operators.QUANTIZERS else "")
            + " is a quantized operator that is not part of ONNX's QuantizeLinear/DequantizeLinear.",
            "Export in QDQ format (int8).",
        )
        for node in graph.nodes
        if node.op_type in _OTHER_QUANTIZED_OPS
        or (node.op_type in operators.QUANTIZERS and node.domain not in QUANTIZER_DOMAINS)
    ]


def quantizers_in_bodies(graph: Graph) -> list[Rejected]:
    def inside(body: object) -> Optional[str]:
        for node in body.node:  # type: ignore[attr-defined]
            if node.op_type in operators.QUANTIZERS:
                return str(node.name or node.output[0])
            for attribute in node.attribute:
                for inner in [attribute.g, *attribute.graphs]:
                    deeper = inside(inner)
                    if deeper is not None:
                        return deeper
        return None

    rejected = []
    for node in graph.with_bodies():
        for body in node.subgraphs():
            name = inside(body)
            if name is not None:
                rejected.append(
                    Rejected(
                        f"Quantizer '{name}' stands inside the body of {node.op_type} {node.label}.",
                        "Implicit INT8 cannot reach into control flow; export without If/Loop/Scan around quantized layers.",
                    )
                )
                break
    return rejected
