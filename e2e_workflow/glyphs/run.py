"""A classifier of 1,000 characters in unseen fonts: calibrated by maximum, by percentile, and fine-tuned.

    python -m e2e_workflow.glyphs.run [--smoke] [--reuse]

Writes the ONNX models and the test images (test.npz) to e2e_workflow/work/glyphs and, unless --smoke, results.md beside
this file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from e2e_workflow.common import results, translation
from e2e_workflow.common.glyphs import packages
from e2e_workflow.common.lazy import later

if TYPE_CHECKING:
    from torch import nn

    from e2e_workflow.common.tasks import Task

tasks = later("e2e_workflow.common.tasks")

COMMAND = "python -m e2e_workflow.glyphs.run"
PACKAGES = ["torch", "onnx", "onnxruntime", "numpy", "pillow"]
HEADER = ["network", "ranges", "float", "Q/DQ", *translation.HEADER]
PERCENTILE = 99.99

RANGES: dict[str, Callable[[Task, nn.Module], None]] = {
    "max": lambda task, network: tasks.calibrate(task, network),
    "histogram": lambda task, network: tasks.calibrate(task, network, PERCENTILE),
    "qat": lambda task, network: tasks.quantize_aware(task, network),
}
"""How the ranges of the Q/DQ model are found; `qat` is fine-tuned afterwards."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="60 characters, 11 fonts; asserts on the scores")
    parser.add_argument("--reuse", action="store_true", help="the models of an earlier run, where they are")
    options = parser.parse_args()
    smoke = options.smoke
    folder = tasks.WORK / ("glyphs_smoke" if smoke else "glyphs")
    folder.mkdir(parents=True, exist_ok=True)
    task = tasks.GlyphTask(smoke)
    np.savez_compressed(folder / "test.npz", input=task.test_images, labels=task.data.test_labels)
    choices = translation.with_data(task.calibration_images, folder / "calibration.npz")
    models = {name: folder / f"glyphs_{name}.onnx" for name in RANGES}
    float_model = folder / "glyphs_float.onnx"
    if not (options.reuse and all(path.exists() for path in (float_model, *models.values()))):
        network = tasks.float_network(task, smoke)
        task.export(network, float_model, quantized=False)
        for name, find in RANGES.items():
            find(task, network)
            task.export(network, models[name], quantized=True)
    float_score = task.score_of_model(float_model)
    assert float_score >= task.wanted_score, f"float {float_score:.2f} is below {task.wanted_score}"
    rows = []
    for name, model in models.items():
        qdq_score = task.score_of_model(model)
        assert qdq_score >= float_score - task.tolerated_loss, f"{name}: Q/DQ {qdq_score:.2f}, float {float_score:.2f}"
        found = translation.outcomes(model, task.score_of_model, choices=choices)
        cells = [cell for outcome in found for cell in outcome.cells()]
        rows.append([task.name, name, f"{float_score:.2f}", f"{qdq_score:.2f}", *cells])
        print(" | ".join(rows[-1]), flush=True)
        translation.hold(name, qdq_score, found[:1], task.tolerated_loss)
    text = results.table(HEADER, rows)
    print(text)
    if not smoke:
        fonts = f"Top-1 % of {len(task.test_images)} test images. Fonts: {', '.join(packages(smoke))}."
        results.write(Path(__file__).with_name("results.md"), COMMAND, f"{text}\n\n{fonts}", PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
