"""What the DLA takes through TensorRT: a table of limits, and every layer held against it.

Each row of `LIMITS` is one limit: the operators it is for, what follows where it is not kept (the layer goes to the GPU,
or runs in FP16), its source, and whether the source states the limit ('documented') or we read it out of other evidence
('inferred'). Numbers like 6.3 are those of the fact sheet. Nothing here was run on a DLA.

Not in the table, because no public source gives what a check would need: the convolution buffer (weight and data banks,
6.3, 6.7), and the limit of 4 groups for inputs in DLA_HWC4, which depends on the format that the build asks for.

A check answers '' (kept), what it found instead ('kernel 33x3'), or None where a shape that it needs is unknown.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Sequence

import numpy as np

from qdq_translator.graph import Graph, Node
from qdq_translator.inference.context import Context
from qdq_translator.inference.unify import shared_tensors
from qdq_translator.precision import INT8, LayerPlan
from qdq_translator.targets.platforms import Platform

DLA_INT8, DLA_FP16, GPU, FOLDED = "dla-int8", "dla-fp16", "gpu", "folded"
MAX_LOADABLES = 16
"""On one core at once (6.2)."""

_GUIDE = "TensorRT 8.5.3 Developer Guide, 12.2 (6.3)"
_PAGE = "DLA layer restrictions page, TensorRT 11.4.1 (6.3b)"
_HEADER = "NvInfer.h of TensorRT 8.6 (6.3)"
_TABLE = "Deep-Learning-Accelerator-SW operators table (6.5)"


@dataclasses.dataclass(frozen=True)
class Layer:
    """What a check may look at."""

    node: Node
    context: Context
    tensorrt: tuple[int, int, int]

    def shape(self, name: str) -> Optional[list[Optional[int]]]:
        """Sizes, None for dynamic ones; None where the rank is unknown."""
        shape = self.context.types.shape(name)
        return None if shape is None else [d if isinstance(d, int) else None for d in shape]

    def activations(self) -> list[str]:
        graph, types = self.context.graph, self.context.types
        names = dict.fromkeys([*self.node.inputs, *self.node.outputs])
        return [n for n in names if n and not graph.is_constant(n) and types.is_float(n)]

    def ints(self, key: str, default: int, count: int) -> list[int]:
        return [int(v) for v in self.node.get(key, [default] * count)]

    def constant(self, index: int) -> Optional[np.ndarray]:
        name = self.node.input(index)
        return self.context.graph.array(name) if name else None


Check = Callable[[Layer], Optional[str]]


@dataclasses.dataclass(frozen=True)
class Limit:
    """One row. effect: GPU or DLA_FP16. status: 'documented' or 'inferred'. only: the generation it is for ('' both)."""

    id: str
    ops: tuple[str, ...]
    effect: str
    text: str
    check: Check
    source: str
    status: str = "documented"
    only: str = ""


# ---------------------------------------------------------------- checks


def _always(layer: Layer) -> Optional[str]:
    return layer.node.op_type


def _since(*version: int) -> Check:
    def check(layer: Layer) -> Optional[str]:
        have = layer.tensorrt
        return "" if have >= version else f"TensorRT {'.'.join(map(str, have))}"

    return check


def _kernel(layer: Layer) -> Optional[list[int]]:
    """Spatial kernel of a convolution or pooling; None where unknown."""
    kernel = layer.node.get("kernel_shape")
    if kernel is not None:
        return [int(k) for k in kernel]
    weight = layer.shape(layer.node.input(1)) if layer.node.input(1) else None
    if weight is None or any(d is None for d in weight):
        return None
    return [int(d or 0) for d in weight[2:]]


def explicit_pads(layer: Layer) -> Optional[list[int]]:
    """ONNX pads (begins, then ends); None where auto_pad needs a shape that is unknown."""
    kernel = _kernel(layer)
    if kernel is None:
        return None
    auto = layer.node.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return layer.ints("pads", 0, 2 * len(kernel))
    if auto == "VALID":
        return [0] * (2 * len(kernel))
    sizes = layer.shape(layer.node.inputs[0])
    if sizes is None or layer.node.is_op("ConvTranspose"):
        return None
    before, after = [], []
    strides, dilations = layer.ints("strides", 1, len(kernel)), layer.ints("dilations", 1, len(kernel))
    for size, k, s, d in zip(sizes[2:], kernel, strides, dilations):
        if size is None:
            return None
        total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        less, more = total // 2, total - total // 2
        before.append(less if auto == "SAME_UPPER" else more)
        after.append(more if auto == "SAME_UPPER" else less)
    return before + after


def _by(values: Sequence[int]) -> str:
    return "x".join(str(v) for v in values)


def _within(what: str, low: int, high: int, get: Callable[[Layer], Optional[list[int]]]) -> Check:
    def check(layer: Layer) -> Optional[str]:
        values = get(layer)
        if values is None:
            return None
        return "" if all(low <= v <= high for v in values) else f"{what} {_by(values)}"

    return check


def _spatial(key: str, default: int) -> Callable[[Layer], Optional[list[int]]]:
    def get(layer: Layer) -> Optional[list[int]]:
        kernel = _kernel(layer)
        return None if kernel is None else layer.ints(key, default, len(kernel))

    return get


def _two_spatial(layer: Layer) -> Optional[str]:
    kernel = _kernel(layer)
    if kernel is None:
        return None
    return "" if len(kernel) == 2 else f"{len(kernel)} spatial dimensions"


def _four_dimensions(layer: Layer) -> Optional[str]:
    ranks = [layer.context.types.rank(name) for name in layer.activations()]
    odd = next((r for r in ranks if r is not None and r != 4), None)
    if odd is not None:
        return f"{odd} dimensions"
    return None if None in ranks else ""


def _at_most_four(layer: Layer) -> Optional[str]:
    ranks = [layer.context.types.rank(name) for name in layer.activations()]
    high = next((r for r in ranks if r is not None and r > 4), None)
    if high is not None:
        return f"{high} dimensions"
    return None if None in ranks else ""


def _sizes_up_to(what: str, limit: int, part: slice) -> Check:
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


def _pad_below_kernel(layer: Layer) -> Optional[str]:
    pads, kernel = explicit_pads(layer), _kernel(layer)
    if pads is None or kernel is None:
        return None
    return "" if all(p < k for p, k in zip(pads, kernel * 2)) else f"padding {_by(pads)}, kernel {_by(kernel)}"


def _symmetric_pad(layer: Layer) -> Optional[str]:
    pads = explicit_pads(layer)
    if pads is None:
        return None
    half = len(pads) // 2
    return "" if pads[:half] == pads[half:] else f"padding {_by(pads[:half])} before, {_by(pads[half:])} after"


def _channels(layer: Layer) -> Optional[list[int]]:
    weight = layer.shape(layer.node.input(1))
    group = int(layer.node.get("group", 1))
    if weight is None or len(weight) < 2 or weight[0] is None or weight[1] is None:
        return None
    return [weight[1] * group, weight[0]]


def _group(layer: Layer) -> Optional[list[int]]:
    return [int(layer.node.get("group", 1))]


def _constant_weight(layer: Layer) -> Optional[str]:
    return "" if layer.context.graph.is_constant(layer.node.input(1)) else f"weights are tensor '{layer.node.input(1)}'"


def _constant_second(layer: Layer) -> Optional[str]:
    name = layer.node.input(1)
    return "" if layer.context.graph.is_constant(name) else f"second input is tensor '{name}'"


def _deconv_kernel(layer: Layer) -> Optional[str]:
    kernel = _kernel(layer)
    if kernel is None:
        return None
    fine = all(1 <= k <= 32 for k in kernel) or (min(kernel) == 1 and max(kernel) in (64, 96, 128))
    return "" if fine else f"kernel {_by(kernel)}"


def _deconv_square(layer: Layer) -> Optional[str]:
    kernel = _kernel(layer)
    if kernel is None:
        return None
    strides = layer.ints("strides", 1, len(kernel))
    for what, values in (("kernel", kernel), ("stride", strides)):
        if len(set(values)) == 1 and 23 <= values[0] <= 32:
            return f"{what} {_by(values)}"
    return ""


def _exclusive_padding(layer: Layer) -> Optional[str]:
    pads = explicit_pads(layer)
    if pads is None:
        return None
    return "padding is left out of the average" if any(pads) and not layer.node.get("count_include_pad", 0) else ""


def _more_outputs(layer: Layer) -> Optional[str]:
    return "output of indices" if sum(bool(n) for n in layer.node.outputs) > 1 else ""


def _equal_ranges(layer: Layer) -> Optional[str]:
    values = {name: layer.context.scales[name].value for name in shared_tensors(layer.node, layer.context)}
    if len(set(values.values())) < 2:
        return ""
    return f"scales {min(values.values()):.4g} to {max(values.values()):.4g}"


def _clipped_relu(layer: Layer) -> Optional[str]:
    bounds: list[Optional[float]] = []
    for index, key in ((1, "min"), (2, "max")):
        name = layer.node.input(index)
        if name and not layer.context.graph.is_constant(name):
            return f"bound '{name}' is no constant"
        bounds.append(layer.context.graph.scalar(name) if name else layer.node.get(key))
    low, high = bounds
    shown = f"[{'-inf' if low is None else f'{low:g}'}, {'inf' if high is None else f'{high:g}'}]"
    return "" if low == 0 and high is not None and 1 <= high <= 127 else f"bounds {shown}"


def _channel_axis(layer: Layer) -> Optional[str]:
    axis, rank = int(layer.node.get("axis", 1)), layer.context.types.rank(layer.node.outputs[0])
    if rank is None and axis < 0:
        return None
    axis = axis + (rank or 0) if axis < 0 else axis
    return "" if axis == 1 else f"axis {axis}"


def _several_inputs(layer: Layer) -> Optional[str]:
    return "" if len(layer.node.inputs) > 1 else "one input"


def _resize_scales(layer: Layer) -> Optional[np.ndarray]:
    """Constant scale factors; None where there are none."""
    if layer.node.is_op("Upsample") and layer.node.get("scales") is not None:
        return np.asarray(layer.node.get("scales"))
    index = 1 if layer.node.is_op("Upsample") or layer.context.graph.opset() < 11 else 2
    values = layer.constant(index)
    return values if values is not None and values.size else None


def _no_sizes(layer: Layer) -> Optional[str]:
    return "sizes are given" if layer.node.input(3) else ""


def _integer_scales(layer: Layer) -> Optional[str]:
    if layer.node.input(3):
        return ""
    scales = _resize_scales(layer)
    if scales is None:
        return "scales are no constant"
    highest = 32 if layer.node.get("mode", "nearest") == "nearest" else 4
    fine = (
        scales.size == 4
        and np.all(scales[:2] == 1)
        and np.all(scales == np.round(scales))
        and np.all((scales >= 1) & (scales <= highest))
    )
    return "" if fine else f"scales {'x'.join(f'{s:g}' for s in scales)}"


def _resize_mode(layer: Layer) -> Optional[str]:
    node = layer.node
    mode = node.get("mode", "nearest")
    if node.is_op("Upsample") or layer.context.graph.opset() < 11:
        where, rounding = "asymmetric", "floor"
    else:
        where = node.get("coordinate_transformation_mode", "half_pixel")
        rounding = node.get("nearest_mode", "round_prefer_floor")
    if mode == "nearest":
        fine = (where, rounding) == ("asymmetric", "floor") or (
            where == "half_pixel" and rounding in ("round_prefer_floor", "round_prefer_ceil")
        )
        return "" if fine else f"nearest, {where}, {rounding}"
    if mode == "linear":
        return "" if where == "half_pixel" else f"linear, {where}"
    return f"mode {mode}"


def _axes(layer: Layer) -> Optional[list[int]]:
    """Axes that a Slice or Split works on, non-negative; None where unknown."""
    node, rank = layer.node, layer.context.types.rank(layer.node.inputs[0])
    if node.is_op("Split"):
        axes = [int(node.get("axis", 0))]
    elif node.get("axes") is not None:
        axes = [int(a) for a in node.get("axes")]
    elif node.input(3):
        values = layer.constant(3)
        if values is None:
            return None
        axes = [int(a) for a in values.reshape(-1)]
    else:
        return list(range(rank)) if rank is not None else None
    if rank is None and any(a < 0 for a in axes):
        return None
    return [a + (rank or 0) if a < 0 else a for a in axes]


def _no_batch_axis(layer: Layer) -> Optional[str]:
    axes = _axes(layer)
    if axes is None:
        return None
    return "works on the batch axis" if 0 in axes else ""


def _static_parameters(layer: Layer) -> Optional[str]:
    for name in layer.node.inputs[1:]:
        if name and not layer.context.graph.is_constant(name):
            # shape arithmetic of a static network is folded by TensorRT; then the output's shape is known here too
            known = all(layer.context.types.static_shape(output) for output in layer.node.outputs if output)
            return "" if known else None
    return ""


def _softmax_axis(layer: Layer) -> Optional[str]:
    shape = layer.shape(layer.node.inputs[0])
    if shape is None:
        return None
    axis = int(layer.node.get("axis", -1 if layer.context.graph.opset() >= 13 else 1))
    axis = axis + len(shape) if axis < 0 else axis
    size = shape[axis] if axis < len(shape) else None
    if size is None:
        return None
    others = [d for i, d in enumerate(shape) if i not in (0, axis)]
    return "" if size <= 1024 or (all(d == 1 for d in others) and size <= 8192) else f"{size} along the axis"


def _lrn_window(layer: Layer) -> Optional[str]:
    size = int(layer.node.get("size", 0))
    return "" if size in (3, 5, 7, 9) else f"window {size}"


def _batch_untouched(layer: Layer) -> Optional[str]:
    if layer.node.is_op("Transpose"):
        perm = layer.node.get("perm")
        return "moves the batch axis" if perm is None or perm[0] != 0 else ""
    before, after = layer.shape(layer.node.inputs[0]), layer.shape(layer.node.outputs[0])
    if not before or not after or before[0] is None or after[0] is None:
        return None
    return "" if before[0] == after[0] else f"batch {before[0]} becomes {after[0]}"


def _followed_by_cast(layer: Layer) -> Optional[str]:
    reader = layer.context.graph.only_consumer(layer.node.outputs[0])
    return "" if reader is not None and reader.is_op("Cast") else "its only reader is no Cast"


def _int8_inputs(layer: Layer) -> Optional[str]:
    lacking = next((n for n in layer.activations() if n not in layer.context.scales), "")
    return f"tensor '{lacking}' has no scale" if lacking else ""


def _cast_of_comparison(layer: Layer) -> Optional[str]:
    producer = layer.context.graph.producer.get(layer.node.inputs[0])
    return "" if producer is not None and producer.is_op(*_COMPARISONS) else "Cast"


# ---------------------------------------------------------------- the table

_COMPARISONS = ("Equal", "Greater", "Less")
_ACTIVATIONS = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "PRelu")
_POOLS = ("MaxPool", "AveragePool")
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum")
_RESIZES = ("Resize", "Upsample")
_SLICES = ("Slice", "Split")
_SHUFFLES = ("Reshape", "Transpose")
_NATIVE = frozenset(
    (
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "LRN", "Concat", "Softmax", "Abs", "Cast"),
        *(*_ACTIVATIONS, *_POOLS, *_ELEMENTWISE, *_RESIZES, *_SLICES, *_SHUFFLES, *_COMPARISONS),
        *("Atanh", "Cos", "Sin", "GlobalMaxPool"),
    )
)
_REBUILD = (
    *("And", "Or", "Xor", "Not", "Where", "Neg", "Identity", "CumSum", "DepthToSpace", "SpaceToDepth", "Gather"),
    *("GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "GRU", "LSTM", "RNN", "ReduceSum"),
)
_NOT_NATIVE = (
    *("GlobalAveragePool", "ReduceMean", "ReduceMin", "Flatten", "Squeeze", "Unsqueeze", "Pad", "HardSwish"),
    *("HardSigmoid", "Elu", "Selu", "Celu", "Softplus", "Softsign", "Mish", "Erf", "Exp", "Log", "Sqrt", "Reciprocal"),
    *("Floor", "Ceil", "Round", "Sign", "Expand", "Tile", "Mod", "Mean", "Acos", "Acosh", "Asin", "Asinh", "Atan"),
    *(
        "Cosh",
        "Sinh",
        "Tan",
        "GreaterOrEqual",
        "LessOrEqual",
        "LogSoftmax",
        "LpNormalization",
        "LpPool",
        "GlobalLpPool",
    ),
    *("InstanceNormalization", "GroupNormalization", "LayerNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceProd", "ReduceSumSquare"),
)
_KNOWN = _NATIVE | frozenset((*_REBUILD, *_NOT_NATIVE, "Pow", "ReduceMax", "Dropout"))
_CONV, _DECONV, _DENSE = ("Conv",), ("ConvTranspose",), ("Gemm", "MatMul")

# fmt: off
LIMITS: tuple[Limit, ...] = tuple(
    Limit(*row)
    for row in (
        # operators
        ("O1", _NOT_NATIVE, GPU, "operator is not native through TensorRT", _always, _TABLE),
        ("O2", _REBUILD, GPU, "operator has to be rebuilt from native ones", _always, _TABLE),
        ("O3", ("Pow",), GPU, "Pow is an element-wise operator from TensorRT 11 on only", _always, _PAGE, "inferred"),
        ("O4", ("Min",), GPU, "not native by the operators table (NvInfer.h lists MIN)", _always, _TABLE),
        ("O5", ("Atanh", "Cos", "Sin", "Div", "Greater", "Less", "GlobalMaxPool", "ReduceMax"), GPU, "native from TensorRT 8.6.12 on", _since(8, 6, 12), _TABLE),
        ("O6", ("ReduceMax",), GPU, "reduction is native as GlobalMaxPool only", _always, _TABLE, "inferred"),
        ("O7", ("Dropout",), GPU, "becomes an identity layer, which is not native", _always, _TABLE, "inferred"),
        ("O8", ("Cast",), GPU, "only the Cast behind a comparison is native", _cast_of_comparison, _GUIDE, "inferred"),
        # every layer
        ("G1", ("*",), GPU, "batch at most 4096", _sizes_up_to("batch", 4096, slice(0, 1)), "6.2, " + _PAGE),
        ("G2", ("*",), GPU, "dimensions at most 8192", _sizes_up_to("size", 8192, slice(1, None)), "6.2, " + _PAGE),
        # convolution
        ("C1", _CONV, GPU, "two spatial dimensions", _two_spatial, _GUIDE),
        ("C2", _CONV, GPU, "kernel 1 to 32", _within("kernel", 1, 32, _kernel), _GUIDE),
        ("C3", _CONV, GPU, "padding 0 to 31", _within("padding", 0, 31, explicit_pads), _GUIDE),
        ("C4", _CONV, GPU, "padding smaller than the kernel", _pad_below_kernel, _GUIDE),
        ("C5", _CONV, GPU, "the same padding on both sides", _symmetric_pad, "the guide names one padding an axis (6.3)", "inferred"),
        ("C6", _CONV, GPU, "stride 1 to 8", _within("stride", 1, 8, _spatial("strides", 1)), _GUIDE),
        ("C7", _CONV, GPU, "dilation 1 to 32", _within("dilation", 1, 32, _spatial("dilations", 1)), _GUIDE),
        ("C8", _CONV, GPU, "channels 1 to 8192", _within("channels", 1, 8192, _channels), _GUIDE),
        ("C9", _CONV, GPU, "groups 1 to 8192", _within("groups", 1, 8192, _group), _GUIDE),
        ("C10", (*_CONV, *_DECONV), GPU, "constant weights", _constant_weight, "4.7", "inferred"),
        # deconvolution
        ("T1", _DECONV, GPU, "two spatial dimensions", _two_spatial, _GUIDE),
        ("T2", _DECONV, GPU, "kernel 1 to 32, or 1x64, 1x96, 1x128 and transposed", _deconv_kernel, _GUIDE),
        ("T3", _DECONV, GPU, "no square kernel or stride of 23 to 32", _deconv_square, _GUIDE),
        ("T4", _DECONV, GPU, "stride 1 to 32", _within("stride", 1, 32, _spatial("strides", 1)), _GUIDE, "inferred"),
        ("T5", _DECONV, GPU, "no padding", _within("padding", 0, 0, explicit_pads), _GUIDE),
        ("T6", _DECONV, GPU, "one group", _within("groups", 1, 1, _group), _GUIDE),
        ("T7", _DECONV, GPU, "no dilation", _within("dilation", 1, 1, _spatial("dilations", 1)), _GUIDE),
        ("T8", _DECONV, GPU, "channels at most 8192", _within("channels", 1, 8192, _channels), _GUIDE),
        ("T9", _DECONV, GPU, "no output padding", _within("output padding", 0, 0, _spatial("output_padding", 0)), _GUIDE, "inferred"),
        # pooling
        ("P1", _POOLS, GPU, "two spatial dimensions", _two_spatial, _GUIDE),
        ("P2", _POOLS, GPU, "window 1 to 8", _within("window", 1, 8, _kernel), _GUIDE),
        ("P3", _POOLS, GPU, "padding 0 to 7", _within("padding", 0, 7, explicit_pads), _GUIDE),
        ("P4", _POOLS, GPU, "stride 1 to 16", _within("stride", 1, 16, _spatial("strides", 1)), _GUIDE),
        ("P5", _POOLS, DLA_FP16, "INT8 wants one scale for input and output", _equal_ranges, _HEADER),
        ("P6", ("AveragePool",), GPU, "padding must be counted", _exclusive_padding, _HEADER, "documented", "xavier"),
        ("P7", _POOLS, GPU, "no dilation", _within("dilation", 1, 1, _spatial("dilations", 1)), _GUIDE, "inferred"),
        ("P8", ("MaxPool",), GPU, "no output of indices", _more_outputs, _GUIDE, "inferred"),
        # activation
        ("A1", ("Sigmoid", "Tanh"), DLA_FP16, "runs in FP16, INT8 is upgraded", _always, _GUIDE),
        ("A2", ("Clip",), GPU, "a clipped Relu: from 0 to a constant in [1, 127]", _clipped_relu, _GUIDE),
        ("A3", _ACTIVATIONS, GPU, "two spatial dimensions", _four_dimensions, _PAGE),
        ("A4", ("PRelu",), GPU, "constant slope", _constant_second, _GUIDE),
        # element-wise
        ("E1", _ELEMENTWISE, DLA_FP16, "INT8 wants one scale for both inputs", _equal_ranges, _HEADER),
        ("E2", _ELEMENTWISE, GPU, "at most four dimensions", _at_most_four, _GUIDE, "inferred"),
        ("E3", _COMPARISONS, GPU, "INT8 only", _int8_inputs, _GUIDE),
        ("E4", _COMPARISONS, GPU, "a Cast is its only reader", _followed_by_cast, _GUIDE),
        # scale, normalization
        ("L1", ("LRN",), DLA_FP16, "runs in FP16, INT8 is upgraded", _always, _GUIDE),
        ("L2", ("LRN",), GPU, "window 3, 5, 7 or 9", _lrn_window, _GUIDE),
        # concatenation
        ("K1", ("Concat",), GPU, "channel axis only", _channel_axis, _GUIDE),
        ("K2", ("Concat",), GPU, "two inputs or more", _several_inputs, _GUIDE),
        ("K3", ("Concat",), DLA_FP16, "INT8 wants one scale for all inputs and the output", _equal_ranges, _GUIDE),
        # resize
        ("R1", _RESIZES, GPU, "scale factors, not sizes", _no_sizes, _HEADER),
        ("R2", _RESIZES, GPU, "four constant integer factors: 1, 1, then 1 to 32 (nearest) or 4 (linear)", _integer_scales, _GUIDE),
        ("R3", _RESIZES, GPU, "nearest with asymmetric and floor or half_pixel, linear with half_pixel", _resize_mode, _GUIDE),
        # slice, softmax, shuffle, matrix product
        ("S1", _SLICES, DLA_FP16, "runs in FP16 only", _always, _GUIDE),
        ("S2", _SLICES, GPU, "four dimensions", _four_dimensions, _GUIDE),
        ("S3", _SLICES, GPU, "axes C, H and W only", _no_batch_axis, _GUIDE),
        ("S4", _SLICES, GPU, "static parameters", _static_parameters, _GUIDE),
        ("X1", ("Softmax",), DLA_FP16, "runs in FP16 only", _always, _GUIDE),
        ("X2", ("Softmax",), GPU, "Orin only", _always, _GUIDE, "documented", "xavier"),
        ("X3", ("Softmax",), GPU, "at most 1024 along the axis, 8192 where all other dimensions are 1", _softmax_axis, _GUIDE),
        ("H1", _SHUFFLES, GPU, "four dimensions before and after", _four_dimensions, _GUIDE),
        ("H2", _SHUFFLES, GPU, "batch dimension untouched", _batch_untouched, _GUIDE),
        ("M1", _DENSE, GPU, "constant second input", _constant_second, _TABLE),
    )
)
# fmt: on
UNKNOWN_OPERATOR = Limit("O9", ("*",), GPU, "operator is in no list of what the DLA runs", _always, _TABLE, "inferred")
NO_SCALE = Limit(
    "V1", ("*",), DLA_FP16, "a tensor without scale makes the layer run in FP16", _always, "DLA-SW FAQ (6.6)"
)


# ---------------------------------------------------------------- verdicts


@dataclasses.dataclass(frozen=True)
class Finding:
    """A limit that a layer does not keep, and what was found."""

    limit: Limit
    found: str

    def as_dict(self) -> dict[str, str]:
        return {
            "limit": self.limit.id,
            "text": self.limit.text,
            "found": self.found,
            "effect": self.limit.effect,
            "source": self.limit.source,
            "status": self.limit.status,
        }


@dataclasses.dataclass(frozen=True)
class Verdict:
    """verdict: 'dla-int8', 'dla-fp16', 'gpu' (a build error where fallback is not allowed), or 'folded' (shape
    arithmetic and constants, which TensorRT computes when it builds). unknown: limits that need unknown shapes.
    subgraph: number of its DLA subgraph, -1 for none."""

    name: str
    op: str
    verdict: str
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()
    subgraph: int = -1

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "op": self.op,
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            "unknown": list(self.unknown),
            "subgraph": self.subgraph,
        }


@dataclasses.dataclass(frozen=True)
class DlaPlan:
    """Every layer's verdict in graph order, the number of predicted DLA subgraphs (loadables), and notes."""

    generation: str
    layers: list[Verdict]
    subgraphs: int
    notes: list[str]

    @property
    def fallbacks(self) -> list[Verdict]:
        return [layer for layer in self.layers if layer.verdict == GPU]

    def count(self, verdict: str) -> int:
        return sum(layer.verdict == verdict for layer in self.layers)

    def as_dict(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "counts": {verdict: self.count(verdict) for verdict in (DLA_INT8, DLA_FP16, GPU, FOLDED)},
            "subgraphs": self.subgraphs,
            "max_loadables": MAX_LOADABLES,
            "notes": self.notes,
            "layers": [layer.as_dict() for layer in self.layers],
        }


def tensorrt_version(number: str) -> tuple[int, int, int]:
    """(8, 6, 12) of '8612', (10, 3, 0) of '100300': the inverse of the cache number (fact sheet 1.2)."""
    value = int(number)
    unit = 10000 if value >= 100000 else 1000
    return value // unit, value % unit // 100, value % 100


def judge(
    context: Context, plan: list[LayerPlan], tensorrt: tuple[int, int, int], platform: Optional[Platform] = None
) -> DlaPlan:
    """Holds every layer against the limits of the DLA that `context.options.target` names."""
    generation = context.options.target.partition("-")[0]
    table = limits_by_op(generation)
    layers = [
        _judge(Layer(node, context, tensorrt), planned, table) for node, planned in zip(context.graph.nodes, plan)
    ]
    numbers, count = _subgraphs(context.graph, layers)
    layers = [
        dataclasses.replace(layer, subgraph=number) if number >= 0 else layer for layer, number in zip(layers, numbers)
    ]
    return DlaPlan(generation, layers, count, _notes(context, layers, count, platform))


def limits_by_op(generation: str) -> dict[str, list[Limit]]:
    """Operator -> its rows of the table; those under '*' hold for every operator."""
    table: dict[str, list[Limit]] = {}
    for limit in LIMITS:
        if limit.only in ("", generation):
            for op in limit.ops:
                table.setdefault(op, []).append(limit)
    return table


def gpu_findings(layer: Layer, table: dict[str, list[Limit]]) -> list[Finding]:
    """The limits that send the layer to the GPU; [] where it stays on the DLA."""
    findings, _ = _hold(layer, [*table.get(layer.node.op_type, ()), *table["*"]])
    return [finding for finding in findings if finding.limit.effect == GPU]


def _hold(layer: Layer, limits: Sequence[Limit]) -> tuple[list[Finding], list[str]]:
    node = layer.node
    if not node.is_standard or node.op_type not in _KNOWN:
        return [Finding(UNKNOWN_OPERATOR, f"{node.domain}::{node.op_type}" if node.domain else node.op_type)], []
    findings, unknown = [], []
    for limit in limits:
        found = limit.check(layer)
        if found is None:
            unknown.append(limit.id)
        elif found:
            findings.append(Finding(limit, found))
    return findings, unknown


def _judge(layer: Layer, planned: LayerPlan, table: dict[str, list[Limit]]) -> Verdict:
    node = layer.node
    if node.is_op("Shape", "Size", "Constant", "ConstantOfShape", "Range") or not planned.inputs:
        return Verdict(node.name, node.op_type, FOLDED)
    findings, unknown = _hold(layer, [*table.get(node.op_type, ()), *table["*"]])
    effects = {finding.limit.effect for finding in findings}
    if GPU in effects:
        verdict = GPU
    elif planned.missing:
        verdict = DLA_FP16
        findings.append(Finding(NO_SCALE, f"'{planned.missing[0]}'"))
    elif DLA_FP16 in effects or (planned.precision != INT8 and planned.outputs):
        verdict = DLA_FP16
    else:
        verdict = DLA_INT8
    return Verdict(node.name, node.op_type, verdict, tuple(findings), tuple(unknown))


def _subgraphs(graph: Graph, layers: list[Verdict]) -> tuple[list[int], int]:
    """For every layer the number of its DLA subgraph (-1: none), and how many there are.

    Layers are on one level as long as data reaches them without another change between DLA and GPU; DLA layers of one
    level that are connected form one subgraph. No subgraph can then depend on itself through the GPU. TensorRT may
    merge less; that it merges no more is inferred.
    """
    nodes = [node for node, layer in zip(graph.nodes, layers) if layer.verdict != FOLDED]
    on_dla = {id(node): layer.verdict != GPU for node, layer in zip(graph.nodes, layers)}
    folded = {id(node) for node, layer in zip(graph.nodes, layers) if layer.verdict == FOLDED}
    parent: dict[int, int] = {}
    own_level: dict[int, int] = {}

    def root(key: int) -> int:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for node in nodes:
        here = on_dla[id(node)]
        highest = 0
        producers = [graph.producer[name] for name in node.reads() if name in graph.producer]
        producers = [p for p in producers if id(p) not in folded]
        for producer in producers:
            step = own_level[id(producer)] + (on_dla[id(producer)] != here)
            highest = max(highest, step)
        own_level[id(node)] = highest
        if here:
            parent[id(node)] = id(node)
            for producer in producers:
                if on_dla[id(producer)] and own_level[id(producer)] == highest:
                    parent[root(id(node))] = root(id(producer))
    number: dict[int, int] = {}
    result = []
    for node in graph.nodes:
        key = root(id(node)) if id(node) in parent else None
        result.append(-1 if key is None else number.setdefault(key, len(number)))
    return result, len(number)


def _notes(context: Context, layers: list[Verdict], subgraphs: int, platform: Optional[Platform]) -> list[str]:
    notes = []
    if platform is not None and platform.note and not platform.dla:
        notes.append(f"{platform.name}: {platform.note} ({platform.source}).")
    dynamic = [
        name
        for name in context.graph.inputs
        if any(not isinstance(d, int) for d in context.types.shape(name) or (None,))
    ]
    if dynamic:
        notes.append(
            f"The DLA runs static shapes only: build with equal minimum, optimum and maximum shapes for {', '.join(dynamic)}; "
            "--shapes tells them to this plan."
        )
    unknown = sum(bool(layer.unknown) for layer in layers)
    if unknown:
        notes.append(
            f"{unknown} layer{'s' if unknown > 1 else ''} could not be held against every limit, because shapes are unknown."
        )
    if subgraphs > MAX_LOADABLES:
        notes.append(f"{subgraphs} DLA subgraphs are more than the {MAX_LOADABLES} loadables that one core holds.")
    return notes
