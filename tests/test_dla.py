"""The DLA's limits: every row of the table kept and broken by a small model, verdicts, and predicted subgraphs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

import numpy as np
import pytest

from qdq_translator.graph import Graph
from qdq_translator.inference import Context
from qdq_translator.options import TranslateOptions
from qdq_translator.precision import make_plan
from qdq_translator.scales import Origin, ScaleTable
from qdq_translator.targets.dla.limits import LIMITS
from qdq_translator.targets.dla.verdicts import DlaPlan, Verdict, judge
from qdq_translator.targets.platforms import find_platform, tensorrt_version
from qdq_translator.types import TensorTypes
from tests.conftest import ZOO, need_shared
from tests.small_models import model, translated


def plan_of(
    text: str,
    target: str = "orin-dla",
    tensorrt: tuple[int, int, int] = (8, 6, 2),
    scales: Optional[dict[str, float]] = None,
    missing: tuple[str, ...] = (),
    platform: Optional[str] = None,
    opset: int = 17,
    **arrays: np.ndarray,
) -> DlaPlan:
    """Every float activation has the scale 0.1, but those in `scales` and `missing`."""
    domains = ("my.domain",) if "my.domain" in text else ()
    graph = Graph.from_model(model(text, opset, 8, domains, **arrays))
    types = TensorTypes(graph)
    table = ScaleTable()
    for name in [*graph.inputs, *(n for node in graph.nodes for n in node.outputs)]:
        if types.is_float(name) and name not in missing:
            table.infer(name, (scales or {}).get(name, 0.1), Origin("Q1"))
    context = Context(graph, types, table, TranslateOptions(target=target))
    plan = make_plan(graph, types, table)
    return judge(context, plan, tensorrt, find_platform(platform) if platform else None)


def verdict_of(op: str, plan: DlaPlan) -> Verdict:
    return next(layer for layer in plan.layers if layer.op == op)


def limits_of(layer: Verdict) -> set[str]:
    return {finding.limit.id for finding in layer.findings}


def one(op: str, attributes: str, shape: str, out: str, extra: str = "", **more: Any) -> Verdict:
    """The verdict of a network of one node."""
    attributes = f"<{attributes}>" if attributes else ""
    text = f"g (float[{shape}] x) => (float[{out}] y) {{ y = {op} {attributes} (x{extra}) }}"
    return verdict_of(op, plan_of(text, **more))


def weight(*shape: int) -> dict[str, np.ndarray]:
    return {"w": np.ones(shape, np.float32)}


# (operator, attributes, input, output, further inputs, arrays, limits that are not kept)
CASES: list[tuple[str, str, str, str, str, dict[str, np.ndarray], str]] = [
    ("Conv", "", "1,4,8,8", "1,4,6,6", ", w", weight(4, 4, 3, 3), ""),
    ("Conv", "", "1,4,40,8", "1,4,8,6", ", w", weight(4, 4, 33, 3), "C2"),
    ("Conv", "", "1,4,40,8", "1,4,9,6", ", w", weight(4, 4, 32, 3), ""),
    ("Conv", "", "1,4,8", "1,4,6", ", w", weight(4, 4, 3), "C1"),
    ("Conv", "pads=[1,1,1,1]", "1,4,8,8", "1,4,8,8", ", w", weight(4, 4, 3, 3), ""),
    ("Conv", "pads=[0,0,1,1]", "1,4,8,8", "1,4,7,7", ", w", weight(4, 4, 3, 3), "C5"),
    ("Conv", 'auto_pad="SAME_UPPER", strides=[2,2]', "1,4,8,8", "1,4,4,4", ", w", weight(4, 4, 3, 3), "C5"),
    ("Conv", 'auto_pad="SAME_UPPER"', "1,4,8,8", "1,4,8,8", ", w", weight(4, 4, 3, 3), ""),
    ("Conv", "pads=[3,3,3,3]", "1,4,8,8", "1,4,12,12", ", w", weight(4, 4, 3, 3), "C4"),
    ("Conv", "pads=[32,32,32,32]", "1,4,8,8", "1,4,39,39", ", w", weight(4, 4, 34, 34), "C2 C3"),
    ("Conv", "strides=[9,1]", "1,4,20,8", "1,4,2,6", ", w", weight(4, 4, 3, 3), "C6"),
    ("Conv", "dilations=[33,1]", "1,4,80,8", "1,4,14,6", ", w", weight(4, 4, 3, 3), "C7"),
    ("Conv", "dilations=[32,1]", "1,4,80,8", "1,4,16,6", ", w", weight(4, 4, 3, 3), ""),
    ("Conv", "", "1,1,1,1", "1,8193,1,1", ", w", weight(8193, 1, 1, 1), "C8 G2"),
    ("Conv", "group=8193", "1,8193,1,1", "1,8193,1,1", ", w", weight(8193, 1, 1, 1), "C8 C9 G2"),
    ("ConvTranspose", "strides=[2,2]", "1,4,8,8", "1,4,16,16", ", w", weight(4, 4, 2, 2), ""),
    ("ConvTranspose", "", "1,4,8,8", "1,4,8,71", ", w", weight(4, 4, 1, 64), ""),
    ("ConvTranspose", "", "1,4,8,8", "1,4,8,72", ", w", weight(4, 4, 1, 65), "T2"),
    ("ConvTranspose", "", "1,4,8,8", "1,4,30,30", ", w", weight(4, 4, 23, 23), "T3"),
    ("ConvTranspose", "pads=[1,1,1,1]", "1,4,8,8", "1,4,8,8", ", w", weight(4, 4, 3, 3), "T5"),
    ("ConvTranspose", "group=2", "1,4,8,8", "1,4,9,9", ", w", weight(4, 2, 2, 2), "T6"),
    ("ConvTranspose", "dilations=[2,2]", "1,4,8,8", "1,4,10,10", ", w", weight(4, 4, 2, 2), "T7"),
    ("MaxPool", "kernel_shape=[8,8]", "1,4,8,8", "1,4,1,1", "", {}, ""),
    ("MaxPool", "kernel_shape=[9,1]", "1,4,9,8", "1,4,1,8", "", {}, "P2"),
    ("MaxPool", "kernel_shape=[2,2], strides=[17,1]", "1,4,20,8", "1,4,2,7", "", {}, "P4"),
    ("MaxPool", "kernel_shape=[3]", "1,4,8", "1,4,6", "", {}, "P1"),
    ("MaxPool", "kernel_shape=[2,2], dilations=[2,2]", "1,4,8,8", "1,4,6,6", "", {}, "P7"),
    ("Relu", "", "1,4,8,8", "1,4,8,8", "", {}, ""),
    ("Relu", "", "1,4", "1,4", "", {}, "A3"),
    ("Concat", "axis=1", "1,4,8,8", "1,8,8,8", ", x", {}, ""),
    ("Concat", "axis=-3", "1,4,8,8", "1,8,8,8", ", x", {}, ""),
    ("Concat", "axis=2", "1,4,8,8", "1,4,16,8", ", x", {}, "K1"),
    ("Concat", "axis=1", "1,4,8,8", "1,4,8,8", "", {}, "K2"),
    ("Reshape", "", "1,4,8,8", "1,8,4,8", ", r", {"r": np.array([1, 8, 4, 8])}, ""),
    ("Reshape", "", "1,4,8,8", "1,4,64", ", r", {"r": np.array([1, 4, 64])}, "H1"),
    ("Reshape", "", "2,4,8,8", "1,8,8,8", ", r", {"r": np.array([1, 8, 8, 8])}, "H2"),
    ("Transpose", "perm=[0,2,3,1]", "1,4,8,8", "1,8,8,4", "", {}, ""),
    ("Transpose", "perm=[1,0,2,3]", "2,4,8,8", "4,2,8,8", "", {}, "H2"),
    ("Flatten", "", "1,4,8,8", "1,256", "", {}, "O1"),
    ("GlobalAveragePool", "", "1,4,8,8", "1,4,1,1", "", {}, "O1"),
    ("DepthToSpace", "blocksize=2", "1,4,8,8", "1,1,16,16", "", {}, "O2"),
    ("Identity", "", "1,4,8,8", "1,4,8,8", "", {}, "O2"),
    ("Dropout", "", "1,4,8,8", "1,4,8,8", "", {}, "O7"),
    ("ReduceMax", "axes=[2,3]", "1,4,8,8", "1,4,1,1", "", {}, "O5 O6"),
    ("Add", "", "1,2,2,4,8", "1,2,2,4,8", ", x", {}, "E2"),
    ("Relu", "", "5000,4,8,8", "5000,4,8,8", "", {}, "G1"),
    ("Relu", "", "1,4,8,9000", "1,4,8,9000", "", {}, "G2"),
    ("MatMul", "", "1,4", "1,8", ", w", weight(4, 8), ""),
    ("MatMul", "", "4,4", "4,4", ", x", {}, "M1"),
    ("PRelu", "", "1,4,8,8", "1,4,8,8", ", w", weight(1, 4, 1, 1), ""),
]


@pytest.mark.parametrize("op, attributes, shape, out, extra, arrays, expected", CASES)
def test_limits_that_keep_a_layer_on_the_dla_or_send_it_to_the_gpu(
    op: str, attributes: str, shape: str, out: str, extra: str, arrays: dict[str, np.ndarray], expected: str
) -> None:
    layer = one(op, attributes, shape, out, extra, **arrays)
    assert limits_of(layer) == set(expected.split())
    assert layer.verdict == ("gpu" if expected else "dla-int8")
    assert layer.unknown == ()


@pytest.mark.parametrize(
    "op, attributes, arrays, extra, limit",
    [
        ("Sigmoid", "", {}, "", "A1"),
        ("Tanh", "", {}, "", "A1"),
        ("LRN", "size=5", {}, "", "L1"),
        ("Softmax", "axis=1", {}, "", "X1"),
    ],
)
def test_int8_is_upgraded_to_fp16(
    op: str, attributes: str, arrays: dict[str, np.ndarray], extra: str, limit: str
) -> None:
    layer = one(op, attributes, "1,4,8,8", "1,4,8,8", extra, **arrays)
    assert limits_of(layer) == {limit} and layer.verdict == "dla-fp16"
    assert layer.findings[0].limit.status == "documented" and "6.3" in layer.findings[0].limit.source


def test_softmax_is_for_orin_and_has_a_longest_axis() -> None:
    assert one("Softmax", "axis=1", "1,4,8,8", "1,4,8,8", target="xavier-dla").verdict == "gpu"
    assert "X3" in limits_of(one("Softmax", "axis=1", "1,1025,8,8", "1,1025,8,8"))
    assert limits_of(one("Softmax", "axis=1", "1,8192,1,1", "1,8192,1,1")) == {"X1"}


def test_lrn_window() -> None:
    assert limits_of(one("LRN", "size=11", "1,4,8,8", "1,4,8,8")) == {"L1", "L2"}


def slice_arrays(starts: list[int], ends: list[int], axes: list[int]) -> dict[str, np.ndarray]:
    return {"b": np.array(starts), "e": np.array(ends), "a": np.array(axes)}


def test_slice_and_split_run_in_fp16_on_channels_only() -> None:
    channel = one("Slice", "", "1,4,8,8", "1,2,8,8", ", b, e, a", **slice_arrays([0], [2], [1]))
    assert channel.verdict == "dla-fp16" and limits_of(channel) == {"S1"}
    batch = one("Slice", "", "2,4,8,8", "1,4,8,8", ", b, e, a", **slice_arrays([0], [1], [0]))
    assert batch.verdict == "gpu" and "S3" in limits_of(batch)
    flat = one("Slice", "", "1,4,8", "1,2,8", ", b, e, a", **slice_arrays([0], [2], [1]))
    assert flat.verdict == "gpu" and "S2" in limits_of(flat)
    text = "g (float[1,4,8,8] x) => (float[1,2,8,8] y, float[1,2,8,8] u) { y, u = Split <axis=1> (x) }"
    assert verdict_of("Split", plan_of(text, opset=17)).verdict == "dla-fp16"


def test_slice_with_parameters_from_data_is_not_known_to_be_static() -> None:
    text = """g (float[1,4,8,8] x, int64[1] b) => (float[1,n,8,8] y) { y = Slice (x, b, e, a) }"""
    layer = verdict_of("Slice", plan_of(text, e=np.array([2]), a=np.array([1])))
    assert "S4" in layer.unknown and layer.verdict == "dla-fp16"


def resize(attributes: str, factors: list[float], out: str, sizes: bool = False, **more: Any) -> Verdict:
    arrays = {"f": np.array(factors, np.int64 if sizes else np.float32)}
    return one("Resize", attributes, "1,4,8,8", out, ", , , f" if sizes else ", , f", **arrays, **more)


def test_resize() -> None:
    nearest = 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
    assert resize(nearest, [1, 1, 2, 2], "1,4,16,16").verdict == "dla-int8"
    assert resize('mode="nearest"', [1, 1, 2, 2], "1,4,16,16").verdict == "dla-int8"
    assert limits_of(resize(nearest, [1, 1, 1.5, 2], "1,4,12,16")) == {"R2"}
    assert limits_of(resize(nearest, [1, 2, 2, 2], "1,8,16,16")) == {"R2"}
    assert limits_of(resize(nearest, [1, 1, 33, 1], "1,4,264,8")) == {"R2"}
    assert limits_of(resize(nearest, [1, 4, 16, 16], "1,4,16,16", sizes=True)) == {"R1"}
    assert limits_of(resize('mode="nearest", nearest_mode="ceil"', [1, 1, 2, 2], "1,4,16,16")) == {"R3"}
    linear = 'mode="linear", coordinate_transformation_mode='
    assert resize(linear + '"half_pixel"', [1, 1, 4, 4], "1,4,32,32").verdict == "dla-int8"
    assert limits_of(resize(linear + '"half_pixel"', [1, 1, 5, 4], "1,4,40,32")) == {"R2"}
    assert limits_of(resize(linear + '"align_corners"', [1, 1, 2, 2], "1,4,16,16")) == {"R3"}
    assert limits_of(resize('mode="cubic"', [1, 1, 2, 2], "1,4,16,16")) == {"R3"}


@pytest.mark.parametrize(
    "low, high, kept",
    [(0.0, 6.0, True), (0.0, 127.0, True), (0.0, 0.5, False), (-1.0, 1.0, False), (0.0, 128.0, False)],
)
def test_clip_is_native_as_a_clipped_relu(low: float, high: float, kept: bool) -> None:
    layer = one("Clip", "", "1,4,8,8", "1,4,8,8", ", lo, hi", lo=np.float32(low), hi=np.float32(high))
    assert layer.verdict == ("dla-int8" if kept else "gpu")
    if not kept:
        assert layer.findings[0].found == f"bounds [{low:g}, {high:g}]"


def test_average_padding_must_be_counted_on_xavier() -> None:
    padded = ("AveragePool", "kernel_shape=[3,3], pads=[1,1,1,1]", "1,4,8,8", "1,4,8,8")
    counted = ("AveragePool", "kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1", "1,4,8,8", "1,4,8,8")
    assert one(*padded).verdict == "dla-int8"
    assert limits_of(one(*padded, target="xavier-dla")) == {"P6"}
    assert one(*counted, target="xavier-dla").verdict == "dla-int8"


def test_operators_that_came_with_tensorrt_8_6_12() -> None:
    text = "g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,4,8,8] y) { y = Div (x, u) }"
    old, new = (verdict_of("Div", plan_of(text, tensorrt=v)) for v in ((8, 6, 11), (8, 6, 12)))
    assert (old.verdict, old.findings[0].found) == ("gpu", "TensorRT 8.6.11")
    assert new.verdict == "dla-int8"


def test_comparison_wants_int8_and_a_cast() -> None:
    text = """g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,4,8,8] y)
    { b = Greater (x, u)  y = Cast <to=1> (b) }"""
    assert verdict_of("Greater", plan_of(text, tensorrt=(8, 6, 12))).verdict == "dla-int8"
    lacking = verdict_of("Greater", plan_of(text, tensorrt=(8, 6, 12), missing=("u",)))
    assert (lacking.verdict, limits_of(lacking)) == ("gpu", {"E3"})
    text = """g (float[1,4,8,8] x, float[1,4,8,8] u) => (bool[1,4,8,8] y) { b = Greater (x, u)  y = Not (b) }"""
    assert "E4" in limits_of(verdict_of("Greater", plan_of(text, tensorrt=(8, 6, 12))))


def test_equal_ranges_where_int8_wants_them() -> None:
    add = "g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,4,8,8] y) { y = Add (x, u) }"
    assert verdict_of("Add", plan_of(add)).verdict == "dla-int8"
    unequal = verdict_of("Add", plan_of(add, scales={"u": 0.2}))
    assert (unequal.verdict, limits_of(unequal)) == ("dla-fp16", {"E1"})
    assert unequal.findings[0].found == "scales 0.1 to 0.2"
    concat = "g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,8,8,8] y) { y = Concat <axis=1> (x, u) }"
    assert limits_of(verdict_of("Concat", plan_of(concat, scales={"y": 0.2}))) == {"K3"}
    pool = "g (float[1,4,8,8] x) => (float[1,4,7,7] y) { y = MaxPool <kernel_shape=[2,2]> (x) }"
    assert limits_of(verdict_of("MaxPool", plan_of(pool, scales={"y": 0.2}))) == {"P5"}


def test_missing_scale_makes_fp16() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Relu (x) }"
    layer = verdict_of("Relu", plan_of(text, missing=("y",)))
    assert (layer.verdict, limits_of(layer), layer.findings[0].found) == ("dla-fp16", {"V1"}, "'y'")


def test_foreign_operators_and_computed_weights_go_to_the_gpu() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = my.domain.Thing (x) }"
    layer = plan_of(text).layers[0]
    assert (layer.verdict, layer.findings[0].found) == ("gpu", "my.domain::Thing")
    text = "g (float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,4,8,8] y) { y = Conv (x, w) }"
    assert limits_of(plan_of(text).layers[0]) == {"C10"}


def test_shape_arithmetic_is_computed_while_building() -> None:
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y) { s = Shape (x)  y = Reshape (x, s) }"""
    plan = plan_of(text)
    assert [layer.verdict for layer in plan.layers] == ["folded", "dla-int8"]
    assert (plan.count("folded"), plan.subgraphs) == (1, 1)


def test_unknown_shapes_are_said_and_not_guessed() -> None:
    text = "g (float[n,4,h,w] x) => (float[n,4,h,w] y) { y = Relu (x) }"
    plan = plan_of(text)
    assert plan.layers[0].verdict == "dla-int8" and set(plan.layers[0].unknown) == {"G1", "G2"}
    assert "static shapes only" in plan.notes[0] and plan.notes[1].startswith("1 layer could not")


def test_subgraphs_end_where_data_passes_the_gpu() -> None:
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    { a = Relu (x)  b = Relu (a)  c = Erf (b)  d = Relu (c)  e = Add (d, a)  y = Relu (e) }"""
    plan = plan_of(text)
    assert [layer.subgraph for layer in plan.layers] == [0, 0, -1, 1, 1, 1]
    assert plan.subgraphs == 2
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    { a = Erf (x)  b = Relu (a)  c = Relu (a)  y = Erf (b)  z = Erf (c) }"""
    assert plan_of(text).subgraphs == 2
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { a = Relu (x)  b = Relu (x)  y = Add (a, b) }"
    assert plan_of(text).subgraphs == 1


def test_more_subgraphs_than_loadables() -> None:
    body = " ".join(f"r{i} = Relu ({'x' if i == 0 else f'e{i - 1}'}) e{i} = Erf (r{i})" for i in range(17))
    plan = plan_of(f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{ {body} y = Relu (e16) }}")
    assert plan.subgraphs == 18
    assert any("more than the 16 loadables" in note for note in plan.notes)


def test_platform_without_dla() -> None:
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Relu (x) }"
    assert "no DLA" in plan_of(text, platform="jetpack-7.2").notes[0]
    assert plan_of(text, platform="jetpack-6.0").notes == []


def test_table_has_one_row_a_limit_with_a_source() -> None:
    ids = Counter(limit.id for limit in LIMITS)
    assert max(ids.values()) == 1 and len(ids) > 50
    for limit in LIMITS:
        assert limit.status in ("documented", "inferred") and limit.effect in ("gpu", "dla-fp16")
        assert limit.source and limit.text and limit.ops and limit.only in ("", "orin", "xavier")


@pytest.mark.parametrize("number, version", [("8602", (8, 6, 2)), ("8612", (8, 6, 12)), ("101503", (10, 15, 3))])
def test_version_of_a_cache_number(number: str, version: tuple[int, int, int]) -> None:
    assert tensorrt_version(number) == version


def test_zoo_networks() -> None:
    import onnx

    flags = {"infer_concat_scales": True, "infer_mul_scales": True, "unify_scales": "max", "target": "orin-dla"}
    path = need_shared(ZOO / "mini" / "yolov8n__mo_dla_fp32.onnx")
    dla = translated(onnx.load(path), **flags).dla
    assert dla is not None
    assert (dla.count("gpu"), dla.subgraphs, dla.count("folded")) == (0, 1, 48)
    ops = Counter((layer.op, layer.verdict) for layer in dla.layers)
    assert ops["Sigmoid", "dla-fp16"] == 45 and ops["Slice", "dla-fp16"] == 16 and ops["Mul", "dla-int8"] == 45
    assert not any(layer.unknown for layer in dla.layers)
    resnet = translated(onnx.load(ZOO / "mini" / "resnet18__nvpq13.onnx"), **flags).dla
    assert resnet is not None
    assert [layer.op for layer in resnet.fallbacks] == ["GlobalAveragePool", "Flatten"] and resnet.subgraphs == 2
