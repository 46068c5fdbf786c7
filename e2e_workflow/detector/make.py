"""Makes the detector of the tutorial: detector_qat.onnx and samples.npz beside this file.

    python -m e2e_workflow.detector.make

The small YOLO-style detector of the workflows is trained on synthetic shapes, fine-tuned with fake quantization and exported with
Q/DQ, as e2e_workflow/pytorch_qat does it. The samples are the first 16 test images: `images` (16, 3, 96, 96), float16 in steps of
1/64, and `labels` (16, 4, 5): class, x1, y1, x2, y2 in pixels, with the class -1 where an image holds fewer objects.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx

from e2e_workflow.common.lazy import later
from e2e_workflow.common.shapes import MOST_OBJECTS, Objects

tasks = later("e2e_workflow.common.tasks")
FOLDER = Path(__file__).parent
SAMPLES = 16


def padded(objects: list[Objects]) -> np.ndarray:
    """(images, MOST_OBJECTS, 5) float32: class and box, -1 for none."""
    labels = np.full((len(objects), MOST_OBJECTS, 5), -1, np.float32)
    for row, found in zip(labels, objects):
        row[: len(found.labels), 0] = found.labels
        row[: len(found.labels), 1:] = found.boxes
    return labels


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    task = tasks.DetectorTask(smoke=False)
    network = tasks.float_network(task, smoke=False)
    tasks.quantize_aware(task, network)
    path = task.export(network, FOLDER / "detector_qat.onnx", quantized=True)
    onnx.checker.check_model(str(path), full_check=True)
    images = np.round(task.test_images[:SAMPLES] * 64) / 64
    name = onnx.load(path).graph.input[0].name
    arrays = {name: images.astype(np.float16), "labels": padded(task.test_objects[:SAMPLES])}
    np.savez_compressed(FOLDER / "samples.npz", **arrays)
    score = task.score_of_model(path)
    print(
        f"{path.name}: {path.stat().st_size / 1000:.0f} kB, mAP 50-95 {score:.2f} % of {len(task.test_images)} images"
    )
    return 0 if score >= task.wanted_score else 1


if __name__ == "__main__":
    sys.exit(main())
