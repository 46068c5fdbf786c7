"""The DLA's limits: every row of the table kept and broken by a small model, verdicts, and predicted subgraphs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Optional

import numpy as np
import pytest

from qdq_translator.core.formats.report_rows import Verdict
from qdq_translator.translation.ir.graph import Graph
from qdq_translator.translation.ir.types import TensorTypes
from qdq_translator.translation.scales.inference import Context, Policy
from qdq_translator.translation.scales.table import Origin, ScaleTable
from qdq_translator.translation.targets.dla.limits import LIMITS, NO_SCALE, UNKNOWN_OPERATOR
from qdq_translator.translation.targets.dla.verdicts import DlaPlan, judge
from qdq_translator.translation.targets.platforms import Hardware, cache_version, find_platform, tensorrt_version
from qdq_translator.translation.targets.precision import make_plan
from tests.conftest import ZOO, need_shared
from tests.small_models import model, pair, translated


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
    context = Context(graph, types, table, Policy(target=target))
    plan = make_plan(graph, types, table, frozenset(), {})
    return judge(
        context,
        plan,
        Hardware(target, cache_version(tensorrt), "option", find_platform(platform) if platform else None),
    )


def verdict_of(op: str, plan: DlaPlan) -> Verdict:
    return next(layer for layer in plan.layers if layer.op == op)


def limits_of(layer: Verdict) -> set[str]:
    return {finding.limit for finding in layer.findings}


def one(op: str, attributes: str, shape: str, out: str, extra: str = "", **more: Any) -> Verdict:
    """The verdict of a network of one node."""
    attributes = f"<{attributes}>" if attributes else ""
    text = f"g (float[{shape}] x) => (float[{out}] y) {{ y = {op} {attributes} (x{extra}) }}"
    return verdict_of(op, plan_of(text, **more))


def weight(*shape: int) -> dict[str, np.ndarray]:
    return {"w": np.ones(shape, np.float32)}


def slice_arrays(starts: list[int], ends: list[int], axes: list[int]) -> dict[str, np.ndarray]:
    return {"b": np.array(starts), "e": np.array(ends), "a": np.array(axes)}


def test_slice_with_parameters_from_data_is_not_known_to_be_static() -> None:
    text = """g (float[1,4,8,8] x, int64[1] b) => (float[1,n,8,8] y) { y = Slice (x, b, e, a) }"""
    layer = verdict_of("Slice", plan_of(text, e=np.array([2]), a=np.array([1])))
    assert "S4" in layer.unknown and layer.verdict == "dla-fp16"


def resize(attributes: str, factors: list[float], out: str, sizes: bool = False, **more: Any) -> Verdict:
    arrays = {"f": np.array(factors, np.int64 if sizes else np.float32)}
    return one("Resize", attributes, "1,4,8,8", out, ", , , f" if sizes else ", , f", **arrays, **more)


RELU = ("Relu", "", "1,4,8,8", "1,4,8,8")
NEAREST = 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
LINEAR = 'mode="linear", coordinate_transformation_mode='
BINARY = "g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,{c},8,8] y) {{ y = {op} (x, u) }}"


def conv(attributes: str, shape: str, out: str, w: dict[str, np.ndarray], op: str = "Conv", **more: Any) -> Verdict:
    return one(op, attributes, shape, out, ", w", **w, **more)


def sliced(shape: str, out: str, axis: int) -> Verdict:
    return one("Slice", "", shape, out, ", b, e, a", **slice_arrays([0], [2], [axis]))


def stepped(step: int) -> Verdict:
    """Rows 0, 2, 4 and 6 of 8, or 7, 6, 5 and 4."""
    arrays = slice_arrays([0 if step > 0 else 7], [8 if step > 0 else 3], [2])
    return one("Slice", "", "1,4,8,8", "1,4,4,8", ", b, e, a, s", s=np.array([step]), **arrays)


def pair_of(op: str, channels: int = 4, **more: Any) -> Verdict:
    return verdict_of(op.split()[0], plan_of(BINARY.format(op=op, c=channels), **more))


def compared(reader: str, **more: Any) -> Verdict:
    out = "float" if reader.startswith("Cast") else "bool"
    text = (
        f"g (float[1,4,8,8] x, float[1,4,8,8] u) => ({out}[1,4,8,8] y) {{{{ b = Greater (x, u)  y = {reader} (b) }}}}"
    )
    return verdict_of("Greater", plan_of(text.replace("{{", "{").replace("}}", "}"), tensorrt=(8, 6, 12), **more))


def prelu(slope: str, **more: Any) -> Verdict:
    text = f"g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,4,8,8] y) {{ y = PRelu (x, {slope}) }}"
    return verdict_of("PRelu", plan_of(text, **more))


def buffer(width: int, tensorrt: tuple[int, int, int], **more: Any) -> Verdict:
    """1x1 over 2048 channels: 1 bank for the weights, 2048 / 32 * width / 4 / 256 = width / 16 for the data."""
    return conv("", f"1,2048,2,{width}", f"1,8,2,{width}", weight(8, 2048, 1, 1), tensorrt=tensorrt, **more)


def deconv(attributes: str, shape: str, out: str, w: dict[str, np.ndarray]) -> Verdict:
    return conv(attributes, shape, out, w, "ConvTranspose")


def pool(attributes: str, shape: str, out: str, op: str = "MaxPool", **more: Any) -> Verdict:
    return one(op, attributes, shape, out, **more)


def with_indices() -> Verdict:
    text = "g (float[1,4,8,8] x) => (float[1,4,7,7] y, int64[1,4,7,7] i) { y, i = MaxPool <kernel_shape=[2,2]> (x) }"
    return verdict_of("MaxPool", plan_of(text))


def computed_weight(op: str) -> Verdict:
    text = f"g (float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,4,8,8] y) {{ y = {op} (x, w) }}"
    return verdict_of(op, plan_of(text))


def cast() -> Verdict:
    return verdict_of("Cast", plan_of("g (float[1,4,8,8] x) => (float16[1,4,8,8] y) { y = Cast <to=10> (x) }"))


def compared_cast() -> Verdict:
    text = "g (float[1,4,8,8] x, float[1,4,8,8] u) => (float[1,4,8,8] y) { b = Greater (x, u)  y = Cast <to=1> (b) }"
    return verdict_of("Cast", plan_of(text, tensorrt=(8, 6, 12)))


def clip(low: float, high: float) -> Verdict:
    return one("Clip", "", "1,4,8,8", "1,4,8,8", ", lo, hi", lo=np.float32(low), hi=np.float32(high))


def softmax(size: int, target: str = "orin-dla") -> Verdict:
    return one("Softmax", "axis=1", f"1,{size},8,8", f"1,{size},8,8", target=target)


def foreign() -> Verdict:
    return plan_of("g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = my.domain.Thing (x) }").layers[0]


def shuffled(shape: str, out: str) -> Verdict:
    return one("Reshape", "", shape, out, ", r", r=np.array([int(d) for d in out.split(",")]))


PADDED = "kernel_shape=[3,3], pads=[1,1,1,1]"
# limit -> (a layer at the edge that keeps it, a layer that does not)
Case = tuple[Callable[[], Verdict], Callable[[], Verdict]]
LIMIT_CASES: dict[str, Case] = {
    "O1": (lambda: one(*RELU), lambda: one("Erf", "", "1,4,8,8", "1,4,8,8")),
    "O2": (lambda: one(*RELU), lambda: one("Neg", "", "1,4,8,8", "1,4,8,8")),
    "O3": (lambda: pair_of("Mul"), lambda: pair_of("Pow")),
    "O4": (lambda: pair_of("Max"), lambda: pair_of("Min")),
    "O5": (lambda: pair_of("Div", tensorrt=(8, 6, 12)), lambda: pair_of("Div", tensorrt=(8, 6, 11))),
    "O6": (lambda: one("GlobalMaxPool", "", "1,4,8,8", "1,4,1,1", tensorrt=(8, 6, 12)), lambda: one("ReduceMax", "axes=[2,3]", "1,4,8,8", "1,4,1,1", tensorrt=(8, 6, 12))),
    "O7": (lambda: one(*RELU), lambda: one("Dropout", "", "1,4,8,8", "1,4,8,8")),
    "O8": (compared_cast, cast),
    "O9": (lambda: one(*RELU), foreign),
    "G1": (lambda: one("Relu", "", "4096,4,8,8", "4096,4,8,8"), lambda: one("Relu", "", "4097,4,8,8", "4097,4,8,8")),
    "G2": (lambda: one("Relu", "", "1,4,8,8192", "1,4,8,8192"), lambda: one("Relu", "", "1,4,8,8193", "1,4,8,8193")),
    "C1": (lambda: conv("", "1,4,8,8", "1,4,6,6", weight(4, 4, 3, 3)), lambda: conv("", "1,4,8", "1,4,6", weight(4, 4, 3))),
    "C2": (lambda: conv("", "1,4,40,8", "1,4,9,6", weight(4, 4, 32, 3)), lambda: conv("", "1,4,40,8", "1,4,8,6", weight(4, 4, 33, 3))),
    "C3": (lambda: conv("pads=[31,31,31,31]", "1,4,8,8", "1,4,39,39", weight(4, 4, 32, 32)), lambda: conv("pads=[32,32,32,32]", "1,4,8,8", "1,4,39,39", weight(4, 4, 34, 34))),
    "C4": (lambda: conv("pads=[2,2,2,2]", "1,4,8,8", "1,4,10,10", weight(4, 4, 3, 3)), lambda: conv("pads=[3,3,3,3]", "1,4,8,8", "1,4,12,12", weight(4, 4, 3, 3))),
    "C5": (lambda: conv("pads=[1,0,1,0]", "1,4,8,8", "1,4,8,6", weight(4, 4, 3, 3)), lambda: conv("pads=[0,0,1,1]", "1,4,8,8", "1,4,7,7", weight(4, 4, 3, 3))),
    "C6": (lambda: conv("strides=[8,1]", "1,4,20,8", "1,4,3,6", weight(4, 4, 3, 3)), lambda: conv("strides=[9,1]", "1,4,20,8", "1,4,2,6", weight(4, 4, 3, 3))),
    "C7": (lambda: conv("dilations=[1,32]", "1,4,8,80", "1,4,6,16", weight(4, 4, 3, 3)), lambda: conv("dilations=[1,33]", "1,4,8,80", "1,4,6,14", weight(4, 4, 3, 3))),
    "C8": (lambda: conv("", "1,1,1,1", "1,8192,1,1", weight(8192, 1, 1, 1)), lambda: conv("", "1,1,1,1", "1,8193,1,1", weight(8193, 1, 1, 1))),
    "C9": (lambda: conv("group=8192", "1,8192,1,1", "1,8192,1,1", weight(8192, 1, 1, 1)), lambda: conv("group=8193", "1,8193,1,1", "1,8193,1,1", weight(8193, 1, 1, 1))),
    "C10": (lambda: conv("", "1,4,8,8", "1,4,8,8", weight(4, 4, 1, 1)), lambda: computed_weight("Conv")),
    "C11": (lambda: buffer(240, (8, 5, 2)), lambda: buffer(241, (8, 5, 2))),
    "C12": (lambda: buffer(240, (8, 6, 0)), lambda: buffer(241, (8, 6, 0))),
    "T1": (lambda: deconv("", "1,4,8,8", "1,4,9,9", weight(4, 4, 2, 2)), lambda: deconv("", "1,4,8", "1,4,9", weight(4, 4, 2))),
    "T2": (lambda: deconv("", "1,4,8,8", "1,4,8,135", weight(4, 4, 1, 128)), lambda: deconv("", "1,4,8,8", "1,4,8,72", weight(4, 4, 1, 65))),
    "T3": (lambda: deconv("", "1,4,8,8", "1,4,29,29", weight(4, 4, 22, 22)), lambda: deconv("", "1,4,8,8", "1,4,39,39", weight(4, 4, 32, 32))),
    "T4": (lambda: deconv("strides=[32,1]", "1,4,2,8", "1,4,34,9", weight(4, 4, 2, 2)), lambda: deconv("strides=[33,1]", "1,4,2,8", "1,4,35,9", weight(4, 4, 2, 2))),
    "T5": (lambda: deconv("pads=[0,0,0,0]", "1,4,8,8", "1,4,10,10", weight(4, 4, 3, 3)), lambda: deconv("pads=[0,1,0,0]", "1,4,8,8", "1,4,10,9", weight(4, 4, 3, 3))),
    "T6": (lambda: deconv("group=1", "1,4,8,8", "1,4,9,9", weight(4, 4, 2, 2)), lambda: deconv("group=2", "1,4,8,8", "1,4,9,9", weight(4, 2, 2, 2))),
    "T7": (lambda: deconv("dilations=[1,1]", "1,4,8,8", "1,4,9,9", weight(4, 4, 2, 2)), lambda: deconv("dilations=[1,2]", "1,4,8,8", "1,4,9,10", weight(4, 4, 2, 2))),
    "T8": (lambda: deconv("", "1,8192,1,1", "1,1,2,2", weight(8192, 1, 2, 2)), lambda: deconv("", "1,8193,1,1", "1,1,2,2", weight(8193, 1, 2, 2))),
    "T9": (lambda: deconv("strides=[2,2], output_padding=[0,0]", "1,4,8,8", "1,4,16,16", weight(4, 4, 2, 2)), lambda: deconv("strides=[2,2], output_padding=[1,0]", "1,4,8,8", "1,4,17,16", weight(4, 4, 2, 2))),
    "P1": (lambda: pool("kernel_shape=[3,3]", "1,4,8,8", "1,4,6,6"), lambda: pool("kernel_shape=[3]", "1,4,8", "1,4,6")),
    "P2": (lambda: pool("kernel_shape=[8,8]", "1,4,8,8", "1,4,1,1"), lambda: pool("kernel_shape=[9,1]", "1,4,9,8", "1,4,1,8")),
    "P3": (lambda: pool("kernel_shape=[8,8], pads=[7,7,7,7]", "1,4,8,8", "1,4,15,15"), lambda: pool("kernel_shape=[9,9], pads=[8,8,8,8]", "1,4,8,8", "1,4,16,16")),
    "P4": (lambda: pool("kernel_shape=[2,2], strides=[16,1]", "1,4,20,8", "1,4,2,7"), lambda: pool("kernel_shape=[2,2], strides=[17,1]", "1,4,20,8", "1,4,2,7")),
    "P5": (lambda: pool("kernel_shape=[2,2]", "1,4,8,8", "1,4,7,7"), lambda: pool("kernel_shape=[2,2]", "1,4,8,8", "1,4,7,7", scales={"y": 0.2})),
    "P6": (lambda: pool(PADDED + ", count_include_pad=1", "1,4,8,8", "1,4,8,8", "AveragePool", target="xavier-dla"), lambda: pool(PADDED, "1,4,8,8", "1,4,8,8", "AveragePool", target="xavier-dla")),
    "P7": (lambda: pool("kernel_shape=[2,2], dilations=[1,1]", "1,4,8,8", "1,4,7,7"), lambda: pool("kernel_shape=[2,2], dilations=[2,1]", "1,4,8,8", "1,4,6,7")),
    "P8": (lambda: pool("kernel_shape=[2,2]", "1,4,8,8", "1,4,7,7"), with_indices),
    "A1": (lambda: one(*RELU), lambda: one("Tanh", "", "1,4,8,8", "1,4,8,8")),
    "A2": (lambda: clip(0, 1), lambda: clip(0, 0.99)),
    "A3": (lambda: one(*RELU), lambda: one("Relu", "", "1,4,8", "1,4,8")),
    "A4": (lambda: prelu("w", **weight(1, 4, 1, 1)), lambda: prelu("u")),
    "E1": (lambda: pair_of("Add"), lambda: pair_of("Add", scales={"u": 0.2})),
    "E2": (lambda: one("Add", "", "1,2,4,8", "1,2,4,8", ", x"), lambda: one("Add", "", "1,2,2,4,8", "1,2,2,4,8", ", x")),
    "E3": (lambda: compared("Cast <to=1>"), lambda: compared("Cast <to=1>", missing=("u",))),
    "E4": (lambda: compared("Cast <to=1>"), lambda: compared("Not")),
    "L1": (lambda: one(*RELU), lambda: one("LRN", "size=5", "1,4,8,8", "1,4,8,8")),
    "L2": (lambda: one("LRN", "size=9", "1,4,8,8", "1,4,8,8"), lambda: one("LRN", "size=11", "1,4,8,8", "1,4,8,8")),
    "K1": (lambda: one("Concat", "axis=-3", "1,4,8,8", "1,8,8,8", ", x"), lambda: one("Concat", "axis=-2", "1,4,8,8", "1,4,16,8", ", x")),
    "K2": (lambda: one("Concat", "axis=1", "1,4,8,8", "1,8,8,8", ", x"), lambda: one("Concat", "axis=1", "1,4,8,8", "1,4,8,8")),
    "K3": (lambda: pair_of("Concat <axis=1>", 8), lambda: pair_of("Concat <axis=1>", 8, scales={"y": 0.2})),
    "R1": (lambda: resize(NEAREST, [1, 1, 2, 2], "1,4,16,16"), lambda: resize(NEAREST, [1, 4, 16, 16], "1,4,16,16", sizes=True)),
    "R2": (lambda: resize(NEAREST, [1, 1, 32, 1], "1,4,256,8"), lambda: resize(LINEAR + '"half_pixel"', [1, 1, 5, 4], "1,4,40,32")),
    "R3": (lambda: resize(LINEAR + '"half_pixel"', [1, 1, 4, 4], "1,4,32,32"), lambda: resize(LINEAR + '"asymmetric"', [1, 1, 2, 2], "1,4,16,16")),
    "S1": (lambda: one(*RELU), lambda: sliced("1,4,8,8", "1,2,8,8", 1)),
    "S2": (lambda: sliced("1,4,8,8", "1,4,2,8", 2), lambda: sliced("1,4,8", "1,2,8", 1)),
    "S3": (lambda: sliced("1,4,8,8", "1,4,8,2", 3), lambda: sliced("4,4,8,8", "2,4,8,8", 0)),
    "S5": (lambda: stepped(2), lambda: stepped(-1)),
    "X1": (lambda: one(*RELU), lambda: softmax(4)),
    "X2": (lambda: softmax(4), lambda: softmax(4, "xavier-dla")),
    "X3": (lambda: softmax(1024), lambda: softmax(1025)),
    "H1": (lambda: shuffled("1,4,8,8", "1,8,4,8"), lambda: shuffled("1,4,8,8", "1,4,64")),
    "H2": (lambda: shuffled("2,4,8,8", "2,8,4,8"), lambda: shuffled("2,4,8,8", "1,8,8,8")),
    "M1": (lambda: one("MatMul", "", "1,4", "1,8", ", w", **weight(4, 8)), lambda: one("MatMul", "", "4,4", "4,4", ", x")),
    "V1": (lambda: one(*RELU), lambda: one(*RELU, missing=("y",))),
}  # fmt: skip
"""S4 is not among them: parameters that are not known to be static are unknown, never broken (tested by itself)."""


@pytest.mark.parametrize("limit", LIMIT_CASES)
def test_every_limit_is_kept_at_its_edge_and_broken_beyond(limit: str) -> None:
    kept, broken = (case() for case in LIMIT_CASES[limit])
    row = next(row for row in (*LIMITS, NO_SCALE, UNKNOWN_OPERATOR) if row.id == limit)
    assert limit not in limits_of(kept) and limit not in kept.unknown
    finding = next(finding for finding in broken.findings if finding.limit == limit)
    assert finding.limit == row.id and finding.found
    gpu = any(finding.effect == "gpu" for finding in broken.findings)
    assert broken.verdict == ("gpu" if gpu else row.effect) and (gpu or row.effect == "dla-fp16")


def test_a_finding_has_all_sizes_of_the_kernel() -> None:
    (finding,) = conv("", "1,4,40,8", "1,4,8,6", weight(4, 4, 33, 3)).findings
    assert (finding.limit, finding.found) == ("C2", "kernel 33x3")


def test_every_row_of_the_table_has_its_case() -> None:
    assert set(LIMIT_CASES) | {"S4"} == {row.id for row in (*LIMITS, NO_SCALE, UNKNOWN_OPERATOR)}


def test_a_missing_scale_can_send_a_convolution_to_the_gpu() -> None:
    """C = 2048, 1x1, W = 200: 1 + 13 banks in INT8, 1 + 25 in FP16 (the facts' own example)."""
    int8, fp16 = buffer(200, (10, 3, 0)), buffer(200, (10, 3, 0), missing=("y",))
    assert (int8.verdict, fp16.verdict, fp16.wants_scale) == ("dla-int8", "gpu", True)
    assert fp16.findings[0].found == "1 + 25 banks in FP16, 1 + 13 in INT8"
    assert not buffer(300, (10, 3, 0), missing=("y",)).wants_scale
    text = "g (float[1,2048,2,200] x) => (float[1,8,2,200] y) {" + pair("x", "xq") + "c = Conv (xq, w)  y = Relu (c) }"
    arrays = {**weight(8, 2048, 1, 1), "s": np.float32(0.05), "z": np.int8(0)}
    made = translated(model(text, 17, 8, **arrays), target="orin-dla")
    row = made.report["plan"][0]
    assert row["device"] == "gpu" and "the missing scale of 'c' is what sends it to the GPU" in row["reason"]


def test_groups_and_unknown_widths_do_not_break_the_buffer() -> None:
    grouped = conv("group=2", "1,4096,2,400", "1,8,2,400", weight(8, 2048, 1, 1), tensorrt=(8, 5, 2))
    assert not {"C11", "C12"} & limits_of(grouped)
    text = "g (float[1,2048,2,n] x) => (float[1,8,2,n] y) { y = Conv (x, w) }"
    assert "C12" in verdict_of("Conv", plan_of(text, **weight(8, 2048, 1, 1))).unknown
    taller = conv("dilations=[5,1]", "1,512,20,64", "1,8,10,62", weight(8, 512, 3, 3), tensorrt=(8, 5, 2))
    assert limits_of(taller) == set()  # 5 banks for the weights' 4,608 bytes are 1; 256 entries of 11 rows are 11
    wider = conv("dilations=[8,1]", "1,512,20,64", "1,8,4,62", weight(8, 512, 3, 3), tensorrt=(8, 5, 2))
    assert limits_of(wider) == {"C11"}  # 17 rows


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
    assert (dla.count("gpu"), dla.subgraphs, dla.count("folded")) == (0, 1, 0)
    ops = Counter((layer.op, layer.verdict) for layer in dla.layers)
    assert ops["Sigmoid", "dla-fp16"] == 45 and ops["Slice", "dla-fp16"] == 16 and ops["Mul", "dla-int8"] == 45
    assert not any(layer.unknown for layer in dla.layers)
    resnet = translated(onnx.load(ZOO / "mini" / "resnet18__nvpq13.onnx"), **flags).dla
    assert resnet is not None
    assert [layer.op for layer in resnet.fallbacks] == ["GlobalAveragePool", "Flatten"] and resnet.subgraphs == 2


def test_what_a_limit_sends_to_the_gpu_is_not_avoidable() -> None:
    """No scale would bring the Erf to the DLA; the Conv behind it would run there in INT8."""
    body = pair("x", "q") + "e = Erf (q) c = Conv (e, w) r = Relu (c)" + pair("r", "p") + "y = Abs (p)"
    text = f"g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{ {body} }}"
    arrays = {**weight(4, 4, 1, 1), "s": np.float32(0.1), "z": np.int8(0)}
    rows = {row.op: row for row in translated(model(text, **arrays), target="orin-dla", platform="jetpack-6.2").plan}
    assert rows["Erf"].missing and rows["Erf"].device == "gpu" and not rows["Erf"].avoidable
    assert rows["Conv"].missing and rows["Conv"].runs == "dla-fp16" and rows["Conv"].avoidable
