"""Trains the denoiser and writes denoiser_float.onnx beside this file.

    python -m e2e_workflow.denoiser.make [--smoke]      # minutes on one CPU core

A network of MobileNetV2's blocks that takes the noise out of a picture: depthwise convolutions with BatchNormalization and ReLU, residual
Adds, and one long way round from the input to the output. It is trained in float on 2,000 pictures and scored on the test
pictures once, at the end; nothing was chosen by that score. --smoke trains for one step and writes into e2e_workflow/work.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e_workflow.common.lazy import later
from e2e_workflow.denoiser import images

torch, network, training = later("torch"), later("e2e_workflow.denoiser.network"), later("e2e_workflow.common.training")
MODEL = Path(__file__).with_name("denoiser_float.onnx")
PICTURES, SCORED = 2000, 400


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one step; what runs, not what it scores")
    smoke = parser.parse_args().smoke
    training.seed_everything(7)
    noisy, clean = images.pairs(network.BATCH if smoke else PICTURES, images.TRAINING)
    denoiser = network.Denoiser()
    network.train(denoiser, torch.from_numpy(noisy), torch.from_numpy(clean), 1 if smoke else network.STEPS)
    path = Path(__file__).resolve().parents[1] / "work" / MODEL.name if smoke else MODEL
    path.parent.mkdir(exist_ok=True)
    training.export(denoiser, path, torch.from_numpy(noisy[:1]), ["denoised"], quantized=False)
    noisy, clean = images.pairs(8 if smoke else SCORED, images.TEST)
    before = images.psnr({"noisy": noisy}, clean)
    with torch.no_grad():
        after = images.psnr({"denoised": denoiser(torch.from_numpy(noisy)).numpy()}, clean)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {before:.2f} dB to {after:.2f} dB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
