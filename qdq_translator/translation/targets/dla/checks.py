"""Checks of one layer against a DLA limit: the parameters of its node, its shapes and its scales.

A check returns '' (met) or a description of the violation ('kernel 33x3'), and raises `Unknown` if a shape that it
needs is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Callable, List, Optional, Sequence, TypeVar

import numpy as np

from qdq_translator.translation.ir import operators
from qdq_translator.translation.ir.graph import Node
from qdq_translator.translation.ir.types import Dim
from qdq_translator.translation.scales.inference.context import Context
from qdq_translator.translation.scales.inference.unify import shared_tensors
from qdq_translator.translation.targets.precision import float_activations

Found = TypeVar("Found")


class Unknown(Exception):
    """The limit cannot be checked: a shape is unknown."""


def _known(found: Optional[Found]) -> Found:
    if found is None:
        raise Unknown
    return found


@dataclass(frozen=True)
class Layer:
    """Information available to a check. fp16: planned above INT8, because a scale is missing or the user keeps the
    layer there. assumed: see `Hardware`."""

    node: Node
    context: Context
    tensorrt: tuple[int, int, int]
    fp16: bool = False
    assumed: tuple[str, ...] = ()

    def shape(self, name: str) -> list[Optional[int]]:
        """Sizes, None for dynamic ones."""
        return [d if isinstance(d, int) else None for d in _known(self.context.types.shape(name))]

    @cached_property
    def activations(self) -> list[str]:
        """Float tensors that are not constants."""
        names = [*self.node.inputs, *self.node.outputs]
        return list(float_activations(names, self.context.graph, self.context.types))

    @cached_property
    def shapes(self) -> list[Optional[tuple[Dim, ...]]]:
        """The shapes of the activations that the layer reads."""
        return [self.context.types.shape(name) for name in self.activations]

    @cached_property
    def window(self) -> operators.Window:
        """Window of a convolution or pooling. Raises Unknown."""
        weight = self.node.input(1)
        return _known(operators.window(self.node, self.context.types.static_shape(weight) if weight else None))


Check = Callable[[Layer], str]


def has_power(tensorrt: tuple[int, int, int], assumed: Sequence[str]) -> bool:
    """Whether Pow runs on the DLA: two sources of TensorRT 10.3 differ (fact 6.3e); `--assume pow` follows the operator
    page."""
    return "pow" in assumed and tensorrt >= (10, 3, 0)


def power(layer: Layer) -> str:
    """Check Pow, by `has_power`."""
    constants = sum(layer.context.graph.is_constant(name) for name in layer.node.inputs)
    if not has_power(layer.tensorrt, layer.assumed):
        return layer.node.op_type
    return "" if constants == 1 else f"{constants} of 2 operands are constant"


def always(layer: Layer) -> str:
    return layer.node.op_type


def since(*version: int) -> Check:
    def check(layer: Layer) -> str:
        have = layer.tensorrt
        return "" if have >= version else f"TensorRT {'.'.join(map(str, have))}"

    return check


Sizes = Callable[[Layer], List[int]]
kernel: Sizes = attrgetter("window.kernel")
strides: Sizes = attrgetter("window.strides")
dilations: Sizes = attrgetter("window.dilations")


def explicit_pads(layer: Layer) -> list[int]:
    """ONNX pads (begins, then ends), auto_pad computed."""
    window = layer.window
    if not window.automatic:
        return window.pads
    if window.automatic == "VALID":
        return [0] * (2 * len(window.kernel))
    if layer.node.is_op("ConvTranspose"):  # its pads depend on the output's shape
        raise Unknown
    sizes = map(_known, layer.shape(layer.node.inputs[0])[2:])
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for k, s, d, size in zip(window.kernel, window.strides, window.dilations, sizes)
    ]
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return less + more if window.automatic == "SAME_UPPER" else more + less


def _by(values: Sequence[int]) -> str:
    return "x".join(str(v) for v in values)


def within(what: str, low: int, high: int, get: Sizes) -> Check:
    def check(layer: Layer) -> str:
        values = get(layer)
        return "" if all(low <= v <= high for v in values) else f"{what} {_by(values)}"

    return check


def two_spatial(layer: Layer) -> str:
    axes = len(layer.window.kernel)
    return "" if axes == 2 else f"{axes} spatial dimensions"


def dimensions(least: int, most: int) -> Check:
    def check(layer: Layer) -> str:
        ranks = [None if shape is None else len(shape) for shape in layer.shapes]
        odd = next((r for r in ranks if r is not None and not least <= r <= most), None)
        if odd is None and None in ranks:
            raise Unknown
        return "" if odd is None else f"{odd} dimensions"

    return check


def sizes_up_to(what: str, limit: int, part: slice) -> Check:
    def check(layer: Layer) -> str:
        unknown = None in layer.shapes
        for shape in layer.shapes:
            for size in shape[part] if shape is not None and len(shape) > 1 else ():
                if not isinstance(size, int):
                    unknown = True
                elif size > limit:
                    return f"{what} {size}"
        if unknown:
            raise Unknown
        return ""

    return check


def pad_below_kernel(layer: Layer) -> str:
    pads, kernel = explicit_pads(layer), layer.window.kernel
    return "" if all(p < k for p, k in zip(pads, kernel * 2)) else f"padding {_by(pads)}, kernel {_by(kernel)}"


def symmetric_pad(layer: Layer) -> str:
    pads = explicit_pads(layer)
    half = len(pads) // 2
    return "" if pads[:half] == pads[half:] else f"padding {_by(pads[:half])} before, {_by(pads[half:])} after"


def channels(layer: Layer) -> list[int]:
    weight = layer.shape(layer.node.input(1))
    if len(weight) < 2:
        raise Unknown
    return [_known(weight[1]) * operators.groups(layer.node), _known(weight[0])]


def groups(layer: Layer) -> list[int]:
    return [operators.groups(layer.node)]


def output_padding(layer: Layer) -> list[int]:
    return operators.output_padding(layer.node)


BUFFER_BANKS = 16
"""Banks of the convolution buffer, for weights and data together; each has 256 entries of 128 bytes (fact 6.3; nvdla/hw
issue 315)."""


def _up(value: int, unit: int) -> int:
    """How many units hold `value`."""
    return -(-value // unit)


def banks(channels: int, width: int, kernel: Sequence[int], dilation: int, size: int) -> tuple[int, int]:
    """Banks for weights and for data of a convolution of one group (TensorRT 8.4 and 8.5 Developer Guide, 12.2).
    channels, width: of its input; dilation: along H; size: bytes of a value."""
    weights = _up(_up(channels * kernel[0] * kernel[1] * size, 128) * 128, 32768)
    entries = _up(_up(channels * size, 32) * width, 4)
    return weights, _up(entries * ((kernel[0] - 1) * dilation + 1), 256)


def buffer_banks(layer: Layer, fp16: bool) -> tuple[int, int]:
    """`banks` of a layer."""
    weight, shape, window = layer.shape(layer.node.input(1)), layer.shape(layer.node.inputs[0]), layer.window
    if (len(weight), len(window.kernel), len(shape)) != (4, 2, 4):
        raise Unknown
    return banks(_known(weight[1]), _known(shape[3]), window.kernel, window.dilations[0], 2 if fp16 else 1)


def fits_buffer(documented: bool) -> Check:
    """The guides of 8.4 and 8.5 give the formula (`documented`); later versions check 'heuristically' (fact 6.7).
    Convolutions with groups are not checked, because it is not known how groups share the buffer."""

    def check(layer: Layer) -> str:
        if (layer.tensorrt < (8, 6, 0)) != documented or operators.groups(layer.node) != 1 or two_spatial(layer):
            return ""
        int8, own = buffer_banks(layer, False), buffer_banks(layer, layer.fp16)
        if sum(own) <= BUFFER_BANKS:
            return ""
        found = f"{own[0]} + {own[1]} banks in {'FP16' if layer.fp16 else 'INT8'}"
        return found if not layer.fp16 else f"{found}, {int8[0]} + {int8[1]} in INT8"

    return check


def constant(what: str) -> Check:
    """The constant that the layer reads as input 1, None if that is computed."""

    def check(layer: Layer) -> str:
        name = layer.node.input(1)
        return "" if layer.context.graph.is_constant(name) else f"{what} tensor '{name}'"

    return check


def deconv_kernel(layer: Layer) -> str:
    kernel = layer.window.kernel
    fine = all(1 <= k <= 32 for k in kernel) or (min(kernel) == 1 and max(kernel) in (64, 96, 128))
    return "" if fine else f"kernel {_by(kernel)}"


def deconv_square(layer: Layer) -> str:
    for what, values in (("kernel", layer.window.kernel), ("stride", layer.window.strides)):
        if len(set(values)) == 1 and 23 <= values[0] <= 32:
            return f"{what} {_by(values)}"
    return ""


def equal_ranges(layer: Layer) -> str:
    values = {name: layer.context.scales[name].value for name in shared_tensors(layer.node, layer.context)}
    if len(set(values.values())) < 2:
        return ""
    return f"scales {min(values.values()):.4g} to {max(values.values()):.4g}"


def clipped_relu(layer: Layer) -> str:
    bounds = operators.clip_bounds(layer.node, layer.context.graph.array)
    for index, bound in enumerate(bounds, 1):
        if bound is None:
            return f"bound '{layer.node.input(index)}' is not constant"
    low, high = (bound or 0.0 for bound in bounds)
    return "" if low == 0 and 1 <= high <= 127 else f"bounds [{low:g}, {high:g}]"


def channel_axis(layer: Layer) -> str:
    graph, types = layer.context.graph, layer.context.types
    axis = [operators.axis(layer.node, graph.opset())]
    axes = _known(operators.non_negative(axis, types.rank(layer.node.outputs[0])))
    return "" if axes == [1] else f"axis {axes[0]}"


def integer_scales(layer: Layer) -> str:
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


def resize_mode(layer: Layer) -> str:
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


def _axes(layer: Layer) -> list[int]:
    """Non-negative axes of a Slice or Split."""
    node, rank = layer.node, layer.context.types.rank(layer.node.inputs[0])
    if node.is_op("Split"):
        return _known(operators.non_negative([operators.axis(node, layer.context.graph.opset())], rank))
    if operators.is_given(node, "axes", 3):
        return _known(operators.non_negative(operators.axes(node, layer.context.graph.array, 3), rank))
    return list(range(_known(rank)))


def static_parameters(layer: Layer) -> str:
    computed = any(name and not layer.context.graph.is_constant(name) for name in layer.node.inputs[1:])
    # TensorRT folds the shape arithmetic of a static network, and then the output's shape is known here too
    if computed and not all(layer.context.types.static_shape(output) for output in layer.node.outputs if output):
        raise Unknown
    return ""


def forward(layer: Layer) -> str:
    cut = operators.slices(layer.node, layer.context.graph.array)
    back = [step for step in cut.steps if step < 0] if cut is not None else []
    return f"step {back[0]}" if back else ""


def softmax_axis(layer: Layer) -> str:
    shape = layer.shape(layer.node.inputs[0])
    axis, found = operators.axis_and_size(layer.node, layer.context.graph.opset(), shape)
    size, others = _known(found), [d for i, d in enumerate(shape) if i not in (0, axis)]
    return "" if size <= 1024 or (all(d == 1 for d in others) and size <= 8192) else f"{size} along the axis"


def lrn_window(layer: Layer) -> str:
    size = int(layer.node.get("size", 0))
    return "" if size in (3, 5, 7, 9) else f"window {size}"


def batch_untouched(layer: Layer) -> str:
    if layer.node.is_op("Transpose"):
        perm = operators.permutation(layer.node)
        return "moves the batch axis" if perm is None or perm[0] != 0 else ""
    before, after = layer.shape(layer.node.inputs[0]), layer.shape(layer.node.outputs[0])
    if not before or not after or before[0] is None or after[0] is None:
        raise Unknown
    return "" if before[0] == after[0] else f"batch {before[0]} becomes {after[0]}"


def int8_inputs(layer: Layer) -> str:
    lacking = next((n for n in layer.activations if n not in layer.context.scales), "")
    return f"tensor '{lacking}' has no scale" if lacking else ""


def _is_op(node: Optional[Node], *op_types: str) -> bool:
    return node is not None and node.is_op(*op_types)


def _wrong(what: str, found: Callable[[Layer], object]) -> Check:
    return lambda layer: what if found(layer) else ""


exclusive_padding = _wrong(
    "padding is left out of the average",
    lambda layer: any(explicit_pads(layer)) and not operators.counts_padding(layer.node),
)
more_outputs = _wrong("output of indices", lambda layer: any(layer.node.outputs[1:]))
several_inputs = _wrong("one input", lambda layer: len(layer.node.inputs) < 2)
no_sizes = _wrong("sizes are given", lambda layer: layer.node.input(3))
no_batch_axis = _wrong("works on the batch axis", lambda layer: 0 in _axes(layer))
followed_by_cast = _wrong(
    "its only reader is not a Cast",
    lambda layer: not _is_op(layer.context.graph.only_consumer(layer.node.outputs[0]), "Cast"),
)
cast_of_comparison = _wrong(
    "Cast", lambda layer: not _is_op(layer.context.graph.producer.get(layer.node.inputs[0]), *operators.COMPARISONS)
)
