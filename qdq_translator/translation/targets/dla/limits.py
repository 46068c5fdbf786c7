"""The table of limits of the DLA through TensorRT.

Each row of `LIMITS` is one limit: the operators that it applies to, the consequence if it is not met (the layer runs on
the GPU, or in FP16), its source, and whether the source states the limit ('documented') or it was deduced from other
evidence ('inferred'). Facts are in docs/facts.md. Nothing here was run on a DLA.

Not in the table: the limit of 4 groups for inputs in DLA_HWC4, which depends on the format that the build requests, and
how the groups of a convolution share its buffer, which no public source describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from qdq_translator.core.formats.report_rows import Finding
from qdq_translator.translation.ir.operator_table import where
from qdq_translator.translation.ir.operators import (
    ACTIVATIONS,
    COMPARISONS,
    CONVOLUTIONS,
    DENSE,
    ELEMENTWISE,
    POOLING,
    RESIZES,
)
from qdq_translator.translation.targets.dla import checks
from qdq_translator.translation.targets.dla.checks import Check

DLA_INT8: Final = "dla-int8"
DLA_FP16: Final = "dla-fp16"
GPU: Final = "gpu"
FOLDED: Final = "folded"

_GUIDE = "TensorRT 8.5.3 Developer Guide, 12.2 (fact 6.3)"
_PAGE = "DLA layer restrictions page, TensorRT 11.4.1 (fact 6.3b)"
_HEADER = "NvInfer.h of TensorRT 8.6 (fact 6.3)"
_SIZES = "fact 6.2, " + _PAGE
_GUIDES = "TensorRT 8.4 and 8.5 Developer Guides, 12.2 (fact 6.3)"
_LATER = "that formula, for later versions (fact 6.3, 6.7)"
_ONE_PADDING = "the guide names one padding an axis (fact 6.3)"
_NO_SOURCE = "no public source describes one (fact 6.3)"
_TABLE = "Deep-Learning-Accelerator-SW operators table (fact 6.5)"

_NOT_HERE = "the rule for it does not apply here; see --dla_rewrites list"
_DIMENSIONS = (
    "it has one or three spatial dimensions; with frames as channels it would be slower (docs/tables/rewrites.md)"
)
_SIZE = "no rewrite exists for a kernel, stride or dilation of this size"
_CHANNELS = "it has too many channels or groups"
_TOO_LARGE = "its weights and rows do not fit the buffer, and no rewrite splits it"
_PADDING = "no rewrite exists for its padding, stride or dilation"
_COMPARED = "its inputs have no scale, or its reader is not a Cast"
_BATCH = "the batch is too large"
_LONG = "a dimension is too long; 'qdq-translator translate --parts' cuts off such layers"
_JOINS = "it joins along an axis other than C, H and W of four dimensions"
_ADJACENT = "its tensors do not have four dimensions, and rules D5 and D18 rewrite no adjacent linear layer"
_COMPUTED = "its weights are computed"
_CONVERTS = (
    "it converts between four and other dimensions for a layer that remains, or for a graph output "
    "(see --dla_output 4d)"
)
_INTERPOLATES = "the DLA resizes by integer factors only, linear or nearest"


@dataclass(frozen=True)
class Limit:
    """One row. effect: GPU or DLA_FP16. status: 'documented' or 'inferred'. only: the generation that it applies to
    ('': both). stays: why no rewrite applies to a layer that violates it, unless the rule or the operator gives a
    better reason; '' if a rewrite may apply."""

    id: str
    ops: tuple[str, ...]
    text: str
    check: Check
    stays: str = ""
    source: str = _GUIDE
    effect: str = GPU
    status: str = "documented"
    only: str = ""

    def finding(self, found: str) -> Finding:
        """The violation of this limit by a layer. found: what the check returned."""
        return Finding(self.id, self.text, found, self.effect, self.source, self.status)


_inferred = partial(Limit, status="inferred")
_fp16 = partial(Limit, effect=DLA_FP16)
_SLICES = ("Slice", "Split")
_SHUFFLES = ("Reshape", "Transpose")
_REBUILD = where(dla="rebuild")
_NOT_NATIVE = where(dla="no")
_BUFFER = "weights and data fit the 16 banks of the convolution buffer"
KNOWN = frozenset(where(dla="native rebuild no limited"))
_SOFTMAX_SIZES = "at most 1024 along the axis, 8192 where all other dimensions are 1"
_ALL, _CONV, _DECONV = ("*",), ("Conv",), ("ConvTranspose",)

LIMITS: tuple[Limit, ...] = (
    # operators
    Limit("O1", _NOT_NATIVE, "operator is not native through TensorRT", checks.always, _NOT_HERE, source=_TABLE),
    Limit("O2", _REBUILD, "operator has to be rebuilt from native ones", checks.always, _NOT_HERE, source=_TABLE),
    _inferred(
        "O3",
        ("Pow",),
        "Pow is an element-wise operator from TensorRT 11 on; in 10.3 by the operator page (one operand constant) and "
        "not by NvInfer.h: --assume pow",
        checks.power,
        _NOT_HERE,
        source=_PAGE + "; ElementWise page and NvInfer.h of TensorRT 10.3 (fact 6.3e)",
    ),
    Limit("O4", ("Min",), "not native by the operators table (NvInfer.h lists MIN)", checks.always, source=_TABLE),
    Limit(
        "O5",
        ("Atanh", "Cos", "Sin", "Div", "Greater", "Less", "GlobalMaxPool", "ReduceMax"),
        "native from TensorRT 8.6.12 on",
        checks.since(8, 6, 12),
        "the DLA supports it from TensorRT 8.6.12",
        source=_TABLE,
    ),
    _inferred(
        "O6", ("ReduceMax",), "reduction is native as GlobalMaxPool only", checks.always, _NOT_HERE, source=_TABLE
    ),
    _inferred("O7", ("Dropout",), "becomes an identity layer, which is not native", checks.always, source=_TABLE),
    _inferred("O8", ("Cast",), "only the Cast behind a comparison is native", checks.cast_of_comparison),
    # every layer
    Limit("G1", _ALL, "batch at most 4096", checks.sizes_up_to("batch", 4096, slice(0, 1)), _BATCH, _SIZES),
    Limit("G2", _ALL, "dimensions at most 8192", checks.sizes_up_to("size", 8192, slice(1, None)), _LONG, _SIZES),
    # convolution
    Limit("C1", _CONV, "two spatial dimensions", checks.two_spatial, _DIMENSIONS),
    Limit("C2", _CONV, "kernel 1 to 32", checks.within("kernel", 1, 32, checks.kernel)),
    Limit("C3", _CONV, "padding 0 to 31", checks.within("padding", 0, 31, checks.explicit_pads), _PADDING),
    Limit("C4", _CONV, "padding smaller than the kernel", checks.pad_below_kernel),
    _inferred("C5", _CONV, "the same padding on both sides", checks.symmetric_pad, source=_ONE_PADDING),
    Limit("C6", _CONV, "stride 1 to 8", checks.within("stride", 1, 8, checks.strides)),
    Limit("C7", _CONV, "dilation 1 to 32", checks.within("dilation", 1, 32, checks.dilations), _SIZE),
    Limit("C8", _CONV, "channels 1 to 8192", checks.within("channels", 1, 8192, checks.channels), _CHANNELS),
    Limit("C9", _CONV, "groups 1 to 8192", checks.within("groups", 1, 8192, checks.groups), _CHANNELS),
    _inferred("C10", CONVOLUTIONS, "constant weights", checks.constant("weights are"), _COMPUTED, source="fact 4.7"),
    Limit("C11", _CONV, _BUFFER, checks.fits_buffer(documented=True), _TOO_LARGE, source=_GUIDES),
    _inferred("C12", _CONV, _BUFFER, checks.fits_buffer(documented=False), _TOO_LARGE, source=_LATER),
    # deconvolution
    Limit("T1", _DECONV, "two spatial dimensions", checks.two_spatial, _DIMENSIONS),
    Limit("T2", _DECONV, "kernel 1 to 32, or 1x64, 1x96, 1x128 and transposed", checks.deconv_kernel, _SIZE),
    Limit("T3", _DECONV, "no square kernel or stride of 23 to 32", checks.deconv_square, _SIZE),
    _inferred("T4", _DECONV, "stride 1 to 32", checks.within("stride", 1, 32, checks.strides), _SIZE),
    Limit("T5", _DECONV, "no padding", checks.within("padding", 0, 0, checks.explicit_pads)),
    Limit("T6", _DECONV, "one group", checks.within("groups", 1, 1, checks.groups)),
    Limit("T7", _DECONV, "no dilation", checks.within("dilation", 1, 1, checks.dilations)),
    Limit("T8", _DECONV, "channels at most 8192", checks.within("channels", 1, 8192, checks.channels), _CHANNELS),
    _inferred("T9", _DECONV, "no output padding", checks.within("output padding", 0, 0, checks.output_padding)),
    # pooling
    Limit("P1", POOLING, "two spatial dimensions", checks.two_spatial, _DIMENSIONS),
    Limit("P2", POOLING, "window 1 to 8", checks.within("window", 1, 8, checks.kernel)),
    Limit("P3", POOLING, "padding 0 to 7", checks.within("padding", 0, 7, checks.explicit_pads), _PADDING),
    Limit("P4", POOLING, "stride 1 to 16", checks.within("stride", 1, 16, checks.strides), _PADDING),
    _fp16("P5", POOLING, "INT8 requires one scale for input and output", checks.equal_ranges, source=_HEADER),
    Limit("P6", ("AveragePool",), "padding must be counted", checks.exclusive_padding, source=_HEADER, only="xavier"),
    _inferred("P7", POOLING, "no dilation", checks.within("dilation", 1, 1, checks.dilations), _PADDING),
    _inferred("P8", ("MaxPool",), "no output of indices", checks.more_outputs),
    # activation
    _fp16("A1", ("Sigmoid", "Tanh"), "runs in FP16, INT8 is upgraded", checks.always),
    Limit("A2", ("Clip",), "a clipped Relu: from 0 to a constant in [1, 127]", checks.clipped_relu),
    Limit("A3", ACTIVATIONS, "two spatial dimensions", checks.dimensions(4, 4), _ADJACENT, source=_PAGE),
    Limit("A4", ("PRelu",), "constant slope", checks.constant("second input is"), "its slope is computed"),
    # element-wise
    _fp16("E1", ELEMENTWISE, "INT8 requires one scale for both inputs", checks.equal_ranges, source=_HEADER),
    _inferred(
        "E2",
        ELEMENTWISE,
        "at most four dimensions, of which those of size 1 are broadcast",
        checks.dimensions(0, 4),
        "its tensors have more than four dimensions",
        source=_GUIDE + "; fact 6.3f",
    ),
    Limit("E3", COMPARISONS, "INT8 only", checks.int8_inputs, _COMPARED),
    Limit("E4", COMPARISONS, "a Cast is its only reader", checks.followed_by_cast, _COMPARED),
    # scale, normalization
    _fp16("L1", ("LRN",), "runs in FP16, INT8 is upgraded", checks.always),
    Limit("L2", ("LRN",), "window 3, 5, 7 or 9", checks.lrn_window, "the DLA has windows of 3, 5, 7 and 9"),
    # concatenation
    Limit("K1", ("Concat",), "channel axis only", checks.channel_axis, _JOINS),
    Limit("K2", ("Concat",), "two inputs or more", checks.several_inputs),
    _fp16("K3", ("Concat",), "INT8 requires one scale for all inputs and the output", checks.equal_ranges),
    # resize
    Limit("R1", RESIZES, "scale factors, not sizes", checks.no_sizes, _INTERPOLATES, source=_HEADER),
    Limit(
        "R2",
        RESIZES,
        "four constant integer factors: 1, 1, then 1 to 32 (nearest) or 4 (linear)",
        checks.integer_scales,
        _INTERPOLATES,
    ),
    Limit(
        "R3",
        RESIZES,
        "nearest with asymmetric and floor or half_pixel, linear with half_pixel",
        checks.resize_mode,
        _INTERPOLATES,
    ),
    # slice, softmax, shuffle, matrix product
    _fp16("S1", _SLICES, "runs in FP16 only", checks.always),
    Limit("S2", _SLICES, "four dimensions", checks.dimensions(4, 4), "its tensors do not have four dimensions"),
    Limit("S3", _SLICES, "axes C, H and W only", checks.no_batch_axis, "it cuts the batch"),
    Limit("S4", _SLICES, "static parameters", checks.static_parameters, "its parameters are computed"),
    _inferred("S5", ("Slice",), "no negative step", checks.forward, _NOT_HERE, source=_NO_SOURCE),
    _fp16("X1", ("Softmax",), "runs in FP16 only", checks.always),
    Limit("X2", ("Softmax",), "Orin only", checks.always, "Xavier's DLA has no Softmax", only="xavier"),
    Limit("X3", ("Softmax",), _SOFTMAX_SIZES, checks.softmax_axis, "it is longer than the DLA's Softmax supports"),
    Limit("H1", _SHUFFLES, "four dimensions before and after", checks.dimensions(4, 4), _CONVERTS),
    Limit(
        "H2", _SHUFFLES, "batch dimension untouched", checks.batch_untouched, "it moves values into or out of the batch"
    ),
    Limit("M1", DENSE, "constant second input", checks.constant("second input is"), source=_TABLE),
)
UNKNOWN_OPERATOR = _inferred(
    "O9", _ALL, "operator is in no list of DLA operators", checks.always, "no rule knows the operator", source=_TABLE
)
NO_SCALE = _fp16(
    "V1", _ALL, "a tensor without scale makes the layer run in FP16", checks.always, source="DLA-SW FAQ (fact 6.6)"
)
CHEAPER = _inferred(
    "V2",
    _ALL,
    "its region is estimated faster on the GPU, transitions included",
    checks.always,
    "the plan leaves its region to the GPU, where it is estimated faster; --dla_rewrites force keeps it on the DLA",
    source="estimate (docs/cost.md)",
)
BY_ID = {limit.id: limit for limit in (*LIMITS, UNKNOWN_OPERATOR, NO_SCALE, CHEAPER)}


def limits_by_op(generation: str) -> dict[str, list[Limit]]:
    """Operator -> its rows of the table; rows under '*' apply to every operator."""
    table: dict[str, list[Limit]] = {}
    for limit in LIMITS:
        if limit.only in ("", generation):
            for op in limit.ops:
                table.setdefault(op, []).append(limit)
    return table
