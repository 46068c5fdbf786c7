"""Rule D29: with `--assume pow`, normalizations become means, products and a power of -0.5, which limit O3 is about.

1. `InstanceNormalization`, and `LayerNormalization` over H and W -> d = x - mean (rule D4), times the power of the mean
   of d * d plus epsilon; a Scale
2. `GroupNormalization`, and as PyTorch exports it (`Reshape`, `InstanceNormalization` of three dimensions, `Reshape`)
   -> the same, with a 1x1 Conv behind each mean that averages over the channels of a group; `LayerNormalization` over
   C, H and W has one group
3. `LayerNormalization` over channels, also as the last axis -> the same with a 1x1 Conv to one channel for each mean,
   and another that copies what comes of it to all channels, with the scale as its weights: the DLA broadcasts no tensor
   along channels
4. `ReduceMean`, `Sub`, `Pow` or `Mul`, `ReduceMean`, `Add`, `Sqrt` (or the power) and `Div` (or `Mul` with the
   reciprocal) over these axes, and `Mul` and `Add` of a constant for each channel behind them -> the same; without Sub
   (RMSNorm), or as `RMSNormalization`, d = x
5. `ReduceL2` over H and W (GRN) or over channels -> the root of the mean of squares (rule D4), times the root of their
   number

New tensors get no scale. A square above 65504 overflows in FP16: where x can be that large, it is multiplied by a power
of two, and epsilon by its square. If the range is not known, it is the least one from 1/16 to 1 that keeps epsilon
above 0 in FP16.
Not: without that word, or below TensorRT 10.3; other axes; sizes that are not known; a scale or bias that is computed;
an epsilon that would be 0 in FP16 where no square overflows; more than 8192 channels; parts that other layers read;
`LpNormalization`, which has no epsilon.
"""

from __future__ import annotations

import math

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.passes.dla.norm_parts import OTHER_AXES, Norm, found_at, of_operator
from qdq_translator.passes.dla.rewriter import MOST_CHANNELS, NO_ROOT, NO_SQUARES, Rewriter, Row, Stays
from qdq_translator.passes.dla.spatial_mean import reduced

RULE = "D29"
NO_EPSILON = "it has no epsilon, and the power of 0 is infinite; write it as ReduceL2, Max and Div"
_LARGEST, _TINIEST = 255.0, 2.0**-24
"""A number whose square FP16 holds, and its smallest one."""


def apply(rewriter: Rewriter) -> None:
    rewriter.each("InstanceNormalization", "GroupNormalization", *operators.LAYER_NORMS, "ReduceL2", rewrite=_rewrite)
    for node in rewriter.nodes("Sqrt", "Pow") if rewriter.has_power() else ():
        norm = found_at(rewriter, node)
        if norm is not None:
            rewriter.attempt(_build, node, norm)


def _rewrite(rewriter: Rewriter, node: Node) -> None:
    if not rewriter.has_power():
        raise Stays(NO_ROOT)
    if node.is_op("ReduceL2"):
        _root_of_squares(rewriter, node)
    else:
        _build(rewriter, node, of_operator(rewriter, node))


def _build(rewriter: Rewriter, _: Node, norm: Norm) -> None:
    image, turned, axes, name = rewriter.image(norm.source), norm.axes == {3}, norm.axes, norm.last.name
    spatial = set() if image is None else {axis for axis in (2, 3) if image[1:][axis - 1] > 1}
    each = turned or (1 in axes and not axes & spatial)
    if image is None or not axes or 0 in axes or not (each or spatial <= axes):
        raise Stays(OTHER_AXES)
    channels = image[3] if turned else image[1]
    groups, factor = norm.groups or (1 if 1 in axes else channels), _factor(rewriter, norm)
    if channels % groups:
        raise Stays(OTHER_AXES)
    if channels > MOST_CHANNELS:
        raise Stays(f"it has more than {MOST_CHANNELS} channels")
    if not factor:
        raise Stays("its epsilon would be 0 in FP16 where no square overflows")
    row = Row(rewriter, norm.last).at(norm.source)
    if turned:
        row.add("Transpose", "nchw", perm=[0, 3, 1, 2])
    layers = len(row.nodes)
    scale, shift = (*norm.factors, np.zeros(1))[:2] if norm.factors else (np.ones(1), np.zeros(1))
    copied = np.broadcast_to(scale.reshape(-1), channels)[:, np.newaxis] if each else np.ones((0, 0))
    _layers(row, norm, 1 if each else groups, factor, copied, channels)
    if scale.shape[2:] not in ((), (1, 1)):
        for op, what, values in zip(("Mul", "Add"), ("scaled", "moved"), norm.factors):
            row.add(op, what, rewriter.constant(f"{name}.{what}", values))
    elif np.any(shift) or not (each or np.all(scale == 1)):
        row.scale("scaled", channels, 1.0 if each else scale.reshape(-1), shift.reshape(-1))
    rewriter.network.withhold(*(layer.outputs[0] for layer in row.nodes[layers:-1]), why=NO_SQUARES)
    if turned:
        row.add("Transpose", "nhwc", perm=[0, 2, 3, 1])
    row.put(RULE, *norm.gone)
    for node in norm.gone:
        rewriter.graph.remove(node)


def _factor(rewriter: Rewriter, norm: Norm) -> float:
    """Power of two for x; 0 if none fits."""
    if not 0 <= norm.epsilon < math.inf:
        return 0.0
    scale, maker = rewriter.scales.value(norm.source), rewriter.graph.producer.get(norm.source)
    while scale is None and maker is not None and maker.is_op("Transpose", *operators.VIEWS):
        scale, maker = rewriter.scales.value(maker.inputs[0]), rewriter.graph.producer.get(maker.inputs[0])
    least = max(-4, math.ceil(math.log2(_TINIEST / norm.epsilon) / 2)) if norm.epsilon else -4
    if scale is None:
        return 2.0**least if least <= 0 else 0.0
    most = math.floor(math.log2(_LARGEST / (254 if norm.centred else 127) / scale))
    if least > most:
        return 0.0
    return 2.0 ** (0 if least <= 0 <= most <= 11 else min(most, max(least, 7)))


def _layers(row: Row, norm: Norm, groups: int, factor: float, copied: np.ndarray, channels: int) -> None:
    """copied: weights [C, 1] of the Conv that copies one channel to all; empty for means over H and W."""
    dtype, share = row.rewriter.dtype(norm.source), channels // groups

    def conv(what: str, weight: np.ndarray) -> str:
        row.rewriter.afford(norm.last.name, *weight.shape)
        values = weight[:, :, np.newaxis, np.newaxis].astype(dtype)
        return row.add("Conv", what, row.rewriter.constant(f"{norm.last.name}.{what}", values), kernel_shape=[1, 1])

    def mean(what: str) -> str:
        if copied.size:
            return conv(what, np.full((1, channels), 1 / channels))
        row.add("GlobalAveragePool", what)
        if share > 1:
            conv(f"{what}_of_group", np.kron(np.eye(groups), np.full((share, share), 1 / share)))
        return row.current

    d = row.scale("small", channels, factor) if factor != 1 else row.current
    if norm.centred:
        average = mean("mean")
        average = conv("mean_of_all", np.ones((channels, 1))) if copied.size else average
        d = row.at(d).add("Sub", "centred", average)
    row.add("Mul", "square", d)
    mean("variance")
    row.scale("shifted", 1 if copied.size else channels, 1.0, norm.epsilon * factor**2)
    row.power(-0.5)
    if copied.size:
        conv("power_of_all", copied)
    row.add("Mul", "normal", d)


def _root_of_squares(rewriter: Rewriter, node: Node) -> None:
    """Case 5."""
    image, axes = rewriter.image(node.inputs[0]), reduced(rewriter, node)
    if image is None or not operators.keeps_dimensions(node) or axes not in ({1}, {2}, {3}, {2, 3}):
        raise Stays(OTHER_AXES)
    row, factor = Row(rewriter, node), _factor(rewriter, Norm(node.inputs[0], axes, 1.0, node, centred=False))
    if factor != 1:
        row.scale("small", image[1], factor)
    row.add("Mul", "square", row.current)
    row.add("ReduceMean", "mean", *node.inputs[1:])
    row.nodes[-1].attributes = dict(node.attributes)
    row.power(0.5)
    count = math.prod(image[1:][axis - 1] for axis in axes)
    row.scale("root", 1 if axes == {1} else image[1], math.sqrt(count) / factor)
    rewriter.network.withhold(*(layer.outputs[0] for layer in row.nodes[:-1]), why=NO_SQUARES)
    row.put(RULE)
