"""Rule U1: ranges that the DLA requires to be equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from qdq_translator.core.errors import UsageError
from qdq_translator.lab.simulate.account import Judge
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions
from qdq_translator.lab.simulate.inputs import input_specs, load_samples
from qdq_translator.translation.translator import Translation
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


def test_data_gives_the_set_the_range_of_least_error(tmp_path: Path) -> None:
    """In place of the trained scales of tensors that must share one, and of no others; measured on other data."""
    random, files = np.random.default_rng(0), [tmp_path / name for name in ("train.npz", "seen.npz")]
    for path in files:
        np.savez(path, x=random.normal(0, 0.5, (16, 4, 8, 8)), u=random.normal(0, 0.5, (16, 4, 8, 8)))
    made = concat("data", calibrate=str(files[0]))
    (value,) = set(made.tensor_scales.values())
    assert 0.01 < value < 0.03 and made.scales["x"].origin.rule == "U1"
    assert made.dla is not None and made.dla.layers[0].verdict == "dla-int8"

    def noise(one: Translation) -> float:
        network = ImplicitNetwork.of(one)
        return Judge(network, SimulationOptions(), load_samples(files[1], input_specs(network.model, {}), None)).noise

    assert 2 * noise(made) < noise(concat("max"))
    with pytest.raises(UsageError, match=r"^unify_scales data computes ranges from inputs"):
        concat("data")


def test_warn_changes_nothing_and_lists() -> None:
    made = concat("warn")
    assert [round(value, 3) for value in made.tensor_scales.values()] == [0.02, 0.05, 0.04]
    (said,) = made.diagnostics.of_rule("U1")
    assert said.code == "W-U1" and "--unify_scales max" in said.hint
    assert [row["tensor"] for row in said.data["ranges"][0]["tensors"]] == ["x", "u", "c"]
    assert not made.shared_ranges[0].raised
    assert made.dla is not None and made.dla.layers[0].verdict == "dla-fp16"


def excitation(gate: str, wide: float, **options: object) -> Translation:
    """A squeeze-and-excitation block: x (scale `wide`) times a gate with the scale 1/127, between two convolutions."""
    text = HEAD + "(float[1,4,8,8] y) {" + pair("x", "xq", "a") + "c = Conv (xq, w)" + pair("c", "cq", "a")
    text += f"p = AveragePool <kernel_shape=[8,8]> (cq) f = Conv (p, w) h = {gate} (f)" + pair("h", "hq", "b")
    text += "m = Mul (cq, hq)" + pair("m", "mq", "a") + "k = Concat <axis=1> (mq, cq)" + pair("k", "kq", "t")
    text += "n = Conv (kq, v) y = Relu (n) }"
    weights = {"w": np.ones((4, 4, 1, 1), np.float32), "v": np.ones((4, 8, 1, 1), np.float32)}
    explicit = model(text, **scale(a=wide, b=1 / 127, t=1.5 * wide), **weights)
    return translated(explicit, target="orin-dla", unify_scales="max", **options)


def test_a_gate_is_not_made_zero() -> None:
    """Raised from 0.0079 to 10.5 every code of the gate is 0; the product stays FP16 instead, and the rest is raised."""
    made = excitation("HardSigmoid", 10.5)
    assert made.tensor_scales["h"] == float(np.float32(1 / 127)) and made.tensor_scales["m"] == 15.75
    plan = {layer.name: layer for layer in made.plan}
    product = plan["Mul_m"]
    assert (product.precision, product.listed, product.missing) == ("fp16", True, ())
    assert "'h'" in product.reason and "11.0 bits" in product.reason and "--max_bits_lost" in product.cure
    assert "Mul_m" in made.fp16_nodes and plan["Concat_k"].precision == "int8"
    assert [r.nodes for r in made.shared_ranges if r.refused] == [("Mul_m",)]
    assert [(d.code, d.node) for d in made.diagnostics.of_rule("U1")] == [("I-U1", "Concat_k"), ("W-U1", "Mul_m")]
    assert made.dla is not None and {la.name: la.verdict for la in made.dla.layers}["Mul_m"] == "dla-fp16"
    assert made.report["coverage"]["layers"]["int8"] == sum(layer.precision == "int8" for layer in made.plan)
    # the root causes of other layers do not count it as gained
    assert all("Mul_m" not in cause.layers for cause in made.causes.causes)
    assert {row.int8_layers for row in made.causes.what_if} <= set(range(len(made.plan) - 1))


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
