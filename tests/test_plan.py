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
