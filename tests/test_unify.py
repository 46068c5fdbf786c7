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
