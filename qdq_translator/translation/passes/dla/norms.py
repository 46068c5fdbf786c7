"""Rule D29: with `--assume pow`, normalizations become means, products and a power of -0.5 (limit O3).

1. `InstanceNormalization`, and `LayerNormalization` over H and W -> d = x - mean (rule D4), times the power of the mean
   of d * d plus epsilon; a Scale
2. `GroupNormalization`, and as PyTorch exports it (`Reshape`, `InstanceNormalization` of three dimensions, `Reshape`)
   -> the same, with a 1x1 Conv behind each mean that averages over the channels of a group; `LayerNormalization` over
   C, H and W has one group
3. `LayerNormalization` over channels, also as the last axis -> the same with a 1x1 Conv to one channel for each mean,
   and another that copies the result to all channels, with the scale as its weights: the DLA broadcasts no tensor along
   channels
4. `ReduceMean`, `Sub`, `Pow` or `Mul`, `ReduceMean`, `Add`, `Sqrt` (or the power) and `Div` (or `Mul` with the
   reciprocal) over these axes, and `Mul` and `Add` of a constant for each channel behind them -> the same; without Sub
   (RMSNorm), or as `RMSNormalization`, d = x
5. `ReduceL2` over H and W (GRN) or over channels -> the root of the mean of squares (rule D4), times the root of their
   number

New tensors get no scale. A square above 65504 overflows in FP16: if x can be that large, it is multiplied by a power of
two, and epsilon by its square. If the range is not known, the factor is the least one from 1/16 to 1 that keeps epsilon
above 0 in FP16.
Not: without that word, or below TensorRT 10.3; other axes; sizes that are not known; a scale or bias that is computed;
an epsilon that would be 0 in FP16 where no square overflows; case 5 of values above 4080, whose squares overflow after
a division by 16; more than 8192 channels; parts that other layers read; `LpNormalization`, which has no epsilon.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional, Sequence

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.passes.dla import lifting
from qdq_translator.translation.passes.dla.rewriter import MOST_CHANNELS, NO_ROOT, NO_SQUARES, Rewriter, Row
from qdq_translator.translation.passes.dla.spatial_mean import reduced
from qdq_translator.translation.passes.editor import Image, Stays, known, stay_if
from qdq_translator.translation.passes.pattern import Match, Pattern

RULE = "D29"
NO_EPSILON = "it has no epsilon, and the power of 0 is infinite; write it as ReduceL2, Max and Div"
_OTHER_AXES = "it does not work over channels, over H and W or over groups of channels, of four known dimensions"
_OTHER_ROOT = "it is not the root in a normalization"
_LARGEST, _TINIEST = 255.0, 2.0**-24
"""A number whose square is below the largest one of FP16, and the smallest one of FP16."""


class Norm(NamedTuple):
    """A normalization that was recognized. axes: of [N, C, H, W]. last: the node that makes the result; gone: the
    others, which are removed with it. centred: whether the mean is subtracted. groups: of channels, 0 if the axes
    decide. factors: (), or scale and bias, which broadcast to [N, C, H, W]."""

    source: str
    axes: set[int]
    epsilon: float
    last: Node
    gone: tuple[Node, ...] = ()
    centred: bool = True
    groups: int = 0
    factors: tuple[np.ndarray, ...] = ()

    @property
    def scale(self) -> np.ndarray:
        return self.factors[0] if self.factors else np.ones(1)


def apply(rewriter: Rewriter) -> None:
    rewriter.each("InstanceNormalization", "GroupNormalization", *operators.LAYER_NORMS, "ReduceL2", rewrite=_rewrite)
    for node in rewriter.nodes("Sqrt", "Pow") if rewriter.has_power() else ():
        try:
            norm = _found_at(rewriter, node)
        except Stays:
            continue  # rule D19 reports the reason
        rewriter.attempt(_build, node, norm)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    stay_if(not rewriter.has_power(), NO_ROOT)
    if node.is_op("ReduceL2"):
        _root_of_squares(rewriter, node)
    else:
        _build(rewriter, node, _of_operator(rewriter, node))


# ---------------- cases 1 to 3: operators


def _of_operator(rewriter: Rewriter, node: Node) -> Norm:
    """Raises Stays."""
    shape_of, groups = rewriter.types.shape, operators.groups_of_channels(node)
    in_groups = rewriter.rank(node.inputs[0]) == 3 and node.is_op("InstanceNormalization")
    between = _with_views(rewriter, node) if in_groups else [node]
    source, last = between[0].inputs[0], between[-1]
    image, over_last = rewriter.sized(source, _OTHER_AXES), node.is_op(*operators.LAYER_NORMS)
    first = operators.from_front(operators.axis(node, rewriter.graph.opset()), 4) if over_last else 2
    one_shape = shape_of(source) == shape_of(last.outputs[0])
    stay_if(not one_shape or first < 1 or not lifting.one_output(rewriter, node), _OTHER_AXES)
    if in_groups:
        batch, parts, _ = known(shape_of(node.inputs[0]), _OTHER_AXES)
        groups = parts if isinstance(parts, int) and batch == image[0] else 0
        stay_if(not groups, _OTHER_AXES)
    channels = image[3] if first == 3 else image[1]
    factors = _factors(rewriter, node, (1, channels, 1, 1) if first == 3 or not over_last else (1, *image[1:]))
    axes, centred = set(range(first, 4)), not node.is_op("RMSNormalization")
    return Norm(source, axes, operators.epsilon(node), last, tuple(between[:-1]), centred, groups, factors)


def _factors(rewriter: Rewriter, node: Node, sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Scale and bias in these sizes, one value per channel if H and W are 1. Raises Stays."""
    given = [known(rewriter.graph.array(name), "its scale or bias is computed") for name in node.inputs[1:] if name]
    if math.prod(sizes) == sizes[1]:  # a GroupNormalization may have one per group
        given = [np.repeat(v, sizes[1] // max(1, v.size)).reshape(1, -1, 1, 1) for v in given]
    try:
        return tuple(np.broadcast_to(values, sizes) for values in given)
    except ValueError:
        raise Stays("its scale or bias does not fit its input") from None


def _with_views(rewriter: Rewriter, node: Node) -> list[Node]:
    """The node, and the Reshapes around it up to four dimensions, in order."""
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


# ---------------- case 4: parts, as exporters write them

_WRITTEN = Pattern(
    "d / Sqrt(v) | d * Reciprocal(Sqrt(v)) | d * (1 / Sqrt(v)) | d / Pow(v, 0.5) | d * Pow(v, -0.5)"
    " | d * Reciprocal(Pow(v, 0.5)) | d * (1 / Pow(v, 0.5))",
    v="mean + eps | mean",
    mean="average == ReduceMean(d * d | Pow(d, 2), ...)",
    numbers="eps",
)
_CENTRED = Pattern("x - (average == ReduceMean(x, ...))")


def _found_at(rewriter: Rewriter, root: Node) -> Norm:
    """The normalization whose root (Sqrt or Pow) is the node. Raises Stays if there is none or its parts are read."""
    graph, last = rewriter.graph, known(rewriter.graph.only_consumer(root.outputs[0]), _OTHER_ROOT)
    if last.is_op("Reciprocal") or (last.is_op("Div") and graph.scalar(last.inputs[0]) == 1):
        last = known(graph.only_consumer(last.outputs[0]), _OTHER_ROOT)
    found = known(_WRITTEN.match(graph, last.outputs[0]), _OTHER_ROOT)
    source, epsilon, nodes = found.tensors["d"], found.tensors.get("eps", 0.0), found.nodes[1:]
    axes = _averaged(rewriter, found)
    stay_if(axes is None or epsilon < 0 or rewriter.rank(source) != 4, _OTHER_ROOT)
    centre = _CENTRED.match(graph, source)
    if centre is not None and _averaged(rewriter, centre) == axes:
        source, nodes = centre.tensors["x"], (*nodes, *centre.nodes)
    else:
        centre = None
    between = [name for node in nodes for name in node.outputs]
    stay_if(not rewriter.is_closed(between, {id(node) for node in (*nodes, last)}), _OTHER_ROOT)
    return _with_factors(rewriter, Norm(source, axes or set(), epsilon, last, nodes, centre is not None))


def _averaged(rewriter: Rewriter, found: Match) -> Optional[set[int]]:
    """Axes of its mean, if that keeps them."""
    mean = rewriter.graph.producer[found.tensors["average"]]
    return reduced(rewriter, mean) if operators.keeps_dimensions(mean) else None


def _with_factors(rewriter: Rewriter, norm: Norm) -> Norm:
    """Include the Mul and Add of a constant for each channel behind it."""
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


# ---------------- layers


def _build(rewriter: Rewriter, _: Node, norm: Norm) -> None:
    image, turned = rewriter.sized(norm.source, _OTHER_AXES), norm.axes == {3}
    channels = image[3] if turned else image[1]
    each = turned or _over_channels(norm.axes, image)
    groups = norm.groups or (1 if 1 in norm.axes else channels)
    stay_if(channels % groups, _OTHER_AXES)
    stay_if(channels > MOST_CHANNELS, f"it has more than {MOST_CHANNELS} channels")
    factor = known(_factor(rewriter, norm), "its epsilon would be 0 in FP16 where no square overflows")
    row = Row(rewriter, norm.last).at(norm.source)
    if turned:
        row.add("Transpose", "nchw", perm=[0, 3, 1, 2])
    layers = len(row.nodes)
    _normal(row, norm, groups, factor, channels, each)
    _scale(row, norm, channels, each)
    rewriter.network.withhold(*(layer.outputs[0] for layer in row.nodes[layers:-1]), why=NO_SQUARES)
    if turned:
        row.add("Transpose", "nhwc", perm=[0, 2, 3, 1])
    row.put(RULE, *norm.gone)
    for node in norm.gone:
        rewriter.graph.remove(node)


def _factor(rewriter: Rewriter, norm: Norm) -> Optional[float]:
    """Power of two for x; None if none fits."""
    if not 0 <= norm.epsilon < math.inf:
        return None
    scale, maker = rewriter.scales.value(norm.source), rewriter.graph.producer.get(norm.source)
    while scale is None and maker is not None and maker.is_op("Transpose", *operators.VIEWS):
        scale, maker = rewriter.scales.value(maker.inputs[0]), rewriter.graph.producer.get(maker.inputs[0])
    least = max(-4, math.ceil(math.log2(_TINIEST / norm.epsilon) / 2)) if norm.epsilon else -4
    # if the range is not known, the least factor, which must not make x larger
    most = 0 if scale is None else math.floor(math.log2(_LARGEST / (254 if norm.centred else 127) / scale))
    if least > most:
        return None
    if scale is None:
        return 2.0**least
    # 1 if it fits and no square underflows; else as large as the squares allow, up to 2 ** 7
    return 2.0 ** (0 if least <= 0 <= most <= 11 else min(most, max(least, 7)))


def _over_channels(axes: set[int], image: Image) -> bool:
    """True over channels at each position, False over all positions. Raises Stays for other axes."""
    spatial = {axis for axis in (2, 3) if image[axis] != 1}
    each = 1 in axes and not axes & spatial
    stay_if(min(axes, default=0) < 1 or not (each or spatial <= axes), _OTHER_AXES)
    return each


def _scale(row: Row, norm: Norm, channels: int, each: bool) -> None:
    """Scale and bias of the normalization; in `_normal` the Conv that copies has applied the scale."""
    factors = (np.ones(1) if each else norm.scale, *norm.factors[1:], np.zeros(1))[:2]
    if norm.scale.shape[2:] not in ((), (1, 1)):
        for op, what, values in zip(("Mul", "Add"), ("scaled", "moved"), norm.factors):
            row.add(op, what, row.rewriter.constant(f"{norm.last.name}.{what}", values))
    elif np.any(factors[1]) or np.any(factors[0] != 1):
        row.scale("scaled", channels, *(values.reshape(-1) for values in factors))


def _normal(row: Row, norm: Norm, groups: int, factor: float, channels: int, each: bool) -> None:
    """each: over channels at each position, by Convs to one channel and from it to all; else by means over H and W."""
    share = channels // groups

    def conv(what: str, weight: np.ndarray) -> str:
        matrix = row.rewriter.matrix(f"{norm.last.name}.{what}", weight, norm.last)
        return row.add("Conv", what, matrix, kernel_shape=[1, 1])

    def mean(what: str) -> str:
        if each:
            return conv(what, np.full((1, channels), 1 / channels))
        row.add("GlobalAveragePool", what)
        if share > 1:
            conv(f"{what}_of_group", np.kron(np.eye(groups), np.full((share, share), 1 / share)))
        return row.current

    d = row.scale("small", channels, factor) if factor != 1 else row.current
    if norm.centred:
        average = mean("mean")
        average = conv("mean_of_all", np.ones((channels, 1))) if each else average
        d = row.at(d).add("Sub", "centred", average)
    row.add("Mul", "square", d)
    mean("variance")
    row.scale("shifted", 1 if each else channels, 1.0, norm.epsilon * factor**2)
    row.power(-0.5)
    if each:
        conv("power_of_all", np.broadcast_to(norm.scale.reshape(-1), channels)[:, np.newaxis])
    row.add("Mul", "normal", d)


def _root_of_squares(rewriter: Rewriter, node: Node) -> None:
    """Case 5."""
    image, axes = rewriter.sized(node.inputs[0], _OTHER_AXES), reduced(rewriter, node)
    stay_if(not operators.keeps_dimensions(node) or axes not in ({1}, {2}, {3}, {2, 3}), _OTHER_AXES)
    factor = _factor(rewriter, Norm(node.inputs[0], axes, 1.0, node, centred=False))
    factor, row = known(factor, "its squares would overflow in FP16"), Row(rewriter, node)
    if factor != 1:
        row.scale("small", image[1], factor)
    row.add("Mul", "square", row.current)
    row.add("ReduceMean", "mean", *node.inputs[1:])
    row.nodes[-1].attributes = dict(node.attributes)
    row.power(0.5)
    count = math.prod(int(image[axis] or 1) for axis in axes)
    row.scale("root", 1 if axes == {1} else image[1], math.sqrt(count) / factor)
    rewriter.network.withhold(*(layer.outputs[0] for layer in row.nodes[:-1]), why=NO_SQUARES)
    row.put(RULE)
