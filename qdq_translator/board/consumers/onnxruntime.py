"""ONNX Runtime's TensorRT provider: its options, and a program that runs with them."""

from __future__ import annotations

import dataclasses
import json

from qdq_translator.board.consumers import Bundle

TITLE = "ONNX Runtime (TensorRT execution provider)"
SOURCES = (
    "onnxruntime.ai/docs/execution-providers/TensorRT-ExecutionProvider.html",
    "onnxruntime.ai/docs/api/c/struct_ort_tensor_r_t_provider_options.html",
)
PROGRAM = '''"""Runs {name} with ONNX Runtime's TensorRT provider. The first start builds the engine in engines/."""

import json
from pathlib import Path

import numpy as np
import onnxruntime

here = Path(__file__).resolve().parent
options = json.loads((here / "provider_options.json").read_text())
options["trt_engine_cache_path"] = str(here / options["trt_engine_cache_path"])
session = onnxruntime.InferenceSession(
    str(here / {model!r}), providers=[("TensorrtExecutionProvider", options), "CPUExecutionProvider"]
)
print("providers:", session.get_providers())
inputs = {{row.name: np.zeros(shape, np.float32) for row, shape in zip(session.get_inputs(), {shapes})}}
for row, value in zip(session.get_outputs(), session.run(None, inputs)):
    print(row.name, value.shape, value.dtype)
'''


def refuse(bundle: Bundle) -> str:
    own = {row["tensor"] for row in bundle.files.read_report("scales")["scales"]}
    for name in bundle.files.read_cache().scales:
        if ":" in name and name in own:
            return f"its reader of native tables splits lines at the first ':', and tensor '{name}' holds one"
    return ""


def write(bundle: Bundle) -> list[str]:
    bundle.write("onnxruntime/provider_options.json", json.dumps(provider_options(bundle), indent=2) + "\n")
    cache = bundle.files.read_cache()
    # the provider itself gives constants a range, so that no entry with ':' is missed
    plain = {name: scale for name, scale in cache.scales.items() if ":" not in name}
    bundle.write(f"onnxruntime/engines/{bundle.files.cache.name}", dataclasses.replace(cache, scales=plain).to_text())
    model = bundle.relative(bundle.files.model, "onnxruntime")
    shapes = [list(end.shape) for end in bundle.inputs]
    bundle.write("onnxruntime/run.py", PROGRAM.format(name=bundle.name, model=model, shapes=shapes))
    needs = "needs an ONNX Runtime with the TensorRT provider (onnxruntime-gpu, or JetPack's wheel)"
    return [f"python3 onnxruntime/run.py    # {needs}"]


def provider_options(bundle: Bundle) -> dict[str, str]:
    """The provider looks for the native table in the folder of the engines."""
    options = {
        "trt_int8_enable": "1",
        "trt_fp16_enable": "1",
        "trt_int8_use_native_calibration_table": "1",
        "trt_int8_calibration_table_name": bundle.files.cache.name,
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "engines",
    }
    if bundle.on_dla:
        options.update({"trt_dla_enable": "1", "trt_dla_core": str(bundle.dla_core)})
    return options
