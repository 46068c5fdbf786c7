"""Checks of one layer against a DLA limit: the parameters of its node, its shapes and its scales.

A check returns '' (met), what it found instead ('kernel 33x3'), or None if a shape that it needs is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Optional, Sequence

import numpy as np

from qdq_translator.ir import operators
from qdq_translator.ir.graph import Node
from qdq_translator.scales.inference.context import Context
from qdq_translator.scales.inference.unify import shared_tensors


@dataclass(frozen=True)
class Layer:
    """Information available to a check. fp16: planned above INT8, because a scale is missing or the user keeps it
    there. assumed: of `Hardware`."""

    node: Node
    context: Context
    tensorrt: tuple[int, int, int]
    fp16: bool = False
    assumed: tuple[str, ...] = ()

    def shape(self, name: str) -> Optional[list[Optional[int]]]:
        """Sizes, None for dynamic ones; None if the rank is unknown."""
        shape = self.context.types.shape(name)
        return None if shape is None else [d if isinstance(d, int) else None for d in shape]

    def activations(self) -> list[str]:
        graph, types = self.context.graph, self.context.types
        names = dict.fromkeys([*self.node.inputs, *self.node.outputs])
        return [n for n in names if n and not graph.is_constant(n) and types.is_float(n)]

    @cached_property
    def window(self) -> Optional[operators.Window]:
        """Window of a convolution or pooling; None if its kernel is unknown."""
        weight = self.shape(self.node.input(1)) if self.node.input(1) else None
        known = None if weight is None or any(d is None for d in weight) else [int(d or 0) for d in weight]
        return operators.window(self.node, known)


Check = Callable[[Layer], Optional[str]]


def power(layer: Layer) -> Optional[str]:
    """Check Pow, on which two sources of TensorRT 10.3 differ; `--assume pow` follows the operator page."""
    constants = sum(layer.context.graph.is_constant(name) for name in layer.node.inputs)
    if "pow" not in layer.assumed or layer.tensorrt < (10, 3, 0):
        return layer.node.op_type
    return "" if constants == 1 else f"{constants} of 2 operands are constant"


def always(layer: Layer) -> Optional[str]:
    return layer.node.op_type


def since(*version: int) -> Check:
    def check(layer: Layer) -> Optional[str]:
        have = layer.tensorrt
        return "" if have >= version else f"TensorRT {'.'.join(map(str, have))}"

    return check


def _of_window(part: str) -> Callable[[Layer], Optional[list[int]]]:
    """A part of the window of a convolution or pooling; None where it is unknown."""
    return lambda layer: None if layer.window is None else getattr(layer.window, part)


kernel_of, strides, dilations = _of_window("kernel"), _of_window("strides"), _of_window("dilations")


def explicit_pads(layer: Layer) -> Optional[list[int]]:
    """ONNX pads (begins, then ends); None if auto_pad needs a shape that is unknown."""
    window = layer.window
    if window is None:
        return None
    if not window.automatic:
        return window.pads
    if window.automatic == "VALID":
        return [0] * (2 * len(window.kernel))
    sizes = layer.shape(layer.node.inputs[0])
    if sizes is None or layer.node.is_op("ConvTranspose"):
        return None
    before, after = [], []
    for size, k, s, d in zip(sizes[2:], window.kernel, window.strides, window.dilations):
        if size is None:
            return None
        total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        less, more = total // 2, total - total // 2
        before.append(less if window.automatic == "SAME_UPPER" else more)
        after.append(more if window.automatic == "SAME_UPPER" else less)
    return before + after


def _by(values: Sequence[int]) -> str:
    return "x".join(str(v) for v in values)


def within(what: str, low: int, high: int, get: Callable[[Layer], Optional[list[int]]]) -> Check:
    def check(layer: Layer) -> Optional[str]:
        values = get(layer)
        if values is None:
            return None
        return "" if all(low <= v <= high for v in values) else f"{what} {_by(values)}"

    return check


def output_padding(layer: Layer) -> Optional[list[int]]:
    return operators.output_padding(layer.node)


def two_spatial(layer: Layer) -> Optional[str]:
    kernel = kernel_of(layer)
    if kernel is None:
        return None
    return "" if len(kernel) == 2 else f"{len(kernel)} spatial dimensions"


def dimensions(least: int, most: int) -> Check:
    def check(layer: Layer) -> Optional[str]:
        ranks = [layer.context.types.rank(name) for name in layer.activations()]
        odd = next((r for r in ranks if r is not None and not least <= r <= most), None)
        if odd is not None:
            return f"{odd} dimensions"
        return None if None in ranks else ""

    return check


def sizes_up_to(what: str, limit: int, part: slice) -> Check:
    def check(layer: Layer) -> Optional[str]:
        known = True
        for name in layer.activations():
            shape = layer.shape(name)
            if shape is None or len(shape) < 2:
                known = known and shape is not None
                continue
            for size in shape[part]:
                known = known and size is not None
                if size is not None and size > limit:
                    return f"{what} {size}"
        return "" if known else None

    return check


def pad_below_kernel(layer: Layer) -> Optional[str]:
    pads, kernel = explicit_pads(layer), kernel_of(layer)
    if pads is None or kernel is None:
        return None
    return "" if all(p < k for p, k in zip(pads, kernel * 2)) else f"padding {_by(pads)}, kernel {_by(kernel)}"


def symmetric_pad(layer: Layer) -> Optional[str]:
    pads = explicit_pads(layer)
    if pads is None:
        return None
    half = len(pads) // 2
    return "" if pads[:half] == pads[half:] else f"padding {_by(pads[:half])} before, {_by(pads[half:])} after"


def channels(layer: Layer) -> Optional[list[int]]:
    weight = layer.shape(layer.node.input(1))
    group = operators.groups(layer.node)
    if weight is None or len(weight) < 2 or weight[0] is None or weight[1] is None:
        return None
    return [weight[1] * group, weight[0]]


def groups(layer: Layer) -> Optional[list[int]]:
    return [operators.groups(layer.node)]


BUFFER_BANKS = 16
"""Of the convolution buffer, for weights and data together; each has 256 entries of 128 bytes (6.3; nvdla/hw issue 315)."""


def _up(value: int, unit: int) -> int:
    """How many units hold `value`."""
    return -(-value // unit)


def buffer_banks(layer: Layer, fp16: bool) -> Optional[tuple[int, int]]:
    """Banks for weights and for data of a convolution of one group (TensorRT 8.4 and 8.5 Developer Guide, 12.2)."""
    weight = layer.shape(layer.node.input(1))
    shape = layer.shape(layer.node.inputs[0])
    window = layer.window
    if weight is None or window is None or shape is None or (len(weight), len(window.kernel), len(shape)) != (4, 2, 4):
        return None
    kernel = window.kernel
    width, per_filter = shape[3], weight[1]
    if width is None or per_filter is None:
        return None
    size = 2 if fp16 else 1
    weights = _up(_up(per_filter * kernel[0] * kernel[1] * size, 128) * 128, 32768)
    entries = _up(_up(per_filter * size, 32) * width, 4)
    rows = (kernel[0] - 1) * window.dilations[0] + 1
    return weights, _up(entries * rows, 256)


def fits_buffer(documented: bool) -> Check:
    """The guides of 8.4 and 8.5 have the formula (`documented`); later versions say 'heuristic' (fact 6.7). How groups share the
    buffer is not known: they are not checked."""

    def check(layer: Layer) -> Optional[str]:
        if (layer.tensorrt < (8, 6, 0)) != documented or operators.groups(layer.node) != 1:
            return ""
        if len(kernel_of(layer) or (1, 1)) != 2:
            return ""
        int8, own = buffer_banks(layer, False), buffer_banks(layer, layer.fp16)
        if int8 is None or own is None:
            return None
        if sum(own) <= BUFFER_BANKS:
            return ""
        found = f"{own[0]} + {own[1]} banks in {'FP16' if layer.fp16 else 'INT8'}"
        return found if not layer.fp16 else f"{found}, {int8[0]} + {int8[1]} in INT8"

    return check


def constant(what: str) -> Check:
    """Of input 1."""

    def check(layer: Layer) -> Optional[str]:
        name = layer.node.input(1)
        return "" if layer.context.graph.is_constant(name) else f"{what} tensor '{name}'"

    return check


def deconv_kernel(layer: Layer) -> Optional[str]:
    kernel = kernel_of(layer)
    if kernel is None:
        return None
    fine = all(1 <= k <= 32 for k in kernel) or (min(kernel) == 1 and max(kernel) in (64, 96, 128))
    return "" if fine else f"kernel {_by(kernel)}"


def deconv_square(layer: Layer) -> Optional[str]:
    window = layer.window
    if window is None:
        return None
    for what, values in (("kernel", window.kernel), ("stride", window.strides)):
        if len(set(values)) == 1 and 23 <= values[0] <= 32:
            return f"{what} {_by(values)}"
    return ""


def exclusive_padding(layer: Layer) -> Optional[str]:
    pads = explicit_pads(layer)
    if pads is None:
        return None
    return "padding is left out of the average" if any(pads) and not operators.counts_padding(layer.node) else ""


def more_outputs(layer: Layer) -> Optional[str]:
    return "output of indices" if sum(bool(n) for n in layer.node.outputs) > 1 else ""


def equal_ranges(layer: Layer) -> Optional[str]:
    values = {name: layer.context.scales[name].value for name in shared_tensors(layer.node, layer.context)}
    if len(set(values.values())) < 2:
        return ""
    return f"scales {min(values.values()):.4g} to {max(values.values()):.4g}"


def clipped_relu(layer: Layer) -> Optional[str]:
    bounds = operators.clip_bounds(layer.node, layer.context.graph.array)
    for index, bound in enumerate(bounds, 1):
        if bound is None:
            return f"bound '{layer.node.input(index)}' is not constant"
    low, high = (bound or 0.0 for bound in bounds)
    return "" if low == 0 and 1 <= high <= 127 else f"bounds [{low:g}, {high:g}]"


def channel_axis(layer: Layer) -> Optional[str]:
    graph, types = layer.context.graph, layer.context.types
    axes = operators.non_negative([operators.axis(layer.node, graph.opset())], types.rank(layer.node.outputs[0]))
    if axes is None:
        return None
    return "" if axes == [1] else f"axis {axes[0]}"


def several_inputs(layer: Layer) -> Optional[str]:
    return "" if len(layer.node.inputs) > 1 else "one input"


def no_sizes(layer: Layer) -> Optional[str]:
    return "sizes are given" if layer.node.input(3) else ""


def integer_scales(layer: Layer) -> Optional[str]:
    if layer.node.input(3):
        return ""
    scales = operators.resize_scales(layer.node, layer.context.graph.opset(), layer.context.graph.array)
    if scales is None:
        return "scales are not constant"
    highest = 32 if operators.mode(layer.node) == "nearest" else 4
    fine = (
        scales.size == 4
        and np.all(scales[:2] == 1)
        and np.all(scales == np.round(scales))
        and np.all((scales >= 1) & (scales <= highest))
    )
    return "" if fine else f"scales {'x'.join(f'{s:g}' for s in scales.reshape(-1))}"


def resize_mode(layer: Layer) -> Optional[str]:
    mode = operators.mode(layer.node)
    where, rounding = operators.resize_coordinates(layer.node, layer.context.graph.opset())
    if mode == "nearest":
        fine = (where, rounding) == ("asymmetric", "floor") or (
            where == "half_pixel" and rounding in ("round_prefer_floor", "round_prefer_ceil")
        )
        return "" if fine else f"nearest, {where}, {rounding}"
    if mode == "linear":
        return "" if where == "half_pixel" else f"linear, {where}"
    return f"mode {mode}"


def _axes(layer: Layer) -> Optional[list[int]]:
    """Non-negative axes of a Slice or Split; None if unknown."""
    node, rank = layer.node, layer.context.types.rank(layer.node.inputs[0])
    if node.is_op("Split"):
        return operators.non_negative([operators.axis(node, layer.context.graph.opset())], rank)
    if operators.is_given(node, "axes", 3):
        return operators.non_negative(operators.axes(node, layer.context.graph.array, 3), rank)
    return list(range(rank)) if rank is not None else None


def no_batch_axis(layer: Layer) -> Optional[str]:
    axes = _axes(layer)
    if axes is None:
        return None
    return "works on the batch axis" if 0 in axes else ""


def static_parameters(layer: Layer) -> Optional[str]:
    for name in layer.node.inputs[1:]:
        if name and not layer.context.graph.is_constant(name):
            # shape arithmetic of a static network is folded by TensorRT; then the output's shape is known here too
            known = all(layer.context.types.static_shape(output) for output in layer.node.outputs if output)
            return "" if known else None
    return ""


def softmax_axis(layer: Layer) -> Optional[str]:
    shape = layer.shape(layer.node.inputs[0])
    if shape is None:
        return None
    axis, size = operators.axis_and_size(layer.node, layer.context.graph.opset(), shape)
    if size is None:
        return None
    others = [d for i, d in enumerate(shape) if i not in (0, axis)]
    return "" if size <= 1024 or (all(d == 1 for d in others) and size <= 8192) else f"{size} along the axis"


def lrn_window(layer: Layer) -> Optional[str]:
    size = int(layer.node.get("size", 0))
    return "" if size in (3, 5, 7, 9) else f"window {size}"


def batch_untouched(layer: Layer) -> Optional[str]:
    if layer.node.is_op("Transpose"):
        perm = operators.permutation(layer.node)
        return "moves the batch axis" if perm is None or perm[0] != 0 else ""
    before, after = layer.shape(layer.node.inputs[0]), layer.shape(layer.node.outputs[0])
    if not before or not after or before[0] is None or after[0] is None:
        return None
    return "" if before[0] == after[0] else f"batch {before[0]} becomes {after[0]}"


def followed_by_cast(layer: Layer) -> Optional[str]:
    reader = layer.context.graph.only_consumer(layer.node.outputs[0])
    return "" if reader is not None and reader.is_op("Cast") else "its only reader is not a Cast"


def int8_inputs(layer: Layer) -> Optional[str]:
    lacking = next((n for n in layer.activations() if n not in layer.context.scales), "")
    return f"tensor '{lacking}' has no scale" if lacking else ""


def cast_of_comparison(layer: Layer) -> Optional[str]:
    producer = layer.context.graph.producer.get(layer.node.inputs[0])
    return "" if producer is not None and producer.is_op(*operators.COMPARISONS) else "Cast"
