"""What TensorRT's ONNX parsers can read: operators, and the forms of them that every version refuses.

The lists are those of the open-source parser (github.com/onnx/onnx-tensorrt, branches 8.0-GA to 10.1-GA, and the sources of
10.3, 10.7 and 10.10); nothing that one version has is gone in a later one.
"""

from __future__ import annotations

import functools
from typing import Optional, Tuple

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
    """Why that version's parser refuses the node, and how to mend it; None where it reads the node.

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
    pool = window(node) if node.is_op("MaxPool") else None
    if pool is not None and pool.dilated:
        return (
            f"TensorRT's ONNX parser refuses dilations of a MaxPool (node {node.label}).",
            "Export the network with a MaxPool without dilations.",
        )
    return None
