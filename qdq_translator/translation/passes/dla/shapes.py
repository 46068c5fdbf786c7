"""Rule D1: shape arithmetic becomes constants, which a standalone DLA build requires.

1. Integers and booleans that follow from known shapes (`Shape -> Gather -> Add -> Div -> ...`) become initializers,
   even if only the sizes that matter are known and the batch size is not.
2. Nodes behind them whose inputs are now all constant become initializers too (e.g. sizes computed in float), as by
   rule F3 on every target.

Not: results that are graph outputs; random numbers; control flow; results that depend on unknown sizes (`--shapes`
gives them); operators outside ONNX.
"""

from __future__ import annotations

from qdq_translator.translation.passes.cleanup import fold_constants, fold_integers
from qdq_translator.translation.passes.dla.rewriter import Rewriter

RULE = "D1"


def apply(rewriter: Rewriter) -> None:
    """Repeat until nothing changes: sizes computed in float make others known (paddings of a TensorFlow network)."""
    while _fold(rewriter):
        rewriter.network.changed()


def _fold(rewriter: Rewriter) -> bool:
    """Whether further sizes may be known now."""
    folded = fold_integers(rewriter.graph, rewriter.types)
    behind = fold_constants(rewriter.graph, rewriter.trained)
    for node in [*folded, *behind]:
        # results that only other shape arithmetic read are removed with the unused initializers
        rewriter.note(RULE, [node], [], {})
    return bool(behind)
