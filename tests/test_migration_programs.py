"""Ten small programs of each kind that TensorRT 11 breaks: each marked use is found on its line, and nothing else."""

from __future__ import annotations

import json
import re
import sysconfig
from pathlib import Path

import pytest

from qdq_translator.board.engine import migration
from qdq_translator.cli import main

HEAD = "import tensorrt as trt\n"
PYTHON = (
    "class C(trt.IInt8EntropyCalibrator2):  # <\n    def get_batch_size(self):\n        return 1\n",
    "config = builder.create_builder_config()\nconfig.set_flag(trt.BuilderFlag.FP16)  # <\nconfig.clear_flag(trt.BuilderFlag.TF32)\n",
    "net = builder.create_network(flags=1 << 1)  # <\nother = builder.create_network(0)\n",
    "FLAGS = 1 << 1\nnet = builder.create_network(FLAGS)  # <\n",
    "if hasattr(trt.BuilderFlag, 'INT8'):  # <\n    print('int8')\n",
    "for layer in network:\n    layer.precision = trt.float16  # <\n    layer.name = 'a'\n",
    "from tensorrt import BuilderFlag\nconfig.set_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)  # <\n",
    "tensor = network.get_input(0)\ntensor.dynamic_range = (-1.0, 1.0)  # <\ntensor.name = 'x'\n",
    "config.flags |= 1 << 2  # <\n",
    "import subprocess\nsubprocess.run(['trtexec', '--onnx=a.onnx', '--int8'])  # <\n",
    "import onnxruntime\nsession = onnxruntime.InferenceSession('m', providers=[('T', {\n    'trt_int8_enable': True})])  # <\n",
)
CPP_HEAD = "#include <NvInfer.h>\nusing namespace nvinfer1;\n"
CPP = (
    "class C : public IInt8MinMaxCalibrator {};  // <\n",
    "void f(IBuilderConfig* c) { c->setFlag(BuilderFlag::kFP16); }  // <\nvoid g(IBuilderConfig* c) { c->setFlag(BuilderFlag::kTF32); }\n",
    "auto n = builder->createNetworkV2(2U);  // <\nauto m = builder->createNetworkV2(0U);\n",
    "auto n = builder->createNetworkV2(1U << static_cast<uint32_t>(NetworkDefinitionCreationFlag::kEXPLICIT_BATCH));  // <\n",
    "config->setInt8Calibrator(c);  // <\n// config->setInt8Calibrator(c);\n",
    'tensor->setDynamicRange(-1.F, 1.F);  // <\ntensor->setName("setDynamicRange");\n',
    "if (builder->platformHasFastInt8()) {  // <\n}\n",
    'layer->setPrecision(DataType::kINT8);  // <\nlayer->setName("a");\n',
    "layer->setOutputType(0, DataType::kHALF);  // <\n",
    "config->setMaxWorkspaceSize(1 << 30);  // <\nconfig->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, 1 << 30);\n",
)
SHELL = (
    "trtexec --onnx=a.onnx --int8  # <\n",
    "trtexec --onnx=a.onnx \\\n  --fp16 \\\n  --saveEngine=a.engine\n",
    "/usr/src/tensorrt/bin/trtexec --onnx=a.onnx --best  # <\n",
    "trtexec --onnx=a.onnx --inputIOFormats=int8:chw32  # <\n",
    "trtexec --loadEngine=a.engine --iterations=100  # <\necho --int8\n",
    "export ORT_TENSORRT_INT8_ENABLE=1  # <\n",
    "trtexec --onnx=a.onnx --layerPrecisions=a:fp16 --saveEngine=b  # <\n",
    "trtexec --onnx=a.onnx --calib=a.cache --skipInference  # <\n",
    "grep --int8 a.txt\nif true; then trtexec --onnx=a.onnx --bf16; fi  # <\n",
    "trtexec --onnx=a.onnx --useDLACore=0 --precisionConstraints=obey  # <\n",
)
DEEPSTREAM = (
    "[property]\nonnx-file=a.onnx\nnetwork-mode=1  # <\n",
    "[property]\nint8-calib-file=c.table  # <\n",
    "[property]\nmodel-file=a.caffemodel  # <\n",
    "[property]\nproto-file=a.prototxt  # <\n",
    "[property]\nuff-file=a.uff  # <\n",
    "[property]\nlayer-device-precision=a:fp16:gpu  # <\n",
    "[property]\ntlt-encoded-model=a.etlt  # <\n",
    "[property]\nnetwork-mode=1  # <\nint8-calib-file=c.table  # <\n",
    "[property]\nnetwork-mode=3  # <\nbatch-size=1\n",
    "[property]\nbatch-size=4\nuff-input-blob-name=x  # <\n",
)
TRITON = (
    'parameters { key: "precision_mode" value: "INT8" }  # <\n',
    'parameters { key: "precision_mode" value: "FP16" }  # <\n',
    'parameters {\n  key: "trt_int8_enable"  # <\n  value: "true"\n}\n',
    'parameters { key: "int8_calibration_table_name", value: "c.table" }  # <\n',
    'parameters { key: "int8_use_native_calibration_table" value: "true" }  # <\n',
    'platform: "onnxruntime_onnx"\nparameters { key: "trt_bf16_enable" value: "1" }  # <\n',
    'parameters { key: "trt_int8_calibration_table_name" value { string_value: "c" } }  # <\n',
    'parameters { key: "trt_int8_use_native_calibration_table" value: "1" }  # <\n',
    'max_batch_size: 4\nparameters { key: "precision_mode" value: "INT8" }  # <\n',
    'parameters { key: "max_workspace_size_bytes" value: "1" }\nparameters { key: "precision_mode" value: "FP16" }  # <\n',
)
DOCKER = tuple(f"FROM base\nRUN {words}  # <\nRUN pip install onnx\n" for words in (
    "trtexec --onnx=a --int8", "trtexec --onnx=a --fp16", "cd /x && trtexec --best --onnx=a", "trtexec --noTF32 --bf16 --onnx=a",
    "trtexec --onnx=a --calib=c.cache", "trtexec --onnx=a --layerOutputTypes=a:fp16", "trtexec --onnx=a --fp8",
    "trtexec --onnx=a --outputIOFormats=fp16:chw", "ORT_TENSORRT_INT8_ENABLE=1 app", "trtexec --loadEngine=a --warmUp=9",
))  # fmt: skip
CMAKE = tuple(f"project(x)\n{words}  # <\nadd_library(y y.cpp)\n" for words in (
    "add_custom_command(OUTPUT e COMMAND trtexec --onnx=a --int8)", "target_link_libraries(y nvparsers)",
    "find_library(P nvcaffe_parser)", "execute_process(COMMAND trtexec --onnx=a --fp16)", "set(ENV{ORT_TENSORRT_INT8_ENABLE} 1)",
    "add_test(NAME t COMMAND trtexec --loadEngine=a --duration=3)", "add_custom_target(e trtexec --best --onnx=a)",
    "add_custom_target(e trtexec --onnx=a --calib=c)", "target_link_libraries(y nvinfer nvparsers)",
    "add_custom_target(e trtexec --onnx=a --precisionConstraints=obey)",
))  # fmt: skip
KINDS = (
    *(("a.py", HEAD + text) for text in PYTHON),
    *(("a.cpp", CPP_HEAD + text) for text in CPP),
    *(("a.sh", text) for text in SHELL),
    *(("a.txt", text) for text in DEEPSTREAM),
    *(("config.pbtxt", text) for text in TRITON),
    *(("Dockerfile", text) for text in DOCKER),
    *(("CMakeLists.txt", text) for text in CMAKE),
)


def marked(text: str) -> set[int]:
    """Lines with `<` behind their comment sign; for the continued command, the line of its option."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.search(r"(#|//) <$", line)]
    return set(lines) or {text[: text.index("--fp16")].count("\n") + 1}


@pytest.mark.parametrize(("name", "text"), KINDS)
def test_each_use_is_found_and_none_is_invented(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = migration.uses(path)
    assert found is not None and {use.line for use in found} == marked(text)
    assert all(use.row.replacement or use.why for use in found)


@pytest.mark.parametrize("indent", [None, 1])
def test_notebooks(tmp_path: Path, indent: int) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["trt.BuilderFlag.INT8\n"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "import tensorrt as trt\n", "!trtexec --int8 --onnx=a\n"],
        },
        {"cell_type": "code", "source": "if True:\n    !trtexec --fp16 --onnx=a\nnet = builder.create_network(1 << 1)"},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=indent), encoding="utf-8")
    found = migration.uses(path)
    assert found is not None and sorted(use.text for use in found) == ["--fp16", "--int8", "builder.create_network(2)"]
    lines = json.dumps({"cells": cells, "nbformat": 4}, indent=indent or 1).splitlines()
    assert all(use.text.replace("(2)", "") in lines[use.line - 1] for use in found)
    path.write_text("{}", encoding="utf-8")
    assert main(["explain", str(path)]) == 1


def test_no_use_is_invented_in_other_programs() -> None:
    """200 modules of installed packages that do not use TensorRT."""
    folders = (Path(sysconfig.get_paths()[name]) for name in ("purelib", "stdlib"))
    files = [p for folder in folders for p in sorted(folder.rglob("*.py")) if p.stat().st_size < 100_000][::7]
    files = [p for p in files if b"tensorrt" not in p.read_bytes().lower() and b"trt_" not in p.read_bytes()][:200]
    assert len(files) > 150
    for path in files:
        try:
            assert migration.uses(path) == [], path
        except Exception as error:  # a module in Python 2, or in another encoding
            assert "no valid Python" in str(error) or "cannot be read" in str(error) or "UTF-8" in str(error)
