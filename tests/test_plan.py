"""The precision plan: INT8 or not and why, what is listed, what is expected, MACs and weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.translation.targets.precision import LayerPlan
from qdq_translator.translation.translator import Translation
from tests.conftest import ZOO, need_shared, zoo_paths
from tests.small_models import model, pair, translated


def by_op(made: Translation) -> dict[str, LayerPlan]:
    return {layer.op: layer for layer in made.plan}


def conv_weights(channels: int = 4) -> dict[str, np.ndarray]:
    return {"w": np.ones((channels, channels, 3, 3), np.float32), "s": np.float32(0.05), "z": np.int8(0)}


def test_int8_wants_a_scale_on_every_input_and_output() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,6,6] y) {" + pair("x", "xq") + "c = Conv (xq, w)" + pair("c", "cq")
    made = translated(model(text + "y = Relu (cq) }", **conv_weights()))
    conv, relu = by_op(made)["Conv"], by_op(made)["Relu"]
    assert (conv.precision, conv.reason) == ("int8", "every input and output has a scale")
    assert (relu.precision, relu.by_design, relu.listed, relu.missing) == ("fp16", True, False, ("y",))
    assert relu.reason == "makes the graph output 'y', which has no scale of its own and stays float (rule S2)"
    assert made.fp16_nodes == []


def test_consumers_of_a_tensor_without_scale_are_listed() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,4,4] y) {" + pair("x", "xq") + "c = Conv (xq, w)  e = Elu (c)"
    text += pair("e", "eq") + "y = Conv (eq, w) }"
    made = translated(model(text, **conv_weights()))
    first, elu, last = made.plan
    assert (first.precision, first.listed, first.missing) == ("fp16", False, ("c",))
    assert (elu.precision, elu.listed) == ("fp16", True)
    assert (last.by_design, last.avoidable, first.avoidable, elu.avoidable) == (True, False, True, True)
    assert made.fp16_nodes == [elu.name]
    assert first.reason.startswith("output 'c' has no scale; rule S3 at ")
    assert first.cure == elu.cure == "translate with --addtl_ops_to_infer_adjacent_scales Elu"
    assert first.cause == elu.cause == "c"


def test_layers_that_only_lead_to_a_graph_output_are_expected() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,144] y) {" + pair("x", "xq") + "c = Conv (xq, w)  a = Sigmoid (c)"
    made = translated(model(text + "y = Reshape (a, r) }", **conv_weights(), r=np.array([1, 144])))
    assert [(layer.op, layer.by_design) for layer in made.plan] == [
        ("Conv", True),
        ("Sigmoid", True),
        ("Reshape", True),
    ]
    assert by_op(made)["Conv"].reason.startswith("only leads to the graph output 'y'")
    assert made.causes.causes == []
    assert made.fp16_nodes == [layer.name for layer in made.plan if layer.op != "Conv"]


@pytest.mark.parametrize(
    "tail",
    [
        'y = Resize <mode = "linear"> (c, , f)',
        "y = Softmax <axis = 1> (c)",
        "y = Tanh (c)",
        "y = HardSigmoid (c)",
        "y = Clip (c)",
        "t = Transpose (c)  y = Transpose (t)",
    ],
)
def test_what_may_stand_between_the_last_product_and_the_output(tail: str) -> None:
    """Fact 5.6."""
    text = "g (float[1,4,8,8] x) => (float[n,k,h,w] y) {" + pair("x", "xq") + f"c = Conv (xq, w)  {tail} }}"
    made = translated(model(text, **conv_weights(), f=np.array([1, 1, 2, 2], np.float32)))
    assert all(layer.by_design and not layer.avoidable for layer in made.plan) and made.causes.causes == []


def test_what_computes_may_not() -> None:
    text = "g (float[1,4,8,8] x) => (float[n,k,h,w] y) {" + pair("x", "xq") + "c = Conv (xq, w)  y = Exp (c) }"
    conv, exp = translated(model(text, **conv_weights())).plan
    assert conv.avoidable and exp.listed


def test_shape_arithmetic_has_no_precision() -> None:
    text = (
        "g (float[1,4,h,8] x) => (float[1,h,4,8] y) {"
        + pair("x", "xq")
        + "t = Shape (xq)  u = Gather (t, k)  r = Reshape (xq, u)"
    )
    made = translated(model(text + pair("r", "rq") + "y = Relu (rq) }", **conv_weights(), k=np.array([0, 2, 1, 3])))
    assert by_op(made)["Shape"].precision == "none"
    assert made.fp16_nodes == []
    assert made.report["coverage"]["layers"] == {
        "total": 2, "int8": 1, "by_design": 1, "limit": 0, "avoidable": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    "node, sizes, out, arrays, macs, weights",
    [
        ("Conv <strides=[2,2]> (x, w)", "1,4,9,9", "1,8,4,4", (8, 4, 3, 3), 16 * 8 * 36, 288),
        ("Conv <group=4> (x, w)", "1,4,8,8", "1,4,6,6", (4, 1, 3, 3), 36 * 4 * 9, 36),
        ("ConvTranspose <strides=[2,2]> (x, w)", "1,4,8,8", "1,6,16,16", (4, 6, 2, 2), 256 * 24, 96),
        ("Gemm <transB=1> (x, w)", "2,5", "2,3", (3, 5), 30, 15),
        ("MatMul (x, w)", "2,7,5", "2,7,3", (5, 3), 210, 15),
        ("Conv (x, w)", "n,4,8,8", "n,4,6,6", (4, 4, 3, 3), 36 * 4 * 36, 144),
    ],
)
def test_macs_and_weights(node: str, sizes: str, out: str, arrays: tuple[int, ...], macs: int, weights: int) -> None:
    text = f"g (float[{sizes}] x) => (float[{out}] y) {{" + pair("x", "xq") + f"y = {node.replace('x,', 'xq,')} }}"
    made = translated(model(text, w=np.ones(arrays, np.float32), s=np.float32(0.05), z=np.int8(0)))
    assert (made.plan[0].macs, made.plan[0].weights) == (macs, weights)


DYNAMIC = "g (float[n,4,h,h] x) => (float[n,4,i,i] y) {" + pair("x", "xq") + "y = Conv (xq, w) }"


def test_dynamic_sizes_are_unknown_until_shapes_are_given() -> None:
    unknown = translated(model(DYNAMIC, **conv_weights()))
    assert unknown.plan[0].macs is None
    assert unknown.report["coverage"]["macs"] == {
        "total": None, "int8": None, "by_design": None, "limit": None, "avoidable": None, "unknown_layers": 1
    }  # fmt: skip
    known = translated(model(DYNAMIC, **conv_weights()), shapes=["x:2x4x8x8"])
    assert known.plan[0].macs == 2 * 36 * 4 * 36


def test_shapes_behind_shape_arithmetic_are_known() -> None:
    """Half of the channels, computed as exporters write it: Shape, Gather, Add, Div, Slice."""
    text = "g (float[1,4,8,8] x) => (float[1,2,6,6] y) {" + pair("x", "xq")
    text += """t = Shape (xq)  n = Gather <axis=0> (t, one)  m = Add (n, one)  h = Div (m, two)  p = Mul (h, one)
      c = Slice (xq, zero, p, one)  y = Conv (c, w) }"""
    integers = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    made = translated(model(text, **{**conv_weights(2), **integers}))
    assert made.types.static_shape("c") == (1, 2, 8, 8)
    assert made.plan[-1].macs == 36 * 2 * 18


def test_shares_of_the_plan_add_up() -> None:
    path = need_shared(ZOO / "mini" / "yolov5n__nvpq13.onnx")
    report = translate(str(path)).report
    assert sum(row["macs_share"] for row in report["plan"]) == pytest.approx(1)
    layers = report["coverage"]["layers"]
    assert (
        layers["int8"] + layers["by_design"] + layers["limit"] + layers["avoidable"] == layers["total"] == 200
    )  # one is the saturation before a layer in FP16 (rule Q9)
    assert [row["name"] for row in report["plan"] if row["by_design"]] == [
        "/heads.0/Conv",
        "/heads.1/Conv",
        "/heads.2/Conv",
    ]


@pytest.mark.parametrize("path", zoo_paths("mini/*__nvpq13.onnx"), ids=lambda path: path.stem)
def test_every_avoidable_layer_of_the_zoo_has_a_cause_and_a_cure(path: Path) -> None:
    made = translate(onnx.load(need_shared(path)), TranslateOptions())
    avoidable = [layer for layer in made.plan if layer.avoidable]
    causes = {cause.tensor for cause in made.causes.causes}
    for layer in avoidable:
        assert layer.cause in causes and layer.cure and "; " in layer.reason
    assert made.fp16_nodes == [
        layer.name for layer in made.plan
        if layer.precision == "fp16" and any(t not in made.scales for t in layer.inputs)
    ]  # fmt: skip
