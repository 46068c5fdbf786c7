"""--dla_rewrites as a whole: when it acts, what it says, and the zoo's networks."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.cli import main, main_translate
from qdq_translator.commands.located import EXAMPLE_MODEL
from qdq_translator.core.errors import UsageError
from qdq_translator.translation.passes.dla import NO_REWRITE, RULES
from qdq_translator.translation.passes.no_ops import NO_OPS
from qdq_translator.translation.scales.network import followed
from qdq_translator.translation.targets.dla.limits import GPU, LIMITS
from qdq_translator.translation.translator import translate
from tests.conftest import ZOO, need_shared, zoo_paths
from tests.dla.check import INFER, ORIN, SCALE, assert_equal_engines, both, graph, pair, same, weights
from tests.explicit_reference import assert_equal_function, in_float32, random_inputs, run

FAMILIES = ("yolov5n", "yolov8n", "mobilenet_v2", "resnet18", "unet", "mlp", "vit")
LEFT_OUT = ("mlp__mo_fp32", "mobilenet_v2__ort_u8", "vit__ort_u8", "mlp__pt2e")  # nothing to translate, or asymmetric
NETWORKS = [p for p in zoo_paths("mini/*.onnx") if p.stem.split("__")[0] in FAMILIES and p.stem not in LEFT_OUT]
CLASSIFIER = (
    pair("x", "q")
    + "c = Conv (q, w)\nm = GlobalAveragePool (c)\n"
    + pair("m", "p")
    + "f = Flatten (p)\ny = Gemm <transB = 1> (f, v)"
)


def classifier(size: str = "6,6") -> onnx.ModelProto:
    arrays = {"w": weights(1, 4, 2, 1, 1), "v": weights(2, 3, 4)}
    return graph(f"float[1,2,{size}] x", "float[1,3] y", CLASSIFIER, **arrays)


def ops(**options: Any) -> list[str]:
    return [n.op_type for n in translate(classifier(), TranslateOptions(**options)).graph.nodes]


PLAIN, REWRITTEN = ["Conv", "GlobalAveragePool", "Flatten", "Gemm"], ["Conv", "Conv", "Conv", "Reshape"]


def test_only_on_a_dla_unless_forced() -> None:
    assert ops() == ops(target="orin-dla") == ops(dla_rewrites=True) == ops(dla_rewrites=False) == PLAIN
    assert ops(target="orin-dla", dla_rewrites=True) == ops(target="xavier-dla", dla_rewrites="on") == REWRITTEN
    assert ops(dla_rewrites="force") == ops(target="orin-dla", dla_rewrites="force") == REWRITTEN
    idle = translate(classifier(), TranslateOptions(dla_rewrites=True))
    note = next(d for d in idle.diagnostics if d.rule == "D0")
    assert "does nothing" in note.message and "--on dla" in note.hint
    with pytest.raises(UsageError, match="sometimes"):
        ops(target="orin-dla", dla_rewrites="sometimes")


def test_what_the_dla_runs_stays_as_it_is() -> None:
    body = (
        pair("x", "q") + "c = Conv <pads = [1, 1, 1, 1]> (q, w)\nr = MaxPool <kernel_shape = [2, 2]> (c)\ny = Relu (r)"
    )
    found = same(graph("float[1,2,6,6] x", "float[b,c,h,w2] y", body, w=weights(1, 4, 2, 3, 3)), bits=True)
    assert found.rules == [] and found.rewritten.model == found.plain.model
    assert found.rewritten.report["dla_rewrites"] == {"applied": [], "nodes": {}, "tensors": {}, "left": []}


def test_report_maps_old_names_to_new_and_lists_the_rest() -> None:
    found = both(classifier())
    report = found.rewritten.report["dla_rewrites"]
    pool, flatten, gemm = (n.name for n in list(found.plain.graph.nodes)[1:])
    assert report["nodes"] == {pool: [pool], flatten: [gemm, f"{gemm}_2d"], gemm: [gemm, f"{gemm}_2d"]}
    assert report["tensors"] == {"f": ["m"]}
    assert [(row["rule"], row["new_tensors"]) for row in report["applied"]] == [("D4", []), ("D5", ["y_4d"])]
    assert report["left"] == [
        {
            "node": f"{gemm}_2d",
            "op": "Reshape",
            "limit": "H1 four dimensions before and after",
            "why": next(limit.stays for limit in LIMITS if limit.id == "H1"),
        }
    ]
    for rule in ("D4", "D5"):
        note = next(d for d in found.rewritten.diagnostics if d.rule == rule)
        assert note.severity == "info" and note.data["nodes"]
    last = next(d for d in found.rewritten.diagnostics if d.rule == "D0" and d.data)
    assert f"'{gemm}_2d'" in last.message and last.data["left"] == report["left"]


def test_left_says_why_no_rule_applied() -> None:
    found = both(classifier("h,26"))
    report = found.rewritten.report["dla_rewrites"]
    row = next(row for row in report["left"] if row["op"] == "GlobalAveragePool")
    assert row["why"] == "its input does not have four dimensions with known channels, H and W"


def test_every_name_in_the_files_exists(tmp_path: Path) -> None:
    body = pair("x", "q") + (
        "c = Conv (q, w)\nh = HardSwish (c)\n" + pair("h", "p") + "a, b = Split <axis = 1> (p)\nd = Neg (a)\n"
        "e = Mean (b, d)\n"
        + pair("e", "e1")
        + "m = GlobalAveragePool (e1)\nf = Flatten (m)\ny = Gemm <transB = 1> (f, v)"
    )
    arrays = {"w": weights(1, 8, 2, 1, 1), "v": weights(2, 3, 4)}
    found = both(graph("float[1,2,16,16] x", "float[1,3] y", body, **arrays), **INFER)
    files = found.rewritten.save(tmp_path)
    stored = onnx.load(files.model)
    tensors = {v.name for v in stored.graph.input} | {o for n in stored.graph.node for o in n.output}
    assert set(found.rewritten.tensor_scales) <= tensors
    assert set(files.read_layer_precisions()) <= {n.name for n in stored.graph.node}
    config = files.read_config()
    assert config["scale_origins"]["a"]["rule"] == "D3"
    assert json.loads(files.report.read_text())["dla_rewrites"]["applied"]


def test_every_operator_and_limit_has_a_rewrite_or_a_reason() -> None:
    """An operator that the DLA never has is named in a rule's docstring, or has its reason; so has every limit of the others."""
    named = {word for module in RULES for word in re.findall(r"\w+", module.__doc__ or "")}
    never = {op for limit in LIMITS if limit.id[0] == "O" and limit.id not in ("O5", "O9") for op in limit.ops}
    assert never - named - set(NO_REWRITE) - set(NO_OPS) == set()
    read = "".join(inspect.getsource(module) for module in RULES)
    sends = {limit.id for limit in LIMITS if limit.effect == GPU and limit.id[0] != "O"}
    by_operator = {"A2", "K2", "M1", "P8"}  # whose operators a rule takes, or has a reason for
    assert {limit for limit in sends if f'"{limit}"' not in read} - {
        limit.id for limit in LIMITS if limit.stays
    } <= by_operator


# ---------------------------------------------------------------- command line


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    for call in (
        lambda: main_translate(["--dla_rewrites", "list"]),
        lambda: main(["translate", "--dla-rewrites=list"]),
    ):
        assert call() == 0
        shown = capsys.readouterr().out
        assert [line.split()[1].rstrip(":") for line in shown.splitlines() if line.startswith("Rule D")] == [
            module.RULE for module in RULES
        ]
        assert shown.count("\nNot:") >= len(RULES) - 1


def test_flag_alone_and_with_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in (["--dla_rewrites"], ["--dla_rewrites", "on"]):
        command = ["-i", str(EXAMPLE_MODEL), "-o", str(tmp_path), "--target", "orin-dla", "--json", *flag]
        assert main_translate(command) == 0
        summary = json.loads(capsys.readouterr().out)["translated"][0]
        assert "D5 once" in summary["dla_rewrites"]
        config = json.loads((tmp_path / "digits_resnet_qat_precision_config.json").read_text())
        assert config["options"]["dla_rewrites"] is True
    assert main(["report", "-t", str(tmp_path), "--all"]) == 0
    assert "Rewritten for the DLA: 1 place" in capsys.readouterr().out
    assert main_translate(["--dla_rewrites", "never"]) == 2


# ---------------------------------------------------------------- the zoo


def test_the_zoo_has_every_family() -> None:
    assert {p.stem.split("__")[0] for p in NETWORKS} == set(FAMILIES)


@pytest.mark.parametrize("path", NETWORKS, ids=lambda p: p.stem)
def test_equal_function_on_the_zoo(path: Path) -> None:
    """The stripped model and the rewritten one compute the same, and no weight loses a code."""
    path = need_shared(path)
    options = {**ORIN, **INFER, "add_unary_ew_scales_for_dla": True}
    plain = translate(path, TranslateOptions(**options))
    rewritten = translate(path, TranslateOptions(dla_rewrites=True, **options))
    onnx.checker.check_model(rewritten.model, full_check=True)
    for seed in (0, 1):
        feed = random_inputs(in_float32(plain.model), seed)
        names = list(plain.graph.outputs)
        expected = run(in_float32(plain.model), feed, names)
        assert_equal_function(expected, run(in_float32(rewritten.model), feed, names), 1e-5)
    assert [sum(w.reproduced for w in t.weights) for t in (plain, rewritten)] == [
        sum(w.reproduced for w in plain.weights)
    ] * 2
    assert plain.dla is not None and rewritten.dla is not None
    assert rewritten.dla.count("gpu") <= plain.dla.count("gpu") and rewritten.dla.subgraphs <= plain.dla.subgraphs
    assert rewritten.dla.count("dla-int8") >= plain.dla.count("dla-int8")


@pytest.mark.parametrize("name", ["resnet18__nvpq13", "mobilenet_v2__nvpq13", "yolov8n__nvpq13", "mlp__nvpq13"])
def test_equal_engines_on_the_zoo(name: str) -> None:
    """What both engines hold as codes is equal bit for bit, where the rewrites quantize nothing else."""
    path = need_shared(ZOO / "mini" / f"{name}.onnx")
    found = both(onnx.load(path))
    assert found.rules
    assert_equal_engines(
        found, {k: np.round(v / SCALE) * SCALE for k, v in random_inputs(found.plain.model, 3).items()}
    )


def test_a_rewrite_of_many_nodes_at_once_is_followed_quickly() -> None:
    """A region of rule D5 becomes all of its layers: 30 layers behind each other are 30! ways through them."""
    names = [f"Gemm_{number}" for number in range(30)]
    found = followed(dict.fromkeys(names, names))
    assert {name: sorted(ends) for name, ends in found.items()} == dict.fromkeys(names, sorted(names))
    assert followed({"a": ["b", "c"], "b": ["b", "d"], "d": ["e"]}) == {
        "a": ["b", "e", "c"],
        "b": ["b", "e"],
        "d": ["e"],
    }
