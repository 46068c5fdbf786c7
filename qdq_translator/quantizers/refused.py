"""Quantizers that cannot be used: custom operators, and those inside the bodies of control flow."""

from __future__ import annotations

import math
from statistics import median
from typing import Sequence

from qdq_translator.core.errors import UnsupportedQuantizer
from qdq_translator.core.words import counted
from qdq_translator.ir import operators
from qdq_translator.ir.constants import QUANTIZER_DOMAINS
from qdq_translator.ir.graph import Graph, Node, every_node
from qdq_translator.quantizers.activations import Approximated
from qdq_translator.quantizers.parameters import Rejected

_OTHER_QUANTIZED_OPS = frozenset(
    (
        *("QAttention", "DynamicQuantizeMatMul", "DynamicQuantizeLinear", "DynamicQuantizeLSTM"),
        *("QEmbedLayerNormalization", "TRT_FP4DynamicQuantize", "TRT_FP4QDQ", "FixNeuron", "BFPFixNeuron"),
        *("MXFixNeuron", "MatMulNBits", "QMoE", "BipolarQuant", "Trunc", "FloatQuant"),
    )
)
"""Quantized operators that no dialect converts: refused (fact 8, 8.3)."""
_QUANTIZED = ("quant", "qlinear", "qordered")
"""In the names of operators of other domains, which are refused rather than taken for layers that nothing is known of."""


def refusal(rejected: list[Rejected], approximated: Sequence[Approximated] = ()) -> UnsupportedQuantizer:
    """approximated: translatable by an option, at a cost."""
    first = rejected[0]
    cost = cost_of(approximated) if "--asymmetric" in first.hint else ""
    more = "" if len(rejected) == 1 else f" ({counted(len(rejected) - 1, 'more quantizer')} cannot be used either)"
    return UnsupportedQuantizer(f"{first.what}{more}", f"{first.hint} For all of them: {cost}." if cost else first.hint)


def cost_of(approximated: Sequence[Approximated]) -> str:
    """Cost of widening asymmetric ranges to symmetric scales, in bits of resolution; '' for none."""
    bits = {note.tensor: math.log2(note.coarser) for note in approximated if note.asymmetric}
    if not bits:
        return ""
    worst = max(bits, key=lambda tensor: bits[tensor])
    return (
        f"the smallest symmetric scales of {counted(len(bits), 'asymmetric activation')} cost {median(bits.values()):.2f} bits "
        f"of resolution (median), {bits[worst]:.2f} at most ('{worst}')"
    )


def other_quantized_operators(graph: Graph) -> list[Rejected]:
    return [
        Rejected(
            f"{node.op_type} {node.label}"
            + (f" of domain '{node.domain}'" if node.domain else "")
            + " is a quantized operator that has no int8 QuantizeLinear/DequantizeLinear form.",
            "Export in QDQ format (int8); docs/dialects.md lists the forms that are converted.",
        )
        for node in graph.nodes
        if _is_refused(node)
    ]


def _is_refused(node: Node) -> bool:
    if node.op_type in operators.QUANTIZERS and node.domain in QUANTIZER_DOMAINS:
        return False
    name = node.op_type.lower()
    return node.op_type in _OTHER_QUANTIZED_OPS or (bool(node.domain) and any(part in name for part in _QUANTIZED))


def quantizers_in_bodies(graph: Graph) -> list[Rejected]:
    rejected = []
    for node in graph.with_bodies():
        for body in node.subgraphs():
            found = next((inner for inner in every_node(body.node) if inner.op_type in operators.QUANTIZERS), None)
            if found is not None:
                name = found.name or found.output[0]
                rejected.append(
                    Rejected(
                        f"Quantizer '{name}' is inside the body of {node.op_type} {node.label}.",
                        "Implicit INT8 does not support control flow; export without If/Loop/Scan around quantized layers.",
                    )
                )
                break
    return rejected
