"""Programs, commands and configurations that TensorRT 11 breaks: every use is found, and none in files without TensorRT."""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path

import pytest

from qdq_translator.board.engine import migration, removed
from qdq_translator.board.engine.messages import parse_log, recognize
from qdq_translator.cli import main

SHARED = Path(__file__).resolve().parents[2] / "shared" / "facts" / "tensorrt_removed"

PROGRAM = """
import tensorrt as trt
from tensorrt import IInt8EntropyCalibrator2

class Mine(trt.IInt8MinMaxCalibrator):          # 5
    pass
class Other(IInt8EntropyCalibrator2):           # 7
    pass
builder = trt.Builder(logger)
network = builder.create_network(1 << 1)        # 10 silent
harmless = builder.create_network(1)
config = builder.create_builder_config()
config.max_workspace_size = 1 << 30             # 13
config.set_flag(trt.BuilderFlag.INT8)           # 14
config.int8_calibrator = Mine()                 # 15
if hasattr(trt.BuilderFlag, "FP16"):            # 16 silent
    pass
for index in range(network.num_layers):
    one = network.get_layer(index)
    one.precision = trt.int8                    # 20
    one.get_output(0).set_dynamic_range(-1, 1)  # 21
config.flags = 1 << 4                           # 22 silent
network.add_quantize(one, two)                  # 23
def typed(net, first: trt.ILayer, cfg: trt.IBuilderConfig):
    net[0].precision = trt.int8                 # 25
    first.precision = trt.int8                  # 26
    if hasattr(cfg, "int8_calibrator"):         # 27 silent
        pass
    if getattr(builder, "platform_has_fast_fp16", False):  # 29 silent
        pass
    if hasattr(cfg, "max_workspace_size") or hasattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH"):
        pass
meter.precision = net_meter.precision = 3
stream.execute(4)
"""
COMMENTED = r"# (\d+)( silent)?$"


def test_python_by_its_syntax_tree(tmp_path: Path) -> None:
    import re

    path = tmp_path / "build.py"
    path.write_text(PROGRAM, encoding="utf-8")
    wanted = {int(m[1]): bool(m[2]) for m in re.finditer(COMMENTED, PROGRAM, re.M)}
    found = migration.uses(path)
    assert found is not None
    assert {use.line: bool(use.why) for use in found} == wanted
    assert {use.line: use.row.needs_scales for use in found}[15]


CPP = """
#include <NvInfer.h>
#include "NvCaffeParser.h"
// config->setInt8Calibrator(nullptr);
const char* text = "BuilderFlag::kINT8";
class Mine : public nvinfer1::IInt8EntropyCalibrator2 {};
void f(IBuilder* builder, IBuilderConfig* config) {
  auto net = builder->createNetworkV2(1U << 1);
  config->setInt8Calibrator(mine); config->setFlag(BuilderFlag::kINT8);
  tensor->setDynamicRange(-1, 1);
  file.destroy();
  engine->destroy();
}
"""


def test_cpp_by_tokens(tmp_path: Path) -> None:
    path = tmp_path / "build.cpp"
    path.write_text(CPP, encoding="utf-8")
    found = migration.uses(path)
    assert found is not None
    assert [(use.line, use.row.name.split("::")[-1]) for use in found] == [
        (3, "#include <NvCaffeParser.h>"),
        (6, "IInt8EntropyCalibrator2"),
        (8, "createNetworkV2(1U << 1) literal"),
        (9, "kINT8"),
        (9, "setInt8Calibrator"),
        (10, "setDynamicRange"),
        (12, "destroy"),
    ]
    assert "another flag" in found[2].why


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "run.sh",
            "trtexec --onnx=m.onnx --int8 \\\n  --inputIOFormats=int8:chw32 --useDLACore=0\ngrep --int8 x # trtexec --fp16\n",
            {"--int8": 1, "--outputIOFormats=<type>:<format>": 2},
        ),
        ("Dockerfile", "RUN trtexec --best --onnx=a.onnx\n", {"--best": 1}),
        ("env.sh", "export ORT_TENSORRT_INT8_ENABLE=1\n", {"ORT_TENSORRT_INT8_ENABLE": 1}),
        ("infer.txt", "[property]\nonnx-file=m.onnx\nnetwork-mode=1\n", {"network-mode=1": 3}),
        ("config.pbtxt", 'parameters { key: "precision_mode" value: "INT8" }\n', {"precision_mode=INT8": 1}),
    ],
)
def test_commands_and_configurations(tmp_path: Path, name: str, text: str, wanted: dict[str, int]) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = migration.uses(path)
    assert found is not None and {use.row.name: use.line for use in found} == wanted
    if name == "infer.txt":
        assert "FP16 with a warning" in found[0].why
        path.write_text(text + "int8-calib-file=c.cache\n", encoding="utf-8")
        again = migration.uses(path)
        assert again is not None and again[0].why == ""


def test_no_use_is_invented_in_files_without_tensorrt() -> None:
    """200 modules of Python's library, whose words (execute, precision, dtype, ...) are those of TensorRT, too."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:200]
    assert len(files) > 150
    assert [path.name for path in files if migration.uses(path)] == []


def test_logs_are_no_programs(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("[E] Unknown option: --int8\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("trtexec --int8\n", encoding="utf-8")
    assert migration.uses(tmp_path / "build.log") is None and migration.uses(tmp_path / "notes.txt") is None


def test_the_command_names_the_replacement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sh"
    path.write_text("trtexec --int8 --calib=net.cache --onnx=net.onnx\n", encoding="utf-8")
    assert main(["explain", str(path)]) == 0
    told = capsys.readouterr().out
    assert "2 uses" in told and "qdq-translator explicit MODEL.onnx -c net.cache" in told
    assert main(["explain", str(path), "--json"]) == 0
    assert [use["line"] for use in json.loads(capsys.readouterr().out)["uses"]] == [1, 1]
    path.write_text("def f(:\n", encoding="utf-8")
    broken = path.rename(tmp_path / "broken.py")
    assert main(["explain", str(broken)]) == 1
    assert "no valid Python" in capsys.readouterr().err


def _message(row: removed.Removal) -> str:
    """How Python, g++ or trtexec words that the name is missing; '' for other rows."""
    owner, _, member = row.name.rpartition("::" if row.language == "cpp" else ".")
    if not row.removed or any(sign in row.name for sign in "(#= ") or not member:
        is_flag = row.language == "trtexec" and row.name.startswith("--") and not set("= ") & set(row.name)
        return f"[E] Unknown option: {row.name} x" if is_flag and row.removed else ""
    if row.language == "cpp":
        return f"error: ‘{member}’ is not a member of ‘{owner}’"
    if row.language == "python":
        of = "module 'tensorrt'" if owner == "trt" else f"'tensorrt_bindings.tensorrt.{owner}' object"
        return f"AttributeError: {of} has no attribute '{member}'"
    return ""


def test_every_removed_name_is_named_by_its_message() -> None:
    rows = [row for row in removed.removals().values() if row.removed and _message(row)]
    assert len(rows) > 350
    for row in rows:
        found = recognize(_message(row))
        assert found is not None and found.message.removal is not None, row.name
        assert found.message.removal.removed == row.removed, row.name


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="LOUDLY: shared facts are not here; the table is not compared with them"
)
def test_the_table_has_every_row_of_the_facts() -> None:
    facts = json.loads((SHARED / "tensorrt-removed-apis.json").read_text(encoding="utf-8"))
    assert {(row["language"], row["name"]) for row in facts} <= removed.removals().keys()


def test_a_version_that_still_has_the_name_is_another_cause() -> None:
    line = "AttributeError: 'tensorrt.tensorrt.ITensor' object has no attribute 'dynamic_range'"
    assert parse_log(["TensorRT version: 11.4.0", line]).ranked()[0].message.id == "removed ITensor.dynamic_range"
    assert parse_log(["[I] TensorRT version: 10.3.0", line]).ranked() == []
    assert removed.stated_version("&&&& FAILED TensorRT.trtexec [TensorRT v8601]") == (8, 6)
    assert removed.stated_version("Use Deprecated in TensorRT 10.12. Superseded") is None


def test_the_readers_read_old_pythons(tmp_path: Path) -> None:
    """`ast.unparse` is of Python 3.9."""
    source = Path(migration.__file__).read_text(encoding="utf-8")
    assert not any(isinstance(n, ast.Attribute) and n.attr == "unparse" for n in ast.walk(ast.parse(source)))
