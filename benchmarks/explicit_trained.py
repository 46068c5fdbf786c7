"""Trained networks through `explicit`: their metric against that of the network that was given, and ModelOpt's own placement.

    python -m benchmarks.explicit_trained [--modelopt PYTHON] [--only NAME]

The first table has Q/DQ models: the two that ship, and ONNX Runtime's quantization of the two float networks. The second begins with
float networks; `explicit` and ModelOpt (default placement, and `target_dla`) calibrate on the same images by the largest
magnitude. --modelopt: a Python with nvidia-modelopt 0.47.0 (.ci/run shows how to install it). Metrics and SQNR of ONNX Runtime, FP32
form; layers are those that TensorRT-RTX 1.7's parser (GPU, no DLA) makes, constants included. SQNR: of all outputs together, against the
float network, on 16 images.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.symmetric import quantize_symmetric
from e2e_workflow.common import shapes
from e2e_workflow.common.average_precision import MeanAveragePrecision
from e2e_workflow.denoiser import images as pictures
from e2e_workflow.glyphs import sensitive
from qdq_translator import TranslateOptions, translate
from qdq_translator.commands.located import EXAMPLE_MODEL, EXAMPLE_SAMPLES
from qdq_translator.translation.explicit import ExplicitOptions, explicit
from tests import rtx

WORKFLOWS = Path(sensitive.__file__).parents[1]
FLOAT32 = ExplicitOptions("fp32")
_MODELOPT = """
import sys
import numpy as np
from modelopt.onnx.quantization import quantize
source, target, data, dla = sys.argv[1:]
quantize(source, quantize_mode="int8", calibration_data={"input": np.load(data)["input"]}, calibration_method="max",
         calibration_eps=["cpu"], high_precision_dtype="fp32", target_dla=dla == "1", output_path=target, log_level="ERROR")
"""
Outputs = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """source: a network, float or with Q/DQ. calibration, test: images (N, C, H, W), float32. metric: outputs of each test image
    -> a number, in `unit`."""

    name: str
    source: Path
    calibration: np.ndarray
    test: np.ndarray
    unit: str
    metric: Callable[[Outputs], float]


def _top1(labels: np.ndarray) -> Callable[[Outputs], float]:
    return lambda outputs: (
        100 * float(np.mean([int(next(iter(row.values())).argmax()) == label for row, label in zip(outputs, labels)]))
    )


def tasks() -> list[Task]:
    digits = np.load(EXAMPLE_SAMPLES)
    train, seen = sensitive.parts(sensitive.few(), smoke=True)
    noisy, clean = pictures.pairs(100, pictures.TEST)
    objects, where = shapes.generate(400, 77)

    def average_precision(outputs: Outputs) -> float:
        metric = MeanAveragePrecision()
        for row in outputs:
            metric.add(row, np.empty((0, 1, 5)))
        metric.objects += where
        return metric.result()

    def psnr(outputs: Outputs) -> float:
        return float(np.mean([pictures.psnr(row, label[None]) for row, label in zip(outputs, clean)]))

    detector = WORKFLOWS / "detector" / "detector_qat.onnx"
    denoiser = WORKFLOWS / "denoiser" / "denoiser_float.onnx"
    return [
        Task("digits", EXAMPLE_MODEL, digits["input"][:32], digits["input"], "%", _top1(digits["labels"])),
        Task("detector", detector, shapes.generate(64, pictures.TRAINING)[0], objects, "mAP", average_precision),
        Task("glyphs", sensitive.FLOAT_MODEL, train.images, seen.images, "%", _top1(seen.labels)),
        Task("denoiser", denoiser, pictures.pairs(64, pictures.TRAINING)[0], noisy, "dB", psnr),
    ]


def run(model: onnx.ModelProto, images: np.ndarray) -> Outputs:
    """One image after the other, without ONNX Runtime's fusions of Q/DQ."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return [dict(zip(names, session.run(None, {"input": image[None].astype(np.float32)}))) for image in images]


def decibels(wanted: Outputs, got: Outputs) -> float:
    """SQNR over all outputs, which are matched by their order."""
    pairs = [(a.ravel(), b.ravel()) for x, y in zip(wanted, got) for a, b in zip(x.values(), y.values())]
    signal, noise = (
        sum(float(np.square(values).sum()) for values in side) for side in zip(*((a, a - b) for a, b in pairs))
    )
    return 10 * float(np.log10(signal / max(noise, 1e-30)))


def kept_metric(task: Task, folder: Path) -> str:
    """A row of the first table: the Q/DQ model, and four explicit networks made of it."""
    source = task.source
    if not any(node.op_type == "QuantizeLinear" for node in onnx.load(source).graph.node):
        source = folder / f"{task.name}_ort.onnx"
        quantize_symmetric(task.source, source, iter([{"input": image[None]} for image in task.calibration]))
    shape = "x".join(map(str, (1, *task.test.shape[1:])))
    cells = [f"{task.metric(run(onnx.load(source), task.test)):.2f}"]
    dla: dict[str, Any] = {"preset": "dla", "infer_average_pool_scales": True, "shapes": [f"input:{shape}"]}
    for options, how in (
        ({}, FLOAT32),
        ({}, ExplicitOptions()),
        ({"preset": "gpu"}, ExplicitOptions()),
        (dla, ExplicitOptions()),
    ):
        made = explicit(source, TranslateOptions(**options), how)
        cells.append(f"{task.metric(run(made.model, task.test)):.2f}")
    return f"| {task.name}, {task.unit} | {' | '.join(cells)} |"


def placements(task: Task, folder: Path, modelopt: str) -> list[str]:
    """Rows of the second table: pairs, layers, SQNR and metric of each placement."""
    translation = (
        translate(task.source, TranslateOptions(platform="jetpack-6.2")) if task.source.stem.endswith("qat") else None
    )
    source = translation.save(folder).model if translation is not None else task.source
    data = folder / f"{task.name}.npz"
    np.savez(data, input=task.calibration)
    reference = onnx.load(source)
    wanted = run(reference, task.test[:16])
    shape = f"input:{'x'.join(map(str, (1, *task.test.shape[1:])))}"
    found = {"float": reference}
    for word, flag in (("ModelOpt", "0"), ("ModelOpt, target_dla", "1")) if modelopt else ():
        target = folder / f"{task.name}_{flag}.onnx"
        subprocess.run(
            [modelopt, "-c", _MODELOPT, str(source), str(target), str(data), flag], check=True, capture_output=True
        )
        found[word] = onnx.load(target)
    for preset in ("gpu", "dla"):
        options = TranslateOptions(preset=preset, calibrate=str(data), calibrate_method="max", shapes=[shape])
        found[f"explicit, {preset}"] = explicit(source, options, FLOAT32).model
    rows = []
    for word, network in found.items():
        pairs = sum(node.op_type == "QuantizeLinear" for node in network.graph.node)
        layers = len(rtx.parse(network).layers)
        db = "" if word == "float" else f"{decibels(wanted, run(network, task.test[:16])):.1f}"
        rows.append(
            f"| {task.name} | {word} | {pairs} | {layers} | {db} | {task.metric(run(network, task.test)):.2f} {task.unit} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modelopt", default="", metavar="PYTHON")
    parser.add_argument("--only", default="", metavar="NAME")
    arguments = parser.parse_args()
    chosen = [task for task in tasks() if arguments.only in task.name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        print("| network, metric | Q/DQ model | FP32 | FP16 | FP16, `--preset gpu` | FP16, `--preset dla` |")
        print(f"| --- | {'---: | ' * 5}".rstrip())
        for task in chosen:
            print(kept_metric(task, folder), flush=True)
        print(
            "\n| network | placement | Q/DQ pairs | layers | SQNR, dB | metric |\n| --- | --- | ---: | ---: | ---: | ---: |"
        )
        for task in chosen:
            print("\n".join(placements(task, folder, arguments.modelopt)), flush=True)


if __name__ == "__main__":
    main()
