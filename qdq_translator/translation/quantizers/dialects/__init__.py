"""Conversion of other quantized forms into ONNX's QuantizeLinear/DequantizeLinear, before all other passes (rule Q13).

A dialect is a function of a module here and a row of `DIALECTS` and of the table in docs/dialects.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, NamedTuple, Optional

from qdq_translator.translation.ir.constants import Constants
from qdq_translator.translation.ir.graph import Graph, Node
from qdq_translator.translation.quantizers.dialects import arithmetic, qoperator, vocabularies
from qdq_translator.translation.quantizers.parameters import Rejected


class Dialect(NamedTuple):
    """A way of writing quantizers. name: in messages, and of its row in docs/dialects.md. operators: without one of
    these operators the dialect is not looked for. converter: graph and its constants -> function that converts one
    node; it returns whether the node is one of the dialect, or raises Rejected."""

    name: str
    operators: frozenset[str]
    converter: Callable[[Graph, Constants], Callable[[Node], bool]]


DIALECTS = (
    Dialect("AMD quantizers", vocabularies.AMD_OPERATORS, lambda *of: partial(vocabularies.amd, *of)),
    Dialect("QONNX", vocabularies.QONNX_OPERATORS, lambda *of: partial(vocabularies.convert, *of)),
    Dialect("MCT quantizers", vocabularies.MCT_OPERATORS, lambda *of: partial(vocabularies.convert, *of)),
    Dialect("QOperator", qoperator.OPERATORS, lambda *of: qoperator.Converter(*of).convert),
    Dialect("stored weights", frozenset(("Mul",)), lambda *of: partial(arithmetic.stored_weight, *of)),
    Dialect("arithmetic", frozenset(("Round", "Floor")), lambda *of: partial(arithmetic.convert, *of)),
)
OPERATORS = frozenset().union(*(row.operators for row in DIALECTS)) - {"Mul"}
"""A model without any of these operators has only Q/DQ. Stored weights are plain arithmetic, which needs no conversion
to be run."""


@dataclass(frozen=True)
class Converted:
    """What was converted. dialects: name -> how many of its operators were converted. rejected: why others cannot
    be."""

    dialects: dict[str, int]
    rejected: list[Rejected]


def convert(graph: Graph) -> Converted:
    """Convert every dialect in place. Nodes that only fed the old operators keep no readers."""
    present = {node.op_type for node in graph.nodes}
    counts: dict[str, int] = {}
    rejected: list[Rejected] = []
    constants: Optional[Constants] = None
    for row in DIALECTS:
        if present.isdisjoint(row.operators):
            continue
        constants = constants or Constants(graph)
        convert_one, count = row.converter(graph, constants), 0
        for node in [node for node in graph.nodes if node.op_type in row.operators]:
            try:
                count += convert_one(node)
            except Rejected as why:
                rejected.append(why)
            except (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
                # NumPy raises various errors for parameters that do not fit together
                text = str(error).splitlines()[0]
                what = f"{node.op_type} {node.label} has parameters that do not fit together ({text})."
                rejected.append(Rejected(what, "Export the model again."))
        if count:
            counts[row.name] = count
            constants = None  # to be read from the changed graph
    return Converted(counts, rejected)
