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

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from e2e_workflow.common import training
from e2e_workflow.denoiser import images

MODEL = Path(__file__).with_name("denoiser_float.onnx")
PICTURES, SCORED = 2000, 400
CHANNELS, HIDDEN, BLOCKS = 16, 32, 4
STEPS, BATCH, RATE = 3000, 16, 3e-3


class Block(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection without activation, and the input added."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(CHANNELS, HIDDEN, 1, bias=False),
            nn.BatchNorm2d(HIDDEN),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1, groups=HIDDEN, bias=False),
            nn.BatchNorm2d(HIDDEN),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, CHANNELS, 1, bias=False),
            nn.BatchNorm2d(CHANNELS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Denoiser(nn.Module):
    """(N, 3, 32, 32) to the same shape: the picture and what the network adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU())
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.last = nn.Conv2d(CHANNELS, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(self.blocks(self.stem(x)))


def train(network: nn.Module, noisy: torch.Tensor, clean: torch.Tensor, steps: int) -> None:
    """AdamW with a one-cycle learning rate; mirrored pictures; mean absolute error."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=max(2, steps))
    network.train()
    for step in range(steps):
        chosen = torch.randint(0, len(noisy), (BATCH,))
        axes = [axis for axis in (2, 3) if step >> (axis - 2) & 1]
        loss = F.l1_loss(network(noisy[chosen].flip(axes)), clean[chosen].flip(axes))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    network.eval()


def score(network: nn.Module, noisy: np.ndarray, clean: np.ndarray) -> float:
    with torch.no_grad():
        return images.psnr({"denoised": network(torch.from_numpy(noisy)).numpy()}, clean)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one step; what runs, not what it scores")
    smoke = parser.parse_args().smoke
    training.seed_everything(7)
    noisy, clean = images.pairs(BATCH if smoke else PICTURES, images.TRAINING)
    network = Denoiser()
    train(network, torch.from_numpy(noisy), torch.from_numpy(clean), 1 if smoke else STEPS)
    path = Path(__file__).resolve().parents[1] / "work" / MODEL.name if smoke else MODEL
    path.parent.mkdir(exist_ok=True)
    training.export(network, path, torch.from_numpy(noisy[:1]), ["denoised"], quantized=False)
    noisy, clean = images.pairs(8 if smoke else SCORED, images.TEST)
    before = images.psnr({"noisy": noisy}, clean)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {before:.2f} dB to {score(network, noisy, clean):.2f} dB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
