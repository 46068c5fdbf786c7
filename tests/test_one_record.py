"""The simulation computes what the plan contains: device and precision of each layer, and both ends of what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.commands.verify import Options
from qdq_translator.lab.simulate.implicit import ImplicitNetwork, SimulationOptions, simulate
from qdq_translator.lab.verification import verify
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.precision import layer_macs
from tests.small_models import model, pair, translated

pytest.importorskip("onnxruntime")
from qdq_translator.lab.simulate.run import Session

ROOT = Path(__file__).parents[1]
DETECTOR = ROOT / "e2e_workflow" / "detector"
METRIC = "e2e_workflow.common.average_precision:MeanAveragePrecision"
ORIN = {"target": "orin-dla", "platform": "jetpack-6.2"}
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.uniform(-1, 1, (32, 32, 1, 1)).astype(np.float32)
CONSTANTS = {"s": np.float32(0.02), "t": np.float32(0.03), "z": np.int8(0), "w": WEIGHT}


def simulated(made: Any, x: np.ndarray, **options: Any) -> np.ndarray:
    network = simulate(ImplicitNetwork.of(made), SimulationOptions(**options))
    return np.asarray(Session(network.model, "simulated").run({"x": x})["y"])


def codes(values: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(values / np.float32(scale)), -128, 127).astype(np.float32) * np.float32(scale)


PRODUCT = "g (float[1,32,4,4] x) => (float[1,32,4,4] y) {" + "".join(
    (
        pair("x", "q"),
        "a = Conv<kernel_shape=[1,1]> (q, w) r = Relu(a)",
        pair("r", "p", "t"),
        "m = Mul(p, q)",
        pair("m", "k"),
        "y = Conv<kernel_shape=[1,1]> (k, w) }",
    )
)


def test_a_layer_that_a_limit_keeps_in_fp16_computes_in_float16() -> None:
    """Limit E1: a Mul of two ranges. The Conv before it computes in INT8 and hands on float16."""
    made = translated(model(PRODUCT, **CONSTANTS), **ORIN)
    rows = {row.op: row for row in made.plan[:3]}
    assert [rows[op].runs for op in ("Conv", "Relu", "Mul")] == ["dla-int8", "dla-int8", "dla-fp16"]
    assert rows["Mul"].limited and rows["Mul"].reason.startswith("FP16 on the DLA: INT8 requires one scale")
    assert made.plan[3].runs == "dla-fp16" and made.plan[3].by_design  # before the graph output
    x = RANDOM.uniform(-2, 2, (1, 32, 4, 4)).astype(np.float32)
    half = np.float16
    q = codes(x, 0.02)
    rounded = np.stack([codes(row, np.abs(row).max() / 127) for row in WEIGHT[:, :, 0, 0]])
    a = np.einsum("oc,nchw->nohw", rounded, q).astype(np.float32)
    product = (half(np.maximum(a, 0)).astype(np.float32) * half(q).astype(np.float32)).astype(half)
    k = product.astype(np.float32)
    y = half(np.einsum("oc,nchw->nohw", half(WEIGHT[:, :, 0, 0]).astype(np.float32), k)).astype(np.float32)
    np.testing.assert_allclose(simulated(made, x), y, rtol=2e-3, atol=2e-3)  # half a step of float16, in other orders
    all_int8 = ImplicitNetwork.of(made)
    all_int8.plan = []
    other = Session(simulate(all_int8).model, "simulated").run({"x": x})["y"]
    assert np.abs(other - y).max() > 5 * np.abs(simulated(made, x) - y).max()


def test_a_layer_of_the_gpu_computes_above_int8_and_int8_is_its_hypothesis() -> None:
    text = PRODUCT.replace("m = Mul(p, q)", "m = Erf(p)")
    made = translated(model(text, **CONSTANTS), **ORIN)
    erf = next(row for row in made.plan if row.op == "Erf")
    assert (erf.runs, erf.hypotheses, erf.limited) == ("gpu-fp16", ("gpu",), True)
    x = RANDOM.uniform(-2, 2, (1, 32, 4, 4)).astype(np.float32)
    network = ImplicitNetwork.of(made)
    planned, other = simulate(network), simulate(network, SimulationOptions(other=frozenset(("gpu",))))
    assert erf.name not in planned.placement.int8 and erf.name in other.placement.int8
    assert planned.placement.int8 == {row.name for row in made.plan if row.precision == "int8"}
    assert np.abs(simulated(made, x) - simulated(made, x, other=frozenset(("gpu",)))).max() > 0.01


BETWEEN = "g (float[1,32,8,8] x) => (float[1,32,8,8] y) {" + "".join(
    (
        pair("x", "q"),
        "a = Conv<kernel_shape=[1,1]> (q, w)",
        pair("a", "b", "t"),
        "h = Softmax<axis=1>(b) g = Sigmoid(q)",
        pair("h", "p"),
        "m = AveragePool<kernel_shape=[1,1]>(p)",
        pair("m", "k"),
        "y = Mul(k, g) }",
    )
)


def test_both_ends_of_a_hypothesis_are_shown(tmp_path: Path) -> None:
    constants = {**CONSTANTS, "s": np.float32(1 / 127)}
    path = tmp_path / "net.onnx"
    path.write_bytes(model(BETWEEN, **constants).SerializeToString())
    made = translate(path, TranslateOptions(**ORIN))
    pool = next(row for row in made.plan if row.op == "AveragePool")
    assert pool.hypotheses == ("between",) and pool.runs == "dla-int8"
    made.save(tmp_path / "t")

    def verified(hypotheses: str) -> dict[str, Any]:
        return verify(Options(model=str(path), translation=str(tmp_path / "t"), hypotheses=hypotheses, samples=2))

    both, plan = verified("both"), verified("plan")
    assert [row["id"] for row in both["simulation"]["hypotheses"]] == ["sigmoid", "between"]
    found = {row["other"]: row["outputs"]["y"] for row in both["outputs"]["pairs"]}
    assert found.keys() == {"simulated", "sigmoid int8", "between fp16"}
    assert found["between fp16"]["max_abs"] != found["simulated"]["max_abs"]
    assert plan["simulation"]["hypotheses"] == [] and plan["outputs"]["pairs"] == both["outputs"]["pairs"][:1]


def test_the_detector_is_judged_as_planned(tmp_path: Path) -> None:
    """Simulated in INT8 as far as scales allow, 70.01 and suspicious; as planned, 74.12; the explicit model has 74.50."""
    source = DETECTOR / "detector_qat.onnx"
    made = translate(source, TranslateOptions(preset="dla"))
    made.save(tmp_path)
    asked = Options(model=str(source), translation=str(tmp_path), data=str(DETECTOR / "samples.npz"), metric=METRIC)
    results = verify(asked)
    simulation, shares = results["simulation"], made.report["dla"]["shares"]
    assert simulation["layers_in_int8"] == shares["dla-int8"]["layers"] == 45
    assert simulation["layers_in_fp16_on_dla"] == shares["dla-fp16"]["layers"] == 84
    assert results["outputs"]["metric"]["explicit"] == pytest.approx(74.50, abs=0.01)
    assert results["outputs"]["metric"]["simulated"] == pytest.approx(74.12, abs=0.3)
    assert results["verdict"]["overall"] == "within expected rounding"


@pytest.mark.parametrize("node, ends, arrays, macs", [
    ("y, h = LSTM<hidden_size=3>(x, w, r)", "[5,n,4]", {"w": (1, 12, 4), "r": (1, 12, 3)}, 5 * 12 * (4 + 3)),
    ("y, h = GRU<hidden_size=3, layout=1>(x, w, r)", "[2,5,4]", {"w": (1, 9, 4), "r": (1, 9, 3)}, 10 * 9 * 7),
    ('y = Einsum<equation="...ij,jk->...ik">(x, w)', "[2,5,4]", {"w": (4, 3)}, 2 * 5 * 4 * 3),
])  # fmt: skip
def test_macs_of_layers_that_the_dla_does_not_run(
    node: str, ends: str, arrays: dict[str, tuple[int, ...]], macs: int
) -> None:
    made = model(
        f"g (float{ends} x) => (float y) {{ {node} }}", **{name: np.ones(s, np.float32) for name, s in arrays.items()}
    )
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    graph = Graph.from_model(made)
    assert layer_macs(graph.of(node.split("= ")[1].split("<")[0])[0], TensorTypes(graph)) == macs


def test_an_open_batch_is_1_for_plan_limits_and_estimate() -> None:
    text = PRODUCT.replace("[1,32,4,4]", "[n,32,4,4]")
    made, fixed = (translated(model(t, **CONSTANTS), **ORIN) for t in (text, PRODUCT))
    assert made.dla is not None and fixed.dla is not None
    assert made.plan == fixed.plan
    assert made.report["cost"] == fixed.report["cost"] and made.report["cost"]["milliseconds"] > 0
    assert made.report["dla"]["transitions"] == fixed.report["dla"]["transitions"]
    (note,) = made.dla.notes
    assert "batch of 1 (--shapes x:8x32x4x4" in note and fixed.dla.notes == []
    assert made.types.shape("x") == ("n", 32, 4, 4)  # the model itself keeps it
    sizes = translated(model(text.replace("[n,32,4,4]", "[n,32,h,4]"), **CONSTANTS), **ORIN).dla
    assert sizes is not None and any("could not be" in note for note in sizes.notes)


def test_a_dla_software_before_3_13_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model(PRODUCT, **CONSTANTS).SerializeToString())
    for platform, too_old in (("jetpack-5.1.2", True), ("jetpack-6.0", False), ("drive-os-6.0.7", False)):
        made = translate(path, TranslateOptions(target="orin-dla", platform=platform))
        assert any("fact 6.8" in d.message for d in made.diagnostics.warnings) == too_old
        made.save(tmp_path / platform)
        assert main(["build", "--print", "-t", str(tmp_path / platform)]) == 0
        assert ("fact 6.8" in capsys.readouterr().err) == too_old
        assert main(["plan", "-i", str(path), "--platform", platform]) == 0
        assert ("DLA software before 3.13" in " ".join(capsys.readouterr().out.split())) == too_old
        assert main(["explain", platform]) == 0
        assert ("fact 6.8" in " ".join(capsys.readouterr().out.split())) == too_old
    assert not translate(path, TranslateOptions(platform="jetpack-5.1.2")).diagnostics.of_rule("D0")
