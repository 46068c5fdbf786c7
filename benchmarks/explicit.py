"""Every network of the zoo through `explicit`: what TensorRT-RTX 1.7 (GPU, no DLA) and ONNX Runtime make of it.

`python -m benchmarks.explicit` builds the FP16, FP32 and DLA forms of each network, and prints the two tables of docs/tables/tensorrt11.md;
`--only PATTERN` takes some networks, `--no_build` loads them in ONNX Runtime only. The form for a DLA is what TensorRT-RTX builds
for a GPU; it does not show that a DLA runs it. Data of `--calibrate` are random.

`--compare` runs the forms and their models in ONNX Runtime instead, and prints a row for each network one of whose forms has an output with a
cosine below that at which `verify --explicit_network` looks for a reason: how many forms, how many for which reason, and the lowest cosine on
random inputs and, of the forms that were not calibrated on such, on smooth noise of deviation 0.5.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.zoo_decibels import smooth
from qdq_translator import TranslateOptions
from qdq_translator.core.command_options import VerifyOptions
from qdq_translator.core.errors import UserError
from qdq_translator.core.progress import silent
from qdq_translator.lab.laboratory import OnnxRuntime
from qdq_translator.lab.migrated import DOUBTED, migrated
from qdq_translator.lab.simulate.evaluation import HERE
from qdq_translator.translation.explicit import Explicit, ExplicitOptions, explicit
from tests import rtx
from tests.conftest import ZOO
from tests.explicit_reference import random_inputs

KINDS = {
    "GPU, FP16": ({"preset": "gpu"}, ExplicitOptions()),
    "GPU, FP32": ({"preset": "gpu"}, ExplicitOptions(float_type="fp32")),
    "DLA form": ({"preset": "dla", "infer_average_pool_scales": True}, ExplicitOptions()),
    "DLA form, --allow_fp16": ({"preset": "dla", "infer_average_pool_scales": True}, ExplicitOptions(allow_fp16=True)),
    "DLA form, --calibrate": ({"preset": "dla", "calibrate": "random"}, ExplicitOptions()),
}


def _real(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Quantized inputs are float in a translation (rule Q6)."""
    quantized = (np.dtype(np.int8), np.dtype(np.uint8))
    return {name: values.astype(np.float32) if values.dtype in quantized else values for name, values in feed.items()}


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
    parser.add_argument("--compare", action="store_true")
    arguments = parser.parse_args()
    data = Path(tempfile.mkdtemp()) / "random.npz"
    paths = sorted(p for folder in ("mini", "edge") for p in (ZOO / folder).glob(f"{arguments.only}.onnx"))
    if arguments.compare:
        compare(paths, data.parent)
        return
    rows: dict[str, Counter[str]] = {}
    refused: dict[str, dict[str, str]] = {}
    for kind, (options, how) in KINDS.items():
        row = rows.setdefault(kind, Counter())
        for path in paths:
            chosen = _chosen(path, options, data)
            why = _one(path, kind, chosen, how, row, not arguments.no_build)
            if why:
                refused.setdefault(path.stem, {})[kind] = why
    print("| form | networks | refused with a reason | built by TensorRT-RTX 1.7 | loaded by ONNX Runtime |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind, row in rows.items():
        print(f"| {kind} | {row['networks']} | {row['refused']} | {row['built']} | {row['loaded'] or ''} |")
    print("| network | refused for | why |\n| --- | --- | --- |")
    for stem, found in refused.items():
        print(f"| {stem} | {', '.join(found)} | {next(iter(found.values()))} |")


def _chosen(path: Path, options: dict[str, Any], data: Path) -> TranslateOptions:
    """The options, with random inputs in `data` to calibrate on."""
    if "calibrate" in options:
        np.savez(data, **_real(random_inputs(onnx.load(path), 1)))
        options = {**options, "calibrate": str(data)}
    return TranslateOptions(per_channel_activations="max", **options)


def compare(paths: list[Path], folder: Path) -> None:
    """Prints the networks that have a form far from their model, and why it is."""
    print(
        f"| network | forms below {DOUBTED} | rounding | saturation | unexplained | lowest cosine | on smooth noise |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for path in paths:
        reasons: Counter[str] = Counter()
        lowest = np.ones(2)
        for options, how in KINDS.values():
            try:
                made = explicit(path, _chosen(path, options, folder / "random.npz"), how, lab=OnnxRuntime())
                cosines, reason = _far(path, made, folder)
            except UserError:
                continue
            if cosines[0] < DOUBTED:
                reasons[reason] += 1
                lowest = np.minimum(lowest, [cosines[0], 1.0 if "calibrate" in options else cosines[1]])
        if reasons:
            counts = " | ".join(str(reasons[reason] or "") for reason in ("rounding", "saturation", ""))
            smooth_noise = f"{lowest[1]:.2f}" if lowest[1] < 1 else ""
            print(f"| {path.stem} | {reasons.total()} | {counts} | {lowest[0]:.2f} | {smooth_noise} |", flush=True)


def _far(path: Path, made: Explicit, folder: Path) -> tuple[list[float], str]:
    """Cosine of the worst output on random inputs and on smooth noise, and what `verify` says about the first."""
    onnx.save(made.model, folder / "made.onnx")
    found = migrated(VerifyOptions(model=str(path)), str(folder / "made.onnx"), silent, HERE)
    cosines = {name: row.cosine for name, row in found.outputs.pairs[0].outputs.items()}
    far = [name for name, cosine in cosines.items() if cosine < DOUBTED]
    if not far:
        return [1.0, 1.0], ""
    notes = {name: next((note for note in found.notes if f"'{name}'" in note), "") for name in far}
    reason = "rounding" if all("own rounding" in note for note in notes.values()) else "saturation"
    (given,) = onnx.load(path).graph.input
    shape = [max(1, size.dim_value) for size in given.type.tensor_type.shape.dim]
    np.savez(folder / "smooth.npz", **{given.name: smooth(1, 8 * shape[0], shape[1:]) / 2})
    again = migrated(
        VerifyOptions(model=str(path), data=str(folder / "smooth.npz")), found.explicit_network, silent, HERE
    )
    nearer = min(row.cosine for row in again.outputs.pairs[0].outputs.values())
    return [min(cosines.values()), nearer], reason if all(notes.values()) else ""


def _one(
    path: Path, kind: str, options: TranslateOptions, how: ExplicitOptions, row: Counter[str], builds: bool
) -> str:
    """Why it was refused, '' if it was written."""
    row["networks"] += 1
    try:
        made = explicit(path, options, how, lab=OnnxRuntime())
    except UserError as error:
        row["refused"] += 1
        return str(error).partition(". ")[0]
    messages = rtx.build(made.model) if builds else ()
    problem = loads(made.model)
    row["built"] += builds and not messages
    row["loaded"] += not problem
    lost = made.to_dict()["layers"]["not_int8_though_planned"]
    for what, found in (("not built", messages), ("not loaded", problem), ("float though planned INT8", lost)):
        if found:
            print(f"{kind}: {path.stem} {what}: {found}", flush=True)
    return ""


if __name__ == "__main__":
    main()
