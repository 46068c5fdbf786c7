"""Which layers compute in INT8 and which tensors are rounded: every rule of `placement`, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.layer_precisions import fp16_layers
from qdq_translator.lab.laboratory import translate
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.planning.placement import Placement, by_device, place
from qdq_translator.translation.targets.precision import FP16, INT8
from tests.small_models import model

CONV = np.ones((2, 2, 1, 1), np.float32)


def placed(text: str, scales: dict[str, float], *named: str, **options: Any) -> Placement:
    constants = {name: value for name, value in (("w", CONV), ("b", np.ones((1, 2, 1, 1), np.float32))) if name in text}
    graph = Graph.from_model(model(text, **constants))
    return place(graph, TensorTypes(graph), scales, fp16_layers(named), **options)


CHAIN = "net (float[1,2,4,4] x) => (float[1,2,4,4] y) { [one] a = Neg(x) [two] c = Abs(a) [end] y = Neg(c) }"


def test_a_layer_needs_a_scale_on_every_input_and_output() -> None:
    found = placed(CHAIN, {"x": 0.1, "a": 0.1})
    assert found.int8 == {"one"} and found.higher == {"two", "end"}
    assert found.held == {"x": 0.1} and found.stay_float == ("a",)  # only `two`, which is above INT8, reads it
    assert placed(CHAIN, {"x": 0.1, "a": 0.1}, explicit=True).int8 == {"one", "two"}
    assert placed(CHAIN, {"x": 0.1, "a": 0.0, "c": 0.1}).int8 == frozenset()  # not a usable scale


def test_a_graph_output_is_rounded_where_its_producer_is_int8() -> None:
    scales = dict.fromkeys("xacy", 0.1)
    assert list(placed(CHAIN, scales).held) == ["x", "a", "c", "y"]
    assert list(placed(CHAIN, scales, "end").held) == ["x", "a"]
    assert list(placed(CHAIN, scales, "end", explicit=True).held) == ["x", "a", "y"]


FORK = """net (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z) {
    [first] a = Neg(x) [left] l = Abs(a) [right] r = Neg(a) [shape] s = Shape(a) [e1] y = Abs(l) [e2] z = Abs(r) }"""


def test_a_tensor_is_free_when_every_reader_is_above_int8() -> None:
    scales = dict.fromkeys("xalr", 0.1)
    assert "a" in placed(FORK, scales).held and "a" in placed(FORK, scales, "left").held
    assert placed(FORK, scales, "left", "right").stay_float == ("a", "l", "r")
    without = dict.fromkeys("xal", 0.1)  # `right` is above INT8 already
    assert "a" in placed(FORK, without, "left").stay_float and "a" in placed(FORK, without).held


MOVED = """net (float[1,2,4,4] x) => (float[1,2,4,4] y) {
    [first] a = Neg(x) [relu] r = Relu(a) [pool] p = MaxPool<kernel_shape=[1,1]>(r) [last] q = Abs(p) [end] y = Neg(q) }"""


def test_relu_and_data_movement_hand_on_that_nobody_needs_codes() -> None:
    scales = dict.fromkeys("xarpq", 0.1)
    assert placed(MOVED, scales, "last").stay_float == ("a", "r", "p", "q")
    assert placed(MOVED, {**scales, "r": 0.2}, "last").held.keys() == {"x", "a", "r"}  # requantized in between


def residual(more: str = "", last: str = "s") -> str:
    return f"""net (float[1,2,4,4] x, float[1,2,4,4] o) => (float[1,2,4,4] y) {{
        [conv] a = Conv<kernel_shape=[1,1]>(x, w) [add] s = Add(a, o) {more} [end] t = Abs({last}) [out] y = Neg(t) }}"""


def test_conv_add_relu_fuse() -> None:
    text, scales = residual("[relu] r = Relu(s)", "r"), {**dict.fromkeys("xosrt", 0.1), "a": 0.3}
    found = placed(text, scales, fuse=True)
    assert found.fused == ("a", "s") and found.open == ("a",)  # the Relu clamps what rounding by its own scale cuts
    assert list(found.held) == ["x", "o", "r"]
    assert placed(text, {**scales, "s": 0.3}, fuse=True).open == ("a", "s")
    assert list(placed(text, scales).held) == ["x", "o", "a", "s", "r"]
    assert placed(text, scales, "add", fuse=True).fused == ()  # layers of two precisions do not fuse
    assert placed(text, scales, "conv", fuse=True).fused == ()


@pytest.mark.parametrize("unary", [frozenset(), frozenset("a")])
def test_of_two_products_that_meet_one_fuses(unary: frozenset[str]) -> None:
    text = """net (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        [conv] a = Conv<kernel_shape=[1,1]>(x, w) [side] d = Conv<kernel_shape=[1,1]>(x, w)
        [add] s = Add(a, d) [more] m = Add(s, x) [end] t = Abs(m) [out] y = Neg(t) }"""
    found = placed(text, dict.fromkeys("xadsmt", 0.1), fuse=True, unary=unary)
    assert found.fused == (("a",) if unary else ("d",))


def test_a_bias_passes_unrounded_whatever_fuse_says() -> None:
    text = """net (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        [conv] a = Conv<kernel_shape=[1,1]>(x, w) [bias] s = Add(a, b) [end] t = Abs(s) [out] y = Neg(t) }"""
    for fuse in (True, False):
        found = placed(text, dict.fromkeys("xast", 0.1), fuse=fuse)
        assert found.fused == ("a",) and found.open == () and list(found.held) == ["x", "s"]


def test_what_does_not_fuse() -> None:
    two_readers = """net (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        [conv] a = Conv<kernel_shape=[1,1]>(x, w) [act] s = Sigmoid(a) [mul] m = Mul(a, s) [end] y = Abs(m) }"""
    assert placed(two_readers, dict.fromkeys("xasm", 0.1), fuse=True).fused == ()
    twice = """net (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        [conv] a = Conv<kernel_shape=[1,1]>(x, w) [add] s = Add(a, a) [end] t = Abs(s) [out] y = Neg(t) }"""
    assert placed(twice, dict.fromkeys("xast", 0.1), fuse=True).fused == ()


FLAGS: tuple[dict[str, Any], ...] = ({}, {"infer_concat_scales": True, "infer_mul_scales": True}, {"preset": "dla"})


@pytest.mark.parametrize("turn", range(len(FLAGS)))
def test_the_plan_draws_the_same_line(zoo: Path, turn: int) -> None:
    """Layer by layer, on every network, with all the scales that the cache gets. Every architecture is there in several
    dialects, which take the flags by turns."""
    seen = 0
    models = (*sorted((zoo / "mini").glob("*.onnx")), *sorted((zoo / "edge").glob("*.onnx")))
    for number, path in enumerate(models[turn :: len(FLAGS)]):
        flags = FLAGS[(number + turn) % len(FLAGS)]
        try:
            options = TranslateOptions(asymmetric="widen", per_channel_activations="max", **flags)
            found = translate(path, options, try_more=False)
        except UserError:
            continue
        if found.dla is not None:
            verdicts = {row.name: row.verdict for row in found.dla.layers}
            device = {"dla-int8": "dla", "dla-fp16": "dla", "gpu": "gpu", "folded": "none"}
            assert all(row.device == device[verdicts[row.name]] for row in found.plan), path.stem
            assert all((row.precision == INT8) == (verdicts[row.name] == "dla-int8") for row in found.plan), path.stem
            rows = found.report["coverage"]["layers"]
            assert rows["int8"] == found.dla.count("dla-int8"), path.stem
            assert rows["total"] == sum(rows[part] for part in ("int8", "by_design", "limit", "avoidable")), path.stem
        asked = fp16_layers(found.fp16_nodes)
        placement = place(found.graph, found.types, found.cache.scales, asked, planned=by_device(found.plan))
        planned = {layer.name: layer.precision for layer in found.plan}
        assert placement.int8 == {name for name, precision in planned.items() if precision == INT8}, path.stem
        assert placement.higher == {name for name, precision in planned.items() if precision == FP16}, path.stem
        seen += 1
    assert seen > 20


def test_weights_of_int8_layers_alone_are_rounded() -> None:
    text = """net (float[2,2] x, float[2,2] o) => (float[2,2] y) {
        [const] a = MatMul(x, m) [both] c = MatMul(a, o) [left] d = MatMul(m, c) [end] t = Abs(d) [out] y = Neg(t) }"""
    graph = Graph.from_model(model(text, m=np.ones((2, 2), np.float32)))
    found = place(graph, TensorTypes(graph), dict.fromkeys("xoacdt", 0.1), fp16_layers(["left"]))
    assert found.weights == {("const", 1)}
    assert place(graph, TensorTypes(graph), dict.fromkeys("xoacdt", 0.1), {}).weights == {("const", 1), ("left", 0)}


def test_a_clamp_ends_a_fusion() -> None:
    text = residual("[relu] r = Relu(s) [again] v = Clip(r)", "v")
    assert placed(text, dict.fromkeys("xoasrvt", 0.1), fuse=True).fused == ("a", "s")
