"""The registry of rules, one row each, which all folders read for the words and flags of a rule.

Inference, root causes, shared ranges, `explicit -c`, the terminal, the page and the tests all read this table. The
implementation of a rule is in its module, its description in a row of docs/rules.md, which `explain` reads; the limits
of the DLA have their own table (`targets`).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Rule:
    """One rule.

    words: a phrase without a full stop, shown with a scale or a message. options: fields of `TranslateOptions` each of
    which enables it, () if it always applies. stated: a scale of this origin comes from the model, not from inference.
    same_value: the rule passes a scale on unchanged, so that both tensors stay on one scale when ranges are shared.
    marker: the scale is not a range (the DLA never applies it). what: a rewrite for the DLA in a sentence of a message.
    page: its description, under docs/.
    """

    id: str
    words: str
    options: tuple[str, ...] = ()
    stated: bool = False
    same_value: bool = False
    marker: bool = False
    what: str = ""
    page: str = "rules.md"


_REWRITES = {
    "D0": "what is still left for the GPU and why (rule R1), or that the target has no DLA",
    "D1": "shape arithmetic and constant expressions become constants",
    "D2": "nodes without effect after D1 are removed (as by F7)",
    "D3": "Conv (with its activation) before a channel Split or Slice becomes one Conv a part",
    "D4": "means and sums over H and W or over channels become Convs of equal weights, or AveragePool",
    "D5": "Gemm and MatMul with constant weights become 1x1 Conv, with the layers around them, on [N, C, 1, 1]",
    "D6": (
        "Flatten, Squeeze and Unsqueeze become Reshape; a constant between two Reshapes of many dimensions works "
        "without them"
    ),
    "D7": "HardSigmoid, HardSwish, Clip, Min, Mish, Softsign, Elu, Selu and Gelu by Tanh become layers of the DLA",
    "D9": "Neg, Div by a constant, Mean, and nodes that only change the scale become a Scale",
    "D11": "DepthToSpace and SpaceToDepth become a deconvolution and a convolution that copy",
    "D13": "Conv with different or too large padding gets a larger kernel",
    "D14": "AveragePool without its padding (Xavier) becomes one with it and a product",
    "D15": "MaxPool with a window above 8, ReduceMax and ReduceMin become poolings in a row",
    "D16": "Reshape at a graph input or output is removed (--dla_output 4d)",
    "D17": "Reshapes and Transposes in a row become what they come to: nothing, one of them, or a Conv that copies",
    "D18": "linear layers over the last axis, and what is around them, work on [N, C, H, W]",
    "D19": "Pow, Reciprocal, Sqrt, Where and step functions become products, quotients, comparisons and sums",
    "D21": "ConvTranspose with padding, groups or dilation becomes one without, and a Slice",
    "D22": "Erf and Gelu become Tanh of a cubic, less than 0.0005 off (--dla_rewrites approximate)",
    "D23": (
        "Resize, Pad, Expand, Tile, CumSum and Concat along H, W or channels become Resize, poolings, "
        "Convs and Concat of channels"
    ),
    "D24": "Conv with a stride above 8 works on blocks of its input",
    "D25": "tensors of five dimensions, as in split attention, work on four",
    "D26": "one-dimensional layers, and what is around them, work on [N, C, L, 1]",
    "D27": "Conv beyond a limit of kernel, dilation or buffer gets a smaller kernel, or becomes parts and their sum",
    "D28": "LSTM, GRU and RNN of a few steps become the layers of the steps",
    "D29": "normalizations become means, products and a power (--assume pow)",
}
_ROWS = (
    # ---------------------------------------------------------------- quantizers
    Rule("Q1", "quantizer of the model", stated=True),
    Rule("Q2", "quantized float weight"),
    Rule("Q3", "int8 weight"),
    Rule("Q4", "quantized bias"),
    Rule("Q5", "layout operators behind a constant"),
    Rule("Q6", "quantized graph input", stated=True),
    Rule("Q7", "quantized graph output", stated=True),
    Rule("Q8", "pairs in series", stated=True),
    Rule("Q9", "clamping pair", stated=True),
    Rule("Q10", "data movement between Q and DQ", stated=True),
    Rule("Q11", "quantized constant that is not a weight"),
    Rule("Q12", "half precision"),
    Rule("Q13", "other quantized form"),
    Rule("Q14", "scales in a file"),
    # ---------------------------------------------------------------- weights
    Rule("W1", "trained quantized weights"),
    Rule("W2", "float weights kept"),
    Rule("W3", "weight scales by maximum"),
    # ---------------------------------------------------------------- folding
    Rule("F1", "BatchNormalization folded"),
    Rule("F2", "Pad folded"),
    Rule("F3", "constants and dead nodes"),
    Rule("F4", "folded by onnxoptimizer"),
    Rule("F5", "tensors named after nodes"),
    Rule("F6", "fitted to TensorRT's parser"),
    Rule("F8", "normal form for TensorRT's parser"),
    Rule("F7", "changes nothing"),
    Rule("F9", "float32 instead of half precision"),
    Rule("F10", "Slice indices in INT32"),
    Rule("F11", "rewritten for TensorRT's parser"),
    Rule("F12", "steps of new tensors"),
    # ---------------------------------------------------------------- scale inference
    Rule("S1", "explicit scales are never changed"),
    Rule("S2", "no scale by inference"),
    Rule("S3", "passed on by data movement, Relu, Clip or pooling", same_value=True),
    Rule("S4", "to a fixed point"),
    Rule("S5", "around Sigmoid", options=("infer_mul_scales",)),
    Rule("S6", "through average pooling", options=("infer_average_pool_scales",), same_value=True),
    Rule("S7", "around Concat", options=("infer_concat_scales",), same_value=True),
    Rule("S8", "around Mul", options=("infer_mul_scales",)),
    Rule("K1", "observed on data"),
    Rule("K2", "recalibrated"),
    Rule("S9", "unary 1.0 between Conv and Add", options=("add_unary_ew_scales_for_dla",), marker=True),
    Rule("S11", "around Add and Sub", options=("infer_add_scales",)),
    Rule("S12", "around LeakyRelu", options=("infer_mul_scales",)),
    Rule("S13", "before a saturating function", options=("infer_bounds",)),
    Rule("S14", "compared with the data"),
    Rule("B1", "bound of the operator", options=("infer_bounds",)),
    Rule("S10", "tensor of TensorRT's own network"),
    Rule("U1", "raised to a shared range"),
    Rule("P1", "FP16 around a LayerNormalization"),
    Rule("P2", "FP32 where FP16 cannot hold the values"),
    Rule("V1", "the function of the model, checked by running it"),
    # ---------------------------------------------------------------- conflicts
    Rule("C1", "conflicting scales"),
    Rule("C2", "quantized for some consumers, float for others"),
    Rule("C3", "a Concat scale that makes an input 0"),
    # ---------------------------------------------------------------- annotations
    Rule("A1", "annotated"),
    # ---------------------------------------------------------------- rewrites for the DLA
    *(
        Rule(identity, "rewrite for the DLA", same_value=True, what=what, page="dla_rules.md")
        for identity, what in _REWRITES.items()
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


@functools.lru_cache(maxsize=None)
def _page(name: str) -> str:
    return docs_page(name).read_text(encoding="utf-8")


def described(rule: str) -> list[str]:
    """The description of a rule: the cells of its row in docs/rules.md (Markdown), or the sentence of a rewrite for the
    DLA."""
    row = RULES[rule]
    if row.what:
        return [row.what]
    cells = re.search(rf"^\| {rule} \| (.*) \|$", _page(row.page), re.M)
    return [cell.replace(r"\|", "|") for cell in cells[1].split(" | ")] if cells else []


def inference_options(markers: bool) -> dict[str, Any]:
    """The fields of `TranslateOptions` that enable all rules of scale inference; `markers`: also those that give a
    marker.
    """
    fields = (field for row in _ROWS if markers or not row.marker for field in row.options)
    return dict.fromkeys(sorted(set(fields)), True)


def docs_page(name: str) -> Path:
    """Path of a page of docs/: in the package if installed from a wheel, else in the checkout."""
    shipped = Path(__file__).parents[1] / "docs" / name
    return shipped if shipped.is_file() else Path(__file__).parents[2] / "docs" / name
