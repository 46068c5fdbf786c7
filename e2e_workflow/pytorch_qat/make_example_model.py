"""Makes the example model of the package: qdq_translator/models/digits_resnet_qat.onnx and digits_samples.npz.

    python -m e2e_workflow.pytorch_qat.make_example_model

A residual CNN is trained on scikit-learn's digits, fine-tuned with fake quantization and exported with Q/DQ. The
samples are the first 64 images of the test split: `input` (64, 1, 16, 16) float32 and `labels` (64,) int64.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx

from e2e_workflow.common.lazy import later

tasks = later("e2e_workflow.common.tasks")
FOLDER = Path(__file__).resolve().parents[2] / "qdq_translator" / "models"
SAMPLES = 64
WANTED_TOP1 = 97.0


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    task = tasks.DigitsTask("resnet", smoke=False)
    network = tasks.float_network(task, smoke=False)
    tasks.quantize_aware(task, network)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "digits_resnet_qat.onnx"
    task.export(network, path, quantized=True)
    onnx.checker.check_model(str(path), full_check=True)
    labels = task.data.test_labels[:SAMPLES]
    np.savez_compressed(FOLDER / "digits_samples.npz", input=task.test_images[:SAMPLES], labels=labels)
    top1 = task.score_of_model(path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, Top-1 {top1:.2f} % of {len(task.test_images)} images")
    return 0 if top1 >= WANTED_TOP1 else 1


if __name__ == "__main__":
    sys.exit(main())
