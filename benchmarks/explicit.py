"""Every network of the zoo through `explicit`: what TensorRT-RTX 1.7 (GPU, no DLA) and ONNX Runtime make of it.

`python -m benchmarks.explicit` builds the FP16, FP32 and DLA forms of each network, and prints the table of docs/tensorrt11.md;
`--only PATTERN` takes some networks, `--no_build` loads them in
ONNX Runtime only. The form for a DLA is what TensorRT-RTX builds for a GPU; it does not show that a DLA runs it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime as ort

from qdq_translator import TranslateOptions
from qdq_translator.core.errors import UserError
from qdq_translator.workflows.explicit import ExplicitOptions, explicit
from tests import rtx
from tests.conftest import ZOO

KINDS = {
    "GPU, FP16": ({"preset": "gpu"}, ExplicitOptions()),
    "GPU, FP32": ({"preset": "gpu"}, ExplicitOptions(float_type="fp32")),
    "DLA form": ({"preset": "dla", "infer_average_pool_scales": True}, ExplicitOptions()),
    "DLA form, --allow_fp16": ({"preset": "dla", "infer_average_pool_scales": True}, ExplicitOptions(allow_fp16=True)),
}


def loads(model: onnx.ModelProto) -> str:
    """Why ONNX Runtime does not load it, '' if it does."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if model.opset_import[0].version >= 23:  # its optimizer does not know `output_dtype`
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever ONNX Runtime says
        return str(error)[:150]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="*")
    parser.add_argument("--no_build", action="store_true")
    arguments = parser.parse_args()
    paths = sorted(p for folder in ("mini", "edge") for p in (ZOO / folder).glob(f"{arguments.only}.onnx"))
    rows: dict[str, Counter[str]] = {}
    for kind, (options, how) in KINDS.items():
        row = rows.setdefault(kind, Counter())
        for path in paths:
            _one(
                path, kind, TranslateOptions(per_channel_activations="max", **options), how, row, not arguments.no_build
            )
    print("| form | networks | refused with a reason | built by TensorRT-RTX 1.7 | loaded by ONNX Runtime |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind, row in rows.items():
        print(f"| {kind} | {row['networks']} | {row['refused']} | {row['built']} | {row['loaded'] or ''} |")


def _one(
    path: Path, kind: str, options: TranslateOptions, how: ExplicitOptions, row: Counter[str], builds: bool
) -> None:
    row["networks"] += 1
    try:
        made = explicit(path, options, how)
    except UserError as error:
        row["refused"] += 1
        print(f"{kind}: {path.stem} refused: {str(error)[:120]}", flush=True)
        return
    messages = rtx.build(made.model) if builds else ()
    problem = loads(made.model)
    row["built"] += builds and not messages
    row["loaded"] += not problem
    lost = made.report["layers"]["not_int8_though_planned"]
    for what, found in (("not built", messages), ("not loaded", problem), ("float though planned INT8", lost)):
        if found:
            print(f"{kind}: {path.stem} {what}: {found}", flush=True)


if __name__ == "__main__":
    main()
