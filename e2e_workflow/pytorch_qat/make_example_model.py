"""Makes the example model of the package: qdq_translator/models/digits_resnet_qat.onnx and digits_samples.npz.

    python -m e2e_workflow.pytorch_qat.make_example_model

A residual CNN is trained on scikit-learn's digits, fine-tuned with fake quantization and exported with Q/DQ. The
samples are the first 64 images of the test split: `input` (64, 1, 16, 16) float32 and `labels` (64,) int64.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch

from e2e_workflow.common import digits, evaluate, networks, training

FOLDER = Path(__file__).resolve().parents[2] / "qdq_translator" / "models"
SAMPLES = 64
WANTED_TOP1 = 97.0


def main() -> int:
    training.seed_everything(0)
    data = digits.load()
    network = networks.ResNet()
    training.train(network, data, epochs=20, rate=0.05)
    training.quantize_aware(network, data, epochs=4, rate=0.005)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "digits_resnet_qat.onnx"
    training.export(network, path, torch.from_numpy(data.test_images[:1]), ["logits"], quantized=True)
    onnx.checker.check_model(str(path), full_check=True)
    np.savez_compressed(
        FOLDER / "digits_samples.npz", input=data.test_images[:SAMPLES], labels=data.test_labels[:SAMPLES]
    )
    top1 = evaluate.top1(path, data.test_images, data.test_labels)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, Top-1 {top1:.2f} % of {len(data.test_labels)} images")
    return 0 if top1 >= WANTED_TOP1 else 1


if __name__ == "__main__":
    sys.exit(main())
