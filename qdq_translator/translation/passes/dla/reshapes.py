"""Rule D6: Flatten, Squeeze and Unsqueeze become Reshape, a Shuffle that the DLA supports; an operator between two
Reshapes of more dimensions works without them.

1. `Flatten`, `Squeeze`, `Unsqueeze` of a float tensor -> `Reshape` to the same sizes; an unchanged first dimension is
   written as 0, so that any batch size still works.

2. `Reshape -> Add, Mul, ... with a constant -> Reshape` of more than four dimensions, if the second one restores the
   shape in front of the first (a mask for windows of attention, Swin) -> the operator on that shape, with the constant
   in it. Axes along which the constant does not vary have size 1.

The Reshape keeps the names of node and tensors; scales pass through it as before (rule S3).

Not: where more than one size behind the first is unknown; case 2 where another layer reads a tensor between, where
sizes are not known or scales of the model's own differ. A Reshape from or to other than four dimensions still does not
run on the DLA (limit H1); rule D5 handles those in front of fully connected layers.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.passes.dla.rewriter import NO_SIZE, Rewriter
from qdq_translator.translation.passes.editor import known, stay_if

RULE = "D6"


def target_sizes(before: Optional[tuple[Dim, ...]], after: Optional[tuple[Dim, ...]]) -> Optional[list[int]]:
    """Target sizes of a Reshape between the shapes: 0 for an equal first dimension, -1 for at most one unknown."""
    if not after or before is None:
        return None
    sizes = [size if isinstance(size, int) else -1 for size in after]
    if before and after[0] is not None and before[0] == after[0]:
        sizes[0] = 0
    return sizes if sizes.count(-1) <= 1 and 0 not in after else None


def apply(rewriter: Rewriter) -> None:
    rewriter.each("Flatten", "Squeeze", "Unsqueeze", rewrite=_rewrite)
    rewriter.each(*operators.ELEMENTWISE, rewrite=_between, cured=("E2",))


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    """Case 1."""
    source, target = node.inputs[0], node.outputs[0]
    sizes = target_sizes(rewriter.types.shape(source), rewriter.types.shape(target))
    sizes = known(sizes, "the sizes of its output are not known")
    rewriter.replace(RULE, node, [rewriter.reshape(source, target, sizes, node.name)])


def _between(rewriter: Rewriter, node: Node) -> None:
    """Case 2."""
    graph, made = rewriter.graph, node.outputs[0]
    inputs = [name for name in node.inputs if not graph.is_constant(name)]
    first, last = graph.producer.get(inputs[0] if len(inputs) == 1 else ""), graph.only_consumer(made)
    if first is None or last is None or not first.is_op(*operators.VIEWS) or not last.is_op(*operators.VIEWS):
        return  # it is not between two Reshapes
    source, wide, target = first.inputs[0], first.outputs[0], last.outputs[0]
    stay_if(not rewriter.is_closed([wide], {id(node)}), "another layer reads the tensor in front of it")
    shape, narrow = (known(rewriter.types.static_shape(name), NO_SIZE) for name in (wide, source))
    if narrow != rewriter.types.static_shape(target) or len(narrow) > 4:
        return  # the second one makes another shape
    scaled = rewriter.scales_differ(source, wide) or rewriter.scales_differ(made, target)
    stay_if(scaled, "the scales in front of one of its Reshapes and behind it differ")
    rewriter.afford(node.name, *shape)
    before = [Node(n.op_type, n.inputs, n.outputs, n.name) for n in (first, node, last)]
    for index, name in enumerate(node.inputs):
        values = graph.array(name)
        if values is not None:
            values = _narrowed(np.broadcast_to(values, shape).reshape(narrow))
            graph.set_input(node, index, rewriter.constant(f"{name}_narrow", values))
    graph.remove(first)
    graph.remove(last)
    rewriter.network.merge_tensor(wide, source)
    graph.rename_output(node, made, target)
    rewriter.network.merge_tensor(made, target)
    rewriter.note(RULE, before, [node], {wide: [source], made: [target]})


def _narrowed(values: np.ndarray) -> np.ndarray:
    """The values with a size of 1 along axes in which they do not differ."""
    for axis in range(values.ndim):
        one = values.take([0], axis)
        values = one if np.all(values == one) else values
    return values
