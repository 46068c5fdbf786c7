"""`report --fix-list`: the lists, given to the real quantizer, do what they promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions, translate
from qdq_translator.cli import main
from qdq_translator.core.command_options import TOOLS
from qdq_translator.core.errors import UserError
from qdq_translator.core.formats.files import TranslationFiles
from qdq_translator.translation.report.fix_lists import fix_lists, module_of
from tests.conftest import OWN_MODELS
from tests.small_models import model

C3 = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
BODY = f"""net (float[1,16,8,8] x) => (float[1,16,8,8] y) {{
    [a_Conv] a = {C3}(x, k0) [a_Relu] ra = Relu(a)
    [b_Conv] b = {C3}(ra, k1) [Concat] c = Concat<axis=1>(b, ra) [n_LeakyRelu] n = LeakyRelu(c)
    [d_Conv] d = {C3}(n, m) [Add] s = Add(d, ra) [e_Relu] re = Relu(s)
    [e_Conv] e = {C3}(re, k2) [g_Relu] rg = Relu(e) [head_Conv] y = {C3}(rg, k3) }}"""


def float_model(path: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = {f"k{i}": rng.normal(size=(16, 16, 3, 3)).astype(np.float32) for i in range(4)}
    onnx.save(model(BODY, m=rng.normal(size=(16, 32, 3, 3)).astype(np.float32), **weights), path)
    return path


def quantize(source: Path, target: Path, **arguments: Any) -> Path:
    """With ONNX Runtime's own quantizer, symmetric as implicit INT8 needs it."""
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            rng = np.random.default_rng(1)
            self.feeds = iter([{"x": rng.normal(size=(1, 16, 8, 8)).astype(np.float32)} for _ in range(4)])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    extra = {"ActivationSymmetric": True, "WeightSymmetric": True}
    quantization.quantize_static(source, target, Reader(), per_channel=True, extra_options=extra, **arguments)
    return target


def fix_list(files: TranslationFiles, tool: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the printed Python assigns."""
    capsys.readouterr()
    assert main(["report", "-t", str(files.folder), "--fix-list", tool]) == 0
    found: dict[str, Any] = {}
    exec(capsys.readouterr().out, {}, found)
    return found


def plan_of(files: TranslationFiles) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(files.report.read_text())["plan"]}


def test_onnxruntime_quantizes_what_the_list_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = float_model(tmp_path / "float.onnx")
    first = quantize(source, tmp_path / "first.onnx", op_types_to_quantize=["Conv"])
    files = translate(first, TranslateOptions()).save(tmp_path / "first")
    avoidable = [name for name, row in plan_of(files).items() if row["precision"] == "fp16" and not row["by_design"]]
    assert avoidable
    arguments = fix_list(files, "onnxruntime", capsys)
    assert {"Add", "Conv", "LeakyRelu"} <= set(arguments["op_types_to_quantize"])
    again = translate(quantize(source, tmp_path / "second.onnx", **arguments), TranslateOptions()).save(tmp_path / "s")
    assert {row["precision"] for row in plan_of(again).values()} == {"int8"}


def test_modelopt_does_what_the_lists_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Convs alone first; then what the list adds and leaves out."""
    modelopt = pytest.importorskip("modelopt.onnx.quantization", exc_type=ImportError)
    source = float_model(tmp_path / "float.onnx")
    data = {"x": np.random.default_rng(1).normal(size=(4, 16, 8, 8)).astype(np.float32)}

    def made(name: str, **arguments: Any) -> Path:
        path = tmp_path / f"{name}.onnx"
        fixed = {"calibration_method": "max", "high_precision_dtype": "fp32", "calibration_eps": ["cpu"], "passes": []}
        modelopt.quantize(str(source), calibration_data=data, output_path=str(path), **fixed, **arguments)
        return path

    first = made("first", op_types_to_quantize=["Conv"])
    files = translate(first, TranslateOptions(keep_fp16=["b_Conv"])).save(tmp_path / "t")
    arguments = fix_list(files, "modelopt", capsys)
    assert "^b_Conv$" in arguments["nodes_to_exclude"]
    second = onnx.load(made("second", **arguments))
    weights = {node.name: node.input[1] for node in second.graph.node if node.op_type == "Conv"}
    assert weights["b_Conv"] == "k1" and weights["d_Conv"] != "m"
    again = translate(tmp_path / "second.onnx", TranslateOptions()).save(tmp_path / "s")
    assert plan_of(again)["d_Conv"]["precision"] == "int8"


def test_onnxruntime_leaves_out_what_is_kept_in_fp16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = float_model(tmp_path / "float.onnx")
    first = quantize(source, tmp_path / "first.onnx")
    files = translate(first, TranslateOptions(keep_fp16=["b_Conv"])).save(tmp_path / "t")
    arguments = fix_list(files, "onnxruntime", capsys)
    assert "b_Conv" in arguments["nodes_to_exclude"]
    second = onnx.load(quantize(source, tmp_path / "second.onnx", **arguments))
    weights = {node.name: node.input[1] for node in second.graph.node if node.op_type == "Conv"}
    assert weights["b_Conv"] == "k1" and weights["d_Conv"] != "m"


def test_modules_of_names_as_pytorch_exports_them() -> None:
    cases = {
        "/layer1/bn2/BatchNormalization_output_0": "layer1.bn2",
        "/features/features.0/conv/conv.1/conv.1.0/Conv": "features.0.conv.1.0",
        "/layer2/downsample/downsample.0/Conv": "layer2.downsample.0",
        "/model.0/conv/Conv_output_0": "model.0.conv",
        "/Add_output_0": "",
        "Conv_12": "",
    }
    assert {name: module_of(name) for name in cases} == cases


@pytest.mark.parametrize("options", [{}, {"preset": "dla", "platform": "jetpack-6.2"}], ids=["gpu", "dla"])
@pytest.mark.parametrize("path", sorted(OWN_MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_lists_name_what_the_model_has(path: Path, options: dict[str, Any]) -> None:
    """Not what normal forms (F8) and rewrites for the DLA made of it."""
    try:
        made = translate(path, TranslateOptions(**options))
    except UserError:
        return
    lists = fix_lists(made.rows)
    graph = onnx.load(path, load_external_data=False).graph
    nodes = {node.name: node.op_type for node in graph.node}
    tensors = {value.name for value in graph.input} | {output for node in graph.node for output in node.output}
    assert {node: op for node, op in lists.leave.items() if nodes.get(node) != op} == {}
    assert set(lists.tensors) <= tensors
    assert set(lists.ops) <= set(nodes.values())


@pytest.mark.parametrize("tool", TOOLS)
def test_names_of_a_model_are_never_code(
    tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor, a node and an operator whose names hold line ends and quotes stay names in what is pasted."""
    from qdq_translator.commands.located import EXAMPLE_MODEL

    files = translate(EXAMPLE_MODEL, TranslateOptions()).save(tmp_path / "t")
    report = json.loads(files.report.read_text())
    evil = "x\nraise SystemExit(3)\n'\"\\"
    report["root_causes"]["causes"][0].update(tensor=evil, in_your_model=evil)
    report["plan"][-1]["name"] = evil
    report["plan"].append({**report["plan"][5], "op": f"Op{evil}", "inputs": [evil]})
    files.report.write_text(json.dumps(report))
    fix_list(files, tool, capsys)  # runs it


def test_wrong_usage(tmp_path: Path) -> None:
    assert main(["report", "-t", str(tmp_path), "--fix-list", "onnxruntime", "--json"]) == 2
    assert main(["report", "-t", str(tmp_path), "--fix-list", "tensorrt"]) == 2
