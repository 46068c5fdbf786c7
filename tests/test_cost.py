"""The cost model: against published times, on small layers by hand, and what TensorRT fuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cost as benchmark
from benchmarks.gpu_cost import Point
from qdq_translator.board.engine.board import fit
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.report_rows import Verdict
from qdq_translator.core.options import TranslateOptions
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.targets.cost.estimate import estimate_costs
from qdq_translator.translation.targets.cost.fusing import fused_layers
from qdq_translator.translation.targets.cost.gpu import GpuModel, Rates, gpu_model
from qdq_translator.translation.targets.cost.model import CostModel, Parameters, Surface, Work, choose_model, published
from qdq_translator.translation.translator import translate
from tests.small_models import model

ROUND = Parameters(1000, 100, 1e9, 1e-6, 100, 10, 64, 32)
"""Numbers that can be checked in the head."""


def maxn() -> CostModel:
    chosen, _ = choose_model("MAXN")
    assert chosen is not None
    return chosen


# ---------------------------------------------------------------- published times


def test_published_times_are_met_as_the_documentation_says() -> None:
    every = benchmark.points()
    parameters = Parameters(**published()["parameters"])
    ratios = {
        precision: [p.predicted(parameters) / p.milliseconds for p in every if p.fitted and p.precision == precision]
        for precision in ("int8", "fp16")
    }
    assert len(ratios["int8"]) == 24 and len(ratios["fp16"]) == 4
    assert benchmark.rms(ratios["int8"]) < 0.12
    without = benchmark.left_out(every, parameters)
    for point in every:
        if point.fitted:
            ratio = point.predicted(without[point.network]) / point.milliseconds
            assert abs(ratio - 1) < benchmark.GOALS[point.precision], point.network
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert benchmark.with_table(page, benchmark.table(every, parameters, without)) == page


def test_the_shipped_parameters_are_those_of_the_fit() -> None:
    shipped = Parameters(**published()["parameters"])
    fitted = benchmark.fitted_to([point for point in benchmark.points() if point.fitted], shipped)
    for name in (*benchmark.FITTED["int8"], *benchmark.FITTED["fp16"]):
        assert getattr(fitted, name) == pytest.approx(getattr(shipped, name), rel=0.01)


def test_heads_in_fp16_were_not_fitted_and_are_met() -> None:
    mixed = next(point for point in benchmark.points() if "FP16" in point.precision)
    assert mixed.predicted(Parameters(**published()["parameters"])) / mixed.milliseconds == pytest.approx(1, abs=0.15)


# ---------------------------------------------------------------- single layers


def test_time_of_a_layer_by_hand() -> None:
    """Inputs and outputs padded to 32 bytes of channels; 1e9 clocks, 1000 MACs each, 1e9 bytes a second, 1 us fixed."""
    at = CostModel("", ROUND, 1.0)
    work = Work((Surface(3, 100),), (Surface(40, 100),), 100 * 9, (3, 40), 1, 1080)
    assert (work.macs, work.bytes(False), work.bytes(True)) == (108000, 3200 + 6400 + 1080, 3200 + 9600 + 2160)
    int8, fp16 = at.estimate(work, False), at.estimate(work, True)
    assert int8.milliseconds == pytest.approx(1e-3 + 10680e-6) and int8.bound == "memory"
    assert fp16.milliseconds == pytest.approx(1e-3 + 900 * 64 * 64 / 100e6) and fp16.bound == "compute"
    depthwise = Work((Surface(64, 10),), (Surface(64, 10),), 900, (64, 64), 64, 576)
    assert at.estimate(depthwise, False).milliseconds == pytest.approx(1e-3 + 900 * 64 * 100 / 1000e6)
    assert at.estimate(depthwise, True).milliseconds == pytest.approx(1e-3 + 900 * 64 * 10 / 100e6)
    assert at.estimate(Work((Surface(32, 10),), (Surface(32, 10),)), False).bound == "overhead"


def test_small_groups_share_a_block_in_fp16() -> None:
    """32 groups of 4 in, 4 out: 8 of them fill 32 outputs, and 32 inputs are padded to 64."""
    work = Work((), (), 9, (128, 128), 32, 0)
    assert CostModel("", ROUND, 1.0).estimate(work, True).milliseconds == pytest.approx(1e-3 + 9 * 4 * 64 * 32 / 100e6)


def layers_of(text: str, verdicts: str, **arrays: np.ndarray) -> list[list[int]]:
    """Which nodes are one layer; verdicts: 8 (INT8), 6 (FP16) or g (GPU) for each node, "" for one kernel of a GPU."""
    graph = Graph.from_model(model(text, 17, 8, **arrays))
    names = [{"8": "dla-int8", "6": "dla-fp16", "g": "gpu"}[v] for v in verdicts or "g" * len(graph)]
    return [layer.nodes for layer in fused_layers(graph, TensorTypes(graph), names, gpu=not verdicts)]


W = {"w": np.ones((4, 4, 1, 1), np.float32), "b": np.ones((1, 4, 1, 1), np.float32)}
HEAD = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) {"


@pytest.mark.parametrize("body, verdicts, expected", [
    ("c = Conv (x, w)  y = Relu (c) }", "88", [[0, 1]]),
    ("c = Conv (x, w)  y = Relu (c) }", "86", [[0, 1]]),
    ("c = Conv (x, w)  y = Relu (c) }", "68", [[0, 1]]),
    ("c = Conv (x, w)  d = Add (c, x)  y = Relu (d) }", "688", [[0, 1, 2]]),
    ("c = Conv (x, w)  d = Add (c, x)  y = Relu (d) }", "866", [[0, 1, 2]]),
    ("c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s) }", "866", [[0, 1, 2]]),
    ("c = Conv (x, w)  y = Relu (c) }", "8g", [[0]]),
    ("c = Conv (x, w)  d = Add (c, b)  y = Relu (d) }", "888", [[0, 1, 2]]),
    ("c = Conv (x, w)  d = Add (c, x)  y = Relu (d) }", "888", [[0, 1, 2]]),
    ("c = Conv (x, w)  r = Relu (c)  y = Add (r, x) }", "888", [[0, 1], [2]]),
    ("c = Conv (x, w)  d = Conv (x, w)  e = Add (d, c)  y = Relu (e) }", "8888", [[0], [1, 2, 3]]),
    ("c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s) }", "868", [[0, 1, 2]]),
    ("c = Conv (x, w)  s = Sigmoid (c)  y = Mul (x, s) }", "868", [[0, 1], [2]]),
    ("c = Conv (x, w)  r = Relu (c)  s = Tanh (c)  y = Add (r, s) }", "8888", [[0], [1], [2], [3]]),
    ("c = Conv (x, w)  r = Relu (c)  y = Relu (r) }", "888", [[0, 1], [2]]),
    ("a = Relu (x)  y = Conv (a, w) }", "88", [[0], [1]]),
    ("c = Conv (x, w)  d = Add (c, x)  y = Relu (d) }", "", [[0, 1, 2]]),
    ("c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s) }", "", [[0, 1, 2]]),
    ("a = Exp (x)  e = Erf (a)  y = Mul (e, a) }", "", [[0, 1, 2]]),  # one pointwise kernel
    ("a = Exp (x)  c = Conv (a, w)  y = Mul (c, a) }", "", [[0], [1], [2]]),  # which must not wait for itself
    ("a = Exp (x)  r = Identity (a)  y = Mul (r, a) }", "", [[0], [1], [2]]),
])  # fmt: skip
def test_what_is_one_layer(body: str, verdicts: str, expected: list[list[int]]) -> None:
    assert layers_of(HEAD + body, verdicts, **W) == expected


def placed(*verdicts: str) -> list[Verdict]:
    return [Verdict(str(i), "", one, subgraph=0 if one != "gpu" else -1) for i, one in enumerate(verdicts)]  # type: ignore[arg-type]


def estimated(text: str, verdicts: list[str], by: CostModel, **arrays: np.ndarray) -> Any:
    graph = Graph.from_model(model(text, 17, 8, **arrays))
    return estimate_costs(graph, TensorTypes(graph), placed(*verdicts), (by, gpu_model()), "", None)


def costs(text: str, verdicts: list[str], **arrays: np.ndarray) -> list[float]:
    plan = estimated(text, verdicts, CostModel("", ROUND, 1.0), **arrays)
    return [-1.0 if row is None or row.milliseconds is None else row.milliseconds for row in plan.layers]


def test_bytes_of_fused_and_moving_layers() -> None:
    """64 positions of 4 channels are 64 units of 32 bytes; a residual is read too; Concat is free; a Split costs twice."""
    text = HEAD + "c = Conv (x, w)  y = Add (c, x) }"
    assert costs(text, ["dla-int8"] * 2, **W) == pytest.approx([1e-3 + (3 * 2048 + 16) * 1e-6, 0.0])
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { a, b = Split <axis=1> (x)  y = Concat <axis=1> (b, a) }"
    assert costs(text, ["dla-fp16", "dla-int8"]) == pytest.approx([2 * (1e-3 + 4096e-6), 0.0])


def test_an_fp16_activation_doubles_what_its_layer_writes() -> None:
    text = HEAD + "c = Conv (x, w)  y = Relu (c) }"
    assert costs(text, ["dla-int8"] * 2, **W) == pytest.approx([1e-3 + (2 * 2048 + 16) * 1e-6, 0.0])
    wide = "g (float[1,4,8,8] x) => (float[1,32,8,8] y) { c = Conv (x, w)  y = Relu (c) }"
    weight = {"w": np.ones((32, 4, 1, 1), np.float32)}
    int8, mixed = (costs(wide, ["dla-int8", verdict], **weight)[0] for verdict in ("dla-int8", "dla-fp16"))
    assert mixed - int8 == pytest.approx(2048e-6)


def test_published_times_leave_no_room_for_activations_of_their_own() -> None:
    """Every Sigmoid of YOLOv5s in INT8 runs in FP16 (limit A1). Were it, or only the product, a layer of its own, the network
    would take half as long again as published; as parts of their convolutions it comes out right."""
    rows = json.loads((benchmark.DATA / "dla_networks.json").read_text(encoding="utf-8"))["yolov5s_672"]
    point = next(p for p in benchmark.points() if (p.network, p.precision) == ("yolov5s_672", "int8"))
    parameters = Parameters(**published()["parameters"])
    cost = CostModel("", parameters, point.clock)
    outputs = [benchmark.work_of(row, 1).writes[0] for row in rows if row.get("silu")]
    products = sum(cost.estimate(Work((out, out), (out,)), False).milliseconds for out in outputs)
    sigmoids = sum(cost.estimate(Work((out,), (out,)), True).milliseconds for out in outputs)
    fused = point.predicted(parameters)
    assert fused / point.milliseconds == pytest.approx(1, abs=0.25)
    assert (fused + products) / point.milliseconds > 1.5 and (fused + products + sigmoids) / point.milliseconds > 2.4


def test_gemm_is_a_1x1_convolution() -> None:
    text = "g (float[1,64] x) => (float[1,32] y) { y = Gemm (x, w) }"
    assert costs(text, ["dla-int8"], w=np.ones((64, 32), np.float32)) == pytest.approx([1e-3 + (64 + 32 + 2048) * 1e-6])


def test_the_share_of_operators_without_published_times() -> None:
    """Of a Tanh; the Conv and what is fused into it rest on published times."""
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { t = Tanh (x) c = Conv (t, w) y = Relu (c) }"
    plan = estimated(text, ["dla-fp16", "dla-int8", "dla-int8"], maxn(), w=W["w"])
    tanh, conv = plan.layers[0], plan.layers[1]
    row = plan.row()
    assert row.extrapolated_milliseconds == tanh.milliseconds and row.milliseconds == plan.milliseconds
    share = 100 * tanh.milliseconds / (tanh.milliseconds + conv.milliseconds)
    assert row.what.endswith(f"; operators without published times: {share:.1f}% of the DLA's time")
    without = estimated(text, ["gpu", "dla-int8", "dla-int8"], maxn(), w=W["w"]).row()
    assert without.extrapolated_milliseconds == 0.0 and "without" not in without.what


def test_unknown_sizes_have_no_time() -> None:
    plan = estimated("g (float[n,4,8,8] x) => (float[n,4,8,8] y) { y = Relu (x) }", ["dla-int8"], maxn())
    assert plan.milliseconds is None and plan.unknown == 1
    assert (plan.layers[0].milliseconds, plan.layers[0].bytes) == (None, None)


# ---------------------------------------------------------------- which model


def test_power_modes_and_clocks() -> None:
    assert maxn().clock_ghz == 1.6
    slow, _ = choose_model("30w")
    drive, _ = choose_model(platform="drive-os-6.0.9")
    free, _ = choose_model(dla_clock=1.5)
    assert slow is not None and drive is not None and free is not None
    assert (slow.clock_ghz, drive.clock_ghz, free.clock_ghz) == (1.3696, 1.331, 1.5)
    for chosen, why in (choose_model("15W"), choose_model("ORIN-NX"), choose_model(dla_clock=0.6)):
        assert chosen is None and "no published figure" in why
    with pytest.raises(UsageError) as error:
        choose_model("60W")
    assert all(name in error.value.hint for name in ("MAXN", "50W", "30W", "15W", "DRIVE"))
    with pytest.raises(UsageError):
        choose_model("MAXN", 1.6)


def test_cost_model_files(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    good = {"schema_version": 1, "name": "board", "clock_ghz": 1.2, "parameters": dataclasses.asdict(ROUND)}
    path.write_text(json.dumps(good))
    chosen, _ = choose_model(cost_model=str(path))
    assert chosen is not None and (chosen.parameters, chosen.clock_ghz, chosen.source) == (ROUND, 1.2, "board.json")
    chosen, _ = choose_model("15W", cost_model=str(path))
    assert chosen is not None and chosen.clock_ghz == 0.6144
    for bad in ("{", "[]", "{}", json.dumps({**good, "schema_version": 9}), json.dumps({**good, "clock_ghz": -1})):
        path.write_text(bad)
        with pytest.raises(UserError):
            choose_model(cost_model=str(path))
    with pytest.raises(UserError):
        choose_model(cost_model=str(tmp_path / "missing.json"))


def test_fit_finds_what_the_times_say_and_leaves_the_rest() -> None:
    works = [Work((Surface(32, 10**n),), (Surface(32, 10**n),)) for n in (2, 4, 6)]
    truth = dataclasses.replace(ROUND, bytes_per_second=3e9, seconds_per_layer=5e-6)

    def predict(parameters: Parameters) -> list[float]:
        return [CostModel("", parameters, 1.0).estimate(work, False).milliseconds for work in works]

    names = ("int8_rate", "bytes_per_second", "seconds_per_layer")
    found = fit(predict, predict(truth), [1, 1, 1], ROUND, names)
    assert found.bytes_per_second == pytest.approx(3e9, rel=1e-3)
    assert found.seconds_per_layer == pytest.approx(5e-6, rel=1e-3)
    assert found.int8_rate == pytest.approx(ROUND.int8_rate)


# ---------------------------------------------------------------- the GPU


def test_time_of_a_kernel() -> None:
    """Padded channels, bytes, start; a SiLU is a kernel of its own in FP16; a constant a network."""
    graph = Graph.from_model(model(HEAD + "c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s) }", 17, 8, **W))
    layers = fused_layers(graph, TensorTypes(graph), ["gpu"] * 3, gpu=True)
    slow = Rates(1e9, 1e15, 1e-3, 5.0, False)
    model_ = GpuModel("", slow, dataclasses.replace(slow, silu=True))
    arithmetic = 64 * 32 * 1e-9
    assert model_.kernel(layers[0], False) == pytest.approx(1e3 * (32 * arithmetic + 1e-3))
    assert model_.kernel(layers[0], True) == pytest.approx(1e3 * (8 * arithmetic + 2e-3))
    assert model_.network(layers, True) == pytest.approx(5e3 + model_.kernel(layers[0], True))
    narrow = GpuModel("", Rates(1e15, 1e6, 0.0, 0.0, False), slow)
    assert narrow.kernel(layers[0], False) == pytest.approx((2 * 4 * 64 + 16) / 1e3)


def test_power_modes_slow_the_gpu_down() -> None:
    full, half = gpu_model(), gpu_model("50w")
    assert half.int8.macs_per_second < full.int8.macs_per_second
    assert half.int8.seconds_per_kernel > full.int8.seconds_per_kernel
    assert gpu_model("DRIVE").int8 == full.int8


@pytest.mark.parametrize(("precision", "most"), [("fp16", 0.21), ("int8", 0.4)])
def test_published_times_of_whole_networks(precision: str, most: float) -> None:
    """ResNet-50, YOLOv8n and YOLO11n on AGX Orin within the stated error."""
    points = [Point(**row) for row in json.loads((benchmark.DATA / "gpu_points.json").read_text(encoding="utf-8"))]
    chosen = [p for p in points if (p.module, p.precision) == ("agx-orin", precision)]
    chosen = [p for p in chosen if p.network in ("resnet50", "yolo11n") or (p.network, p.side) == ("yolov8n", 640)]
    rates = getattr(gpu_model(), precision)
    assert len(chosen) > 1 and all(abs(p.predicted(rates) / p.ms - 1) < most for p in chosen)


@pytest.mark.parametrize("on", ["dla", "gpu"])
def test_all_on_the_gpu_is_priced_where_sizes_are_computed(on: str) -> None:
    """As in the export with constant sizes: TensorRT folds what computes with sizes."""
    shapes = "net (float[1, 3, {0}, {0}] x) => (float[1, 8, {0}, {0}] y) "
    computed = """{
        c = Conv(x, w)
        s = Shape(x)
        n = Gather(s, two)
        r = Range(zero, n, one)
        places = Cast<to: int = 1>(r)
        y = Add(c, places)
    }"""
    weights, places = np.ones((8, 3, 1, 1), np.float32), np.arange(64, dtype=np.float32)
    whole = []
    for network in (
        model(shapes.format("size") + computed, w=weights, two=np.array(2), zero=np.array(0), one=np.array(1)),
        model(shapes.format("64") + "{ c = Conv(x, w) y = Add(c, places) }", w=weights, places=places),
    ):
        options = TranslateOptions(board="agx-orin", on=on, shapes=["x:1x3x64x64"])
        cost = translate(network, options, assume_scales=True).rows.cost
        assert cost is not None
        whole.append(cost.all_gpu_milliseconds)
    assert whole[0] is not None and whole[0] == whole[1]
