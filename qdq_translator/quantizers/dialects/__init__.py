"""Other quantized forms than ONNX's QuantizeLinear/DequantizeLinear: each is converted into that form before anything else looks
at the network (rule Q13), so that nothing behind this knows them.

A dialect is a function of a module here and a row of `DIALECTS`. `python -m tests.renew` writes the table of docs/dialects.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from qdq_translator.ir.constants import Constants
from qdq_translator.ir.graph import Graph, Node
from qdq_translator.quantizers.dialects import arithmetic, qoperator, vocabularies
from qdq_translator.quantizers.dialects.pairs import Outcome, or_why
from qdq_translator.quantizers.parameters import Rejected


@dataclass(frozen=True)
class Dialect:
    """name: in messages. writers, becomes, exact: columns of the table. operators: without one of these operators the dialect is
    not looked for. converter: graph and its constants -> what converts one node."""

    name: str
    writers: str
    becomes: str
    exact: str
    operators: frozenset[str]
    converter: Callable[[Graph, Constants], Callable[[Node], Outcome]]


DIALECTS = (
    Dialect(
        "AMD quantizers",
        "Quark (`com.amd.quark`), Vitis AI (`com.vai.quantize`)",
        "`Extended`/`VitisQuantizeLinear` and `DequantizeLinear` are ONNX's with the same inputs",
        "int8 yes; int16, bfloat16, BFP and MX are refused",
        vocabularies.AMD_OPERATORS,
        vocabularies.amd,
    ),
    Dialect(
        "QONNX",
        "Brevitas, QKeras converters, FINN",
        "`Quant` of 2 to 8 bits with constant parameters becomes a pair, with a Clip for fewer than 8 bits",
        "yes; other roundings, `BipolarQuant`, `Trunc` and `FloatQuant` are refused",
        vocabularies.QONNX_OPERATORS,
        vocabularies.converter,
    ),
    Dialect(
        "MCT quantizers",
        "Sony Model Compression Toolkit (`mct_quantizers`)",
        "symmetric, power-of-two and uniform quantizers of activations and weights become pairs",
        "yes; look-up table quantizers are refused",
        vocabularies.MCT_OPERATORS,
        vocabularies.converter,
    ),
    Dialect(
        "QOperator",
        "ONNX Runtime `QuantFormat.QOperator`, its optimized models",
        "`QLinearConv`, `QLinearMatMul`, `QLinearAdd`, ...: the float operator between pairs of the same scales and zero points; "
        "`ConvInteger`, `MatMulInteger` with constant scales likewise",
        "yes, up to the rounding of requantization ties; dynamic quantization is refused",
        qoperator.OPERATORS,
        qoperator.converter,
    ),
    Dialect(
        "arithmetic",
        "LSQ, PACT and other trainers in plain operators, decomposed fake quantization of torch",
        "Mul or Div, Round, Clip, Mul by constants (zero points, straight-through estimators, Where as Clip) become a pair",
        "yes; what does not multiply by the inverse, or rounds half up, is refused with its node",
        frozenset(("Round", "Floor")),
        arithmetic.converter,
    ),
)


OPERATORS = frozenset().union(*(row.operators for row in DIALECTS))
"""A model without any of them has no dialect but Q/DQ."""


@dataclass(frozen=True)
class Converted:
    """dialects: name -> how many of its operators were converted. rejected: why others cannot be."""

    dialects: dict[str, int]
    rejected: list[Rejected]


def convert(graph: Graph) -> Converted:
    """Converts every dialect in place. What only fed the old operators is left without readers."""
    present = {node.op_type for node in graph.nodes}
    counts: dict[str, int] = {}
    rejected: list[Rejected] = []
    constants: Optional[Constants] = None
    for row in DIALECTS:
        if present.isdisjoint(row.operators):
            continue
        constants = constants or Constants(graph)
        convert_one = row.converter(graph, constants)
        outcomes = [or_why(node, convert_one) for node in list(graph.nodes) if node.op_type in row.operators]
        rejected += [found for found in outcomes if isinstance(found, Rejected)]
        count = outcomes.count(True)
        if count:
            counts[row.name] = count
            constants = None  # of the graph as it is now
    return Converted(counts, rejected)
