"""Rule D6: Flatten, Squeeze and Unsqueeze become Reshape, which is a Shuffle that the DLA has.

1. `Flatten`, `Squeeze`, `Unsqueeze` of a float tensor -> `Reshape` to the same sizes; an unchanged first dimension is
   written as 0, so that any batch size still works.

The Reshape keeps the names of node and tensors; scales pass through it as before (rule S3).

Not: where more than one size behind the first is unknown. A Reshape from or to other than four dimensions still does not
run on the DLA (limit H1); rule D5 takes care of those in front of fully connected layers.
"""

from __future__ import annotations

from typing import Optional

from qdq_translator.passes.dla.rewriter import Rewriter
from qdq_translator.types import Dim

RULE = "D6"


def target_sizes(before: Optional[tuple[Dim, ...]], after: Optional[tuple[Dim, ...]]) -> Optional[list[int]]:
    """What a Reshape between the two shapes says: 0 for an equal first dimension, -1 for at most one unknown size."""
    if not after or before is None:
        return None
    sizes: list[int] = []
    for index, size in enumerate(after):
        if index == 0 and before and size is not None and before[0] == size:
            sizes.append(0)
        else:
            sizes.append(size if isinstance(size, int) else -1)
    return sizes if sizes.count(-1) <= 1 and 0 not in after else None


def apply(rewriter: Rewriter) -> None:
    for node in rewriter.nodes("Flatten", "Squeeze", "Unsqueeze"):
        source, target = node.inputs[0], node.outputs[0]
        if rewriter.dtype(source) is None or not rewriter.rejected(node) or rewriter.graph.is_constant(source):
            continue
        sizes = target_sizes(rewriter.types.shape(source), rewriter.types.shape(target))
        if sizes is None:
            rewriter.leave(node, "the sizes of its output are not known")
            continue
        rewriter.replace(RULE, node, [rewriter.reshape(source, target, sizes, node.name)])
