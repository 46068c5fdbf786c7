"""The table of operators: one row an operator, one column a fact that several folders need.

Every named set of operators is a query of this table (`where`); docs/operators.md is made from it. An operator without
row has no facts: it moves nothing, has no rule for scales, and no target is known to run it. `COLUMNS` describes the
columns and their values; a test fails for a row that leaves one out.
"""

from __future__ import annotations

from typing import Mapping

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "kind": {
        "convolution": "multiplies windows with weights",
        "dense": "multiplies matrices",
        "elementwise": "of two or more tensors, value by value; TensorRT has one layer for it",
        "binary": "of two or more tensors, value by value, with other rules than the elementwise ones",
        "activation": "a form of TensorRT's activation layer that the DLA has",
        "unary": "of one tensor, value by value",
        "pooling": "a window of values makes one",
        "global": "all values of a channel make one",
        "resize": "other sizes by interpolation",
        "comparison": "compares two tensors; TensorRT has a layer for it",
        "logic": "makes booleans",
        "norm": "normalizes over channels, groups or windows",
        "layernorm": "normalizes over the last axes",
        "softmax": "normalizes exponentials over an axis",
        "reduction": "removes axes",
        "random": "makes other values in each run",
        "quantizer": "rounds, or undoes the scale of rounding",
        "recurrent": "steps over a sequence",
        "shape": "computes sizes",
        "constant": "reads no tensor",
        "movement": "the values of the input at other places, or with another type",
        "index": "finds or moves values by computed places",
        "control": "contains graphs",
        "other": "none of these",
    },
    "data": {
        "view": "another shape for the same values in the same order",
        "permute": "every value comes out once, in another order",
        "same": "nothing changes",
        "drop": "nothing changes in inference",
        "part": "some of the values come out",
        "repeat": "values come out several times",
        "join": "values of several tensors side by side",
        "pad": "values and a border",
        "pick": "the largest of several values comes out",
        "mean": "means of values come out",
        "sample": "values, or means of neighbours, come out",
        "convert": "the values in another type",
        "-": "new values",
    },
    "scale": {
        "nvidia": "input and output have one scale (rule S3), as in NVIDIA's translator",
        "whole": "input and output have one scale (rule S3)",
        "part": "input and output have one scale (rule S3), backward if all readers take parts",
        "nearest": "input and output have one scale (rule S3) if it takes the nearest value",
        "one": "no magnitude above 1 comes out (rule B1)",
        "within": "no magnitude above that of the input comes out; no rule, but --addtl_ops_to_infer_adjacent_scales",
        "-": "no rule of its own by name",
    },
    "sign": {
        "plus": "no negative value comes out",
        "keeps": "no negative value comes out if none comes in",
        "all": "no negative value comes out if none comes in at any input",
        "-": "unknown",
    },
    "ports": {"1": "weights at input 1", "0,1": "weights at either input", "-": "no weights"},
    "dla": {
        "native": "a layer of the DLA, within its limits",
        "rebuild": "not native, but made of native layers by TensorRT's documentation",
        "no": "not native",
        "limited": "native in some forms",
        "-": "no statement",
    },
    "parser": {
        "one": "TensorRT's parser makes one layer with the name of the node",
        "several": "TensorRT's parser makes several layers with the name of the node",
        "bare": "its layers have no float tensor of their own",
        "-": "by a rule of `targets/parser_network.py`, or unknown",
    },
    "since": {"*": "first TensorRT version (major.minor) whose parser has it", "-": "none that is known"},
    "cost": {
        "published": "the cost model has published times for it",
        "moves": "no layer of its own on the DLA",
        "-": "estimated from its bytes",
    },
    "alone": {
        "lifted": "value by value on one tensor: rewrites for the DLA change its shape freely",
        "last": "value by value, changed only in the rewrite for channels at the end",
        "-": "reads several values",
    },
    "traits": {
        "folds": "of constants, it is computed",
        "end": "may stand between the last multiplying layer and a graph output (fact 5.6)",
        "integers": "makes integers or booleans",
        "scaled": "f(a x) = a f(x) for a > 0, channel by channel",
        "swaps": "rounding before or after it is the same if both sides have one scale",
        "-": "none",
    },
}
"""Column -> its values and what they mean. A row may have several values of one column, joined by `+`."""

_TABLE = """
operator           kind        data    scale   sign  ports dla     parser  since cost      alone  traits
Abs                unary       -       within  plus  -     native  one     8.0   -         lifted folds
Acos               unary       -       -       -     -     no      -       8.0   -         -      folds
Acosh              unary       -       -       -     -     no      -       8.0   -         -      folds
Add                elementwise -       -       all   -     native  -       8.0   published -      folds
And                logic       -       -       -     -     rebuild -       8.0   -         -      folds+integers
ArgMax             index       -       -       -     -     -       bare    8.0   -         -      integers
ArgMin             index       -       -       -     -     -       bare    8.0   -         -      integers
Asin               unary       -       -       -     -     no      -       8.0   -         -      folds
Asinh              unary       -       -       -     -     no      -       8.0   -         -      folds
Atan               unary       -       -       -     -     no      -       8.0   -         -      folds
Atanh              unary       -       -       -     -     native  -       8.0   -         -      folds
AveragePool        pooling     mean    -       keeps -     native  -       8.0   published -      scaled
BatchNormalization norm        -       -       -     -     native  -       8.0   -         -      folds
Bernoulli          random      -       -       -     -     -       -       -     -         -      -
BlackmanWindow     other       -       -       -     -     -       -       10.7  -         -      -
Cast               movement    convert whole   keeps -     native  one     8.0   -         -      folds+end
CastLike           movement    convert -       -     -     -       -       10.0  -         -      folds
Ceil               unary       -       -       -     -     no      one     8.0   -         -      folds
Celu               unary       -       -       -     -     no      -       8.0   -         last   -
Clip               activation  -       -       -     -     native  -       8.0   -         lifted folds+end
Concat             movement    join    -       all   -     native  bare    8.0   moves     -      folds+end
Constant           constant    -       -       -     -     -       -       8.0   -         -      folds
ConstantOfShape    shape       -       -       -     -     -       -       8.0   -         -      folds
Conv               convolution -       -       -     1     native  -       8.0   published -      folds
ConvTranspose      convolution -       -       -     1     native  -       8.0   -         -      -
Cos                unary       -       -       -     -     native  one     8.0   -         -      folds
Cosh               unary       -       -       -     -     no      -       8.0   -         -      folds
CumSum             index       -       -       -     -     rebuild -       8.0   -         -      folds
DeformConv         index       -       -       -     -     -       -       10.1  -         -      -
DepthToSpace       movement    permute whole   keeps -     rebuild -       8.0   -         -      folds+swaps
DequantizeLinear   quantizer   -       -       -     -     -       -       8.0   -         -      -
Div                elementwise -       -       -     -     native  -       8.0   -         -      folds
Dropout            movement    drop    whole   keeps -     limited -       8.0   moves     lifted folds+swaps
Einsum             other       -       -       -     -     -       -       8.2   -         -      -
Elu                unary       -       within  -     -     no      one     8.0   -         lifted -
Equal              comparison  -       -       -     -     native  -       8.0   -         -      folds+integers
Erf                unary       -       one     -     -     no      one     8.0   -         lifted -
Exp                unary       -       -       plus  -     no      one     8.0   -         lifted folds
Expand             movement    repeat  whole   keeps -     no      bare    8.0   -         -      folds
EyeLike            constant    -       -       -     -     -       -       8.0   -         -      -
Flatten            movement    view    nvidia  keeps -     no      bare    8.0   -         -      folds+end+swaps
Floor              unary       -       -       -     -     no      one     8.0   -         -      folds
GRU                recurrent   -       -       -     -     rebuild -       8.0   -         -      -
Gather             movement    part    part    keeps -     rebuild bare    8.0   -         -      folds
GatherElements     index       -       -       -     -     rebuild -       8.0   -         -      folds
GatherND           index       -       -       -     -     rebuild -       8.2   -         -      -
Gelu               unary       -       within  -     -     -       -       10.0  -         last   -
Gemm               dense       -       -       -     0,1   native  -       8.0   published -      folds
GlobalAveragePool  global      mean    -       keeps -     no      one     8.0   published -      scaled
GlobalLpPool       global      -       -       -     -     no      -       8.0   -         -      -
GlobalMaxPool      global      pick    within  keeps -     native  one     8.0   -         -      scaled
Greater            comparison  -       -       -     -     native  -       8.0   -         -      folds+integers
GreaterOrEqual     logic       -       -       -     -     no      -       8.0   -         -      folds
GridSample         index       -       -       -     -     -       -       8.5   -         -      -
GroupNormalization norm        -       -       -     -     no      -       8.6   -         -      -
HammingWindow      other       -       -       -     -     -       -       10.7  -         -      -
HannWindow         other       -       -       -     -     -       -       10.7  -         -      -
HardSigmoid        unary       -       one     plus  -     no      one     8.0   -         lifted end
HardSwish          unary       -       -       -     -     no      -       8.4   -         lifted -
Hardmax            softmax     -       -       -     -     -       -       10.0  -         -      -
Identity           movement    same    whole   keeps -     rebuild one     8.0   moves     lifted folds+end+scaled+swaps
If                 control     -       -       -     -     -       -       8.0   -         -      -
ImageScaler        other       -       -       -     -     -       -       8.0   -         -      -
InstanceNormalization norm        -       -       -     -     no      -       8.0   -         -      -
IsInf              logic       -       -       -     -     -       -       8.6   -         -      -
IsNaN              logic       -       -       -     -     -       -       8.2   -         -      -
LRN                norm        -       -       -     -     native  one     8.0   -         -      -
LSTM               recurrent   -       -       -     -     rebuild -       8.0   -         -      -
LayerNormalization layernorm   -       -       -     -     no      -       8.6   -         -      -
LeakyRelu          activation  -       within  -     -     native  one     8.0   -         lifted scaled
Less               comparison  -       -       -     -     native  -       8.0   -         -      folds+integers
LessOrEqual        logic       -       -       -     -     no      -       8.0   -         -      folds
Log                unary       -       -       -     -     no      one     8.0   -         last   folds
LogSoftmax         softmax     -       -       -     -     no      -       8.0   -         -      end
Loop               control     -       -       -     -     -       -       8.0   -         -      -
LpNormalization    norm        -       -       -     -     no      -       8.0   -         -      -
LpPool             other       -       -       -     -     no      -       8.0   -         -      -
MatMul             dense       -       -       -     0,1   native  -       8.0   published -      folds
Max                elementwise -       -       all   -     native  several 8.0   -         -      folds
MaxPool            pooling     pick    nvidia  keeps -     native  -       8.0   published -      scaled+swaps
Mean               binary      -       -       -     -     no      -       8.0   -         -      folds
MeanVarianceNormalization norm        -       -       -     -     -       -       8.5   -         -      -
Min                elementwise -       -       -     -     native  several 8.0   -         -      folds
Mish               unary       -       -       -     -     no      -       10.0  -         last   -
Mod                binary      -       -       -     -     no      -       8.5   -         -      folds
Mul                elementwise -       -       all   -     native  -       8.0   -         -      folds
Multinomial        random      -       -       -     -     -       -       -     -         -      -
Neg                unary       -       within  -     -     rebuild one     8.0   -         lifted folds
NonMaxSuppression  index       -       -       -     -     -       -       8.0   -         -      -
NonZero            shape       -       -       -     -     -       -       8.5   -         -      integers
Not                logic       -       -       -     -     rebuild -       8.0   -         -      folds+integers
OneHot             index       -       -       -     -     -       -       8.5   -         -      -
Or                 logic       -       -       -     -     rebuild -       8.0   -         -      folds+integers
PRelu              activation  -       -       -     -     native  -       8.0   -         -      scaled
Pad                movement    pad     nvidia  -     -     no      -       8.0   -         -      folds+swaps
ParametricSoftplus unary       -       -       -     -     -       -       8.0   -         -      -
Pow                binary      -       -       -     -     limited -       8.0   -         -      folds
QuantizeLinear     quantizer   -       -       -     -     -       -       8.0   -         -      -
RMSNormalization   layernorm   -       -       -     -     no      -       -     -         -      -
RNN                recurrent   -       -       -     -     rebuild -       8.0   -         -      -
RandomNormal       random      -       -       -     -     -       -       8.5   -         -      -
RandomNormalLike   random      -       -       -     -     -       -       8.5   -         -      -
RandomUniform      random      -       -       -     -     -       -       8.0   -         -      -
RandomUniformLike  random      -       -       -     -     -       -       8.0   -         -      -
Range              shape       -       -       -     -     -       -       8.0   -         -      folds
Reciprocal         unary       -       -       -     -     no      one     8.0   -         last   folds
ReduceL1           reduction   -       -       -     -     no      -       8.0   -         -      folds
ReduceL2           reduction   -       -       plus  -     no      -       8.0   -         -      folds
ReduceLogSum       reduction   -       -       -     -     no      -       8.0   -         -      -
ReduceLogSumExp    reduction   -       -       -     -     no      -       8.0   -         -      -
ReduceMax          reduction   pick    within  keeps -     limited bare    8.0   -         -      folds
ReduceMean         reduction   mean    -       keeps -     no      bare    8.0   -         -      folds
ReduceMin          reduction   -       within  -     -     no      bare    8.0   -         -      folds
ReduceProd         reduction   -       -       -     -     no      -       8.0   -         -      folds
ReduceSum          reduction   -       -       keeps -     rebuild bare    8.0   -         -      folds
ReduceSumSquare    reduction   -       -       plus  -     no      -       8.0   -         -      folds
Relu               activation  -       nvidia  plus  -     native  one     8.0   -         lifted folds+end+scaled+swaps
Reshape            movement    view    nvidia  keeps -     native  bare    8.0   -         -      folds+end+swaps
Resize             resize      sample  nearest -     -     native  bare    8.0   -         -      end
ReverseSequence    movement    -       -       -     -     -       -       8.0   -         -      -
RoiAlign           index       -       -       -     -     -       -       8.5   -         -      -
Round              unary       -       -       -     -     no      -       8.2   -         -      folds
STFT               other       -       -       -     -     -       -       10.7  -         -      -
ScaledTanh         unary       -       -       -     -     -       -       8.0   -         -      -
Scan               control     -       -       -     -     -       -       8.0   -         -      -
Scatter            index       -       -       -     -     rebuild -       8.2   -         -      -
ScatterElements    index       -       -       -     -     rebuild -       8.2   -         -      -
ScatterND          index       -       -       -     -     rebuild -       8.2   -         -      folds
Selu               unary       -       -       -     -     no      one     8.0   -         last   -
Shape              shape       -       -       -     -     -       bare    8.0   -         -      folds+integers
Shrink             unary       -       -       -     -     -       -       8.4   -         -      -
Sigmoid            activation  -       one     plus  -     native  one     8.0   -         lifted folds+end
Sign               unary       -       -       -     -     no      -       8.2   -         -      folds
Sin                unary       -       -       -     -     native  one     8.0   -         -      folds
Sinh               unary       -       -       -     -     no      -       8.0   -         -      folds
Size               shape       -       -       -     -     -       -       8.0   -         -      folds+integers
Slice              movement    part    part    keeps -     native  bare    8.0   published -      folds+end
Softmax            softmax     -       one     plus  -     native  -       8.0   -         -      folds+end
Softplus           unary       -       -       plus  -     no      one     8.0   -         lifted -
Softsign           unary       -       -       -     -     no      one     8.0   -         last   -
SpaceToDepth       movement    permute whole   keeps -     rebuild -       8.0   -         -      folds+swaps
Split              movement    part    part    keeps -     native  several+bare 8.0   published -      folds+end
Sqrt               unary       -       -       plus  -     no      one     8.0   -         lifted folds
Squeeze            movement    view    nvidia  keeps -     no      bare    8.0   -         -      folds+end+swaps
Sub                elementwise -       -       -     -     native  -       8.0   -         -      folds
Sum                elementwise -       -       all   -     native  several 8.0   -         -      folds
Tan                unary       -       -       -     -     no      -       8.0   -         -      folds
Tanh               activation  -       one     -     -     native  one     8.0   -         lifted folds+end
ThresholdedRelu    unary       -       within  -     -     -       one     8.0   -         -      -
Tile               movement    repeat  whole   keeps -     no      bare    8.0   -         -      folds
TopK               index       -       -       -     -     -       bare    8.0   -         -      -
Transpose          movement    permute nvidia  keeps -     native  one     8.0   -         -      folds+end+swaps
Trilu              index       -       -       -     -     -       -       8.5   -         -      folds
Unsqueeze          movement    view    whole   keeps -     no      bare    8.0   -         -      folds+end+swaps
Upsample           resize      sample  nearest -     -     native  bare    8.0   -         -      end
Where              binary      -       -       -     -     rebuild -       8.0   -         -      folds
Xor                logic       -       -       -     -     rebuild -       8.4   -         -      folds
"""


def _read() -> dict[str, dict[str, str]]:
    head, *lines = _TABLE.strip().splitlines()
    return {name: dict(zip(head.split()[1:], facts)) for name, *facts in map(str.split, lines)}


OPERATORS: Mapping[str, Mapping[str, str]] = _read()
"""Operator of the ONNX domain -> column -> value."""


def where(**facts: str) -> tuple[str, ...]:
    """Operators, in alphabetical order, that have in each named column one of the values given, separated by spaces:
    `where(data="view part")`. Raises KeyError for a column that does not exist."""
    wanted = {column: set(values.split()) for column, values in facts.items()}
    return tuple(
        name
        for name, row in OPERATORS.items()
        if all(not values.isdisjoint(row[c].split("+")) for c, values in wanted.items())
    )
