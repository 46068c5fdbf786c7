"""What rule D29 finds: normalizations as operators (cases 1 to 3), and in parts, as exporters write them (case 4)."""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla import lifting
from qdq_translator.passes.dla.rewriter import Rewriter, Stays
from qdq_translator.passes.dla.spatial_mean import reduced

OTHER_AXES = "it does not work over channels, over H and W or over groups of channels, of four known dimensions"


class Norm(NamedTuple):
    """axes: of four. last: the node that makes the result; gone: the others, which are removed with it. centred: by the
    mean. groups: of channels, 0 for what the axes say. factors: none, or scale and bias, which broadcast to [N, C, H,
    W]."""

    source: str
    axes: set[int]
    epsilon: float
    last: Node
    gone: tuple[Node, ...] = ()
    centred: bool = True
    groups: int = 0
    factors: tuple[np.ndarray, ...] = ()


def of_operator(rewriter: Rewriter, node: Node) -> Norm:
    """Cases 1 to 3. Raises Stays."""
    graph, groups = rewriter.graph, operators.groups_of_channels(node)
    grouped = rewriter.rank(node.inputs[0]) == 3 and node.is_op("InstanceNormalization")
    between = _with_views(rewriter, node) if grouped else [node]
    source, last = between[0].inputs[0], between[-1]
    image, shape = rewriter.sized(source, OTHER_AXES), rewriter.types.shape(source)
    over_last = node.is_op(*operators.LAYER_NORMS)
    first = operators.from_front(operators.axis(node, graph.opset()), 4) if over_last else 2
    if shape != rewriter.types.shape(last.outputs[0]) or first < 1 or not lifting.one_output(rewriter, node):
        raise Stays(OTHER_AXES)
    if grouped:
        batch, parts, _ = rewriter.types.shape(node.inputs[0]) or (None, 0, None)
        groups = parts if isinstance(parts, int) and batch == image[0] else 0
        if not groups:
            raise Stays(OTHER_AXES)
    given = [graph.array(name) for name in node.inputs[1:] if name]
    factors = [values for values in given if values is not None]
    if len(factors) < len(given):
        raise Stays("its scale or bias is computed")
    channels, whole = image[3] if first == 3 else image[1], over_last and first < 3
    sizes = (1, *image[1:]) if whole else (1, channels, 1, 1)
    full = [v if whole else np.repeat(v, channels // max(1, v.size)).reshape(1, -1, 1, 1) for v in factors]
    if any(v.ndim > 4 or any(a not in (1, b) for a, b in zip(v.shape[::-1], sizes[::-1])) for v in full):
        raise Stays("its scale or bias does not fit its input")
    full, axes = [np.broadcast_to(v, sizes) for v in full], set(range(first, 4))
    centred = not node.is_op("RMSNormalization")
    return Norm(source, axes, operators.epsilon(node), last, tuple(between[:-1]), centred, groups, tuple(full))


def _with_views(rewriter: Rewriter, node: Node) -> list[Node]:
    """The node, and the Reshapes in front of it and behind it up to four dimensions, in order."""
    graph, found = rewriter.graph, [node]
    while rewriter.rank(found[0].inputs[0]) != 4:
        maker = graph.producer.get(found[0].inputs[0])
        if maker is None or not maker.is_op(*operators.VIEWS) or graph.only_consumer(maker.outputs[0]) is not found[0]:
            return [node]
        found.insert(0, maker)
    while rewriter.rank(found[-1].outputs[0]) != 4:
        reader = graph.only_consumer(found[-1].outputs[0])
        if reader is None or not reader.is_op(*operators.VIEWS):
            return [node]
        found.append(reader)
    return found


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
    return _with_factors(rewriter, Norm(source, axes, epsilon, last, tuple(gone), mean in gone))


def _with_factors(rewriter: Rewriter, norm: Norm) -> Norm:
    """And the Mul and Add of a constant for each channel behind it."""
    graph, shape = rewriter.graph, rewriter.types.shape(norm.source) or ()
    wanted = [shape[axis] if axis == (3 if norm.axes == {3} else 1) else 1 for axis in range(4)]
    for index, op in enumerate(("Mul", "Add")):
        reader = graph.only_consumer(norm.last.outputs[0])
        given = map(graph.array, reader.inputs if reader is not None and reader.is_op(op) else ())
        values = next((v for v in given if v is not None and [1] * (4 - v.ndim) + list(v.shape) == wanted), None)
        if reader is not None and values is not None:
            known = (*norm.factors, np.ones_like(values))[:index]
            norm = norm._replace(last=reader, gone=(*norm.gone, norm.last), factors=(*known, values))
    return norm._replace(factors=tuple(values.reshape(1, -1, 1, 1) for values in norm.factors))


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
