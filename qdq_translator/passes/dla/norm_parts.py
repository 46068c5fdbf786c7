"""Case 4 of rule D29: a normalization in parts, as exporters write it."""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.rewriter import Rewriter
from qdq_translator.passes.dla.spatial_mean import reduced


class Norm(NamedTuple):
    """axes: of four. last: the node that makes the result; gone: the others, which are removed with it. centred: by the mean. groups: of
    channels, 0 for what the axes say. factors: none, or scale and bias, which broadcast to [N, C, H, W]."""

    source: str
    axes: set[int]
    epsilon: float
    last: Node
    gone: tuple[Node, ...] = ()
    centred: bool = True
    groups: int = 0
    factors: tuple[np.ndarray, ...] = ()


def found_at(rewriter: Rewriter, root: Node) -> Optional[Norm]:
    """The normalization of which the node is the root, Sqrt or Pow, if no other layer reads its parts."""
    graph, gone = rewriter.graph, [root]
    power = graph.scalar(root.input(1)) if root.is_op("Pow") else 0.5
    last = graph.only_consumer(root.outputs[0])
    inverse = last is not None and last.is_op("Div") and graph.scalar(last.inputs[0]) == 1
    if power == 0.5 and last is not None and (inverse or last.is_op("Reciprocal")):
        gone, power, last = [root, last], -0.5, graph.only_consumer(last.outputs[0])
    made = gone[-1].outputs[0]
    if last is None or (power, last.op_type) not in ((0.5, "Div"), (-0.5, "Mul")) or last.inputs[:1] == last.inputs[1:]:
        return None
    source = last.inputs[int(last.inputs[0] == made)]
    squares = _squares(rewriter, root.inputs[0], source) if last.is_op("Mul") or last.inputs[1] == made else None
    if squares is None:
        return None
    axes, epsilon, inner = squares
    centre = graph.producer.get(source)
    mean = graph.producer.get(centre.inputs[1]) if centre is not None and centre.is_op("Sub") else None
    centred = mean is not None and mean.is_op("ReduceMean") and reduced(rewriter, mean) == axes
    centred = centred and mean is not None and operators.keeps_dimensions(mean)
    gone += inner
    if centre is not None and mean is not None and centred and mean.inputs[0] == centre.inputs[0]:
        gone, source = [*gone, centre, mean], centre.inputs[0]
    inside = {id(node) for node in (*gone, last)}
    for name in (name for node in gone for name in node.outputs):
        if name in graph.outputs or any(id(reader) not in inside for reader in graph.consumers(name)):
            return None
    return Norm(source, axes, epsilon, last, tuple(gone), mean in gone)


def _squares(rewriter: Rewriter, name: str, d: str) -> Optional[tuple[set[int], float, list[Node]]]:
    """Axes, epsilon and nodes, if the tensor is the mean of the squares of d, plus epsilon."""
    graph, made, epsilon = rewriter.graph, [], 0.0  # type: ignore[var-annotated]
    mean = graph.producer.get(name)
    if mean is not None and mean.is_op("Add"):
        numbers = [graph.scalar(given) for given in mean.inputs]
        made, epsilon = [mean], next((number for number in numbers if number is not None), -1.0)
        mean = graph.producer.get(mean.inputs[int(numbers[0] is not None)])
    square = graph.producer.get(mean.inputs[0]) if mean is not None and mean.is_op("ReduceMean") else None
    if mean is None or square is None or epsilon < 0 or rewriter.rank(d) != 4 or not operators.keeps_dimensions(mean):
        return None
    power = square.is_op("Pow") and square.inputs[0] == d and graph.scalar(square.inputs[1]) == 2
    if not power and not (square.is_op("Mul") and square.inputs == [d, d]):
        return None
    return reduced(rewriter, mean), epsilon, [*made, mean, square]
