"""Rule U1: ranges that the DLA wants equal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from qdq_translator.translator import Translation
from tests.conftest import ZOO, need_shared
from tests.small_models import model, pair, translated

HEAD = "g (float[1,4,8,8] x, float[1,4,8,8] u) => "


def scale(**values: float) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {name: np.float32(value) for name, value in values.items()}
    return {**made, "z": np.int8(0)}


def concat(mode: str, target: str = "orin-dla", **options: object) -> Translation:
    text = HEAD + "(float[1,8,8,8] y) {" + pair("x", "xq", "a") + pair("u", "uq", "b")
    text += "c = Concat <axis=1> (xq, uq)" + pair("c", "cq", "s") + "y = Relu (cq) }"
    explicit = model(text, **scale(a=0.02, b=0.05, s=0.04))
    return translated(explicit, target=target, unify_scales=mode, **options)


def test_max_raises_concat_to_the_largest_and_says_where_it_came_from() -> None:
    made = concat("max")
    largest = float(np.float32(0.05))
    assert made.tensor_scales == {"x": largest, "u": largest, "c": largest}
    origin = made.scales["x"].origin
    assert (origin.rule, origin.source) == ("U1", "u")
    assert origin.note == "raised from 0.02 (rule Q1) by --unify_scales max"
    assert not made.scales["x"].explicit and made.scales["u"].origin.rule == "Q1"
    (shared,) = made.shared_ranges
    assert shared.raised and shared.source == "u" and shared.worst == "x"
    assert shared.bits_lost("x") == pytest.approx(np.log2(2.5)) and shared.bits_lost("u") == 0
    (said,) = made.diagnostics.of_rule("U1")
    assert said.code == "I-U1" and "'x' loses most: 1.3 of 8 bits" in said.message
    assert said.data["ranges"][0]["tensors"][0] == {"tensor": "x", "scale": float(np.float32(0.02)), "bits_lost": 1.322}
    assert made.dla is not None and made.dla.layers[0].verdict == "dla-int8"


def test_warn_changes_nothing_and_lists() -> None:
    made = concat("warn")
    assert [round(value, 3) for value in made.tensor_scales.values()] == [0.02, 0.05, 0.04]
    (said,) = made.diagnostics.of_rule("U1")
    assert said.code == "W-U1" and "--unify_scales max" in said.mend
    assert [row["tensor"] for row in said.data["ranges"][0]["tensors"]] == ["x", "u", "c"]
    assert not made.shared_ranges[0].raised
    assert made.dla is not None and made.dla.layers[0].verdict == "dla-fp16"


@pytest.mark.parametrize("mode, target", [("off", "orin-dla"), ("max", "gpu"), ("warn", "gpu")])
def test_off_and_gpu_targets_leave_scales_alone(mode: str, target: str) -> None:
    made = concat(mode, target)
    told = ["info"] if mode == "max" else []  # an option that does nothing here is not ignored in silence
    assert made.shared_ranges == [] and [d.severity for d in made.diagnostics.of_rule("U1")] == told
    assert round(made.tensor_scales["x"], 3) == 0.02


def test_ranges_are_shared_through_common_tensors() -> None:
    text = HEAD + "(float[1,8,8,8] y) {" + pair("x", "xq", "a") + pair("u", "uq", "b")
    text += "t = Add (xq, uq)" + pair("t", "tq", "s") + "c = Concat <axis=1> (tq, xq)" + pair("c", "cq", "s")
    made = translated(
        model(text + "y = Relu (cq) }", **scale(a=0.02, b=0.05, s=0.01)), target="orin-dla", unify_scales="max"
    )
    assert set(made.tensor_scales.values()) == {float(np.float32(0.05))} and len(made.tensor_scales) == 4
    assert len(made.shared_ranges) == 1 and len(made.shared_ranges[0].nodes) == 2


def test_pooling_wants_equal_ranges() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,7,7] y) {" + pair("x", "xq", "a")
    text += "p = AveragePool <kernel_shape=[2,2]> (xq)" + pair("p", "pq", "b") + "y = Relu (pq) }"
    made = translated(model(text, **scale(a=0.02, b=0.01)), target="orin-dla", unify_scales="max")
    assert made.tensor_scales["p"] == made.tensor_scales["x"] == float(np.float32(0.02))


def test_scales_that_were_handed_on_follow() -> None:
    """A Reshape in front of the Concat must not end between two scales."""
    text = HEAD + "(float[1,8,8,8] y) { f = Reshape (x, r)  t = Transpose <perm=[0,1,2,3]> (f)" + pair("t", "tq", "a")
    text += pair("u", "uq", "b") + "c = Concat <axis=1> (tq, uq)" + pair("c", "cq", "b") + "y = Relu (cq) }"
    explicit = model(text, **scale(a=0.02, b=0.05), r=np.array([1, 4, 8, 8]))
    made = translated(explicit, target="orin-dla", unify_scales="max")
    assert made.tensor_scales["x"] == made.tensor_scales["f"] == made.tensor_scales["t"] == float(np.float32(0.05))


def test_constants_and_unary_scales_are_left_out() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) {" + pair("x", "xq", "a") + "t = Mul (xq, k)"
    text += pair("t", "tq", "b") + "y = Relu (tq) }"
    made = translated(model(text, **scale(a=0.02, b=0.01), k=np.float32(3)), target="orin-dla", unify_scales="max")
    assert made.shared_ranges == []
    path = need_shared(ZOO / "mini" / "resnet18__nvpq13.onnx")
    flags = {"target": "orin-dla", "unify_scales": "max", "add_unary_ew_scales_for_dla": True}
    resnet = translated(onnx.load(path), **flags)
    unary = [name for name, value in resnet.scales.items() if value.origin.rule == "S9"]
    assert len(unary) == 8 and all(resnet.scales[name].value == 1 for name in unary)
    assert max(v.value for v in (resnet.scales[n] for n in resnet.scales) if v.origin.rule != "S9") < 1
