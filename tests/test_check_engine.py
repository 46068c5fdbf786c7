"""check-engine: layer information of 8.x and 10.x, regions, logs, and the verdicts over a plan."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from qdq_translator.board.engine import inspector, layer_info
from qdq_translator.board.engine.inspector import check_engine
from qdq_translator.board.engine.layer_info import (
    EngineLayer,
    fused_names,
    parse_layer_info,
    precision_of,
    read_layer_info,
)
from qdq_translator.board.engine.messages import parse_log
from qdq_translator.translation.targets.precision import LayerPlan
from tests.conftest import SHARED, need_shared

ENGINE = SHARED / "engine_info" / "mobilenet.qat.onnx.engine.graph.json"
INT8_8 = "Thirty-two wide channel vectorized row major Int8 format"
FP16_8 = "Channel major FP16 format where channel % 8 == 0"


def planned(
    name: str, op: str, precision: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], listed: bool = False
) -> LayerPlan:
    return LayerPlan(name, op, precision=precision, inputs=inputs, outputs=outputs, listed=listed)


def chain(*rows: tuple[str, str, str]) -> list[LayerPlan]:
    """A plan of layers (name, op, precision) that feed each other; FP16 is asked for."""
    return [
        planned(name, op, precision, (f"t{i}", f"{name}.weight"), (f"t{i + 1}",), precision == "fp16")
        for i, (name, op, precision) in enumerate(rows)
    ]


def row(name: str, kind: str, before: str, after: str, **more: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "LayerType": kind,
        "Inputs": [{"Name": "i", "Location": "Device", "Dimensions": [1], "Format/Datatype": before}],
        "Outputs": [{"Name": "o", "Location": "Device", "Dimensions": [1], "Format/Datatype": after}],
        **more,
    }


def info(*rows: dict[str, Any], ends: str = "Bindings") -> list[EngineLayer]:
    return parse_layer_info(json.dumps({"Layers": list(rows), ends: ["in", "out"]}))


def verdicts(check: inspector.EngineCheck) -> dict[str, tuple[str, str]]:
    return {v.name: (v.verdict, v.actual) for v in check.verdicts}


def real_nodes() -> list[str]:
    """Nodes of the real engine's model, in its order, taken from the text and not through our reader."""
    text = need_shared(ENGINE).read_text()
    names = re.findall(r'"Name": "([^"]*)",\s*"LayerType"', text)
    found = [n for name in names for n in re.findall(r"(?:Conv|Clip|Add|Gemm|GlobalAveragePool)_\d+", name)]
    return list(dict.fromkeys(found))


def test_the_real_engine_of_mobilenet() -> None:
    """An explicit TensorRT 8 engine: every weighted layer in INT8, pooling in FP16, one Q after each residual."""
    nodes = real_nodes()
    plan = chain(*((n, n.split("_")[0], "int8") for n in nodes))
    text = ENGINE.read_text()
    check = check_engine(plan, read_layer_info(ENGINE))
    result = verdicts(check)
    weighted = [n for n in nodes if n.startswith(("Conv", "Gemm"))]
    assert len(weighted) == text.count('"Weights": {"Type": "Int8"') == 53
    assert all(result[n] == ("obeyed", "int8") for n in weighted)
    assert [n for n in nodes if result[n][0] != "obeyed"] == ["GlobalAveragePool_843"]
    assert result["GlobalAveragePool_843"] == ("disobeyed", "fp16")
    summary = check.summary()
    assert summary.unfused_qdq == text.count('"Origin": "QDQ"') == 17
    assert summary.reformats == text.count('"Origin": "REFORMAT"') == 1
    assert summary.int8["obeyed"] == len(nodes) - 1
    first = check.unfused_qdq[0]
    assert (first.name, first.layer_type, first.change) == ("QuantizeLinear_2", "Reformat", "fp32 -> int8")
    assert first.layouts == "linear -> CHW4" and "the network's input is" in first.why
    assert check.reformats[0].change == "fp16"
    kinds = [e.change for e in check.unfused_qdq]
    rows = [r for r in json.loads(text)["Layers"] if r.get("Origin") == "QDQ"]
    from_fp32 = sum("FP32" in r["Inputs"][0]["Format/Datatype"] for r in rows)
    assert from_fp32 == 4
    assert (kinds.count("fp32 -> int8"), kinds.count("fp16 -> int8")) == (from_fp32, 17 - from_fp32)


def test_fp16_where_int8_was_planned_and_the_reverse() -> None:
    plan = chain(("a", "Conv", "int8"), ("b", "Conv", "fp16"), ("c", "Relu", "fp16"), ("d", "MaxPool", "int8"))
    engine = info(
        row("a.weight + a", "CaskConvolution", FP16_8, FP16_8, Weights={"Type": "Half", "Count": 9}),
        row("b + PWN(c)", "CaskConvolution", INT8_8, INT8_8, Weights={"Type": "Int8", "Count": 9}),
        row("d", "TiledPooling", INT8_8, INT8_8),
    )
    check = check_engine(plan, engine)
    assert verdicts(check) == {
        "a": ("disobeyed", "fp16"),
        "b": ("disobeyed", "int8"),
        "c": ("obeyed", "int8"),
        "d": ("obeyed", "int8"),
    }
    assert [v.name for v in check.disobediences] == ["a", "b"]
    assert check.disobediences[0].why == "CaskConvolution, reads fp16, writes fp16"
    assert not check.obeys
    tolerated = [*plan]
    for index in (0, 1):
        tolerated[index] = LayerPlan(**{**vars(plan[index]), "by_design": True})
    assert check_engine(tolerated, engine).obeys
    unlisted = [plan[0], LayerPlan(**{**vars(plan[1]), "listed": False}), *plan[2:]]
    assert [v.name for v in check_engine(unlisted, engine).disobediences] == ["a"]


@pytest.mark.parametrize("separator", ["\x1e", "\x1f", ""])
def test_metadata_of_10_x(separator: str) -> None:
    """Generated names say nothing; control characters may stand in the JSON as they are."""
    names = ["/c1/Conv", "/sig/Sigmoid [x]", "/mul/Mul"]
    metadata = separator.join(f"[ONNX Layer: {n}]" for n in names)
    fused = row("__myl_FcSigMul_myl0_1", "fusion", "Int8", "Half", Metadata=metadata, StreamId=0)
    text = json.dumps({"Layers": [fused], "I/O Tensors": [{"Name": "x"}]}).replace("\\u001", "\\u001")
    raw = text.replace("\\u001e", "\x1e").replace("\\u001f", "\x1f")
    for form in (text, raw):
        engine = parse_layer_info(form)
        assert engine[0].metadata == tuple(names)
        check = check_engine(chain(*((n, "Conv", "int8") for n in names)), engine)
        assert set(verdicts(check).values()) == {("obeyed", "int8")}


CARRIES, TACTIC = {"Metadata": "[ONNX Layer: f]"}, {"TacticName": "sm80_xmma_gemm_i8f32_i8i32_f32_tn_n"}
HALF_WEIGHT = {"Inputs": [{"Name": n, "Format/Datatype": word} for n, word in (("x", "Int8"), ("w", "Half"))]}
SPEAKS: dict[str, Any] = {
    "the layer with the weights, of several that carry the node": (
        ("__myl_Gemm_2", "int8"),
        row("__myl_Cast_1", "kgen", "Half", "Half", **CARRIES),
        row("__myl_Gemm_2", "gemm", "Half", "Half", **CARRIES, Weights={"Type": "Int8"}),
        row("__myl_Resh_3", "shape_call", "Float", "Float", **CARRIES),
        row("t copy", "Reformat", "Int8", "Half", **CARRIES),
    ),
    "half weights": (("f", "fp16"), row("f", "gemm", "Int8", "Half", **HALF_WEIGHT)),
    "the tactic beside half weights": (("f", "int8"), row("f", "gemm", "Int8", "Half", **HALF_WEIGHT, **TACTIC)),
    "a half input, whatever the tactic": (("f", "fp16"), row("f", "gemm", "Half", "Half", **TACTIC)),
    "a layer, no reformat": (
        ("__myl_1", "fp16"),
        row("copy", "Reformat", "Int8", "Int8", **CARRIES),
        row("__myl_1", "kgen", "Half", "Half", **CARRIES),
    ),
    "a further layer of the node": (("f_2", "int8"), row("f_2", "Slice", "Int8", "Int8")),
}


@pytest.mark.parametrize("which", SPEAKS)
def test_what_speaks_for_a_node(which: str) -> None:
    (speaker, actual), *rows = SPEAKS[which]
    (found,) = check_engine(chain(("f", "MatMul", "int8")), info(*rows)).verdicts
    assert (found.engine_layer, found.actual) == (speaker, actual)
    assert found.verdict == ("obeyed" if actual == "int8" else "disobeyed")


def test_precision_words() -> None:
    words = {
        INT8_8: "int8",
        FP16_8: "fp16",
        "Row major linear FP32": "fp32",
        "Half": "fp16",
        "Float": "fp32",
        "Int64": "int64",
        "N/A due to dynamic shapes": "",
        "BFloat16": "bf16",
    }
    assert {w: precision_of(w) for w in words} == words


FUSED = {
    "w + QuantizeLinear_8 + Conv_12 + PWN(Clip_16)": ["w", "QuantizeLinear_8", "Conv_12", "Clip_16"],
    "PWN(PWN(Sigmoid_1), Mul_2)": ["Sigmoid_1", "Mul_2"],
    "PWN(a) + Conv + PWN(b)": ["a", "Conv", "b"],
    "PWN(PWN(PWN(/a/Sigmoid), /a/Mul), PWN(/b + 1, /c))": ["/a/Sigmoid", "/a/Mul", "/b + 1", "/c"],
    "known + name": ["known + name"],
    "x + known + name + y": ["x", "known + name", "y"],
    "PWN(with, comma, z)": ["with, comma", "z"],
    "PWN(open( paren) + k": ["PWN(open( paren) + k"],
}


@pytest.mark.parametrize(("text", "parts"), FUSED.items())
def test_fused_names(text: str, parts: list[str]) -> None:
    known = dict.fromkeys(["known + name", "with, comma", "/b + 1"], 0)
    assert fused_names(text, known) == parts


def test_reformats_do_not_stand_for_the_layer_they_serve() -> None:
    int8 = [(name, op, "int8") for name, op in (("a", "Conv"), ("b", "Conv"), ("cat", "Concat"))]
    plan = chain(*int8, ("e", "Exp", "none"), ("f", "Exp", "fp16"))
    engine = info(
        row("Reformatting CopyNode for Input Tensor 0 to a + b", "Reformat", "Row major linear FP32", INT8_8),
        row("Reformatting CopyNode for Output Tensor 0 to b", "Reformat", FP16_8, "Row major linear FP16 format"),
        row("some_scale", "Scale", "Float", "Int8"),
        row("b", "CaskConvolution", INT8_8, INT8_8),
    )
    check = check_engine(plan, engine)
    assert verdicts(check) == {
        "a": ("missing", ""),
        "b": ("obeyed", "int8"),
        "cat": ("dissolved", ""),
        "e": ("free", ""),
        "f": ("missing", ""),
    }
    assert [e.change for e in check.quantizers] == ["fp32 -> int8", "fp32 -> int8"]
    assert [e.change for e in check.reformats] == ["fp16"]
    assert [v.name for v in check.disobediences] == ["a"]


def branched() -> list[LayerPlan]:
    """a -> b -> d, a -> c -> d, d -> gap -> fc; s stands between, reading the network's input."""
    rows = [
        ("a", "Conv", ("x", "a.w"), "ta"),
        ("b", "Conv", ("ta",), "tb"),
        ("s", "Conv", ("x",), "ts"),
        ("c", "Conv", ("ta",), "tc"),
        ("d", "Add", ("tb", "tc"), "td"),
        ("gap", "GlobalAveragePool", ("td", "ts"), "tg"),
        ("fc", "Gemm", ("tg",), "y"),
    ]
    return [planned(n, op, "int8", inputs, (out,)) for n, op, inputs, out in rows]


LOG = """[08/31/2023-07:07:40] [I] Set layer fc to precision fp16
[08/31/2023-07:07:40] [W] [TRT] gap: DLA only supports reductions of type max.
[08/31/2023-07:07:41] [W] [TRT] Default DLA is enabled but layer gap is not supported on DLA, falling back to GPU.
[08/31/2023-07:07:41] [TRT] [W] Missing scale and zero-point for tensor td, expect fall back to non-int8 implementation for any layer consuming or producing given tensor
[08/31/2023-07:07:49] [I] [TRT] ---------- Layers Running on DLA ----------
[08/31/2023-07:07:49] [I] [TRT] [DlaLayer] {ForeignNode[a...d]}
[08/31/2023-07:07:49] [I] [TRT] [DlaLayer] {ForeignNode[fc]}
[08/31/2023-07:07:49] [I] [TRT] ---------- Layers Running on GPU ----------
[08/31/2023-07:07:49] [I] [TRT] [GpuLayer] POOLING: gap
[08/31/2023-07:07:49] [I] [TRT] [GpuLayer] /old/style + name
"""


def test_the_log() -> None:
    log = parse_log((LOG + LOG).splitlines())
    assert log.dla[:2] == ["{ForeignNode[a...d]}", "{ForeignNode[fc]}"]
    assert log.gpu[:2] == ["gap", "/old/style + name"]
    assert log.set_precisions == {"fc": "fp16"}
    assert list(log.missing_scales) == ["td"]
    assert list(log.fallbacks) == [
        ("gap", "gap: DLA only supports reductions of type max."),
        ("gap", "Default DLA is enabled but layer gap is not supported on DLA, falling back to GPU."),
    ]
    other = parse_log(
        "[E] [TRT] Layer '/x/Pow' is not supported on DLA but GPU fallback is not enabled.\n"
        "Calibration table does not match calibrator algorithm type.\n"
        "Rejecting some int8 implementation of layer L due to missing int8 scales for tensor T at input index 0\n".splitlines()
    )
    assert [layer for layer, _ in other.fallbacks] == ["/x/Pow"]
    assert (other.cache_rejected, list(other.missing_scales)) == (True, ["T"])


def test_dla_regions_are_expanded_along_the_graph() -> None:
    engine = info(
        row("{ForeignNode[a...d]}", "DLA", "Int8", "Int8"),
        row("gap", "Reduce", "Half", "Half"),
        row("{ForeignNode[fc]}", "DLA", "Half", "Half"),
        row("s", "CaskConvolution", "Int8", "Int8", Weights={"Type": "Int8"}),
    )
    check = check_engine(branched(), engine, parse_log(LOG.splitlines()), ["fc", "stale"])
    assert [(r.nodes, r.device) for r in check.regions] == [(("a", "b", "c", "d"), "DLA"), (("fc",), "DLA")]
    result = verdicts(check)
    assert {result[n] for n in "abcd"} == {("unseen", "")}
    assert result["s"] == ("obeyed", "int8")
    assert result["gap"] == ("disobeyed", "fp16")
    assert result["fc"] == ("disobeyed", "fp16")  # planned INT8 at the edge of a region without any INT8 edge
    causes = {row.layer: row.cause for row in check.gpu_fallbacks}
    assert causes.keys() == {"s", "gap"} and "DLA only supports reductions" in causes["gap"]
    why = {v.name: v.why for v in check.verdicts}
    assert why["gap"] == "TensorRT missed the scale of 'td'"
    assert why["fc"] == "the DLA region has no INT8 input or output"
    assert check.unmatched_precisions == ["stale"]
    assert check.summary().dla_subgraphs == 2


def test_a_region_takes_the_nodes_that_nobody_else_computes() -> None:
    """`s` lies between first and last in graph order, though on no path; the first may be a weight's name."""
    engine = info(row("{ForeignNode[a.w...gap]}", "Myelin", "Half", "Half"), row("fc", "gemm", "Int8", "Half"))
    check = check_engine(branched(), engine)
    (region,) = check.regions
    assert (region.nodes, region.device) == (("a", "b", "s", "c", "d", "gap"), "GPU")
    assert check.gpu_fallbacks == []
    assert verdicts(check)["a"] == ("unseen", "")  # no claim about the inside of a GPU region


def test_a_path_counts_more_than_the_order() -> None:
    """Both regions span `c` in graph order; only the second has it on a path."""
    engine = info(
        row("{ForeignNode[s...gap]}", "DLA", "Int8", "Int8"), row("{ForeignNode[a...d]}", "DLA", "Int8", "Int8")
    )
    plan = branched()
    plan[5] = planned("gap", "GlobalAveragePool", "int8", ("ts",), ("tg",))
    check = check_engine(plan, engine)
    assert [r.nodes for r in check.regions] == [("s", "gap"), ("a", "b", "c", "d")]


def test_region_ends_whose_names_hold_dots() -> None:
    plan = chain(("m...x", "Conv", "int8"), ("n.1", "Conv", "int8"), ("last...", "Conv", "int8"))
    engine = info(row("{ForeignNode[m...x...last...]}", "DLA", "Int8", "Int8"))
    assert check_engine(plan, engine).regions[0].nodes == ("m...x", "n.1", "last...")


WORDS = {
    "CHW32": "Thirty-two wide channel vectorized row major Int8 format",
    "CHW4": "Four wide channel vectorized row major Int8 format",
    "CHW16": "Sixteen wide channel vectorized row major FP16 format",
    "HWC8": "Channel major FP16 format where channel % 8 == 0",
    "linear": "Row major linear FP32",
}


def layer_of(name: str, kind: str, reads: tuple[str, str], writes: tuple[str, str]) -> layer_info.EngineLayer:
    ends = [(layer_info.EngineTensor(tensor, WORDS[layout]),) for tensor, layout in (reads, writes)]
    return layer_info.EngineLayer(name, kind, *ends)


def test_reformats_stand_between_layers_for_a_reason() -> None:
    """CHW32 -> CHW4 -> CHW32 around a Resize, a change of type, and one at each end of the network."""
    layers = [
        layer_of("in", "Reformat", ("x", "linear"), ("x'", "CHW32")),
        layer_of("c1", "CaskConvolution", ("x'", "CHW32"), ("a", "CHW32")),
        layer_of("r1", "Reformat", ("a", "CHW32"), ("a'", "CHW4")),
        layer_of("resize", "Resize", ("a'", "CHW4"), ("b", "CHW4")),
        layer_of("r2", "Reformat", ("b", "CHW4"), ("b'", "CHW32")),
        layer_of("c2", "CaskConvolution", ("b'", "CHW32"), ("c", "CHW32")),
        layer_of("c3", "CaskConvolution", ("c", "CHW32"), ("d", "CHW32")),
        layer_of("r3", "Reformat", ("d", "CHW32"), ("d'", "HWC8")),
        layer_of("s", "Softmax", ("d'", "HWC8"), ("e", "HWC8")),
    ]
    check = inspector.check_engine([], layers)
    found = {row.name: row for row in (*check.reformats, *check.quantizers)}
    around = "Resize computes in CHW4 here, and the layers around it in CHW32"
    assert (found["r1"].layouts, found["r1"].between, found["r1"].why) == ("CHW32 -> CHW4", ("c1", "resize"), around)
    assert (found["r2"].layouts, found["r2"].between, found["r2"].why) == ("CHW4 -> CHW32", ("resize", "c2"), around)
    assert found["r3"].why == "CaskConvolution writes int8, Softmax reads fp16"
    assert found["in"].between == ("", "c1") and "the network's input is Row major linear FP32" in found["in"].why


@pytest.mark.parametrize(("words", "layout"), [
    *((words, layout) for layout, words in WORDS.items()),
    ("Int8 NC/32HW32", "CHW32"),
    ("Half HWC", "HWC"),
    ("Half", ""),
])  # fmt: skip
def test_layouts(words: str, layout: str) -> None:
    assert layer_info.layout_of(words) == layout
