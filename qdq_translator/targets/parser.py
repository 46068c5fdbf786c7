"""What TensorRT's ONNX parsers can read: operators, and the forms of them that every version refuses.

The lists are those of the open-source parser (github.com/onnx/onnx-tensorrt, branches 8.0-GA to 10.1-GA, and the sources of
10.3, 10.7 and 10.10); nothing that one version has is gone in a later one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

import onnx

from qdq_translator.ir.graph import Node
from qdq_translator.ir.operators import window

Version = Tuple[int, int, int]

_FROM_8_0 = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu Clip Concat
Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout Elu Equal Erf Exp
Expand EyeLike Flatten Floor GRU Gather GatherElements Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater
GreaterOrEqual HardSigmoid Identity If ImageScaler InstanceNormalization LRN LSTM LeakyRelu Less LessOrEqual Log LogSoftmax
Loop LpNormalization LpPool MatMul Max MaxPool Mean Min Mul Neg NonMaxSuppression Not Or PRelu Pad ParametricSoftplus Pow
QuantizeLinear RNN RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence ScaledTanh Scan Selu Shape
Sigmoid Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile
TopK Transpose Unsqueeze Upsample Where
"""
_LATER = {
    (8, 2): "Einsum GatherND IsNaN Round Scatter ScatterElements ScatterND Sign",
    (8, 4): "HardSwish Shrink Xor",
    (8, 5): "GridSample MeanVarianceNormalization Mod NonZero OneHot RandomNormal RandomNormalLike RoiAlign Trilu",
    (8, 6): "GroupNormalization IsInf LayerNormalization",
    (10, 0): "CastLike Gelu Hardmax Mish",
    (10, 1): "DeformConv",
    (10, 7): "BlackmanWindow HammingWindow HannWindow STFT",
}
SINCE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_FROM_8_0.split(), (8, 0)),
    **{op: since for since, ops in _LATER.items() for op in ops.split()},
}
"""ONNX operator -> the first TensorRT version (major, minor) whose parser has it."""


@functools.lru_cache(maxsize=None)
def has_operator(op_type: str, version: Version) -> bool:
    return op_type in SINCE and version[:2] >= SINCE[op_type]


def refusal(node: Node, version: Version) -> Optional[tuple[str, str]]:
    """Why that version's parser refuses the node, and how to fix it; None where it reads the node.

    Operators that ONNX does not have may be plugins, and are left to TensorRT.
    """
    if not node.is_standard:
        return None
    if not has_operator(node.op_type, version) and onnx.defs.has(node.op_type):
        text = ".".join(map(str, version[:2]))
        since = SINCE.get(node.op_type)
        export = f"Choose a platform with TensorRT {since[0]}.{since[1]} or later, or export" if since else "Export"
        what = f"The ONNX parser of TensorRT {text} has no {node.op_type} (node {node.label})."
        return what, f"{export} the network without that operator."
    for form in FORMS:
        if node.op_type in form.operators and version < form.until and form.found(node):
            return f"TensorRT's ONNX parser refuses {form.what} (node {node.label}).", form.remedy
    return None


@dataclass(frozen=True)
class Form:
    """A form of some operators that the parsers refuse. until: the first version that reads it."""

    operators: tuple[str, ...]
    found: Callable[[Node], bool]
    what: str
    remedy: str
    until: Version = (11, 0, 0)


def _dilated(node: Node) -> bool:
    found = window(node)
    return found is not None and found.dilated


def _not_among(key: str, default: object, *read: object) -> Callable[[Node], bool]:
    return lambda node: node.get(key, default) not in read


_MODES = ("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners")
FORMS = (
    Form(
        ("MaxPool", "AveragePool"),
        _dilated,
        "dilations of a pooling",
        "Export the network with a pooling without dilations.",
    ),
    Form(
        ("MaxPool",),
        lambda node: any(node.outputs[1:]),
        "a MaxPool whose indices are read",
        "Export the network without MaxUnpool or what else reads the indices.",
    ),
    Form(("LpPool",), _not_among("p", 2, 1, 2), "an LpPool with p above 2", "Export it with p=1 or p=2."),
    Form(
        ("BatchNormalization",),
        _not_among("training_mode", 0, 0),
        "BatchNormalization in training mode",
        "Export the network in inference mode (in PyTorch after model.eval()).",
    ),
    Form(
        ("Einsum",),
        lambda node: any(letter.isupper() for letter in str(node.get("equation", ""))),
        "capital letters in an Einsum",
        "Export it with small letters and an explicit output ('->').",
    ),
    Form(
        ("Resize",),
        _not_among("antialias", 0, 0),
        "a Resize with antialias that makes the tensor smaller",
        "Export it with antialias=False.",
    ),
    Form(
        ("Resize",),
        _not_among("keep_aspect_ratio_policy", "stretch", "stretch"),
        "a Resize with a keep_aspect_ratio_policy",
        "Export it with the sizes that come out, and 'stretch'.",
    ),
    Form(
        ("Resize",),
        _not_among("coordinate_transformation_mode", "half_pixel", *_MODES),
        "a Resize of that coordinate_transformation_mode",
        "Export it with 'half_pixel', 'align_corners' or 'asymmetric'.",
    ),
    Form(
        ("Resize",),
        lambda node: (
            node.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn"
            and node.get("nearest_mode", "round_prefer_floor") != "round_prefer_floor"
        ),
        "a Resize with tf_half_pixel_for_nn and another nearest_mode than round_prefer_floor",
        "Export it with 'asymmetric' and 'floor', or with 'half_pixel'.",
    ),
    Form(
        ("Conv",),
        lambda node: "kernel_shape" not in node.attributes,
        "a Conv without kernel_shape whose weight has no known shape",
        "Export it with kernel_shape.",
        (10, 10, 0),
    ),
)
"""Each as seen with the parsers 8.5, 8.6, 10.3 and 10.10; what has an equal form that they read was written so before (rules F6, F11)."""
