"""The registry of rules, one row each, which all folders read for texts and flags of a rule.

Inference, root causes, shared ranges, `explicit -c`, the terminal, the page, docs/rules.md and the tests all read
this table. The implementation of a rule is in its module; the limits of the DLA have their own table (`targets`).
`python -m tests.renew` writes the tables of docs/rules.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Rule:
    """One rule.

    words: a phrase without a full stop, shown with a scale or a message. what, then: the two columns of its table in
    docs/rules.md (Markdown; `then` may be ''). options: fields of `TranslateOptions` each of which enables it, () if it
    always applies. stated: a scale of this origin comes from the model, not from inference. same_value: the rule passes
    a scale on unchanged, so that both tensors stay on one scale when ranges are shared. marker: the scale is not a range
    (the DLA never applies it). page: where it is described, under docs/.
    """

    id: str
    words: str
    what: str
    then: str = ""
    options: tuple[str, ...] = ()
    stated: bool = False
    same_value: bool = False
    marker: bool = False
    page: str = "rules.md"


_ROWS = (
    # ---------------------------------------------------------------- quantizers
    Rule(
        "Q1",
        "quantizer of the model",
        "activation pair `x -> Q [-> Clip] -> DQ -> y`, per tensor, int8, zero point 0",
        "consumers of `y` read `x`, `x` gets the scale",
        stated=True,
    ),
    Rule(
        "Q2",
        "quantized float weight",
        "float weight `const -> Q [-> Clip] -> DQ`, per tensor or per channel, any axis",
        "one initializer with the baked weights",
    ),
    Rule("Q3", "int8 weight", "int8 weight `const -> DQ`", "the same"),
    Rule("Q4", "quantized bias", "bias `const int32 -> DQ`", "its float value"),
    Rule(
        "Q5",
        "layout operators behind a constant",
        "layout operators behind a constant's DQ (`Reshape`, `Transpose`, ...)",
        "folded into the initializer",
    ),
    Rule(
        "Q6",
        "quantized graph input",
        "int8 graph input `-> DQ`",
        "the input becomes float under its own name and gets the scale",
        stated=True,
    ),
    Rule(
        "Q7",
        "quantized graph output",
        "quantized graph output, int8 or behind a DQ",
        "the output keeps its name, becomes float, gets the scale",
        stated=True,
    ),
    Rule(
        "Q8",
        "pairs in series",
        "pairs in series",
        "one quantizer: equal scales count once, of different ones the smallest is used (`I-Q8`)",
        stated=True,
    ),
    Rule(
        "Q9",
        "clamping pair",
        "a pair that clamps: uint8 with zero point 0, `Clip(0, 127)` between Q and DQ, fewer than 8 bits",
        "the clamp stays as Relu or Clip, unless the preceding values cannot exceed it",
        stated=True,
    ),
    Rule(
        "Q10",
        "data movement between Q and DQ",
        "data movement between Q and DQ (`Transpose`, `MaxPool`, ...)",
        "works on float values; both sides have the scale",
        stated=True,
    ),
    Rule(
        "Q11",
        "quantized constant that is not a weight",
        "quantized constants that are not weights",
        "replaced by their dequantized value",
    ),
    Rule(
        "Q12",
        "half precision",
        "half precision models",
        "become float32 (F9); scales in float32, computed in float32 or wider",
    ),
    Rule(
        "Q13",
        "other quantized form",
        "other quantized forms: operators on quantized values (QOperator), arithmetic fake quantization, quantizers of other "
        "domains ([dialects.md](dialects.md))",
        "converted into Q/DQ form first (`I-Q13`); an operator of an unknown domain with `Quant` in its name is refused",
    ),
    Rule(
        "Q14",
        "scales in a file",
        "scales in a separate file for a float model, `--scales FILE` ([dialects.md](dialects.md#scales-in-a-separate-file))",
        "become Q/DQ pairs on the tensors that it names; names without a tensor are reported (`W-Q14`), and the share that is covered "
        "(`I-Q14`)",
    ),
    # ---------------------------------------------------------------- weights
    Rule(
        "W1",
        "trained quantized weights",
        "Weights are baked: `quantized value * scale`, -128 saturated to -127. TensorRT's own rule (per output channel `max|w| / 127`, "
        "round) is then run on the final weights, and its values are compared with the trained ones. If a channel's "
        "codes reach +-127 they are all reproduced. A MatMul on more than two dimensions has one scale for its weight (fact "
        "5.2), so one that was trained with a scale a column works on matrices between two Reshapes (`I-W1`).",
    ),
    Rule("W2", "float weights kept", "`--weights float` keeps the exporter's float weights instead."),
    Rule(
        "W3",
        "weight scales by maximum",
        "With `--calibration_type max`, weight scales that are not `max|w| / 127` are reported.",
    ),
    # ---------------------------------------------------------------- folding
    Rule(
        "F1",
        "BatchNormalization folded",
        "BatchNormalization into Conv, ConvTranspose, Gemm, MatMul; the folded node's output has the BN's output name. Not "
        "if the first output is read elsewhere, is a graph output, or has a scale of its own.",
    ),
    Rule("F2", "Pad folded", "Constant `Pad` into Conv, AveragePool, MaxPool, if the result is equal for every input."),
    Rule(
        "F3",
        "constants and dead nodes",
        "`Constant` nodes, constant expressions and arithmetic on known sizes become initializers; dead nodes, unused "
        "initializers, and shapes in the file that contradict the network are removed.",
    ),
    Rule(
        "F4",
        "folded by onnxoptimizer",
        "`--graph_optimizer onnxoptimizer`: F1 to F3 by that package (0.3.2, Python 3.9 and below); equal results.",
    ),
    Rule("F5", "tensors named after nodes", "`--rename_node_outputs`: every tensor is called like its node."),
    Rule(
        "F6",
        "fitted to TensorRT's parser",
        "Requirements of TensorRT's parser: weights as initializers, `kernel_shape`, opset 17 at most for 8.x, unique layer names "
        "without `,` `'` `*`, no collisions with names that the parser generates; an error if a node cannot be imported.",
    ),
    Rule(
        "F8",
        "normal form for TensorRT's parser",
        "Operators for which TensorRT's parser adds layers or tensors are rewritten so that it adds none: a Gemm without "
        "factors, its bias as an Add; constant operands of full rank; Clip with both limits; no empty inputs at the end; Sum, "
        "Max and Min of two inputs; HardSwish, Mish, Celu and a quantized LogSoftmax in parts; one-dimensional layers with a "
        "second dimension of 1; DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape (not on a DLA); "
        "LayerNormalization in parts for TensorRT 8.5. Tensors keep their names; new ones get scales from their neighbours.",
    ),
    Rule(
        "F7",
        "changes nothing",
        "Nodes without effect are removed, on every target: Cast to the same type, Identity, Dropout, Reshape, "
        "Transpose, Slice, Pad, Expand, Concat, Split and similar ones that pass all values on unchanged, Mul and Div by 1, Add and "
        "Sub of 0. Graph outputs and tensors with scales keep their names. Not between two different scales (a "
        "requantization).",
    ),
    Rule(
        "F9",
        "float32 instead of half precision",
        "A network in float16 or bfloat16 becomes one in float32: weights exactly, Casts between float types are removed. Graph inputs "
        "and outputs keep their types, with a Cast. float64, which TensorRT does not have, is rounded.",
    ),
    Rule(
        "F10",
        "Slice indices in INT32",
        "For TensorRT 10 and later a Slice with constant indices has starts, ends, axes and steps in INT32: for INT64 its parser "
        "computes start and size in 26 integer layers.",
    ),
    Rule(
        "F11",
        "rewritten for TensorRT's parser",
        "A form that TensorRT's parser refuses is replaced with an equivalent one: unused outputs of MaxPool, "
        "capitals in Einsum, modes of Resize and GridSample that are equivalent to an older one, GroupNormalization for 8.x. "
        "Without an equivalent form, an error names the node and the remedy.",
    ),
    Rule(
        "F12",
        "steps of new tensors",
        "A Clip whose bounds lie outside the range of its input (with `--calibrate` outside twice the range of the data) is removed. The "
        "rounding of tensors that rewrites for the DLA made may cost a result 12 dB against the rounding of what the rewrite reads and "
        "of the result itself, computed from ranges alone. A tensor that costs more gets no scale and is FP16; a rewrite that loses more "
        "in FP16 too, or can leave its range, is left out with that reason.",
    ),
    # ---------------------------------------------------------------- scale inference
    Rule(
        "S1",
        "explicit scales are never changed",
        "nothing: explicit scales are never changed, the first rule that gives one wins",
        "always",
    ),
    Rule("S2", "no scale by inference", "nothing to graph outputs, constants, integers", "always"),
    Rule(
        "S3",
        "passed on by data movement, Relu, Clip or pooling",
        "input and output the same scale: MaxPool, Flatten, Relu, Pad, Transpose, Reshape, Squeeze, Unsqueeze, Identity, "
        "Dropout, Expand, Tile, Cast between float types, DepthToSpace, SpaceToDepth, nearest Resize; forward through Slice, "
        "Split, Gather; Clip: forward the narrower range, backward the output's scale",
        "always; more with `--addtl_ops_to_infer_adjacent_scales`",
        same_value=True,
    ),
    Rule("S4", "to a fixed point", "forward, then backward, until nothing changes", "always"),
    Rule(
        "S5",
        "around Sigmoid",
        "Sigmoid output 1/127 before a Mul; backward, with `--inference reference` alone, "
        "`amax_in = log(amax_out / (1 - amax_out))` for `0.5 < amax_out < 1`",
        "`--infer_mul_scales`",
        options=("infer_mul_scales",),
    ),
    Rule(
        "S6",
        "through average pooling",
        "the output of average pools and spatial means the input's scale; backward, which can only clip, with "
        "`--inference reference` alone",
        "`--infer_average_pool_scales`",
        options=("infer_average_pool_scales",),
        same_value=True,
    ),
    Rule(
        "S7",
        "around Concat",
        "Concat: output the largest input scale, missing inputs the output's; if some inputs remain without a scale, the largest "
        "known one, last (`W-S7`)",
        "`--infer_concat_scales`",
        options=("infer_concat_scales",),
        same_value=True,
    ),
    Rule(
        "S8",
        "around Mul",
        "Mul: forward `amax_out = amax_a * amax_b`; SiLU (`x * sigmoid(x)`), Swish, HardSwish, GELU and a constant of one magnitude both "
        "ways, exactly; backward through other products with `--inference reference` alone",
        "`--infer_mul_scales`",
        options=("infer_mul_scales",),
    ),
    Rule(
        "K1",
        "observed on data",
        "tensors that the exact rules leave without a scale are observed on the user's inputs, except inside a decomposed "
        "LayerNormalization; on a DLA, tensors that must share a range together",
        "`--calibrate`",
    ),
    Rule(
        "K2",
        "recalibrated",
        "a scale of the model is replaced by one from the data, an exception to rule S1",
        "`--recalibrate`",
    ),
    Rule(
        "S9",
        "unary 1.0 between Conv and Add",
        "1.0 to a Conv output before a two-input Add whose other input has a real scale",
        "`--add_unary_ew_scales_for_dla`",
        options=("add_unary_ew_scales_for_dla",),
        marker=True,
    ),
    Rule(
        "S11",
        "around Add and Sub",
        "Add, Sub, Sum: forward the sum of the inputs' ranges, backward `amax_out` plus the other inputs' ranges; constants "
        "count; not if an activation would become 0 on the scale of the sum",
        "`--infer_add_scales`",
        options=("infer_add_scales",),
    ),
    Rule(
        "S12",
        "around LeakyRelu",
        "LeakyRelu and PRelu with slopes up to 1: the input that nothing else reads gets the output's range, exact above 0, and the "
        "output the input's",
        "`--infer_mul_scales`",
        options=("infer_mul_scales",),
    ),
    Rule(
        "B1",
        "bound of the operator",
        "the bound of the operator: 1 for Sigmoid, HardSigmoid, Softmax, Tanh, Erf; the larger bound of Clip",
        "`--infer_bounds`",
        options=("infer_bounds",),
    ),
    Rule(
        "S10",
        "tensor of TensorRT's own network",
        "tensors that only TensorRT's own network has, if the parser's name for them is certain",
        "8.5, 8.6 or 10.x known, not `--no_auto_names`",
    ),
    Rule(
        "U1",
        "raised to a shared range",
        "equal ranges if a DLA requires them: Concat, element-wise, pooling",
        "`--unify_scales max` on a DLA target",
    ),
    # ---------------------------------------------------------------- conflicts
    Rule(
        "C1",
        "conflicting scales",
        "a tensor is quantized with different scales (`W-C1`)",
        "`--on_conflict max` (default) keeps the range, `min` the resolution, `first` the first in the graph, `error` stops. "
        "Better: share the quantizer in the model.",
    ),
    Rule(
        "C2",
        "quantized for some consumers, float for others",
        "a tensor is quantized for some consumers and read as float by others (`I-C2`)",
        "In implicit mode one scale applies to all consumers; check with `verify --per_layer` if that float branch was meant to "
        "be precise.",
    ),
    Rule(
        "C3",
        "a Concat scale that makes an input 0",
        "the model quantizes a Concat with a step of more than twice the largest value of one of its inputs, so this input becomes "
        "0 (`W-C3`): scores joined with box coordinates in a quantized decode tail",
        "Quantize without the tail (`qdq-translator split -i` finds its nodes).",
    ),
    # ---------------------------------------------------------------- annotations
    Rule(
        "A1",
        "annotated",
        "`--annotate` writes precision, device, the scales of what a node makes and the reason into the metadata of nodes, and "
        "scales into those of tensors, under keys that begin with `qdq.`. A model below IR version 10 has no place for them: "
        "the annotated one is `NAME_annotated.onnx`, of IR version 10 (`I-A1`).",
        "Open that one in Netron, and give `NAME_noqdq.onnx` to TensorRT.",
    ),
    # ---------------------------------------------------------------- rewrites for the DLA
    *(
        Rule(identity, "rewrite for the DLA", what, page="dla_rules.md")
        for identity, what in (
            ("D0", "what is still left for the GPU, or that the target has no DLA"),
            ("D1", "shape arithmetic and constant expressions become constants"),
            ("D2", "nodes without effect after D1 are removed (as by F7)"),
            ("D3", "Conv (with its activation) before a channel Split or Slice becomes one Conv a part"),
            (
                "D4",
                "means and sums over H and W or over channels become Convs of equal weights, or AveragePool",
            ),
            (
                "D5",
                "Gemm and MatMul with constant weights become 1x1 Conv, with the layers around them, on [N, C, 1, 1]",
            ),
            (
                "D6",
                "Flatten, Squeeze and Unsqueeze become Reshape; a constant between two Reshapes of many dimensions works without them",
            ),
            (
                "D7",
                "HardSigmoid, HardSwish, Clip, Mish, Softsign, Elu, Selu and Gelu by Tanh become layers that the DLA has",
            ),
            ("D8", "one-dimensional layers, and what is around them, work on [N, C, L, 1]"),
            ("D9", "Neg, Div by a constant, Mean, and nodes that only change the scale become a Scale"),
            ("D10", "Pad with zeros becomes a Conv that copies (depthwise for H and W, 1x1 for channels)"),
            ("D11", "DepthToSpace and SpaceToDepth become a deconvolution and a convolution that copy"),
            (
                "D12",
                "Resize becomes Resize by integer factors in a mode that the DLA has, or linear poolings",
            ),
            ("D13", "Conv with different or too large padding gets a larger kernel"),
            ("D14", "AveragePool without its padding (Xavier) becomes one with it and a product"),
            ("D15", "MaxPool with a window above 8, ReduceMax and ReduceMin become poolings in a row"),
            ("D16", "Reshape before a graph output is removed (--dla_output 4d)"),
            (
                "D17",
                "Reshapes and Transposes in a row become what they come to: nothing, one of them, or a Conv that copies",
            ),
            ("D18", "linear layers over the last axis, and what is around them, work on [N, C, H, W]"),
            (
                "D19",
                "Pow, Reciprocal, Sqrt and Where with a constant condition become products, quotients, sums and powers",
            ),
            ("D20", "Expand, Tile and Concat over rows or columns become Resize, Conv that copies, Concat of channels"),
            ("D21", "ConvTranspose with padding, groups or dilation becomes one without, and a Slice"),
            ("D22", "Erf and Gelu become Tanh of a cubic, less than 0.0005 off (--dla_rewrites approximate)"),
            ("D23", "Resize, Pad, Tile and CumSum along H, W or the channels become 1x1 Convs with a constant matrix"),
            ("D24", "Conv with a stride above 8 or a kernel above 32 works on blocks, or becomes two"),
        )
    ),
)

RULES = {row.id: row for row in _ROWS}
"""Rule number -> its row, in the order of the documentation."""

STATED = frozenset(row.id for row in _ROWS if row.stated)
"""Origins that the exporter's model states itself; all other scales were inferred."""
SAME_VALUE = frozenset(row.id for row in _ROWS if row.same_value)
MARKERS = frozenset(row.id for row in _ROWS if row.marker)


def words(rule: str) -> str:
    """The phrase of a rule; '' for an unknown one (from another version's file)."""
    return RULES[rule].words if rule in RULES else ""


def inference_options(markers: bool) -> dict[str, Any]:
    """The fields of `TranslateOptions` that enable all rules of scale inference; `markers`: also those that give a marker."""
    fields = (field for row in _ROWS if markers or not row.marker for field in row.options)
    return dict.fromkeys(sorted(set(fields)), True)


def docs_page(name: str) -> Path:
    """Where a page of docs/ is: in the package where it was installed from a wheel, else in the checkout."""
    shipped = Path(__file__).parents[1] / "docs" / name
    return shipped if shipped.is_file() else Path(__file__).parents[2] / "docs" / name
